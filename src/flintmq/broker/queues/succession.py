"""Who is next where one consumer alone is active (x-single-active-consumer).

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


def yields(queue: Queue) -> bool:
    """Whether the active consumer makes way for one of a higher priority."""
    return kind_of(queue.arguments) == QUORUM


def heir_of(consumers: list[Consumer], present: Consumer | None) -> Consumer | None:
    """Who should be active in place of the present one: of a higher priority, and of these the oldest."""
    heir: Consumer | None = present
    for each in consumers:
        if heir is None or each.priority > heir.priority:
            heir = each
    return None if heir is present else heir
