"""Messages of a queue laid out in columns (wire/columns.py), as lease.read and queue.peek answer.

Column by column rather than message by message: each is then a single call into C.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate, chain
from typing import TYPE_CHECKING, NamedTuple

from flintmq.wire import amqp, columns
from flintmq.wire.columns import Column, Octets
from flintmq.wire.header_edits import FLAGS_AT, place_of

if TYPE_CHECKING:
    from flintmq.broker.messages.message import Message

CHOICE = ("headers", "properties")


class Row(NamedTuple):
    """One message with its number, or its place in the queue."""

    number: int
    message: Message
    body: list[Octets]  # in pieces
    is_redelivered: bool

    def octets(self) -> int:
        """What the row takes of a reply; 64 octets are its share of the columns that are numbers."""
        return sum(map(len, self.body)) + self.message.header_size + len(self.message.route) + 64


def lay_out(rows: Sequence[Row], next_number: int, chosen: Sequence[str], now_ms: int) -> list[Octets]:
    """The rows as one body, in pieces; `chosen` of CHOICE come with them."""
    routes = [row.message.shown_route() for row in rows]
    found = [
        Column(columns.OFFSET, array("q", [row.number for row in rows]).tobytes()),
        Column(columns.TIMESTAMP, array("q", [arrival_us(row.message, now_ms) for row in rows]).tobytes()),
        of_pieces(columns.VALUE, [row.body for row in rows]),
        of_octets(columns.ROUTING_KEY, [route[2 + route[0] :] for route in routes]),
        of_octets(columns.EXCHANGE, [route[1 : 1 + route[0]] for route in routes]),
        Column(columns.REDELIVERED, array("q", [row.is_redelivered for row in rows]).tobytes()),
    ]
    if "headers" in chosen:
        found.append(of_octets(columns.HEADERS, [headers_octets(row.message) for row in rows]))
    if "properties" in chosen:
        found.append(of_octets(columns.PROPERTIES, [properties_octets(row.message) for row in rows]))
    first = rows[0].number if rows else next_number
    return columns.encoded(len(rows), first, next_number, found)


def of_octets(number: int, values: list[bytes]) -> Column:
    starts = array("i", accumulate(map(len, values), initial=0))
    return Column(number, starts.tobytes(), b"".join(values))


def of_pieces(number: int, values: list[list[Octets]]) -> Column:
    """The same of values that may be large, each in pieces: they are not copied here."""
    starts = array("i", accumulate([sum(map(len, value)) for value in values], initial=0))
    return Column(number, starts.tobytes(), list(chain.from_iterable(values)))


def arrival_us(message: Message, now_ms: int) -> int:
    """When it came to the broker; where nobody has noted that, the time of asking."""
    return 1000 * (message.arrived_ms or now_ms)


def properties_octets(message: Message) -> bytes:
    """Flags and properties as they came."""
    return message.content[FLAGS_AT : message.header_size]


def headers_octets(message: Message) -> bytes:
    """The header table as it came, its length first; nothing if there is none."""
    start, end = place_of(message.content, amqp.FLAG_HEADERS)
    return message.content[start:end]
