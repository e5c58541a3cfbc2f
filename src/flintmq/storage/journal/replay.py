"""Recovery: what the files of a journal say, whatever a crash or the disk left behind.

    1  heads of all segments: which belong to the chain, and where each one ends
    2  every record in order: index of live entries, values by key, settles, whole groups
    3  holes: octets between records that check. After the last sync: a torn tail, cut.
       Before it: damage. The octets are set aside in a file of their own, and reported. What was synced
       last is noted outside of the segments (sync_notes.py), and so are the segments that have to exist.
       Either way a PAD record covers the hole: the next recovery does not meet it again. Before that the
       damage is noted in a file (damage_note.py), for the start that rescues what is left.
    4  the visitor is told all keys and values, then all live entries in order

What a record means depends on its sequence and never on where it lies. A segment whose head was lost may
repeat records of earlier segments, so an entry can be read after its settle, and a key after its removal. An
owner that has let go of an entry stays gone; of a key the highest sequence counts.

A hole ends at the next record that checks under the segment's seed with a fitting sequence; records behind
the hole count. A group is in force only if its COMMIT is there and no record of the group is missing.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING

from flintmq.errors import StorageFault
from flintmq.storage import layout
from flintmq.storage.journal import damage_note, record
from flintmq.storage.journal.index import EntryIndex, OwnerSet
from flintmq.storage.journal.migrate import migrate
from flintmq.storage.journal.reader import checked_entry
from flintmq.storage.journal.reclaim import SPARE_PREFIX
from flintmq.storage.journal.report import Hole, RecoveryReport, RecoveryVisitor
from flintmq.storage.journal.segment import Segment, SegmentHead, segment_name, segment_number
from flintmq.storage.spool import STAGED
from flintmq.storage.sync_notes import SEGMENT, Notes, Promise

if TYPE_CHECKING:
    from flintmq.storage.disk import Disk
    from flintmq.storage.journal.journal import Journal

# kind, flags, two zeros: the only fixed octets of a head, at 16 of a record.
_PLAUSIBLE = re.compile(rb"[\x01-\x0a][\x00-\x03]\x00\x00", re.DOTALL)


_SEQUENCE_MAX = (1 << 63) - 1
PROGRESS_ENTRIES = 100_000


class Replay:
    """The state that the records of a journal add up to."""

    def __init__(self) -> None:
        self.index = EntryIndex()
        self.segments: dict[int, Segment] = {}
        # By key the highest sequence, and the value of that record; None if the record removed the key.
        self.values: dict[bytes, tuple[int, bytes | None]] = {}
        self.checkpoint_sequence = 0
        self.synced_sequence = 0
        self.last_sequence = 0
        self.records = 0
        self.groups_dropped = 0
        self.ungrouped: list[int] = []  # sequences of the records of dropped groups
        self.holes: list[Hole] = []
        # Records of incomplete groups and second copies: (segment, offset, length, sequence).
        self.dropped: list[tuple[int, int, int, int]] = []
        # Where the newest copy of an entry that was moved lies, live or not.
        self.moved_to: dict[int, int] = {}
        self.victims: list[int] = []
        self.spooled: dict[int, bytes] = {}
        self._segment = Segment(0, 0)
        self._group: list[int] = []
        self._owner_near = 0
        self._set_near: OwnerSet | None = None
        self._died_near = Segment(0, 0)
        # A segment without a head may repeat sequences of others.
        self.overlapping = False
        self._near_target: Segment | None = None

    def scan(self, segment: Segment, octets: bytes, limit: int, seen: set[int] | None) -> int:
        """All records of a segment; returns where they end.

        `seen`, for a segment without a true head, is what earlier segments hold of its sequences: the segment
        may be the second writing of a batch whose first writing was not voided, and a record counts once.
        """
        self._segment = segment
        self.segments[segment.number] = segment
        self._group = []
        at = layout.SEGMENT_HEAD
        before = min(segment.first_sequence - 1, self.last_sequence)
        while at < limit:
            length = record.checked_length(octets, at, limit, segment.seed)
            if length == 0 or not record.well_formed(octets, at, length):
                end = self._next_record(octets, at, limit, before)
                after = 0 if end == limit else layout.get_u64(octets, end + 8)
                if end < limit or not _blank(octets, at, limit):
                    self.holes.append(Hole(segment.number, at, end, before, after))
                if end == limit:
                    break
                at = end
                continue
            sequence = layout.get_u64(octets, at + 8)
            kind = layout.get_u8(octets, at + 16)
            if kind == layout.BATCH:
                self.synced_sequence = max(
                    self.synced_sequence, layout.get_u64(octets, at + layout.RECORD_HEAD)
                )
            elif kind == layout.END:
                at += length
                break
            elif kind == layout.PAD:
                before = max(before, sequence)
            elif seen is not None and sequence in seen:
                # A PAD covers the copy as well: the next recovery must come to the same result.
                self.dropped.append((segment.number, at, length, sequence))
            else:
                before = sequence
                self.records += 1
                self.last_sequence = max(self.last_sequence, sequence)
                self._take(octets, at, length, sequence, kind)
            at += record.padded(length)
        self._drop_group(octets)
        segment.last_sequence = before or 1
        segment.end = min(at, limit)
        return segment.end

    def sequences(self, number: int, octets: bytes, limit: int) -> list[int]:
        """The sequences of all records that check; nothing else is taken from the records."""
        self._segment = Segment(number, limit)
        found = []
        at = layout.SEGMENT_HEAD
        while at < limit:
            length = record.checked_length(octets, at, limit, self._segment.seed)
            if length == 0 or not record.well_formed(octets, at, length):
                at = self._next_record(octets, at, limit, 0)
                continue
            kind = layout.get_u8(octets, at + 16)
            if kind == layout.END:
                break
            if kind != layout.BATCH and kind != layout.PAD:
                found.append(layout.get_u64(octets, at + 8))
            at += record.padded(length)
        return found

    def settle_again(self, segment: Segment, octets: bytes, void: dict[int, int]) -> None:
        """Only the settles of a segment that was scanned, now that every entry is known.

        `void` tells of holes and dropped records where they begin and where they end.
        """
        self._segment = segment
        at = layout.SEGMENT_HEAD
        while at < segment.end:
            past = void.get(at)
            if past is not None:
                at = past
                continue
            length = record.checked_length(octets, at, min(segment.end, len(octets)), segment.seed)
            if length == 0:
                raise StorageFault(f"segment {segment.number} reads differently the second time")
            if layout.get_u8(octets, at + 16) == layout.SETTLE:
                self._settle(octets, at)
            at += record.padded(length)

    def _take(self, octets: bytes, at: int, length: int, sequence: int, kind: int) -> int:
        """A record in its turn: members of a group wait for their COMMIT."""
        if layout.get_u8(octets, at + 17) & layout.GROUPED:
            self._group.append(at)
            return 0
        if kind == layout.COMMIT:
            self._commit(octets, at)
            return 0
        if self._group:
            self._drop_group(octets)
        self._apply(octets, at, length, sequence, kind)
        return 0

    def _commit(self, octets: bytes, at: int) -> None:
        first = layout.get_u64(octets, at + layout.RECORD_HEAD)
        count = layout.get_u32(octets, at + 20)
        members = [each for each in self._group if layout.get_u64(octets, each + 8) >= first]
        # Older records belong to a group before this one whose own COMMIT is damaged.
        self._group = self._group[: len(self._group) - len(members)]
        self._drop_group(octets)
        whole = [layout.get_u64(octets, each + 8) for each in members] == list(
            range(first, first + len(members))
        )
        if len(members) != count or not whole:
            self._group = [*members, at]
            self._drop_group(octets)
            return
        for each in members:
            length = layout.get_u32(octets, each + 4)
            self._apply(
                octets, each, length, layout.get_u64(octets, each + 8), layout.get_u8(octets, each + 16)
            )

    def _drop_group(self, octets: bytes) -> None:
        """Records of an incomplete group count for nothing, now and in any later recovery."""
        if self._group:
            self.groups_dropped += 1
            for at in self._group:
                length = layout.get_u32(octets, at + 4)
                self.dropped.append((self._segment.number, at, length, layout.get_u64(octets, at + 8)))
                self.ungrouped.append(layout.get_u64(octets, at + 8))
            self._group = []

    def _apply(self, octets: bytes, at: int, length: int, sequence: int, kind: int) -> int:
        if kind == layout.ENTRY:
            self._entry(octets, at, length, sequence)
        elif kind == layout.SETTLE:
            self._settle(octets, at)
        elif kind == layout.MOVED:
            self._moved(octets, at, length)
        elif kind == layout.PUT:
            key_end = at + layout.RECORD_HEAD + layout.get_u32(octets, at + 20)
            self._value(octets[at + layout.RECORD_HEAD : key_end], sequence, octets[key_end : at + length])
        elif kind == layout.DELETE:
            self._value(octets[at + layout.RECORD_HEAD : at + length], sequence, None)
        elif kind == layout.CHECKPOINT:
            first = layout.get_u64(octets, at + layout.RECORD_HEAD)
            self.checkpoint_sequence = max(self.checkpoint_sequence, first)
            self._segment.value_sequence = sequence
        return 0

    def _value(self, key: bytes, sequence: int, value: bytes | None) -> None:
        self._segment.value_sequence = sequence
        known = self.values.get(key)
        if known is None or known[0] < sequence:
            self.values[key] = (sequence, value)

    def synced_and_dropped(self) -> list[int]:
        """Synced records of incomplete groups. No crash tears off synced records, so these are a loss."""
        return [sequence for sequence in self.ungrouped if sequence <= self.synced_sequence]

    def values_in_force(self) -> dict[bytes, bytes]:
        """The value of each key, by the last checkpoint and the records after it. Can be asked once."""
        in_force = {
            key: value
            for key, (sequence, value) in self.values.items()
            if value is not None and sequence >= self.checkpoint_sequence
        }
        self.values = {}  # much memory, which the visitor needs for the values
        return in_force

    def _entry(self, octets: bytes, at: int, length: int, sequence: int) -> int:
        segment = self._segment
        owner_set = self._set_near
        owner = layout.get_u32(octets, record.entry_body(octets, at))
        if owner_set is None or owner != self._owner_near or layout.get_u32(octets, at + 20) != 1:
            owner_set = self.index.owner_set(record.entry_owners(octets, at))
            if len(owner_set.owners) == 1:
                self._owner_near = owner
                self._set_near = owner_set
        size = record.padded(length)
        self.index.put(sequence, segment.number << 32 | at >> 3, size >> 3, owner_set)
        segment.live_octets += size
        if layout.get_u8(octets, at + 17) & layout.SPOOLED:
            header_at = record.entry_header_at(octets, at)
            self.spooled[sequence] = octets[header_at + 4 + layout.get_u32(octets, header_at) : at + length]
        return 0

    def _moved(self, octets: bytes, at: int, length: int) -> None:
        """A newer copy of an entry takes the place of the older one, with the owners that the copy names."""
        original = layout.get_u64(octets, at + layout.RECORD_HEAD)
        if self.index.forget(original):
            older = self.index.found_location >> 32
            self._died(older, self.index.found_size << 3)
            if older != self._segment.number and older not in self.victims:
                self.victims.append(older)
        self.moved_to[original] = self._segment.number
        self._segment.moved += 1
        self._entry(octets, at, length, original)

    def _settle(self, octets: bytes, at: int) -> int:
        segment = self._segment
        index = self.index
        for run in range(layout.get_u32(octets, at + 20)):
            run_at = at + layout.RECORD_HEAD + run * layout.RUN_OCTETS
            owner = layout.get_u32(octets, run_at)
            first = layout.get_u64(octets, run_at + 8)
            end = min(first + layout.get_u32(octets, run_at + 4), self.last_sequence + 1)
            sequence = first
            while sequence < end:
                if index.settle(owner, sequence) == layout.DEAD:
                    self._died(index.found_location >> 32, index.found_size << 3)
                sequence += 1
            self._oblige(segment, first, end)
        return 0

    def _died(self, number: int, size: int) -> int:
        segment = self._died_near
        if segment.number != number:
            segment = self.segments[number]
            self._died_near = segment
        segment.live_octets -= size
        return 0

    def _oblige(self, segment: Segment, first: int, end: int) -> int:
        """The segment has to stay until all copies of the entries that it settles are gone, live or not."""
        near = self._near_target
        if (
            not self.overlapping
            and not self.moved_to
            and near is not None
            and near.first_sequence <= first
            and end <= near.last_sequence + 1
        ):
            if near.number != segment.number:
                segment.obliges[near.number] = segment.obliges.get(near.number, 0) + layout.RUN_OCTETS
            return 0
        targets = {each.number for each in self.segments.values() if each.may_hold(first, end)}
        if self.moved_to:
            targets |= {self.moved_to[name] for name in range(first, end) if name in self.moved_to}
        targets.discard(segment.number)
        for target in targets:
            segment.obliges[target] = segment.obliges.get(target, 0) + layout.RUN_OCTETS
            self._near_target = self.segments[target]
        return 0

    def _next_record(self, octets: bytes, at: int, limit: int, before: int) -> int:
        """Where the next record that checks begins, or `limit`; its sequence fits, unless `before` is 0.

        It is sought a head's length on: what is covered has to have room for a PAD.
        """
        most = before + (limit - at) // layout.RECORD_HEAD + 1 if before else _SEQUENCE_MAX
        for found in _PLAUSIBLE.finditer(octets, at + layout.RECORD_HEAD + 16, limit):
            start = found.start() - 16
            if start & 7:
                continue
            if not before <= layout.get_u64(octets, start + 8) <= most:
                continue
            length = record.checked_length(octets, start, limit, self._segment.seed)
            if length and record.well_formed(octets, start, length):
                return start
        return limit


def _blank(octets: bytes, at: int, limit: int) -> bool:
    """Nothing but zeros: never written."""
    return octets.count(0, at, limit) == limit - at


class _File:
    """A segment file before it is read."""

    def __init__(self, number: int, handle: int) -> None:
        self.number = number
        self.handle = handle
        self.octets = 0
        self.head: SegmentHead | None = None
        # Where the next segment's head says that this one ends.
        self.limit = 0
        self.void = False
        # The same end where the file is shorter, or the end that was promised; 0 if neither is known.
        self.promised_end = 0
        self.promise: Promise | None = None

    def measure(self, disk: Disk) -> None:
        """How long the file is, and what its head says."""
        self.octets = disk.size(self.handle)
        self.head = SegmentHead.decode(disk.read(self.handle, 0, layout.SEGMENT_HEAD), self.number)
        # A record is whole with its padding, so a segment ends at a multiple of 8.
        self.limit = self.octets & ~7


def close_files(disk: Disk, files: list[_File]) -> None:
    """Lets go of those that are open."""
    for file in files:
        handle, file.handle = file.handle, -1
        if handle >= 0:
            disk.let_go(handle)


def promised_segments(files: list[_File], notes: Notes) -> dict[int, Promise]:
    """What is noted of each segment, unless a FlintMQ that keeps no notes has been here since."""
    newest = max([file.head.epoch for file in files if file.head is not None], default=0)
    return {} if notes.outdated_by(newest) else notes.all_of(SEGMENT)


def missing_segments(files: list[_File], notes: Notes) -> list[Hole]:
    """Segments that have to be there, and have no file."""
    there = {file.number for file in files}
    return [
        Hole(each.number, layout.SEGMENT_HEAD, each.end, max(each.first, 1) - 1, each.mark + 1)
        for each in promised_segments(files, notes).values()
        if each.number not in there
    ]


def read_chain(disk: Disk, directory: str, notes: Notes) -> list[_File]:
    """All segment files in order, with what the heads say about each other; the handles are open."""
    files: list[_File] = []
    try:
        for name in disk.list(directory):
            number = segment_number(name)
            if number is not None:
                files.append(_File(number, disk.open(os.path.join(directory, name))))
                files[-1].measure(disk)
    except (OSError, StorageFault):
        close_files(disk, files)
        raise
    files.sort(key=lambda each: each.number)
    promises = promised_segments(files, notes)
    for file in files:
        file.promise = promises.get(file.number)
        if file.promise is not None:
            file.promised_end = file.promise.end
    for at, file in enumerate(files):
        if file.head is not None:
            for earlier in files[:at]:
                earlier.void = earlier.void or earlier.number > file.head.previous
                if earlier.number == file.head.previous:
                    earlier.limit = min(earlier.limit, file.head.previous_end & ~7)
                    earlier.promised_end = file.head.previous_end
    return files


def recover(journal: Journal, visitor: RecoveryVisitor) -> RecoveryReport:
    """Fill a journal from its directory and tell the visitor."""
    disk, directory = journal.disk, journal.directory
    migrate(disk, directory)
    notes = journal.promises.found if journal.promises is not None else Notes()
    files = read_chain(disk, directory, notes)
    try:
        replay, report = _replay(journal, files, notes, visitor)
    finally:
        close_files(disk, files)
    _adopt(journal, files, replay)
    _adopt_spools(journal, replay, report)
    _tell(journal, visitor, report)
    visitor.progress(2 * report.octets, 2 * report.octets)
    return report


def _replay(
    journal: Journal, files: list[_File], notes: Notes, visitor: RecoveryVisitor
) -> tuple[Replay, RecoveryReport]:
    """Reads all records, and mends the files."""
    disk, directory = journal.disk, journal.directory
    for name in disk.list(directory):
        if name.startswith(SPARE_PREFIX):
            disk.delete(os.path.join(directory, name))
    report = RecoveryReport()
    report.missing = missing_segments(files, notes)
    replay = Replay()
    take_promises(files, notes, replay)
    total = 2 * sum(file.limit for file in files)  # once to see what is there, once for what is live
    ends: dict[int, int] = {}
    for file in files:
        if not file.void:
            ends[file.number] = scan_file(disk, files, file, replay)
        report.octets += file.limit
        visitor.progress(report.octets, total)
    settle_overlapping(disk, files, replay)
    report.records_dropped = replay.synced_and_dropped()
    _judge(files, max(ends, default=0), replay, report)
    report.earlier = damage_note.write(disk, directory, report.losses())
    _mend(journal, files, ends, replay, report)
    report.segments = len(ends)
    report.records = replay.records
    report.groups_dropped = replay.groups_dropped
    return replay, report


def take_promises(files: list[_File], notes: Notes, replay: Replay) -> None:
    """Promised records that are missing are damage, and their sequences are not given again."""
    last = max([each.mark for each in promised_segments(files, notes).values()], default=0)
    replay.synced_sequence = last
    replay.last_sequence = last


def scan_file(disk: Disk, files: list[_File], file: _File, replay: Replay) -> int:
    """Reads one segment into the replay; returns where the segment ends."""
    segment = Segment(file.number, file.octets)
    octets = disk.read(file.handle, 0, file.octets)
    limit = min(file.limit, len(octets) & ~7)
    if file.head is not None:
        segment.first_sequence = file.head.first_sequence
        replay.last_sequence = max(replay.last_sequence, file.head.first_sequence - 1)
        end = replay.scan(segment, octets, limit, None)
    else:
        replay.overlapping = True
        segment.first_sequence = min(replay.sequences(file.number, octets, limit), default=_SEQUENCE_MAX)
        end = replay.scan(segment, octets, limit, _seen_before(disk, files, segment, replay))
    if end < file.promised_end:
        _note_missing_end(replay, segment, file)
    return end


def _note_missing_end(replay: Replay, segment: Segment, file: _File) -> None:
    """The file was cut short: the missing octets are a hole like any other, though no octet shows it."""
    before = min(segment.last_sequence, replay.last_sequence)
    at = segment.end
    if replay.holes and replay.holes[-1].segment == segment.number and replay.holes[-1].at == at:
        before = replay.holes.pop().before
    after = 0 if file.promise is None else file.promise.mark + 1
    replay.holes.append(Hole(segment.number, max(at, layout.SEGMENT_HEAD), file.promised_end, before, after))


def _seen_before(disk: Disk, files: list[_File], segment: Segment, replay: Replay) -> set[int]:
    """The sequences from this segment's first on that earlier segments hold too."""
    seen: set[int] = set()
    for file in files:
        earlier = replay.segments.get(file.number)
        if earlier is not None and earlier.last_sequence >= segment.first_sequence:
            octets = disk.read(file.handle, 0, file.limit)
            seen.update(replay.sequences(file.number, octets, len(octets)))
    seen.difference_update([sequence for _, _, _, sequence in replay.dropped])
    return seen


def settle_overlapping(disk: Disk, files: list[_File], replay: Replay) -> None:
    """Segments without a head: an entry may have been read after its settle. The settle counts."""
    if not replay.overlapping:
        return
    for segment in replay.segments.values():
        segment.obliges.clear()
    for file in files:
        scanned = replay.segments.get(file.number)
        if scanned is not None:
            void = {hole.at: hole.end for hole in replay.holes if hole.segment == file.number}
            for number, at, length, _ in replay.dropped:
                if number == file.number:
                    void[at] = at + record.padded(length)
            replay.settle_again(scanned, disk.read(file.handle, 0, scanned.end), void)


def _judge(files: list[_File], newest: int, replay: Replay, report: RecoveryReport) -> None:
    """Which holes are damage, and which a torn tail."""
    by_number = {file.number: file for file in files}
    for hole in replay.holes:
        file = by_number[hole.segment]
        if promised(hole, newest, replay, file.promise):
            report.damaged.append(hole)
            if hole.at < file.octets:
                report.set_aside.append(_name_aside(hole))
        else:
            report.torn_octets += hole.end - hole.at


def _mend(
    journal: Journal, files: list[_File], ends: dict[int, int], replay: Replay, report: RecoveryReport
) -> None:
    """Cuts the tail, sets damage aside, removes segments outside the chain; all safe before use."""
    disk = journal.disk
    by_number = {file.number: file for file in files}
    damaged = {(hole.segment, hole.at) for hole in report.damaged}
    for hole in replay.holes:
        file = by_number[hole.segment]
        if (hole.segment, hole.at) in damaged and hole.at < file.octets:
            _set_aside(journal, file, hole)
        # Records end at multiples of eight; a file may have been cut anywhere.
        if hole.end < file.limit & ~7 or hole.end == file.promised_end:
            ends[hole.segment] = max(ends[hole.segment], hole.end)
            replay.segments[hole.segment].end = ends[hole.segment]
            # The last sequence that is missing, so that the gap is not taken for new damage.
            last = max(hole.after - 1, hole.before)
            disk.write(file.handle, hole.at, _pad(hole.segment, hole.end - hole.at, last))
    for number, at, length, sequence in replay.dropped:
        disk.write(by_number[number].handle, at, _pad(number, length, sequence))
    for file in files:
        if file.void:
            close_files(disk, [file])
            disk.delete(os.path.join(journal.directory, segment_name(file.number)))
            continue
        end = ends[file.number]
        if end < file.octets:
            disk.truncate(file.handle, end)
        disk.sync(file.handle)
        close_files(disk, [file])
    disk.sync_directory(journal.directory)


def promised(hole: Hole, newest: int, replay: Replay, promise: Promise | None) -> bool:
    """Whether a record in this hole was synced once."""
    if promise is not None and hole.at < promise.end:
        return True
    first_missing = hole.before + 1
    if hole.after:
        return first_missing < hole.after and first_missing <= replay.synced_sequence
    if hole.segment == newest:
        return False
    later = [
        each for number, each in replay.segments.items() if number > hole.segment and each.first_sequence
    ]
    resumes = min((each.first_sequence for each in later), default=first_missing)
    return first_missing < resumes and first_missing <= replay.synced_sequence


def _name_aside(hole: Hole) -> str:
    return f"{hole.segment:016d}-{hole.at}.damaged"


def _set_aside(journal: Journal, file: _File, hole: Hole) -> None:
    """Keep the damaged octets in a file of their own, for people to look at."""
    disk = journal.disk
    handle = disk.open(os.path.join(journal.directory, _name_aside(hole)), create=True)
    try:
        disk.write(handle, 0, disk.read(file.handle, hole.at, hole.end - hole.at))
        disk.sync(handle)
    finally:
        disk.let_go(handle)


def _pad(segment: int, length: int, sequence: int) -> bytes:
    """A record that covers what is void."""
    if length < layout.RECORD_HEAD:
        raise AssertionError("a hole has room for a head")
    buffer = bytearray(record.padded(length))
    record.write_head(buffer, 0, length, sequence, layout.PAD, 0, 0)
    record.seal(buffer, 0, length, record.seed_of(segment))
    return bytes(buffer)


def _adopt(journal: Journal, files: list[_File], replay: Replay) -> None:
    """The journal goes on where the files end."""
    for file in files:
        segment = replay.segments.get(file.number)
        if segment is not None:
            segment.sealed = segment.safe = True
            segment.recyclable = segment.end == file.octets == journal.options.segment_octets
            journal.segments[file.number] = segment
    newest = files[-1] if files else None
    epochs = [file.head.epoch for file in files if file.head is not None]
    # A spool may be all that is left of an epoch, or its name; neither may be used again.
    epochs.extend(journal.spools.epochs())
    epochs.extend(int.from_bytes(reference[4:8], "little") for reference in replay.spooled.values())
    journal.adopt(
        replay, replay.values_in_force(), newest.number + 1 if newest else 1, max(epochs, default=0) + 1
    )


def _adopt_spools(journal: Journal, replay: Replay, report: RecoveryReport) -> None:
    for sequence, reference in replay.spooled.items():
        if journal.index.locate(sequence):
            try:
                journal.spools.reopen(sequence, reference)
            except StorageFault:
                report.entries_unreadable.append(sequence)
                journal.lose_entry(sequence)
    for key, value in journal.values.items():
        if key.startswith(STAGED):
            with suppress(StorageFault):  # the owner of the value will miss the spool
                journal.spools.reopen_staged(value)
    report.spools_removed = journal.spools.remove_leftovers()


def _tell(journal: Journal, visitor: RecoveryVisitor, report: RecoveryReport) -> None:
    for key, octets in journal.values.items():
        visitor.value(key, octets)
    report.keys = len(journal.values)
    report.entries_unreadable.extend(tell_entries(journal, visitor, report.octets))
    report.entries = journal.index.entries


def tell_entries(journal: Journal, visitor: RecoveryVisitor, journal_octets: int) -> list[int]:
    """Reads every live entry in order, in windows; returns those that could not be read."""
    entry = visitor.entry
    told = 0
    index = journal.index
    reader = journal.reader
    adopted = journal.spools.adopted
    unreadable = []
    for sequence in index.live():
        index.locate(sequence)
        location = index.found_location
        number = location >> 32
        size = index.found_size << 3
        octets, at = reader.view(number, (location & 0xFFFFFFFF) << 3, size)
        try:
            header_at = checked_entry(octets, at, size, number, journal.segments[number].seed, sequence)
        except StorageFault:
            unreadable.append(sequence)
            continue
        start = header_at + 4
        end = start + layout.get_u32(octets, header_at)
        payload_octets = at + layout.get_u32(octets, at + 4) - end
        if adopted and sequence in adopted:
            payload_octets = adopted[sequence].octets
        entry(sequence, index.owners_of(sequence), octets[start:end], payload_octets)
        told += 1
        if told % PROGRESS_ENTRIES == 0:
            visitor.progress(journal_octets + journal_octets * told // index.entries, 2 * journal_octets)
    reader.release_window()
    for sequence in unreadable:
        journal.lose_entry(sequence)
    return unreadable
