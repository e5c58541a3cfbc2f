"""Chained bindings: conditions of several exchanges that a message must all meet on its way to a queue.

    bind q to x1 where ...                      publish to x1 --> q, if x1's binding fits
    bind q to x2 via x1 where ...  (x-via: x1)                    and x2's does too

A binding with the argument `x-via` leads nowhere by itself: it narrows what comes by the exchange it names,
for its destination alone. Several exchanges via the same one must all agree, several bindings of one exchange
need only one that fits; a further binding may go via the second exchange, and so on. It is a conjunction, so
the order of the exchanges makes no difference to the outcome; most selective first is the fastest. An x-lossy
exchange in a chain loses what comes to it by the chain.

A condition ends when somebody unbinds it, or with its destination, and in no other way: an exchange that has
chained bindings is not deleted, a durable destination has them at durable exchanges alone, and one that does
not come back from the journal is there as a MissingExchange, through which nothing passes.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flintmq.broker.exchanges import arguments as arguments_of
from flintmq.broker.exchanges.binding import VIA, Binding, Destination
from flintmq.broker.exchanges.exchange import Exchange, Headers
from flintmq.broker.exchanges.lossy_exchange import LossyExchange
from flintmq.broker.queues.queue import Queue
from flintmq.errors import ChannelFault, PeerFault
from flintmq.wire import amqp
from flintmq.wire.tables import FieldTable, FieldValue

if TYPE_CHECKING:
    from flintmq.broker.exchanges.router import Router

log = logging.getLogger("flintmq.chains")

# Exchanges that one binding may be chained behind.
VIA_MAX = 16


class MissingExchange(Exchange):
    """Stands for a durable exchange of a type that is not known here, or whose record is lost.

    Nothing fits its bindings. They can be unbound, and then it can be deleted.
    """

    __slots__ = ()
    type = "x-missing"

    def prepare(self) -> None:
        """There is nothing to look up."""

    def attach(self, binding: Binding) -> None:
        """Fits nothing."""

    def detach(self, binding: Binding) -> None:
        """Was not attached."""

    def route(self, routing_key: str, headers: Headers | None, found: dict[Any, Any]) -> None:
        """Leads nowhere."""


class Condition:
    """The chained bindings of one exchange that come via another, looked up apart from its plain ones."""

    __slots__ = ("counts", "exchange", "unfit")

    def __init__(self, exchange: Exchange) -> None:
        # Of the same kind, and never seen by anybody.
        self.exchange = type(exchange)(exchange.name, arguments=exchange.arguments)
        self.exchange.enter(exchange.router)
        self.counts: dict[Destination, int] = {}
        self.unfit: set[Binding] = set()  # which the exchange does not take, so that nothing fits them

    def attach(self, binding: Binding) -> None:
        self.counts[binding.destination] = self.counts.get(binding.destination, 0) + 1
        try:
            self.exchange.attach(binding)
        except PeerFault as fault:
            # Checked when it was made, so this is recovery. To do without it would let everything through.
            self.unfit.add(binding)
            log.error(
                "a chained binding of exchange %r fits nothing: %s", binding.source.name, fault.reply_text
            )

    def detach(self, binding: Binding) -> None:
        if binding in self.unfit:
            self.unfit.remove(binding)
        else:
            self.exchange.detach(binding)
        self.counts[binding.destination] -= 1
        if not self.counts[binding.destination]:
            del self.counts[binding.destination]


class Chains:
    """The chained bindings of a virtual host."""

    __slots__ = ("conditions", "filters")

    def __init__(self) -> None:
        # By the exchange they come via: its name, as it may go and come again.
        self.conditions: dict[str, dict[Exchange, Condition]] = {}
        self.filters: dict[Exchange, int] = {}  # exchanges with chained bindings, and how many

    def attach(self, binding: Binding) -> None:
        self.filters[binding.source] = self.filters.get(binding.source, 0) + 1
        for name in via_of(binding.arguments):
            behind = self.conditions.setdefault(name, {})
            condition = behind.get(binding.source)
            if condition is None:
                condition = behind[binding.source] = Condition(binding.source)
            condition.attach(binding)
            if isinstance(binding.source, MissingExchange) or binding in condition.unfit:
                log.error(
                    "nothing passes from %r to %r until the binding of exchange %r, which filters it, "
                    "is understood again or unbound",
                    name,
                    binding.destination.name,
                    binding.source.name,
                )

    def topic_steps(self, source: Exchange, routing_key: str, arguments: FieldTable) -> int:
        """As Exchange.topic_steps, of what a chained binding would be looked up with."""
        steps = 0
        for name in via_of(arguments):
            condition = self.conditions.get(name, {}).get(source)
            if condition is not None:
                steps = max(steps, condition.exchange.topic_steps(routing_key))
        return steps

    def detach(self, binding: Binding) -> None:
        self.filters[binding.source] -= 1
        if not self.filters[binding.source]:
            del self.filters[binding.source]
        for name in via_of(binding.arguments):
            behind = self.conditions[name]
            condition = behind[binding.source]
            condition.detach(binding)
            if not condition.counts:
                del behind[binding.source]
            if not behind:
                del self.conditions[name]

    def need_headers(self, via: str) -> bool:
        """Whether what comes by this exchange may be narrowed by headers."""
        reached = [via]
        seen = {via}
        for name in reached:
            for exchange, condition in self.conditions.get(name, {}).items():
                if condition.exchange.needs_headers:
                    return True
                if exchange.name not in seen:
                    seen.add(exchange.name)
                    reached.append(exchange.name)
        return False

    def narrow(
        self,
        router: Router,
        via: str,
        keys: list[str],
        headers: Headers | None,
        found: dict[Any, Any],
        work_max: int,
        is_asked: bool,
    ) -> None:
        """Takes out of `found` the destinations of which a chained binding does not fit."""
        steps: list[tuple[str, list[Any]]] = [(via, list(found))]
        done: dict[Condition, set[Any]] = {}  # chains may lead round in a circle: each step once
        for name, destinations in steps:
            for exchange, condition in self.conditions.get(name, {}).items():
                router.check_work(exchange, keys, work_max)
                router.pass_work.copies += len(destinations)
                before = done.setdefault(condition, set())
                concerned = [each for each in destinations if each in condition.counts and each not in before]
                if not concerned:
                    continue
                before.update(concerned)
                fitting: dict[Any, Any] = {}
                filters = condition.exchange
                if is_asked or not isinstance(filters, LossyExchange) or not filters.loses():
                    router.look_up(filters, keys, None, headers, fitting, work_max, is_asked)
                for each in concerned:
                    if each not in fitting:
                        found.pop(each, None)
                steps.append((exchange.name, [each for each in concerned if each in fitting]))


def via_of(arguments: Mapping[str, FieldValue]) -> list[str]:
    """The exchanges that a binding is chained behind; none for a plain one."""
    value = arguments.get(VIA)
    names: list[str] = []
    for name in value if isinstance(value, list) else [value]:
        if isinstance(name, str) and name and name not in names:
            names.append(name)
        elif name not in names:
            raise arguments_of.wrong(VIA, "the name of an exchange, or a list of them")
    if not 1 <= len(names) <= VIA_MAX:
        raise arguments_of.wrong(VIA, f"1 to {VIA_MAX} names of exchanges")
    return names


def check(
    source: Exchange,
    destination: Queue | Exchange,
    exchanges: Mapping[str, Exchange],
    arguments: Mapping[str, FieldValue],
) -> None:
    """Raises unless such a binding can be made."""
    for name in via_of(arguments):
        if name not in exchanges:
            raise ChannelFault(amqp.NOT_FOUND, f"no exchange '{name}', which '{VIA}' names")
    if source.receives and not isinstance(source, LossyExchange):
        raise ChannelFault(
            amqp.PRECONDITION_FAILED,
            f"an exchange of type '{source.type}' cannot be part of a chain ('{VIA}')",
        )
    lasts = destination.durable and not (isinstance(destination, Queue) and destination.exclusive)
    if lasts and not source.durable:
        raise ChannelFault(
            amqp.PRECONDITION_FAILED,
            f"exchange '{source.name}' is transient: it cannot filter ('{VIA}') for "
            f"'{destination.name}', which is durable and would be without it after a restart",
        )


def refuse_deletion(chains: Chains, exchange: Exchange, virtual_host: str) -> None:
    """Raises if messages would pass that the exchange has kept out."""
    if exchange in chains.filters:
        raise ChannelFault(
            amqp.PRECONDITION_FAILED,
            f"exchange '{exchange.name}' in vhost '{virtual_host}' filters what comes "
            f"by other exchanges ('{VIA}'): unbind these bindings first",
            40,
            20,
        )
