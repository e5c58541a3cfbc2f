"""Taking apart what was deleted: bindings, consumers, queues whose connection is gone.

What is deleted is gone for everybody at once: its name is free, and no message finds it. What it leaves
behind may be a million bindings in the indexes of others and in the journal. Chores
(scheduling/chores.py) take these out.
After a crash recovery drops bindings that have lost an end, and entries that have lost their queue.

Something new of the same name may be declared meanwhile. It is another object, so what is taken apart is not
mistaken for it; in the journal, where names count, it has another `life`, and so have its bindings.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from flintmq.broker.queues import leases
from flintmq.broker.queues.queue import Queue

if TYPE_CHECKING:
    from flintmq.broker.exchanges.exchange import Exchange
    from flintmq.broker.virtual_host import VirtualHost

log = logging.getLogger("flintmq.teardown")

# In one step: a binding that lasts is some 10 microseconds, one that does not a tenth of it.
BINDINGS = 32
# A queue with a few bindings and messages is some 20 microseconds.
QUEUES = 8
CONSUMERS = 32


class HostTeardown:
    """What is being taken apart in one virtual host, and which lives their names have had."""

    def __init__(self, host: VirtualHost) -> None:
        self.host = host
        self.count = 0
        self.lives: dict[tuple[bool, str], tuple[int, int]] = {}  # by name: how many, and the newest life
        self.departed: set[int] = set()  # connections that are gone, whose exclusive queues are going

    def next_life(self, is_queue: bool, name: str) -> int:
        """The life of something new: 0, unless one of that name is being taken apart."""
        return self.lives[is_queue, name][1] + 1 if (is_queue, name) in self.lives else 0

    def is_gone(self, destination: Queue | Exchange) -> bool:
        """Whether a binding leads nowhere any more."""
        if destination.deleted:
            return True
        return isinstance(destination, Queue) and destination.exclusive and destination.owner in self.departed

    def taken_apart(self, fallen: Queue | Exchange, work: Iterator[None]) -> Iterator[None]:
        """The work of taking it apart; until that is over its life is not given again."""
        key = (isinstance(fallen, Queue), fallen.name)
        count, life = self.lives.get(key, (0, 0))
        self.lives[key] = (count + 1, max(life, fallen.life))
        self.count += 1
        self.host.router.has_departures = True
        return self.until_done(key, work)

    def until_done(self, key: tuple[bool, str], work: Iterator[None]) -> Iterator[None]:
        """What a bug has left of it leads nowhere, and its life is not given again before the next start."""
        yield from work
        self.count -= 1
        count, life = self.lives[key]
        if count > 1:
            self.lives[key] = (count - 1, life)
        else:
            del self.lives[key]
        self.host.router.has_departures = bool(self.count or self.departed)

    def depart(self, origin: int) -> None:
        """A connection is gone, and so are its exclusive queues."""
        self.departed.add(origin)
        self.host.router.has_departures = True

    def departed_for_good(self, origin: int) -> None:
        """None of them is left."""
        self.departed.discard(origin)
        self.host.router.has_departures = bool(self.count or self.departed)


def of_exchange(host: VirtualHost, gone: Exchange) -> Iterator[None]:
    """With it go auto-delete exchanges that led to it alone, and so on."""
    yield from ways_to(host, gone)
    while removed := gone.dismantle(BINDINGS):
        for binding in removed:
            host.forget_binding(binding)
            binding.destination.sources.pop(gone, None)  # type: ignore[attr-defined]
        yield


def of_queue(host: VirtualHost, gone: Queue) -> Iterator[None]:
    """The consumers of the queue hear of its end, its leases end, and no binding leads to it."""
    gone.consumers.reverse()  # the oldest one is the first to hear, and the last is cheap to take
    while gone.consumers:
        for _ in range(min(CONSUMERS, len(gone.consumers))):
            consumer = gone.consumers[-1]
            gone.unsubscribe(consumer)
            consumer.channel.lose_consumer(consumer)
        yield
    yield from leases.end_leases(gone)
    yield from ways_to(host, gone)


def ways_to(host: VirtualHost, gone: Queue | Exchange) -> Iterator[None]:
    """The bindings that lead to it."""
    sources = 0
    while gone.sources:
        source = gone.sources.popitem()[0]
        chain = source.unhook(gone)
        while chain is not None:
            removed, chain = source.unbind_chain(chain, BINDINGS)
            for binding in removed:
                host.forget_binding(binding)
            if chain is not None:
                yield
        host.drop_unused(source)
        sources += 1
        if sources % BINDINGS == 0:
            yield


def of_connection(host: VirtualHost, origin: int) -> Iterator[None]:
    """Deletes the exclusive queues of a connection, which VirtualHost.disown_exclusive has hidden."""
    try:
        while owned := host.exclusive.get(origin):
            for _ in range(min(QUEUES, len(owned))):
                queue = owned.popitem()[0]
                try:
                    host.delete_queue(queue)
                except Exception:
                    log.exception("a bug leaves the exclusive queue %r behind", queue.name)
            yield
    finally:
        host.falling.departed_for_good(origin)
        host.exclusive.pop(origin, None)
