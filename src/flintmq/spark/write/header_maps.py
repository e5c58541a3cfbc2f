"""Maps of headers as Arrow gives them: which types a message can hold, and what becomes of maps in maps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow
from pyspark.sql.types import (
    ArrayType,
    CalendarIntervalType,
    DataType,
    DateType,
    DayTimeIntervalType,
    MapType,
    StringType,
    StructType,
    YearMonthIntervalType,
)

from flintmq.spark.header_values import Table

Reader = Callable[[Any], Any]


def plain_reader(kind: Any) -> Reader | None:
    """What makes of a value of this Arrow type, as to_pylist gives it, one of a field table; None: nothing.

    Arrow gives a map as a list of pairs, which as it is would be an array.
    """
    if pyarrow.types.is_map(kind):
        inner = plain_reader(kind.item_type)
        return lambda pairs: (
            None if pairs is None else Table((name, _read(inner, each)) for name, each in pairs)
        )
    if pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind):
        inner = plain_reader(kind.value_type)
        return None if inner is None else lambda found: None if found is None else [inner(x) for x in found]
    if pyarrow.types.is_struct(kind):
        readers = {each.name: plain_reader(each.type) for each in kind}
        if not any(readers.values()):
            return None
        return lambda row: (
            None if row is None else {name: _read(readers[name], each) for name, each in row.items()}
        )
    return None


def _read(reader: Reader | None, value: Any) -> Any:
    return value if reader is None else reader(value)


def unwritable(kind: DataType) -> str:
    """Why headers of this type, of a map or in one, cannot be written; empty if they can."""
    if isinstance(kind, MapType):
        if not isinstance(kind.keyType, StringType):
            return f"names are {kind.keyType.simpleString()}, not string"
        return unwritable(kind.valueType)
    if isinstance(kind, ArrayType):
        return unwritable(kind.elementType)
    if isinstance(kind, StructType):
        return next(filter(None, (unwritable(each.dataType) for each in kind.fields)), "")
    if isinstance(kind, (DateType, CalendarIntervalType, DayTimeIntervalType, YearMonthIntervalType)):
        return f"there is no {kind.simpleString()} in a message"
    return ""
