"""The journal: append now, promised once synced, read back by sequence number.

One thread owns a Journal: all methods are called there. Appending fills the current batch; at the
end of a turn `end_batch` hands it to the writer thread, and the next one fills meanwhile. When the
writer is done it calls `wake` (the only call from another thread), the owner calls `collect`, and
`on_synced` tells up to which sequence everything is promised.

    append_* ----> batch being filled --end_batch--> batch in flight --collect--> on_synced(sequence)
                        ^                                   | write or sync failed
                        |                                   v
                        +--- the next attempt <--- both laid out anew in a fresh segment, on_alarm

A failed sync is never tried again on the same file: what it left there is unknown. The segment is
abandoned where the last promise ended (the next segment's head says so), and all that was not
promised is written again, under the same sequence numbers, into a fresh segment.

An entry is named by its sequence number for life; `index` knows where it lies, so a rewrite can
move it without anyone outside noticing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from flintmq.clock import Clock
from flintmq.errors import StorageFault

from . import layout, record
from .batch import BATCH_RECORD_OCTETS, END_OCTETS, Batch
from .index import EntryIndex, OwnerSet
from .options import JournalOptions, SyncPolicy
from .reader import SegmentReader, checked_entry, entry_parts
from .reclaim import Reclaimer
from .replay import RecoveryReport, RecoveryVisitor, recover
from .segment import Segment, SegmentHead
from .spool import Spool, SpoolStore
from .writer import BatchWriter, Worker

if TYPE_CHECKING:
    from .disk import Disk
    from .replay import Replay

RUNS_OCTETS = 64 << 10


class Journal:
    """See the head of this module."""

    def __init__(
        self,
        directory: str,
        disk: Disk,
        options: JournalOptions,
        clock: Clock,
        wake: Callable[[], None] | None,
    ) -> None:
        self.directory = directory
        self.disk = disk
        self.options = options
        self.clock = clock
        self.on_synced: Callable[[int], None] = _ignore_sequence
        self.on_alarm: Callable[[str], None] = _ignore_text
        self.on_damage: Callable[[int, list[int]], None] = _ignore_damage
        self.on_clear: Callable[[], None] = _ignore
        self.index = EntryIndex()
        self.segments: dict[int, Segment] = {}
        self.wiring: dict[bytes, bytes] = {}
        self.wiring_octets = 0
        self.epoch = 1
        self.next_sequence = 1
        self.next_segment = 1
        self.synced_sequence = 0
        self.alarm = ""
        self.opened = False
        self._lock = disk.lock(os.path.join(directory, "lock"))
        self._worker = Worker("journal-writer", wake, options.threaded)
        self.tidier = Worker("journal-tidier", wake, options.threaded)
        self.writer = BatchWriter(disk, directory, options.segment_octets)
        self.reader = SegmentReader(disk, directory)
        self.spools = SpoolStore(disk, directory)
        self.reclaimer = Reclaimer(self)
        self._batch = Batch()
        self._idle = Batch()
        self._in_flight: Batch | None = None
        self._written: list[Batch] = []
        self._written_octets = 0
        self._sync_due_s = 0.0
        self._retry_due_s = 0.0
        self._write_failed = False
        self._failed_before = False
        self._write_error = ""
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

    @staticmethod
    def open(
        directory: str,
        disk: Disk,
        options: JournalOptions | None = None,
        clock: Clock | None = None,
        wake: Callable[[], None] | None = None,
    ) -> Journal:
        """Take the directory for this process; `recover` comes next, then appending."""
        disk.make_directory(directory)
        return Journal(directory, disk, options or JournalOptions(), clock or Clock(), wake)

    def recover(self, visitor: RecoveryVisitor) -> RecoveryReport:
        """Read what is there, tell it to the visitor, and be ready to append."""
        report = recover(self, visitor)
        self.synced_sequence = self.next_sequence - 1
        self.opened = True
        self.reclaimer.keep_spares()
        return report

    def adopt(self, replay: Replay, wiring: dict[bytes, bytes], next_segment: int, epoch: int) -> None:
        """Go on from what recovery found; appending starts in a segment of its own."""
        self.index = replay.index
        self.wiring = wiring
        self.wiring_octets = sum(len(key) + len(octets) for key, octets in wiring.items())
        self.next_sequence = replay.last_sequence + 1
        self.next_segment = next_segment
        self.epoch = epoch
        self.spools.epoch = epoch
        self.reclaimer.victims = [number for number in replay.victims if number in self.segments]
        self.reclaimer.checkpoint_sequence = replay.checkpoint_sequence
        if self.segments:
            newest = self.segments[max(self.segments)]
            self._previous = newest.number
            self._previous_end = newest.end

    # Appending

    def append_entry(self, owners: tuple[int, ...], header: bytes, payload: bytes) -> int:
        """Store an entry once for all its owners; returns its sequence number, its name for life."""
        return self._append_entry(owners, header, payload, self._flags)

    def append_spooled(self, owners: tuple[int, ...], header: bytes, spool: Spool) -> int:
        """Store an entry whose payload lies in a finished spool; durable together with it."""
        self._room(0)
        self._batch.spools.append(spool)
        sequence = self._append_entry(owners, header, spool.reference(), self._flags | layout.SPOOLED)
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
        self.next_sequence = sequence + 1
        batch.fill = record.write_entry(
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
        segment.end += size
        segment.live_octets += size
        return sequence

    def append_settle(self, owner: int, sequence: int) -> bool:
        """One owner lets go of an entry; False, and nothing happens, if it does not hold it."""
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

    def put_wiring(self, key: bytes, octets: bytes) -> int:
        """Set what is stored under a key; the last one wins."""
        old = self.wiring.get(key)
        self.wiring_octets += len(octets) + (len(key) if old is None else -len(old))
        self.wiring[key] = octets
        return self.append_wiring(layout.PUT, key, octets)

    def delete_wiring(self, key: bytes) -> int:
        """Remove a key; it need not be there."""
        old = self.wiring.pop(key, None)
        if old is not None:
            self.wiring_octets -= len(key) + len(old)
        return self.append_wiring(layout.DELETE, key, b"")

    def append_wiring(self, kind: int, key: bytes, octets: bytes) -> int:
        """The record alone; a checkpoint uses it for keys that stay as they are."""
        sequence = self._append_plain(kind, self._flags, len(key), key + octets)
        self._current().wiring_sequence = sequence
        return sequence

    def append_checkpoint(self, first_sequence: int) -> int:
        """Wiring records older than `first_sequence` are void from here on."""
        sequence = self._append_plain(layout.CHECKPOINT, 0, 0, first_sequence.to_bytes(8, "little"))
        self._current().wiring_sequence = sequence
        return sequence

    def begin_group(self) -> None:
        """What is appended until `commit_group` is recovered whole or not at all."""
        if self._flags:
            raise AssertionError("groups do not nest")
        self.flush_settles()
        self._room(0)
        self._flags = layout.GROUPED
        self._group_first = self.next_sequence
        self._group_start = self._batch.fill

    def commit_group(self) -> int:
        """End the group; it is promised when the returned sequence is."""
        self.flush_settles()
        first = self._group_first
        count = self.next_sequence - first
        sequence = self.next_sequence - 1
        if count:
            sequence = self._append_plain(layout.COMMIT, 0, count, first.to_bytes(8, "little"))
        self._flags = 0
        return sequence

    def append_moved(self, original: int, flags: int, header: bytes, payload: bytes) -> int:
        """A newer copy of a live entry, for those who still hold it; the name stays."""
        owners = self.index.owners_of(original)
        length = record.entry_length(layout.MOVED, len(owners), len(header), len(payload))
        size = record.padded(length)
        self._room(size)
        segment = self._current()
        batch = self._batch
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
        self.index.locate(original)
        self._died(self.index.found_location >> 32, self.index.found_size << 3, 0)
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
            self._rotate(size)
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

    def _rotate(self, size: int) -> None:
        """Go on in a new segment that has room for at least `size`."""
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
        capacity = max(self.options.segment_octets, (least + 4095) & ~4095)
        made = Segment(self.next_segment, capacity, self._previous, self._previous_end)
        made.appendable = capacity - END_OCTETS
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
                    segment.wiring_sequence = layout.get_u64(octets, at + 8)
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
            if self._runs_fill == RUNS_OCTETS:
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
        targets = self._run_targets
        self._runs_fill = 0
        self._run_targets = {}
        self._append_plain(layout.SETTLE, self._flags, len(runs) // layout.RUN_OCTETS, runs)
        segment = self._current()
        for victim in self.reclaimer.victims:
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
        if sequence and self.spools.adopted:
            self.spools.let_go(sequence, self.next_sequence)
        return 0

    # Group commit

    def end_batch(self) -> None:
        """Hand what was appended to the writer, or leave it to grow while one is in flight."""
        self.flush_settles()
        if self._batch.fill and self._in_flight is None and not self._retry_due_s:
            self._submit()

    def commit_now(self) -> None:
        """Write and sync everything appended, here and now; `on_synced` comes before it returns."""
        self.end_batch()
        while self._in_flight is not None:
            self._worker.collect(wait=True)
        self.collect()
        if self.alarm:
            raise StorageFault(self.alarm)

    def collect(self) -> None:
        """Take notice of what the threads have done; call it after `wake`."""
        self._worker.collect()
        self.tidier.collect()
        if self._in_flight is None:
            self.end_batch()

    def tick(self) -> None:
        """Due work: syncs by interval, attempts after a failure, rewriting. Call it a few times a second."""
        now_s = self.clock.monotonic_s()
        self.collect()
        if self._retry_due_s and now_s >= self._retry_due_s and self._in_flight is None:
            self._retry_due_s = 0.0
            self._submit()
        if self._written and now_s >= self._sync_due_s and self._in_flight is None:
            self._submit()
        self.reclaimer.step()
        self.index.sweep_sets()
        self._owners_near = None
        self.collect()

    def _submit(self) -> None:
        batch = self._batch
        batch.end_piece()
        batch.last_sequence = self.next_sequence - 1
        self._piece_open = False
        self._batch = self._idle
        self._in_flight = batch
        sync = self._sync_wanted(batch.fill)
        self._worker.submit(
            lambda: self.writer.write(batch, sync), lambda error: self._written_batch(batch, sync, error)
        )

    def _sync_wanted(self, octets: int) -> bool:
        if self.options.sync is SyncPolicy.INTERVAL:
            now_s = self.clock.monotonic_s()
            if not self._written:
                self._sync_due_s = now_s + self.options.sync_interval_ms / 1000
            full = self._written_octets + octets > self.options.unsynced_octets_max
            return full or now_s >= self._sync_due_s
        return self.options.sync is SyncPolicy.ALWAYS

    def _written_batch(self, batch: Batch, sync: bool, error: OSError | None) -> None:
        """The writer is done with a batch."""
        self._in_flight = None
        if error is not None:
            self._failed(batch, error)
            return
        last_sequence = batch.last_sequence
        if sync or self.options.sync is SyncPolicy.NEVER:
            self.synced_sequence = last_sequence
            self._close_sealed([*self._written, batch])
            self._written.clear()
            self._written_octets = 0
            batch.clear()
            self._idle = batch
        else:
            self._written.append(batch)
            self._written_octets += batch.fill
            self._idle = Batch()
        self._write_failed = False
        self.refresh_alarm()
        self.on_synced(last_sequence)
        self.reclaimer.synced()

    def _close_sealed(self, batches: list[Batch]) -> None:
        """Segments that are full and safe need no handle for writing any more."""
        filling = {piece.segment.number for piece in self._batch.pieces}
        for batch in batches:
            for piece in batch.pieces:
                segment = piece.segment
                if segment.sealed and segment.handle >= 0 and segment.number not in filling:
                    self.disk.close(segment.handle)
                    segment.handle = -1
                    segment.safe = True

    def _failed(self, batch: Batch, error: OSError) -> None:
        """Nothing since the last sync is safe: lay it all out anew, in a fresh segment."""
        self.writer.abandon()
        self._write_failed = True
        self._write_error = f"cannot write to {self.directory}: {error.strerror or error}"
        unsafe = [*self._written, batch, self._batch]
        self._batch.end_piece()
        self._written = []
        self._written_octets = 0
        pieces = [piece for each in unsafe for piece in each.pieces]
        octets = sum(each.fill for each in unsafe)
        first = pieces[0]
        lost = {piece.segment.number: piece.segment for piece in pieces}
        fresh = Batch()
        fresh.spools = self._lose_spools(unsafe)
        self._batch = fresh
        self._idle = Batch()
        self._segment = None
        self._piece_open = False
        self._previous = first.segment.previous
        self._previous_end = first.segment.previous_end
        if first.at:
            first.segment.abandon(first.at, self.synced_sequence)
            self._previous = first.segment.number
            self._previous_end = first.at
        self._rotate(octets)
        self._open_piece(self.synced_sequence + 1)
        for each in unsafe:
            for piece in each.pieces:
                start = piece.start if piece.at else piece.start + layout.SEGMENT_HEAD
                self._lay_out(
                    bytes(memoryview(each.buffer)[start : piece.end]), 0, piece.end - start, piece.segment
                )
        self._discard(lost, first.segment if first.at else None)
        self._retry_due_s = self.clock.monotonic_s() + self.options.retry_interval_ms / 1000
        self.refresh_alarm()
        if not self._failed_before:
            self._failed_before = True
            self._retry_due_s = 0.0
            self._submit()

    def _discard(self, lost: dict[int, Segment], kept: Segment | None) -> None:
        """Close what was abandoned; files that hold nothing promised go away."""
        for number, segment in lost.items():
            if segment.handle >= 0:
                self.disk.close(segment.handle)
                segment.handle = -1
            if segment is not kept:
                del self.segments[number]
                self.reader.forget(number)
                self._current().obliges.pop(number, None)
                self.reclaimer.delete_leftover(number)
        self._near = None

    def refresh_alarm(self) -> None:
        """Tell when the reason to worry appears, changes or goes."""
        if not self._write_failed:
            self._failed_before = False
        text = self._write_error if self._write_failed else self.reclaimer.space_alarm
        if text == self.alarm:
            return
        self.alarm = text
        if text:
            self.on_alarm(text)
        else:
            self.on_clear()

    def forget_segment(self, number: int) -> None:
        """A segment has gone."""
        if self._near is not None and self._near.number == number:
            self._near = None

    def lose_unreadable(self, number: int, at: int, end: int) -> None:
        """Entries that the disk no longer gives back: out of the index, and said aloud."""
        first = number << 32 | at >> 3
        past = number << 32 | end >> 3
        lost = []
        for sequence in self.index.live():
            if self.index.locate(sequence) and first <= self.index.found_location < past:
                lost.append(sequence)
        for sequence in lost:
            self.lose_entry(sequence)
        self.on_damage(number, lost)

    def _lose_spools(self, batches: list[Batch]) -> list[Spool]:
        """Give up entries whose payloads a failed sync took; returns the spools that are left."""
        spools = [spool for batch in batches for spool in batch.spools]
        lost = [spool.sequence for spool in spools if spool.lost]
        for sequence in lost:
            self.lose_entry(sequence)
        if lost:
            self.on_damage(0, lost)
        return [spool for spool in spools if not spool.lost]

    def lose_entry(self, sequence: int) -> None:
        """Take an entry that cannot be given back out of the index."""
        if self.index.forget(sequence):
            self._died(self.index.found_location >> 32, self.index.found_size << 3, sequence)

    # Reading back

    def holds(self, sequence: int) -> bool:
        """Is this entry live?"""
        return self.index.locate(sequence)

    def owners_of(self, sequence: int) -> tuple[int, ...]:
        """Those who have not let go."""
        return self.index.owners_of(sequence)

    def read_entry(self, sequence: int) -> tuple[bytes, bytes]:
        """Header and payload; of a spooled entry the payload is empty, see `spool_of`."""
        return self._read(sequence, False)

    def read_entries(self, sequences: Iterable[int]) -> list[tuple[bytes, bytes]]:
        """Headers and payloads of many, read ahead: best in the order in which they were appended."""
        read = [self._read(sequence, True) for sequence in sequences]
        self.reader.release_window()
        return read

    def _read(self, sequence: int, ahead: bool) -> tuple[bytes, bytes]:
        if not self.index.locate(sequence):
            raise StorageFault(f"there is no entry {sequence}")
        location = self.index.found_location
        number = location >> 32
        at = (location & 0xFFFFFFFF) << 3
        size = self.index.found_size << 3
        octets, start = self._octets(number, at, size, ahead)
        header_at = checked_entry(octets, start, size, number, self.segments[number].seed, sequence)
        header, payload = entry_parts(octets, start, header_at)
        if sequence in self.spools.adopted:
            return header, b""
        return header, payload

    def _octets(self, number: int, at: int, size: int, ahead: bool) -> tuple[bytes, int]:
        """The record's octets, from the disk or from where they still wait for it."""
        for batch in (self._batch, self._in_flight, *self._written):
            if batch is not None and batch.pieces and batch.pieces[0].segment.number <= number:
                octets = batch.octets_at(number, at, size)
                if octets is not None:
                    return octets, 0
        if ahead:
            return self.reader.view(number, at, size)
        return self.reader.read(number, at, size), 0

    def open_spool(self) -> Spool:
        """A file for a payload that must not live in memory."""
        return self.spools.open()

    def spool_of(self, sequence: int) -> Spool | None:
        """The payload of a spooled entry, open for reading; None if it has none."""
        return self.spools.adopted.get(sequence)

    def disk_octets(self) -> int:
        """What the segments take on the disk."""
        return sum(segment.end if segment.sealed else segment.capacity for segment in self.segments.values())

    def live_octets(self) -> int:
        """What of it is needed."""
        return sum(segment.live_octets for segment in self.segments.values()) + self.wiring_octets

    def close(self) -> None:
        """Write and sync what was appended, end the threads, let go of the directory."""
        try:
            if self.opened:
                self.end_batch()
                while self._in_flight is not None:
                    self._worker.collect(wait=True)
                    self._worker.collect()
                if self.options.sync is not SyncPolicy.ALWAYS and not self._write_failed:
                    self.writer.sync()
        finally:
            self._worker.close()
            self.tidier.close()
            self.reader.close()
            self.spools.close()
            for segment in self.segments.values():
                if segment.handle >= 0:
                    self.disk.close(segment.handle)
                    segment.handle = -1
            self.disk.close(self._lock)


def _ignore() -> None:
    """Nobody listens."""


def _ignore_text(text: str) -> None:
    """Nobody listens."""


def _ignore_sequence(sequence: int) -> None:
    """Nobody listens."""


def _ignore_damage(segment: int, sequences: list[int]) -> None:
    """Nobody listens."""
