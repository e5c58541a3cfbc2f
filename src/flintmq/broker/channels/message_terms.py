"""A consumer of the message class of AMQP 0-9: it gets what a basic consumer would, by message.transfer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.queues.consumer_terms import ConsumerTerms

if TYPE_CHECKING:
    from flintmq.broker.channels.message_transfers import MessageTransfers
    from flintmq.broker.messages.message import Message
    from flintmq.broker.queues.consumer import Consumer
    from flintmq.wire.stream import Body


class MessageTerms(ConsumerTerms):
    """Of one consumer of the message class."""

    __slots__ = ("transfers",)

    def __init__(self, transfers: MessageTransfers, rate: int) -> None:
        super().__init__()
        self.transfers = transfers
        self.limit(rate)

    def admits(self, consumer: Consumer, message: Message) -> bool:
        return self.transfers.has_room() and super().admits(consumer, message)

    def deliver(
        self,
        consumer: Consumer,
        message: Message,
        tag: int,
        redelivered: bool,
        content: bytes,
        body: Body | None,
    ) -> None:
        settles = 0 if consumer.no_ack else tag
        self.transfers.deliver(consumer.tag_octets, message, settles, redelivered, content, body)
