"""The appending side of the journal: records into the current batch, in memory only.

What is appended gets its place at once: the current segment, at its end. When that is full, an END
closes it and a new one begins; a group that would be cut in two moves to the new one whole. Settles
are gathered and become one record at the end of a batch or at the border of a group, since
neighbours of one owner fold into a run:

    owner 7 lets go of 100, 101, 102, 200    ->    SETTLE  7:100 x3  7:200 x1

Nothing here touches the disk; Journal, which builds on this, writes and reads.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from types import TracebackType

from flintmq.errors import StorageFault
from flintmq.storage import layout
from flintmq.storage.journal import record
from flintmq.storage.journal.batch import BATCH_RECORD_OCTETS, END_OCTETS, Batch
from flintmq.storage.journal.index import EntryIndex, OwnerSet
from flintmq.storage.journal.segment import Segment, SegmentHead
from flintmq.storage.options import JournalOptions, SyncPolicy
from flintmq.storage.spool import Spool, SpoolStore

log = logging.getLogger("flintmq.journal")

RUNS_OCTETS = 64 << 10
# What a segment takes that no file was prepared for: at a start, and after a failure. It is soon full, and
# the next one mostly lies in a prepared file, where syncs cost less. A small one may fit on a full disk.
SEGMENT_OCTETS_LEAN = 1 << 20


class Group:
    """Records that are recovered whole or not at all; however the `with` ends, the group is closed.

    Inside another group it is part of that one.
    An exception does not undo what was appended before it: what was done in memory until then stays done,
    and the journal says the same. Only later records are never part of the group.
    """

    __slots__ = ("appender", "is_part", "sequence")

    def __init__(self, appender: Appender) -> None:
        self.appender = appender
        self.is_part = False
        self.sequence = 0  # of its end: the group is promised when this record is

    def __enter__(self) -> Group:
        self.is_part = self.appender.in_group()
        if not self.is_part:
            self.appender.begin_group()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.is_part:
            self.sequence = self.appender.next_sequence - 1
            return
        try:
            self.sequence = self.appender.commit_group()
        except Exception:
            if error is None:
                raise
            log.exception("the end of a group could not be appended to the journal: the next start drops it")


class Appender:
    """The state that appending changes."""

    def __init__(self, options: JournalOptions, spools: SpoolStore) -> None:
        self.options = options
        self.spools = spools
        self._adopted = spools.adopted
        self.opened = False
        # A segment has lost its last live entry since reclaiming last looked.
        self.emptied = False
        self.index = EntryIndex()
        self.segments: dict[int, Segment] = {}
        self.values: dict[bytes, bytes] = {}
        self.value_octets = 0
        self.epoch = 1
        self.next_sequence = 1
        self.next_segment = 1
        self.synced_sequence = 0
        # Segments of which some entries have newer copies elsewhere; the first one is in work.
        self.victims: list[int] = []
        self._batch = Batch()
        self._segment: Segment | None = None
        self._near: Segment | None = None
        self._piece_open = False
        self._previous = 0
        self._previous_end = 0
        self._flags = 0
        self._group_first = 0
        self._group_start = 0
        self._owners_near: tuple[int, ...] | None = None
        self._set_near: OwnerSet | None = None
        self._runs = bytearray(RUNS_OCTETS)
        self._runs_fill = 0
        self._run_owner = 0
        self._run_first = 0
        self._run_count = 0
        self._run_target = 0
        self._run_targets: dict[int, int] = {}

    def append_entry(self, owners: tuple[int, ...], header: bytes, payload: bytes) -> int:
        """Store an entry once for all its owners; returns its sequence number, its name for life."""
        return self._append_entry(owners, header, payload, self._flags)

    def append_spooled(self, owners: tuple[int, ...], header: bytes, spool: Spool) -> int:
        """Store an entry whose payload lies in a finished spool; durable together with it."""
        self._room(0)
        sequence = self._append_entry(owners, header, spool.reference(), self._flags | layout.SPOOLED)
        self._batch.spools.append(spool)
        self.spools.adopt(sequence, spool)
        return sequence

    def _append_entry(self, owners: tuple[int, ...], header: bytes, payload: bytes, flags: int) -> int:
        owner_set = self._set_near
        if owner_set is None or owners is not self._owners_near:
            owner_set = self.index.owner_set(owners)
            self._owners_near = owners
            self._set_near = owner_set
        length = record.entry_length(layout.ENTRY, len(owners), len(header), len(payload))
        size = record.padded(length)
        self._room(size)
        segment = self._segment
        batch = self._batch
        if segment is None:
            raise AssertionError("room was made, so there is a segment")
        sequence = self.next_sequence
        fill = record.write_entry(
            batch.buffer,
            batch.fill,
            segment.seed,
            length,
            sequence,
            layout.ENTRY,
            flags,
            0,
            owners,
            header,
            payload,
        )
        self.index.put(sequence, segment.number << 32 | segment.end >> 3, size >> 3, owner_set)
        # Nothing below can fail: an entry is in the batch and in the index, or in neither.
        batch.fill = fill
        self.next_sequence = sequence + 1
        segment.end += size
        segment.live_octets += size
        return sequence

    def append_settle(self, owner: int, sequence: int) -> bool:
        """One owner lets go of an entry; False, and nothing happens, if it does not hold it."""
        if self._runs_fill == len(self._runs):
            self._write_runs()  # while the index still says that the owner holds it: this may fail
        state = self.index.settle(owner, sequence)
        if state == layout.UNKNOWN:
            return False
        target = self.index.found_location >> 32
        if (
            owner == self._run_owner
            and sequence == self._run_first + self._run_count
            and target == self._run_target
        ):
            self._run_count += 1
        else:
            self._end_run()
            self._run_owner = owner
            self._run_first = sequence
            self._run_count = 1
            self._run_target = target
        if state == layout.DEAD:
            self._died(target, self.index.found_size << 3, sequence)
        return True

    def settle_many(self, owner: int, sequences: Iterable[int]) -> int:
        """One owner lets go of many, a purge for instance; returns how many it held."""
        count = 0
        for sequence in sequences:
            if self.append_settle(owner, sequence):
                count += 1
        return count

    def put_value(self, key: bytes, octets: bytes) -> int:
        """Set what is stored under a key; the last one wins."""
        sequence = self.append_value(layout.PUT, key, octets)  # first: it fails for what is too large
        old = self.values.get(key)
        self.value_octets += len(octets) + (len(key) if old is None else -len(old))
        self.values[key] = octets
        return sequence

    def delete_value(self, key: bytes) -> int:
        """Remove a key; it need not be there."""
        sequence = self.append_value(layout.DELETE, key, b"")
        old = self.values.pop(key, None)
        if old is not None:
            self.value_octets -= len(key) + len(old)
        return sequence

    def append_value(self, kind: int, key: bytes, octets: bytes) -> int:
        """The record alone; a checkpoint uses it for keys that stay as they are."""
        sequence = self._append_plain(kind, self._flags, len(key), key + octets)
        self._current().value_sequence = sequence
        return sequence

    def append_checkpoint(self, first_sequence: int) -> int:
        """Values older than `first_sequence` are void from here on."""
        sequence = self._append_plain(layout.CHECKPOINT, 0, 0, first_sequence.to_bytes(8, "little"))
        self._current().value_sequence = sequence
        return sequence

    def group(self) -> Group:
        """For `with`: what is appended inside is recovered whole or not at all."""
        return Group(self)

    def begin_group(self) -> None:
        """What is appended until `commit_group` is recovered whole or not at all."""
        if self._flags:
            raise AssertionError("groups do not nest")
        self.flush_settles()
        self._room(0)
        self._flags = layout.GROUPED
        self._group_first = self.next_sequence
        self._group_start = self._batch.fill

    def in_group(self) -> bool:
        """Whether a group is open."""
        return self._flags != 0

    def commit_group(self) -> int:
        """End the group; it is promised when the returned sequence is."""
        try:
            self.flush_settles()
            first = self._group_first
            count = self.next_sequence - first
            sequence = self.next_sequence - 1
            if count:
                sequence = self._append_plain(layout.COMMIT, 0, count, first.to_bytes(8, "little"))
        finally:
            self._flags = 0  # whatever happens: what others append from here on is not part of it
        return sequence

    def append_moved(self, original: int, flags: int, header: bytes, payload: bytes) -> int:
        """A newer copy of a live entry, for those who still hold it; the name stays."""
        owners = self.index.owners_of(original)
        length = record.entry_length(layout.MOVED, len(owners), len(header), len(payload))
        size = record.padded(length)
        self._room(size)
        segment = self._current()
        batch = self._batch
        self.index.locate(original)
        self._died(self.index.found_location >> 32, self.index.found_size << 3, 0)
        batch.fill = record.write_entry(
            batch.buffer,
            batch.fill,
            segment.seed,
            length,
            self._take_sequence(),
            layout.MOVED,
            flags & layout.SPOOLED,
            original,
            owners,
            header,
            payload,
        )
        self.index.relocate(original, segment.number << 32 | segment.end >> 3, size >> 3)
        segment.end += size
        segment.live_octets += size
        segment.moved += 1
        return 0

    def append_settle_copy(self, owner: int, first: int, count: int, targets: Iterable[int]) -> None:
        """Say again what an old segment said, so that it can go."""
        self._end_run()
        self._run_owner = owner
        self._run_first = first
        self._run_count = count
        for target in targets:
            self._run_target = target
            self._run_targets[target] = self._run_targets.get(target, 0) + layout.RUN_OCTETS
        self._end_run()

    def settle_room(self, runs: int) -> None:
        """See that so many runs, of one record at most, become part of the same record."""
        if self._runs_fill + (runs + 1) * layout.RUN_OCTETS > len(self._runs):
            self.flush_settles()

    def oblige(self, targets: Iterable[int], octets: int) -> None:
        """So many octets of the record that gathers settles must outlive these segments."""
        for target in targets:
            self._run_targets[target] = self._run_targets.get(target, 0) + octets

    # The shape of the batch

    def _take_sequence(self) -> int:
        sequence = self.next_sequence
        self.next_sequence = sequence + 1
        return sequence

    def _current(self) -> Segment:
        if self._segment is None:
            raise AssertionError("something was appended, so there is a segment")
        return self._segment

    def _append_plain(self, kind: int, flags: int, count: int, body: bytes) -> int:
        length = layout.RECORD_HEAD + len(body)
        if length > record.RECORD_OCTETS_MAX:
            raise StorageFault(f"a record of {length} octets is too large for the journal")
        size = record.padded(length)
        self._room(size)
        segment = self._current()
        batch = self._batch
        sequence = self._take_sequence()
        at = record.write_head(batch.buffer, batch.fill, length, sequence, kind, flags, count)
        layout.put_octets(batch.buffer, at, body)
        batch.fill = record.seal(batch.buffer, batch.fill, length, segment.seed)
        segment.end += size
        return sequence

    def _room(self, size: int) -> int:
        """See that `size` octets fit at the end of the current segment and into the buffer."""
        segment = self._segment
        if segment is None:
            if not self.opened:
                raise AssertionError("recover comes before appending")
            self._rotate(size, SEGMENT_OCTETS_LEAN)  # the first, when no prepared file is there yet
        else:
            needed = size if self._piece_open else size + BATCH_RECORD_OCTETS
            if segment.end + needed > segment.appendable:
                if self._flags:
                    self._move_group(size)
                else:
                    self._rotate(size)
        if not self._piece_open:
            self._open_piece(self.next_sequence)
        if self._batch.fill + size > len(self._batch.buffer):
            self._batch.grow(size)
        return 0

    def _open_piece(self, first_sequence: int) -> None:
        segment = self._current()
        head = b""
        if segment.end == layout.SEGMENT_HEAD:
            segment.first_sequence = first_sequence
            head = SegmentHead(
                segment.number, self.epoch, first_sequence, segment.previous, segment.previous_end
            ).encode()
        synced = 0 if self.options.sync is SyncPolicy.NEVER else self.synced_sequence
        self._batch.start_piece(segment, head, first_sequence, synced)
        self._piece_open = True

    def _rotate(self, size: int, usual_octets: int = 0) -> None:
        """Go on in a new segment that has room for at least `size`; it is as large as all, if not told."""
        segment = self._segment
        if segment is not None:
            if not self._piece_open:
                self._open_piece(self.next_sequence)
            self._batch.end_segment(segment, self.next_sequence)
            segment.sealed = True
            segment.last_sequence = self.next_sequence - 1
            self._previous = segment.number
            self._previous_end = segment.end
        self._batch.end_piece()
        self._piece_open = False
        least = layout.SEGMENT_HEAD + BATCH_RECORD_OCTETS + size + END_OCTETS
        usual_octets = min(usual_octets or self.options.segment_octets, self.options.segment_octets)
        capacity = max(usual_octets, (least + 4095) & ~4095)
        made = Segment(self.next_segment, capacity, self._previous, self._previous_end)
        made.appendable = capacity - END_OCTETS
        # A larger file would keep its room, a smaller one has not reserved what a usual one needs.
        made.recyclable = capacity == self.options.segment_octets
        self.next_segment += 1
        self.segments[made.number] = made
        self._segment = made

    def _move_group(self, size: int) -> None:
        """The open group does not fit: a group lies in one segment, so all of it goes to the next."""
        batch = self._batch
        octets = bytes(memoryview(batch.buffer)[self._group_start : batch.fill])
        old = self._current()
        batch.fill = self._group_start
        old.end -= len(octets)
        self._rotate(2 * (len(octets) + size))
        self._open_piece(self._group_first)
        self._group_start = batch.fill
        self._lay_out(octets, 0, len(octets), old)

    def _lay_out(self, octets: bytes, at: int, end: int, old: Segment) -> None:
        """Append records again as they are, under the current segment's seed."""
        segment = self._current()
        batch = self._batch
        while at < end:
            length = layout.get_u32(octets, at + 4)
            size = record.padded(length)
            kind = layout.get_u8(octets, at + 16)
            if self._given_up(octets, at, kind):
                self._leave_blank(octets, at)
            elif kind != layout.BATCH and kind != layout.END:
                if batch.fill + size > len(batch.buffer):
                    batch.grow(size)
                batch.buffer[batch.fill : batch.fill + size] = octets[at : at + size]
                if kind == layout.ENTRY or kind == layout.MOVED:
                    name_at = at + (8 if kind == layout.ENTRY else layout.RECORD_HEAD)
                    self._laid_out(layout.get_u64(octets, name_at), kind, size, old)
                elif kind == layout.SETTLE:
                    segment.obliges[old.number] = segment.obliges.get(old.number, 0) + size
                elif kind in (layout.PUT, layout.DELETE, layout.CHECKPOINT):
                    segment.value_sequence = layout.get_u64(octets, at + 8)
                batch.fill = record.seal(batch.buffer, batch.fill, length, segment.seed)
                segment.end += size
            at += size
        for target, count in old.obliges.items():
            segment.obliges[target] = segment.obliges.get(target, 0) + count

    def _given_up(self, octets: bytes, at: int, kind: int) -> bool:
        """Is this an entry whose spool is gone?"""
        if kind != layout.ENTRY or not layout.get_u8(octets, at + 17) & layout.SPOOLED:
            return False
        return not self.index.locate(layout.get_u64(octets, at + 8))

    def _leave_blank(self, octets: bytes, at: int) -> None:
        """A settle of nothing keeps the sequence unbroken, and the group whole, if it is in one."""
        batch = self._batch
        segment = self._current()
        flags = layout.get_u8(octets, at + 17) & layout.GROUPED
        length = layout.RECORD_HEAD
        sequence = layout.get_u64(octets, at + 8)
        if batch.fill + length > len(batch.buffer):
            batch.grow(length)
        record.write_head(batch.buffer, batch.fill, length, sequence, layout.SETTLE, flags, 0)
        batch.fill = record.seal(batch.buffer, batch.fill, length, segment.seed)
        segment.end += length

    def _laid_out(self, sequence: int, kind: int, size: int, old: Segment) -> None:
        segment = self._current()
        if kind == layout.MOVED:
            segment.moved += 1
        if self.index.locate(sequence) and self.index.found_location >> 32 == old.number:
            self.index.relocate(sequence, segment.number << 32 | segment.end >> 3, size >> 3)
            old.live_octets -= size
            segment.live_octets += size

    def _end_run(self) -> int:
        """Write down the settles that follow on each other as one run."""
        if self._run_count:
            if self._runs_fill == len(self._runs):
                self._write_runs()
            at = self._runs_fill
            layout.put_u32(self._runs, at, self._run_owner)
            layout.put_u32(self._runs, at + 4, self._run_count)
            layout.put_u64(self._runs, at + 8, self._run_first)
            self._runs_fill = at + layout.RUN_OCTETS
            self._run_count = 0
            self._run_targets[self._run_target] = (
                self._run_targets.get(self._run_target, 0) + layout.RUN_OCTETS
            )
        return 0

    def flush_settles(self) -> int:
        """Make a record of the settles gathered so far."""
        self._end_run()
        if self._runs_fill:
            self._write_runs()
        return 0

    def _write_runs(self) -> None:
        runs = bytes(memoryview(self._runs)[: self._runs_fill])
        self._append_plain(layout.SETTLE, self._flags, len(runs) // layout.RUN_OCTETS, runs)
        targets = self._run_targets
        self._runs_fill = 0
        self._run_targets = {}
        segment = self._current()
        for victim in self.victims:
            targets.setdefault(victim, layout.RUN_OCTETS)
        for target, octets in targets.items():
            if target != segment.number and target in self.segments:
                segment.obliges[target] = segment.obliges.get(target, 0) + octets

    def _died(self, number: int, size: int, sequence: int) -> int:
        """The last copy's octets are no longer needed."""
        segment = self._near
        if segment is None or segment.number != number:
            segment = self.segments[number]
            self._near = segment
        segment.live_octets -= size
        segment.touched = self.next_sequence
        if segment.live_octets == 0:
            self.emptied = True
        if sequence and self._adopted:
            self.spools.let_go(sequence, self.next_sequence)
        return 0
