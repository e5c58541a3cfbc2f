"""What a transaction of the tx class has gathered: published messages, and settled deliveries.

Nothing of it shows until commit; then all of it does, in one go. Rollback forgets the publishes and
leaves the deliveries unsettled, as the standard says: the client may settle them again or recover.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from flintmq.broker.messages import cc_bcc as copies
from flintmq.broker.streams.stream_arguments import refuse_too_large
from flintmq.errors import ChannelFault
from flintmq.storage.streams.chunk import MESSAGE_OCTETS_MAX
from flintmq.wire import amqp, traits

if TYPE_CHECKING:
    from flintmq.broker.channels.channel import Channel
    from flintmq.broker.exchanges.route import Route
    from flintmq.broker.messages.message import Message
    from flintmq.broker.queues.delivery import Delivery
    from flintmq.broker.queues.queue import Queue

# Beside its content, what a message of an open transaction takes in memory.
MESSAGE_BYTES = 256
# What an open transaction may hold while memory is short.
SHORT_BYTES_MAX = 1_048_576


class Transaction:
    """The open transaction of a channel; a new one begins where it ends."""

    __slots__ = ("acked", "channel", "content_bytes", "published", "rejected", "requeued", "settled_tags")

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.clear()

    def clear(self) -> None:
        self.published: list[tuple[Message, int]] = []
        self.content_bytes = 0
        self.acked: list[Delivery] = []
        self.rejected: list[Delivery] = []
        self.requeued: list[Delivery] = []
        self.settled_tags: set[int] = set()

    def publish(self, message: Message, flags: int) -> None:
        self.content_bytes += len(message.content) + MESSAGE_BYTES
        agenda = self.channel.virtual_host.agenda
        most = (
            min(SHORT_BYTES_MAX, agenda.transaction_bytes_max)
            if agenda.is_short
            else agenda.transaction_bytes_max
        )
        if self.content_bytes > most:
            raise ChannelFault(
                amqp.RESOURCE_ERROR,
                f"RESOURCE_ERROR - over {most} octets in a transaction: commit more often",
                60,
                40,
            )
        self.published.append((message, flags))

    def without_settled(self, deliveries: list[Delivery]) -> list[Delivery]:
        return [delivery for delivery in deliveries if delivery.tag not in self.settled_tags]

    def ack(self, deliveries: list[Delivery]) -> None:
        self.acked.extend(deliveries)
        self.settled_tags.update(delivery.tag for delivery in deliveries)

    def reject(self, deliveries: list[Delivery], requeue: bool) -> None:
        (self.requeued if requeue else self.rejected).extend(deliveries)
        self.settled_tags.update(delivery.tag for delivery in deliveries)

    def commit(self) -> None:
        """Whatever can refuse refuses before anything shows.

        A bug on the way ends the connection. What was done until then stays done, in memory and on disk:
        messages are published before any delivery is settled, so nothing is lost by it.
        """
        channel = self.channel
        routed = self.check()
        store = channel.store
        with nullcontext() if store is None else store.journal.group() as group:
            self.carry_out(routed)
        if store is not None and group is not None:
            store.hold_back(channel.output, group.sequence)
        streams = channel.virtual_host.streams
        if streams is not None and channel.logged:
            streams.hold_back(channel)

    def check(self) -> list[tuple[Message, Route, int]]:
        """What was published, with its routes; a fault if any of it is refused, and then nothing is done."""
        channel = self.channel
        routed = [
            (message, channel.router.route_of(message.route), flags)
            for message, flags in self.published
            if channel.router.has_exchange_of(message.route)
        ]
        coming: dict[Queue, list[Message]] = {}
        for message, route, _ in routed:
            size = message.header_size + message.body_size()
            if size > MESSAGE_OCTETS_MAX:
                further = copies.keys_of(message) if message.traits & traits.HAS_COPIES else []
                refuse_too_large(channel.router.reachable(route, further), size)
            if route.by_headers:
                if route.exchange is not None:
                    route.exchange.check_message(message, channel)
            elif route.ruled:
                for queue in route.queues:
                    coming.setdefault(queue, []).append(message)
        check_room(coming, channel.virtual_host.name)
        return routed

    def carry_out(self, routed: list[tuple[Message, Route, int]]) -> None:
        """In one group of the journal: all of it shows at once."""
        channel = self.channel
        for message, route, flags in routed:
            channel.forward(message, route, flags)
        channel.discard(self.acked)
        channel.refuse(self.rejected)
        channel.requeue(self.requeued)
        self.forget_bodies()
        streams = channel.virtual_host.streams
        if streams is not None and (self.acked or self.rejected) and not streams.is_safe(channel):
            streams.moved = True
        channel.router.secure_streams()
        self.clear()

    def rollback(self) -> None:
        self.forget_bodies()
        self.clear()

    def forget_bodies(self) -> None:
        """Files of large messages that reached no queue go."""
        store = self.channel.store
        if store is not None:
            for message, _ in self.published:
                if message.traits & traits.SPOOLED:
                    store.forget_arrived(message)


def check_room(coming: dict[Queue, list[Message]], virtual_host: str) -> None:
    """A queue that refuses messages when it is full refuses the whole transaction."""
    for queue, messages in coming.items():
        if queue.regime is not None and queue.regime.lacks_room(messages):
            raise ChannelFault(
                amqp.PRECONDITION_FAILED,
                f"PRECONDITION_FAILED - queue '{queue.name}' in vhost '{virtual_host}' is full: "
                "nothing of the transaction was done",
                90,
                20,
            )
