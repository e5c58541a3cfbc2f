"""The streams of one broker on disk: one writer for all of their logs, batch after batch.

    <data>/streams/<number of the stream>/00000000000000000000.segment
                                          00000000000000000000.index

What was appended to any stream while a batch was being written is the next batch: written and synced off
the caller's thread, then told to `on_committed`. Batches are numbered, so that a promise need only know the
number of its batch. After a failure everything that is not safe is written to new segments, again and again;
meanwhile there is an alarm. Without a directory the streams live in a temporary one and end with the process.

A segment whose file was removed while it was open stays open until it is copied to a new file of its name.
Readers use the open file until then. A copy that fails is a batch that fails: the next attempt copies again.

How far each stream is synced is noted beside the directory (`streams.promised`, see sync_notes.py) before
`on_committed`, so that a damaged end, and a stream that is missing altogether, are known for what they are.
"""

from __future__ import annotations

import errno
import logging
import os
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from flintmq.storage.journal.writer import Worker
from flintmq.storage.options import JournalOptions, SyncPolicy
from flintmq.storage.streams.log import StreamLog, StreamOptions, StreamWrite
from flintmq.storage.streams.recovery import StreamReport, miss_log, recover_log, remove_segment
from flintmq.storage.streams.segment import COPY_SUFFIX, StreamSegment, index_name
from flintmq.storage.sync_notes import GAP, STREAM, Promise, Promises

if TYPE_CHECKING:
    from flintmq.clock import Clock
    from flintmq.storage.disk import Disk

log = logging.getLogger("flintmq.storage")

# Of all streams together, kept in memory for those who read the newest; of one stream no more than a part.
RECENT_OCTETS_MAX = 67_108_864
RECENT_OCTETS_MAX_PER_STREAM = 4_194_304
# Streams whose age one tick looks at: some milliseconds.
AGEING_MAX = 1024
# Files open for reading, and for writing: there may be more streams than a process may have files open.
HANDLES_MAX = 64
WRITTEN_HANDLES_MAX = 64

# A file that was removed is copied so much at a time.
COPIED_OCTETS = 1 << 20

# What was promised of the streams; not in their directory, which may be what is missing.
PROMISES_NAME = "streams.promised"

Writes = list[tuple[StreamLog, list[StreamWrite]]]


class StreamStore:
    """All logs of one directory."""

    def __init__(
        self,
        directory: str | None,
        disk: Disk,
        options: JournalOptions,
        clock: Clock,
        wake: Callable[[], None] | None = None,
    ) -> None:
        self.directory = directory or ""  # a temporary one is made when it is needed
        self.is_temporary = directory is None
        self.disk = disk
        self.sync = SyncPolicy.NEVER if directory is None else options.sync
        self.options = options
        self.clock = clock
        # What messages are stamped with, and their age is told by; a broker has a time that does not leap.
        self.now_ms: Callable[[], int] = clock.wall_ms
        self.logs: dict[int, StreamLog] = {}
        self.dirty: dict[StreamLog, None] = {}
        self.batch = 1  # the number of the one that is being filled
        self.is_void = False  # all that was in it has gone with its stream; somebody may wait for it
        self.safe_batch = 0  # all up to this one is promised
        self.alarm = ""
        self.on_committed: Callable[[list[StreamLog]], None] = _ignore
        self._worker = Worker("stream-writer", wake, options.threaded)
        self._in_flight: Writes | None = None
        self._unsynced: Writes = []  # promised, not synced: the policy INTERVAL
        self._unsynced_octets = 0
        # With a handle that is not needed after the next sync.
        self._full: list[tuple[StreamLog, StreamSegment]] = []
        self._stale: list[tuple[StreamLog, StreamSegment]] = []  # files that a failed batch has left
        self._sync_due_s = 0.0
        self._is_syncing = False  # set by the writer, read when it is done
        self._retry_due_s = 0.0
        self._failed_before = False
        self._handles: OrderedDict[str, int] = OrderedDict()
        # The writer's: segments in the order in which they were written, some closed since.
        self._written_handles: OrderedDict[StreamSegment, StreamLog] = OrderedDict()
        self._recent: OrderedDict[StreamLog, None] = OrderedDict()  # the one appended to last comes last
        self._recent_octets = 0
        self._ageing: list[StreamLog] = []  # whose age is to be looked at, a portion with each tick
        # Segments whose files were removed, by path; noted by the writer.
        self.missing: dict[str, tuple[StreamLog, StreamSegment]] = {}
        # Such segments with the handle that was open, which is all that leads to the messages.
        self._removed: dict[str, tuple[StreamLog, StreamSegment, int]] = {}
        # Written again by the writer: readers open these anew, and their old handles go.
        self._replaced: list[tuple[StreamLog, StreamSegment, int]] = []
        self.is_held = False  # somebody copies the files: none of them goes meanwhile
        self._kept: list[tuple[StreamLog, list[StreamSegment]]] = []  # streams that are to go after that
        self.promises: Promises | None = None
        if directory is not None:
            disk.make_directory(directory)
            self.promises = Promises(disk, os.path.join(os.path.dirname(directory), PROMISES_NAME))
            self.promises.open(0)
            disk.sync_directory(os.path.dirname(directory))
            # What an earlier life has removed must not come back: its numbers are given again.
            disk.sync_directory(directory)

    # Streams

    def open(self, number: int, options: StreamOptions) -> tuple[StreamLog, StreamReport]:
        """A stream as its directory has it."""
        stream = StreamLog(self, number, self._path(number), options)
        report = StreamReport(number)
        if self.promises is not None:
            found = self.promises.found
            is_there = f"{number:016d}" in self.disk.list_directories(self.directory)
            report = recover_log(stream, found) if is_there else miss_log(stream, found)
            for first, end in report.lost:
                self.promises.note(Promise(GAP, number, first, end, 0))
            if stream.end:
                self._note_promised(stream)
        self.logs[number] = stream
        self._retain(stream)
        return stream, report

    def opened(self, claimed: set[int]) -> None:
        """All streams that there are have been opened, or are `claimed`: notes of others go."""
        if self.promises is not None:
            for number in self.promises.found.all_of(STREAM):
                if number not in claimed and number not in self.logs:
                    self.promises.forget(STREAM, number)
            self.promises.sync()

    def _note_promised(self, stream: StreamLog) -> None:
        if self.promises is not None:
            self.promises.note(Promise(STREAM, stream.number, stream.first, stream.end, stream.epoch))

    def create(self, number: int, options: StreamOptions) -> StreamLog:
        """A new stream; what lies where it is to be is from one that is gone."""
        if self.is_temporary and not self.directory:
            self.directory = self.disk.make_temporary_directory("flintmq-streams-")
        stream = StreamLog(self, number, self._path(number), options)
        if f"{number:016d}" in self.disk.list_directories(self.directory):
            self._worker.submit(
                lambda: self._remove(stream, []), _tell("clear the directory of a new stream")
            )
        self.logs[number] = stream
        return stream

    def forget(self, stream: StreamLog) -> None:
        """The stream is gone; its files are still there."""
        stream.deleted = True
        self.logs.pop(stream.number, None)
        if stream in self.dirty:
            del self.dirty[stream]
            self.is_void = not self.dirty
        self._recent_octets -= stream.trim_recent(0)
        self._recent.pop(stream, None)
        for segment in stream.segments:
            segment.dropped = True
            self._forget_handle(stream, segment)

    def remove(self, stream: StreamLog) -> None:
        """Removes the files of a stream, after all that is on its way to the disk."""
        segments = [*stream.segments]
        if self.is_held:
            self._kept.append((stream, segments))
            return
        self._worker.submit(lambda: self._remove(stream, segments), _tell("remove a stream"))

    def hold(self) -> None:
        """No file goes until `release`."""
        self.is_held = True

    def release(self) -> None:
        """What was to go meanwhile goes now; retention follows by itself."""
        self.is_held = False
        kept, self._kept = self._kept, []
        for stream, segments in kept:
            self._worker.submit(partial(self._remove, stream, segments), _tell("remove a stream"))

    def numbers(self) -> list[int]:
        """The streams that have a directory."""
        if not self.directory:
            return []
        return sorted(int(name) for name in self.disk.list_directories(self.directory) if is_number(name))

    def remove_leftover(self, number: int) -> None:
        """A directory that no queue claims."""
        stream = StreamLog(self, number, self._path(number), StreamOptions())
        self._worker.submit(lambda: self._remove(stream, []), _tell("remove a leftover stream"))

    def _path(self, number: int) -> str:
        return os.path.join(self.directory, f"{number:016d}")

    # Group commit

    def end_batch(self) -> None:
        """Hands what was appended to the writer, or leaves it to grow while one is in flight."""
        if (self.dirty or self.is_void) and self._in_flight is None and not self._retry_due_s:
            self._submit()

    def _submit(self) -> None:
        dirty, self.dirty = self.dirty, {}
        self.is_void = False
        writes = [(stream, stream.take()) for stream in dirty if not stream.deleted]
        number = self.batch
        self.batch += 1
        self._in_flight = writes
        octets = sum([len(write.chunk.octets) for _, of_one in writes for write in of_one])
        sync = self._sync_wanted(octets)
        self._unsynced += writes
        self._unsynced_octets += octets
        to_sync = self._unsynced if sync else []
        stale = [each for each in self._stale if not each[0].deleted]
        notes = self._promised_by(to_sync)

        def write() -> None:
            self._write(writes, to_sync, stale)
            self._note(notes)

        self._worker.submit(write, lambda error: self._written(number, writes, sync, error))

    def _promised_by(self, to_sync: Writes) -> list[Promise]:
        """Where each stream with some of these ends: what lies before that is safe when they are synced."""
        ends: dict[StreamLog, int] = {}
        for stream, of_one in to_sync:
            if not stream.deleted:
                ends[stream] = max(
                    [ends.get(stream, stream.end), *[write.chunk.end_offset for write in of_one]]
                )
        return [Promise(STREAM, each.number, each.first, end, each.epoch) for each, end in ends.items()]

    def _note(self, notes: list[Promise]) -> None:
        """On the writer's thread, as a write may take as long as the disk likes."""
        if self.promises is not None:
            for promise in notes:
                self.promises.note(promise)

    def _sync_wanted(self, octets: int) -> bool:
        if self.sync is not SyncPolicy.INTERVAL:
            return self.sync is SyncPolicy.ALWAYS
        now_s = self.clock.monotonic_s()
        if not self._unsynced:
            self._sync_due_s = now_s + self.options.sync_interval_ms / 1000
        return now_s >= self._sync_due_s or self._unsynced_octets + octets > self.options.unsynced_octets_max

    def _write(self, writes: Writes, to_sync: Writes, stale: list[tuple[StreamLog, StreamSegment]]) -> None:
        """On the writer's thread: returns when the octets are written, and those of `to_sync` are synced."""
        self._is_syncing = False
        if self.promises is not None and not self.promises.is_there():
            raise FileNotFoundError(errno.ENOENT, "it was removed or replaced", self.directory)
        self._write_removed_again()
        created: dict[str, None] = {}
        for stream, segment in stale:
            # Never promised; but a crash must not find it beside what is written now. Its directory may be
            # what could not be made.
            self.disk.make_directory(stream.directory)
            remove_segment(self.disk, stream.directory, segment)
            created[stream.directory] = None
        synced: set[StreamSegment] = set()
        for stream, of_one in writes:
            for write in of_one:
                if not write.segment.is_created:
                    created[stream.directory] = None
                self._open_to_write(stream, write.segment, synced)
                self.disk.write(write.segment.handle, write.position, write.chunk.octets)
        self._is_syncing = True
        for stream, of_one in to_sync:
            for write in of_one:
                if write.segment not in synced and not write.segment.dropped:
                    synced.add(write.segment)
                    self._sync_segment(stream, write.segment)
        self._look(writes)
        if created and self.sync is not SyncPolicy.NEVER:
            for directory in created:
                self.disk.sync_directory(directory)
            self.disk.sync_directory(self.directory)

    def _look(self, writes: Writes) -> None:
        """What was written to a file that has been removed is not there."""
        for stream, of_one in writes:
            for segment in {write.segment: None for write in of_one}:
                self._keep_removed(stream, segment)
        self._write_removed_again()

    def _keep_removed(self, stream: StreamLog, segment: StreamSegment) -> None:
        """If the file of an open segment was removed or replaced, nobody closes it until it is copied."""
        if segment.handle < 0 or segment.dropped or self.is_temporary:
            return
        path = os.path.join(stream.directory, segment.name)
        why = "was removed or replaced while the broker uses it"
        try:
            if self.disk.is_there(path, segment.handle):
                return
        except OSError as failure:
            why = f"cannot be looked for, {failure.strerror or failure}"  # this may be the last handle
        log.error("%s %s: it stays open until it is copied", path, why)
        handle, segment.handle = segment.handle, -1
        self._removed[path] = (stream, segment, handle)

    def _write_removed_again(self) -> None:
        """On the writer's thread: copies what was removed into its place; raises if some of it is left."""
        failure: OSError | None = None
        for path, (stream, segment, handle) in list(self._removed.items()):
            if segment.dropped:
                continue
            try:
                self.disk.make_directory(stream.directory)
                is_back = self.disk.is_there(path, handle)
                if not is_back:
                    self._copy(handle, path)
                # Until then the name may be lost, so a failure here is followed by another copy.
                self.disk.sync_directory(stream.directory)
                self.disk.sync_directory(self.directory)
                self._miss_others(stream)
            except OSError as error:
                failure = failure or error
                continue
            log.warning("%s is back" if is_back else "%s was written again", path)
            # In this order: a reader finds the old handle, or the file by its name.
            self._replaced.append((stream, segment, handle))
            del self._removed[path]
        if failure is not None:
            raise failure

    def _copy(self, source: int, path: str) -> None:
        """Under another name first: a file of the segment's name is a whole one."""
        copy = self.disk.open(path + COPY_SUFFIX, create=True)
        try:
            try:
                self.disk.truncate(copy, 0)
                for at in range(0, self.disk.size(source), COPIED_OCTETS):
                    self.disk.write(copy, at, self.disk.read(source, at, COPIED_OCTETS))
                self.disk.sync(copy)
            finally:
                self.disk.let_go(copy)
            self.disk.rename(path + COPY_SUFFIX, path)
        except OSError:
            self._remove_copy(path + COPY_SUFFIX)
            raise

    def _remove_copy(self, path: str) -> None:
        """An unfinished copy only takes room, which may be what there is too little of."""
        try:
            self.disk.delete(path)
        except OSError as failure:
            log.warning("could not remove %s: %s", path, failure.strerror or failure)

    def _forget_removed(self, stream: StreamLog, segment: StreamSegment) -> None:
        """Nothing in the removed file is wanted any more."""
        path = os.path.join(stream.directory, segment.name)
        if path in self._removed and self._removed[path][1] is segment:
            self.disk.let_go(self._removed.pop(path)[2])

    def _miss_others(self, stream: StreamLog) -> None:
        """Other files of the stream may have gone with it: nobody has those open to write them again."""
        names = self.disk.list(stream.directory)
        for segment in [*stream.segments]:
            path = os.path.join(stream.directory, segment.name)
            is_closed = segment.handle < 0 and path not in self._removed
            if segment.octets and is_closed and not segment.dropped and segment.name not in names:
                if path not in self.missing:
                    log.error(
                        "%s was removed: offsets %d to %d are lost unless it is put back",
                        path,
                        segment.first_offset,
                        segment.end_offset - 1,
                    )
                self.missing[path] = (stream, segment)

    def missing_files(self) -> list[str]:
        """Files with messages that were removed while the broker runs, as an operator is to know."""
        # Of copies: the writer may add to them meanwhile.
        told = [(path, segment, "") for path, (_, segment) in list(self.missing.items())]
        for path, (_, segment, _) in list(self._removed.items()):
            if segment.octets and not segment.dropped:
                told.append((path, segment, ", which only the running broker has until it can copy them"))
        return [
            f"{path}: it was removed, with offsets {segment.first_offset} to {segment.end_offset - 1}{more}"
            for path, segment, more in told
        ]

    def _look_for_missing(self) -> None:
        """Files that are back, or not wanted any more, are missed no longer."""
        present: dict[str, set[str]] = {}  # by directory: a stream may miss thousands of files
        for path, (stream, segment) in list(self.missing.items()):
            if segment.dropped or stream.deleted:
                del self.missing[path]
                continue
            if stream.directory not in present:
                try:
                    present[stream.directory] = set(self.disk.list(stream.directory))
                except OSError:
                    present[stream.directory] = set()
            if segment.name in present[stream.directory]:
                del self.missing[path]
                log.warning("%s is back", path)

    def _open_to_write(self, stream: StreamLog, segment: StreamSegment, synced: set[StreamSegment]) -> None:
        """Has a handle of the segment. The file that was not written for the longest time is closed.

        That one may have been written in this batch, where a batch has many streams. `synced` is told.
        """
        synced.discard(segment)
        if segment.handle < 0 and segment.is_created:
            segment.handle = self.disk.open(os.path.join(stream.directory, segment.name))
        elif segment.handle < 0:
            self._create(stream, segment)
        self._written_handles[segment] = stream
        self._written_handles.move_to_end(segment)
        if len(self._written_handles) > WRITTEN_HANDLES_MAX:
            other, other_stream = self._written_handles.popitem(last=False)
            if other.handle >= 0:
                self._end_writing(other_stream, other)
                synced.add(other)

    def _end_writing(self, stream: StreamLog, segment: StreamSegment) -> None:
        """Closes the file for the moment. Only by this handle a failure to write it is sure to be told."""
        if not segment.dropped and self.sync is not SyncPolicy.NEVER:
            self._is_syncing = True
            self.disk.sync(segment.handle)
            self._is_syncing = False
        self._keep_removed(stream, segment)
        if segment.handle < 0:
            self._write_removed_again()
        self._let_go(segment)

    def _let_go(self, segment: StreamSegment) -> None:
        """The segment has no handle for writing any more."""
        if segment.handle >= 0:
            handle, segment.handle = segment.handle, -1
            self.disk.let_go(handle)

    def _sync_segment(self, stream: StreamLog, segment: StreamSegment) -> None:
        if segment.handle >= 0:
            self.disk.sync(segment.handle)
            return
        # A later batch has failed and closed it, or has closed it for others.
        handle = self.disk.open_to_read(os.path.join(stream.directory, segment.name))
        try:
            self.disk.sync(handle)
        finally:
            self.disk.let_go(handle)

    def _create(self, stream: StreamLog, segment: StreamSegment) -> None:
        self.disk.make_directory(stream.directory)
        # Never promised, or it would not be written again; its pages may be lost, so not its file either.
        remove_segment(self.disk, stream.directory, segment)
        path = os.path.join(stream.directory, segment.name)
        segment.handle = self.disk.open(path, create=True)
        segment.is_created = True

    def _written(self, number: int, writes: Writes, sync: bool, error: OSError | None) -> None:
        self._in_flight = None
        while self._replaced:
            stream, segment, handle = self._replaced.pop()
            self._forget_handle(stream, segment)
            self.disk.let_go(handle)
        for stream, segment, _ in list(self._removed.values()):
            if segment.dropped:
                self._forget_removed(stream, segment)
        if error is not None:
            self._failed(writes, error)
            return
        if sync or self.sync is SyncPolicy.NEVER:
            self._unsynced = []
            self._unsynced_octets = 0
        self._stale.clear()
        self._retry_due_s = 0.0
        self._failed_before = False
        self.alarm = ""
        self.safe_batch = number
        committed = []
        for stream, of_one in writes:
            if not stream.deleted:
                before = stream.recent_octets
                stream.commit(of_one)
                self._keep_recent(stream, stream.recent_octets - before)
                self._retain(stream)
                committed.append(stream)
        if not self._unsynced:
            self._close_full()
        self.on_committed(committed)

    def _close_full(self) -> None:
        """Segments that are full and synced need no handle for writing any more."""
        for stream, segment in self._full:
            if not segment.dropped:
                self._keep_removed(stream, segment)
                self._let_go(segment)
        self._full.clear()

    def _failed(self, writes: Writes, error: OSError) -> None:
        """What may be lost gets new places: this batch; after a sync that failed, all since the last one."""
        unsafe = self._unsynced
        self._unsynced = []
        if not self._is_syncing:
            earlier = len(unsafe) - len(writes)
            unsafe, self._unsynced = unsafe[earlier:], unsafe[:earlier]
        self._unsynced_octets = sum([len(write.chunk.octets) for _, each in self._unsynced for write in each])
        self.alarm = f"cannot write to {self.directory}: {error.strerror or error}"
        by_stream: dict[StreamLog, list[StreamWrite]] = {}
        for stream, of_one in unsafe:
            by_stream.setdefault(stream, []).extend(of_one)
        for stream, of_one in by_stream.items():
            empty = [] if stream.deleted else stream.lay_out_anew(of_one)
            for segment in {write.segment.first_offset: write.segment for write in of_one}.values():
                self._forget_handle(stream, segment)
                segment.is_created = False  # should it be written again, then into a new file
                if segment.octets:
                    self._keep_removed(stream, segment)
                if not segment.dropped:
                    self._let_go(segment)
            if not stream.deleted:
                for segment in empty:
                    self._forget_removed(stream, segment)
                    self._stale.append((stream, segment))
                self.dirty[stream] = None
        self._retry_due_s = self.clock.monotonic_s() + self.options.retry_interval_ms / 1000
        if not self._failed_before:
            self._failed_before = True
            self._retry_due_s = 0.0
            self._submit()

    def collect(self) -> None:
        """Takes notice of what the writer has done; call it after `wake`."""
        self._worker.collect()
        self.end_batch()

    def tick(self) -> None:
        """Due work: further attempts, syncs by interval, retention by age. Call it a few times a second."""
        self.collect()
        if self.missing:
            self._look_for_missing()
        now_s = self.clock.monotonic_s()
        is_sync_due = self._unsynced and now_s >= self._sync_due_s
        is_copy_due = self._removed and not self._retry_due_s
        if self._in_flight is None and self._retry_due_s and now_s >= self._retry_due_s:
            self._retry_due_s = 0.0
            self._submit()
        elif self._in_flight is None and (is_sync_due or is_copy_due):
            self._submit()
        if not self._ageing:
            self._ageing = [each for each in self.logs.values() if each.options.age_max_ms is not None]
        for stream in self._ageing[-AGEING_MAX:]:
            if not stream.deleted:
                self._retain(stream)
        del self._ageing[-AGEING_MAX:]
        self.collect()

    def last_batch(self) -> int:
        """When this batch is safe, so is all that was appended until now."""
        is_to_come = self.dirty or self.is_void or self._retry_due_s
        return self.batch if is_to_come else self.batch - 1

    def commit_now(self, wait_s: float | None = None) -> bool:
        """Writes all that was appended, here and now; whether the disk took it, within `wait_s`."""
        until_s = None if wait_s is None else self.clock.monotonic_s() + wait_s
        if (self._retry_due_s or self._removed) and self._in_flight is None:
            # Also if the streams it was for are gone: somebody may wait for it, and the alarm is over.
            self._retry_due_s = 0.0
            self._submit()
        self.end_batch()
        while self._in_flight is not None and self._worker.pending:
            left_s = None if until_s is None else max(0.0, until_s - self.clock.monotonic_s())
            if not self._worker.collect(True, left_s):
                return False
            self.end_batch()
        return not self.alarm and self._in_flight is None

    # What follows

    def write_index(self, stream: StreamLog, segment: StreamSegment) -> None:
        """The segment is full and safe."""
        path = os.path.join(stream.directory, index_name(segment.first_offset))
        octets = segment.encode_index()
        self._full.append((stream, segment))

        def write() -> None:
            if segment.dropped:
                return
            # It is not synced: one that is torn does not check, and is made anew.
            handle = self.disk.open(path, create=True)
            try:
                self.disk.write(handle, 0, octets)
                self.disk.truncate(handle, len(octets))
            finally:
                self.disk.let_go(handle)

        self._worker.submit(write, _tell("write the index of a segment"))

    def _retain(self, stream: StreamLog) -> None:
        if self.is_held:
            return
        before = stream.recent_octets
        dropped = stream.retain(self.now_ms())
        self._recent_octets -= before - stream.recent_octets
        if dropped:
            for segment in dropped:
                self._forget_handle(stream, segment)
            first = stream.first
            self._worker.submit(
                lambda: self._remove_files(stream, dropped, first), _tell("remove old segments")
            )

    def _remove_files(self, stream: StreamLog, segments: list[StreamSegment], first: int) -> None:
        """On the writer's thread: these go, and the stream begins at `first`."""
        if self.promises is not None:
            noted = self.promises.held(STREAM, stream.number)
            noted = noted or Promise(STREAM, stream.number, 0, 0, stream.epoch)
            self.promises.note(noted._replace(first=first))
            self.promises.sync()  # or they would be missed
        for segment in segments:
            self._let_go(segment)
            remove_segment(self.disk, stream.directory, segment)
            if not self.is_temporary:
                # One by one, the oldest first: a crash between leaves no hole.
                self.disk.sync_directory(stream.directory)

    def _remove(self, stream: StreamLog, segments: list[StreamSegment]) -> None:
        for segment in segments:
            self._let_go(segment)
        if self.promises is not None:
            self.promises.forget(STREAM, stream.number)
        if os.path.basename(stream.directory) in self.disk.list_directories(self.directory):
            for name in self.disk.list(stream.directory):
                self.disk.delete(os.path.join(stream.directory, name))
            self.disk.remove_directory(stream.directory)

    def _keep_recent(self, stream: StreamLog, octets: int) -> None:
        """What was just written stays in memory for a while, and older things go."""
        self._recent[stream] = None
        self._recent.move_to_end(stream)
        self._recent_octets += octets - stream.trim_recent(RECENT_OCTETS_MAX_PER_STREAM)
        while self._recent_octets > RECENT_OCTETS_MAX:
            oldest = next(iter(self._recent))
            del self._recent[oldest]
            self._recent_octets -= oldest.trim_recent(0)

    def shed(self) -> None:
        """Memory is short: what is on disk need not be here too."""
        for stream in self._recent:
            stream.trim_recent(0)
        self._recent.clear()
        self._recent_octets = 0

    # Reading

    def read(self, stream: StreamLog, segment: StreamSegment, at: int, size: int) -> bytes:
        path = os.path.join(stream.directory, segment.name)
        handle = self._handles.get(path)
        removed = self._removed.get(path)
        if removed is not None:
            handle = removed[2]  # the writer may be done with it, but it is closed on this thread
        elif handle is None:
            handle = self._handles[path] = self.disk.open_to_read(path)
            if len(self._handles) > HANDLES_MAX:
                self.disk.let_go(self._handles.popitem(last=False)[1])
        else:
            self._handles.move_to_end(path)
        return self.disk.read(handle, at, size)

    def read_file(self, path: str) -> bytes:
        handle = self.disk.open_to_read(path)
        try:
            return self.disk.read(handle, 0, self.disk.size(handle))
        finally:
            self.disk.let_go(handle)

    def _forget_handle(self, stream: StreamLog, segment: StreamSegment) -> None:
        handle = self._handles.pop(os.path.join(stream.directory, segment.name), None)
        if handle is not None:
            self.disk.let_go(handle)

    def close(self) -> bool:
        """Writes and syncs what was appended, ends the thread; temporary streams go. Whether it is safe."""
        if self.sync is SyncPolicy.INTERVAL:
            self.sync = SyncPolicy.ALWAYS  # there is no next time
        is_safe = self.commit_now()
        for stream in self.logs.values():
            for segment in stream.segments:
                if segment.octets:
                    self._keep_removed(stream, segment)  # nobody may have written to it since
        if is_safe and (self._unsynced or self._removed):
            self._submit()
            is_safe = self.commit_now()
        if not is_safe:
            log.error("not everything in streams is on disk: %s", self.alarm)
        if self.is_temporary:
            for stream in list(self.logs.values()):
                self.forget(stream)
                self.remove(stream)
        self._worker.close()
        self._worker.collect()
        self._tell_of_removed()
        if is_safe and self.promises is not None:
            self._note_end(self.promises)
        self.abandon()
        if self.is_temporary and self.directory:
            self.disk.remove_directory(self.directory)
        return is_safe or self.is_temporary

    def abandon(self) -> None:
        """Ends the thread and closes all files, and writes nothing: as the end of the process does."""
        self._worker.close()
        for stream in self.logs.values():
            for segment in stream.segments:
                self._let_go(segment)
        while self._handles:
            self.disk.let_go(self._handles.popitem()[1])
        for of_removed in (*self._removed.values(), *self._replaced):
            self.disk.let_go(of_removed[2])
        self._removed.clear()
        self._replaced.clear()
        if self.promises is not None:
            self.promises.close()

    def _tell_of_removed(self) -> None:
        """The broker ends, and with it what only an open file has."""
        for path, (_, segment, _) in self._removed.items():
            if segment.octets and not segment.dropped:
                log.error(
                    "%s was removed and could not be written again: "
                    "offsets %d to %d are lost unless it is put back",
                    path,
                    segment.first_offset,
                    segment.end_offset - 1,
                )

    def _sync_files(self, stream: StreamLog, start: int) -> None:
        """Segments with offsets from `start` on."""
        synced = [segment for segment in stream.segments if segment.octets and segment.end_offset > start]
        for segment in synced:
            self._sync_segment(stream, segment)
        if synced:
            self.disk.sync_directory(stream.directory)
            self.disk.sync_directory(self.directory)

    def _note_end(self, promises: Promises) -> None:
        """An orderly end: everything is on disk, and it is written down that it is."""
        try:
            for stream in self.logs.values():
                noted = promises.held(STREAM, stream.number)
                if self.sync is SyncPolicy.NEVER:
                    self._sync_files(stream, 0 if noted is None else noted.end)
                if stream.end:
                    self._note_promised(stream)
            promises.sync()
        except OSError as failure:
            why = failure.strerror or failure
            log.error("not everything in streams is on disk: cannot write to %s: %s", self.directory, why)


def is_number(name: str) -> bool:
    return len(name) == 16 and name.isdigit()


def _ignore(streams: list[StreamLog]) -> None:
    """Nobody listens."""


def _tell(what: str) -> Callable[[OSError | None], None]:
    """For work that is done again at the next start, should it fail now."""

    def then(error: OSError | None) -> None:
        if error is not None:
            log.warning("could not %s: %s", what, error.strerror or error)

    return then
