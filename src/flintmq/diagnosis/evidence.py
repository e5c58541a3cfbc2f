"""What the checks look at: two looks at a virtual host, some seconds apart, and closer ones at some queues.

A queue that is long is no trouble, one that grows while nobody consumes is: checks compare both looks. Rows
come from the lists of the broker's services or from the snapshots of the management process: the protocols
here say what the checks need of them.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Protocol

# Queues that are looked into for dead letters: the longest with consumers, and the longest without.
PEEKED_MAX = 100
# Exchanges for dead letters that are looked for.
LETTER_EXCHANGES_MAX = 100

THIS_MACHINE, ELSEWHERE = "this machine", "elsewhere"

ConsumerKey = tuple[int, int, str]  # connection, channel, tag
ChannelKey = tuple[int, int]  # connection, channel


class QueueSeen(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def durable(self) -> bool: ...
    @property
    def is_stream(self) -> bool: ...
    @property
    def consumers(self) -> int: ...
    @property
    def ready(self) -> int: ...
    @property
    def unacked(self) -> int: ...
    @property
    def delayed(self) -> int:
        """Messages that wait for a retry."""

    @property
    def delayed_returns(self) -> int:
        """How often these have come back, together."""

    @property
    def entered(self) -> int:
        """Messages that came since the queue was declared."""

    @property
    def leases(self) -> int: ...
    @property
    def oldest_ms(self) -> int:
        """When the first message came; 0 if that is not known."""


class ConnectionSeen(Protocol):
    @property
    def number(self) -> int: ...
    @property
    def name(self) -> str:
        """That the client has given it; empty if it has none."""

    @property
    def user(self) -> str: ...
    @property
    def peer_address(self) -> str: ...
    @property
    def blocked(self) -> str:
        """Why nothing is read from it; empty if it is read from."""


class ChannelSeen(Protocol):
    @property
    def consumers(self) -> int: ...
    @property
    def unacked(self) -> int: ...
    @property
    def flowing(self) -> bool: ...
    @property
    def acks(self) -> int: ...
    @property
    def unrouted(self) -> int: ...
    @property
    def oldest_unacked(self) -> int:
        """The delivery tag of the oldest message that is unacked; 0 if there is none."""

    @property
    def oldest_unacked_queue(self) -> str: ...


class ConsumerSeen(Protocol):
    @property
    def connection(self) -> int: ...
    @property
    def channel(self) -> int: ...
    @property
    def tag(self) -> str: ...
    @property
    def queue(self) -> str: ...
    @property
    def prefetch_count(self) -> int: ...
    @property
    def unacked(self) -> int: ...


class Head(NamedTuple):
    """The first message of a queue."""

    arrived_ms: int
    death: dict[str, Any] | None  # the last one, as x-death has it
    has_lifetime: bool  # it carries an expiration


@dataclass
class Look:
    """What the broker says of a virtual host at one moment."""

    info: Mapping[str, Any]
    wall_ms: int
    queues: Mapping[str, QueueSeen] = field(default_factory=dict)
    connections: Mapping[int, ConnectionSeen] = field(default_factory=dict)
    channels: Mapping[ChannelKey, ChannelSeen] = field(default_factory=dict)
    consumers: Mapping[ConsumerKey, ConsumerSeen] = field(default_factory=dict)


@dataclass
class Evidence:
    """Two looks, and what closer ones have found. An empty first look stands for one that was not taken."""

    virtual_host: str
    first: Look
    last: Look
    seconds: float
    # Queues by name: the exchange that each sends dead letters to, and those with a time to live.
    letter_exchanges: Mapping[str, str] = field(default_factory=dict)
    timed: frozenset[str] | set[str] = frozenset()
    # By name: the first messages of queues that were looked into, and exchanges that are not there.
    heads: Mapping[str, Head] = field(default_factory=dict)
    missing_exchanges: frozenset[str] | set[str] = frozenset()
    # From where guest gets in with the password guest: `this machine` or `elsewhere`; empty if it does not.
    guest_from: str = ""

    # What there is to look at more closely

    @cached_property
    def longest(self) -> tuple[list[str], list[str]]:
        """The longest queues with consumers, and the longest without. All queues are gone through."""
        waiting = [row for row in self.last.queues.values() if row.ready and not row.is_stream]
        return (
            longest_of(row for row in waiting if row.consumers),
            longest_of(row for row in waiting if not row.consumers),
        )

    def to_peek(self, most: int = PEEKED_MAX) -> list[str]:
        """The longest queues with consumers, and the longest without."""
        consumed, unconsumed = self.longest
        return consumed[:most] + unconsumed[:most]

    def exchanges_to_find(self) -> list[str]:
        """Exchanges for dead letters."""
        return list(dict.fromkeys(filter(None, self.letter_exchanges.values())))[:LETTER_EXCHANGES_MAX]

    # What the looks tell

    def whose(self, connection: int) -> str:
        """A connection in words."""
        row = self.last.connections.get(connection)
        if row is None:
            return f"connection {connection}"
        name = f" ({row.name})" if row.name else ""
        return f"connection {connection}{name} of user {row.user!r} at {row.peer_address}"

    def is_blocked(self, connection: int) -> bool:
        """Whether nothing is read from a connection, and so none of its acks."""
        row = self.last.connections.get(connection)
        return row is not None and bool(row.blocked)

    def before(self, name: str) -> QueueSeen | None:
        """A queue at the first look; None for one that was declared since then, which counts from 0."""
        row = self.first.queues.get(name)
        return None if row is None or row.entered > self.last.queues[name].entered else row

    def came(self, name: str) -> int:
        """Messages that came to a queue between the looks."""
        before = self.before(name)
        return 0 if before is None else self.last.queues[name].entered - before.entered

    def went(self, name: str) -> int:
        """Messages that a queue has got rid of between the looks."""
        before = self.before(name)
        return 0 if before is None else max(0, gone_of(self.last.queues[name]) - gone_of(before))

    def has_retried(self, name: str) -> bool:
        """Whether messages of a queue have begun or ended to wait for a retry between the looks."""
        before, last = self.before(name), self.last.queues[name]
        waited = None if before is None else (before.delayed, before.delayed_returns)
        return waited is not None and waited != (last.delayed, last.delayed_returns)

    def oldest_ms(self, queue: QueueSeen) -> int:
        """When the first message of a queue came; 0 if that is not known."""
        head = self.heads.get(queue.name)
        return queue.oldest_ms or (0 if head is None else head.arrived_ms)

    def sends_on(self, name: str) -> bool:
        """Whether a queue delays messages: the first leaves when its time is over, as a dead letter."""
        head = self.heads.get(name)
        has_end = name in self.timed or (head is not None and head.has_lifetime)
        return name in self.letter_exchanges and has_end

    def first_deaths(self, *, has_consumers: bool) -> dict[str, dict[str, Any]]:
        """Of queues whose first message is a dead letter: how that died last."""
        return {
            name: head.death
            for name, head in self.heads.items()
            if head.death is not None and bool(self.last.queues[name].consumers) is has_consumers
        }

    @cached_property
    def unread_letters(self) -> dict[str, dict[str, Any]]:
        """Queues without a consumer whose first message died in another queue, and how that was."""
        return {
            name: death
            for name, death in self.first_deaths(has_consumers=False).items()
            if text(death.get("queue")) != name  # sent back to where it died, to be tried again
            and not self.sends_on(name)
        }

    @cached_property
    def queues_by_missing_exchange(self) -> dict[str, list[str]]:
        """Queues that would send dead letters to an exchange that is not there."""
        found: dict[str, list[str]] = {}
        for name, exchange in self.letter_exchanges.items():
            if exchange in self.missing_exchanges:
                found.setdefault(exchange, []).append(name)
        return found


def longest_of(queues: Iterable[QueueSeen]) -> list[str]:
    return [row.name for row in heapq.nsmallest(PEEKED_MAX, queues, key=lambda row: -row.ready)]


def gone_of(row: QueueSeen) -> int:
    """The messages that a queue has got rid of."""
    return row.entered - row.ready - row.unacked - row.delayed


def death_in(headers: Mapping[str, Any]) -> dict[str, Any] | None:
    """The first of the x-death headers."""
    deaths = headers.get("x-death")
    return deaths[0] if isinstance(deaths, list) and deaths and isinstance(deaths[0], dict) else None


def text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
