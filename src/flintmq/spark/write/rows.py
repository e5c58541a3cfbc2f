"""From the record batches of Spark to messages: which columns mean what, and how they are published.

    value          BINARY or STRING, required: the body
    exchange       STRING: where to; the option of that name if the column is missing or null
    routing_key    STRING: the same
    headers        MAP of plain values, or of the structs that a read gives
    properties     content_type, message_id, priority, ... as a read gives them

Where only value, exchange and routing key are there, which is the usual case, a row costs the slice of its
body and nothing else: properties are encoded once for all rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

import pyarrow
from pyspark.sql.types import BinaryType, DataType, MapType, StringType, StructType

from flintmq.client import Channel
from flintmq.client.core.channel import PERSISTENT
from flintmq.spark.columns import PROPERTIES, PROPERTY_TIMESTAMP, STANDARD
from flintmq.spark.errors import AmqpError, BadOption
from flintmq.spark.header_values import table_of
from flintmq.spark.options import WriteOptions
from flintmq.spark.write.header_maps import plain_reader, unwritable
from flintmq.wire.properties import BasicProperties

ROUTE = ("value", "exchange", "routing_key")
# What comes from a read and says nothing of where a message goes.
_ONLY_READ = frozenset(STANDARD) - frozenset(ROUTE) - {"timestamp"}


def check_columns(schema: StructType, options: WriteOptions) -> None:
    """Tells what cannot be written before anything is."""
    known = (*ROUTE, "headers", "timestamp", *PROPERTIES)
    names = schema.names
    for name in names:
        if name in _ONLY_READ:
            raise BadOption(
                f"Column {name!r} cannot be written: it tells where a message was read from; select the "
                f"others, of {', '.join(known)}."
            )
        if name not in known and name != options.order_by:
            raise BadOption(
                f"There is no column {name!r} in a message; there are {', '.join(known)}. Put the rest into "
                "'value', with to_json(struct(...)) for instance."
            )
    if options.order_by is not None and options.order_by not in names:
        raise BadOption(f"Option 'orderBy': there is no column {options.order_by!r} in the data frame.")
    if "value" not in names:
        raise BadOption("A column 'value' is missing: the body of each message, BINARY or STRING.")
    for name in ("value", "exchange", "routing_key"):
        if name in names and not isinstance(schema[name].dataType, _allowed(name)):
            raise BadOption(
                f"Column {name!r} is {schema[name].dataType.simpleString()}; make it "
                f"{'binary or string' if name == 'value' else 'string'}, with cast or to_json."
            )
    for name in names:
        if name in PROPERTIES and schema[name].dataType.simpleString() not in _accepted(name):
            raise BadOption(
                f"Column {name!r} is {schema[name].dataType.simpleString()}; make it "
                f"{PROPERTIES[name].lower()}."
            )
    if "headers" in names:
        _check_headers(schema["headers"].dataType)
    if options.queue is not None:
        for name in ("exchange", "routing_key"):
            if name in names:
                raise BadOption(
                    f"The option 'queue' and the column {name!r} both say where a row goes; drop the column, "
                    "or give the option 'exchange' instead of 'queue'."
                )
    if options.exchange is None and "exchange" not in names:
        raise BadOption("Where to? Give the option 'exchange' or 'queue', or a column 'exchange'.")


def _check_headers(kind: DataType) -> None:
    if not isinstance(kind, MapType):
        raise BadOption("Column 'headers' has to be a map, of names to values.")
    why = unwritable(kind)
    if why:
        raise BadOption(
            f"Column 'headers' is {kind.simpleString()}: {why}; cast it, or make a map of strings."
        )


def _allowed(name: str) -> tuple[type, ...]:
    return (BinaryType, StringType) if name == "value" else (StringType,)


def _accepted(name: str) -> tuple[str, ...]:
    wanted = PROPERTIES[name].lower()
    return ("tinyint", "smallint", "int", "bigint") if wanted == "int" else (wanted,)


def in_order(batches: Iterable[Any], options: WriteOptions) -> Iterable[Any]:
    """The record batches of a task, sorted by the column that `orderBy` names; a column that is no part of a
    message goes. Rows that are alike stay in the order in which they came.

    All rows of the task are in memory then. One column of them holds at most 2 GiB, as in any array of Arrow.
    """
    name = options.order_by
    if name is None:
        return batches
    found = list(batches)
    if not found:
        return found
    table = pyarrow.Table.from_batches(found).sort_by(name)
    if name not in (*ROUTE, "timestamp", *PROPERTIES):
        table = table.drop_columns([name])
    made: Iterable[Any] = table.combine_chunks().to_batches()
    return made


@dataclass(frozen=True)
class Run:
    """Messages to one exchange, in their order."""

    exchange: str
    bodies: list[bytes]
    routing_keys: list[str] | None  # None: all the same, that of the options
    properties: BasicProperties | list[BasicProperties]

    def pieces(self, rows_max: int, octets_max: int) -> Iterator[Run]:
        """The same messages in runs of at most so many rows and octets, unless a single one is larger."""
        count = len(self.bodies)
        if count <= 1 or (count <= rows_max and sum(map(len, self.bodies)) <= octets_max):
            yield self
            return
        for half in (slice(count // 2), slice(count // 2, None)):
            keys = None if self.routing_keys is None else self.routing_keys[half]
            each = self.properties[half] if isinstance(self.properties, list) else self.properties
            yield from Run(self.exchange, self.bodies[half], keys, each).pieces(rows_max, octets_max)


class RowReader:
    """Makes runs of messages of record batches."""

    def __init__(self, options: WriteOptions) -> None:
        self.options = options
        mode = PERSISTENT if options.persistent else None
        self.alike = BasicProperties(delivery_mode=mode)

    def runs(self, batch: Any) -> Iterator[Run]:
        names = batch.schema.names
        bodies = bodies_of(batch.column("value"))
        keys = self._texts(batch, "routing_key", self.options.routing_key)
        exchanges = self._texts(batch, "exchange", self.options.exchange)
        each: list[BasicProperties] | None = None
        if any(name not in ROUTE for name in names):
            each = self._properties(batch)
        alike = self.alike
        if exchanges is None or len(set(exchanges)) == 1:
            exchange = exchanges[0] if exchanges else self.options.exchange or ""
            yield Run(exchange, bodies, keys, alike if each is None else each)
            return
        at = 0
        for exchange, found in groupby(exchanges):
            end = at + sum(1 for _ in found)
            properties = alike if each is None else each[at:end]
            yield Run(exchange, bodies[at:end], None if keys is None else keys[at:end], properties)
            at = end

    def _texts(self, batch: Any, name: str, default: str | None) -> list[str] | None:
        """A column of names; None where all rows have the default."""
        if name not in batch.schema.names:
            return None
        column = batch.column(name)
        if column.null_count:
            if default is None and name == "exchange":
                raise AmqpError(f"A row has no {name}; fill the column, or give the option {name!r}.")
            column = column.fill_null(default or "")
        found: list[str] = column.to_pylist()
        return found

    def _properties(self, batch: Any) -> list[BasicProperties]:
        given = {name: batch.column(name).to_pylist() for name in batch.schema.names if name not in ROUTE}
        times = given.pop(PROPERTY_TIMESTAMP, None) or given.pop("timestamp", None)
        given.pop("timestamp", None)
        headers = given.pop("headers", None)
        if headers is not None:
            inner = plain_reader(batch.column("headers").type.item_type)
            if inner is not None:
                headers = [
                    None if pairs is None else [(name, inner(each)) for name, each in pairs]
                    for pairs in headers
                ]
        default_mode = self.alike.delivery_mode
        made: list[BasicProperties] = []
        for index in range(batch.num_rows):
            fields = {name: values[index] for name, values in given.items()}
            if fields.get("delivery_mode") is None:
                fields["delivery_mode"] = default_mode
            if headers is not None:
                fields["headers"] = table_of(headers[index])
            if times is not None and times[index] is not None:
                fields["timestamp"] = int(times[index].timestamp())
            made.append(BasicProperties(**fields))
        return made


def bodies_of(column: Any) -> list[bytes]:
    """The values of a binary or text column, cut out of its one buffer."""
    if column.null_count:
        raise AmqpError("A row has a null 'value'; a message needs a body: filter such rows, or fill them.")
    if not pyarrow.types.is_binary(column.type) and not pyarrow.types.is_string(column.type):
        column = column.cast(pyarrow.binary())
    if not len(column):
        return []
    _, starts, data = column.buffers()
    whole = memoryview(starts).cast("i")[column.offset : column.offset + len(column) + 1].tolist()
    octets = data.to_pybytes() if data is not None else b""
    return [octets[start:end] for start, end in pairwise(whole)]


def publish(channel: Channel, run: Run, options: WriteOptions, wait: bool) -> int:
    return channel.publish_many(
        run.bodies,
        run.exchange,
        options.routing_key or "",
        routing_keys=run.routing_keys,
        properties=run.properties,
        mandatory=options.mandatory,
        wait=wait,
        timeout_s=options.confirm_timeout_s,
    )
