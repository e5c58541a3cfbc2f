"""What recovery tells: to a visitor what is stored, to people what it found and did."""

from __future__ import annotations

from typing import Protocol

from flintmq.field_tuple import FieldTuple
from flintmq.storage.journal.segment import segment_name


class RecoveryVisitor(Protocol):
    """Who wants to know what was recovered."""

    def value(self, key: bytes, octets: bytes) -> None:
        """What is stored under a key; in no particular order."""

    def entry(self, sequence: int, owners: tuple[int, ...], header: bytes, payload_octets: int) -> None:
        """A live entry and those who hold it; in order. An owner that is unknown should settle it."""

    def progress(self, done_octets: int, total_octets: int) -> None:
        """How far the reading has come."""


class Hole(FieldTuple):
    """Octets of a segment that are no record."""

    segment: int
    at: int
    end: int
    # The sequence before it, and that of the record behind it; 0 if there is none in the segment.
    before: int
    after: int

    @property
    def records(self) -> int:
        """How many may have been in it, at the most; 0 if that cannot be told."""
        return max(self.after - self.before - 1, 0)

    def told(self, is_missing: bool = False) -> str:
        """For people."""
        name = segment_name(self.segment)
        place = f"{name} is missing" if is_missing else f"damage in {name}, octets {self.at} to {self.end}"
        return f"{place}: {self.records} records are lost" if self.records else place


class RecoveryReport:
    """What recovery found and did."""

    def __init__(self) -> None:
        self.segments = 0
        self.records = 0
        self.entries = 0
        self.keys = 0
        self.octets = 0
        self.torn_octets = 0
        self.damaged: list[Hole] = []
        self.missing: list[Hole] = []  # segments that were promised and have no file
        self.set_aside: list[str] = []
        self.groups_dropped = 0
        # Of these groups the records that had been synced: clients may have been told that they are safe.
        self.records_dropped: list[int] = []
        self.spools_removed = 0
        self.entries_unreadable: list[int] = []
        # Losses that recovery has found before, with nobody who has rescued yet what they have left.
        self.earlier: list[str] = []

    @property
    def is_incomplete(self) -> bool:
        """Whether records that were promised are not there, which may be those of queues: it is noted."""
        return bool(self.damaged or self.missing or self.records_dropped or self.earlier)

    @property
    def is_damaged(self) -> bool:
        """Whether something that was promised is lost, or may be."""
        return bool(self.damaged or self.missing or self.entries_unreadable or self.records_dropped)

    def losses(self) -> list[str]:
        """What was promised and is not there, for people: to be told loudly."""
        text = [hole.told() for hole in self.damaged]
        text.extend(hole.told(is_missing=True) for hole in self.missing)
        text.extend(f"set aside: {name}" for name in self.set_aside)
        if self.entries_unreadable:
            text.append(f"entries whose payload is lost: {self.entries_unreadable}")
        if self.records_dropped:
            text.append(lost_with_group(self.records_dropped))
        return text + [f"found by an earlier start or repair: {line}" for line in self.earlier]

    def lines(self) -> list[str]:
        """For people; with `losses`."""
        text = [
            f"{self.records} records in {self.segments} segments, {self.octets} octets",
            f"{self.entries} live entries, {self.keys} keys",
        ]
        if self.torn_octets:
            text.append(f"torn tail of {self.torn_octets} octets cut: none of it was promised")
        if self.groups_dropped:
            text.append(f"{self.groups_dropped} incomplete groups dropped")
        text.extend(self.losses())
        if self.spools_removed:
            text.append(f"{self.spools_removed} leftover spools removed")
        return text


def lost_with_group(records: list[int]) -> str:
    """The text for records that were synced and belong to a group without an end."""
    return (
        f"{len(records)} synced records, from {min(records)} to {max(records)}, belong to a group without "
        "an end and are dropped: confirmed messages may be among them"
    )
