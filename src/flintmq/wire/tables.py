"""Field tables and field arrays: names and typed values, as they stand in arguments and headers.

    table   | length (4) | entry | entry | ...        length counts the octets of the entries
    entry   | name length (1) | name | type (1) | value |
    array   | length (4) | type (1) | value | type (1) | value | ...

The type octet is a letter, with the meanings clients really use, or one of the numbers 0x00 to 0xF0 of
the 0-9 text. No number is a letter in use, so both are always understood. What they become, and go
back as:

    octets      decoded to                          a Python value      encoded as
    S           str, or bytes when not UTF-8        str                 S
    x           bytes                               bytes, bytearray    x
    t           bool                                bool                t
    b B s U u   int                                 int of 32 bits      I
    I i l L     int                                 int of 64 bits      l
    f d         float                               float               d
    D           Decimal                             Decimal             D
    T           datetime in UTC, or Timestamp       datetime, Timestamp T
    F A V       dict, list, None                    dict, list, None    F A V

So a decoded value encodes to the same value, if not always with the same letter: an S that is not
UTF-8 comes back as x. No number is sent but to peers that open with the header
of the 0-9 text (number_table), as clients of 0-9-1 do not read them: what no letter can
hold, integers from 2**63 on and decimals of more than 32 bits, goes as its digits in text. The numbers
for opaque octets, and the UUID, become bytes; the ones for text become str where the octets are text.
Where entries must stay as they came, split_entries and join_entries move them without decoding, and
letter_table changes those alone that have a number for their type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from struct import Struct
from typing import Any, TypeAlias

from flintmq.errors import ConnectionFault, ProtocolMisuse
from flintmq.wire import amqp
from flintmq.wire.fields import encode_shortstr

# Tables within tables: the table itself is the first level. Each level costs the decoder a few frames
# of the Python stack, which holds a thousand; real headers (x-death) have three levels.
DEPTH_MAX = 32

# Entries and array elements in one decoded table, nested ones included. An element takes one octet on the
# wire and some hundred in memory: 65,535 of them are about 8 MiB, however large a frame was agreed on.
ENTRIES_MAX = 65_535

# The same in the arguments of a method, which are decoded, compared and written to the journal in one go:
# some 5 microseconds for each. A login has one such table too, for which no password is asked.
ARGUMENTS_MAX = 1024

# The same in headers with a number for some type, which are written anew entry by entry (letter_table): some
# 2 microseconds for each. Clients of 0-9 alone send such.
NUMBERED_MAX = 512

_LENGTH = Struct(">I")
_LENGTH_BYTES = 4
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)
_DATETIME_MIN_S = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _SECOND
_DATETIME_MAX_S = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _SECOND


class Timestamp(int):
    """Seconds since 1970 which no datetime can hold."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Timestamp({int(self)})"


class LongLong(int):
    """A number to be written with 64 bits, be it small: some clients take the size for the type."""

    __slots__ = ()


FieldValue: TypeAlias = (
    "str | bytes | bool | int | float | Decimal | datetime | list[FieldValue] | dict[str, FieldValue] | None"
)
FieldTable: TypeAlias = dict[str, FieldValue]


def _timestamp(seconds: int) -> FieldValue:
    if _DATETIME_MIN_S <= seconds <= _DATETIME_MAX_S:
        return _EPOCH + timedelta(seconds=seconds)
    return Timestamp(seconds)


def _decimal(places: int, unscaled: int) -> Decimal:
    digits = tuple(map(int, str(abs(unscaled))))
    return Decimal((int(unscaled < 0), digits, -places))


def _text(octets: bytes, encoding: str) -> FieldValue:
    """The text the octets are, or the octets when they are none."""
    try:
        return octets.decode(encoding)
    except UnicodeDecodeError:
        return octets


# Types of a fixed size: how to read one, and what to make of it (None: as it is).
_FIXED: dict[int, tuple[Struct, Callable[..., FieldValue] | None]] = {
    ord("t"): (Struct(">B"), bool),
    ord("b"): (Struct(">b"), None),
    ord("B"): (Struct(">B"), None),
    ord("s"): (Struct(">h"), None),
    ord("U"): (Struct(">h"), None),
    ord("u"): (Struct(">H"), None),
    ord("I"): (Struct(">i"), None),
    ord("i"): (Struct(">I"), None),
    ord("l"): (Struct(">q"), None),
    ord("L"): (Struct(">q"), None),
    ord("f"): (Struct(">f"), None),
    ord("d"): (Struct(">d"), None),
    ord("D"): (Struct(">Bi"), _decimal),
    ord("T"): (Struct(">q"), _timestamp),
    ord("V"): (Struct(">"), lambda: None),
    0x00: (Struct("1s"), None),
    0x01: (Struct(">b"), None),
    0x02: (Struct(">B"), None),
    0x04: (Struct("1s"), lambda octets: _text(octets, "iso-8859-15")),
    0x08: (Struct(">B"), bool),
    0x10: (Struct("2s"), None),
    0x11: (Struct(">h"), None),
    0x12: (Struct(">H"), None),
    0x20: (Struct("4s"), None),
    0x21: (Struct(">i"), None),
    0x22: (Struct(">I"), None),
    0x23: (Struct(">f"), None),
    0x27: (Struct("4s"), lambda octets: _text(octets, "utf-32-be")),
    0x30: (Struct("8s"), None),
    0x31: (Struct(">q"), None),
    0x32: (Struct(">Q"), None),
    0x33: (Struct(">d"), None),
    0x38: (Struct(">q"), _timestamp),
    0x40: (Struct("16s"), None),
    0x48: (Struct("16s"), None),
    0x50: (Struct("32s"), None),
    0x60: (Struct("64s"), None),
    0x70: (Struct("128s"), None),
    0xC0: (Struct("5s"), None),
    0xC8: (Struct(">Bi"), _decimal),
    0xD0: (Struct("9s"), None),
    0xD8: (Struct(">Bq"), _decimal),
    0xF0: (Struct(">"), lambda: None),
}

# Types with a length before them: the octets of the length, and the encoding of the text (None: opaque).
_VARIABLE: dict[int, tuple[int, str | None]] = {
    ord("S"): (4, "utf-8"),
    ord("x"): (4, None),
    0x80: (1, None),
    0x84: (1, "iso-8859-15"),
    0x85: (1, "utf-8"),
    0x86: (1, "utf-16-be"),
    0x87: (1, "utf-32-be"),
    0x90: (2, None),
    0x94: (2, "iso-8859-15"),
    0x95: (2, "utf-8"),
    0x96: (2, "utf-16-be"),
    0x97: (2, "utf-32-be"),
    0xA0: (4, None),
    0xA4: (4, "iso-8859-15"),
    0xA5: (4, "utf-8"),
    0xA6: (4, "utf-16-be"),
    0xA7: (4, "utf-32-be"),
}

_TABLES = frozenset((ord("F"), 0xA8))
_ARRAYS = frozenset((ord("A"), 0xA9))
_UNIFORM_ARRAY = 0xAA
_CONTAINERS = _TABLES | _ARRAYS | {_UNIFORM_ARRAY}
_LETTERS = frozenset(b"tbBsUuIilLfdDTVSxFA")
# The numbers whose values have the same octets behind a letter.
_LETTER_OF = {
    0x01: b"b",
    0x02: b"B",
    0x08: b"t",
    0x11: b"s",
    0x12: b"u",
    0x21: b"I",
    0x22: b"i",
    0x23: b"f",
    0x31: b"l",
    0x33: b"d",
    0x38: b"T",
    0xA0: b"x",
    0xA5: b"S",
    0xC8: b"D",
    0xF0: b"V",
}

# The other way round, for peers that open with the header of the 0-9 text. The values keep their octets.
_NUMBER_OF = {
    **{letter[0]: bytes((code,)) for code, letter in _LETTER_OF.items()},
    ord("U"): b"\x11",
    ord("L"): b"\x31",
}


def decode_table(octets: bytes, at: int, end: int, what: str = "table") -> tuple[FieldTable, int]:
    """Decodes the table at `at`, which must lie before `end`; returns it and the position after it.

    Of a name that is there twice the first value counts (000, 3.9.6). `what` names the table in a fault.
    """
    return _decode_table(octets, at, end, what, ENTRIES_MAX)


def decode_arguments(octets: bytes, at: int, end: int, what: str) -> tuple[FieldTable, int]:
    """decode_table for the arguments of a method, of which there may be fewer."""
    return _decode_table(octets, at, end, what, ARGUMENTS_MAX)


def _decode_table(octets: bytes, at: int, end: int, what: str, entries_max: int) -> tuple[FieldTable, int]:
    start, stop = _bounds(octets, at, end, what)
    if start == stop:
        return {}, stop
    return _Decoder(octets, what, entries_max).table(start, stop, 1), stop


def decode_value(octets: bytes, at: int, end: int, what: str = "value") -> tuple[FieldValue, int]:
    """Decodes one type octet and its value, as split_entries gives them; returns the position after too."""
    if at >= end:
        raise _fault(what, "has no type")
    return _Decoder(octets, what, ENTRIES_MAX).value(octets[at], at + 1, end, 1)


def split_entries(octets: bytes, at: int, end: int, what: str = "table") -> list[tuple[str, bytes]]:
    """The entries of the table at `at`: each one's name, and its type and value octets undecoded."""
    at, stop = _bounds(octets, at, end, what)
    entries: list[tuple[str, bytes]] = []
    while at < stop:
        if len(entries) >= ENTRIES_MAX:
            raise _fault(what, f"has more than {ENTRIES_MAX} entries")
        name, type_at = _name(octets, at, stop, what)
        at = _value_end(octets, type_at, stop, what)
        entries.append((name, octets[type_at:at]))
    return entries


def join_entries(entries: Iterable[tuple[str, bytes]]) -> bytes:
    """The table, length included, of entries as split_entries gives them."""
    return _with_length(b"".join([encode_shortstr(name) + value for name, value in entries]))


def _with_length(octets: bytes) -> bytes:
    return _LENGTH.pack(len(octets)) + octets


def letter_table(octets: bytes, at: int, end: int, what: str = "table") -> bytes:
    """The table at `at`, length included, with a letter for each number that was a type in it.

    The faults are those of decode_table, and NUMBERED_MAX is the limit. What had a letter stays as it came.
    """
    _decode_table(octets, at, end, what, NUMBERED_MAX)
    return _letter_entries(octets, at, end, what)


def _letter_entries(octets: bytes, at: int, end: int, what: str) -> bytes:
    entries = split_entries(octets, at, end, what)
    return join_entries([(name, _letter_value(value, what)) for name, value in entries])


def _letter_value(octets: bytes, what: str) -> bytes:
    """One type octet and its value, which have been decoded before."""
    code = octets[0]
    if code in _TABLES:
        return b"F" + _letter_entries(octets, 1, len(octets), what)
    if code in _ARRAYS:
        values: list[bytes] = []
        at, stop = _bounds(octets, 1, len(octets), what)
        while at < stop:
            value_end = _value_end(octets, at, stop, what)
            values.append(_letter_value(octets[at:value_end], what))
            at = value_end
        return b"A" + _with_length(b"".join(values))
    if code in _LETTERS:
        return octets
    letter = _LETTER_OF.get(code)
    if letter is not None:
        return letter + octets[1:]
    return encode_value(decode_value(octets, 0, len(octets), what)[0])


def number_table(octets: bytes, at: int, end: int, what: str = "table") -> bytes:
    """The table at `at`, length included and as long as before, with a number for each letter in it."""
    decode_table(octets, at, end, what)
    return _number_entries(octets, at, end, what)


def _number_entries(octets: bytes, at: int, end: int, what: str) -> bytes:
    entries = split_entries(octets, at, end, what)
    return join_entries([(name, _number_value(value, what)) for name, value in entries])


def _number_value(octets: bytes, what: str) -> bytes:
    """One type octet and its value, which have been decoded before."""
    code = octets[0]
    if code in _TABLES:
        return b"\xa8" + _number_entries(octets, 1, len(octets), what)
    if code in _ARRAYS:
        values: list[bytes] = []
        at, stop = _bounds(octets, 1, len(octets), what)
        while at < stop:
            value_end = _value_end(octets, at, stop, what)
            values.append(_number_value(octets[at:value_end], what))
            at = value_end
        return b"\xa9" + _with_length(b"".join(values))
    return _NUMBER_OF.get(code, octets[:1]) + octets[1:]


def encode_table(table: Mapping[str, FieldValue]) -> bytes:
    """Encodes a table, its length included."""
    if not table:
        return b"\x00\x00\x00\x00"
    return _encode_table(table, 1)


def encode_value(value: FieldValue) -> bytes:
    """Encodes one value, its type octet included."""
    return _encode_value(value, 1)


def _fault(what: str, text: str) -> ConnectionFault:
    return ConnectionFault(amqp.SYNTAX_ERROR, f"{what} {text}")


def _bounds(octets: bytes, at: int, end: int, what: str) -> tuple[int, int]:
    """Where the entries of the table or array at `at` start and stop."""
    start = at + _LENGTH_BYTES
    if start > end:
        raise _fault(what, "is cut short")
    stop: int = start + _LENGTH.unpack_from(octets, at)[0]
    if stop > end:
        raise _fault(what, f"has a length of {stop - start} octets where {end - start} are left")
    return start, stop


def _name(octets: bytes, at: int, stop: int, what: str) -> tuple[str, int]:
    """The entry name at `at`, and the position of the type octet, which is there."""
    type_at = at + 1 + octets[at]
    if type_at >= stop:
        raise _fault(what, "ends within an entry")
    return octets[at + 1 : type_at].decode("utf-8", "surrogateescape"), type_at


def _value_end(octets: bytes, type_at: int, stop: int, what: str) -> int:
    """The position after the value whose type is at `type_at`, read no further than its length."""
    code = octets[type_at]
    at = type_at + 1
    fixed = _FIXED.get(code)
    if fixed is not None:
        value_end = at + fixed[0].size
    elif code in _CONTAINERS:
        value_end = _bounds(octets, at, stop, what)[1]
    elif code in _VARIABLE:
        value_end = _variable_end(octets, at, stop, _VARIABLE[code][0])
    else:
        raise _fault(what, f"has a value of the unknown type 0x{code:02x}")
    if value_end > stop:
        raise _fault(what, "ends within a value")
    return value_end


def _variable_end(octets: bytes, at: int, stop: int, length_bytes: int) -> int:
    """The position after the length at `at` and what it counts; after `stop` when not all is there."""
    start = at + length_bytes
    if start > stop:
        return start
    return start + int.from_bytes(octets[at:start], "big")


class _Decoder:
    """One decode: counts its entries over all levels."""

    __slots__ = ("entries_left", "entries_max", "octets", "what")

    def __init__(self, octets: bytes, what: str, entries_max: int) -> None:
        self.octets = octets
        self.what = what
        self.entries_max = entries_max
        self.entries_left = entries_max

    def table(self, at: int, stop: int, depth: int) -> FieldTable:
        octets = self.octets
        table: FieldTable = {}
        while at < stop:
            self.count(1)
            name, type_at = _name(octets, at, stop, self.what)
            value, at = self.value(octets[type_at], type_at + 1, stop, depth)
            table.setdefault(name, value)
        return table

    def array(self, at: int, stop: int, depth: int) -> list[FieldValue]:
        octets = self.octets
        values: list[FieldValue] = []
        while at < stop:
            self.count(1)
            value, at = self.value(octets[at], at + 1, stop, depth)
            values.append(value)
        return values

    def uniform_array(self, at: int, stop: int, depth: int) -> list[FieldValue]:
        """The 0-9 array: one type octet, the number of values (4), and the values without types."""
        if at + 1 + _LENGTH_BYTES > stop:
            raise _fault(self.what, "ends within an array")
        code = self.octets[at]
        (count,) = _LENGTH.unpack_from(self.octets, at + 1)
        self.count(count)
        at += 1 + _LENGTH_BYTES
        values: list[FieldValue] = []
        for _ in range(count):
            value, at = self.value(code, at, stop, depth)
            values.append(value)
        if at != stop:
            raise _fault(self.what, "has an array with octets left over")
        return values

    def value(self, code: int, at: int, stop: int, depth: int) -> tuple[FieldValue, int]:
        """The value of type `code` at `at`, and the position after it."""
        octets = self.octets
        fixed = _FIXED.get(code)
        if fixed is not None:
            layout, convert = fixed
            value_end = at + layout.size
            if value_end > stop:
                raise _fault(self.what, "ends within a value")
            values: tuple[Any, ...] = layout.unpack_from(octets, at)
            return values[0] if convert is None else convert(*values), value_end
        variable = _VARIABLE.get(code)
        if variable is None:
            return self.container(code, at, stop, depth)
        length_bytes, encoding = variable
        value_end = _variable_end(octets, at, stop, length_bytes)
        if value_end > stop:
            raise _fault(self.what, "ends within a value")
        raw = octets[at + length_bytes : value_end]
        return raw if encoding is None else _text(raw, encoding), value_end

    def container(self, code: int, at: int, stop: int, depth: int) -> tuple[FieldValue, int]:
        if code not in _CONTAINERS:
            raise _fault(self.what, f"has a value of the unknown type 0x{code:02x}")
        if depth >= DEPTH_MAX:
            raise _fault(self.what, f"is nested deeper than {DEPTH_MAX} levels")
        start, value_end = _bounds(self.octets, at, stop, self.what)
        if code in _TABLES:
            return self.table(start, value_end, depth + 1), value_end
        if code in _ARRAYS:
            return self.array(start, value_end, depth + 1), value_end
        return self.uniform_array(start, value_end, depth + 1), value_end

    def count(self, entries: int) -> int:
        """Takes entries from what is left of the limit, before anything is made of them."""
        self.entries_left -= entries
        if self.entries_left < 0:
            raise _fault(self.what, f"has more than {self.entries_max} entries")
        return 0


def _encode_table(table: Mapping[str, FieldValue], depth: int) -> bytes:
    if depth > DEPTH_MAX:
        raise ProtocolMisuse(f"a table nested deeper than {DEPTH_MAX} levels")
    return join_entries([(name, _encode_value(value, depth)) for name, value in table.items()])


def _encode_array(values: list[FieldValue] | tuple[FieldValue, ...], depth: int) -> bytes:
    if depth > DEPTH_MAX:
        raise ProtocolMisuse(f"an array nested deeper than {DEPTH_MAX} levels")
    return _with_length(b"".join([_encode_value(value, depth) for value in values]))


def _encode_value(value: object, depth: int) -> bytes:
    """Encodes by the class of the value; bool and other kinds of int come before int."""
    if isinstance(value, str):
        return _encode_text(value)
    if value is None:
        return b"V"
    if isinstance(value, bool):
        return b"t\x01" if value else b"t\x00"
    if isinstance(value, Timestamp):
        return _encode_timestamp(int(value))
    if isinstance(value, LongLong):
        return b"l" + value.to_bytes(8, "big", signed=True)
    if isinstance(value, int):
        return _encode_int(value)
    if isinstance(value, dict):
        return b"F" + _encode_table(value, depth + 1)
    if isinstance(value, list | tuple):
        return b"A" + _encode_array(value, depth + 1)
    if isinstance(value, float):
        return Struct(">cd").pack(b"d", value)
    if isinstance(value, bytes | bytearray):
        return b"x" + _LENGTH.pack(len(value)) + value
    if isinstance(value, datetime):
        return _encode_datetime(value)
    if isinstance(value, Decimal):
        return _encode_decimal(value)
    raise ProtocolMisuse(f"a field table cannot hold a {type(value).__name__}")


def _encode_text(text: str) -> bytes:
    try:
        octets = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise ProtocolMisuse(f"a field value that is not text: {text[:40]!r}") from None
    return b"S" + _LENGTH.pack(len(octets)) + octets


def _encode_int(value: int) -> bytes:
    if -(1 << 31) <= value < 1 << 31:
        return b"I" + value.to_bytes(4, "big", signed=True)
    if -(1 << 63) <= value < 1 << 63:
        return b"l" + value.to_bytes(8, "big", signed=True)
    if 0 <= value < 1 << 64:
        return _encode_text(str(value))
    raise ProtocolMisuse(f"a field value of {value.bit_length()} bits")


def _encode_timestamp(seconds: int) -> bytes:
    if not -(1 << 63) <= seconds < 1 << 63:
        raise ProtocolMisuse(f"a timestamp of {seconds.bit_length()} bits")
    return b"T" + seconds.to_bytes(8, "big", signed=True)


def _encode_datetime(value: datetime) -> bytes:
    """Whole seconds, as AMQP has no finer time; a fraction is cut off."""
    if value.tzinfo is None:
        raise ProtocolMisuse(f"a datetime without a time zone: {value.isoformat()}")
    return _encode_timestamp((value - _EPOCH) // _SECOND)


def _encode_decimal(value: Decimal) -> bytes:
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise ProtocolMisuse(f"a decimal that is no number: {value}")
    # A decimal of more digits than 64 bits hold is refused before it is written out.
    if exponent < -255 or len(digits) + max(exponent, 0) > 20:
        raise ProtocolMisuse(f"a decimal that does not fit: {value}")
    unscaled: int = int("".join(map(str, digits))) * 10 ** max(exponent, 0)
    if sign:
        unscaled = -unscaled
    places = bytes((max(-exponent, 0),))
    if -(1 << 31) <= unscaled < 1 << 31:
        return b"D" + places + unscaled.to_bytes(4, "big", signed=True)
    if -(1 << 63) <= unscaled < 1 << 63:
        return _encode_text(f"{value:f}")
    raise ProtocolMisuse(f"a decimal that does not fit: {value}")
