"""Headers with their types, between an AMQP field table and the map column of a data frame.

    AMQP            type            field with the value
    text            string          string
    octets          binary          binary
    integers        long            long
    above 63 bits   unsigned        string
    float, double   double          double
    boolean         boolean         boolean
    timestamp       timestamp       timestamp, whole seconds
    decimal         decimal         string
    table, array    table, array    string, as JSON
    void            void            none

So what was read can be written again and is the same. No letter of AMQP 0-9-1 has 64 bits without a sign:
such a number travels as its digits in text, and is `unsigned` only in what a broker kept before it wrote them
so. A map of plain values, map<string, string> or map<string, bigint> for instance, can be written as well; a
map in it becomes a table, a list an array.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from flintmq.spark.errors import AmqpError
from flintmq.wire.tables import FieldTable, FieldValue, Timestamp

Header = dict[str, Any]


class Table(dict[str, Any]):
    """A map in a map of headers: a table of values as they are, where a struct tells its type."""


_LONG_MAX = 1 << 63


def described(value: FieldValue) -> Header:
    """One value of a table as a struct."""
    if value is None:
        return {"type": "void"}
    if isinstance(value, bool):
        return {"type": "boolean", "boolean": value}
    if isinstance(value, str):
        return {"type": "string", "string": value}
    if isinstance(value, bytes):
        return {"type": "binary", "binary": value}
    if isinstance(value, datetime):
        return {"type": "timestamp", "timestamp": value}
    if isinstance(value, Timestamp):
        return {"type": "seconds", "long": int(value)}
    if isinstance(value, int):
        if -_LONG_MAX <= value < _LONG_MAX:
            return {"type": "long", "long": value}
        return {"type": "unsigned", "string": str(value)}
    if isinstance(value, float):
        return {"type": "double", "double": value}
    if isinstance(value, Decimal):
        return {"type": "decimal", "string": str(value)}
    kind = "table" if isinstance(value, dict) else "array"
    return {"type": kind, "string": json.dumps(_plain(value), separators=(",", ":"))}


def _plain(value: FieldValue) -> Any:
    """For JSON: what it has no form for is a table with the one key of its type, as is a table that looks
    like one of these."""
    if isinstance(value, dict):
        made = {name: _plain(each) for name, each in value.items()}
        return {"$table": made} if len(made) == 1 and next(iter(made)).startswith("$") else made
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, bytes):
        return {"$binary": value.hex()}
    if isinstance(value, datetime):
        return {"$timestamp": value.isoformat()}
    if isinstance(value, Decimal):
        return {"$decimal": str(value)}
    if isinstance(value, Timestamp):
        return {"$seconds": int(value)}
    return value


def _restored(value: Any) -> FieldValue:
    if isinstance(value, list):
        return [_restored(each) for each in value]
    if isinstance(value, dict):
        if len(value) == 1:
            ((name, given),) = value.items()
            if name == "$binary":
                return bytes.fromhex(given)
            if name == "$timestamp":
                return datetime.fromisoformat(given)
            if name == "$decimal":
                return Decimal(given)
            if name == "$seconds":
                return Timestamp(given)
            if name == "$table":
                return {inner: _restored(each) for inner, each in given.items()}
        return {name: _restored(each) for name, each in value.items()}
    return value  # type: ignore[no-any-return]


def table_of(headers: Iterable[tuple[str, Any]] | Mapping[str, Any] | None) -> FieldTable | None:
    """The field table of one row's map: of structs as `described` makes them, or of plain values."""
    if headers is None:
        return None
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return {name: _value_of(name, given) for name, given in pairs}


def _fitting(value: Any) -> FieldValue:
    """A plain value, with whole numbers for the decimals that Spark has in place of unsigned 64-bit ones: a
    decimal of a message has 32 bits."""
    if isinstance(value, Decimal) and value >= _LONG_MAX and value == value.to_integral_value():
        return int(value)
    if isinstance(value, list):
        return [_fitting(each) for each in value]
    if isinstance(value, Mapping):
        return {name: _fitting(each) for name, each in value.items()}
    return value  # type: ignore[no-any-return]


def _value_of(name: str, given: Any) -> FieldValue:
    if not isinstance(given, Mapping) or isinstance(given, Table):
        return _fitting(given)
    kind = given.get("type")
    try:
        if kind == "void":
            return None
        if kind == "seconds":
            return Timestamp(given["long"])
        if kind == "decimal":
            return Decimal(given["string"])
        if kind == "unsigned":
            return int(given["string"])
        if kind in ("table", "array"):
            return _restored(json.loads(given["string"]))
        if kind in ("string", "binary", "long", "double", "boolean", "timestamp") and given[kind] is not None:
            return given[kind]  # type: ignore[no-any-return]
    except (KeyError, TypeError, ValueError, AttributeError, InvalidOperation):
        pass  # told below, with the name
    raise AmqpError(
        f"Header {name!r} says it is of type {kind!r} and has no such value; fill the field of that type."
    )
