"""Look into a journal, check it and repair it; for people, with no broker running.

`inspect` and `check` change nothing and take no lock, so they can be pointed at a copy or at a
journal in use (whose last octets may then be read half written). `repair` takes the lock and does
what a start would do: cut the torn tail, set damage aside, remove leftovers.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from flintmq.errors import StorageFault
from flintmq.storage import layout
from flintmq.storage.disk import Disk
from flintmq.storage.journal import record
from flintmq.storage.journal.journal import PROMISES_NAME, Journal
from flintmq.storage.journal.replay import (
    Replay,
    close_files,
    missing_segments,
    promised,
    read_chain,
    scan_file,
    settle_overlapping,
    take_promises,
)
from flintmq.storage.journal.report import Hole, RecoveryReport, lost_with_group
from flintmq.storage.journal.segment import segment_name
from flintmq.storage.options import JournalOptions
from flintmq.storage.spool import STAGED, SpoolStore, spool_name, spool_number
from flintmq.storage.sync_notes import SEGMENT, Notes, read_notes

KIND_NAMES = {
    layout.ENTRY: "entry",
    layout.MOVED: "moved",
    layout.SETTLE: "settle",
    layout.COMMIT: "commit",
    layout.PUT: "put",
    layout.DELETE: "delete",
    layout.CHECKPOINT: "checkpoint",
    layout.BATCH: "batch",
    layout.PAD: "pad",
    layout.END: "end",
}


@dataclass(frozen=True, slots=True)
class RecordView:
    """One record, for showing."""

    segment: int
    at: int
    length: int
    sequence: int
    kind: str
    grouped: bool
    text: str
    # Of a value.
    key: bytes = b""
    value: bytes = b""

    def line(self, text: str = "") -> str:
        """For people; `text` in place of its own, from someone who knows what it means."""
        mark = " (grouped)" if self.grouped else ""
        words = text or self.text
        return f"{self.at:>10}  {self.length:>8}  {self.sequence:>12}  {self.kind:<10} {words}{mark}"


@dataclass(slots=True)
class SegmentView:
    """One segment, for showing."""

    number: int
    octets: int
    end: int
    head_is_true: bool
    void: bool
    records: Counter[str] = field(default_factory=Counter)
    live_octets: int = 0

    def line(self) -> str:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.records.items()))
        notes = ("" if self.head_is_true else ", head damaged") + (", abandoned" if self.void else "")
        return (
            f"{segment_name(self.number)}  {self.end} of {self.octets} octets, "
            f"{self.live_octets} live{notes}: {kinds or 'empty'}"
        )


@dataclass(slots=True)
class CheckResult:
    """What a check found; `sound` if a start would lose nothing."""

    segments: list[SegmentView] = field(default_factory=list)
    entries: int = 0
    keys: int = 0
    groups_incomplete: int = 0
    records_dropped: list[int] = field(default_factory=list)  # of these groups, though they were synced
    holes: list[Hole] = field(default_factory=list)
    missing: list[Hole] = field(default_factory=list)
    torn: list[Hole] = field(default_factory=list)  # what a kill leaves at the end: never promised
    spools_bad: list[str] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        return not (self.is_mendable or self.spools_bad)

    @property
    def is_mendable(self) -> bool:
        """Whether there is something that a repair, or a start, tells and then sets aside or leaves out."""
        return bool(self.holes or self.missing or self.records_dropped)

    def lines(self) -> list[str]:
        text = [segment.line() for segment in self.segments]
        text.append(f"{self.entries} live entries, {self.keys} keys")
        if self.groups_incomplete:
            text.append(f"{self.groups_incomplete} incomplete groups: a start drops them")
        if self.records_dropped:
            text.append(lost_with_group(self.records_dropped))
        for hole in self.torn:
            text.append(f"{segment_name(hole.segment)}: torn from octet {hole.at} on: a start cuts it off")
        for hole in self.holes:
            text.append(
                f"{segment_name(hole.segment)}: octets {hole.at} to {hole.end} are no record "
                f"(behind sequence {hole.before}, {hole.records} records)"
            )
        text.extend(hole.told(is_missing=True) for hole in self.missing)
        text.extend(self.bodies_lost())
        return text

    def bodies_lost(self) -> list[str]:
        """For people: what neither a repair nor a start can do anything about."""
        return [
            f"{name}: missing, cut short or not what was stored; its message is lost"
            for name in self.spools_bad
        ]


def inspect(directory: str, disk: Disk | None = None) -> Iterator[RecordView]:
    """Every record of every segment, in order."""
    disk = disk or Disk()
    files = read_chain(disk, directory, Notes())
    try:
        for file in files:
            octets = disk.read(file.handle, 0, file.octets)
            if not file.void:
                yield from _records(file.number, octets, min(file.limit, len(octets)))
    finally:
        close_files(disk, files)


def _records(number: int, octets: bytes, limit: int) -> Iterator[RecordView]:
    """The records of one segment that follow on each other; stepping over what is none."""
    seed = record.seed_of(number)
    at = layout.SEGMENT_HEAD
    while at < limit:
        length = record.checked_length(octets, at, limit, seed)
        if length == 0 or not record.well_formed(octets, at, length):
            at += 8
            continue
        kind = layout.get_u8(octets, at + 16)
        grouped = bool(layout.get_u8(octets, at + 17) & layout.GROUPED)
        sequence = layout.get_u64(octets, at + 8)
        name = KIND_NAMES.get(kind, str(kind))
        text = _describe(octets, at, length, kind)
        key = value = b""
        if kind in (layout.PUT, layout.DELETE):
            body = at + layout.RECORD_HEAD
            key_end = body + layout.get_u32(octets, at + 20)
            key, value = octets[body:key_end], octets[key_end : at + length]
        yield RecordView(number, at, length, sequence, name, grouped, text, key, value)
        at += record.padded(length)
        if kind == layout.END:
            return


def _describe(octets: bytes, at: int, length: int, kind: int) -> str:
    body = at + layout.RECORD_HEAD
    count = layout.get_u32(octets, at + 20)
    if kind in (layout.ENTRY, layout.MOVED):
        header_at = record.entry_header_at(octets, at)
        header = layout.get_u32(octets, header_at)
        owners = " ".join(map(str, record.entry_owners(octets, at)))
        payload = at + length - header_at - 4 - header
        name = f"of {layout.get_u64(octets, body)} " if kind == layout.MOVED else ""
        where = " in a spool" if layout.get_u8(octets, at + 17) & layout.SPOOLED else ""
        return f"{name}owners {owners}; header {header}, payload {payload}{where}"
    if kind == layout.SETTLE:
        runs = []
        for run_at in range(body, body + count * layout.RUN_OCTETS, layout.RUN_OCTETS):
            first = layout.get_u64(octets, run_at + 8)
            last = first + layout.get_u32(octets, run_at + 4) - 1
            runs.append(f"{layout.get_u32(octets, run_at)}:{first}-{last}")
        return "owner:first-last " + " ".join(runs)
    if kind in (layout.PUT, layout.DELETE):
        return f"{octets[body : body + count]!r}, {length - layout.RECORD_HEAD - count} octets"
    if kind == layout.COMMIT:
        return f"{count} records from {layout.get_u64(octets, body)}"
    if kind == layout.CHECKPOINT:
        return f"values before {layout.get_u64(octets, body)} are void"
    if kind == layout.BATCH:
        return f"synced up to {layout.get_u64(octets, body)}"
    return ""


def check(directory: str, disk: Disk | None = None) -> CheckResult:
    """Verify every checksum, of records and of spools, and account for what is there."""
    disk = disk or Disk()
    result = CheckResult()
    replay = Replay()
    # Before the files, which may be growing: what is noted now is in them then.
    path = os.path.join(directory, PROMISES_NAME)
    notes = read_notes(disk, path)
    files = read_chain(disk, directory, notes)
    try:
        # And once more: a segment that is gone by now may have been dropped, after its note.
        still_noted = read_notes(disk, path)
        result.missing = [
            hole for hole in missing_segments(files, notes) if still_noted.of(SEGMENT, hole.segment)
        ]
        take_promises(files, notes, replay)
        for file in files:
            view = SegmentView(file.number, file.octets, 0, file.head is not None, file.void)
            result.segments.append(view)
            if file.void:
                continue
            view.end = scan_file(disk, files, file, replay)
            octets = disk.read(file.handle, 0, view.end)
            view.records.update(each.kind for each in _records(file.number, octets, view.end))
        settle_overlapping(disk, files, replay)
    finally:
        close_files(disk, files)
    for view in result.segments:
        if not view.void:
            view.live_octets = replay.segments[view.number].live_octets
    result.entries = replay.index.entries
    values = replay.values_in_force()
    result.keys = len(values)
    result.groups_incomplete = replay.groups_dropped
    result.records_dropped = replay.synced_and_dropped()
    newest = max(replay.segments, default=0)
    promises = {file.number: file.promise for file in files}
    for hole in replay.holes:
        is_damage = promised(hole, newest, replay, promises[hole.segment])
        (result.holes if is_damage else result.torn).append(hole)
    result.spools_bad = _bad_spools(disk, directory, replay, values)
    return result


def _bad_spools(disk: Disk, directory: str, replay: Replay, values: dict[bytes, bytes]) -> list[str]:
    store = SpoolStore(disk, directory)
    bad = []
    try:
        for sequence, reference in replay.spooled.items():
            if not replay.index.locate(sequence):
                continue
            name = spool_name(int.from_bytes(reference[:8], "little"))
            try:
                store.reopen(sequence, reference)
            except StorageFault:
                bad.append(name)
                continue
            if not store.adopted[sequence].verify():
                bad.append(name)
        for key, value in values.items():
            if key.startswith(STAGED):
                try:
                    staged = store.reopen_staged(value)
                except StorageFault:
                    staged = None
                    bad.append(spool_name(int.from_bytes(value[:8], "little")))
                if staged is not None and not staged.verify():
                    bad.append(spool_name(staged.number))
    finally:
        store.close()
    return bad


def repair(directory: str, disk: Disk | None = None) -> RecoveryReport:
    """Do what a start would do, and say what was done; nothing is thrown away silently."""
    disk = disk or Disk()
    if not any(_known(name) for name in disk.list(directory)):
        raise StorageFault(f"{directory} holds no journal")
    journal = Journal.open(directory, disk, JournalOptions(threaded=False, spare_segments=0))
    try:
        return journal.recover(_Silent())
    finally:
        journal.close()


def _known(name: str) -> bool:
    return name.endswith(".segment") or spool_number(os.path.basename(name)) is not None


class _Silent:
    """Wants to know nothing."""

    def value(self, key: bytes, octets: bytes) -> None:
        """Nothing to do."""

    def entry(self, sequence: int, owners: tuple[int, ...], header: bytes, payload_octets: int) -> None:
        """Nothing to do."""

    def progress(self, done_octets: int, total_octets: int) -> None:
        """Nothing to do."""
