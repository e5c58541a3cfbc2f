"""Exchanges that spread messages over their destinations: each message goes to one of them, or to some.

    x-random             any of them
    x-consistent-hash    the one that the routing key belongs to, or a header, or a property: the same value
                         always leads to the same one, a destination of twice the weight has twice the values
    x-m-of-n             so many of those whose binding fits, in turn: redundancy without sending to all

Whom a value belongs to is decided by rendezvous: every destination draws a number for the value, and the
highest wins. So a destination that comes takes values from all others, one that goes leaves its own to all
others, and no other value moves. The numbers follow from names alone, so a restart moves nothing either.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from heapq import nsmallest
from typing import TYPE_CHECKING, Any

from flintmq import checks
from flintmq.broker.exchanges import arguments
from flintmq.broker.exchanges.binding import Binding, Destination
from flintmq.broker.exchanges.exchange import Exchange, Headers
from flintmq.broker.exchanges.wrapping_exchange import WrappingExchange
from flintmq.errors import ChannelFault
from flintmq.wire import amqp
from flintmq.wire.properties import decode_basic_properties
from flintmq.wire.tables import FieldValue

if TYPE_CHECKING:
    from flintmq.broker.exchanges.route import RoutingContext

# What a destination that draws counts in the work of a pass: a microsecond.
SHARE_COPIES = 8
WEIGHT_MAX = 1_000_000
COPIES_MAX = 1000
HASH_PROPERTIES = ("message_id", "correlation_id", "timestamp", "app_id", "user_id", "type", "reply_to")
HASHED_BY = checks.one_of("", *sorted(HASH_PROPERTIES))
_MASK = (1 << 64) - 1


class RandomExchange(Exchange):
    """One destination, whichever; routing keys mean nothing."""

    __slots__ = ("counts", "destinations")
    type = "x-random"
    receives = True

    def prepare(self) -> None:
        self.counts: dict[Destination, int] = {}
        self.destinations: list[Destination] = []

    def attach(self, binding: Binding) -> None:
        destination = binding.destination
        if destination not in self.counts:
            self.destinations.append(destination)
        self.counts[destination] = self.counts.get(destination, 0) + 1

    def detach(self, binding: Binding) -> None:
        destination = binding.destination
        self.counts[destination] -= 1
        if not self.counts[destination]:
            del self.counts[destination]
            self.destinations.remove(destination)

    def route(self, routing_key: str, headers: Headers | None, found: dict[Any, Any]) -> None:
        if self.destinations:
            found[self.router.chance().choice(self.destinations)] = None


class ConsistentHashExchange(Exchange):
    """The binding key is the weight of its destination."""

    __slots__ = ("hash_header", "hash_property", "shares")
    type = "x-consistent-hash"

    def prepare(self) -> None:
        self.shares: dict[Destination, Share] = {}
        self.hash_header = arguments.checked(self.arguments, "hash-header", checks.any_text, "")
        self.hash_property = arguments.checked(self.arguments, "hash-property", HASHED_BY, "")
        if self.hash_header and self.hash_property:
            raise arguments.wrong("hash-property", "nothing where there is a hash-header")

    @property
    def needs_headers(self) -> bool:  # type: ignore[override]
        return bool(self.hash_header)

    @property
    def receives(self) -> bool:  # type: ignore[override]
        return bool(self.hash_property)

    def validate_binding(self, routing_key: str, arguments: Mapping[str, FieldValue]) -> None:
        weight_of(routing_key)

    def attach(self, binding: Binding) -> None:
        weight = weight_of(binding.routing_key)
        share = self.shares.get(binding.destination)
        if share is None:
            share = self.shares[binding.destination] = Share(binding.destination)
        share.weight += weight

    def detach(self, binding: Binding) -> None:
        share = self.shares[binding.destination]
        share.weight -= weight_of(binding.routing_key)
        if not share.weight:
            del self.shares[binding.destination]

    def route(self, routing_key: str, headers: Headers | None, found: dict[Any, Any]) -> None:
        value: FieldValue = routing_key
        if self.hash_header:
            value = None if headers is None else headers().get(self.hash_header)
        self.pick(value, found)

    def route_message(self, routing_key: str, context: RoutingContext, found: dict[Any, Any]) -> None:
        message = context.message
        properties = decode_basic_properties(message.content, 12, message.header_size)
        self.pick(getattr(properties, self.hash_property), found)

    def pick(self, value: FieldValue, found: dict[Any, Any]) -> None:
        """Puts the destination that the value belongs to into `found`; no value is a value too."""
        self.charge(SHARE_COPIES * len(self.shares))
        place = hashed("" if value is None else value if isinstance(value, str) else repr(value))
        best, highest = None, 0.0
        for destination, share in self.shares.items():
            drawn = share.draw(place)
            if drawn > highest:
                best, highest = destination, drawn
        if best is not None:
            found[best] = None


class SeveralExchange(WrappingExchange):
    """`x-copies` of the destinations that bindings lead to: those that have waited longest."""

    __slots__ = ("copies", "served", "turns")
    type = "x-m-of-n"

    def prepare(self) -> None:
        super().prepare()
        self.copies = arguments.checked(self.arguments, "x-copies", checks.whole(1, COPIES_MAX))
        self.served: dict[Destination, int] = {}  # the latest turn of each
        self.turns = 0

    def detach(self, binding: Binding) -> None:
        super().detach(binding)
        # One that is still bound otherwise has its turn a little early.
        self.served.pop(binding.destination, None)

    def route(self, routing_key: str, headers: Headers | None, found: dict[Any, Any]) -> None:
        fitting: dict[Destination, None] = {}
        super().route(routing_key, headers, fitting)
        there = [each for each in fitting if not self.router.is_gone(each)]
        for destination in nsmallest(self.copies, there, key=lambda each: self.served.get(each, 0)):
            self.turns += 1
            self.served[destination] = self.turns
            found[destination] = None

    def preview(
        self, routing_key: str, context: RoutingContext | None, headers: Headers | None, found: dict[Any, Any]
    ) -> None:
        super().route(routing_key, headers, found)


class Share:
    """A destination's part of all values."""

    __slots__ = ("seed", "weight")

    def __init__(self, destination: Destination) -> None:
        kind = "exchange" if isinstance(destination, Exchange) else "queue"
        self.seed = hashed(f"{kind} {destination.name}")
        self.weight = 0

    def draw(self, place: int) -> float:
        """Its number for a value: the highest of `weight` draws, in one step."""
        mixed = (place ^ self.seed) & _MASK
        mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & _MASK
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & _MASK
        mixed ^= mixed >> 31
        # 52 bits, so that the half is not rounded away: strictly between 0 and 1.
        return self.weight / -math.log(((mixed >> 12) + 0.5) / (1 << 52))


def hashed(value: str) -> int:
    octets = value.encode("utf-8", "surrogateescape")
    return int.from_bytes(hashlib.blake2b(octets, digest_size=8).digest(), "big")


def weight_of(routing_key: str) -> int:
    if routing_key.isascii() and routing_key.isdigit() and len(routing_key) <= 7:
        weight = int(routing_key)
        if 1 <= weight <= WEIGHT_MAX:
            return weight
    raise ChannelFault(
        amqp.PRECONDITION_FAILED,
        f"binding key '{routing_key[:40]}': expected a weight from 1 to {WEIGHT_MAX}",
    )
