"""Exchange types of other packages: classes named by entry points in the group `flintmq.exchanges`.

docs/exchanges.md tells how to write one. Whatever is wrong with one is a line in the log: a plug-in that
cannot be loaded is left out, and one that fails at work has routed nothing.
"""

from __future__ import annotations

import inspect
import logging
import os
import sys
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, Any

from flintmq.broker.exchanges.binding import Binding
from flintmq.broker.exchanges.exchange import REFUSED, Exchange, Headers
from flintmq.broker.exchanges.exchange_types import EXCHANGE_TYPES
from flintmq.errors import ChannelFault, PeerFault
from flintmq.wire import amqp
from flintmq.wire.tables import FieldValue

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from flintmq.broker.exchanges.route import RoutingContext

log = logging.getLogger("flintmq.plugins")

GROUP = "flintmq.exchanges"
TYPE_OCTETS_MAX = 127
_DEMANDED = ("prepare", "attach", "detach", "route")


def load(wanted: Collection[str] | None) -> list[str]:
    """Makes the exchange types of these entry points known, of all there are if None; their types."""
    found = {point.name: point for point in installed()}
    for name in sorted(set(wanted or ()) - found.keys()):
        log.error(
            "exchange plug-in %r is not installed: no entry point of the group %s has the name", name, GROUP
        )
    loaded = []
    for name, point in sorted(found.items()):
        if wanted is None or name in wanted:
            kind = load_one(point)
            if kind is not None:
                EXCHANGE_TYPES[kind.type] = kind
                loaded.append(kind.type)
                log.info("exchange plug-in %r adds the exchange type %r", name, kind.type)
    return loaded


def installed(group: str = GROUP) -> Collection[EntryPoint]:
    """The entry points of a group; importlib.metadata is loaded, for 25 ms, if there is one at all."""
    if not is_named(tuple(sys.path), group):
        return ()
    from importlib.metadata import entry_points

    return entry_points(group=group)


@cache
def is_named(path: tuple[str, ...], group: str = GROUP) -> bool:
    """Whether a package on the path may have entry points of a group."""
    if any(finder is not PathFinder and hasattr(finder, "find_distributions") for finder in sys.meta_path):
        return True  # it may know packages that are nowhere on the path
    head = f"[{group}]".encode()
    return any(head in octets for place in path for octets in entry_point_files(place, head))


def entry_point_files(place: str, head: bytes) -> Iterator[bytes]:
    """What the packages in a directory, or in an archive, say of their entry points; `head` if they may."""
    try:
        with os.scandir(place or ".") as entries:
            found = [entry.path for entry in entries if entry.name.endswith((".dist-info", ".egg-info"))]
    except NotADirectoryError:
        yield head  # an archive, which importlib.metadata looks into
        return
    except OSError:  # not there, as many a place on the path
        return
    for name in found:
        try:
            with open(os.path.join(name, "entry_points.txt"), "rb") as file:
                yield file.read()
        except OSError:
            continue


def load_one(point: EntryPoint) -> type[Exchange] | None:
    """The class of an entry point, made safe to run; None, and a line in the log, if it is no such class."""
    try:
        kind = point.load()
    except (Exception, SystemExit) as error:
        log.error("exchange plug-in %r cannot be loaded: %s: %s", point.name, type(error).__name__, error)
        return None
    wrong = fault_of(kind)
    if wrong:
        log.error("exchange plug-in %r is left out: %s", point.name, wrong)
        return None
    return guarded(kind)


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

        def receive(self, context: RoutingContext) -> int:
            try:
                return int(super().receive(context))
            except PeerFault:
                raise
            except Exception:
                log.exception("exchange %r: plug-in %r failed on a message", self.name, kind.type)
                return REFUSED  # it goes the way of a message without a route

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
