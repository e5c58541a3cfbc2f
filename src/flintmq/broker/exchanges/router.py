"""The one road of a message into queues: which queues it comes to, and how it gets there.

    route_of, match, match_keys    which queues: bindings, chains, alternate exchanges, CC and BCC
    enqueue                        into these queues: what full ones refuse, the journal, spools, the queues
    forward, post                  the same for messages of the broker's own: dead letters, replies, delays

Channels, transactions, services and the broker itself all publish by it. A route is kept for each exchange
and key; `generation` counts the changes of the topology, each of which makes all kept routes stale.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Protocol

from flintmq.broker.exchanges.chains import Chains
from flintmq.broker.exchanges.dead_letter import DeadLetters
from flintmq.broker.exchanges.exchange import KEYLESS, REFUSED, ROUTED, TAKEN, Exchange
from flintmq.broker.exchanges.route import Route, RoutingContext, with_passage
from flintmq.broker.matching import lookup
from flintmq.broker.messages import cc_bcc, entry_number
from flintmq.broker.messages.message import Message
from flintmq.broker.queues import put_flags
from flintmq.broker.queues.queue import Queue
from flintmq.broker.queues.queue_rules import REJECT_PUBLISH_DLX
from flintmq.errors import ChannelFault, ProtocolMisuse, TooLong
from flintmq.storage.streams.chunk import MESSAGE_OCTETS_MAX
from flintmq.wire import amqp, traits

if TYPE_CHECKING:
    from flintmq.broker.scheduling.pass_work import PassWork
    from flintmq.broker.store.publisher import Publisher, PublisherConfirms
    from flintmq.broker.store.store import Store

log = logging.getLogger("flintmq.router")

# So many octets of headers that are looked at count as a copy in the work of a pass (PassWork.copies): a
# table of small entries takes some 20 nanoseconds for each of its octets, so that others have their turn
# after a third of a millisecond of them.
LOOKED_AT_PER_COPY = 2
# The same where nobody has to be let in between soon, as in commits.
OCTETS_PER_COPY = 16
# A key in CC or BCC takes half a microsecond to read, wherever it leads.
KEY_COPIES = 2
# The same for an exchange on the way of a message, which takes two microseconds. Few are not counted.
EXCHANGE_COPIES = 16
EXCHANGES_UNCOUNTED = 8
# What may be spent on finding the queues of one message, for which all others wait: a million steps of a
# trie, or 60,000 exchanges on its way, are some 100 milliseconds. One look-up is free, however dear it is.
ROUTING_COPIES_MAX = 1_000_000
# A route is some 500 octets with its key: 65,536 of them are 32 MB at the worst. So are the queues that they
# lead to: each takes 16 octets in a route, as queue and as number.
ROUTES_MAX = 65_536
ROUTES_QUEUES_MAX = 2_097_152
# Queues behind an exchange that are counted for copies_max: more than one commit puts messages into at once.
REACHED_MAX = 65_537


class Departures(Protocol):
    """What was deleted, while bindings may lead to it yet."""

    def is_gone(self, destination: Queue | Exchange) -> bool: ...


class Alternates(Protocol):
    """Policies that name the alternate exchange of others."""

    def alternate_exchange(self, virtual_host: str, exchange: str) -> str | None: ...


class Firehose(Protocol):
    """Where it is told what is published and delivered while somebody traces the virtual host."""

    def published(self, channel: Any, message: Message, queues: list[Queue]) -> None: ...

    def delivered(self, channel: Any, message: Message, queue: Queue, redelivered: bool) -> None: ...


class Services(Protocol):
    """Who answers what is published to the exchange `amq.system`."""

    def check(self, message: Message, channel: Publisher) -> None: ...

    def ask(self, context: RoutingContext) -> bool: ...


class StreamLogs(Protocol):
    """The streams of the broker, as far as a message on its way to one concerns them."""

    moved: bool

    def note(self, confirms: PublisherConfirms) -> None: ...

    def secure(self) -> None: ...

    def is_safe(self, confirms: PublisherConfirms) -> bool: ...

    def wait(self, confirms: PublisherConfirms, published: int) -> None: ...


class Router:
    """The routes of one virtual host, whose exchanges and queues are given by name."""

    __slots__ = (
        "chains",
        "dead_letters",
        "departures",
        "exchanges",
        "firehose",
        "generation",
        "has_departures",
        "is_traced",
        "name",
        "pass_work",
        "passage",
        "passed",
        "policies",
        "queues",
        "reached",
        "reached_in",
        "rights",
        "routes",
        "routes_queues",
        "services",
        "store",
        "streams",
    )

    def __init__(
        self,
        name: str,
        exchanges: dict[str, Exchange],
        queues: dict[str, Queue],
        pass_work: PassWork,
        store: Store | None,
    ) -> None:
        self.name = name  # of the virtual host
        self.exchanges = exchanges
        self.queues = queues
        self.pass_work = pass_work
        self.store = store
        self.streams: StreamLogs | None = None
        self.chains = Chains()
        self.routes: dict[bytes, Route] = {}
        self.routes_queues = 0  # all that these lead to
        # Of the message that was matched last, if exchanges have seen it that may remember it: take_passage.
        self.passage: RoutingContext | None = None
        # By exchange: messages published to it and copies in queues, of routes that are forgotten.
        self.passed: dict[str, tuple[int, int]] = {}
        self.generation = 1
        self.reached: dict[Exchange, int] = {}  # what copies_max has counted
        self.reached_in = 0  # the generation in which it has
        self.rights = 0  # counts the changes of what users may do
        self.departures: Departures | None = None
        self.has_departures = False
        self.policies: Alternates | None = None
        self.services: Services | None = None  # the broker has some
        self.dead_letters = DeadLetters(self)
        # Whether the firehose is told of each message: the one thing that the way of a message asks.
        self.is_traced = False
        self.firehose: Firehose | None = None

    def trace(self, firehose: Firehose | None) -> None:
        """From now on the firehose is told, or nobody."""
        self.firehose = firehose
        self.is_traced = firehose is not None

    def chance(self) -> Any:
        """The clock's randomness."""
        return self.pass_work.timetable.clock.random

    # Which queues

    def route_of(self, octets: bytes) -> Route:
        """The route of an exchange and a routing key, given as two short strings."""
        route = self.routes.get(octets)
        if route is not None and route.generation == self.generation:
            return route
        if route is not None:
            self.forget(route)
        size = octets[0]
        exchange_name = octets[1 : 1 + size].decode("utf-8", "surrogateescape")
        key = octets[2 + size :].decode("utf-8", "surrogateescape")
        exchange = self.find_exchange(exchange_name, 60, 40) if exchange_name else None
        queues, by_headers = self.resolve(exchange, [key], None)
        self.pass_work.copies += len(queues)
        if len(self.routes) >= ROUTES_MAX or self.routes_queues > ROUTES_QUEUES_MAX:
            # Channels keep the route they used last: one that is forgotten here must not seem right there.
            for each in self.routes.values():
                self.fold(each)
            self.routes.clear()
            self.routes_queues = 0
            self.rewired()
        route = Route(octets, exchange, key, queues, self.owners_of(queues), by_headers, self.generation)
        route.ruled = by_headers or self.is_ruled(queues)
        self.routes[octets] = route
        self.routes_queues += len(queues)
        return route

    def forget(self, route: Route) -> None:
        """The route is not kept any more."""
        self.fold(route)
        del self.routes[route.octets]
        self.routes_queues -= len(route.queues)

    def fold(self, route: Route) -> None:
        """The route is given up, and what it has counted stays known."""
        if route.passed:
            name = "" if route.exchange is None else route.exchange.name
            passed, copies = self.passed.get(name, (0, 0))
            self.passed[name] = (passed + route.passed, copies + copies_of(route))
            route.passed = route.copies = 0

    def find_exchange(self, name: str, class_id: int = 0, method_id: int = 0) -> Exchange:
        exchange = self.exchanges.get(name)
        if exchange is None:
            raise ChannelFault(
                amqp.NOT_FOUND,
                f"no exchange '{name}' in vhost '{self.name}'",
                class_id,
                method_id,
            )
        return exchange

    def has_exchange_of(self, octets: bytes) -> bool:
        name = octets[1 : 1 + octets[0]].decode("utf-8", "surrogateescape")
        return not name or name in self.exchanges

    def owners_of(self, queues: list[Queue]) -> tuple[int, ...]:
        """What the journal calls those of the queues that are durable."""
        return tuple([queue.number for queue in queues if queue.number and not queue.is_stream])

    def is_ruled(self, queues: list[Queue]) -> bool:
        """Whether any of the queues has a say in what it takes, or how long it keeps it."""
        for queue in queues:  # noqa: SIM110 - a generator expression is a closure: not in compiled methods
            if queue.rules is not None:
                return True
        return False

    def match(self, route: Route, message: Message, channel: Publisher | None) -> list[Queue] | None:
        """The queues of one message where it decides itself; None when exchanges have taken all of it.

        What becomes of it is to be told to take_passage(), asked before anything else is matched.
        """
        self.passage = None
        exchange = route.exchange
        if exchange is None:
            return route.queues
        self.pass_work.copies += message.header_size // LOOKED_AT_PER_COPY
        if exchange.receives or exchange.name in self.chains.conditions or self.has_departures:
            return self.match_keys(exchange, [route.key], message, channel)
        # Most lead to queues at once: no need to look for ways on.
        found: dict[Queue | Exchange, None] = {}
        try:
            exchange.route(route.key, lookup.lookup_for(message, route.key), found)
        except TooLong:
            return self.match_keys(exchange, [route.key], message, channel)  # whoever sends it may be told
        queues: list[Queue] = []
        for destination in found:
            if not isinstance(destination, Queue):
                return self.match_keys(exchange, [route.key], message, channel)
            queues.append(destination)
        if queues or not self.alternate(exchange):
            return queues
        return self.match_keys(exchange, [route.key], message, channel)

    def match_keys(
        self, exchange: Exchange | None, keys: list[str], message: Message, channel: Publisher | None
    ) -> list[Queue] | None:
        """The same with further routing keys; the first is the message's own."""
        context = RoutingContext(message, channel, keys[0])
        try:
            queues, _ = self.resolve(exchange, keys, context)
        except Exception:
            context.take_back()
            raise
        if context.refused:
            context.take_back()
        # Not before: what exchanges put into queues may have caused dead letters, which were matched too.
        if not context.refused and (context.received or context.onward):
            self.passage = context
        else:
            self.passage = None
        return None if context.taken and not queues else queues

    def take_passage(self) -> RoutingContext | None:
        """Who is to hear what becomes of the message that was matched last, if anybody is."""
        passage = self.passage
        self.passage = None
        return passage

    def find_way(
        self, message: Message, channel: Publisher | None
    ) -> tuple[list[Queue] | None, RoutingContext | None]:
        """The queues of a message whatever its route, None as in match(), and its passage."""
        route = self.route_of(message.route)
        queues: list[Queue] | None
        if message.traits & traits.HAS_COPIES:
            keys = [route.key, *cc_bcc.keys_of(message)]
            queues = self.match_keys(route.exchange, keys, message, channel)
        elif route.by_headers:
            queues = self.match(route, message, channel)
        else:
            return route.queues, None
        return queues, self.take_passage()

    def check_way(self, route: Route, message: Message, channel: Publisher | None) -> None:
        """A fault if finding the queues of this message takes too long; no exchange takes it.

        Asked only where the route does not tell: there are further keys, or exchanges look at headers.
        """
        if not route.by_headers and not message.traits & traits.HAS_COPIES:
            return
        keys = [route.key]
        if message.traits & traits.HAS_COPIES:
            keys += cc_bcc.keys_of(message)
        queues, _ = self.resolve(route.exchange, keys, RoutingContext(message, channel, route.key), True)
        self.pass_work.copies += len(queues) + message.header_size // OCTETS_PER_COPY

    def resolve(
        self,
        exchange: Exchange | None,
        keys: list[str],
        context: RoutingContext | None,
        is_asked: bool = False,
    ) -> tuple[list[Queue], bool]:
        """The queues that the keys lead to over all exchanges; whether each message may lead elsewhere.

        If so, they are found only with a routing context: without one this asks no more than that. No
        exchange takes a message of which this is only asked.

        A fault if the message takes too long, by its many keys or by many exchanges on its way. One that was
        accepted before goes to the queues that are found until then.
        """
        self.pass_work.copies += KEY_COPIES * (len(keys) - 1)
        queues: dict[Queue, None] = {}
        if exchange is None:
            for key in keys:
                queue = self.queues.get(key)
                if queue is not None and not self.is_gone(queue):
                    queues[queue] = None
            return list(queues), False
        by_headers = False
        found: dict[Queue | Exchange, None] = {}
        reached: list[Exchange] = [exchange]
        seen = {exchange}
        work_max = self.pass_work.copies + ROUTING_COPIES_MAX
        for source in reached:
            is_chained = source.name in self.chains.conditions
            if (
                source.needs_headers
                or source.receives
                or (is_chained and self.chains.need_headers(source.name))
            ):
                by_headers = True
                if context is None:
                    return [], True
            found.clear()
            verdict = ROUTED
            if context is not None and source.receives and not is_asked:
                verdict = source.receive(context)
                if verdict == ROUTED:
                    context.received.append(source)
            if verdict == TAKEN:
                context.taken = True  # type: ignore[union-attr]
                continue
            is_over = verdict != REFUSED and self.go_through(source, keys, context, found, work_max, is_asked)
            if not found and not is_over:
                found = self.alternate(source)
            for destination in found:
                if isinstance(destination, Queue):
                    queues[destination] = None
                elif destination not in seen:
                    seen.add(destination)
                    reached.append(destination)
            if len(reached) > EXCHANGES_UNCOUNTED:
                self.pass_work.copies += EXCHANGE_COPIES
            if is_over and context is None:
                return [], True  # no route to keep: whether a message can be refused is its own matter
            if is_over:
                break
        return list(queues), by_headers

    def go_through(
        self,
        source: Exchange,
        keys: list[str],
        context: RoutingContext | None,
        found: dict[Any, Any],
        work_max: int,
        is_asked: bool,
    ) -> bool:
        """Puts where the message goes from this exchange into `found`; whether it has taken too long."""
        headers = None if context is None else context.lookup
        is_over = False
        try:
            self.look_up(source, keys, context, headers, found, work_max, is_asked)
        except TooLong as fault:
            self.give_up(context, is_asked, fault)
            is_over = True
            work_max = self.pass_work.copies + ROUTING_COPIES_MAX  # for the chains of what is found
        if self.has_departures:
            for destination in [each for each in found if self.is_gone(each)]:
                del found[destination]
        if found and source.name in self.chains.conditions:
            try:
                self.chains.narrow(self, source.name, keys, headers, found, work_max, is_asked)
            except TooLong as fault:
                self.give_up(context, is_asked, fault)
                is_over = True
                found.clear()  # some of it may have to be kept out
        return is_over

    def give_up(self, context: RoutingContext | None, is_asked: bool, fault: TooLong) -> None:
        """Raises the fault if there is a message, and somebody who can be told of it."""
        if context is None:
            return
        if is_asked or (context.channel is not None and context.channel.transaction is None):
            raise fault
        log.warning(
            "a message from exchange %r of vhost %r was accepted, and goes to those of its queues that were "
            "found: %s",
            context.message.exchange_name(),
            self.name,
            fault.reply_text,
        )

    def look_up(
        self,
        source: Exchange,
        keys: list[str],
        context: RoutingContext | None,
        headers: Any,
        found: dict[Any, Any],
        work_max: int,
        is_asked: bool,
    ) -> None:
        """Puts what the keys lead to from this exchange alone into `found`; a fault if it takes too long."""
        asked = keys[:1] if type(source) in KEYLESS else keys
        for key in asked:
            self.check_work(source, keys, work_max)
            into = found if len(asked) == 1 else {}
            if is_asked:
                source.preview(key, context, headers, into)
            elif context is not None and source.receives:
                source.route_message(key, context, into)
            else:
                source.route(key, headers, into)
            if into is not found:
                found.update(into)
                self.pass_work.copies += EXCHANGE_COPIES + len(into)

    def check_work(self, source: Exchange, keys: list[str], work_max: int) -> None:
        """A fault if a message has taken so long when it comes to this exchange."""
        if self.pass_work.copies > work_max:
            raise TooLong(
                amqp.RESOURCE_ERROR,
                f"finding the queues of a message with {len(keys)} routing keys takes too long: given up at "
                f"exchange '{source.name}'; it may have fewer keys in CC and BCC, or pass fewer exchanges",
                60,
                40,
            )

    def is_gone(self, destination: Queue | Exchange) -> bool:
        """Whether it was deleted, or goes with a connection that is gone."""
        return self.has_departures and self.departures is not None and self.departures.is_gone(destination)

    def reachable(self, route: Route, further: list[str]) -> list[Queue]:
        """The queues that a message of this route, with `further` keys, may come to by whatever headers."""
        if route.exchange is None:
            return [*route.queues, *[self.queues[key] for key in further if key in self.queues]]
        if not route.by_headers and not further:
            return route.queues
        return list(dict.fromkeys(self.reach(route.exchange)))

    def copies_max(self, route: Route) -> int:
        """How many queues a message of this route may come to, by whatever headers; not over REACHED_MAX."""
        if route.exchange is None or not route.by_headers:
            return len(route.queues)
        return self.key_copies_max(route.exchange)

    def key_copies_max(self, exchange: Exchange | None) -> int:
        """How many queues one routing key may lead to at this exchange; not over REACHED_MAX."""
        if exchange is None:
            return 1
        if self.reached_in != self.generation:
            self.reached.clear()
            self.reached_in = self.generation
        if exchange not in self.reached:
            self.reached[exchange] = sum(1 for _ in islice(self.reach(exchange), REACHED_MAX))
        return self.reached[exchange]

    def reach(self, exchange: Exchange) -> Iterator[Queue]:
        """The queues that messages of this exchange may come to, some of them more than once."""
        seen: dict[Exchange, None] = {exchange: None}
        waiting = [exchange]
        while waiting:
            source = waiting.pop()
            alternate = list(self.alternate(source))
            for destination in chain((each.destination for each in source.bindings.values()), alternate):
                if isinstance(destination, Queue):
                    yield destination
                elif isinstance(destination, Exchange) and destination not in seen:
                    seen[destination] = None
                    waiting.append(destination)

    def alternate(self, exchange: Exchange) -> dict[Queue | Exchange, None]:
        """Where a message goes that the exchange has no binding for."""
        name = exchange.arguments.get("alternate-exchange")
        if name is None and self.policies is not None:
            name = self.policies.alternate_exchange(self.name, exchange.name)
        other = self.exchanges.get(name) if isinstance(name, str) else None
        return {} if other is None else {other: None}

    def rewired(self) -> None:
        """Every kept route may be wrong now."""
        self.generation += 1

    def rights_changed(self) -> None:
        """What channels have found out about the permissions of their users may be wrong now."""
        self.rights += 1
        self.rewired()  # else a channel goes on with the route that it used last

    def queue_came_or_went(self, name: str) -> None:
        """Only the nameless exchange's route to this queue may be wrong now."""
        octets = name.encode("utf-8", "surrogateescape")
        route = self.routes.get(b"\x00" + bytes((len(octets),)) + octets)
        if route is not None:
            self.forget(route)
            route.generation = 0

    # Into these queues

    def enqueue(
        self, message: Message, queues: list[Queue], owners: tuple[int, ...] | None, is_ruled: bool
    ) -> int:
        """Puts the message into those of the queues that take it; the outcome, as queues/put_flags.py has it.

        `owners` are those that the journal keeps it for, None to find them out. Unless `is_ruled`, none of
        the queues has rules that may refuse it.
        """
        if is_ruled or message.traits & (traits.HAS_EXPIRATION | traits.STREAM_CONTENT):
            return self.enqueue_ruled(message, queues)
        if message.traits & (traits.PERSISTENT | traits.SPOOLED):
            return self.enqueue_stored(message, queues, owners)
        count = len(queues)
        message.holders = count
        if count == 1:
            queue = queues[0]
            happened = queue.enqueue(message)
        else:
            happened = self.enqueue_kept(message, queues, None)
        self.pass_work.copies += count
        self.pass_work.arrived += count
        return happened

    def enqueue_ruled(self, message: Message, queues: list[Queue]) -> int:
        """The same for queues with rules, and for a message that may expire."""
        if len(queues) == 1:
            return self.enqueue_admitted(message, queues)
        with self.dead_letters.after():
            return self.enqueue_admitted(message, queues)

    def enqueue_admitted(self, message: Message, queues: list[Queue]) -> int:
        """Puts the message into those of the queues whose rules let it in."""
        admitted = self.admit(message, queues)
        happened = 0
        if admitted:
            happened = (
                self.enqueue_stored(message, admitted, None)
                if message.traits & traits.PERSISTENT or self.store is None
                else self.enqueue_transient(message, admitted)
            )
        if admitted is queues:
            return happened
        if self.dead_letters.is_crowded():
            happened |= put_flags.CROWDED
        return happened | put_flags.REFUSED

    def enqueue_transient(self, message: Message, queues: list[Queue]) -> int:
        """A message that need not last, to queues of which some may have it last all the same."""
        forcing = []
        others = []
        for queue in queues:
            if queue.rules is not None and queue.rules.persists:
                forcing.append(queue)
            else:
                others.append(queue)
        if not forcing:
            return self.enqueue_stored(message, queues, None)
        if others and message.traits & traits.SPOOLED:
            forcing, others = queues, []  # one file is for all of them, and on disk already
        happened = 0
        if others:
            # A message of its own: whoever waits for a confirm waits for the one that is to last.
            happened = self.enqueue_stored(message.twin(), others, None)
        message.traits |= traits.PERSISTENT
        return happened | self.enqueue_stored(message, forcing, None)

    def admit(self, message: Message, queues: list[Queue]) -> list[Queue]:
        """The queues that take the message. The message is stamped if it may expire in any of them.

        The very same list when all of them do. Comes before the message goes to disk.
        """
        timed = message.lifetime_ms >= 0
        is_refused = False
        for queue in queues:
            rules = queue.rules
            if rules is not None:
                timed = timed or (rules.expiry is not None and rules.expiry.ttl_ms >= 0)
                is_refused = is_refused or queue.is_full(message)
        if timed and not message.traits & traits.TIMED:
            message.stamp(self.pass_work.timetable.now_ms())
        if not is_refused or self.pass_work.is_promised:
            return queues
        admitted = []
        for queue in queues:
            rules = queue.rules
            if rules is None or not queue.is_full(message):
                admitted.append(queue)
                continue
            self.pass_work.fates.refused += 1
            queue.need_tally().refused += 1
            if rules.settings.overflow == REJECT_PUBLISH_DLX:
                if queue.duplicates is not None:
                    queue.duplicates.pass_by(message)
                queue.bury_all([self.own_twin(message)], "maxlen")
        return admitted

    def own_twin(self, message: Message) -> Message:
        """The same message for one queue, which lets go of it apart from those that get the original."""
        twin = message.twin()
        if message.traits & traits.SPOOLED and self.store is not None:
            self.store.hold(twin, self.store.arrived[message], 1)
        return twin

    def is_refused(self, message: Message, queues: list[Queue]) -> bool:
        """Whether each of the queues is full, and would refuse the message."""
        for queue in queues:  # noqa: SIM110 - a generator expression is a closure: not in compiled methods
            if queue.rules is None or not queue.is_full(message):
                return False
        return True

    def refusing(self, message: Message, queues: list[Queue]) -> list[Queue]:
        """Those of the queues that are full, and would not even make a dead letter of the message."""
        found = []
        for queue in queues:
            if queue.rules is not None and queue.is_full(message):
                settings = queue.rules.settings
                if settings.overflow != REJECT_PUBLISH_DLX or settings.dead_letter_exchange is None:
                    found.append(queue)
        return found

    def enqueue_stored(self, message: Message, queues: list[Queue], owners: tuple[int, ...] | None) -> int:
        """Puts the message into these queues; if it is to last, the journal has it first."""
        self.pass_work.copies += len(queues)
        self.pass_work.arrived += len(queues)
        if message.traits & traits.SPOOLED:
            return self.enqueue_spooled(message, queues)
        if message.traits & traits.PERSISTENT and self.store is not None:
            if owners is None:
                owners = self.owners_of(queues)
            if owners:
                self.store.keep(message, owners)
        message.holders = len(queues)
        return self.enqueue_kept(message, queues, None)

    def enqueue_kept(self, message: Message, queues: list[Queue], shown: list[Message] | None) -> int:
        """Puts a message into these queues, to each as `shown` if that differs.

        If one of them fails, it and those behind it do not hold the message: the store, which has it or gets
        it when one of the others is long, must not say that they do. So a queue that raises has not let go.
        """
        taken = 0
        happened = 0
        try:
            for queue in queues:
                if shown is not None:
                    message = shown[taken]
                happened |= queue.enqueue(message)
                taken += 1
        except Exception:
            for index in range(taken, len(queues)):
                self.disown(queues[index], message if shown is None else shown[index])
            raise
        return happened

    def disown(self, queue: Queue, message: Message) -> None:
        """The store keeps the message for this queue, which has not taken it."""
        entry = message.entry
        message.holders -= 1
        try:
            if self.store is not None and (
                entry_number.is_transient(entry) or (entry and queue.number and not queue.is_stream)
            ):
                self.store.settle(queue.number, entry)
        except Exception:
            log.exception("queue %r has a message in the store that it did not take", queue.name)

    def enqueue_spooled(self, message: Message, queues: list[Queue]) -> int:
        """One file for all the queues; the journal knows of it if any of them needs that."""
        store = self.store
        if store is None:
            raise ProtocolMisuse("a spooled message needs a store")
        owners = self.owners_of(queues) if message.traits & traits.PERSISTENT else ()
        if owners:
            store.keep_spooled(message, owners)
        held = message
        others = len(queues) - len(owners)
        if owners and others:
            # They let go of it at other times, so it is a message of its own.
            held = message.twin()
        if others:
            self.hold_for_others(message, held, queues, others)
        shown = [message if owners and queue.number and not queue.is_stream else held for queue in queues]
        return self.enqueue_kept(message, queues, shown)

    def hold_for_others(self, message: Message, held: Message, queues: list[Queue], others: int) -> None:
        """The store holds the body for those whose message the journal does not keep."""
        store = self.store
        if store is None:
            return
        try:
            store.hold(held, store.arrived[message], others)
        except Exception:
            for queue in queues:
                self.disown(queue, message)
            raise

    # Messages of the broker's own

    def is_too_large(self, message: Message) -> bool:
        """Whether no stream takes the message."""
        return message.header_size + message.body_size() > MESSAGE_OCTETS_MAX

    def fitting(self, message: Message, queues: list[Queue]) -> list[Queue]:
        """Those of the queues that take so large a message: the very same list when all of them do.

        Streams do not, and nobody waits for an answer who could be told: their copies are left out. An
        UnreadableFault if a stream is to get a body that the disk does not give now: no queue has it then.
        """
        if not self.is_too_large(message):
            self.check_body(message, queues)
            return queues
        left_out = [queue for queue in queues if queue.is_stream]
        if not left_out:
            return queues
        for queue in left_out:
            self.pass_work.fates.refused += 1
            queue.need_tally().refused += 1
        log.warning(
            "a message of %d octets from exchange %r does not get to streams of vhost %r, which take %d: %s",
            message.header_size + message.body_size(),
            message.exchange_name(),
            self.name,
            MESSAGE_OCTETS_MAX,
            ", ".join([queue.name for queue in left_out]),
        )
        return [queue for queue in queues if not queue.is_stream]

    def check_body(self, message: Message, queues: list[Queue]) -> None:
        """Raises if one of the queues is a stream, which has to read the body, and it cannot be read now."""
        if self.store is None or not message.traits & traits.SPOOLED:
            return
        for queue in queues:
            if queue.is_stream:
                body = self.store.body_of(message)
                if body is not None:  # else it is lost, and the stream refuses it
                    body.close()
                return

    def forward(self, message: Message, queues: list[Queue]) -> int:
        """Gives a message that is in no queue yet to these; the journal keeps it where it must.

        The outcome is as that of `enqueue`: full queues may have refused it. Nobody else is told, so whoever
        lets go of an original afterwards asks `is_refused` or `refusing` before. Streams for which it is too
        large are left out; on an UnreadableFault it is to be tried again later.

        No consumer gets it before it is safe there (MOVED): a crash would bring it back to where it came
        from, and so a second time to where it went.
        """
        if not message.arrived_ms:
            message.arrived_ms = self.pass_work.now_ms
        message.traits |= traits.MOVED
        fitting = self.fitting(message, queues)
        if not fitting:
            return put_flags.REFUSED
        with self.dead_letters.after():
            happened = self.enqueue(message, fitting, None, True)
        if happened & put_flags.IN_STREAM and self.streams is not None:
            self.streams.moved = True
        return happened

    def forward_shown(self, message: Message, queues: list[Queue]) -> int:
        """The same for a message with CC or BCC, which nobody sees the BCC of."""
        shown = cc_bcc.without_blind(message)
        if self.store is None:
            return self.forward(shown, queues)
        with self.store.sharing(self.store.arrived.get(message), shown):
            return self.forward(shown, queues)

    def post(self, message: Message, is_immediate: bool = False) -> bool:
        """Sends a message on its route, for nobody who could be told; False when it leads nowhere.

        An immediate one goes only to queues that hand it on at once.
        """
        queues, passage = self.find_way(message, None)
        if queues is None:
            return True
        happened = with_passage(passage, self.post_to, message, queues, is_immediate)
        return not happened & put_flags.UNROUTED

    def post_to(self, message: Message, queues: list[Queue], is_immediate: bool) -> int:
        if is_immediate:
            queues = [queue for queue in queues if queue.can_take_now(message)]
        if not queues:
            return put_flags.UNROUTED
        if message.traits & traits.HAS_COPIES:
            return self.forward_shown(message, queues)
        return self.forward(message, queues)

    def secure_streams(self) -> None:
        """In a group of the journal, before its end: what it lets go of is in the streams it has gone to."""
        if self.streams is not None:
            self.streams.secure()


def copies_of(route: Route) -> int:
    """How many copies in queues its messages have become."""
    return route.copies if route.by_headers else route.passed * len(route.queues)
