"""A queue that is a stream: what is published stays, and everyone reads it at a pace of their own.

    publish -> enqueue -> the log's chunk -> (group commit) -> Streams.committed -> dispatch -> readers

Nothing is ever ready or taken: a consumer has a reader, its place in the log, and gets what is safe on disk
from there on. Acks only give it credit for more. What comes back unsettled is read again by whoever asks.
"""

from __future__ import annotations

import logging
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

from flintmq.broker.messages import entry_number
from flintmq.broker.messages.message import Message
from flintmq.broker.queues import put_flags
from flintmq.broker.queues.consumer import Consumer
from flintmq.broker.queues.delivery import Delivery
from flintmq.broker.queues.paged_tail import PagedTail
from flintmq.broker.queues.queue import Queue
from flintmq.broker.scheduling.pass_work import PassWork
from flintmq.broker.streams.stream_arguments import (
    filter_value_of,
    filters,
    first_offset,
    refuse_too_large,
    refused,
)
from flintmq.broker.streams.stream_reader import StreamReader
from flintmq.errors import ConnectionFault, ProtocolMisuse, StorageFault, UnreadableFault
from flintmq.storage.streams.chunk import CHUNK_OCTETS
from flintmq.wire import amqp, traits
from flintmq.wire.tables import FieldTable

if TYPE_CHECKING:
    from flintmq.broker.store.store import Store
    from flintmq.broker.streams.streams import Streams
    from flintmq.protocol.outbox import Output
    from flintmq.storage.streams.log import StreamLog

log = logging.getLogger("flintmq.streams")

# Waiting for the disk: past this a publisher is asked to pause for a moment.
PRESSED_OCTETS = 16_777_216
# What each reader may take of a portion at least before the next one has its turn.
SHARE_MIN = 64
# Messages passed over by a filter cost little: so many of them, as a power of two, count as one.
UNWANTED_SHIFT = 4
# Selectors may take so long in a pass. The time is asked for once in so many messages.
SELECTING_S = 0.001
SELECTED_MASK = 7
# What a selector took, as PassWork.offered counts, in messages of a portion, as a power of two.
COST_SHIFT = 4
# The pause after which what the disk did not give is read again.
AGAIN_MS = 1000
# The time is asked for once in so many messages of a pass.
TIME_EVERY_MASK = 63


class StreamQueue(Queue):
    """One stream of a virtual host."""

    __slots__ = (
        "all_due",
        "builder",
        "due",
        "full_octets",
        "log",
        "now_ms",
        "readers",
        "reads_later",
        "streams",
        "until_s",
        "what",
    )

    def __init__(
        self,
        name: str,
        pass_work: PassWork,
        arguments: FieldTable,
        store: Store | None,
        number: int,
        streams: Streams,
        log: StreamLog,
        what: str,
    ) -> None:
        super().__init__(name, pass_work, True, False, False, arguments, 0, store, number)
        self.is_stream = True
        self.streams = streams
        self.log = log
        self.builder = log.builder
        self.what = what  # for texts: queue 'orders' in vhost '/'
        self.now_ms = 0
        self.full_octets = CHUNK_OCTETS
        self.readers: dict[Consumer, StreamReader] = {}
        self.due: dict[Consumer, None] = {}  # for whom there may be something, in the order of their turns
        self.all_due = False  # so is everybody who is not parked
        self.until_s = 0.0  # when selectors have had their time in this pass; 0: nobody has asked
        self.reads_later = False  # an alarm is set for it

    def message_count(self) -> int:
        return len(self.log)

    # Publishing

    def enqueue(self, message: Message) -> int:
        spooled = message.traits & traits.SPOOLED
        happened = self.write_spooled(message) if spooled else self.write(message, message.content)
        # Nothing but this gives up the stream's share of a file, or of what another queue has spilled for all
        # of them. Where anything fails before, the router does it instead.
        if entry_number.is_transient(message.entry) and self.store is not None:
            self.store.settle(0, message.entry)
        message.holders -= 1
        return happened

    def write(self, message: Message, content: bytes) -> int:
        """Adds the message to the chunk that is being filled; the outcome, as queues/put_flags.py has it."""
        if len(content) > self.full_octets:
            refuse_too_large([self], len(content))
        builder = self.builder
        if builder.count & TIME_EVERY_MASK == 0:
            self.now_ms = self.pass_work.timetable.now_ms()
            if builder.count == 0:
                self.log.begin_chunk()
        value = None
        if message.traits & traits.HAS_HEADERS:
            value = filter_value_of(content, message.header_size)
        fill = builder.append(
            self.now_ms,
            message.shown_route(),
            content,
            message.header_size,
            message.traits & ~(traits.SPOOLED | traits.BLIND),
            value,
        )
        if fill >= self.full_octets:
            self.log.seal()
            if self.log.pending_octets > PRESSED_OCTETS:
                return put_flags.IN_STREAM | put_flags.CONGESTED
        return put_flags.IN_STREAM

    def write_spooled(self, message: Message) -> int:
        """The same with the body from its file. What the disk does not give is refused, and others get it."""
        if self.store is None:
            raise ProtocolMisuse("a spooled message needs a store")
        try:
            body = self.store.body_of(message)
            if body is None:
                return put_flags.REFUSED
            with closing(body):
                content = message.content + body.read(0, body.octets)
        except (StorageFault, UnreadableFault) as fault:
            log.error("a message for %s is lost: %s", self.what, fault)
            self.pass_work.fates.lost += 1
            return put_flags.REFUSED
        return self.write(message, content)

    def can_take_now(self, message: Message) -> bool:
        return bool(self.consumers)

    # Reading

    def mark(self) -> None:
        """There may be something for all readers: the stream goes into the pass work if there are any."""
        if self.active:
            self.all_due = True
            self.go_on_feeding()

    def go_on_feeding(self) -> int:
        if not self.dirty:
            self.dirty = True
            self.pass_work.queues.append(self)
        return 0

    def dispatch(self) -> int:
        """Gives each reader what there is for it, until the portion of the pass is used up.

        Readers share what is left of it. Those that have not had their turn come first in the next pass.
        """
        if self.returning or self.deleted:
            return 0
        self.dirty = False
        self.until_s = 0.0
        due = self.due
        if self.all_due:
            self.all_due = False
            due.update(dict.fromkeys(self.active))
        pass_work = self.pass_work
        while due:
            share = max(pass_work.portion // len(due), SHARE_MIN)
            for consumer in list(due):
                if pass_work.portion <= 0:
                    self.go_on_feeding()
                    return 0
                del due[consumer]
                reader = self.readers.get(consumer)
                if reader is None or consumer.parked:
                    continue
                try:
                    if self.feed(consumer, reader, share):
                        due[consumer] = None
                except (OSError, StorageFault) as failure:
                    self.read_later(reader, failure)
        return 0

    def read_later(self, reader: StreamReader, failure: Exception) -> int:
        """The disk has failed a reader, perhaps for a moment: all readers try again after a pause."""
        if not reader.is_failing:
            reader.is_failing = True
            tag = reader.consumer.tag
            log.error("%s cannot be read by consumer %s, tried again: %s", self.what, tag, failure)
        if not self.reads_later:
            self.reads_later = True
            timetable = self.pass_work.timetable
            timetable.at(timetable.now_ms() + AGAIN_MS, partial(read_again, self))
        return 0

    def feed(self, consumer: Consumer, reader: StreamReader, share: int) -> bool:
        """Delivers until the consumer may take no more, or there is no more; whether its share ended it.

        All work for it counts: looking for more, decoding it, and messages that it does not want.
        """
        pass_work = self.pass_work
        least = pass_work.portion - share
        pass_work.portion -= 1
        is_selective = consumer.is_selective()
        while True:
            index = reader.index
            message = reader.peek()
            pass_work.portion -= (reader.index - index) >> UNWANTED_SHIFT
            if pass_work.portion < least:
                return True
            if message is None:
                if not reader.load():
                    return False
                pass_work.portion -= reader.load_cost
                if reader.is_failing:
                    reader.is_failing = False
                    log.info("%s is read again by consumer %s", self.what, consumer.tag)
                continue
            if is_selective:
                if reader.index & SELECTED_MASK == 0 and self.is_late():
                    pass_work.portion = min(pass_work.portion, 0)
                    return True
                is_wanted = consumer.accepts(message)
                if consumer.selection is not None:
                    pass_work.portion -= consumer.selection.cost >> COST_SHIFT
                if not is_wanted:
                    reader.index += 1
                    pass_work.portion -= 1
                    continue
            if not consumer.ready(message):
                consumer.park()
                self.leave(consumer)
                return False
            offset = reader.offset()
            reader.index += 1
            pass_work.portion -= 1
            consumer.deliver(message, offset, 0)

    def is_late(self) -> bool:
        """Whether selectors have had their time in this pass: how long one takes is for clients to say."""
        now_s = self.pass_work.timetable.clock.monotonic_s()
        if not self.until_s:
            self.until_s = now_s + SELECTING_S
        return now_s >= self.until_s

    def rejoin(self, consumer: Consumer) -> None:
        if self.deleted:
            return
        self.active.append(consumer)
        self.due[consumer] = None
        self.go_on_feeding()

    def subscribe(self, consumer: Consumer) -> None:
        if consumer.no_ack:
            raise not_implemented(f"automatic acknowledgement not supported by stream {self.what}")
        if not consumer.prefetch_count and not consumer.channel.global_count:
            raise refused(f"consumer prefetch count is not set for stream {self.what}")
        wanted, match_unfiltered = filters(consumer.arguments)
        offset = first_offset(
            self.log, consumer.arguments.get("x-stream-offset"), self.pass_work.timetable.now_ms()
        )
        self.readers[consumer] = StreamReader(consumer, self.log, offset, wanted, match_unfiltered)
        self.consumers.append(consumer)
        self.rejoin(consumer)

    def unsubscribe(self, consumer: Consumer) -> None:
        consumer.cancelled = True
        if self.readers.pop(consumer, None) is None:
            return  # it was refused
        self.due.pop(consumer, None)
        if self.consumers[-1] is consumer:
            self.consumers.pop()
        else:
            self.consumers.remove(consumer)
        if not consumer.parked:
            self.leave(consumer)
        consumer.forget()

    def unsubscribe_many(self, consumers: list[Consumer]) -> None:
        for consumer in consumers:
            consumer.cancelled = True
            self.readers.pop(consumer, None)
            self.due.pop(consumer, None)
            consumer.forget()
        self.consumers[:] = [each for each in self.consumers if not each.cancelled]
        self.active[:] = [each for each in self.active if not each.cancelled]

    # What a stream does not do

    def settle(self, message: Message) -> int:
        return 0

    def hand_out(self, message: Message, output: Output | None) -> int:
        return 0

    def requeue(self, deliveries: list[Delivery], failed: bool = False) -> None:
        """Nothing moves: the messages of a stream stay in its log."""
        self.unacked -= len(deliveries)

    def restore(self, tail: PagedTail, handed_out: int) -> None:
        log.warning("%s is a stream, but the journal holds %d messages for it", self.what, tail.count)

    def shed(self, most: int) -> int:
        """Streams.shed does it for all."""
        return 0

    def take(self) -> Delivery | None:
        raise not_implemented(f"basic.get not supported by stream {self.what}")

    def purge(self) -> int:
        """Only as the end of the stream: what is in it is not for one client to take from all others."""
        if not self.deleted:
            raise not_implemented(f"queue.purge not supported by stream {self.what}")
        count = self.message_count()
        self.streams.delete(self)
        return count


def read_again(queue: StreamQueue) -> None:
    queue.reads_later = False
    queue.mark()


def not_implemented(why: str) -> ConnectionFault:
    return ConnectionFault(amqp.NOT_IMPLEMENTED, f"{why}")
