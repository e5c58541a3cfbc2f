"""When two field values count as equal. There are two notions of equality, as in RabbitMQ:

    identity of arguments    the type counts: 1, 1.0 and true are three values
    matching of headers      the value counts: 1 and 1.0 match, a timestamp matches its seconds,
                             but true is no number and "1" is no number either

Octets of a string and of a byte array are compared alike in both. Both are computed as hashable
forms, so that equality costs one dictionary lookup. Nested tables and arrays are walked by
recursion: field tables come from a decoder that caps their depth.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from datetime import UTC, datetime
from decimal import Decimal

from flintmq.wire.tables import FieldValue


def typed_form(value: FieldValue) -> Hashable:
    """A hashable form, equal for two values of the same type class and the same value."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes | bytearray):
        # surrogateescape maps every octet string to a text of its own, and valid UTF-8 to the
        # text that a string field of the same octets decodes to.
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        # A NaN would not equal itself, and its binding could never be removed.
        return ("float", value if value == value else "nan")
    if isinstance(value, dict):
        return ("table", table_form(value))
    if isinstance(value, list):
        return ("array", tuple([typed_form(item) for item in value]))
    if isinstance(value, Decimal):
        return ("decimal", str(value))
    if isinstance(value, datetime):
        return ("timestamp", _posix_s(value))
    raise TypeError(f"not a field value: {type(value).__name__}")


def table_form(table: Mapping[str, FieldValue]) -> tuple[Hashable, ...]:
    """A hashable form of a field table, in which the order of its fields does not count."""
    # Names and values in turn: a pair for each field would double the memory of the whole.
    form: list[Hashable] = []
    for name in sorted(table):
        form.append(name)
        form.append(typed_form(table[name]))
    return tuple(form)


def matching_form(value: FieldValue) -> Hashable:
    """A hashable form, equal for two values that match each other in a headers exchange."""
    if type(value) is str or type(value) is int:
        return value
    if isinstance(value, float) and value == value:
        return value
    if isinstance(value, datetime):
        return _posix_s(value)
    return typed_form(value)


def _posix_s(value: datetime) -> float:
    # A naive time is taken as UTC: the zone of this machine must not change what matches.
    return (value if value.tzinfo is not None else value.replace(tzinfo=UTC)).timestamp()
