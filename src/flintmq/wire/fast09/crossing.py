"""How a content crosses between AMQP/Fast 0.9 and AMQP: from one header to the other and back.

    Jms                         Basic
    ContentType ... AppID       the properties of these names; Timestamp is digits here, and seconds there
    Destination                 the routing key, which is no property
    Headers                     headers

A File content crosses to the file class of 0-9, a Stream content to its stream class. What these two and
Basic have in common is in wire/content_class.py. docs/fast09.md has the tables for users.

What a field cannot hold becomes a text: numbers of more than 32 bits and floating point as digits, arrays as
JSON. Three headers stand for what one side has and the other has not: TRACER for the flag of a method,
TIMESTAMP_TEXT for a Timestamp that is no number, CLUSTER_ID for the property of Basic.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from struct import Struct
from typing import Any, NamedTuple

from flintmq.errors import ProtocolMisuse
from flintmq.wire.fast import tables as fast_tables
from flintmq.wire.fast09 import content_header, jms_header, methods, tables
from flintmq.wire.fast09.content_header import ContentHeader
from flintmq.wire.fields import is_text
from flintmq.wire.properties import (
    BasicProperties,
    FileProperties,
    Properties,
    StreamProperties,
    decode_properties,
    encode_properties,
)
from flintmq.wire.tables import FieldTable, FieldValue

_AMQP_HEAD = Struct(">HHQ")

# Headers of AMQP for what it has no property for, and the field for what AMQP/Fast has none for.
TRACER = "x-tracer"
TIMESTAMP_TEXT = "x-timestamp"
CLUSTER_ID = "$CLUSTER_ID"

# The same in a Jms header and in a Basic one.
_SHARED = (
    "content_type",
    "content_encoding",
    "delivery_mode",
    "priority",
    "correlation_id",
    "reply_to",
    "expiration",
    "message_id",
    "type",
    "user_id",
    "app_id",
)
_DIGITS_MAX = 19  # a number of seconds that 64 bits hold

# Headers that differ in the body size alone are crossed once: so many of those seen last, in each direction,
# of up to so many octets, which is 300 KiB at the most.
_REMEMBERED = 256
_REMEMBERED_OCTETS = 256
# Where the body size lies, in 8 octets, in a header of AMQP/Fast and in one of AMQP.
_FAST_SIZE, _AMQP_SIZE = 2, 4


class Crossed(NamedTuple):
    """A content header of AMQP/Fast, and that of AMQP, whose body size may be another one."""

    class_id: int
    weight: int
    destination: str
    header: bytes

    def sized(self, payload: bytes) -> bytes:
        """The header of AMQP of a body as large as that of the header of AMQP/Fast."""
        size = payload[_FAST_SIZE : _FAST_SIZE + 8]
        return self.header[:_AMQP_SIZE] + size + self.header[_AMQP_SIZE + 8 :]


def _crossed(payload: bytes, is_traced: bool) -> Crossed:
    header = content_header.decode(payload)
    has_other = header.class_id != methods.CLASS_TEST
    made = amqp_header(header, is_traced) if has_other and not header.weight else bytes(_AMQP_HEAD.size)
    return Crossed(header.class_id, header.weight, str(header.properties.get("destination", "")), made)


_remembered_crossed = lru_cache(_REMEMBERED)(_crossed)


def crossed(payload: bytes, is_traced: bool) -> Crossed:
    """A header frame of AMQP/Fast; a bad one is a ConnectionFault, or a ProtocolMisuse."""
    plain = None if is_traced else jms_header.to_basic(payload)
    if plain is not None:
        return Crossed(methods.CLASS_JMS, 0, plain[1], plain[0])
    found: Callable[[bytes, bool], Crossed] = (
        _remembered_crossed if len(payload) <= _REMEMBERED_OCTETS else _crossed
    )
    return found(payload[:_FAST_SIZE] + bytes(8) + payload[_FAST_SIZE + 8 :], is_traced)


def amqp_header(header: ContentHeader, is_traced: bool) -> bytes:
    """The header of the AMQP class that this content is of: Basic for Jms, and File and Stream."""
    found = header.properties
    headers: FieldTable = dict(found.get("headers") or {})
    if is_traced:
        headers[TRACER] = True
    made: Properties
    if header.class_id == methods.CLASS_FILE:
        made = FileProperties(
            **{
                name: found.get(name) for name in ("content_type", "content_encoding", "priority", "reply_to")
            },
            message_id=found.get("message_id"),
            filename=found.get("file_name"),
            timestamp=found.get("revised_time"),
            headers=headers or None,
        )
    elif header.class_id == methods.CLASS_STREAM:
        made = StreamProperties(
            content_type=found.get("content_type"),
            content_encoding=found.get("content_encoding"),
            priority=found.get("priority"),
            timestamp=_seconds(found.get("timestamp"), headers),
        )
        made.headers = headers or None
    else:
        cluster_id = headers.get(CLUSTER_ID)
        if isinstance(cluster_id, str) and len(cluster_id.encode()) <= methods.SHORTSTR_OCTETS_MAX:
            del headers[CLUSTER_ID]
        else:
            cluster_id = None
        timestamp = _seconds(found.get("timestamp"), headers)
        made = BasicProperties(
            **{name: found.get(name) for name in _SHARED},
            timestamp=timestamp,
            cluster_id=cluster_id,
            headers=headers or None,
        )
    return _AMQP_HEAD.pack(made.CLASS_ID, 0, header.body_size) + encode_properties(made)


def _seconds(text: str | None, headers: FieldTable) -> int | None:
    """The seconds of a Timestamp; one that is no number goes to the headers."""
    if text is None:
        return None
    if text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX:
        return int(text)
    headers[TIMESTAMP_TEXT] = text
    return None


def fast_header(class_id: int, octets: bytes, key: bytes, bytes_max: int) -> tuple[bytes, bool]:
    """The header of a content of this class, in at most so many octets, and whether it is traced.

    `octets` are a header of AMQP: of File for that class, else of Basic. Headers for which there is no room,
    or whose names AMQP/Fast does not know, are left out. The destination is the routing key `key`.
    """
    plain = jms_header.to_jms(octets, key) if class_id == methods.CLASS_JMS else None
    if plain is not None:
        return plain, False
    destination = shown_key(key)
    size = octets[_AMQP_SIZE : _AMQP_SIZE + 8]
    made = _remembered_fast_header if len(octets) <= _REMEMBERED_OCTETS else _fast_header
    unsized = octets[:_AMQP_SIZE] + bytes(8) + octets[_AMQP_SIZE + 8 :]
    header, is_traced = made(class_id, unsized, destination, bytes_max)
    return header[:_FAST_SIZE] + size + header[_FAST_SIZE + 8 :], is_traced


def _fast_header(class_id: int, octets: bytes, destination: str, bytes_max: int) -> tuple[bytes, bool]:
    amqp_class, _, body_size = _AMQP_HEAD.unpack_from(octets)
    found: Any = decode_properties(amqp_class, octets, _AMQP_HEAD.size, len(octets))
    headers: FieldTable = dict(found.headers or {})
    is_traced = headers.pop(TRACER, None) is True
    wanted = {name for name, _ in content_header.PROPERTIES[class_id]}
    made: dict[str, Any] = {name: getattr(found, name, None) for name in _SHARED if name in wanted}
    made["destination"] = destination or None
    cluster_id = getattr(found, "cluster_id", None)
    if cluster_id is not None:
        headers[CLUSTER_ID] = cluster_id
    if class_id == methods.CLASS_FILE:
        made |= {"file_name": found.filename, "revised_time": found.timestamp}
    elif found.timestamp is not None:
        made["timestamp"] = str(found.timestamp)
    elif isinstance(headers.get(TIMESTAMP_TEXT), str):
        made["timestamp"] = headers.pop(TIMESTAMP_TEXT)
    shown = {name: _shown(value) if isinstance(value, str) else value for name, value in made.items()}
    header = ContentHeader(class_id, body_size, shown)
    whole = content_header.encode(header)
    if headers:
        room = bytes_max - len(whole) - 4
        kept = _table(headers, room)
        if kept:
            header.properties["headers"] = kept
            whole = content_header.encode(header)
    return whole, is_traced


_remembered_fast_header = lru_cache(_REMEMBERED)(_fast_header)


def _shown(text: str) -> str | None:
    """A text as a short string holds it; none if it has a NUL, or gets too long."""
    octets = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace").encode()
    return None if 0 in octets or len(octets) > methods.SHORTSTR_OCTETS_MAX else octets.decode()


def _table(headers: FieldTable, room: int) -> FieldTable:
    """Those headers that have a name here, and room, in values that have a type here."""
    kept: FieldTable = {}
    fields = tables.ENTRIES_MAX
    for name, value in headers.items():
        octets = name.encode("utf-8", "surrogateescape")
        if not fast_tables.is_name(octets) or not is_text(name):
            continue
        held = fast_value(value)
        room -= 1 + len(octets) + len(tables.encode_value(held))
        fields -= tables.field_count(held)
        if room < 0 or fields < 0:
            break
        kept[name] = held
    return kept


def fast_value(value: FieldValue) -> FieldValue:
    """The value itself if a field can hold it, or a text for it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, str):
        return _cut(value)
    if isinstance(value, bytes):
        return value[: tables.LONG_OCTETS_MAX]
    try:
        tables.encode_value(value)
        return value
    except ProtocolMisuse:
        if isinstance(value, (dict, list)):
            return _cut(json.dumps(value, default=_json_value, ensure_ascii=False))
        return str(int(value)) if isinstance(value, int) else str(value)


def _cut(text: str) -> str:
    octets = text.encode("utf-8", "surrogateescape")
    if len(octets) <= tables.LONG_OCTETS_MAX:
        return text
    return octets[: tables.LONG_OCTETS_MAX].decode("utf-8", "ignore")


def _json_value(value: object) -> object:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(value)


def bare_header(class_id: int, body_size: int, destination: str) -> bytes:
    """Of a message whose own header nobody can read."""
    return content_header.encode(ContentHeader(class_id, body_size, {"destination": _shown(destination)}))


# What a destination is in the octets of a route, which is two short strings: an exchange and a key.
def key_of(route: bytes) -> bytes:
    return route[2 + route[0] :]


def shown_key(key: bytes) -> str:
    return key.decode("utf-8", "replace")


def proxy_of(route: bytes) -> str:
    return route[1 : 1 + route[0]].decode("utf-8", "replace")
