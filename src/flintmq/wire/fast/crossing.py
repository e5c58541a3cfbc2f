"""How a message crosses between AMQP/Fast and Basic: from one header to the other and back.

    Fast            Basic
    body size       body size
    persistent      delivery-mode 2, or none
    priority        priority; none for 0
    expiration      expiration: what is left in milliseconds; and the header EXPIRES_AT, as it came
    mime type       content-type; of none, that of the handle
    encoding        content-encoding; of none, that of the handle
    identifier      message-id
    headers         headers, but for the fields $CORRELATION_ID, $REPLY_TO, $TYPE, $USER_ID, $APP_ID,
                    $CLUSTER_ID and $TIMESTAMP, which are the properties of these names

docs/fast.md has the table for users. What a field cannot hold becomes a text: numbers of more than 32 bits
and floating point as digits, tables and arrays as JSON. Entries for which a table has no room are left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from struct import Struct

from flintmq.errors import ConnectionFault, ProtocolMisuse
from flintmq.wire import amqp
from flintmq.wire.fast import commands, message_head, tables
from flintmq.wire.header_edits import place_of, with_property
from flintmq.wire.properties import BasicProperties, decode_basic_properties, encode_properties
from flintmq.wire.tables import FieldValue, Timestamp, encode_value

_SHORT = Struct(">H")
_LONG = Struct(">I")
_BASIC = Struct(">HHQ")
_FIXED = Struct(">BBI")

# Where a Basic header keeps the time at which a message of Fast expires.
EXPIRES_AT = "x-expires-at"

# Fields of Fast that are properties of Basic, and no headers.
_TEXTS = {
    b"$CORRELATION_ID": "correlation_id",
    b"$REPLY_TO": "reply_to",
    b"$TYPE": "type",
    b"$USER_ID": "user_id",
    b"$APP_ID": "app_id",
    b"$CLUSTER_ID": "cluster_id",
}
_TIMESTAMP = b"$TIMESTAMP"

# What is to live longer has no expiration in Basic: ten years, the most that the broker takes.
LIFETIME_MS_MAX = 10 * 365 * 86_400_000

Names = Mapping[bytes, bytes]
NO_NAMES: Names = {}


def basic_header(head: bytes, mime_type: str, encoding: str, now_ms: int, names: Names = NO_NAMES) -> bytes:
    """A Basic content header with a body size of 0 for a Fast header, whose body size is not among `head`.

    `names`: what short names of the connection's dictionary stand for.
    """
    persistent, priority, expiration = _FIXED.unpack_from(head)
    if priority > message_head.PRIORITY_MAX:
        text = f"message header: priority {priority} is above {message_head.PRIORITY_MAX}"
        raise ConnectionFault(amqp.SYNTAX_ERROR, text)
    texts, at = [], _FIXED.size
    for name in ("mime type", "encoding", "identifier"):
        stop = at + 1 + head[at]
        texts.append(commands.read_text(head[at + 1 : stop], f"message header: {name}"))
        at = stop
    properties = BasicProperties(
        content_type=texts[0] or mime_type or None,
        content_encoding=texts[1] or encoding or None,
        message_id=texts[2] or None,
        delivery_mode=2 if persistent & 1 else None,
        priority=priority or None,
    )
    if expiration:
        left_ms = max(expiration * 1000 - now_ms, 0)
        properties.expiration = str(left_ms) if left_ms <= LIFETIME_MS_MAX else None
    headers = _basic_headers(head[at + 2 :], properties, expiration, names)
    encoded = encode_properties(properties)
    if headers:
        encoded = _with_headers(encoded, properties, headers)
    return _BASIC.pack(amqp.CLASS_BASIC, 0, 0) + encoded


def _with_headers(encoded: bytes, properties: BasicProperties, headers: bytes) -> bytes:
    """Headers are octets, which the codec of properties does not take; two texts may precede them."""
    at = 2
    for text in (properties.content_type, properties.content_encoding):
        if text is not None:
            at += 1 + encoded[at]
    flags = _SHORT.unpack_from(encoded)[0] | amqp.FLAG_HEADERS
    return _SHORT.pack(flags) + encoded[2:at] + _LONG.pack(len(headers)) + headers + encoded[at:]


def _basic_headers(table: bytes, properties: BasicProperties, expiration: int, names: Names) -> bytes:
    """The entries of a Basic table; what is a property goes there."""
    parts = []
    if expiration:
        name = EXPIRES_AT.encode()
        parts.append(bytes((len(name),)) + name + b"T" + expiration.to_bytes(8, "big"))
    for short_name, kind, value in tables.entries(table):
        name = names.get(short_name, short_name)
        if name in _TEXTS and kind == ord("S"):
            text = commands.read_text(value[2:], f"field {name.decode()}")
            if len(value) - 2 > commands.SHORTSTR_OCTETS_MAX:
                raise ConnectionFault(amqp.SYNTAX_ERROR, f"field {name.decode()} is longer than 255 octets")
            setattr(properties, _TEXTS[name], text or None)
        elif name == _TIMESTAMP and kind == ord("T"):
            properties.timestamp = int.from_bytes(value, "big")
        else:
            if kind == ord("S"):
                value = _LONG.pack(len(value) - 2) + value[2:]
            elif kind == ord("T"):
                value = bytes(4) + value
            parts.append(bytes((len(name),)) + name + bytes((kind,)) + value)
    return b"".join(parts)


def with_copies(header: bytes, names: list[str]) -> bytes:
    """A Basic header whose message goes to these queues too, of which its consumers see nothing."""
    start, end = place_of(header, amqp.FLAG_HEADERS)
    keys: list[FieldValue] = [*names]
    entries = header[start + 4 : end] + b"\x03BCC" + encode_value(keys)
    return with_property(header, amqp.FLAG_HEADERS, _LONG.pack(len(entries)) + entries)


def fast_head(header: bytes, now_ms: int, names: Names = NO_NAMES) -> bytes:
    """A Fast header, without its body size, for a Basic content header.

    `names`: the short names of the connection's dictionary. A header that nobody can read is left out.
    """
    properties = decode_basic_properties(header, 12, len(header))
    expiration = _expires_at((properties.headers or {}).get(EXPIRES_AT), properties, now_ms)
    fixed = _FIXED.pack(
        properties.delivery_mode == 2, min(properties.priority or 0, message_head.PRIORITY_MAX), expiration
    )
    texts = [
        short_text((text or "").encode("utf-8", "surrogateescape"))
        for text in (properties.content_type, properties.content_encoding, properties.message_id)
    ]
    table = _fast_headers(properties, names)
    return b"".join((fixed, *texts, _SHORT.pack(len(table)), table))


def short_text(octets: bytes) -> bytes:
    """An encoded short string: Fast has UTF-8 without NUL alone, and what is none of that becomes U+FFFD."""
    if not octets.isascii() or 0 in octets:
        text = octets.decode("utf-8", "replace").replace("\0", "\ufffd")
        octets = text.encode()[: commands.SHORTSTR_OCTETS_MAX].decode("utf-8", "ignore").encode()
    return bytes((len(octets),)) + octets


def _expires_at(noted: FieldValue, properties: BasicProperties, now_ms: int) -> int:
    """In seconds. What came by Basic says how long it lives: from its timestamp on, else from now."""
    if isinstance(noted, datetime):
        return max(0, min(int(noted.timestamp()), 2**32 - 1))
    if properties.expiration is None:
        return 0
    since_s = now_ms / 1000 if properties.timestamp is None else properties.timestamp
    text = properties.expiration or ""
    lifetime_ms = int(text) if text.isascii() and text.isdigit() else 0
    return max(1, min(int(since_s + lifetime_ms / 1000 + 0.999), 2**32 - 1))


def _fast_headers(properties: BasicProperties, names: Names) -> bytes:
    parts, size = [], 0
    found: list[tuple[bytes, FieldValue]] = [
        (field, getattr(properties, name)) for field, name in _TEXTS.items() if getattr(properties, name)
    ]
    if properties.timestamp is not None:
        found.append((_TIMESTAMP, Timestamp(properties.timestamp)))
    found += [
        (name.encode("utf-8", "surrogateescape"), value)
        for name, value in (properties.headers or {}).items()
        if name != EXPIRES_AT
    ]
    for full_name, value in found:
        name = names.get(full_name, full_name)
        kind, octets = fast_value(value)
        entry = tables.entry(name, kind, octets) if tables.is_name(name) else b""
        if size + len(entry) <= tables.TABLE_OCTETS_MAX:
            parts.append(entry)
            size += len(entry)
    return b"".join(parts)


def fast_value(value: FieldValue) -> tuple[int, bytes]:
    """Type and octets of a value in a Fast table."""
    if isinstance(value, Timestamp) and 0 <= value < 2**32:
        return ord("T"), value.to_bytes(4, "big")
    if isinstance(value, (str, bytes, int, Decimal, datetime)):
        try:
            return tables.encode_value(value)
        except (ProtocolMisuse, UnicodeEncodeError):
            value = str(value) if not isinstance(value, str) else value.encode("utf-8", "surrogateescape")
    elif value is None:
        value = ""
    elif isinstance(value, float):
        value = repr(value)
    else:
        value = json.dumps(value, default=_json_value, ensure_ascii=False)
    octets = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
    octets = octets[: tables.TABLE_OCTETS_MAX]
    return ord("S"), _SHORT.pack(len(octets)) + octets


def _json_value(value: object) -> object:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(value)
