"""The threads that touch the disk, and the writing of one batch.

A Worker does one piece of work after the other off the caller's thread; what follows from it is
done by `collect`, on the caller's thread, so that the journal's state has one owner. Without
threads the work is done inside `submit`, and everything else stays the same.

Whatever ends a piece of work is told as an OSError, also a lack of memory or a bug: whoever has submitted
the work knows what to do about a failure of the disk, and somebody waits for the outcome.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue

from flintmq import clock
from flintmq.errors import NO_THREAD
from flintmq.histogram import Histogram
from flintmq.storage import layout
from flintmq.storage.disk import Commit, Disk
from flintmq.storage.journal.batch import Batch
from flintmq.storage.journal.segment import Segment, segment_name
from flintmq.storage.sync_notes import Promise, Promises

log = logging.getLogger("flintmq.storage")

# Times of a sync, 100 us to 13 s.
SYNC_BUCKETS = (100, 2, 18)

Work = Callable[[], None]
Then = Callable[[OSError | None], None]


class Worker:
    """A thread with two queues, or none of it."""

    def __init__(self, name: str, wake: Callable[[], None] | None, threaded: bool) -> None:
        self.wake = wake
        self.pending = 0
        self._todo: SimpleQueue[tuple[Work, Then] | None] = SimpleQueue()
        self._done: SimpleQueue[tuple[Then, OSError | None]] = SimpleQueue()
        self._thread: threading.Thread | None = None
        if threaded:
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)
            try:
                self._thread.start()
            except RuntimeError:
                raise OSError(errno.EAGAIN, NO_THREAD) from None

    def submit(self, work: Work, then: Then) -> None:
        self.pending += 1
        if self._thread is None:
            self._done.put((then, _outcome(work)))
        else:
            self._todo.put((work, then))

    def collect(self, wait: bool = False, wait_s: float | None = None) -> bool:
        """Do what follows from finished work; `wait` for one if some is pending, `wait_s` at most.

        False if the time is up before it is done.
        """
        while self.pending and (wait or not self._done.empty()):
            try:
                then, error = self._done.get(timeout=wait_s)
            except Empty:
                return False
            wait = False
            self.pending -= 1
            then(error)
        return True

    def close(self) -> None:
        """Finish what was submitted and end the thread."""
        if self._thread is not None:
            self._todo.put(None)
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while True:
            job = self._todo.get()
            if job is None:
                return
            work, then = job
            self._done.put((then, _outcome(work)))
            if self.wake is not None:
                self.wake()


def _outcome(work: Work) -> OSError | None:
    """Run it; the failure is not swallowed but carried to `collect`."""
    try:
        work()
    except OSError as failure:
        return failure
    except Exception as failure:
        log.exception("what was to be written has failed without a word of the disk")
        return OSError(errno.EIO, f"{type(failure).__name__}: {failure}")
    return None


class BatchWriter:
    """Puts batches into segment files, taking prepared files where there are some."""

    def __init__(
        self, disk: Disk, lock_path: str, lock: int, promises: Promises | None, segment_octets: int
    ) -> None:
        self._disk = disk
        self._directory = os.path.dirname(lock_path)
        self._lock_path = lock_path
        self._lock = lock
        self._promises = promises
        self._segment_octets = segment_octets
        self._unsynced: list[Segment] = []
        # Names of prepared files; filled by the tidying thread, emptied by the writing one.
        self.spares: deque[str] = deque()
        self.sync_times = Histogram(*SYNC_BUCKETS)

    def write(self, batch: Batch, sync: bool, promises: Sequence[Promise]) -> None:
        """Returns when the octets are written, and with `sync` when they and all before are synced.

        Then these promises are noted. A directory that is gone fails before, and the batch is written again
        where it is back.
        """
        if sync and self._commit(batch, promises):
            self._insist_on_segments(batch)
            return
        self._write(batch)
        if sync:
            self.sync()
        self._disk.insist_on(self._lock_path, self._lock)
        self._insist_on_segments(batch)
        if self._promises is not None:
            for promise in promises:
                self._promises.note(promise)

    def _commit(self, batch: Batch, promises: Sequence[Promise]) -> bool:
        """Write, sync and note one piece in a row, where there is nothing else to do; False: there is."""
        if self._promises is None or len(batch.pieces) != 1 or len(promises) != 1 or batch.spools:
            return False
        piece = batch.pieces[0]
        handle = piece.segment.handle
        slot = self._promises.slot_of(promises[0])
        if handle < 0 or not piece.at or slot is None:
            return False
        if any(segment is not piece.segment and segment.handle >= 0 for segment in self._unsynced):
            return False
        self._unsynced = []
        notes, note_at = slot
        sync_us, is_noted = self._disk.commit(
            Commit(
                handle, piece.at, batch.buffer, piece.start, piece.end, notes, note_at, promises[0].encode()
            ),
            self._lock_path,
            self._lock,
        )
        self.sync_times.note(sync_us)
        if is_noted:
            self._promises.noted(promises[0])
        else:
            self._promises.note(promises[0])  # which tells why it fails
        return True

    def _insist_on_segments(self, batch: Batch) -> None:
        """What was written to a file that was removed would not be found again."""
        for piece in batch.pieces:
            segment = piece.segment
            self._disk.insist_on(os.path.join(self._directory, segment_name(segment.number)), segment.handle)

    def _write(self, batch: Batch) -> None:
        for spool in batch.spools:
            spool.secure()
        if batch.spools:
            # Their names too must be safe before a record refers to them.
            self._disk.sync_directory(self._directory)
        created = False
        self._unsynced = [segment for segment in self._unsynced if segment.handle >= 0]
        octets = memoryview(batch.buffer)
        for piece in batch.pieces:
            segment = piece.segment
            if segment.handle < 0:
                self._create(segment, piece.at)
                created = True
            head = 0 if piece.at else layout.SEGMENT_HEAD
            start = piece.start + head
            self._disk.write(segment.handle, piece.at + head, octets[start : piece.end])
            if head:
                # Last, since it may void an abandoned segment whose records are written again here.
                self._disk.write(segment.handle, 0, octets[piece.start : start])
            if segment not in self._unsynced:
                self._unsynced.append(segment)
        if created:
            self._disk.sync_directory(self._directory)

    def sync(self) -> None:
        """Sync every segment written since the last time; each is tried once, never again."""
        unsynced, self._unsynced = self._unsynced, []
        for segment in unsynced:
            # Closed without a sync: that is how the policy NEVER leaves a full segment.
            if segment.handle >= 0:
                began_us = clock.monotonic_us()
                self._disk.sync(segment.handle)
                self.sync_times.note(clock.monotonic_us() - began_us)

    def abandon(self) -> None:
        """Forget what was written and not synced: it will be written elsewhere."""
        self._unsynced = []

    def _create(self, segment: Segment, at: int) -> None:
        """A file for a segment that has none yet; `at` is where the first octets of it are to go."""
        path = os.path.join(self._directory, segment_name(segment.number))
        if at:
            # A new file under this name would take the place of what was promised.
            raise OSError(errno.EBADF, "a segment that is not full was closed", path)
        if segment.capacity == self._segment_octets and self.spares:
            self._disk.rename(os.path.join(self._directory, self.spares.popleft()), path)
            segment.handle = self._disk.open(path)
            return
        handle = self._disk.open(path, create=True)
        segment.handle = handle
        self._disk.reserve(handle, segment.capacity)
