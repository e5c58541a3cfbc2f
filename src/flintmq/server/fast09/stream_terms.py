"""A consumer of the stream class of AMQP/Fast 0.9: its deliveries have a destination and a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.queues.consumer_terms import ConsumerTerms
from flintmq.broker.queues.stream_terms import StreamTerms

if TYPE_CHECKING:
    from flintmq.broker.messages.message import Message
    from flintmq.broker.queues.consumer import Consumer
    from flintmq.wire.stream import Body


class Fast09StreamTerms(StreamTerms):
    """As those of AMQP; the output knows that the consumer is one of streams."""

    __slots__ = ()

    def deliver(
        self,
        consumer: Consumer,
        message: Message,
        tag: int,
        redelivered: bool,
        content: bytes,
        body: Body | None,
    ) -> None:
        ConsumerTerms.deliver(self, consumer, message, tag, redelivered, content, body)
