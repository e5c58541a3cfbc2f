"""Exchange types of other packages: classes named by entry points in the group `flintmq.exchanges`.

docs/exchanges.md tells how to write one. Whatever is wrong with one is a line in the log: a plug-in that
cannot be loaded is left out, and one that fails at work has routed nothing.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from flintmq import entry_points
from flintmq.broker.exchanges.binding import Binding
from flintmq.broker.exchanges.exchange import REFUSED, Exchange, Headers
from flintmq.broker.exchanges.exchange_types import EXCHANGE_TYPES
from flintmq.errors import ChannelFault, PeerFault
from flintmq.wire import amqp
from flintmq.wire.tables import FieldValue

if TYPE_CHECKING:
    from flintmq.broker.exchanges.route import RoutingContext

log = logging.getLogger("flintmq.plugins")

GROUP = "flintmq.exchanges"
WHAT = "exchange plug-in"  # in the log
TYPE_OCTETS_MAX = 127
_DEMANDED = ("prepare", "attach", "detach", "route")


def load(wanted: Collection[str] | None) -> list[str]:
    """Makes the exchange types of these entry points known, of all there are if None; their types."""
    types = []
    for point in entry_points.chosen(GROUP, wanted, WHAT):
        kind = entry_points.loaded(point, WHAT, fault_of)
        if kind is not None:
            EXCHANGE_TYPES[kind.type] = guarded(kind)
            types.append(kind.type)
            log.info("exchange plug-in %r adds the exchange type %r", point.name, kind.type)
    return types


def fault_of(kind: Any) -> str:
    """What is wrong with it as an exchange type; empty if nothing is."""
    if not inspect.isclass(kind) or not issubclass(kind, Exchange):
        return f"{point_of(kind)} is not a subclass of flintmq.broker.exchanges.exchange.Exchange"
    name = kind.type
    if not isinstance(name, str) or not 0 < len(name.encode()) <= TYPE_OCTETS_MAX:
        return f"its `type` is not text of 1 to {TYPE_OCTETS_MAX} octets"
    known = EXCHANGE_TYPES.get(name)
    if known is not None and not issubclass(known, kind):
        return f"there is an exchange type {name!r} already"
    # AMQP 0-9, types of implementations: the standard keeps all other names for itself.
    if not name.startswith("x-"):
        return f"its `type` {name!r} does not begin with 'x-'"
    missing = [each for each in _DEMANDED if getattr(kind, each) is getattr(Exchange, each)]
    return f"it does not define {', '.join(missing)}" if missing else ""


def point_of(kind: Any) -> str:
    return repr(kind)[:80]


def guarded(kind: type[Exchange]) -> type[Exchange]:
    """The kind, with every step into foreign code watched."""

    class Guarded(kind):  # type: ignore[misc, valid-type]
        __slots__ = ()
        compares_all = True

        def __init__(self, name: str, **settings: Any) -> None:
            with ForeignCall(name, kind.type, "cannot be declared"):
                super().__init__(name, **settings)

        def validate_binding(self, routing_key: str, arguments: Mapping[str, FieldValue]) -> None:
            with ForeignCall(self.name, kind.type, "cannot be bound"):
                super().validate_binding(routing_key, arguments)

        def attach(self, binding: Binding) -> None:
            with ForeignCall(self.name, kind.type, "cannot be bound"):
                super().attach(binding)

        def detach(self, binding: Binding) -> None:
            try:
                super().detach(binding)
            except Exception:
                log.exception("exchange %r: plug-in %r failed to unbind", self.name, kind.type)

        def route(self, routing_key: str, headers: Headers | None, found: dict[Any, Any]) -> None:
            try:
                super().route(routing_key, headers, found)
            except PeerFault:
                raise
            except Exception:
                log.exception("exchange %r: plug-in %r failed to route", self.name, kind.type)

        def preview(
            self,
            routing_key: str,
            context: RoutingContext | None,
            headers: Headers | None,
            found: dict[Any, Any],
        ) -> None:
            """Foreign code may count what it routes: it is not asked."""

        def receive(self, context: RoutingContext) -> int:
            try:
                return int(super().receive(context))
            except PeerFault:
                raise
            except Exception:
                log.exception("exchange %r: plug-in %r failed on a message", self.name, kind.type)
                return REFUSED  # it goes the way of a message without a route

        def take_back(self, context: RoutingContext, is_unrouted: bool) -> None:
            try:
                super().take_back(context, is_unrouted)
            except Exception:
                log.exception("exchange %r: plug-in %r failed to take a message back", self.name, kind.type)

    Guarded.__name__ = kind.__name__
    Guarded.__qualname__ = kind.__qualname__
    return Guarded


class ForeignCall:
    """Turns what foreign code raises into a refusal, with the whole story in the log."""

    def __init__(self, exchange: str, kind: str, what: str) -> None:
        self.exchange = exchange
        self.kind = kind
        self.what = what

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, PeerFault):
            log.error(
                "exchange %r %s: plug-in %r failed", self.exchange, self.what, self.kind, exc_info=error
            )
            raise ChannelFault(
                amqp.INTERNAL_ERROR,
                f"exchange '{self.exchange}' {self.what}: plug-in '{self.kind}' failed",
            ) from error
