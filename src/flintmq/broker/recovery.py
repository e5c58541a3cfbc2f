"""From the journal back to a broker: topology first, then each queue's entries, unread, in its paged tail.

Whatever does not fit together is reported and left out; nothing of it keeps the broker from starting.
What can never fit again (a binding that has lost an end, an entry whose queue is gone) leaves the journal
too, or it would be back as soon as something of that name is. What is merely not served now (a virtual
host that is not configured, an exchange of an unknown type) stays there untouched.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from flintmq.broker.administration import records
from flintmq.broker.administration.records import FoundRecords
from flintmq.broker.exchanges.binding import VIA
from flintmq.broker.exchanges.chains import MissingExchange
from flintmq.broker.exchanges.delayed_exchange import DelayedExchange
from flintmq.broker.exchanges.exchange_types import EXCHANGE_TYPES
from flintmq.broker.messages import entry_number
from flintmq.broker.queues import leases
from flintmq.broker.queues.paged_tail import PagedTail
from flintmq.broker.queues.priority_queue import PriorityQueue
from flintmq.broker.queues.queue_rules import STREAM
from flintmq.broker.store import topology_records
from flintmq.broker.store.topology_records import text_of, whole_of
from flintmq.broker.streams.stream_queue import StreamQueue
from flintmq.broker.tail_recovery import TailRecovery
from flintmq.broker.topology_journal import is_of_another_life
from flintmq.broker.transactions import dtx_journal
from flintmq.broker.transactions.dtx_journal import FoundBranches
from flintmq.broker.virtual_host import PREDECLARED_NAMES
from flintmq.errors import PeerFault
from flintmq.storage.spool import STAGED
from flintmq.wire.tables import FieldTable

if TYPE_CHECKING:
    from flintmq.broker.exchanges.exchange import Exchange
    from flintmq.broker.queues.queue import Queue
    from flintmq.broker.store.store import Store
    from flintmq.broker.virtual_host import VirtualHost

log = logging.getLogger("flintmq.recovery")

Progress = Callable[[int, int], None]

# Queues for messages whose own queue was lost; with its number behind it.
LOST_AND_FOUND = "lost-and-found-"


class Recovery:
    """Hears what the journal holds; `build` then makes a broker's topology of it."""

    def __init__(self, progress: Progress) -> None:
        self.told = progress
        self.exchanges: list[tuple[FieldTable, FieldTable]] = []
        # As the journal has them: decoded, hundreds of thousands take more than what is made of them.
        self.queues: list[tuple[bytes, bytes]] = []
        self.numbers: set[int] = set()  # of these queues
        self.policies: list[tuple[FieldTable, FieldTable]] = []
        self.administered = FoundRecords()
        self.unserved: set[str] = set()  # virtual hosts that only the journal knows
        self.bindings: list[bytes] = []  # the keys that they have in the journal
        self.names: set[tuple[bytes, object, object]] = set()  # kind, virtual host, name; when it is needed
        self.has_new_names = False  # the exchange of requests was never called `system` here
        self.given = 0  # numbers up to this one may be those of queues that are gone
        self.handed_out: dict[int, int] = {}
        self.ahead: set[int] = set()  # queues of which the journal does not know how far that was
        self.leases: list[tuple[bytes, bytes]] = []
        self.staged: list[tuple[bytes, bytes]] = []
        # By the queue's number, then by entry: how often it came back, and when it is due again.
        self.returns: dict[int, dict[int, tuple[int, int]]] = {}
        self.found_branches = FoundBranches()
        tail_recovery = TailRecovery(self.found_branches)
        self.entry = tail_recovery.entry
        self.tails = tail_recovery.tails
        self.ranked = tail_recovery.ranked
        self.priorities_max = tail_recovery.priorities_max
        self.timed = tail_recovery.timed
        self.delays = tail_recovery.delays

    def value(self, key: bytes, octets: bytes) -> None:
        kind = key[:1]
        if kind == topology_records.BINDING:  # the most by far
            self.bindings.append(key)
            return
        rest = key[1:]
        if kind == topology_records.HANDED_OUT:
            self.handed_out[topology_records.number_of(rest)] = topology_records.number_of(octets)
        elif kind == topology_records.EXCHANGE:
            self.exchanges.append((topology_records.named_of(rest), topology_records.table_of(octets)))
            if "number" in self.exchanges[-1][1]:
                self.delays[whole_of(self.exchanges[-1][1]["number"])] = []
        elif kind == topology_records.QUEUE:
            self.queues.append((key, octets))
            found = topology_records.queue_of(octets)
            number = whole_of(found["number"])
            self.numbers.add(number)
            highest = table(found).get("x-max-priority")
            if isinstance(highest, int):
                self.ranked[number] = {}
                self.priorities_max[number] = highest
        elif kind == leases.LEASE:
            self.leases.append((key, octets))
        elif kind == STAGED:
            self.staged.append((key, octets))
        elif kind == dtx_journal.MARKER:
            self.found_branches.marker(key, octets)
        elif kind == topology_records.POLICY:
            self.policies.append((topology_records.table_of(rest), topology_records.table_of(octets)))
        elif kind == topology_records.RETURNED:
            number, entry, count, due_ms = topology_records.return_of(rest, octets)
            self.returns.setdefault(number, {})[entry_number.of_journal(entry)] = (count, due_ms)
        elif kind in records.KINDS:
            self.administered.add(key, octets)
        elif kind == topology_records.NAMES:
            self.has_new_names = True
        elif kind == topology_records.GIVEN:
            self.given = topology_records.number_of(octets)
        else:
            log.warning("the journal holds a value of a kind not known here: %r", kind)

    def delivered_marks(self, found: dict[int, int]) -> None:
        """Marks that were written before those of the journal, which shall have them too."""
        for number, entry in found.items():
            if entry > self.handed_out.get(number, 0):
                self.handed_out[number] = entry
                self.ahead.add(number)

    def progress(self, done_octets: int, total_octets: int) -> None:
        self.told(done_octets, total_octets)

    # Building

    def build(self, virtual_hosts: dict[str, VirtualHost], store: Store, damaged: bool = False) -> int:
        """Fills the virtual hosts; the highest number that a queue has, or may have had.

        `damaged`: the journal has holes, and a queue's own record may have been in one of them.
        """
        self.found_branches.take_locked(self.tails, self.ranked, store)
        policies = next(iter(virtual_hosts.values())).policies
        named = self.found_branches.named_hosts() | {
            str(each.get("virtual-host")) for each, _ in self.policies
        }
        self.unserved |= named - virtual_hosts.keys()
        for identity, rest in self.policies:
            if policies is not None:
                policies.restore(identity, rest)
        self.name_system(virtual_hosts, store)
        for identity, rest in self.exchanges:
            host = self.host_of(virtual_hosts, identity)
            if host is not None:
                self.restore_exchange(host, identity, rest)
        # Those of a virtual host that is not configured keep their numbers, and their messages too.
        numbers = self.queue_numbers()
        for queue_key, octets in self.queues:
            identity, rest = topology_records.named_of(queue_key[1:]), topology_records.queue_of(octets)
            tail = self.tails.pop(whole_of(rest["number"]), None)
            host = self.host_of(virtual_hosts, identity)
            if host is not None:
                self.restore_queue(host, identity, rest, tail)
            elif tail is not None:
                # A slip in the settings must not cost messages: they stay in the journal, unseen.
                log.warning("%d messages of it are kept", tail.count)
        self.restore_bindings(virtual_hosts, store)
        self.forget_returns(store)
        for number, tail in self.tails.items():
            if damaged:
                self.rescue(next(iter(virtual_hosts.values())), number, tail)
                numbers.add(number)
            else:
                # A crash came between the end of the queue and that of the last unacked delivery.
                if tail.count:
                    log.warning("%d messages belong to a queue that is gone: dropped", tail.count)
                store.journal.settle_many(number, [entry_number.sequence_of(entry) for entry in tail])
        for number in self.handed_out.keys() - numbers:
            store.journal.delete_value(topology_records.handed_out_key(number))
            store.delivered_marks.forget(number)
        for number in self.ahead & numbers:
            topology_records.put_handed_out(store.journal, number, self.handed_out[number])
        self.restore_leases(virtual_hosts, store, numbers)
        self.found_branches.restore(virtual_hosts, store)
        return max([self.given, *numbers, *self.tails, *self.handed_out, *self.delays])

    def restore_bindings(self, virtual_hosts: dict[str, VirtualHost], store: Store) -> None:
        for key in self.bindings:
            plain = topology_records.plain_binding(key)
            if plain is not None:
                name, source, destination, to_queue, routing_key = plain
                host = virtual_hosts.get(name)
                if host is not None:
                    start = host.exchanges.get(source)
                    end = (host.queues if to_queue else host.exchanges).get(destination)
                    if start is not None and end is not None and not (start.life or end.life):
                        rebind(host, start, end, routing_key, {})
                        continue
            found = topology_records.table_of(key[1:])
            host = self.host_of(virtual_hosts, found)
            if host is None or restore_binding(host, found):
                continue
            if is_of_another_life(host, found) or not self.holds_ends_of(found):
                store.journal.delete_value(key)

    def restore_leases(self, virtual_hosts: dict[str, VirtualHost], store: Store, numbers: set[int]) -> None:
        """Readers find their numbers again; those of a queue that is gone go."""
        served = {queue.number: queue for host in virtual_hosts.values() for queue in host.queues.values()}
        restored: list[leases.Lease] = []
        for key, octets in self.leases:
            number, name = leases.split_key(key[1:])
            queue = served.get(number)
            if queue is not None:
                restored.append(leases.restore_lease(queue, name, octets))
            elif number not in numbers:
                store.journal.delete_value(key)
        for lease in restored:
            lease.resume()

    def queue_numbers(self) -> set[int]:
        """The numbers of all queues that the journal knows, served here or not."""
        return set(self.numbers)

    def holds_ends_of(self, binding: FieldTable) -> bool:
        """Whether the journal knows both ends, though this broker may not serve them."""
        if not self.names:
            for identity, _ in self.exchanges:
                self.names.add((topology_records.EXCHANGE, identity["virtual-host"], identity["name"]))
            for key, _ in self.queues:
                identity = topology_records.named_of(key[1:])
                self.names.add((topology_records.QUEUE, identity["virtual-host"], identity["name"]))
        host = binding["virtual-host"]
        kind = topology_records.QUEUE if binding["to-queue"] else topology_records.EXCHANGE
        is_source_there = (topology_records.EXCHANGE, host, binding["source"]) in self.names
        return (is_source_there or text_of(binding["source"]) in PREDECLARED_NAMES) and (
            kind,
            host,
            binding["destination"],
        ) in self.names

    def rescue(self, host: VirtualHost, number: int, tail: PagedTail) -> None:
        """Messages whose queue was lost to damage get one of their own, which lasts."""
        name = f"{LOST_AND_FOUND}{number}"
        log.error("%d messages have lost their queue to damage: they are in queue %r", tail.count, name)
        queue = host.restore_queue(name, number, False, {})
        queue.restore(tail, self.handed_out.get(number, 0))
        if number in self.timed:
            queue.restored(True)
        if host.topology is not None:
            host.topology.put_queue(queue)

    def rescue_streams(self, virtual_hosts: dict[str, VirtualHost], found: list[int]) -> None:
        """Streams whose queue was lost to damage get one of their own, too."""
        host = next(iter(virtual_hosts.values()))
        for number in found:
            if number not in self.numbers:
                name = f"{LOST_AND_FOUND}{number}"
                log.error("stream %d has lost its queue to damage: it is queue %r", number, name)
                queue = host.restore_queue(name, number, False, {"x-queue-type": STREAM})
                self.numbers.add(number)
                if host.topology is not None:
                    host.topology.put_queue(queue)

    def host_of(self, virtual_hosts: dict[str, VirtualHost], identity: FieldTable) -> VirtualHost | None:
        name = identity.get("virtual-host")
        host = virtual_hosts.get(name) if isinstance(name, str) else None
        if host is None:
            self.unserved.add(str(name))
            log.warning("virtual host %r is not configured: its %r is left out", name, identity.get("name"))
        return host

    def restore_queue(
        self, host: VirtualHost, identity: FieldTable, rest: FieldTable, tail: PagedTail | None
    ) -> None:
        number = whole_of(rest["number"])
        queue = host.restore_queue(text_of(identity["name"]), number, bool(rest["auto-delete"]), table(rest))
        known = rest.get("creation-id")
        # A stream without a message may have lost its directory: it must not be taken for the same.
        if isinstance(known, bytes) and not (isinstance(queue, StreamQueue) and not queue.log.end):
            queue.creation_id = known
        queue.life = whole_of(rest["life"]) if "life" in rest else 0
        queue.user = text_of(rest.get("user", ""))
        if rest.get("consumed") and queue.rules is not None:
            queue.rules.restore_consumed()
        host.count_queue(queue, 1)
        returns = self.returns.get(number, {})
        lanes = self.ranked.pop(number, {})
        if returns or lanes or tail is not None:
            self.restore_messages(queue, returns, lanes, tail)
        if number in self.timed or queue.rules is not None:
            queue.restored(number in self.timed)

    def restore_messages(
        self,
        queue: Queue,
        returns: dict[int, tuple[int, int]],
        lanes: dict[int, PagedTail],
        tail: PagedTail | None,
    ) -> None:
        """What waits in a queue, in its lanes and among what came back."""
        waiting = self.waiting_among(returns, queue, [*lanes.values(), *([] if tail is None else [tail])])
        if not isinstance(queue, PriorityQueue) and lanes:
            tail = merged([*lanes.values(), *([] if tail is None else [tail])])
            lanes = {}
        if tail is not None or lanes:
            queue.restore(without(tail or PagedTail(), waiting), self.handed_out.get(queue.number, 0))
        for priority, lane in lanes.items():
            if isinstance(queue, PriorityQueue):
                queue.restore_lane(priority, without(lane, waiting))
        if queue.duplicates is not None and queue.store is not None:
            for part in queue.parts():
                queue.duplicates.recall(part.tail, queue.store)
            queue.duplicates.recall(waiting, queue.store)
        if returns:
            queue.restore_returns(returns, sorted(waiting))

    def waiting_among(
        self, returns: dict[int, tuple[int, int]], queue: Queue, tails: list[PagedTail]
    ) -> set[int]:
        """Entries that came back and are to be tried later.

        After the clock was set back that may seem so of some that were handed out again since then: those
        that a branch has locked are in no paged tail, and those that a reader has leased are its own.
        """
        now_ms = queue.pass_work.timetable.now_ms()
        waiting = {entry for entry, (_, due_ms) in returns.items() if due_ms > now_ms}
        if not waiting:
            return waiting
        for key, octets in self.leases:
            if leases.split_key(key[1:])[0] == queue.number:
                waiting.difference_update(leases.entries_of(octets))
        return {entry for tail in tails for entry in tail if entry in waiting}

    def forget_returns(self, store: Store) -> None:
        """Returns of what is gone go too."""
        for number, returns in self.returns.items():
            for entry in returns:
                if number not in store.journal.owners_of(entry_number.sequence_of(entry)):
                    topology_records.forget_return(store.journal, number, entry_number.sequence_of(entry))

    def name_system(self, virtual_hosts: dict[str, VirtualHost], store: Store) -> None:
        """A directory in which requests went to `system` serves them there too."""
        if store.recovered:
            for host in virtual_hosts.values():
                if not self.has_new_names:
                    host.answer_as_before()
        else:
            store.journal.put_value(topology_records.NAMES, b"")

    def restore_exchange(self, host: VirtualHost, identity: FieldTable, rest: FieldTable) -> None:
        exchange = restored_exchange(identity, rest)
        if exchange is None:
            return
        exchange.number = whole_of(rest["number"]) if "number" in rest else 0
        exchange.life = whole_of(rest["life"]) if "life" in rest else 0
        host.add_exchange(exchange)
        if isinstance(exchange, DelayedExchange):
            exchange.restore(self.delays[exchange.number])


def restored_exchange(identity: FieldTable, rest: FieldTable) -> Exchange | None:
    """The exchange that the journal tells of, if it can be served."""
    name, kind = text_of(identity["name"]), text_of(rest["type"])
    if name in PREDECLARED_NAMES:
        log.error("exchange %r is the broker's own: the one of type %r is left out", name, kind)
        return None
    make = EXCHANGE_TYPES.get(kind)
    if make is None:
        log.error("exchange %r is of type %r, which is not known here: left out", name, kind)
        return None
    try:
        return make(
            name,
            durable=True,
            auto_delete=bool(rest["auto-delete"]),
            internal=bool(rest["internal"]),
            arguments=table(rest),
        )
    except PeerFault as fault:
        log.error("exchange %r is left out: %s", name, fault.reply_text)
        return None


def restore_binding(host: VirtualHost, found: FieldTable) -> bool:
    """False when an end of it is missing."""
    source = host.exchanges.get(text_of(found["source"]))
    name = text_of(found["destination"])
    destination = host.queues.get(name) if found["to-queue"] else host.exchanges.get(name)
    if source is None and destination is not None and VIA in table(found):
        # To do without a filter would let everything through.
        source = MissingExchange(text_of(found["source"]), durable=True)
        source.life = (
            whole_of(found[topology_records.SOURCE_LIFE]) if topology_records.SOURCE_LIFE in found else 0
        )
        host.add_exchange(source)
    if source is None or destination is None or is_of_another_life(host, found):
        log.warning("a binding from %r to %r has lost an end: left out", found["source"], name)
        return False
    rebind(host, source, destination, text_of(found["routing-key"]), table(found))
    return True


def rebind(
    host: VirtualHost, source: Exchange, destination: Queue | Exchange, key: str, arguments: FieldTable
) -> None:
    try:
        host.rebind(source, destination, key, arguments)
    except PeerFault as fault:
        log.error("a binding from %r to %r is left out: %s", source.name, destination.name, fault.reply_text)


def merged(tails: list[PagedTail]) -> PagedTail:
    """All entries in the order in which they came."""
    whole = PagedTail()
    for entry in sorted([entry for tail in tails for entry in tail]):
        whole.push(entry)
    whole.octets = sum(tail.octets for tail in tails)
    return whole


def without(tail: PagedTail, entries: set[int]) -> PagedTail:
    """The paged tail but for these entries."""
    if not entries:
        return tail
    kept = PagedTail()
    for entry in tail:
        if entry not in entries:
            kept.push(entry)
    kept.octets = tail.octets
    return kept


def table(found: FieldTable) -> FieldTable:
    value = found["arguments"]
    return value if isinstance(value, dict) else {}
