"""Reading what a surveyed basic content header says, at the speed of routing.

    | class 2 | weight 2 | body size 8 | flags 2 | properties of the flags that are set ... |
                                           ^ 12

`read_property` steps over what it is not asked for, `entry_places` over all entries of the headers but
those of one name, and `read_headers_among` over all but those of some names. `read_headers` decodes a table
of the field types that headers nearly always have; any other value, and a table with a mistake in it, is left
to tables.py, so that there is one place which knows all types and words all faults.
"""

from __future__ import annotations

from flintmq.errors import ProtocolMisuse
from flintmq.wire import amqp, content, octets
from flintmq.wire.tables import FieldTable, FieldValue, decode_table, decode_value

# A sieve of names has a slot for each hash of 12 bits: 200 names leave 19 of 20 others behind.
SIEVE_SLOTS = 4096
_SLOT_SHIFT = 52
# Of a hash by multiplication, eight octets at a time. The salt differs from process to process, as the hashes
# of texts do: nobody finds names that fall through each sieve.
_WORD_MASK = 0xFFFFFFFFFFFFFFFF
_FACTOR = 0x9E3779B97F4A7C15
_SALT = hash("names of headers") & _WORD_MASK


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


def read_property(whole: bytes, end: int, wanted: int) -> str | int | None:
    """The property with the flag `wanted` of the header in `whole`[:end], but for its headers."""
    source = octets.readable_bytes(whole)
    at = find_property(source, 12, end, wanted)
    if at < 0:
        return None
    if wanted == amqp.FLAG_DELIVERY_MODE or wanted == amqp.FLAG_PRIORITY:
        return source[at]
    if wanted == amqp.FLAG_TIMESTAMP:
        return octets.read_longlong(source, at) if end - at >= 8 else None
    size = source[at]
    return octets.text(source, at + 1, at + 1 + size) if end - at > size else None


def read_headers(whole: bytes, end: int) -> FieldTable:
    """The headers of the content header in `whole`[:end]; a ConnectionFault when they are malformed."""
    source = octets.readable_bytes(whole)
    at = find_property(source, 12, end, amqp.FLAG_HEADERS)
    return {} if at < 0 else read_table(whole, at, end, None, None)


def read_headers_among(whole: bytes, end: int, names: dict[str, int], sieve: bytearray) -> FieldTable:
    """As read_headers, without headers that have none of these names; the sieve has a 1 for each of them.

    Of the others no object is made: a message with thousands of headers costs little where few are asked for.
    """
    source = octets.readable_bytes(whole)
    at = find_property(source, 12, end, amqp.FLAG_HEADERS)
    return {} if at < 0 else read_table(whole, at, end, names, sieve)


def sieve_slot(source: octets.Readable, start: int, stop: int) -> int:
    """The slot of the name in these octets."""
    hashed = _SALT
    while stop - start >= 8:
        hashed = (hashed ^ octets.read_longlong(source, start)) * _FACTOR & _WORD_MASK
        start += 8
    word = stop - start
    while start < stop:
        word = (word << 8) | source[start]
        start += 1
    return ((hashed ^ word) * _FACTOR & _WORD_MASK) >> _SLOT_SHIFT


def put_in_sieve(sieve: bytearray, name: str) -> None:
    """From now on headers of this name fall through the sieve."""
    whole = name.encode("utf-8", "surrogateescape")
    sieve[sieve_slot(octets.readable_bytes(whole), 0, len(whole))] = 1


def read_table(
    whole: bytes, at: int, end: int, names: dict[str, int] | None, sieve: bytearray | None
) -> FieldTable:
    """The table at `at`, as decode_table gives it: of a name that is there twice the first value counts.

    With `names` and their sieve those alone.
    """
    source = octets.readable_bytes(whole)
    if end - at < 4:
        return decode_table(whole, at, end, "basic headers")[0]
    size = octets.read_long(source, at)
    start = at + 4
    if size > end - start:
        return decode_table(whole, at, end, "basic headers")[0]
    stop = start + size
    table: FieldTable = {}
    while start < stop:
        size = source[start]
        if stop - start < size + 2:
            return decode_table(whole, at, end, "basic headers")[0]
        if sieve is not None and names is not None:
            after = content.after_value(source, start + size + 1, stop, 1)
            if after < 0:
                return decode_table(whole, at, end, "basic headers")[0]
            if not sieve[sieve_slot(source, start + 1, start + 1 + size)]:
                start = after
                continue
            name = octets.text(source, start + 1, start + 1 + size)
            if name not in names or name in table:
                start = after
                continue
        else:
            name = octets.text(source, start + 1, start + 1 + size)
        start += size + 1
        kind = source[start]
        left = stop - start - 1
        if kind == 0x53 and left >= 4:  # S
            size = octets.read_long(source, start + 1)
            if size > left - 4:
                return decode_table(whole, at, end, "basic headers")[0]
            text = octets.text_or_none(source, start + 5, start + 5 + size)
            table.setdefault(name, octets.copy(source, start + 5, start + 5 + size) if text is None else text)
            start += 5 + size
        elif kind == 0x49 and left >= 4:  # I
            table.setdefault(name, octets.read_signed_long(source, start + 1))
            start += 5
        elif kind == 0x6C and left >= 8:  # l
            table.setdefault(name, octets.read_signed_longlong(source, start + 1))
            start += 9
        elif kind == 0x64 and left >= 8:  # d
            table.setdefault(name, octets.read_double(source, start + 1))
            start += 9
        elif kind == 0x74 and left >= 1:  # t
            table.setdefault(name, source[start + 1] != 0)
            start += 2
        elif kind == 0x56:  # V
            table.setdefault(name, None)
            start += 1
        else:
            value, start = decode_value(whole, start, stop, "basic headers")
            table.setdefault(name, value)
    return table


def entry_places(whole: bytes, end: int, name: bytes) -> list[tuple[int, int, int]]:
    """The headers of this name in `whole`[:end]: where each starts, its type is, and it stops.

    Of a table that survey (content.py) has vouched for. Nothing of the others is made an object of.
    """
    found: list[tuple[int, int, int]] = []
    source = octets.readable_bytes(whole)
    at = find_property(source, 12, end, amqp.FLAG_HEADERS)
    if at < 0 or end - at < 4:
        return found
    stop = at + 4 + octets.read_long(source, at)
    at += 4
    while at < stop:
        type_at = at + 1 + source[at]
        after = content.after_value(source, type_at, stop, 1) if type_at < stop <= end else -1
        if after < 0:
            decode_table(whole, find_property(source, 12, end, amqp.FLAG_HEADERS), end, "basic headers")
            raise ProtocolMisuse("headers with field types of 0-9, which should have been made letters")
        if octets.equal(source, at + 1, type_at, name):
            found.append((at, type_at, after))
        at = after
    return found


def read_header(whole: bytes, end: int, name: bytes) -> tuple[FieldValue, bool]:
    """One header, the first of its name, and whether there is one."""
    places = entry_places(whole, end, name)
    if not places:
        return None, False
    _, type_at, after = places[0]
    return decode_value(whole, type_at, after, "basic headers")[0], True
