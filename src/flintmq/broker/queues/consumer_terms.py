"""What a consumer has beyond an ordinary one: its content class, its rate, and how it gets a message.

An ordinary consumer is one of the basic class and has no terms, which costs it a test of a pointer. One of
another class gets the messages that were published in its class, and no others. A basic consumer gets what
nobody else on its queue has a claim to: all of it as basic messages.

    credit |####......| burst      every delivery takes its octets; below 0 the consumer waits until the rate
                                   has paid them back, so that a large message goes whole
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.messages.message import Message
from flintmq.errors import ChannelFault
from flintmq.wire import amqp, header_edits

if TYPE_CHECKING:
    from flintmq.broker.queues.consumer import Consumer
    from flintmq.broker.scheduling.timetable import Alarm
    from flintmq.wire.stream import Body
    from flintmq.wire.tables import FieldTable


# How long a consumer may go on from what it has not used of its rate: a tenth of a second.
BURST_MS = 100
# A consumer that waits for its rate is woken so often at the most, and then gets what has come together.
WAKE_MS = 20
RATE_MAX = 4_294_967_295
# The argument of basic.consume and stream.consume, in octets of bodies in a second.
CONSUME_RATE = "x-consume-rate"


class ConsumerTerms:
    """The terms of one consumer. A class of contents has a subclass, which need not be compiled."""

    __slots__ = (
        "ahead_bytes",
        "ahead_count",
        "alarm",
        "consumer",
        "content_class",
        "credit",
        "filled_ms",
        "rate",
        "window_bytes",
        "window_count",
    )

    def __init__(self, content_class: int = 0) -> None:
        self.content_class = content_class  # a bit of traits.CONTENT_CLASSES, 0 for basic
        self.rate = 0  # octets of bodies in a second, an empty one counting as one; 0 for any
        self.credit = 0  # thousandths of octets that may go now; what went too far is below 0
        self.filled_ms = 0
        # What may wait for the client's socket; 0 for as much as the connection may have waiting.
        self.window_bytes = 0
        self.window_count = 0
        self.ahead_bytes = 0
        self.ahead_count = 0
        self.alarm: Alarm | None = None
        self.consumer: Consumer | None = None  # who waits for the alarm

    def limit(self, rate: int, window_bytes: int = 0, window_count: int = 0) -> None:
        """From now on these hold."""
        self.rate = rate
        self.credit = rate * BURST_MS
        self.filled_ms = 0
        self.window_bytes = window_bytes
        self.window_count = window_count

    def admits(self, consumer: Consumer, message: Message) -> bool:
        """Whether the consumer may take the message now. If not, the terms wake it when it may."""
        if self.rate and self.credit <= 0 and not self.fill(consumer):
            return False
        if self.window_count or self.window_bytes:
            return self.has_window(consumer, message)
        return True

    def spend(self, message: Message) -> int:
        """The message has been delivered."""
        size = message.body_size()
        self.credit -= 1000 * (size if size > 0 else 1)
        self.ahead_bytes += size
        self.ahead_count += 1
        return 0

    def fill(self, consumer: Consumer) -> bool:
        """Adds what the rate has allowed since the last time; whether anything may go now."""
        timetable = consumer.channel.pass_work.timetable
        now_ms: int = timetable.now_ms()
        if self.filled_ms == 0:
            self.filled_ms = now_ms
        # What fills it up, however long ago the last time was: the product fits in 64 bits.
        needed_ms = BURST_MS + -self.credit // self.rate + 1
        self.credit += self.rate * min(now_ms - self.filled_ms, needed_ms)
        self.credit = min(self.credit, self.rate * BURST_MS)
        self.filled_ms = now_ms
        if self.credit > 0:
            return True
        if self.alarm is None:
            self.consumer = consumer
            wait_ms = max(WAKE_MS, -self.credit // self.rate + 1)
            self.alarm = timetable.at(now_ms + wait_ms, self.rested)
        return False

    def rested(self) -> None:
        """The alarm: the consumer has waited long enough."""
        self.alarm = None
        consumer, self.consumer = self.consumer, None
        if consumer is not None:
            consumer.wake()

    def has_window(self, consumer: Consumer, message: Message) -> bool:
        """Whether the message fits beside what still waits for the socket; a message alone always does."""
        output = consumer.output
        if not output.pending():
            self.ahead_bytes = self.ahead_count = 0
            return True
        if self.ahead_count and (
            (self.window_count and self.ahead_count >= self.window_count)
            or (self.window_bytes and self.ahead_bytes + message.body_size() > self.window_bytes)
        ):
            output.wanted[consumer] = None
            return False
        return True

    def deliver(
        self,
        consumer: Consumer,
        message: Message,
        tag: int,
        redelivered: bool,
        content: bytes,
        body: Body | None,
    ) -> None:
        """Writes the delivery. `content` is what the client is shown: the basic header, of
        `message.header_size` octets, and the body unless that follows from `body`. The consumer has
        given it its tag, and counts it as unacked, or done with, afterwards.
        """
        channel = consumer.channel
        if channel.numeric:
            content = header_edits.with_numbers(content)
        consumer.output.write_delivery(
            channel.number,
            consumer.tag_octets,
            tag,
            redelivered,
            message.shown_route(),
            content,
            message.header_size,
        )
        if body is not None:
            channel.stream(body, tag)

    def forget(self) -> None:
        """The consumer need not be woken any more, unless it is asked again whether it may take something."""
        self.consumer = None
        if self.alarm is not None:
            self.alarm.cancel()
            self.alarm = None


def rate_of(arguments: FieldTable) -> int:
    """x-consume-rate of a consumer; 0 if there is none."""
    rate = arguments.get(CONSUME_RATE, 0)
    if type(rate) is not int or not 0 <= rate <= RATE_MAX or (rate == 0 and CONSUME_RATE in arguments):
        raise ChannelFault(
            amqp.PRECONDITION_FAILED,
            f"invalid arg '{CONSUME_RATE}' of a consumer: expected octets in a second, from 1 to {RATE_MAX}",
        )
    return rate


def terms_of(arguments: FieldTable) -> ConsumerTerms | None:
    """The terms of a basic consumer with these arguments; None for an ordinary one."""
    if CONSUME_RATE not in arguments:
        return None
    terms = ConsumerTerms()
    terms.limit(rate_of(arguments))
    return terms
