"""Where the messages of one exchange and routing key go: the outcome of routing, kept.

The router of a virtual host keeps a bounded number of routes. Any change of the topology makes all of them
stale: `generation` then differs from the router's, and the route is worked out anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flintmq.broker.matching.lookup import Lookup, lookup_for
from flintmq.broker.queues import put_flags

if TYPE_CHECKING:
    from collections.abc import Callable

    from flintmq.auth.user import User
    from flintmq.broker.exchanges.exchange import Exchange
    from flintmq.broker.messages.message import Message
    from flintmq.broker.queues.queue import Queue
    from flintmq.broker.store.publisher import Publisher
    from flintmq.wire.tables import FieldTable


class Route:
    """A routing result. `by_headers`: it differs from message to message, so `queues` is not to be used."""

    __slots__ = (
        "by_headers",
        "copies",
        "exchange",
        "generation",
        "key",
        "octets",
        "owners",
        "passed",
        "queues",
        "ruled",
        "writer",
    )

    def __init__(
        self,
        octets: bytes,
        exchange: Exchange | None,
        key: str,
        queues: list[Queue],
        owners: tuple[int, ...],
        by_headers: bool,
        generation: int,
    ) -> None:
        self.octets = octets
        self.exchange = exchange  # None: the nameless exchange
        self.key = key
        self.queues = queues
        self.owners = owners  # what the journal calls those queues that are durable
        self.by_headers = by_headers
        self.generation = generation
        self.copies = 0  # into queues, where that differs from message to message
        self.passed = 0  # messages, since the exchange and key have this route
        self.ruled = False  # whether one of the queues has a say in what it takes
        # The user who was found last to be allowed to use this key, where not all keys of the exchange are
        # allowed. A change of rights makes all routes stale, so that it need not be told from what it was.
        self.writer: User | None = None


class RoutingContext:
    """One message on its way through exchanges that want to look at it, and may remember it.

    Whoever has it routed tells what has become of it, by end() or take_back(): what is refused is forgotten.
    """

    __slots__ = ("channel", "key", "lookup", "message", "onward", "past", "received", "refused", "taken")

    def __init__(self, message: Message, channel: Publisher | None, key: str) -> None:
        self.message = message
        self.channel = channel  # None: the broker itself sends it
        self.key = key
        self.past: Exchange | None = None  # one that has had the message, and lets it go now
        self.received: list[Exchange] = []  # that have let the message pass
        self.onward: list[RoutingContext] = []  # of what exchanges have made of the message
        self.taken = False  # an exchange has dealt with it: it is not unroutable
        self.refused = False  # by a queue that an exchange has put it into
        self.lookup: Lookup = lookup_for(message, key)

    def headers(self) -> FieldTable:
        """Decoded when first asked for."""
        return self.lookup.headers()

    def end(self, happened: int) -> None:
        """The message has come to its queues, with this outcome (queues/put_flags.py)."""
        if happened & (put_flags.REFUSED | put_flags.UNROUTED):
            self.take_back(happened & put_flags.REFUSED == 0)

    def take_back(self, is_unrouted: bool = False) -> None:
        """No exchange remembers the message."""
        for onward in self.onward:
            onward.take_back(is_unrouted)
        for exchange in self.received:
            exchange.take_back(self, is_unrouted)


def with_passage(passage: RoutingContext | None, put: Callable[..., int], *arguments: Any) -> int:
    """Has `put` give a message to its queues; exchanges on its way hear of the outcome, which is returned."""
    if passage is None:
        return put(*arguments)
    try:
        happened = put(*arguments)
    except Exception:
        passage.take_back()
        raise
    passage.end(happened)
    return happened
