"""Content headers of AMQP/Fast 0.9: what the body of a header frame says.

    | class 1 | weight 1 | body size 8 | flags 2 [2 ...] | properties ... |          sections 3.13.1, 3.13.2

The first property is bit 15 of the flags; bit 0 says that further flags follow. The properties of a class
are those of sections 3.19.2, 3.20.2 and 3.21.2, in their order; the test class has the first two of all
classes (section 3.13.7).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct
from typing import Any

from flintmq.errors import ConnectionFault, ProtocolMisuse
from flintmq.wire import amqp
from flintmq.wire.fast09 import methods, tables

_HEAD = Struct(">BBQH")
_FLAGS = Struct(">H")
FLAGS_AT = 10
HEAD_OCTETS = 12
BODY_SIZE_MAX = (1 << 64) - 1

_COMMON = (("content_type", "shortstr"), ("content_encoding", "shortstr"))

PROPERTIES: dict[int, tuple[tuple[str, str], ...]] = {
    methods.CLASS_JMS: (
        *_COMMON,
        ("delivery_mode", "octet"),
        ("priority", "octet"),
        ("correlation_id", "shortstr"),
        ("reply_to", "shortstr"),
        ("destination", "shortstr"),
        ("expiration", "shortstr"),
        ("message_id", "shortstr"),
        ("timestamp", "shortstr"),
        ("type", "shortstr"),
        ("user_id", "shortstr"),
        ("app_id", "shortstr"),
        ("headers", "table"),
    ),
    methods.CLASS_FILE: (
        *_COMMON,
        ("priority", "octet"),
        ("reply_to", "shortstr"),
        ("destination", "shortstr"),
        ("message_id", "shortstr"),
        ("file_name", "shortstr"),
        ("revised_time", "time"),
        ("headers", "table"),
    ),
    methods.CLASS_STREAM: (
        *_COMMON,
        ("priority", "octet"),
        ("destination", "shortstr"),
        ("timestamp", "shortstr"),
        ("headers", "table"),
    ),
    methods.CLASS_TEST: _COMMON,
}


@dataclass(slots=True)
class ContentHeader:
    """What a header frame says; a property that is not there is not among `properties`."""

    class_id: int
    body_size: int = 0
    properties: dict[str, Any] = field(default_factory=dict)
    weight: int = 0


def decode(payload: bytes) -> ContentHeader:
    """The body of a header frame; a bad one is a ConnectionFault."""
    if len(payload) < HEAD_OCTETS:
        raise _cut_short("")
    class_id, weight, body_size, flags = _HEAD.unpack_from(payload)
    fields = PROPERTIES.get(class_id)
    if fields is None:
        raise ConnectionFault(amqp.SYNTAX_ERROR, f"class {class_id} has no content")
    at, more = HEAD_OCTETS, flags & 1
    while more:
        if len(payload) - at < 2:
            raise _cut_short("its flags")
        further: int = _FLAGS.unpack_from(payload, at)[0]
        if further & ~1:
            raise ConnectionFault(
                amqp.SYNTAX_ERROR, f"content header with flags of no property: {further:#06x}"
            )
        at, more = at + 2, further & 1
    known = (0xFFFF << (16 - len(fields))) & 0xFFFF
    if flags & ~known & ~1:
        raise ConnectionFault(amqp.SYNTAX_ERROR, f"content header with flags of no property: {flags:#06x}")
    found: dict[str, Any] = {}
    for place, (name, form) in enumerate(fields):
        if flags & 0x8000 >> place:
            found[name], at = _read(name, form, payload, at)
    if at != len(payload):
        text = f"content header has {len(payload) - at} octets after its last property"
        raise ConnectionFault(amqp.SYNTAX_ERROR, text)
    return ContentHeader(class_id, body_size, found, weight)


def _read(name: str, form: str, payload: bytes, at: int) -> tuple[Any, int]:
    end = len(payload)
    if form == "table":
        return tables.decode(payload, at, end)
    if form == "shortstr":
        stop = at + 1 + (payload[at] if at < end else 0)
        if stop > end:
            raise _cut_short(name)
        return methods.read_text(payload[at + 1 : stop], f"content header: {name}"), stop
    size = 1 if form == "octet" else 8
    if at + size > end:
        raise _cut_short(name)
    return int.from_bytes(payload[at : at + size], "big"), at + size


def encode(header: ContentHeader) -> bytes:
    fields = PROPERTIES[header.class_id]
    unknown = header.properties.keys() - {name for name, _ in fields}
    if unknown:
        raise ProtocolMisuse(
            f"content of class {header.class_id} has no property {', '.join(sorted(unknown))}"
        )
    if not 0 <= header.body_size <= BODY_SIZE_MAX:
        raise ProtocolMisuse(f"a body of {header.body_size} octets")
    flags = 0
    parts = []
    for place, (name, form) in enumerate(fields):
        value = header.properties.get(name)
        if value is not None:
            flags |= 0x8000 >> place
            parts.append(_encoded(name, form, value))
    return _HEAD.pack(header.class_id, header.weight, header.body_size, flags) + b"".join(parts)


def _encoded(name: str, form: str, value: Any) -> bytes:
    if form == "table":
        return tables.encode(value)
    if form == "shortstr":
        return methods.encode_text(value, f"content header: {name}")
    size = 1 if form == "octet" else 8
    if not 0 <= value < 1 << 8 * size:
        raise ProtocolMisuse(f"content header: {name} has {size} octets, which do not hold {value}")
    octets: bytes = value.to_bytes(size, "big")
    return octets


def _cut_short(what: str) -> ConnectionFault:
    return ConnectionFault(amqp.SYNTAX_ERROR, f"a content header is cut short{' at ' + what if what else ''}")
