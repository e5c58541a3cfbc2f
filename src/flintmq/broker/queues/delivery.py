"""A message that was handed out and is not settled yet; also what a queue keeps of one that came back.

One that nobody holds, as it came back, waits for its next try or is leased, may lie on disk only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flintmq.broker.messages.message import Message
    from flintmq.broker.queues.consumer import Consumer
    from flintmq.broker.queues.queue import Queue
    from flintmq.broker.store.store import Store

log = logging.getLogger("flintmq.queue")


class PagedMessage:
    """What is known of a message that lies on disk only."""

    __slots__ = ("body_size", "content_size", "entry", "traits")

    entry: int
    body_size: int
    content_size: int
    traits: int

    @staticmethod
    def create(entry: int, message: Message) -> PagedMessage:
        paged = PagedMessage.__new__(PagedMessage)
        paged.entry = entry
        paged.body_size = message.body_size()
        paged.content_size = len(message.content)
        paged.traits = message.traits
        return paged


class Delivery:
    """One delivery tag of a channel. Settled when it has neither a message nor a paged one."""

    __slots__ = ("consumer", "message", "paged", "position", "queue", "redeliveries", "tag")

    tag: int
    message: Message | None
    paged: PagedMessage | None
    queue: Queue
    consumer: Consumer | None
    position: int
    redeliveries: int

    @staticmethod
    def give_each_back(
        give: Callable[[list[Delivery]], None], deliveries: list[Delivery]
    ) -> Exception | None:
        """Gives deliveries to their queues, or settles them; where that fails for one, the others are done.

        The failure.
        """
        try:
            give(deliveries)
            return None
        except Exception as error:
            log.exception("a bug in settling %d messages: each of them once more", len(deliveries))
            failure = error
        for delivery in deliveries:
            try:
                give([delivery])
            except Exception:
                log.exception("a message of queue %r is unacked until the broker ends", delivery.queue.name)
        return failure

    @staticmethod
    def create(
        tag: int, message: Message, queue: Queue, consumer: Consumer | None, position: int, redeliveries: int
    ) -> Delivery:
        delivery = Delivery.__new__(Delivery)
        delivery.tag = tag
        delivery.message = message
        delivery.paged = None
        delivery.queue = queue
        delivery.consumer = consumer  # None: taken by basic.get
        delivery.position = position  # in the queue, for coming back to the same place
        delivery.redeliveries = redeliveries
        return delivery

    def page_out(self, store: Store, is_durable: bool) -> int:
        """The message leaves memory, and goes to disk unless it is there; the octets of its content."""
        message = self.message
        if message is None:
            return 0
        self.paged = PagedMessage.create(store.paged_entry(message, is_durable), message)
        self.message = None
        return len(message.content)

    def page_in(self, message: Message | None) -> None:
        """The message as the disk has it; None if it is lost, and the delivery is settled."""
        self.message = message
        self.paged = None

    def entry(self) -> int:
        """Where its message lies on disk; 0 if it is in memory alone, or settled."""
        if self.message is not None:
            return self.message.entry
        return 0 if self.paged is None else self.paged.entry

    def content_size(self) -> int:
        """The octets of its content, on disk or in memory."""
        if self.message is not None:
            return len(self.message.content)
        return 0 if self.paged is None else self.paged.content_size


def new_delivery(message: Message, queue: Queue, position: int, redeliveries: int) -> Delivery:
    """One that nobody holds, for those that are not compiled."""
    return Delivery.create(0, message, queue, None, position, redeliveries)
