"""Which consumer is next where consumers have priorities, or one alone is active.

x-priority                 the highest is served as long as it takes messages; equal ones take turns
x-single-active-consumer   one has all of them, the others wait

active  -- it goes ------------------------------> the one of the highest x-priority, then the oldest
active  -- one of a higher priority comes -------> that one, on a quorum queue, as in RabbitMQ:
                                                   at once if the active one holds nothing, else
                                                   it gets no more, and is replaced when all is settled
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.queues.queue_rules import QUORUM, kind_of

if TYPE_CHECKING:
    from flintmq.broker.queues.consumer import Consumer
    from flintmq.broker.queues.queue import Queue


class ConsumerChoice:
    """The order of the consumers of one queue beyond taking turns."""

    __slots__ = ("queue", "ranked", "single", "single_active", "yields")

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.ranked = 0  # consumers with a priority
        self.single_active = False
        self.single: Consumer | None = None
        self.yields = False  # whether the single one makes way for a consumer of a higher priority

    def set_single_active(self) -> None:
        self.single_active = True
        self.yields = kind_of(self.queue.arguments) == QUORUM

    def subscribe(self, consumer: Consumer) -> None:
        if consumer.priority:
            if not self.ranked:
                self.queue.unroll()
            self.ranked += 1
        if self.single_active:
            self.succeed()
        else:
            self.join(consumer)

    def unsubscribe(self, consumer: Consumer) -> None:
        if consumer.priority:
            self.ranked -= 1
        if self.single is consumer:
            self.single = None
            self.succeed()

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
        index = len(active)
        while index > 0:
            other: Consumer = active[index - 1]
            if other.priority >= consumer.priority:
                break
            index -= 1
        active.insert(index, consumer)

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
        heir: Consumer | None = self.single
        for each in self.queue.consumers:
            if heir is None or each.priority > heir.priority:
                heir = each
        return None if heir is self.single else heir
