"""Messages that the broker itself puts into queues: dead letters and the like.

They take the road of a published one: refused by full queues, stamped, kept on disk for durable queues. But
no consumer gets them before they are safe there (MOVED): a crash would bring them back to where they came
from, and so a second time to where they went.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from flintmq.broker.messages.message import Message
from flintmq.errors import ProtocolMisuse
from flintmq.wire import traits

if TYPE_CHECKING:
    from flintmq.broker.queues.queue import Queue
    from flintmq.broker.store.store import Store
    from flintmq.broker.virtual_host import VirtualHost


log = logging.getLogger("flintmq.forwarding")


def forward(host: VirtualHost, message: Message, queues: list[Queue]) -> None:
    """Gives the message to these queues, but for those that refuse it."""
    if not message.arrived_ms:
        message.arrived_ms = host.agenda.now_ms
    message.traits |= traits.MOVED
    with host.dead_letters.after():
        share_out(host, message, queues)


def share_out(host: VirtualHost, message: Message, queues: list[Queue]) -> None:
    """Puts the message into those of the queues that take it."""
    queues = host.admit(message, queues)
    if not queues:
        return
    if message.traits & traits.SPOOLED:
        if host.store is None:
            raise ProtocolMisuse("a spooled message needs a store")
        forward_spooled(host, host.store, message, queues)
        return
    if message.traits & traits.PERSISTENT and host.store is not None:
        owners = host.owners_of(queues)
        if owners:
            host.store.keep(message, owners)
    message.holders = len(queues)
    enqueue_all(host.store, queues, [message] * len(queues))


def enqueue_all(store: Store | None, queues: list[Queue], messages: list[Message]) -> None:
    """Puts a message that may be in the store into these queues, each as the queue is to have it.

    If one of them fails, it and those behind it do not hold the message: the store must not say that they do.
    """
    taken = 0
    try:
        for queue, message in zip(queues, messages, strict=True):
            queue.enqueue(message)
            taken += 1
    except Exception:
        if store is not None:
            for queue, message in zip(queues[taken:], messages[taken:], strict=True):
                disown(store, queue, message)
        raise


def disown(store: Store, queue: Queue, message: Message) -> None:
    """The store keeps the message for this queue, which has not taken it."""
    entry = message.entry
    message.holders -= 1
    try:
        if entry & 1 or (entry and queue.number and not queue.is_stream):
            store.settle(queue.number, entry)
    except Exception:
        log.exception("queue %r has a message in the store that it did not take", queue.name)


def secure_streams(host: VirtualHost) -> None:
    """In a group of the journal, before its end: what it lets go of is in the streams it has gone to."""
    if host.streams is not None:
        host.streams.secure()


def forward_spooled(host: VirtualHost, store: Store, message: Message, queues: list[Queue]) -> bool:
    """One file for all the queues; the journal knows of it if any of them needs that. Whether one does."""
    spool = store.arrived[message]
    owners = host.owners_of(queues) if message.traits & traits.PERSISTENT else ()
    if owners:
        store.keep_spooled(message, owners)
    held = message
    others = len(queues) - len(owners)
    if owners and others:
        # They let go of it at other times, so it is a message of its own.
        held = message.twin()
    if others:
        store.hold(held, spool, others)
    shown = [message if owners and queue.number and not queue.is_stream else held for queue in queues]
    enqueue_all(store, queues, shown)
    return bool(owners)


def immediate_queues(queues: list[Queue], message: Message) -> list[Queue]:
    """Those that hand the message to a consumer at once."""
    return [queue for queue in queues if queue.can_take_now(message)]
