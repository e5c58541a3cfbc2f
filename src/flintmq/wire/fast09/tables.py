"""Field tables of AMQP/Fast 0.9: names and typed values.

    table   | length (4) | entry | entry | ...
    entry   | name length (1) | name | type (1) | value |

    S   length (1), octets      str, or bytes when they are not UTF-8
    L   length (2), octets      the same
    I   4 octets, signed        int
    D   decimals (1), 4 octets  Decimal
    T   8 octets                datetime in UTC, or a Timestamp where that holds no such time
    F   a table                 dict

The length has four octets, as the grammar of section 3.9.2 says; 3.9.6 calls a table a long string, which
would have two. Names are those of AMQP/Fast 0.8 (wire/fast/tables.py): of what follows the first letter
nothing is checked, as the document forbids hyphens there and uses them. Of equal names the first counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from struct import Struct

from flintmq.errors import ConnectionFault, ProtocolMisuse
from flintmq.wire import amqp
from flintmq.wire.fast import tables as fast
from flintmq.wire.tables import FieldTable, FieldValue, Timestamp

_SHORT = Struct(">H")
_LONG = Struct(">I")
_INTEGER = Struct(">i")
_TIME = Struct(">Q")
_DECIMAL = Struct(">Bi")
_FIXED = {ord("I"): 4, ord("T"): 8, ord("D"): 5}
# Types whose length comes first, and how many octets that has.
_LENGTHS = {ord("S"): 1, ord("L"): 2, ord("F"): 4}

SHORT_OCTETS_MAX = 255
LONG_OCTETS_MAX = 65_535
# Fields of a table with those of the tables in it: as many as a message may have headers.
ENTRIES_MAX = fast.ENTRIES_MAX
DEPTH_MAX = 16
DATETIME_SECONDS_MAX = 253_402_300_799  # the end of the year 9999


class _Budget:
    """How many fields may still come."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = ENTRIES_MAX


def decode(octets: bytes, at: int, end: int) -> tuple[FieldTable, int]:
    """The table that begins at `at` with its length, and the position behind it."""
    return _decode(octets, at, end, _Budget(), 1)


def _decode(octets: bytes, at: int, end: int, budget: _Budget, depth: int) -> tuple[FieldTable, int]:
    if depth > DEPTH_MAX:
        raise _fault(f"more than {DEPTH_MAX} tables in one another")
    if end - at < 4:
        raise _fault("its length is cut short")
    stop = at + 4 + _LONG.unpack_from(octets, at)[0]
    if stop > end:
        raise _fault("it is cut short")
    at += 4
    found: FieldTable = {}
    while at < stop:
        budget.left -= 1
        if budget.left < 0:
            raise _fault(f"more than {ENTRIES_MAX} fields")
        type_at = at + 1 + octets[at]
        if type_at >= stop:
            raise _fault("a field is cut short")
        name = _name(octets[at + 1 : type_at])
        value, at = _value(octets, type_at, stop, budget, depth)
        found.setdefault(name, value)
    return found, stop


def _name(octets: bytes) -> str:
    fast.check_name(octets)
    try:
        return octets.decode()
    except UnicodeDecodeError:
        raise _fault(f"the name {octets[:32]!r} is not UTF-8") from None


def _value(octets: bytes, type_at: int, stop: int, budget: _Budget, depth: int) -> tuple[FieldValue, int]:
    kind, at = octets[type_at], type_at + 1
    if kind == ord("F"):
        return _decode(octets, at, stop, budget, depth + 1)
    width = _LENGTHS.get(kind, 0)
    size = _FIXED.get(kind, -1)
    if width:
        if stop - at < width:
            raise _fault("a value is cut short")
        size = int.from_bytes(octets[at : at + width], "big")
        at += width
    if size < 0:
        raise _fault(f"unknown type {kind:#04x}: S, L, I, D, T and F are known")
    if stop - at < size:
        raise _fault("a value is cut short")
    value = octets[at : at + size]
    if kind == ord("S") and 0 in value:
        raise _fault("a short string contains a NUL")
    return _decoded(kind, value), at + size


def _decoded(kind: int, octets: bytes) -> FieldValue:
    if kind == ord("I"):
        number: int = _INTEGER.unpack(octets)[0]
        return number
    if kind == ord("T"):
        seconds: int = _TIME.unpack(octets)[0]
        return datetime.fromtimestamp(seconds, UTC) if seconds <= DATETIME_SECONDS_MAX else Timestamp(seconds)
    if kind == ord("D"):
        places, unscaled = _DECIMAL.unpack(octets)
        return Decimal(unscaled).scaleb(-places)
    try:
        return octets.decode()
    except UnicodeDecodeError:
        return octets


def field_count(value: FieldValue) -> int:
    """How many fields a field of this value is, with those in it."""
    return 1 + sum(map(field_count, value.values())) if isinstance(value, dict) else 1


def encode(table: Mapping[str, FieldValue], depth: int = 1) -> bytes:
    """The table with its length; a ProtocolMisuse where a value has no type here."""
    if depth > DEPTH_MAX:
        raise ProtocolMisuse(f"more than {DEPTH_MAX} tables in one another")
    parts = []
    for name, value in table.items():
        octets = name.encode("utf-8", "surrogateescape")
        if not fast.is_name(octets):
            raise ProtocolMisuse(f"{name[:32]!r} is no name of a field: it begins with a letter, $ or #")
        parts.append(bytes((len(octets),)) + octets + encode_value(value, depth))
    whole = b"".join(parts)
    return _LONG.pack(len(whole)) + whole


def encode_value(value: FieldValue, depth: int = 1) -> bytes:
    """Type and octets."""
    if isinstance(value, dict):
        return b"F" + encode(value, depth + 1)
    if isinstance(value, Timestamp):
        if not 0 <= value < 1 << 64:
            raise ProtocolMisuse(f"{value!r} is not among the times that 64 bits hold")
        return b"T" + _TIME.pack(value)
    if isinstance(value, int):
        if not -(2**31) <= value < 2**31:
            raise ProtocolMisuse(f"{value} has more than the 32 bits of an integer field")
        return b"I" + _INTEGER.pack(value)
    if isinstance(value, datetime):
        seconds = int(value.timestamp())
        if seconds < 0:
            raise ProtocolMisuse(f"{value} is before 1970")
        return b"T" + _TIME.pack(seconds)
    if isinstance(value, Decimal):
        return b"D" + fast.encode_value(value)[1]
    if not isinstance(value, (str, bytes)):
        raise ProtocolMisuse(f"a field cannot hold a value of type {type(value).__name__}")
    octets = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
    if isinstance(value, str) and len(octets) <= SHORT_OCTETS_MAX and 0 not in octets:
        return b"S" + bytes((len(octets),)) + octets
    if len(octets) > LONG_OCTETS_MAX:
        raise ProtocolMisuse(f"a field of {len(octets)} octets is longer than {LONG_OCTETS_MAX}")
    return b"L" + _SHORT.pack(len(octets)) + octets


def _fault(what: str) -> ConnectionFault:
    return ConnectionFault(amqp.SYNTAX_ERROR, f"field table: {what}")
