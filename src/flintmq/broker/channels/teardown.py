"""What a channel held goes back in portions: its consumers end, and its deliveries return to their queues.

Queues that get messages back hand out nothing until they have all of them: these would come out of turn.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from flintmq.broker.queues.delivery import Delivery
from flintmq.broker.scheduling.chores import Wait

if TYPE_CHECKING:
    from flintmq.broker.channels.channel import Channel
    from flintmq.broker.queues.consumer import Consumer
    from flintmq.broker.queues.queue import Queue

log = logging.getLogger("flintmq.teardown")

# In one step.
CONSUMERS = 32
# Deliveries, half a microsecond each.
RETURNED = 1024
ACKED = 1024
# What dead letters cost, as Queue.letter_octets counts it: some 12 that have died once, half a millisecond.
REFUSED_OCTETS = 2048


def of_channel(channel: Channel) -> Iterator[None]:
    """The consumers of the channel end; then all deliveries that it held go back."""
    host = channel.virtual_host
    by_queue: dict[Queue, list[Consumer]] = {}
    for consumer in channel.consumers.values():
        by_queue.setdefault(consumer.queue, []).append(consumer)
    for queue, consumers in by_queue.items():
        if len(consumers) > CONSUMERS:
            try:
                queue.unsubscribe_many(consumers)
                host.drop_unconsumed(queue)
            except Exception:
                log.exception("a bug in taking %d consumers out of queue %r", len(consumers), queue.name)
            for consumer in consumers:
                channel.consumers.pop(consumer.tag, None)
            yield
    while channel.consumers:
        for _ in range(min(CONSUMERS, len(channel.consumers))):
            consumer = channel.consumers.popitem()[1]
            try:
                host.cancel(consumer)
            except Exception:
                log.exception("a bug leaves the consumer %r behind", consumer.tag)
        yield
    yield from returned(channel, lambda: channel.unacked.take(RETURNED), True)


def returned(channel: Channel, take: Callable[[], list[Delivery]], failed: bool) -> Iterator[None]:
    """Deliveries go back to their queues, which hand out nothing meanwhile: it would come out of turn."""
    paused: set[Queue] = set()
    try:
        while portion := take():
            for delivery in portion:
                if delivery.queue not in paused:
                    paused.add(delivery.queue)
                    delivery.queue.returning += 1
            Delivery.give_each_back(partial(channel.requeue, failed=failed), portion)
            yield
    finally:
        for queue in paused:
            queue.all_returned()


def portions(deliveries: list[Delivery], size: int) -> Callable[[], list[Delivery]]:
    """A function that returns the next of them each time it is called, and at the end none."""
    parts = iter([deliveries[at : at + size] for at in range(0, len(deliveries), size)])
    return lambda: next(parts, [])


def settled(work: Callable[[list[Delivery]], None], deliveries: list[Delivery], size: int) -> Iterator[None]:
    """Deliveries that are acked."""
    for at in range(0, len(deliveries), size):
        Delivery.give_each_back(work, deliveries[at : at + size])
        yield


def refused(channel: Channel, deliveries: list[Delivery]) -> Iterator[Wait | None]:
    """Deliveries that are rejected: as many in a step as their dead letters allow, and one at least."""
    start = 0
    while start < len(deliveries):
        dead_letters = channel.router.dead_letters
        if dead_letters.is_crowded():
            yield dead_letters.when_room
        end = refused_together(deliveries, start)
        Delivery.give_each_back(channel.refuse, deliveries[start:end])
        start = end
        yield None


def refused_together(deliveries: list[Delivery], start: int) -> int:
    """How far from `start` deliveries may be rejected in one step."""
    octets = 0
    end = min(len(deliveries), start + ACKED)
    for index in range(start, end):
        message = deliveries[index].message
        if message is not None:
            octets += deliveries[index].queue.letter_octets(message)
            if octets >= REFUSED_OCTETS:
                return index + 1
    return end
