"""Which consumer is next where consumers have priorities, or one alone is active.

x-priority                 the highest is served as long as it takes messages; equal ones take turns
x-single-active-consumer   one has all of them, the others wait

active  -- it goes ------------------------------> the one of the highest x-priority, then the oldest
active  -- one of a higher priority comes -------> that one, on a quorum queue, as in RabbitMQ:
                                                   at once if the active one holds nothing, else
                                                   it gets no more, and is replaced when all is settled
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from flintmq.broker.queues.queue_rules import QUORUM, kind_of

if TYPE_CHECKING:
    from flintmq.broker.queues.consumer import Consumer
    from flintmq.broker.queues.queue import Queue


class ConsumerChoice:
    """The order of the consumers of one queue beyond taking turns."""

    __slots__ = ("joined", "queue", "ranked", "single", "single_active", "successors", "yields")

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.ranked = 0  # consumers with a priority
        self.single_active = False
        self.single: Consumer | None = None
        self.yields = False  # whether the single one makes way for a consumer of a higher priority
        # Where one alone is active: all consumers, as a heap whose first should be it. Those that have left
        # are taken out when they are the first, or when they are more than those that are there.
        self.successors: list[tuple[int, int, Consumer]] = []
        self.joined = 0  # how many have ever come

    def set_single_active(self) -> None:
        if not self.single_active:
            for consumer in self.queue.consumers:
                self.add_successor(consumer)
        self.single_active = True
        self.yields = kind_of(self.queue.arguments) == QUORUM

    def subscribe(self, consumer: Consumer) -> None:
        if consumer.priority:
            if not self.ranked:
                self.queue.unroll()
            self.ranked += 1
        if self.single_active:
            self.add_successor(consumer)
            self.succeed()
        else:
            self.join(consumer)

    def unsubscribe(self, consumer: Consumer) -> None:
        self.forget(consumer)
        self.replace_single()

    def unsubscribe_many(self, consumers: list[Consumer]) -> None:
        """If the active one goes, so do others that would take its place: who stays does."""
        for consumer in consumers:
            self.forget(consumer)
        self.replace_single()

    def forget(self, consumer: Consumer) -> None:
        if consumer.priority:
            self.ranked -= 1
        if self.single is consumer:
            self.single = None

    def replace_single(self) -> None:
        """Some have left."""
        if not self.single_active:
            return
        if len(self.successors) > 2 * len(self.queue.consumers):
            self.successors = [each for each in self.successors if is_there(each)]
            heapify(self.successors)
        if self.single is None:
            self.succeed()

    def add_successor(self, consumer: Consumer) -> None:
        self.joined += 1
        consumer.joined = self.joined
        heappush(self.successors, (-consumer.priority, self.joined, consumer))

    def join(self, consumer: Consumer) -> None:
        """Into the round, behind those of its priority; where one alone is active, the others wait."""
        if self.single_active and (self.single is not consumer or (self.yields and self.succeed())):
            return
        if self.ranked:
            self.place(consumer)
        else:
            self.queue.join(consumer)

    def place(self, consumer: Consumer) -> None:
        """Into the round where some have priorities, behind those of its own."""
        active = self.queue.active
        low = 0
        high = len(active)
        while low < high:
            middle = (low + high) // 2
            other: Consumer = active[middle]
            if other.priority >= consumer.priority:
                low = middle + 1
            else:
                high = middle
        active.insert(low, consumer)

    def succeed(self) -> bool:
        """Makes way for the consumer that should be the active one, if there is another."""
        heir = self.heir()
        if heir is None or (self.single is not None and not self.yields):
            return False
        if self.single is not None and self.queue.withdraw(self.single):
            return True  # it gets no more, and is asked again with each message that it settles
        self.single = heir
        self.join(heir)
        self.queue.mark()
        return True

    def heir(self) -> Consumer | None:
        """Who should be active in place of the present one: of a higher priority, and of these the oldest."""
        while self.successors:
            if is_there(self.successors[0]):
                heir: Consumer = self.successors[0][2]
                return heir if self.single is None or heir.priority > self.single.priority else None
            heappop(self.successors)
        return None


def is_there(successor: tuple[int, int, Consumer]) -> bool:
    """Whether it has not left since; one that has may have come again, as another successor."""
    consumer = successor[2]
    return not consumer.cancelled and consumer.joined == successor[1]
