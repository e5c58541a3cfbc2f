"""Reading what a surveyed basic content header says, at the speed of routing.

    | class 2 | weight 2 | body size 8 | flags 2 | properties of the flags that are set ... |
                                           ^ 12

`read_property` steps over what it is not asked for. `read_headers` decodes a table of the field types
that headers nearly always have; a table with any other, or with a mistake in it, is left to tables.py,
so that there is one place which knows all types and words all faults.
"""

from __future__ import annotations

from flintmq.wire import amqp, octets
from flintmq.wire.tables import FieldTable, decode_table

# An entry has three octets or more, so a table of this size cannot have more than tables.py allows.
TABLE_BYTES_MAX = 65_535


def find_property(source: octets.Readable, at: int, end: int, wanted: int) -> int:
    """Where the value of the property with the flag `wanted` starts; -1 when it is not there."""
    if end - at < 2:
        return -1
    flags = octets.read_short(source, at)
    if not flags & wanted:
        return -1
    at += 2
    bit = 0x8000
    while bit != wanted and at < end:
        if flags & bit:
            if bit == amqp.FLAG_HEADERS:
                if end - at < 4:
                    return -1
                size = octets.read_long(source, at)
                at += 4
                at += size
            elif bit == amqp.FLAG_DELIVERY_MODE or bit == amqp.FLAG_PRIORITY:
                at += 1
            elif bit == amqp.FLAG_TIMESTAMP:
                at += 8
            else:
                at += 1 + source[at]
        bit >>= 1
    return at if at < end else -1


def read_property(content: bytes, end: int, wanted: int) -> str | int | None:
    """The property with the flag `wanted` of the header in `content`[:end], but for its headers."""
    source = octets.readable_bytes(content)
    at = find_property(source, 12, end, wanted)
    if at < 0:
        return None
    if wanted == amqp.FLAG_DELIVERY_MODE or wanted == amqp.FLAG_PRIORITY:
        return source[at]
    if wanted == amqp.FLAG_TIMESTAMP:
        return octets.read_longlong(source, at) if end - at >= 8 else None
    size = source[at]
    return octets.text(source, at + 1, at + 1 + size) if end - at > size else None


def read_headers(content: bytes, end: int) -> FieldTable:
    """The headers of the content header in `content`[:end]; a ConnectionFault when they are malformed."""
    source = octets.readable_bytes(content)
    at = find_property(source, 12, end, amqp.FLAG_HEADERS)
    return {} if at < 0 else read_table(content, at, end)


def read_table(content: bytes, at: int, end: int) -> FieldTable:
    """The table at `at`, as decode_table gives it."""
    source = octets.readable_bytes(content)
    if end - at < 4:
        return decode_table(content, at, end, "basic headers")[0]
    size = octets.read_long(source, at)
    start = at + 4
    if size > end - start or size > TABLE_BYTES_MAX:
        return decode_table(content, at, end, "basic headers")[0]
    stop = start + size
    table: FieldTable = {}
    while start < stop:
        size = source[start]
        # A name, a type and at least one octet of a value.
        if stop - start < size + 3:
            return decode_table(content, at, end, "basic headers")[0]
        name = octets.text(source, start + 1, start + 1 + size)
        kind = source[start + 1 + size]
        start += size + 2
        if kind == 0x53 and stop - start >= 4:  # S
            size = octets.read_long(source, start)
            start += 4
            text = octets.text_or_none(source, start, start + size) if size <= stop - start else None
            if text is None:
                return decode_table(content, at, end, "basic headers")[0]
            table[name] = text
            start += size
        elif kind == 0x49 and stop - start >= 4:  # I
            table[name] = octets.read_signed_long(source, start)
            start += 4
        elif kind == 0x6C and stop - start >= 8:  # l
            table[name] = octets.read_signed_longlong(source, start)
            start += 8
        elif kind == 0x74:  # t
            table[name] = source[start] != 0
            start += 1
        else:
            return decode_table(content, at, end, "basic headers")[0]
    return table
