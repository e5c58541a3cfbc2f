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

While it is held (`hold`, `release`) nothing that was appended leaves for the disk: somebody has taken
on what it lets go of, and has not got that onto a disk yet.

An entry is named by its sequence number for life; `index` knows where it lies, so a rewrite can
move it without anyone outside noticing.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from flintmq.clock import Clock
from flintmq.errors import StorageFault
from flintmq.storage import layout
from flintmq.storage.journal import damage_note
from flintmq.storage.journal.appender import SEGMENT_OCTETS_LEAN, Appender
from flintmq.storage.journal.batch import Batch
from flintmq.storage.journal.reader import (
    GAP_OCTETS,
    WINDOW_OCTETS,
    SegmentReader,
    checked_entry,
    entry_parts,
)
from flintmq.storage.journal.reclaim import Reclaimer
from flintmq.storage.journal.replay import recover
from flintmq.storage.journal.report import RecoveryReport, RecoveryVisitor
from flintmq.storage.journal.segment import Segment, segment_name
from flintmq.storage.journal.writer import BatchWriter, Worker
from flintmq.storage.options import JournalOptions, SyncPolicy
from flintmq.storage.spool import Spool, SpoolStore
from flintmq.storage.sync_notes import SEGMENT, Promise, Promises

if TYPE_CHECKING:
    from flintmq.storage.disk import Disk
    from flintmq.storage.journal.replay import Replay

log = logging.getLogger("flintmq.journal")

# With more than this in the next batch, whoever can should wait for the one that is on its way.
BEHIND_OCTETS = 16_777_216
# A disk that says so may take less than it was to take, and then refuse the next file again.
NO_ROOM = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)
# What was promised of the segments.
PROMISES_NAME = "segments.promised"
# How often the time is noted there.
TIME_NOTED_MS = 1000
# How often it is looked whether all files are there: a list of 1,000 names takes a millisecond.
LOOK_INTERVAL_S = 10.0


class Journal(Appender):
    """See the head of this module."""

    def __init__(
        self,
        directory: str,
        disk: Disk,
        options: JournalOptions,
        clock: Clock,
        wake: Callable[[], None] | None,
    ) -> None:
        super().__init__(options, SpoolStore(disk, directory))
        self.directory = directory
        self.disk = disk
        self.clock = clock
        self.on_synced: Callable[[int], None] = _ignore_sequence
        self.on_alarm: Callable[[str], None] = _ignore_text
        self.on_damage: Callable[[int, list[int]], None] = _ignore_damage
        self.on_clear: Callable[[], None] = _ignore
        self.alarm = ""
        self._lock_path = os.path.join(directory, "lock")
        self._lock = disk.lock(self._lock_path)
        self.missing = ""  # why nothing that is written would be found again
        self._list_due_s = 0.0
        self.now_ms: Callable[[], int] = clock.wall_ms  # of the broker: its time does not leap
        self.promises: Promises | None = None
        if not options.ephemeral:
            try:
                self.promises = Promises(disk, os.path.join(directory, PROMISES_NAME))
            except OSError:
                disk.let_go(self._lock)
                raise
        self._worker = Worker("journal-writer", wake, options.threaded)
        self.tidier = Worker("journal-tidier", wake, options.threaded)
        self.writer = BatchWriter(disk, self._lock_path, self._lock, self.promises, options.segment_octets)
        self.reader = SegmentReader(disk, directory)
        self.reclaimer = Reclaimer(self)
        self._idle: Batch | None = Batch()  # the one to be filled next; None while it is on its way
        self._in_flight: Batch | None = None
        self._written: list[Batch] = []
        self._written_octets = 0
        self._sync_due_s = 0.0
        self._retry_due_s = 0.0
        self._write_failed = False
        self._failed_before = False
        self._write_error = ""
        self.behind_octets = BEHIND_OCTETS
        self.held = ""  # why nothing that was appended may be written

    @staticmethod
    def open(
        directory: str,
        disk: Disk,
        options: JournalOptions | None = None,
        clock: Clock | None = None,
        wake: Callable[[], None] | None = None,
    ) -> Journal:
        """Take the directory for this process; `recover` comes next, then appending."""
        options = options or JournalOptions()
        options.check()
        disk.make_directory(directory)
        return Journal(directory, disk, options, clock or Clock(), wake)

    def recover(self, visitor: RecoveryVisitor) -> RecoveryReport:
        """Read what is there, tell it to the visitor, and be ready to append."""
        report = recover(self, visitor)
        self.synced_sequence = self.next_sequence - 1
        if self.promises is not None:
            self.promises.begin(self.epoch, [promise_of(each, each.end) for each in self.segments.values()])
        self.opened = True
        self.reclaimer.keep_spares()
        return report

    def forget_damage(self) -> None:
        """What recovery has found damaged was told, and what it has left is safe."""
        self.tidier.submit(lambda: damage_note.remove(self.disk, self.directory), _tell_note)

    def adopt(self, replay: Replay, values: dict[bytes, bytes], next_segment: int, epoch: int) -> None:
        """Go on from what recovery found; appending starts in a segment of its own."""
        self.index = replay.index
        self.values = values
        self.value_octets = sum(len(key) + len(octets) for key, octets in values.items())
        self.next_sequence = replay.last_sequence + 1
        self.next_segment = next_segment
        self.epoch = epoch
        self.spools.epoch = epoch
        self.victims = [number for number in replay.victims if number in self.segments]
        self.reclaimer.checkpoint_sequence = replay.checkpoint_sequence
        if self.segments:
            newest = self.segments[max(self.segments)]
            self._previous = newest.number
            self._previous_end = newest.end

    # Group commit

    def end_batch(self) -> None:
        """Hand what was appended to the writer, or leave it to grow while one is in flight."""
        self.flush_settles()
        is_free = self.opened and self._in_flight is None and not self._retry_due_s and not self.held
        if self._batch.fill and is_free:
            self._submit()

    def hold(self, why: str) -> None:
        """From here on what was appended waits, until `release`; it is promised to nobody meanwhile."""
        self.held = why

    def release(self) -> None:
        """What has waited goes to the disk; if a group is open, when that ends."""
        self.held = ""
        if not self._flags:
            self.end_batch()

    def is_behind(self) -> bool:
        """Whether much more waits for the disk than it takes at a time."""
        is_waiting = self._in_flight is not None or bool(self.held)
        return is_waiting and self._batch.fill > self.behind_octets

    def limit_batch(self, octets_max: int) -> None:
        """The journal is behind when more than so many octets wait for the disk, or BEHIND_OCTETS."""
        self.behind_octets = min(BEHIND_OCTETS, octets_max)

    def require_free(self, octets: int) -> None:
        """From now on there is an alarm while the disk has less free space than this."""
        self.options = self.options._replace(disk_free_octets_min=octets)
        self.reclaimer.watch_space()

    def waiting_octets(self) -> int:
        """What is in memory until the disk has it."""
        in_flight = 0 if self._in_flight is None else self._in_flight.fill
        return self._batch.fill + in_flight + self._written_octets

    def commit_now(self) -> None:
        """Write and sync everything appended, here and now; `on_synced` comes before it returns."""
        self._write_all()
        self.collect()
        if fault := self._fault():
            raise StorageFault(fault)

    def _fault(self) -> str:
        """Why something that was appended is not on disk."""
        if self._write_failed:
            return self._write_error
        if self._in_flight is not None and not self._worker.pending:
            return f"a bug keeps what was written to {self.directory} from being promised: see the log"
        if not self._batch.fill:
            return ""
        return self.held if self.opened else f"the journal in {self.directory} is closed"

    def _write_all(self) -> None:
        """Returns when nothing is on its way to the disk, nor waits for what is."""
        self.end_batch()
        while self._in_flight is not None and self._worker.pending:
            self._worker.collect(wait=True)
            self.end_batch()

    def collect(self) -> None:
        """Take notice of what the threads have done; call it after `wake`."""
        if not self.opened:
            return  # what follows from it would touch a directory that may be another process's by now
        self._worker.collect()
        self.tidier.collect()
        if self._in_flight is None:
            self.end_batch()

    def tick(self) -> None:
        """Due work: syncs by interval, attempts after a failure, rewriting. Call it a few times a second."""
        if not self.opened:
            return
        now_s = self.clock.monotonic_s()
        self._look()
        self.collect()
        self._leave_removed()
        self._miss_removed(now_s)
        self._tell_time()
        if self.reader.unreadable:
            self.reader.try_again(now_s)
        is_due = self._retry_due_s and now_s >= self._retry_due_s and self._in_flight is None
        if is_due and not self.held and not self.missing:
            self._retry_due_s = 0.0
            self._submit()
        if self._written and now_s >= self._sync_due_s and self._in_flight is None:
            self._submit()
        self.reclaimer.step()
        self.index.sweep_sets()
        self._owners_near = None
        self.collect()

    def _look(self) -> None:
        """See whether the directory is still there: what is written to a file that was removed is lost."""
        missing = ""
        try:
            if not self.disk.is_there(self._lock_path, self._lock):
                missing = (
                    f"{self.directory} was removed or replaced while the broker uses it: nothing is stored; "
                    "put it back as it was, or stop the broker and start it again"
                )
        except OSError as failure:  # a file server that does not answer
            missing = f"{self.directory} cannot be reached: {failure.strerror or failure}; nothing is stored"
        if missing != self.missing:
            self.missing = missing
            self.refresh_alarm()

    def _leave_removed(self) -> None:
        """Where the file being written was removed and nothing is to be written, a value is put again.

        The write finds out, and goes to a fresh segment.
        """
        is_quiet = self._in_flight is None and not self._batch.fill and not self._retry_due_s
        if is_quiet and self.values and self._segment is not None and self._was_removed(self._segment):
            key = next(iter(self.values))
            self.append_value(layout.PUT, key, self.values[key])
            self.end_batch()

    def _miss_removed(self, now_s: float) -> None:
        """What is live in removed files is copied while they are open; else it waits, and that is told."""
        if self.missing:
            return
        for number, handle in list(self.reader.removed.items()):
            segment = self.segments.get(number)
            if self.reader.is_there(number, handle):
                self.reader.found_again(number)
            elif segment is not None and segment.safe and number not in self.victims:
                self._copy_removed(segment)
        if now_s >= self._list_due_s and not self.tidier.pending and not self.options.ephemeral:
            self._list_due_s = now_s + LOOK_INTERVAL_S
            present: set[str] = set()
            expected = self._expected_files()
            self.tidier.submit(
                lambda: present.update(self.disk.list(self.directory)),
                lambda error: self._listed(expected, present, error),
            )

    def _expected_files(self) -> set[int]:
        """Segments that are full and safe, and not about to go."""
        return {
            number
            for number, segment in self.segments.items()
            if segment.safe and segment is not self.reclaimer.dropping
        }

    def _listed(self, expected: set[int], present: set[str], error: OSError | None) -> None:
        """The files that were there a moment ago; if that cannot be told, somebody else will tell why."""
        if error is not None or self.is_gone():
            return
        for number in expected & self._expected_files():
            if segment_name(number) not in present:
                if self.segments[number].live_octets:
                    self.reader.miss(number)
                self.reclaimer.put_values_again(self.segments[number])
        self.reclaimer.remove_put_back(present)

    def _was_removed(self, segment: Segment) -> bool:
        """Whether the file of a segment that is open has no name any more, and others beside it have."""
        if segment.handle < 0 or self.missing:
            return False
        try:
            path = os.path.join(self.directory, segment_name(segment.number))
            return not self.disk.is_there(path, segment.handle)
        except OSError:
            return False

    def _rescue(self, segment: Segment) -> None:
        """The file that is open to be written was removed: it stays open until what is live is copied."""
        handle, segment.handle = segment.handle, -1
        self.reader.adopt(segment.number, handle)
        if segment.number not in self.victims:
            self._copy_removed(segment)

    def _copy_removed(self, segment: Segment) -> None:
        log.error(
            "%s was removed while the broker uses it: what is live in it is copied to another file",
            os.path.join(self.directory, segment_name(segment.number)),
        )
        self.victims.append(segment.number)

    def is_gone(self) -> bool:
        """Whether the directory is away, as a look of now tells."""
        self._look()
        return bool(self.missing)

    def _tell_time(self) -> None:
        """Have it noted how late it is, so that the time does not go back over a restart.

        The writer's thread does it, with a batch if there is one: a write takes as long as the disk likes.
        """
        now_ms = self._time_due_ms()
        if now_ms and not self._worker.pending and not self.missing:
            self._worker.submit(lambda: self._note_time(now_ms), _ignore_error)

    def _time_due_ms(self) -> int:
        """The time, if it is to be noted again; else 0."""
        if self.promises is None:
            return 0
        now_ms = self.now_ms()
        return now_ms if now_ms >= self.promises.time_ms + TIME_NOTED_MS else 0

    def _submit(self) -> None:
        idle = self._idle or Batch()
        self._idle = None
        if self.held:
            # What was promised before is synced in time all the same.
            batch = idle
            batch.last_sequence = self._written[-1].last_sequence
        else:
            batch = self._batch
            batch.end_piece()
            batch.last_sequence = self.next_sequence - 1
            self._piece_open = False
            self._batch = idle
        self._in_flight = batch
        sync = self._sync_wanted(batch.fill)
        notes = self._promised_by([*self._written, batch]) if sync else []
        now_ms = self._time_due_ms()

        def write() -> None:
            self.writer.write(batch, sync, notes)
            self._note_time(now_ms)

        self._worker.submit(write, lambda error: self._written_batch(batch, sync, error))

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
        if error is not None or self.missing:
            self._look()
        if error is not None:
            self._failed(batch, error)
            return
        self._in_flight = None
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

    def _promised_by(self, batches: list[Batch]) -> list[Promise]:
        """Where each segment of these batches ends: what lies before that is safe when they are synced."""
        notes = []
        for batch in batches:
            for piece in batch.pieces:
                segment = piece.segment
                # The segment still grows, unless it is full.
                last = min(segment.last_sequence or batch.last_sequence, batch.last_sequence)
                end = piece.at + piece.end - piece.start
                notes.append(Promise(SEGMENT, segment.number, segment.first_sequence, end, last))
        return notes

    def _note_time(self, now_ms: int) -> None:
        """On the writer's thread; 0 is none."""
        if now_ms and self.promises is not None:
            self.promises.tell_time(now_ms)

    def _close_sealed(self, batches: list[Batch]) -> None:
        """Segments that are full and safe need no handle for writing any more."""
        filling = {piece.segment.number for piece in self._batch.pieces}
        for batch in batches:
            for piece in batch.pieces:
                segment = piece.segment
                if segment.sealed and segment.handle >= 0 and segment.number not in filling:
                    segment.safe = True
                    if self._was_removed(segment):
                        self._rescue(segment)
                    else:
                        self._close_file(segment)

    def _close_file(self, segment: Segment) -> None:
        """The segment has no handle any more, whatever the system says of it."""
        handle, segment.handle = segment.handle, -1
        self.disk.let_go(handle)

    def _failed(self, batch: Batch, error: OSError) -> None:
        """Nothing since the last sync is safe: lay it all out anew, in a fresh segment."""
        self.writer.abandon()
        self._write_failed = True
        self._write_error = f"cannot write to {self.directory}: {error.strerror or error}"
        unsafe = [*self._written, batch, self._batch]
        refused = [piece.segment.capacity for piece in batch.pieces if not piece.at]
        if error.errno in NO_ROOM and refused:
            self.reclaimer.refuse(self._write_error, max(refused))
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
            if self._was_removed(first.segment):
                self._rescue(first.segment)
            first.segment.abandon(first.at, self.synced_sequence)
            self._previous = first.segment.number
            self._previous_end = first.at
        self._rotate(octets, SEGMENT_OCTETS_LEAN)  # the settles in it make room for the rest
        self._open_piece(self.synced_sequence + 1)
        for each in unsafe:
            for piece in each.pieces:
                start = piece.start if piece.at else piece.start + layout.SEGMENT_HEAD
                self._lay_out(
                    bytes(memoryview(each.buffer)[start : piece.end]), 0, piece.end - start, piece.segment
                )
        # Not before: what is neither on its way nor laid out anew would be promised with what comes later.
        self._in_flight = None
        self._discard(lost, first.segment if first.at else None)
        self._retry_due_s = self.clock.monotonic_s() + self.options.retry_interval_ms / 1000
        self.refresh_alarm()
        if not self._failed_before or len(fresh.spools) < sum(len(each.spools) for each in unsafe):
            self._failed_before = True
            if self.missing:
                return
            self._retry_due_s = 0.0
            if not self.held:
                self._submit()

    def _discard(self, lost: dict[int, Segment], kept: Segment | None) -> None:
        """Close what was abandoned; files that hold nothing promised go away."""
        for number, segment in lost.items():
            if segment.handle >= 0:
                self._close_file(segment)
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
        text = self.missing or (self._write_error if self._write_failed else self.reclaimer.space_alarm)
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
        """The owners that have not let go of the entry."""
        return self.index.owners_of(sequence)

    def read_entry(self, sequence: int) -> tuple[bytes, bytes]:
        """Header and payload; of a spooled entry the payload is empty, see `spool_of`."""
        return self.read_entries([sequence])[0]

    def read_entries(self, sequences: list[int]) -> list[tuple[bytes, bytes]]:
        """Headers and payloads of many, at once where they lie one behind the other."""
        unwritten = [
            batch
            for batch in (self._batch, self._in_flight, *self._written)
            if batch is not None and batch.pieces
        ]
        try:
            return [self._read(sequences, index, unwritten) for index in range(len(sequences))]
        finally:
            self.reader.release_window()

    def entry_octets(self, sequence: int) -> int:
        """What is read to get an entry; 0 if there is none."""
        return self.index.found_size << 3 if self.index.locate(sequence) else 0

    def _read(self, sequences: list[int], index: int, unwritten: list[Batch]) -> tuple[bytes, bytes]:
        sequence = sequences[index]
        if not self.index.locate(sequence):
            raise StorageFault(f"there is no entry {sequence}")
        location = self.index.found_location
        number = location >> 32
        at = (location & 0xFFFFFFFF) << 3
        size = self.index.found_size << 3
        octets = self._octets_unwritten(number, at, size, unwritten)
        start = 0
        if octets is None:
            start = self.reader.place_in_window(number, at, size)
            if start < 0:
                self.reader.read_entries_at(number, at, self._run_end(sequences, index, number, at) - at)
                start = 0
            octets = self.reader.window
        header_at = checked_entry(octets, start, size, number, self.segments[number].seed, sequence)
        header, payload = entry_parts(octets, start, header_at)
        if sequence in self.spools.adopted:
            return header, b""
        return header, payload

    def _octets_unwritten(self, number: int, at: int, size: int, unwritten: list[Batch]) -> bytes | None:
        """The record's octets, where they still wait for the disk."""
        for batch in unwritten:
            if batch.pieces[0].segment.number <= number:
                octets = batch.octets_at(number, at, size)
                if octets is not None:
                    return octets
        return None

    def _run_end(self, sequences: list[int], index: int, number: int, at: int) -> int:
        """Where the last one ends that is read with the entry of `index`, which begins at `at`."""
        end = at
        while index < len(sequences) and self.index.locate(sequences[index]):
            location = self.index.found_location
            start = (location & 0xFFFFFFFF) << 3
            stop = start + (self.index.found_size << 3)
            if location >> 32 != number or start < end or start - end > GAP_OCTETS:
                break
            if stop - at > WINDOW_OCTETS and end > at:
                break
            end = stop
            index += 1
        return end

    def open_spool(self) -> Spool:
        """A file for a payload that must not live in memory."""
        return self.spools.open()

    def spool_of(self, sequence: int) -> Spool | None:
        """The payload of a spooled entry, open for reading; None if it has none."""
        return self.spools.adopted.get(sequence)

    def written_segments(self) -> list[Promise]:
        """How far each segment is written: together they are what a crash would leave now."""
        ends = {number: segment.end for number, segment in self.segments.items()}
        for batch in (self._in_flight, self._batch):
            for piece in [] if batch is None else batch.pieces:
                ends[piece.segment.number] = min(ends[piece.segment.number], piece.at)
        last = self._written[-1].last_sequence if self._written else self.synced_sequence
        promises = []
        for number, segment in sorted(self.segments.items()):
            if ends[number] and segment is not self.reclaimer.dropping:
                mark = min(segment.last_sequence or last, last)
                promises.append(promise_of(segment, ends[number])._replace(mark=mark))
        return promises

    def disk_octets(self) -> int:
        """What the segments take on the disk."""
        return sum(segment.end if segment.sealed else segment.capacity for segment in self.segments.values())

    def live_octets(self) -> int:
        """What of it is needed."""
        return sum(segment.live_octets for segment in self.segments.values()) + self.value_octets

    def close(self) -> None:
        """Write and sync what was appended, end the threads, let go of the directory.

        A fault if the disk did not take it all; everything else is done even so.
        """
        try:
            if self.opened and not self.options.ephemeral:
                self.reclaimer.closing = True
                self._retry_due_s = 0.0  # one last attempt
                self._write_all()
                if self.options.sync is not SyncPolicy.ALWAYS and not self._write_failed:
                    self.writer.sync()
                if fault := self._fault():
                    raise StorageFault(fault)
                self._note_end()
        except OSError as failure:
            raise StorageFault(
                f"cannot write to {self.directory}: {failure.strerror or failure}"
            ) from failure
        finally:
            self.abandon()

    def abandon(self) -> None:
        """End the threads and let go of the directory, and write nothing: as the end of the process does.

        What is appended afterwards goes nowhere, and is promised to nobody.
        """
        self.opened = False
        self._worker.close()
        self.tidier.close()
        if self.promises is not None:
            self.promises.close()
        self.reader.close()
        self.spools.close()
        for segment in self.segments.values():
            if segment.handle >= 0:
                self._close_file(segment)
        self.disk.let_go(self._lock)

    def _note_end(self) -> None:
        """An orderly end: everything is on disk, and it is written down that it is."""
        if self.promises is None:
            return
        self.promises.tell_time(self.now_ms())
        # What the tidier is about to drop has no note any more, and gets none.
        self.tidier.close()
        for segment in self.segments.values():
            promise = promise_of(segment, segment.end)
            noted = self.promises.held(SEGMENT, segment.number)
            if self.options.sync is SyncPolicy.NEVER and (noted is None or noted.end < promise.end):
                self._sync_file(segment.number)
            self.promises.note(promise if promise.mark else promise._replace(mark=self.next_sequence - 1))
        self.promises.sync()

    def _sync_file(self, number: int) -> None:
        path = os.path.join(self.directory, segment_name(number))
        if os.path.basename(path) not in self.disk.list(self.directory):
            return  # the tidier has dropped it
        handle = self.disk.open(path)
        try:
            self.disk.sync(handle)
        finally:
            self.disk.let_go(handle)


def promise_of(segment: Segment, end: int) -> Promise:
    """The note of a segment that is synced up to `end`."""
    return Promise(SEGMENT, segment.number, segment.first_sequence, end, segment.last_sequence)


def _ignore() -> None:
    """Nobody listens."""


def _ignore_text(text: str) -> None:
    """Nobody listens."""


def _tell_note(error: OSError | None) -> None:
    if error is not None:
        log.warning("%s stays, and the next start tells of it again: %s", damage_note.NAME, error)


def _ignore_error(error: OSError | None) -> None:
    """Notes that the disk refuses are told of where they are written."""


def _ignore_sequence(sequence: int) -> None:
    """Nobody listens."""


def _ignore_damage(segment: int, sequences: list[int]) -> None:
    """Nobody listens."""
