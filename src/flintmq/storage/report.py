"""What recovery tells: to a visitor what is stored, to people what it found and did."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from .segment import segment_name


class RecoveryVisitor(Protocol):
    """Who wants to know what was recovered."""

    def wiring(self, key: bytes, octets: bytes) -> None:
        """What is stored under a key; in no particular order."""

    def entry(self, sequence: int, owners: tuple[int, ...], header: bytes, payload_octets: int) -> None:
        """A live entry and those who hold it; in order. An owner that is unknown should settle it."""

    def progress(self, done_octets: int, total_octets: int) -> None:
        """How far the reading has come."""


@dataclass(frozen=True, slots=True)
class Hole:
    """Octets of a segment that are no record."""

    segment: int
    at: int
    end: int
    # The sequence before it, and that of the record behind it; 0 if there is none in the segment.
    before: int
    after: int


@dataclass(slots=True)
class RecoveryReport:
    """What recovery found and did."""

    segments: int = 0
    records: int = 0
    entries: int = 0
    wiring: int = 0
    octets: int = 0
    torn_octets: int = 0
    damaged: list[Hole] = field(default_factory=list)
    set_aside: list[str] = field(default_factory=list)
    groups_dropped: int = 0
    # Of these groups the records that had been synced: clients may have been told that they are safe.
    records_dropped: list[int] = field(default_factory=list)
    spools_removed: int = 0
    entries_unreadable: list[int] = field(default_factory=list)

    def losses(self) -> list[str]:
        """What was dropped although clients may have been told that it is safe; to be said aloud."""
        return [lost_with_group(self.records_dropped)] if self.records_dropped else []

    def lines(self) -> list[str]:
        """For people."""
        text = [
            f"{self.records} records in {self.segments} segments, {self.octets} octets",
            f"{self.entries} live entries, {self.wiring} keys of wiring",
        ]
        if self.torn_octets:
            text.append(f"torn tail of {self.torn_octets} octets cut: none of it was promised")
        if self.groups_dropped:
            text.append(f"{self.groups_dropped} incomplete groups dropped")
        text.extend(self.losses())
        if self.spools_removed:
            text.append(f"{self.spools_removed} leftover spools removed")
        for hole in self.damaged:
            text.append(f"damage in {segment_name(hole.segment)}, octets {hole.at} to {hole.end}")
        text.extend(f"set aside: {name}" for name in self.set_aside)
        if self.entries_unreadable:
            text.append(f"entries whose payload is lost: {self.entries_unreadable}")
        return text


def lost_with_group(records: list[int]) -> str:
    """The text for records that were synced and belong to a group without an end."""
    return (
        f"{len(records)} synced records, from {min(records)} to {max(records)}, belong to a group without "
        "an end and are dropped: confirmed messages may be among them"
    )
