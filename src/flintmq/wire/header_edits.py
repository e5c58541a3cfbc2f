"""Changing one property of a basic content header, and leaving all its other octets as they came.

    | class 2 | weight 2 | body size 8 | flags 2 | properties whose flags are set, from bit 15 down ... |

The header has been surveyed (wire/content.py): its lengths fit.
"""

from __future__ import annotations

import struct

from flintmq.errors import ConnectionFault
from flintmq.wire import amqp
from flintmq.wire.headers import entry_places
from flintmq.wire.tables import letter_table, number_table

_FLAGS = struct.Struct(">H")
_LENGTH = struct.Struct(">I")
FLAGS_AT = 12
PROPERTIES_AT = 14
_OCTETS = {amqp.FLAG_DELIVERY_MODE: 1, amqp.FLAG_PRIORITY: 1, amqp.FLAG_TIMESTAMP: 8}


def place_of(header: bytes, flag: int) -> tuple[int, int]:
    """Where the property of this flag is, or where it would be: start and end, the same if there is none."""
    flags: int = _FLAGS.unpack_from(header, FLAGS_AT)[0]
    at = PROPERTIES_AT
    bit = 0x8000
    while bit:
        size = 0
        if flags & bit:
            if bit == amqp.FLAG_HEADERS:
                size = 4 + _LENGTH.unpack_from(header, at)[0]
            else:
                size = _OCTETS.get(bit) or 1 + header[at]
        if bit == flag:
            return at, at + size
        at += size
        bit >>= 1
    raise ValueError(f"no property has the flag {flag:#06x}")


def with_property(header: bytes, flag: int, value: bytes) -> bytes:
    """The header with another value of a property, given as octets; without any if there are none."""
    start, end = place_of(header, flag)
    flags: int = _FLAGS.unpack_from(header, FLAGS_AT)[0]
    flags = flags | flag if value else flags & ~flag
    return header[:FLAGS_AT] + _FLAGS.pack(flags) + header[PROPERTIES_AT:start] + value + header[end:]


def with_letters(header: bytes) -> bytes:
    """The header with headers that any client can read; a ConnectionFault when nobody could."""
    start, end = place_of(header, amqp.FLAG_HEADERS)
    table = letter_table(header, start, end, "basic headers")
    return header if table == header[start:end] else with_property(header, amqp.FLAG_HEADERS, table)


def with_numbers(content: bytes) -> bytes:
    """A content whose headers have numbers for types, for peers that open with the header of the 0-9 text."""
    start, end = place_of(content, amqp.FLAG_HEADERS)
    if start == end:
        return content
    try:
        table = number_table(content, start, end, "basic headers")
    except ConnectionFault:
        return content  # no peer can read such headers: they stay as they came
    return content[:start] + table + content[end:]


def without_entry(header: bytes, name: str) -> bytes:
    """The header without one entry of its headers table."""
    places = entry_places(header, len(header), name.encode())
    if not places:
        return header
    start, end = place_of(header, amqp.FLAG_HEADERS)
    kept = []
    at = start + _LENGTH.size
    for entry_at, _, after in places:
        kept.append(header[at:entry_at])
        at = after
    entries = b"".join([*kept, header[at:end]])
    return with_property(header, amqp.FLAG_HEADERS, _LENGTH.pack(len(entries)) + entries)
