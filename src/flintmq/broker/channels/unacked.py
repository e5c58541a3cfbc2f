"""Deliveries that a client has and is to settle, in the order of their tags.

A delivery that is settled out of turn stays in the ring as an empty shell until those before it are settled,
or until shells are the larger half. Knows nothing of queues but which one a delivery is of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.queues.ring import Ring

if TYPE_CHECKING:
    from flintmq.broker.messages.message import Message
    from flintmq.broker.queues.delivery import Delivery
    from flintmq.broker.queues.queue import Queue


class UnackedDeliveries:
    """The unacked deliveries of one channel."""

    __slots__ = ("fetched", "outstanding", "outstanding_bytes", "ring")

    def __init__(self) -> None:
        self.ring = Ring()
        self.fetched = 0  # from basic.get, which no limit counts; `outstanding` are the others
        self.outstanding = 0
        self.outstanding_bytes = 0

    def add(self, delivery: Delivery, size: int) -> int:
        """A consumer got it, with a body of so many octets."""
        self.ring.push(delivery)
        self.outstanding += 1
        self.outstanding_bytes += size
        return 0

    def fetch(self, delivery: Delivery) -> None:
        """basic.get got it."""
        self.ring.push(delivery)
        self.fetched += 1

    def ends_with(self, message: Message, queue: Queue) -> bool:
        """Whether the newest delivery is of the message; it alone may be one that came from another queue."""
        if not self.ring.count:
            return False
        newest = self.ring.at(self.ring.count - 1)
        return newest.message is message and newest.queue is queue

    def find(self, tag: int) -> Delivery | None:
        """The unsettled delivery with this tag."""
        low = 0
        high = self.ring.count
        if high == 0:
            return None
        # Tags of a channel without automatic acks are consecutive: the first guess is nearly always right.
        delivery: Delivery = self.ring.at(0)
        guess = tag - delivery.tag
        if 0 <= guess < high:
            delivery = self.ring.at(guess)
            if delivery.tag == tag:
                return delivery if delivery.message is not None else None
        while low < high:
            middle = (low + high) // 2
            delivery = self.ring.at(middle)
            if delivery.tag < tag:
                low = middle + 1
            else:
                high = middle
        if low == self.ring.count:
            return None
        delivery = self.ring.at(low)
        return delivery if delivery.tag == tag and delivery.message is not None else None

    def through(self, tag: int) -> list[Delivery]:
        """All that are unsettled up to `tag`; all there is when it is 0."""
        found: list[Delivery] = []
        for index in range(self.ring.count):
            delivery = self.ring.at(index)
            if tag and delivery.tag > tag:
                break
            if delivery.message is not None:
                found.append(delivery)
        return found

    def last_through(self, tag: int) -> int:
        """The tag of the newest one that is unsettled up to `tag`, 0 if there is none."""
        low = 0
        high = self.ring.count
        while low < high:
            middle = (low + high) // 2
            delivery: Delivery = self.ring.at(middle)
            if delivery.tag <= tag:
                low = middle + 1
            else:
                high = middle
        while low:
            low -= 1
            delivery = self.ring.at(low)
            if delivery.message is not None:
                return delivery.tag
        return 0

    def release(self, delivery: Delivery) -> int:
        """The channel lets go of the delivery, which gives its consumer credit."""
        message = delivery.message
        if message is None:
            return 0
        delivery.message = None
        consumer = delivery.consumer
        if consumer is None:
            self.fetched -= 1
            return 0
        size = message.body_size()
        self.outstanding -= 1
        self.outstanding_bytes -= size
        consumer.settled(size)
        return 0

    def tidy(self) -> None:
        """Drops settled shells."""
        while self.ring.count:
            delivery = self.ring.at(0)
            if delivery.message is not None:
                break
            self.ring.pop()
        if self.ring.count > 2 * (self.outstanding + self.fetched) + 64:
            kept = self.through(0)
            self.ring.clear()
            for delivery in kept:
                self.ring.push(delivery)

    def take(self, most: int) -> list[Delivery]:
        """The first of them; the channel forgets them."""
        taken: list[Delivery] = []
        while self.ring.count and len(taken) < most:
            delivery = self.ring.pop()
            if delivery.message is not None:
                taken.append(delivery)
        return taken

    def queues(self, start: int, most: int) -> list[Queue]:
        """The queues of `most` deliveries from the one at `start`; neighbours once."""
        found: list[Queue] = []
        last: Queue | None = None
        for index in range(start, min(start + most, self.ring.count)):
            delivery = self.ring.at(index)
            if delivery.message is not None and delivery.queue is not last:
                last = delivery.queue
                found.append(delivery.queue)
        return found
