"""A subscription of a channel to a queue: who gets the next message, and may it?

A consumer that may take nothing now is *parked*: out of its queue's turn, so that idle consumers cost
nothing. What it waits for wakes it: room in its connection's output, an ack, channel.flow, qos.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from flintmq.broker.messages.header_changes import fitted
from flintmq.broker.messages.message import Message
from flintmq.broker.queues.consumer_selector import selection_of
from flintmq.broker.queues.delivery import Delivery
from flintmq.errors import ChannelFault
from flintmq.wire import amqp, header_edits, traits
from flintmq.wire.stream import HeldBody

if TYPE_CHECKING:
    from flintmq.broker.channels.channel import Channel
    from flintmq.broker.queues.consumer_terms import ConsumerTerms
    from flintmq.broker.queues.queue import Queue
    from flintmq.protocol.outbox import Output
    from flintmq.wire.stream import Body
    from flintmq.wire.tables import FieldTable

log = logging.getLogger("flintmq.channel")

# Contents up to this size leave whole, however tight the room is: the outbox is not even asked.
LARGE_BYTES = 16_384
# What an unacked message takes beside its body: the delivery, the message and its header.
HOARDED_MESSAGE_BYTES = 512


class Consumer:
    """Made by basic.consume."""

    __slots__ = (
        "arguments",
        "cancelled",
        "channel",
        "content_class",
        "exclusive",
        "joined",
        "no_ack",
        "no_local",
        "output",
        "outstanding",
        "outstanding_bytes",
        "parked",
        "prefetch_bytes",
        "prefetch_count",
        "priority",
        "queue",
        "seen",
        "selection",
        "tag",
        "tag_octets",
        "terms",
    )

    def __init__(
        self,
        channel: Channel,
        queue: Queue,
        tag: str,
        no_ack: bool,
        no_local: bool,
        exclusive: bool,
        arguments: FieldTable,
        terms: ConsumerTerms | None = None,
    ) -> None:
        self.channel = channel
        self.output: Output = channel.output
        self.queue = queue
        self.tag = tag
        octets = tag.encode("utf-8", "surrogateescape")
        self.tag_octets = bytes((len(octets),)) + octets
        self.no_ack = no_ack
        self.no_local = no_local
        self.exclusive = exclusive
        self.arguments = arguments
        self.terms = terms  # None for an ordinary one
        self.content_class = 0 if terms is None else terms.content_class
        self.priority = priority_of(arguments)
        self.selection = selection_of(arguments, queue.consumers, queue.pass_work)
        # As they were set when it was made: later basic.qos with global off leaves it alone.
        self.prefetch_count: int = channel.prefetch_count
        self.prefetch_bytes: int = channel.prefetch_bytes
        self.outstanding = 0
        self.outstanding_bytes = 0
        self.parked = False
        self.cancelled = False
        self.joined = 0  # where one alone is active: it was the how manieth to come
        # The first position of the queue that it has not refused yet; what comes back from before a restart
        # is ahead of 0.
        self.seen = -(1 << 62)

    def is_selective(self) -> bool:
        """Whether it may refuse messages that others take."""
        return self.no_local or self.selection is not None or self.content_class != 0

    def accepts(self, message: Message) -> bool:
        if self.no_local and message.origin == self.channel.origin:
            return False
        # Of each class others have nothing while one consumer of the queue is there for it.
        if message.traits & traits.CONTENT_CLASSES != self.content_class and (
            self.content_class or message.traits & self.queue.claimed
        ):
            return False
        return self.selection is None or self.selection.accepts(message)

    def ready(self, message: Message) -> bool:
        """Whether it may take `message` now."""
        if not self.output.has_room() or not self.channel.flowing or self.channel.streaming:
            return False
        if message.traits & traits.SPOOLED and message.body_size() > self.output.body_bytes_max:
            # It stays for others. Who cannot be told of it has nothing to wait for.
            self.channel.pass_work.lost_consumers.append(self)
            return False
        if self.terms is not None and not self.terms.admits(self, message):
            return False
        if self.no_ack:
            return True
        if self.channel.pass_work.is_short and self.outstanding and self.hoards():
            return False
        if self.prefetch_count and self.outstanding >= self.prefetch_count:
            return False
        if (
            self.prefetch_bytes
            and self.outstanding
            and self.outstanding_bytes + message.body_size() > self.prefetch_bytes
        ):
            return False
        return self.channel.has_credit(message)

    def hoards(self) -> bool:
        """Whether it holds as much unacked as it may while memory is short."""
        pass_work = self.channel.pass_work
        if self.outstanding_bytes + HOARDED_MESSAGE_BYTES * self.outstanding < pass_work.hoard_bytes_max:
            return False
        pass_work.hoarders[self] = None
        return True

    def park(self) -> None:
        """Leaves word with what it waits for; an ack of its own wakes it in any case."""
        self.parked = True
        if self.output.has_room():
            self.channel.parked[self] = None
        else:
            self.output.wanted[self] = None

    def forget(self) -> None:
        """Nobody need tell it anything any more."""
        self.channel.parked.pop(self, None)
        self.output.wanted.pop(self, None)
        self.channel.pass_work.hoarders.pop(self, None)
        if self.terms is not None:
            self.terms.forget()

    def deliver(self, message: Message, position: int, redeliveries: int) -> int:
        channel = self.channel
        if (
            redeliveries
            or message.traits & (traits.SPOOLED | traits.BLIND)
            or len(message.content) > LARGE_BYTES
            or message.header_size > self.output.header_bytes_max
            or self.terms is not None
            or channel.numeric
        ):
            if not self.write_unusual(message, redeliveries):
                return 0
        else:
            channel.delivery_tag += 1
            self.output.write_delivery(
                channel.number,
                self.tag_octets,
                channel.delivery_tag,
                False,
                message.route,
                message.content,
                message.header_size,
            )
        if message.entry:
            self.queue.hand_out(message, self.output)
        if channel.router.is_traced:
            channel.trace_delivery(message, self.queue, redeliveries > 0)
        if self.no_ack:
            channel.unasked += 1
            self.queue.unasked += 1
            self.queue.settle(message)
            return 0
        delivery = Delivery.create(channel.delivery_tag, message, self.queue, self, position, redeliveries)
        size = message.body_size()
        channel.unacked.add(delivery, size)
        self.outstanding += 1
        self.outstanding_bytes += size
        return self.queue.delivered(channel, delivery)

    def write_unusual(self, message: Message, redeliveries: int) -> bool:
        """Writes a message that was delivered before, is large, or has to look different for this consumer.

        False where its body is lost: nothing was written then, and the queue has let go of the message.
        """
        channel = self.channel
        body: Body | None = None
        if message.traits & traits.SPOOLED:
            body = channel.body_of(message)
            if body is None:
                log.error("queue %r goes on without a message that is lost", self.queue.name)
                self.queue.need_tally().lost += 1
                self.queue.settle(message)
                return False
        channel.delivery_tag += 1
        written = message
        if redeliveries:
            channel.redeliveries += 1
            self.queue.need_tally().redeliveries += 1
            if self.queue.rules is not None and self.queue.rules.retries is not None:
                written = self.queue.rules.retries.shown(message, redeliveries)
        if written.header_size > self.output.header_bytes_max:
            written = fitted(written, self.output.header_bytes_max)
        content = written.content
        if channel.numeric and self.terms is None:
            content = header_edits.with_numbers(content)
        if len(content) > LARGE_BYTES and body is None and self.output.streams_large(len(content)):
            body = HeldBody(content, written.header_size)
            content = content[: written.header_size]
        if self.terms is not None:
            self.terms.deliver(self, written, channel.delivery_tag, redeliveries > 0, content, body)
            self.terms.spend(written)
            return True
        self.output.write_delivery(
            channel.number,
            self.tag_octets,
            channel.delivery_tag,
            redeliveries > 0,
            message.shown_route(),
            content,
            written.header_size,
        )
        if body is not None:
            channel.stream(body, channel.delivery_tag)
        return True

    def undelivered(self, message: Message, position: int, redeliveries: int) -> None:
        """A bug has met a delivery: unless the channel holds it, the message goes back to its place."""
        if not self.channel.unacked.ends_with(message, self.queue):
            self.queue.give_back(Delivery.create(0, message, self.queue, None, position, redeliveries))

    def settled(self, size: int) -> int:
        """One of its deliveries is off its account, with a body of so many octets."""
        self.outstanding -= 1
        self.outstanding_bytes -= size
        if self.parked:
            channel = self.channel
            if (channel.global_count or channel.global_bytes) and self in channel.parked:
                # All who wait there are woken in a moment. Of those that share a limit it has had its turn.
                del channel.parked[self]
                channel.parked[self] = None
            else:
                self.wake()
        return 0

    def wake(self) -> None:
        """What it waited for has come."""
        if self.parked and not self.cancelled:
            self.parked = False
            self.queue.rejoin(self)

    def notify_cancel(self) -> None:
        """The queue of the consumer is gone, and the client hears so."""
        self.channel.notify_cancel(self)


def priority_of(arguments: FieldTable) -> int:
    """x-priority: those with more of it are served first."""
    priority = arguments.get("x-priority", 0)
    if type(priority) is not int or not -(2**31) <= priority < 2**31:
        raise ChannelFault(
            amqp.PRECONDITION_FAILED,
            "invalid arg 'x-priority' of a consumer: expected a number of 32 bits",
            60,
            20,
        )
    return priority
