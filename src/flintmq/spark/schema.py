"""The columns that a read gives: their Spark types, their Arrow types, and which the broker has to send.

columns.py has their names.
Spark does not prune the columns of a Python source, and each costs time: the option `columns`, or a schema
given to the reader, leaves out what is not wanted, and then the broker does not send it either.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from flintmq.spark.columns import PROPERTIES, STANDARD
from flintmq.spark.errors import BadOption
from flintmq.spark.options import ANY_READ, parse

_TYPES: dict[str, DataType] = {
    "BINARY": BinaryType(),
    "BIGINT": LongType(),
    "BOOLEAN": BooleanType(),
    "INT": IntegerType(),
    "STRING": StringType(),
    "TIMESTAMP": TimestampType(),
}
# The type as AMQP has it, and the value in the field of the like Spark type: headers['x'].long. A table, an
# array and a decimal are text in `string`, JSON for the first two.
HEADER = StructType(
    [
        StructField("type", StringType()),
        StructField("string", StringType()),
        StructField("long", LongType()),
        StructField("double", DoubleType()),
        StructField("boolean", BooleanType()),
        StructField("binary", BinaryType()),
        StructField("timestamp", TimestampType()),
    ]
)
HEADERS = MapType(StringType(), HEADER)
COLUMNS: dict[str, DataType] = {
    **{name: _TYPES[kind] for name, kind in (STANDARD | PROPERTIES).items()},
    "headers": HEADERS,
}

# What of the broker's columns each of ours is made of.
SOURCES: dict[str, str] = {
    "value": "value",
    "key": "routing_key",
    "offset": "offset",
    "timestamp": "timestamp",
    "exchange": "exchange",
    "routing_key": "routing_key",
    "redelivered": "redelivered",
    "headers": "headers",
    **dict.fromkeys(PROPERTIES, "properties"),
}


def schema_of(options: Mapping[str, str]) -> StructType:
    """The schema that the options ask for."""
    found = parse(options, ANY_READ)
    names = found["columns"]
    if names is None:
        names = list(STANDARD)
        if found["includeProperties"]:
            names += list(PROPERTIES)
        if found["includeHeaders"]:
            names.append("headers")
    elif found["includeProperties"] or found["includeHeaders"]:
        raise BadOption("Give either 'columns' or 'includeProperties' and 'includeHeaders'; name them there.")
    for name in names:
        if name not in COLUMNS:
            raise BadOption(f"Option 'columns': there is no column {name!r}; there are {', '.join(COLUMNS)}.")
    return StructType([StructField(name, COLUMNS[name]) for name in names])


def check_schema(schema: StructType) -> StructType:
    """A schema that the user gave: some of the columns, with their own types."""
    for field in schema.fields:
        known = COLUMNS.get(field.name)
        if known is None:
            raise BadOption(
                f"The schema has a column {field.name!r}, which the amqp format does not have; there are "
                f"{', '.join(COLUMNS)}. Read 'value' and parse it, with from_json for instance."
            )
        if not _alike(known, field.dataType):
            raise BadOption(
                f"The schema has column {field.name!r} as {field.dataType.simpleString()}, but it is "
                f"{known.simpleString()}; cast it after reading."
            )
    return schema


def _alike(known: DataType, given: DataType) -> bool:
    return bool(known.simpleString() == given.simpleString())


def arrow_schema(schema: StructType) -> Any:
    """Exactly what Spark expects in the record batches of a source."""
    return pyarrow.schema([pyarrow.field(field.name, arrow_type(field.dataType)) for field in schema.fields])


def arrow_type(kind: DataType) -> Any:
    if isinstance(kind, MapType):
        return pyarrow.map_(
            pyarrow.field("key", arrow_type(kind.keyType), nullable=False),
            pyarrow.field("value", arrow_type(kind.valueType), nullable=True),
        )
    if isinstance(kind, StructType):
        return pyarrow.struct([pyarrow.field(each.name, arrow_type(each.dataType)) for each in kind.fields])
    return _ARROW[type(kind)]


_ARROW: dict[type[DataType], Any] = {
    BinaryType: pyarrow.binary(),
    StringType: pyarrow.string(),
    IntegerType: pyarrow.int32(),
    LongType: pyarrow.int64(),
    DoubleType: pyarrow.float64(),
    BooleanType: pyarrow.bool_(),
    TimestampType: pyarrow.timestamp("us", "UTC"),
}


def wanted_columns(schema: StructType) -> tuple[str, ...]:
    """The broker's columns that these rows are made of; `offset` always, to see that none is missing."""
    chosen = {SOURCES[name] for name in schema.names if name in SOURCES}
    chosen.add("offset")
    return tuple(sorted(chosen))
