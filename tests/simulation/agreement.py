"""Memory and journal held against each other: what a queue holds is what the journal keeps for it.

A message that is in memory alone would be lost by the next start, and one that is in the journal alone would
come back by it.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

from flintmq.broker.broker import Broker
from flintmq.broker.channels.channel import Channel
from flintmq.broker.exchanges.delayed_exchange import DelayedExchange
from flintmq.broker.queues.queue import Queue

from .recovered_check import ENTRY_MASK, entries_of

HELD = 1 << 63


def check_agreement(broker: Broker, channels: list[Channel]) -> None:
    """`channels`: all that are open. An AssertionError names the queue and the entries."""
    store = broker.store
    assert store is not None
    kept: dict[int, set[int]] = {}
    for sequence in store.journal.index.live():
        for owner in store.journal.owners_of(sequence):
            kept.setdefault(owner, set()).add(sequence)
    for name, owner, held in holders(broker, channels):
        there = kept.get(owner, set())
        assert held <= there, f"{name} holds {sorted(held - there)}, which the journal does not keep for it"
        assert there <= held, f"the journal keeps {sorted(there - held)} for {name}, which does not hold them"
    check_shares(broker, channels)


def check_shares(broker: Broker, channels: list[Channel]) -> None:
    """What is kept until the process ends, for several queues at once, is kept for as many as hold it."""
    store = broker.store
    assert store is not None
    holding: Counter[int] = Counter()
    for host in broker.virtual_hosts.values():
        for queue in host.queues.values():
            if not queue.is_stream:
                entries = [*entries_of(queue), *entries_out(queue, channels), *entries_dying(broker, queue)]
                for branch in host.branches.branches.values():
                    entries += [
                        lock.delivery.entry()
                        for lock in branch.locks
                        if lock.queue is queue and lock.delivery
                    ]
                holding.update(entry for entry in entries if entry & 1)
        for exchange in host.exchanges.values():
            if isinstance(exchange, DelayedExchange):
                holding.update(each & ENTRY_MASK for each in exchange.waiting if each & 1)
    for rest in dropping(broker):  # also of queues that are deleted
        holding.update(entry for entry in entries_of(rest) if entry & 1)
    kept = {entry: hold.queues for entry, hold in store.held.items()} | store.shared
    kept |= {entry: 1 for entry in holding if entry < HELD and entry not in kept}
    wrong = {
        entry: (kept.get(entry, 0), count) for entry, count in holding.items() if kept.get(entry) != count
    }
    wrong |= {entry: (count, 0) for entry, count in kept.items() if entry not in holding}
    assert not wrong, f"shares that are kept, and queues that hold one: {wrong}"


def holders(broker: Broker, channels: list[Channel]) -> list[tuple[str, int, set[int]]]:
    """Queues, delaying exchanges and branches: name, number in the journal, entries that they hold."""
    found = []
    for host in broker.virtual_hosts.values():
        for queue in host.queues.values():
            if queue.number and not queue.is_stream:
                entries = [*entries_of(queue), *entries_out(queue, channels), *entries_dying(broker, queue)]
                for rest in dropping(broker):
                    if rest.number == queue.number:
                        entries += entries_of(rest)
                held = {entry >> 1 for entry in entries if entry and not entry & 1}
                for branch in host.branches.branches.values():
                    held |= {lock.entry for lock in branch.locks if lock.queue is queue and lock.entry}
                held |= {lock.entry for lock in host.branches.outcomes.unread if lock.queue is queue}
                found.append((queue.name, queue.number, held))
        for exchange in host.exchanges.values():
            if isinstance(exchange, DelayedExchange) and exchange.number:
                entries = [each & ENTRY_MASK for each in exchange.waiting]
                held = {entry >> 1 for entry in entries if not entry & 1}
                found.append((exchange.name, exchange.number, held))
        for branch in host.branches.branches.values():
            held = set(branch.entries) | ({branch.manifest} if branch.manifest else set())
            found.append((f"branch {branch.xid}", branch.owner(), held))
    return found


def entries_out(queue: Queue, channels: list[Channel]) -> list[int]:
    """With clients, with readers, and waiting for their next try."""
    deliveries: list[Any] = [
        delivery
        for channel in channels
        for delivery in [channel.unacked.ring.at(index) for index in range(channel.unacked.ring.count)]
        if delivery.queue is queue
    ]
    for lease in (queue.leases or {}).values():
        deliveries.extend(lease.deliveries)
    if queue.rules is not None and queue.rules.retries is not None:
        deliveries.extend(delivery for _, _, delivery in queue.rules.retries.waiting)
    return [delivery.entry() for delivery in deliveries]


def entries_dying(broker: Broker, queue: Queue) -> list[int]:
    """What has left the queue, and is to be let go of once more after a pause."""
    letters = [
        message.entry
        for host in broker.virtual_hosts.values()
        for letters in (host.router.dead_letters,)
        for whose, message, _, _ in [*letters.dead, *letters.failed, *letters.waiting]
        if whose is queue
    ]
    for callback in due_later(broker):
        is_burial = isinstance(callback, partial) and getattr(callback.func, "__name__", "") == "let_go_all"
        if is_burial and callback.func.__self__ is queue:
            letters += [message.entry for message in callback.args[0]]
    return letters


def dropping(broker: Broker) -> list[Queue]:
    """What queues have dropped, of which the rest is to be let go of once more after a pause."""
    return [
        callback.__self__
        for callback in due_later(broker)
        if getattr(callback, "__name__", "") == "go_on_dropping"
    ]


def due_later(broker: Broker) -> list[Any]:
    """What the clock will call."""
    return [alarm.callback for alarm in [*broker.timetable.alarms, *broker.timetable.aside]]
