"""Where deliveries wait for the application: an Inbox for each consumer, all bounded together.

    ClientConnection.deliver -> Intake.deliver -> Inbox.messages -> the consumer's iterator

When more waits than `received_bytes_max`, the protocol is paused: nothing further is taken from the
socket until half of it has been read by the application.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from flintmq.client.core.message import Message
from flintmq.errors import ConnectionFault
from flintmq.protocol.client_events import ClientEvents
from flintmq.wire import amqp

if TYPE_CHECKING:
    from flintmq.client.core.channel import ChannelCore
    from flintmq.client.core.errors import ClientError
    from flintmq.protocol.client import ClientChannel, ClientConnection

# What a message takes besides its body, about: so that empty ones are bounded too.
MESSAGE_BYTES = 200


class Inbox:
    """Deliveries of one consumer that the application has not read yet.

    Those of a connection or channel that is lost are not handed out: the server delivers them again. A
    consumer without acks keeps them, as the server has forgotten them.
    """

    __slots__ = ("deliveries", "ended", "head", "intake", "messages", "told")

    def __init__(self, intake: Intake, deliveries: Deliveries | None) -> None:
        self.intake = intake
        self.deliveries = deliveries  # of the channel; None for a consumer without acks
        self.messages: list[Message] = []
        self.head = 0
        self.told: Callable[[], None] | None = None  # called when something came
        self.ended: ClientError | None = None  # why no more will come

    def waiting(self) -> int:
        """How many can be read."""
        self._drop_lost()
        return len(self.messages) - self.head

    def next(self) -> Message | None:
        if self.head >= len(self.messages):
            return None
        message = self.messages[self.head]
        if self.deliveries is not None and message.epoch != self.deliveries.epoch:
            self.clear()
            return None
        self.head += 1
        # In one go now and then: what was read is in front.
        if self.head >= 1024 or self.head == len(self.messages):
            del self.messages[: self.head]
            self.head = 0
        self.intake.taken(len(message.body) + MESSAGE_BYTES)
        return message

    def take(self, count_max: int) -> list[Message]:
        """Up to `count_max` messages at once."""
        self._drop_lost()
        return self._taken(count_max)

    def _drop_lost(self) -> None:
        """Nothing can be settled if the first message cannot: a new life begins with an empty inbox.

        The reader does that and not the end of the connection, which another thread may notice.
        """
        if self.deliveries is not None and self.head < len(self.messages):
            message = self.messages[self.head]
            if message.epoch != self.deliveries.epoch:
                self.clear()

    def _taken(self, count_max: int) -> list[Message]:
        end = min(self.head + count_max, len(self.messages))
        taken = self.messages[self.head : end]
        del self.messages[:end]
        self.head = 0
        size = MESSAGE_BYTES * len(taken)
        for message in taken:
            size += len(message.body)
        self.intake.taken(size)
        return taken

    def clear(self) -> None:
        """Forgets what was not read: the server has it still, and sends it again."""
        self._taken(len(self.messages))


class Deliveries:
    """What a channel's deliveries need to know: the inboxes by consumer tag (as a short string)."""

    __slots__ = ("channel", "epoch", "inboxes")

    def __init__(self, channel: ChannelCore) -> None:
        self.channel = channel
        self.inboxes: dict[bytes, Inbox] = {}
        # Which life of the channel, 0 while the channel has none; delivery tags of another one mean nothing.
        self.epoch = 0


class Intake(ClientEvents):
    """The part of a connection's events that is busy."""

    protocol: ClientConnection
    received_bytes: int
    received_bytes_max: int

    def deliver(
        self,
        channel: ClientChannel,
        consumer_tag: bytes,
        tag: int,
        redelivered: bool,
        route: bytes,
        properties: bytes,
        body: bytes,
    ) -> None:
        deliveries: Deliveries = channel.owner  # type: ignore[assignment]
        inbox = deliveries.inboxes.get(consumer_tag)
        if inbox is None:
            raise ConnectionFault(amqp.COMMAND_INVALID, "a delivery for a consumer that there is not")
        inbox.messages.append(
            Message.create(
                deliveries.channel, deliveries.epoch, consumer_tag, tag, redelivered, route, properties, body
            )
        )
        self.received_bytes += len(body) + MESSAGE_BYTES
        if self.received_bytes > self.received_bytes_max:
            self.protocol.paused = True
        if inbox.told is not None:
            inbox.told()

    def taken(self, size: int) -> None:
        """The application has read so much."""
        self.received_bytes -= size
        if self.protocol.paused and self.received_bytes <= self.received_bytes_max // 2:
            self.protocol.paused = False
            self.resumed()

    def resumed(self) -> None:
        """There is room again after a pause."""
