"""What one message says under a name: its headers, its properties, where it was published to.

A Lookup is made for a message that some exchange or consumer asks about. Nothing is decoded before it is
asked for, and nothing twice. There are two ways to ask, as there are two kinds of conditions:

    form(name)         the header as headers exchanges compare it (field_equality.matching_form)
    value(reference)   what a selector sees: str, int, float, bool, or None for NULL
    body_value(path)   the same of a path in the body, which is parsed as JSON then (json_body.py)

What a question takes is counted in steps, as conditions may look at all letters of a text, each for itself:
a Lookup whose steps are spent refuses to go on.

A reference is a header's name, or a number for what is not a header. `REFERENCES` has the names that mean
such a number; any other name means the header, and so does one with `headers.` before it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from datetime import datetime
from decimal import Decimal
from typing import Any, TypeAlias

from flintmq.broker.matching import field_equality, json_body
from flintmq.broker.messages.message import Message
from flintmq.errors import TooLong
from flintmq.wire import amqp, headers
from flintmq.wire.tables import FieldTable, FieldValue

Reference: TypeAlias = str | int

# Numbers that are no property flags: those lie below 65,536.
ROUTING_KEY = 0x1_0000
EXCHANGE = 0x1_0001
JMS_DELIVERY_MODE = 0x1_0002
JMS_TIMESTAMP = 0x1_0003
BODY_SIZE = 0x1_0004

REFERENCES: dict[str, int] = {
    "content_type": amqp.FLAG_CONTENT_TYPE,
    "content_encoding": amqp.FLAG_CONTENT_ENCODING,
    "delivery_mode": amqp.FLAG_DELIVERY_MODE,
    "priority": amqp.FLAG_PRIORITY,
    "correlation_id": amqp.FLAG_CORRELATION_ID,
    "reply_to": amqp.FLAG_REPLY_TO,
    "expiration": amqp.FLAG_EXPIRATION,
    "message_id": amqp.FLAG_MESSAGE_ID,
    "timestamp": amqp.FLAG_TIMESTAMP,
    "type": amqp.FLAG_TYPE,
    "user_id": amqp.FLAG_USER_ID,
    "app_id": amqp.FLAG_APP_ID,
    "cluster_id": amqp.FLAG_CLUSTER_ID,
    "routing_key": ROUTING_KEY,
    "exchange": EXCHANGE,
    "body_size": BODY_SIZE,
    "JMSPriority": amqp.FLAG_PRIORITY,
    "JMSCorrelationID": amqp.FLAG_CORRELATION_ID,
    "JMSReplyTo": amqp.FLAG_REPLY_TO,
    "JMSMessageID": amqp.FLAG_MESSAGE_ID,
    "JMSType": amqp.FLAG_TYPE,
    "JMSXUserID": amqp.FLAG_USER_ID,
    "JMSXAppID": amqp.FLAG_APP_ID,
    "JMSDeliveryMode": JMS_DELIVERY_MODE,
    "JMSTimestamp": JMS_TIMESTAMP,
}
HEADER_PREFIX = "headers."
# Of content headers that are larger than this only those headers are decoded that somebody asks for. Smaller
# ones have some dozens, and to decode all of them once is less work.
LARGE_BYTES = 2048
# What one exchange or consumer may ask of a message, in steps of some 100 nanoseconds: 30 ms at the worst,
# for which all others wait. To parse 65,536 octets of JSON takes 4,096 of them.
STEPS_MAX = 300_000
JSON_OCTETS = 16


def reference_of(name: str) -> Reference:
    """What a name in a condition refers to."""
    if name.startswith(HEADER_PREFIX):
        return name[len(HEADER_PREFIX) :]
    return REFERENCES.get(name, name)


def plain(value: FieldValue) -> Any:
    """A field value as a selector sees it; tables, arrays and what is no number are NULL."""
    if value is None or type(value) is str or type(value) is int or type(value) is bool:
        return value
    if isinstance(value, float):
        return value if value == value else None
    if isinstance(value, bytes | bytearray):
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, datetime):
        return int(value.timestamp())
    if isinstance(value, int):
        return int(value)
    return None


class AskedNames:
    """The names of headers that conditions ask for, each with how many do."""

    __slots__ = ("gone", "names", "sieve")

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.sieve: bytearray | None = None  # see wire/headers.py; made when a large message comes
        self.gone = 0  # names that the sieve lets through in vain

    def add(self, name: str) -> None:
        self.names[name] = self.names.get(name, 0) + 1
        if self.sieve is not None:
            headers.put_in_sieve(self.sieve, name)

    def remove(self, name: str) -> None:
        """Takes back one add. A sieve is made anew when as many names have gone as are left."""
        self.names[name] -= 1
        if not self.names[name]:
            del self.names[name]
            self.gone += 1
            if self.gone > len(self.names):
                self.sieve = None

    def read(self, message: Message) -> FieldTable:
        """Those headers of the message that have these names."""
        if self.sieve is None:
            self.gone = 0
            self.sieve = bytearray(headers.SIEVE_SLOTS)
            for name in self.names:
                headers.put_in_sieve(self.sieve, name)
        return headers.read_headers_among(message.content, message.header_size, self.names, self.sieve)


class Lookup:
    """One message, asked about by name; called like a function, it gives the headers."""

    __slots__ = (
        "_asked",
        "_body",
        "_forms",
        "_headers",
        "_is_parsed",
        "_some",
        "_values",
        "key",
        "message",
        "steps",
    )

    message: Message | None
    key: str
    steps: int  # that are spent; who asks begins at 0
    _headers: FieldTable | None
    _some: FieldTable | None
    _asked: AskedNames | None
    _values: dict[Reference, Any] | None
    _forms: dict[str, Hashable] | None
    _body: Any
    _is_parsed: bool

    @staticmethod
    def create(message: Message | None, key: str) -> Lookup:
        lookup = Lookup.__new__(Lookup)
        lookup.message = message
        lookup.key = key
        lookup._headers = None
        lookup._some = None
        lookup._asked = None
        lookup._values = None
        lookup._forms = None
        lookup._body = None
        lookup._is_parsed = False
        lookup.steps = 0
        return lookup

    def spend(self, steps: int) -> int:
        """Counts what was done, or is about to be; a fault once it is too much for one question."""
        self.steps += steps
        if self.steps > STEPS_MAX:
            raise TooLong(
                amqp.RESOURCE_ERROR,
                f"finding out which bindings fit this message takes over {STEPS_MAX} steps: given up, as its "
                "texts are long and many patterns are held against them",
                60,
                40,
            )
        return 0

    def __call__(self) -> FieldTable:
        return self.headers()

    def headers(self) -> FieldTable:
        """The headers, empty when there are none; a ConnectionFault when they are malformed."""
        if self._headers is None:
            if self.message is None:
                self._headers = {}
            else:
                self._headers = headers.read_headers(self.message.content, self.message.header_size)
        return self._headers

    def headers_among(self, asked: AskedNames) -> FieldTable:
        """At least those of these names, where a message has too many headers to decode all of them."""
        if self._headers is None and self.message is not None and self.message.header_size > LARGE_BYTES:
            if self._asked is None:
                self._asked = asked
                self._some = asked.read(self.message)
            if self._asked is asked and self._some is not None:
                return self._some
        return self.headers()

    def table_for(self, name: str) -> FieldTable:
        """The headers as far as they are decoded; with the one of this name, if there is one."""
        if self._headers is not None or self._asked is None or self._some is None:
            return self.headers()
        return self._some if name in self._asked.names else self.headers()

    def has_header(self, name: str) -> bool:
        return name in self.table_for(name)

    def ignore_headers(self) -> None:
        """From now on the message has no headers."""
        self._headers = {}

    def form(self, name: str) -> Hashable:
        """The matching form of a header; None when there is no such header or it has no value."""
        table = self.table_for(name)
        value = table.get(name)
        if value is None or type(value) is str or type(value) is int:
            return value
        if self._forms is None:
            self._forms = {}
        elif name in self._forms:
            return self._forms[name]
        form = self._forms[name] = field_equality.matching_form(value)
        return form

    def value(self, reference: Reference) -> Any:
        """What a selector sees of a header or property; None when there is none."""
        if type(reference) is str:
            table = self.table_for(reference)
            value = table.get(reference)
            if value is None or type(value) is str or type(value) is int or type(value) is bool:
                return value
        if self._values is None:
            self._values = {}
        elif reference in self._values:
            return self._values[reference]
        found = (
            plain(self.table_for(reference)[reference])
            if isinstance(reference, str)
            else self.read(reference)
        )
        self._values[reference] = found
        return found

    def body_value(self, path: tuple[str, ...]) -> Any:
        """What a selector sees of the body at a path; None where there is nothing, or no JSON."""
        if not self._is_parsed:
            self._is_parsed = True
            if self.message is not None:
                self.spend(min(self.message.body_size(), json_body.JSON_BYTES_MAX) // JSON_OCTETS)
                self._body = json_body.parsed(self.message)
        return json_body.value_at(self._body, path)

    def read(self, reference: int) -> Any:
        """A property, or what basic.publish said."""
        if reference == ROUTING_KEY:
            return self.key
        if self.message is None:
            return None
        if reference == EXCHANGE:
            return self.message.exchange_name()
        if reference == BODY_SIZE:
            return self.message.body_size()
        wanted = reference
        if reference == JMS_DELIVERY_MODE:
            wanted = amqp.FLAG_DELIVERY_MODE
        elif reference == JMS_TIMESTAMP:
            wanted = amqp.FLAG_TIMESTAMP
        found = headers.read_property(self.message.content, self.message.header_size, wanted)
        if reference == JMS_DELIVERY_MODE:
            return "PERSISTENT" if found == 2 else "NON_PERSISTENT"
        if reference == JMS_TIMESTAMP and isinstance(found, int):
            return found * 1000
        return found


def lookup_of(source: Callable[[], FieldTable] | None, key: str) -> Lookup:
    """The Lookup behind what Exchange.route is given, or one of the headers alone."""
    if isinstance(source, Lookup):
        return source
    lookup = Lookup.create(None, key)
    if source is not None:
        lookup._headers = source()
    return lookup


def lookup_for(message: Message | None, key: str) -> Lookup:
    """Lookup.create for code that is not compiled."""
    return Lookup.create(message, key)
