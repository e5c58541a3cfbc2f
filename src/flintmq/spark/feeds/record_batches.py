"""From the broker's columns to the record batches of Spark.

Standard columns are views of the octets as they came: nothing is made for a single row. Properties and
headers are decoded row by row, and cost what that costs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow
import pyarrow.compute
from pyspark.sql.types import StructType

from flintmq.spark.columns import PROPERTIES, PROPERTY_TIMESTAMP
from flintmq.spark.header_values import described
from flintmq.spark.schema import arrow_schema
from flintmq.wire.columns import Columns
from flintmq.wire.properties import BasicProperties, decode_basic_properties
from flintmq.wire.tables import decode_table


class BatchMaker:
    """Makes record batches of one schema, of the messages of one queue."""

    def __init__(self, schema: StructType, queue: str) -> None:
        self.schema = arrow_schema(schema)
        self.queue = queue
        self.has_properties = any(name in PROPERTIES for name in schema.names)

    def make(self, columns: Columns) -> Any:
        decoded = properties_of(columns) if self.has_properties else []
        arrays = []
        for field in self.schema:
            maker = _MAKERS.get(field.name)
            if maker is not None:
                arrays.append(maker(self, columns))
            else:
                arrays.append(pyarrow.array(_property(decoded, field.name), field.type))
        return pyarrow.RecordBatch.from_arrays(arrays, schema=self.schema)

    def queue_names(self, columns: Columns) -> Any:
        return pyarrow.repeat(pyarrow.scalar(self.queue, pyarrow.string()), len(columns))


def text(columns: Columns, name: str) -> Any:
    """A column of names. Most are UTF-8; what is not is shown with replacement characters."""
    array = columns.arrow(name, pyarrow.string())
    try:
        array.validate(full=True)
    except pyarrow.ArrowInvalid:
        replaced = [value.decode("utf-8", "replace") for value in columns.values(name)]
        return pyarrow.array(replaced, pyarrow.string())
    return array


def redelivered(columns: Columns) -> Any:
    if "redelivered" not in columns.names:  # a stream does not redeliver
        return pyarrow.repeat(pyarrow.scalar(False), len(columns))
    return pyarrow.compute.not_equal(columns.arrow("redelivered"), 0)


def headers(columns: Columns, kind: Any) -> Any:
    rows: list[list[tuple[str, dict[str, Any]]] | None] = []
    if "headers" not in columns.names:  # of another broker: they are among the properties
        for properties in properties_of(columns):
            table = properties.headers
            rows.append(None if table is None else [(name, described(each)) for name, each in table.items()])
        return pyarrow.array(rows, kind)
    for octets in columns.values("headers"):
        if not octets:
            rows.append(None)
            continue
        table, _ = decode_table(octets, 0, len(octets), "headers")
        rows.append([(name, described(value)) for name, value in table.items()])
    return pyarrow.array(rows, kind)


def properties_of(columns: Columns) -> list[BasicProperties]:
    return [decode_basic_properties(octets, 0, len(octets)) for octets in columns.values("properties")]


def _property(decoded: list[BasicProperties], name: str) -> list[Any]:
    if name == PROPERTY_TIMESTAMP:
        seconds = [each.timestamp for each in decoded]
        return [None if each is None or each >= _SECONDS_MAX else each * 1_000_000 for each in seconds]
    return [getattr(each, name) for each in decoded]


# Beyond what a timestamp of microseconds holds.
_SECONDS_MAX = (1 << 63) // 1_000_000

_MAKERS: dict[str, Callable[[BatchMaker, Columns], Any]] = {
    "value": lambda maker, columns: columns.arrow("value"),
    "key": lambda maker, columns: text(columns, "routing_key"),
    "queue": lambda maker, columns: maker.queue_names(columns),
    "partition": lambda maker, columns: pyarrow.repeat(pyarrow.scalar(0, pyarrow.int32()), len(columns)),
    "offset": lambda maker, columns: columns.arrow("offset"),
    "timestamp": lambda maker, columns: columns.arrow("timestamp"),
    "exchange": lambda maker, columns: text(columns, "exchange"),
    "routing_key": lambda maker, columns: text(columns, "routing_key"),
    "redelivered": lambda maker, columns: redelivered(columns),
    "headers": lambda maker, columns: headers(columns, maker.schema.field("headers").type),
}
