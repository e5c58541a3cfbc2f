"""The streams of one broker: their queues, and who waits until what was published is safe.

A channel that has published to a stream is confirmed when the batch of its newest message is on disk; the
octets of a connection behind a tx.commit wait in the same way. Readers, and requests that wait for more
(stream.offsets), hear of it as each batch ends.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from flintmq.broker.streams.stream_arguments import check_properties, stream_options
from flintmq.broker.streams.stream_queue import StreamQueue
from flintmq.storage.streams.log import StreamLog
from flintmq.storage.streams.recovery import StreamReport
from flintmq.storage.streams.store import StreamStore
from flintmq.wire.tables import FieldTable

if TYPE_CHECKING:
    from flintmq.broker.scheduling.chores import Chore
    from flintmq.broker.scheduling.pass_work import PassWork
    from flintmq.broker.store.publisher import PublisherConfirms
    from flintmq.broker.store.store import Store
    from flintmq.protocol.outbox import Output

log = logging.getLogger("flintmq.streams")

# In the barrier of an output: it waits for streams, whatever the journal has synced.
STREAM_BARRIER = 1 << 63

# How long everybody waits for the disk to take what the journal is about to let go of. Past this the journal
# waits for it alone, so long at most while more and more is moved.
PATIENCE_S = 0.02
HELD_MAX_S = 2.0


class Streams:
    """All stream queues of a broker."""

    def __init__(self, storage: StreamStore, pass_work: PassWork, store: Store | None) -> None:
        self.storage = storage
        self.pass_work = pass_work
        self.store = store
        self.queues: dict[StreamLog, StreamQueue] = {}
        self.waiting: deque[tuple[int, PublisherConfirms, int]] = deque()
        self.outputs: dict[Output, int] = {}  # with the batch that each waits for
        self.watchers: dict[StreamLog, dict[Callable[[], None], None]] = {}
        self.moved = False  # something that the journal is about to let go is in a chunk, and there alone
        self.awaited = 0  # the batch that the journal waits for, having let go of something that is in it
        self.awaited_since_s = 0.0
        self.awaited_last = 0  # the batch that was safe when the disk was waited for last
        self.gone: list[StreamLog] = []  # in this pass
        self.made = 0  # numbers given out where there is no journal to give them
        storage.on_committed = self.committed
        storage.now_ms = pass_work.timetable.now_ms

    @property
    def alarm(self) -> str:
        return self.storage.alarm

    # Queues

    def declare(
        self,
        host: str,
        name: str,
        durable: bool,
        exclusive: bool,
        auto_delete: bool,
        arguments: FieldTable,
        number: int,
    ) -> StreamQueue:
        """A new stream; `number` is what the journal calls it, 0 without one."""
        what = f"queue '{name}' in vhost '{host}'"
        check_properties(what, durable, exclusive, auto_delete)
        options = stream_options(arguments, self.storage.is_temporary)
        self.made += 1
        stream = self.storage.create(number or self.made, options)
        return self.added(host, name, arguments, number, stream)

    def restore(self, host: str, name: str, number: int, arguments: FieldTable) -> StreamQueue:
        """A stream as its log was found."""
        options = stream_options(arguments, self.storage.is_temporary)
        stream, report = self.storage.open(number, options)
        tell(name, report)
        return self.added(host, name, arguments, number, stream)

    def added(
        self, host: str, name: str, arguments: FieldTable, number: int, stream: StreamLog
    ) -> StreamQueue:
        what = f"queue '{name}' in vhost '{host}'"
        queue = StreamQueue(name, self.pass_work, arguments, self.store, number, self, stream, what)
        self.queues[stream] = queue
        return queue

    def delete(self, queue: StreamQueue) -> None:
        """The files go when the deletion is safe on disk: a loss of power could else bring back half."""
        self.queues.pop(queue.log, None)
        self.storage.forget(queue.log)
        self.gone.append(queue.log)
        self.tell_watchers(queue.log)

    def drop_leftovers(self, claimed: set[int]) -> int:
        """Directories of streams that are gone go too.

        Returns the highest number that has one: a new stream must not find the messages of an old one, and
        what is removed may be back after the power has failed.
        """
        numbers = self.storage.numbers()
        for number in numbers:
            if number not in claimed:
                self.storage.remove_leftover(number)
        self.storage.opened(claimed)
        return max(numbers, default=0)

    # Promises

    def note(self, confirms: PublisherConfirms) -> None:
        """The channel has just published to a stream."""
        # A dead letter of the same publish may have had the disk take it: then nothing is left to write.
        confirms.stream_batch = self.storage.batch if self.storage.dirty else self.storage.batch - 1

    def is_safe(self, confirms: PublisherConfirms) -> bool:
        """Whether all that the channel has published to streams is on disk."""
        return confirms.stream_batch <= self.storage.safe_batch

    def wait(self, confirms: PublisherConfirms, published: int) -> None:
        """Has the channel confirm `published` once that is so."""
        self.waiting.append((confirms.stream_batch, confirms, published))

    def hold_back(self, confirms: PublisherConfirms) -> None:
        """Nothing more leaves by the channel's connection until that is so."""
        if not self.is_safe(confirms):
            output = confirms.output
            output.barrier |= STREAM_BARRIER
            self.outputs[output] = max(self.outputs.get(output, 0), confirms.stream_batch)

    def secure(self) -> None:
        """Before the journal lets go of what has gone to a stream, that is on disk.

        The two are written by threads of their own: else a crash between them could cost the message. Now
        it may find the message in the stream and where it was as well, and send it there once more.
        If the disk does not take it now, or not soon, the journal is not written until it has: not this
        group, nor anything that comes after it, and nobody is told that any of it is safe.
        """
        if self.moved:
            self.moved = False
            try:
                is_safe = self.storage.commit_now(self.patience_s())
            except Exception:
                log.exception("a bug in writing to streams: the journal waits until it is done")
                is_safe = False
            if not is_safe and self.store is not None:
                self.await_streams(self.store)

    def patience_s(self) -> float | None:
        """How long the disk is waited for now; None: until it is done, or has failed."""
        if not self.awaited:
            return PATIENCE_S
        if self.pass_work.timetable.clock.monotonic_s() - self.awaited_since_s >= HELD_MAX_S:
            return None
        # What was slow then may be still.
        return PATIENCE_S if self.storage.safe_batch > self.awaited_last else 0.0

    def await_streams(self, store: Store) -> None:
        """The journal is held until all that has gone to streams is safe."""
        if self.storage.last_batch() <= self.storage.safe_batch:
            return
        why = f"the journal waits for its streams: {self.storage.alarm or 'the disk takes long'}"
        if not self.awaited:
            self.awaited_since_s = self.pass_work.timetable.clock.monotonic_s()
            log.log(logging.ERROR if self.storage.alarm else logging.WARNING, why)
        self.awaited = self.storage.last_batch()
        self.awaited_last = self.storage.safe_batch
        store.journal.hold(why)

    def committed(self, logs: list[StreamLog]) -> None:
        """A batch is safe."""
        for stream in logs:
            queue = self.queues.get(stream)
            if queue is not None:
                queue.mark()
            self.tell_watchers(stream)
        safe = self.storage.safe_batch
        if self.awaited and self.awaited <= safe and self.store is not None:
            self.awaited = 0
            log.info("the journal no longer waits for its streams")
            self.store.journal.release()
        while self.waiting and self.waiting[0][0] <= safe:
            _, confirms, published = self.waiting.popleft()
            confirms.confirm_streamed(published)
        for output in [each for each, batch in self.outputs.items() if batch <= safe]:
            del self.outputs[output]
            output.barrier = 0
            if self.store is not None:
                self.store.hold_back(output, self.store.last())
            if not output.barrier:
                output.lift_barrier()

    # Those who wait for more

    def watch(self, stream: StreamLog, told: Callable[[], None]) -> None:
        """Calls back once, when something was added or the stream is gone."""
        self.watchers.setdefault(stream, {})[told] = None

    def forget_watcher(self, stream: StreamLog, told: Callable[[], None]) -> None:
        watchers = self.watchers.get(stream)
        if watchers is not None and told in watchers:
            del watchers[told]
            if not watchers:
                del self.watchers[stream]

    def tell_watchers(self, stream: StreamLog) -> None:
        """A few at once, the others in portions: there may be very many."""
        watchers = self.watchers.pop(stream, None)
        if watchers:
            self.pass_work.chores.begin(telling(watchers))

    # The disk

    def end_pass(self) -> None:
        if self.gone:
            gone, self.gone = self.gone, []
            for stream in gone:
                if self.store is None:
                    self.storage.remove(stream)
                else:
                    self.store.when_synced(self.store.last(), partial(self.storage.remove, stream))
        storage = self.storage
        if storage.dirty or storage.is_void:  # mostly not, and this is asked with each pass
            storage.end_batch()

    def collect(self) -> None:
        self.storage.collect()

    def tick(self) -> None:
        self.storage.tick()

    def shed(self) -> None:
        self.storage.shed()

    def close(self) -> bool:
        """Whether everything is on disk."""
        return self.storage.close()


def telling(watchers: Iterable[Callable[[], None]]) -> Chore:
    """One in each step: an answer takes a tenth of a millisecond."""
    for told in watchers:
        try:
            told()
        except Exception:  # the others are to hear of it
            log.exception("a bug keeps a request from its answer")
        yield None


def tell(name: str, report: StreamReport) -> None:
    for line in report.lines():
        log.log(logging.ERROR if report.damaged else logging.INFO, "recovery of %r: %s", name, line)
