"""Looking along the paged tail of a queue without loading it, for consumers that refuse messages.

    ready ......... | tail   17  18  19  20  0  22  23 ... | end
                    ^ first      ^ seen by one   ^ a hole: 21 was handed out

What a consumer refuses stays on disk. What it takes leaves a hole in its place, and lies there again when it
comes back. A pass looks at a portion, so that a consumer with a rare taste holds up nobody.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flintmq.broker.messages.message import Message
    from flintmq.broker.queues.delivery import Delivery
    from flintmq.broker.queues.queue import Queue

# Entries read from disk at a time: few at first, and more where they turn out to be small.
READ_ENTRIES_MIN = 8
READ_ENTRIES_MAX = 256
READ_BYTES = 1_048_576
# Looked at in a pass: some milliseconds.
PASS_ENTRIES = 1024
PASS_BYTES = 4_194_304


def read_along(queue: Queue, index: int) -> Iterator[list[Message | None]]:
    """The messages of the paged tail from `index` on, a portion at a time; None for those that are gone."""
    store = queue.store
    most = READ_ENTRIES_MIN
    while store is not None and (entries := queue.tail.window(index, most)):
        messages = store.load(entries)
        size = octets_of(messages)
        most = min(max(READ_ENTRIES_MIN, READ_BYTES * len(entries) // (size + 1)), READ_ENTRIES_MAX)
        index += len(entries)
        yield messages


def octets_of(messages: list[Message | None]) -> int:
    return sum([len(message.content) for message in messages if message is not None])


def offer_from_tail(queue: Queue) -> bool:
    """Offers some of the paged tail to consumers that have not seen it; whether more is left to offer."""
    first = queue.position + queue.ready.count
    position = min([max(first, consumer.seen) for consumer in queue.active])
    looked_at = octets = 0
    for messages in read_along(queue, position - first):
        for message in messages:
            if not queue.active:
                break
            if message is not None:
                redeliveries = queue.redeliveries_of(message, position)
                if queue.offer(message, position, redeliveries):
                    queue.tail.punch(position - first)
                    queue.tail.octets -= message.body_size()
                    queue.tail_redeliveries.pop(position, None)
            position += 1
        looked_at += len(messages)
        octets += octets_of(messages)
        if not queue.active or looked_at >= PASS_ENTRIES or octets >= PASS_BYTES:
            break
    for consumer in queue.active:
        consumer.seen = max(consumer.seen, position)
    more = position < first + queue.tail.count + queue.tail.holes
    queue.tidy_tail()
    return more and bool(queue.active) and queue.tail.count > 0


def return_to_tail(queue: Queue, deliveries: list[Delivery]) -> list[Delivery]:
    """Puts back what came from the paged tail; the deliveries that did not."""
    first = queue.position + queue.ready.count
    others: list[Delivery] = []
    for delivery in deliveries:
        message = delivery.message
        index = delivery.position - first
        if message is None or queue.store is None or not queue.tail.is_hole(index):
            others.append(delivery)
        else:
            # It may have been handed out from memory, and its hole has been paged out since.
            queue.tail.fill(index, queue.store.paged_entry(message, queue.number != 0))
            queue.tail.octets += message.body_size()
            queue.tail_redeliveries[delivery.position] = delivery.redeliveries
    return others
