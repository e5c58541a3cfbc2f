"""The exchanges of AMQP: each kind decides which of its bindings a message follows.

An exchange owns its bindings and answers one question, route(): which destinations do this
routing key and these headers lead to? Following the answer on to further exchanges, alternate
exchanges, permissions and the cache of answers belong to the virtual host.

    kind      a message follows a binding when
    direct    the routing keys are equal
    fanout    always
    topic     the binding's pattern fits the routing key (matching/topic_trie.py)
    headers   the binding's arguments fit the message headers (matching/headers_condition.py)

Kinds that are FlintMQ's own are in selector_exchange.py.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from flintmq.broker.exchanges.binding import Binding, Destination
from flintmq.broker.matching import counted_set, lookup
from flintmq.broker.matching.condition import Condition, reading_copies
from flintmq.broker.matching.headers_condition import HeadersCondition, HeadersForm, headers_form, match_mode
from flintmq.broker.matching.match_index import MatchIndex
from flintmq.broker.matching.topic_trie import TopicTrie
from flintmq.broker.messages.published import headers_of
from flintmq.ordered_names import OrderedNames
from flintmq.wire.tables import FieldValue

if TYPE_CHECKING:
    from flintmq.broker.exchanges.route import RoutingContext
    from flintmq.broker.exchanges.router import Router
    from flintmq.broker.messages.message import Message
    from flintmq.broker.store.publisher import Publisher

# What Exchange.receive says of a message.
ROUTED = 0
TAKEN = 1
REFUSED = 2

Headers = Callable[[], dict[str, Any]]

# What finding the destinations of a message counts in the work of a pass (PassWork.copies): a step in a trie,
# or a condition, takes as long as a copy. Up to so much is little, and is not counted.
UNCOUNTED_COPIES = 256

# So many bindings are gone through where somebody lists them; of more the order is kept.
ORDERED_MIN = 1024


class Exchange:
    """What the kinds have in common: properties and bindings."""

    __slots__ = (
        "_newest",
        "arguments",
        "auto_delete",
        "bindings",
        "deleted",
        "durable",
        "internal",
        "life",
        "name",
        "number",
        "numbered",
        "order",
        "router",
        "sources",
    )

    type = ""
    # True when route() reads the message headers, so that its answer does not follow from the
    # routing key alone.
    needs_headers = False
    # True when each message is shown to receive(), then routed by route_message() instead of route().
    receives = False
    # True when it holds messages of its own: a durable one then has a number in the journal, as queues have.
    holds_messages = False
    # True when any argument may mean something to it: a plug-in does not say which ones do.
    compares_all = False

    def __init__(
        self,
        name: str,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Mapping[str, FieldValue] | None = None,
    ) -> None:
        self.name = name
        self.durable = durable
        self.auto_delete = auto_delete
        self.internal = internal
        self.arguments: dict[str, FieldValue] = dict(arguments) if arguments else {}
        self.bindings: dict[Binding, Binding] = {}
        self._newest: dict[Destination, Binding] = {}
        self.sources: dict[Exchange, None] = {}  # exchanges with bindings to it; the virtual host's to keep
        self.number = 0  # what the journal calls it
        self.numbered = 0  # bindings so far, which numbers them
        self.order: OrderedNames[Binding] | None = None  # by number, where there are many
        self.deleted = False  # bindings from it and to it may still be there for a while
        self.life = 0  # tells it in the journal from one of the same name that is being taken apart
        self.router: Any = None
        self.prepare()

    def enter(self, router: Router) -> None:
        """The exchange has been declared, or recovered."""
        self.router = router

    def leave(self) -> None:
        """The exchange has been deleted."""

    def routes_by_topic(self) -> bool:
        """Whether bindings match routing keys by patterns of words: topic permissions are about such keys."""
        inner = (self.arguments.get("x-delayed-type"), self.arguments.get("x-routing-type"))
        return self.type == "topic" or "topic" in inner

    def validate_binding(self, routing_key: str, arguments: Mapping[str, FieldValue]) -> None:
        """Raises a ChannelFault that names the argument which this kind of exchange refuses."""

    def topic_steps(self, routing_key: str) -> int:
        """How many steps a match may take, if a binding of this key could add to them; else 0."""
        return 0

    def bind(self, destination: Destination, routing_key: str, arguments: Mapping[str, FieldValue]) -> bool:
        """Adds a binding; False when the same one exists."""
        binding = Binding(self, destination, routing_key, arguments, self.numbered + 1)
        if binding in self.bindings:
            return False
        self.numbered += 1
        if not binding.is_chained():
            self.attach(binding)
        self.bindings[binding] = binding
        if self.order is not None:
            self.order.append(binding)
        elif len(self.bindings) > ORDERED_MIN:
            self.order = OrderedNames(attrgetter("number"))
            for each in self.bindings.values():
                self.order.append(each)
        older = self._newest.get(destination)
        if older is not None:
            binding.older = older
            older.newer = binding
        self._newest[destination] = binding
        return True

    def unbind(self, destination: Destination, routing_key: str, arguments: Mapping[str, FieldValue]) -> bool:
        """Removes a binding; False when there was none."""
        binding = self.bindings.pop(Binding(self, destination, routing_key, arguments), None)
        if binding is None:
            return False
        if self.order is not None:
            self.order.discard(binding)
        if not binding.is_chained():
            self.detach(binding)
        if binding.older is not None:
            binding.older.newer = binding.newer
        if binding.newer is not None:
            binding.newer.older = binding.older
        elif binding.older is not None:
            self._newest[destination] = binding.older
        else:
            del self._newest[destination]
        binding.older = binding.newer = None
        return True

    def newest_to(self, destination: Destination) -> Binding | None:
        """The binding to a destination that was made last."""
        return self._newest.get(destination)

    def unhook(self, destination: Destination) -> Binding | None:
        """The newest binding to a destination that is going away, to be removed with those it chains."""
        return self._newest.pop(destination, None)

    def unbind_chain(self, binding: Binding | None, most: int) -> tuple[list[Binding], Binding | None]:
        """Removes some bindings that are unhooked; those that were there, and the next one to remove."""
        removed: list[Binding] = []
        while binding is not None and most > 0:
            most -= 1
            # The exchange may be taken apart at the same time.
            if self.bindings.pop(binding, None) is not None:
                if self.order is not None:
                    self.order.discard(binding)
                if not binding.is_chained():
                    self.detach(binding)
                removed.append(binding)
            older = binding.older
            # Unchained, so that reference counting frees them without waiting for a collection.
            binding.older = binding.newer = None
            binding = older
        return removed, binding

    def dismantle(self, most: int) -> list[Binding]:
        """The exchange is gone: removes some of its bindings, and returns them."""
        self.order = None
        removed: list[Binding] = []
        while self.bindings and len(removed) < most:
            binding = self.bindings.popitem()[1]
            self._newest.pop(binding.destination, None)
            if not binding.is_chained():
                self.detach(binding)
            binding.older = binding.newer = None
            removed.append(binding)
        return removed

    def bindings_after(self, number: int) -> Iterable[Binding]:
        """The bindings that were made after the one of this number, in their order."""
        if self.order is not None:
            return self.order.after(number)
        return [binding for binding in self.bindings.values() if binding.number > number]

    def find_binding(
        self, destination: Destination, routing_key: str, arguments: Mapping[str, FieldValue]
    ) -> Binding | None:
        """The binding that is the same."""
        return self.bindings.get(Binding(self, destination, routing_key, arguments))

    def leads_to(self, destination: Destination) -> bool:
        """Whether there is a binding to the destination."""
        return destination in self._newest

    def is_unused(self) -> bool:
        """Whether there are no bindings, but for those whose destination is gone."""
        return not self._newest

    def route(self, routing_key: str, headers: Headers | None, found: dict[Any, Any]) -> None:
        """Puts each destination that the message goes to into `found` as a key; values mean nothing."""
        raise NotImplementedError

    def charge(self, copies: int) -> int:
        """To find destinations, or to read a binding, takes as long as so many copies into queues."""
        if copies > UNCOUNTED_COPIES and self.router is not None:
            self.router.pass_work.copies += copies
        return 0

    def receive(self, context: RoutingContext) -> int:
        """What becomes of a message: ROUTED to the bindings, TAKEN, or REFUSED, as if none fitted."""
        return ROUTED

    def take_back(self, context: RoutingContext, is_unrouted: bool) -> None:
        """The message that receive() let pass was refused afterwards, so that its publisher may try again.

        Or it came to no queue (`is_unrouted`), of which not every publisher is told.
        """

    def check(self, headers: dict[str, Any]) -> None:
        """Raises what receive() would; asked before a transaction is committed."""

    def check_message(self, message: Message, channel: Publisher) -> None:
        """The same for kinds that look at more than headers, or at who sends the message."""
        self.check(headers_of(message))  # fails on those that cannot be read

    def route_message(self, routing_key: str, context: RoutingContext, found: dict[Any, Any]) -> None:
        """route() for kinds that look at more than headers."""
        self.route(routing_key, context.headers, found)

    def preview(
        self, routing_key: str, context: RoutingContext | None, headers: Headers | None, found: dict[Any, Any]
    ) -> None:
        """What a message that may come later would find, or more; kinds that take turns have none now."""
        if context is not None and self.receives:
            self.route_message(routing_key, context, found)
        else:
            self.route(routing_key, headers, found)

    def prepare(self) -> None:
        """Makes what this kind looks its bindings up in, empty."""
        raise NotImplementedError

    def attach(self, binding: Binding) -> None:
        """Makes route() follow a binding; changes nothing when it raises."""
        raise NotImplementedError

    def detach(self, binding: Binding) -> None:
        """Makes route() follow a binding no more."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}, {len(self.bindings)} bindings>"


class DirectExchange(Exchange):
    __slots__ = ("keys",)
    type = "direct"

    def prepare(self) -> None:
        self.keys: dict[str, counted_set.CountedSet] = {}

    def route(self, routing_key: str, headers: Headers | None, found: dict[Any, Any]) -> None:
        destinations = self.keys.get(routing_key)
        if destinations is not None:
            counted_set.collect(destinations, found)

    def attach(self, binding: Binding) -> None:
        key = binding.routing_key
        self.keys[key] = counted_set.add(self.keys.get(key), binding.destination)

    def detach(self, binding: Binding) -> None:
        key = binding.routing_key
        left = counted_set.remove(self.keys[key], binding.destination)
        if left is None:
            del self.keys[key]
        else:
            self.keys[key] = left


class FanoutExchange(Exchange):
    __slots__ = ("destinations",)
    type = "fanout"

    def prepare(self) -> None:
        self.destinations: counted_set.CountedSet = None

    def route(self, routing_key: str, headers: Headers | None, found: dict[Any, Any]) -> None:
        counted_set.collect(self.destinations, found)

    def attach(self, binding: Binding) -> None:
        self.destinations = counted_set.add(self.destinations, binding.destination)

    def detach(self, binding: Binding) -> None:
        self.destinations = counted_set.remove(self.destinations, binding.destination)


class TopicExchange(Exchange):
    __slots__ = ("patterns",)
    type = "topic"

    def prepare(self) -> None:
        self.patterns = TopicTrie()

    def route(self, routing_key: str, headers: Headers | None, found: dict[Any, Any]) -> None:
        self.charge(self.patterns.match(routing_key, found))

    def topic_steps(self, routing_key: str) -> int:
        return self.patterns.cost_beside(routing_key)

    def attach(self, binding: Binding) -> None:
        self.patterns.add(binding.routing_key, binding.destination)

    def detach(self, binding: Binding) -> None:
        self.patterns.remove(binding.routing_key, binding.destination)


class ConditionExchange(Exchange):
    """Holds messages against an index of conditions. Bindings that ask for the same share a condition."""

    __slots__ = ("index",)
    needs_headers = True

    def prepare(self) -> None:
        self.index = MatchIndex()

    def form_of(self, binding: Binding) -> Hashable:
        """What the binding asks for."""
        raise NotImplementedError

    def condition_of(self, form: Any) -> Condition:
        raise NotImplementedError

    def read(self, form: Any) -> Condition:
        """condition_of(), counted in the work of the pass."""
        self.charge(reading_copies(form))
        return self.condition_of(form)

    def route(self, routing_key: str, headers: Headers | None, found: dict[Any, Any]) -> None:
        asked = lookup.lookup_of(headers, routing_key)
        asked.steps = 0
        try:
            self.index.match(asked, found)
        finally:
            self.charge(asked.steps)

    def attach(self, binding: Binding) -> None:
        form = self.form_of(binding)
        condition = self.index.find(form)
        self.index.add(self.read(form) if condition is None else condition, binding.destination)

    def detach(self, binding: Binding) -> None:
        self.index.remove(self.form_of(binding), binding.destination)


class HeadersExchange(ConditionExchange):
    __slots__ = ()
    type = "headers"

    def prepare(self) -> None:
        self.index = MatchIndex(typed=True)

    def validate_binding(self, routing_key: str, arguments: Mapping[str, FieldValue]) -> None:
        match_mode(arguments)

    def form_of(self, binding: Binding) -> Hashable:
        return headers_form(binding.arguments)

    def condition_of(self, form: HeadersForm) -> Condition:
        return HeadersCondition(form)


STANDARD_TYPES: dict[str, type[Exchange]] = {
    kind.type: kind for kind in (DirectExchange, FanoutExchange, TopicExchange, HeadersExchange)
}


# Of these, and of no plug-in that builds on them, route() does not look at the routing key: one of several
# keys is enough.
KEYLESS = (FanoutExchange, HeadersExchange)
