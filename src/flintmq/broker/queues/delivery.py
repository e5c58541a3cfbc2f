"""A message that was handed out and is not settled yet; also what a queue keeps of one that came back."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flintmq.broker.messages.message import Message
    from flintmq.broker.queues.consumer import Consumer
    from flintmq.broker.queues.queue import Queue


class Delivery:
    """One delivery tag of a channel. Settled when `message` is None."""

    __slots__ = ("consumer", "message", "position", "queue", "redeliveries", "tag")

    tag: int
    message: Message | None
    queue: Queue
    consumer: Consumer | None
    position: int
    redeliveries: int

    @staticmethod
    def create(
        tag: int, message: Message, queue: Queue, consumer: Consumer | None, position: int, redeliveries: int
    ) -> Delivery:
        delivery = Delivery.__new__(Delivery)
        delivery.tag = tag
        delivery.message = message
        delivery.queue = queue
        delivery.consumer = consumer  # None: taken by basic.get
        delivery.position = position  # in the queue, for coming back to the same place
        delivery.redeliveries = redeliveries
        return delivery


def new_delivery(message: Message, queue: Queue, position: int, redeliveries: int) -> Delivery:
    """One that nobody holds, for those that are not compiled."""
    return Delivery.create(0, message, queue, None, position, redeliveries)
