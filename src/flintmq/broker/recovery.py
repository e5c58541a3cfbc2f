"""From the journal back to a broker: wiring first, then each queue's entries, unread, on its shelf.

Whatever does not fit together is reported and left out; nothing of it keeps the broker from starting.
What can never fit again (a binding that has lost an end, an entry whose queue is gone) leaves the journal
too, or it would be back as soon as something of that name is. What is merely not served now (a virtual
host that is not configured, an exchange of an unknown type) stays there untouched.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from flintmq.broker import dtx_journal, leases, wiring
from flintmq.broker.dtx_journal import FoundBranches
from flintmq.broker.kinds import KINDS
from flintmq.broker.shelf import Shelf
from flintmq.broker.store import OWNERS
from flintmq.broker.virtual_host import PREDECLARED_NAMES
from flintmq.errors import PeerFault
from flintmq.wire.tables import FieldTable

if TYPE_CHECKING:
    from flintmq.broker.store import Store
    from flintmq.broker.virtual_host import VirtualHost

log = logging.getLogger("flintmq.recovery")

Progress = Callable[[int, int], None]

# Queues for messages whose own queue was lost; with its number behind it.
LOST_AND_FOUND = "lost-and-found-"


class Recovery:
    """Hears what the journal holds; `build` then makes a broker's wiring of it."""

    def __init__(self, progress: Progress) -> None:
        self.told = progress
        self.exchanges: list[tuple[FieldTable, FieldTable]] = []
        self.queues: list[tuple[FieldTable, FieldTable]] = []
        self.bindings: list[tuple[bytes, FieldTable]] = []  # with the key it has in the journal
        self.names: set[tuple[bytes, object, object]] = set()  # kind, virtual host, name
        self.handed_out: dict[int, int] = {}
        self.leases: list[tuple[bytes, bytes]] = []
        self.shelves: dict[int, Shelf] = {}
        self.entries = 0
        self.found_branches = FoundBranches()

    def wiring(self, key: bytes, octets: bytes) -> None:
        kind, rest = key[:1], key[1:]
        if kind == wiring.HANDED_OUT:
            self.handed_out[wiring.number_of(rest)] = wiring.number_of(octets)
        elif kind == wiring.EXCHANGE:
            self.exchanges.append((self.named(kind, rest), wiring.table_of(octets)))
        elif kind == wiring.QUEUE:
            self.queues.append((self.named(kind, rest), wiring.table_of(octets)))
        elif kind == dtx_journal.MARKER:
            self.found_branches.marker(key, octets)
        elif kind == leases.LEASE:
            self.leases.append((key, octets))
        elif kind == wiring.BINDING:
            self.bindings.append((key, wiring.table_of(rest)))
        else:
            log.warning("the journal holds wiring of a kind not known here: %r", kind)

    def named(self, kind: bytes, octets: bytes) -> FieldTable:
        identity = wiring.table_of(octets)
        self.names.add((kind, identity["virtual-host"], identity["name"]))
        return identity

    def entry(self, sequence: int, owners: tuple[int, ...], header: bytes, payload_octets: int) -> None:
        self.entries += 1
        if owners[0] >= OWNERS:
            self.found_branches.entry(sequence, owners[0], header)
            return
        for owner in owners:
            shelf = self.shelves.get(owner)
            if shelf is None:
                shelf = self.shelves[owner] = Shelf()
            shelf.push(sequence << 1)

    def progress(self, done_octets: int, total_octets: int) -> None:
        self.told(done_octets, total_octets)

    # Building

    def build(self, virtual_hosts: dict[str, VirtualHost], store: Store, damaged: bool = False) -> int:
        """Fills the virtual hosts; the highest number a queue has.

        `damaged`: the journal has holes, and a queue's own record may have been in one of them.
        """
        self.found_branches.take_locked(self.shelves, store)
        for identity, rest in self.exchanges:
            host = self.host_of(virtual_hosts, identity)
            if host is not None:
                restore_exchange(host, identity, rest)
        # Those of a virtual host that is not configured keep their numbers, and their messages too.
        numbers = self.queue_numbers()
        for identity, rest in self.queues:
            shelf = self.shelves.pop(whole(rest, "number"), None)
            host = self.host_of(virtual_hosts, identity)
            if host is not None:
                self.restore_queue(host, identity, rest, shelf)
            elif shelf is not None:
                # A slip in the settings must not cost messages: they stay in the journal, unseen.
                log.warning("%d messages of it are kept", shelf.count)
        for key, table in self.bindings:
            host = self.host_of(virtual_hosts, table)
            if host is not None and not restore_binding(host, table) and not self.holds_ends_of(table):
                store.journal.delete_wiring(key)
        for number, shelf in self.shelves.items():
            if damaged:
                self.rescue(next(iter(virtual_hosts.values())), number, shelf)
                numbers.add(number)
            else:
                # A crash came between the end of the queue and that of the last unacked delivery.
                log.warning("%d messages belong to a queue that is gone: dropped", shelf.count)
                store.journal.settle_many(number, [entry >> 1 for entry in shelf])
        for number in self.handed_out.keys() - numbers:
            store.journal.delete_wiring(wiring.handed_out_key(number))
        self.found_branches.restore(virtual_hosts, store)
        self.restore_leases(virtual_hosts, store, numbers)
        return max(numbers | self.shelves.keys() | self.handed_out.keys(), default=0)

    def restore_leases(self, virtual_hosts: dict[str, VirtualHost], store: Store, numbers: set[int]) -> None:
        """Readers find their numbers again; those of a queue that is gone go."""
        served = {queue.number: queue for host in virtual_hosts.values() for queue in host.queues.values()}
        for key, octets in self.leases:
            number, name = leases.split_key(key[1:])
            queue = served.get(number)
            if queue is not None:
                leases.restore_lease(queue, name, octets)
            elif number not in numbers:
                store.journal.delete_wiring(key)

    def queue_numbers(self) -> set[int]:
        """Those that the journal knows, served here or not."""
        return {whole(rest, "number") for _, rest in self.queues}

    def holds_ends_of(self, binding: FieldTable) -> bool:
        """Whether the journal knows both ends, though this broker may not serve them."""
        host = binding["virtual-host"]
        kind = wiring.QUEUE if binding["to-queue"] else wiring.EXCHANGE
        is_source_there = (wiring.EXCHANGE, host, binding["source"]) in self.names
        return (is_source_there or text(binding, "source") in PREDECLARED_NAMES) and (
            kind,
            host,
            binding["destination"],
        ) in self.names

    def rescue(self, host: VirtualHost, number: int, shelf: Shelf) -> None:
        """Messages whose queue was lost to damage get one of their own, which lasts."""
        name = f"{LOST_AND_FOUND}{number}"
        log.error("%d messages have lost their queue to damage: they are in queue %r", shelf.count, name)
        queue = host.restore_queue(name, number, False, {})
        queue.restore(shelf, self.handed_out.get(number, 0))
        if host.wiring is not None:
            host.wiring.put_queue(queue)

    def host_of(self, virtual_hosts: dict[str, VirtualHost], identity: FieldTable) -> VirtualHost | None:
        name = identity.get("virtual-host")
        host = virtual_hosts.get(name) if isinstance(name, str) else None
        if host is None:
            log.warning("virtual host %r is not configured: its %r is left out", name, identity.get("name"))
        return host

    def restore_queue(
        self, host: VirtualHost, identity: FieldTable, rest: FieldTable, shelf: Shelf | None
    ) -> None:
        number = whole(rest, "number")
        queue = host.restore_queue(text(identity, "name"), number, bool(rest["auto-delete"]), table(rest))
        if shelf is not None:
            queue.restore(shelf, self.handed_out.get(number, 0))


def restore_exchange(host: VirtualHost, identity: FieldTable, rest: FieldTable) -> None:
    name, kind = text(identity, "name"), text(rest, "type")
    if name in PREDECLARED_NAMES:
        log.error("exchange %r is the broker's own: the one of type %r is left out", name, kind)
        return
    make = KINDS.get(kind)
    if make is None:
        log.error("exchange %r is of type %r, which is not known here: left out", name, kind)
        return
    host.exchanges[name] = make(
        name,
        durable=True,
        auto_delete=bool(rest["auto-delete"]),
        internal=bool(rest["internal"]),
        arguments=table(rest),
    )


def restore_binding(host: VirtualHost, found: FieldTable) -> bool:
    """False when an end of it is missing."""
    source = host.exchanges.get(text(found, "source"))
    name = text(found, "destination")
    destination = host.queues.get(name) if found["to-queue"] else host.exchanges.get(name)
    if source is None or destination is None:
        log.warning("a binding from %r to %r has lost an end: left out", found["source"], name)
        return False
    try:
        host.rebind(source, destination, text(found, "routing-key"), table(found))
    except PeerFault as fault:
        log.error("a binding from %r to %r is left out: %s", found["source"], name, fault.text)
    return True


def text(found: FieldTable, name: str) -> str:
    value = found[name]
    return value if isinstance(value, str) else bytes_of(value).decode("utf-8", "surrogateescape")


def bytes_of(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError(f"expected text, found {type(value).__name__}")
    return value


def whole(found: FieldTable, name: str) -> int:
    value = found[name]
    if not isinstance(value, int):
        raise TypeError(f"expected a number, found {type(value).__name__}")
    return value


def table(found: FieldTable) -> FieldTable:
    value = found["arguments"]
    return value if isinstance(value, dict) else {}
