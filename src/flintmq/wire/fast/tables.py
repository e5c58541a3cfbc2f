"""Field tables of AMQP/Fast: names and typed values, with lengths of two octets.

    table   | length (2) | entry | entry | ...
    entry   | name length (1) | name | type (1) | value |

    S   length (2), octets      str, or bytes when they are not UTF-8
    I   4 octets, signed        int
    D   decimals (1), 4 octets  Decimal
    T   4 octets                datetime in UTC

Of a field that stands twice the first counts (section "Field Tables"). A name begins with a letter, `$` or
`#` and has at most 128 octets. What may follow is not checked: the document forbids hyphens and uses them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from struct import Struct

from flintmq.errors import ConnectionFault, ProtocolMisuse
from flintmq.wire import amqp

_SHORT = Struct(">H")
_INTEGER = Struct(">i")
_TIME = Struct(">I")
_DECIMAL = Struct(">Bi")
_FIXED = {ord("I"): 4, ord("T"): 4, ord("D"): 5}

NAME_OCTETS_MAX = 128
TABLE_OCTETS_MAX = 65_535
# An entry takes 6 octets at least: a table has no more than 10,922 of them. Who decodes all takes some 10 ms.
ENTRIES_MAX = 2048

Value = str | bytes | int | Decimal | datetime
Table = dict[str, Value]


def entries(octets: bytes) -> Iterator[tuple[bytes, int, bytes]]:
    """Name, type and value of each entry, the first of equal names alone; `octets` have no length."""
    at, end = 0, len(octets)
    seen: set[bytes] = set()
    while at < end:
        if len(seen) == ENTRIES_MAX:
            raise _fault(f"more than {ENTRIES_MAX} fields")
        stop = at + 1 + octets[at]
        name = octets[at + 1 : stop]
        if stop >= end:
            raise _fault("a field is cut short")
        check_name(name)
        kind = octets[stop]
        at = stop + 1
        if kind == ord("S"):
            if end - at < 2:
                raise _fault(f"field {_shown(name)} is cut short")
            size = 2 + _SHORT.unpack_from(octets, at)[0]
        else:
            size = _FIXED.get(kind, -1)
            if size < 0:
                raise _fault(
                    f"field {_shown(name)} has the unknown type {kind:#04x}: S, I, D and T are known"
                )
        if end - at < size:
            raise _fault(f"field {_shown(name)} is cut short")
        if name not in seen:
            seen.add(name)
            yield name, kind, octets[at : at + size]
        at += size


def check_name(name: bytes) -> None:
    if not 0 < len(name) <= NAME_OCTETS_MAX:
        raise _fault(f"a field name has 1 to {NAME_OCTETS_MAX} octets, not {len(name)}")
    if not is_name(name):
        raise _fault(f"field name {_shown(name)} does not begin with a letter, $ or #")


def is_name(name: bytes) -> bool:
    return 0 < len(name) <= NAME_OCTETS_MAX and (name[:1].isalpha() or name[:1] in (b"$", b"#"))


def decode(octets: bytes) -> Table:
    """All fields; `octets` have no length."""
    return {name.decode("utf-8", "replace"): value_of(kind, value) for name, kind, value in entries(octets)}


def value_of(kind: int, octets: bytes) -> Value:
    if kind == ord("S"):
        try:
            return octets[2:].decode()
        except UnicodeDecodeError:
            return octets[2:]
    if kind == ord("I"):
        number: int = _INTEGER.unpack(octets)[0]
        return number
    if kind == ord("T"):
        return datetime.fromtimestamp(_TIME.unpack(octets)[0], UTC)
    places, unscaled = _DECIMAL.unpack(octets)
    return Decimal(unscaled).scaleb(-places)


def encode(table: Mapping[str, Value]) -> bytes:
    """The entries, without their length."""
    whole = b"".join([entry(name.encode(), *encode_value(value)) for name, value in table.items()])
    if len(whole) > TABLE_OCTETS_MAX:
        raise ProtocolMisuse(f"a table of {len(whole)} octets is longer than {TABLE_OCTETS_MAX}")
    return whole


def entry(name: bytes, kind: int, value: bytes) -> bytes:
    return bytes((len(name),)) + name + bytes((kind,)) + value


def encode_value(value: Value) -> tuple[int, bytes]:
    """Type and octets."""
    if isinstance(value, bool):
        return ord("I"), _INTEGER.pack(value)
    if isinstance(value, int):
        if not -(2**31) <= value < 2**31:
            raise ProtocolMisuse(f"{value} has more than the 32 bits of an integer field")
        return ord("I"), _INTEGER.pack(value)
    if isinstance(value, datetime):
        seconds = int(value.timestamp())
        if not 0 <= seconds < 2**32:
            raise ProtocolMisuse(f"{value} is not among the times that 32 bits hold")
        return ord("T"), _TIME.pack(seconds)
    if isinstance(value, Decimal):
        return ord("D"), _encode_decimal(value)
    octets = value.encode() if isinstance(value, str) else bytes(value)
    if len(octets) > TABLE_OCTETS_MAX:
        raise ProtocolMisuse(f"a field of {len(octets)} octets is longer than {TABLE_OCTETS_MAX}")
    return ord("S"), _SHORT.pack(len(octets)) + octets


def _encode_decimal(value: Decimal) -> bytes:
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise ProtocolMisuse(f"{value} is no number")
    unscaled = int("".join(map(str, digits))) * (-1 if sign else 1) * 10 ** max(exponent, 0)
    if not (-255 <= exponent <= 9 and -(2**31) <= unscaled < 2**31):
        raise ProtocolMisuse(f"{value} has more than the 32 bits and 255 places of a decimal field")
    return _DECIMAL.pack(max(-exponent, 0), unscaled)


def _shown(name: bytes) -> str:
    return repr(name[:32].decode("utf-8", "replace"))


def _fault(what: str) -> ConnectionFault:
    return ConnectionFault(amqp.SYNTAX_ERROR, f"field table: {what}")
