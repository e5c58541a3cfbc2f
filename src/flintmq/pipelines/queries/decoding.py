"""From the octets of messages to columns, and what becomes of those that cannot be read.

    json, csv     Spark parses; for json of simple types it is done in bulk (json_rows.py)
    avro, arrow   a library parses, on the executors
    raw           nothing is parsed

A row that cannot be read, or that lacks a NOT NULL column, is malformed.

A malformed row fails the batch with its queue and offset, or is dropped, or goes to an exchange with the
reason in its headers. That is published, and confirmed, while the batch runs: never lost, though a batch
that is run again publishes it again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from flintmq.client.core.errors import ClientError
from flintmq.client.core.settings import Settings
from flintmq.pipelines.errors import PipelineFailed
from flintmq.pipelines.file import schema
from flintmq.pipelines.file.model import Source
from flintmq.pipelines.queries import json_rows
from flintmq.pipelines.queries.brokers import settings_of
from flintmq.spark.connections import pooled
from flintmq.spark.errors import BadOption
from flintmq.spark.options import RETRY_TIMEOUT_S
from flintmq.wire.properties import BasicProperties

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

MALFORMED = "_malformed"
REASON = "_reason"
REASON_CHARACTERS_MAX = 500
# Of a reason in the message of a failure: the advice behind it must not be cut off.
TOLD_CHARACTERS_MAX = 250
# Of times on their way through Arrow: all zones tell the same moments.
TIMEZONE = "UTC"
FORMATS = ("json", "csv", "arrow")
CHOICES = ("fail", "drop", "dead-letter")
# Where a malformed row came from, for its headers and for the message of a failure.
_ORIGIN = ("queue", "offset")
_CHOICE = 'malformed = "drop" leaves such messages out, "dead-letter" sends them to an exchange'


def decoded(frame: DataFrame, source: Source, pipeline: str, sends_letters: bool = True) -> DataFrame:
    """The source's columns: those of its schema, then its metadata.

    Several flows may read one source. One of them sends the malformed rows on, the others drop them.
    """
    if source.format == "raw":
        return frame
    parsed = _parsed(frame, source)
    malformed = source.given.get("malformed", "fail")
    kept = [name for name in parsed.columns if name not in (MALFORMED, REASON, *_hidden(source))]
    if malformed == "drop" or (malformed == "dead-letter" and not sends_letters):
        return parsed.filter(f"{MALFORMED} IS NULL").select(*kept)
    if malformed == "fail":
        told = (
            f"concat('source {source.name}: the message at offset ', cast(_offset AS STRING), ' of ', "
            f"_queue, ' is malformed: ', left({REASON}, {TOLD_CHARACTERS_MAX}), '; {_CHOICE}')"
        )
        return parsed.filter(f"{MALFORMED} IS NULL OR assert_true(false, {told}) IS NULL").select(*kept)
    return _dead_lettered(parsed, kept, source, pipeline)


def decode(
    frame: DataFrame,
    format: str,
    schema: str,
    malformed: str = "fail",
    dead_letter_exchange: str | None = None,
    dead_letter_routing_key: str = "malformed",
    uri: str | None = None,
) -> DataFrame:
    """Messages of the amqp format to columns, outside of a pipeline; `frame` has value, queue and offset.

    What cannot be read, or lacks a NOT NULL column, fails the query, is dropped, or goes to the exchange.
    """
    if format not in FORMATS or malformed not in CHOICES:
        raise BadOption(
            f"decode: format {format!r} is one of {', '.join(FORMATS)}, malformed {malformed!r} one of "
            f"{', '.join(CHOICES)}."
        )
    if lacking := [name for name in ("value", *_ORIGIN) if name not in frame.columns]:
        raise BadOption(f"decode: the data frame has no column {lacking[0]!r}; do not leave it out.")
    if (malformed == "dead-letter") != (dead_letter_exchange is not None):
        raise BadOption("decode: malformed='dead-letter' and dead_letter_exchange belong together.")
    given = {"format": format, "schema": schema, "malformed": malformed, "uri": uri}
    given |= {
        "dead_letter_exchange": dead_letter_exchange,
        "dead_letter_routing_key": dead_letter_routing_key,
    }
    return decoded(frame, Source("decode", "stream", None, given, 0), "")


def wanted_columns(source: Source) -> list[str]:
    """The columns of the amqp source that are needed: Spark prunes none by itself."""
    origin = () if source.format == "raw" else _ORIGIN
    return list(dict.fromkeys(("value", *origin, *source.given.get("metadata", ()))))


def _hidden(source: Source) -> list[str]:
    return [f"_{name}" for name in _ORIGIN]


def _aside(source: Source) -> list[str]:
    """What goes along beside the parsed columns, as SQL."""
    return [f"{name} AS _{name}" for name in _ORIGIN] + [
        name for name in _metadata(source) if name != "value"
    ]


def _metadata(source: Source) -> list[str]:
    return list(source.given.get("metadata", ()))


def _parsed(frame: DataFrame, source: Source) -> DataFrame:
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    loose = ", ".join(_nullable(part) for part in schema.columns(source.given["schema"]))
    columns = StructType.fromDDL(loose)
    required = schema.not_null(source.given["schema"])
    decode_batch: DecodeBatch
    if source.format == "avro":
        with open(source.given["avro_schema"], encoding="utf-8") as file:
            decode_batch = partial(_decode_each, required, _avro_decoder(json.load(file)))
    elif source.format == "arrow":
        decode_batch = partial(_decode_each, required, _arrow_decoder())
    elif source.format == "json" and json_rows.is_simple(to_arrow_schema(columns, timezone=TIMEZONE)):
        decode_batch = partial(_decode_json, required)
    else:
        return _parsed_by_spark(frame, source)
    return _parsed_by_batch(frame, source, columns, decode_batch)


def _parsed_by_spark(frame: DataFrame, source: Source) -> DataFrame:
    ddl = source.given["schema"]
    required = schema.not_null(ddl)
    # NOT NULL is checked below: what a parser says of it depends on the format.
    loose = ", ".join(map(_nullable, schema.columns(ddl)))
    function = f"from_{source.format}"
    quoted = f"{loose}, {MALFORMED} STRING".replace("\\", "\\\\").replace("'", "\\'")
    options = f"map('mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', '{MALFORMED}')"
    row = frame.selectExpr(
        f"{function}(cast(value AS STRING), '{quoted}', {options}) AS _row", "value", *_aside(source)
    )
    lacking = " ".join(f"WHEN _row.`{name}` IS NULL THEN 'it has no {name}'" for name in required)
    reason = (
        f"CASE WHEN _row IS NULL OR _row.{MALFORMED} IS NOT NULL "
        f"THEN concat('not {source.format} of the schema: ', left(cast(value AS STRING), 200)) {lacking} END"
    )
    names = [part.split()[0].strip("`:") for part in schema.columns(ddl)]
    return row.selectExpr(
        *(f"_row.`{name}` AS `{name}`" for name in names),
        *(f"_{name}" for name in _ORIGIN),
        *_metadata(source),
        f"{reason} AS {REASON}",
        f"CASE WHEN ({reason}) IS NOT NULL THEN value END AS {MALFORMED}",
    )


def _parsed_by_batch(
    frame: DataFrame, source: Source, columns: StructType, decode_batch: DecodeBatch
) -> DataFrame:
    """`columns` and what goes along, made on the executors."""
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import BinaryType, LongType, StringType, StructType

    aside = frame.selectExpr("value", *_aside(source))
    made = StructType(list(columns.fields))
    made.add("_queue", StringType()).add("_offset", LongType())
    for field in aside.schema.fields[3:]:
        made.add(field.name, field.dataType)
    if "value" in _metadata(source):
        made.add("value", BinaryType())
    made.add(REASON, StringType()).add(MALFORMED, BinaryType())
    target = to_arrow_schema(made, timezone=TIMEZONE)
    count = len(columns.fields)

    def run(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        for batch in batches:
            yield decode_batch(batch, target, count)

    return aside.mapInArrow(run, made)


def _nullable(part: str) -> str:
    return part[:-8].rstrip() if part.upper().endswith("NOT NULL") else part


Decode = Callable[[bytes], list[dict[str, Any]]]
DecodeBatch = Callable[["pyarrow.RecordBatch", "pyarrow.Schema", int], "pyarrow.RecordBatch"]


def _arrow_decoder() -> Decode:
    def decode(body: bytes) -> list[dict[str, Any]]:
        import pyarrow

        with pyarrow.ipc.open_stream(body) as reader:
            rows: list[dict[str, Any]] = reader.read_all().to_pylist()
            return rows

    return decode


def _avro_decoder(avro_schema: Any) -> Decode:
    def decode(body: bytes) -> list[dict[str, Any]]:
        import io

        import fastavro

        return [fastavro.schemaless_reader(io.BytesIO(body), avro_schema, None)]

    return decode


def _decode_each(
    required: list[str], decode: Decode, batch: pyarrow.RecordBatch, target: pyarrow.Schema, count: int
) -> pyarrow.RecordBatch:
    """Each message gives its rows, or one malformed row."""
    import pyarrow

    columns, others = target.names[:count], target.names[count:]
    rows: list[dict[str, Any]] = []
    for given in batch.to_pylist():
        body = given["value"]
        # The body is the column `value` only where the metadata asks for it: the schema may have one too.
        beside = {name: given[name] for name in others if name in given}
        try:
            found = [{name: row.get(name) for name in columns} for row in decode(body)]
            pyarrow.Table.from_pylist(found, schema=pyarrow.schema(list(target)[:count]))
        except Exception as error:  # whatever a library says of octets that it cannot read
            text = f"{type(error).__name__}: {error}"[:REASON_CHARACTERS_MAX]
            rows.append({**beside, REASON: text, MALFORMED: body})
            continue
        lacking = next((name for name in required if any(row[name] is None for row in found)), None)
        if lacking is None:
            rows.extend({**row, **beside} for row in found)
        else:
            rows.append({**beside, REASON: f"it has no {lacking}", MALFORMED: body})
    return pyarrow.RecordBatch.from_pylist(rows, schema=target)


def _decode_json(
    required: list[str], batch: pyarrow.RecordBatch, target: pyarrow.Schema, count: int
) -> pyarrow.RecordBatch:
    """Each message gives one row, of the schema or malformed."""
    import pyarrow
    import pyarrow.compute

    bodies = batch.column("value")
    table, malformed = json_rows.parse(bodies, pyarrow.schema(list(target)[:count]))
    reasons: dict[int, str] = {}
    for name in reversed(required):
        if table.column(name).null_count:
            lacking = pyarrow.compute.indices_nonzero(table.column(name).is_null())
            reasons |= dict.fromkeys(lacking.to_pylist(), f"it has no {name}")
    for place in malformed:
        said = bodies[place].as_py().decode(errors="replace")[:200]
        reasons[place] = f"not json of the schema: {said}"
    made = {name: table.column(name).combine_chunks() for name in target.names[:count]}
    for name in target.names[count:-2]:
        made[name] = batch.column(name).cast(target.field(name).type)
    if reasons:
        made[REASON] = pyarrow.array([reasons.get(place) for place in range(len(bodies))], pyarrow.string())
        made[MALFORMED] = pyarrow.compute.if_else(made[REASON].is_valid(), bodies, None)
    else:
        made[REASON] = pyarrow.nulls(len(bodies), pyarrow.string())
        made[MALFORMED] = pyarrow.nulls(len(bodies), pyarrow.binary())
    return pyarrow.RecordBatch.from_pydict(made, schema=target)


def _dead_lettered(parsed: DataFrame, kept: list[str], source: Source, pipeline: str) -> DataFrame:
    from pyspark.sql.types import StructType

    publish = DeadLetters(
        settings_of(source.given.get("uri")),
        source.given["dead_letter_exchange"],
        source.given.get("dead_letter_routing_key", source.name),
        {"x-pipeline": pipeline, "x-source": source.name},
    )

    def run(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        for batch in batches:
            yield publish.sift(batch, kept)

    made = StructType([field for field in parsed.schema.fields if field.name in kept])
    return parsed.mapInArrow(run, made)


class DeadLetters:
    """Publishes the malformed rows of a batch and lets the others pass. Pickles: it goes to executors."""

    def __init__(self, settings: Settings, exchange: str, routing_key: str, headers: dict[str, Any]) -> None:
        self.settings = settings
        self.exchange = exchange
        self.routing_key = routing_key
        self.headers = headers

    def sift(self, batch: pyarrow.RecordBatch, kept: list[str]) -> pyarrow.RecordBatch:
        bodies = batch.column(MALFORMED)
        if bodies.null_count < len(bodies):
            bad = batch.filter(bodies.is_valid())
            self.publish(bad.select([MALFORMED, REASON, "_queue", "_offset"]).to_pylist())
            batch = batch.filter(bodies.is_null())
        return batch.select(kept)

    @contextmanager
    def told(self) -> Iterator[None]:
        try:
            yield
        except ClientError as error:
            reason = str(error.__cause__ or error).rstrip(".")
            raise PipelineFailed(
                f"malformed rows do not get to exchange {self.exchange!r}: {reason}; nothing is lost: the "
                "batch is not done, and is run again when the query is"
            ) from None

    def publish(self, rows: list[dict[str, Any]]) -> None:
        """Returns when the broker has them all."""
        properties = [
            BasicProperties(
                delivery_mode=2,
                headers={
                    **self.headers,
                    "x-reason": str(row[REASON])[:REASON_CHARACTERS_MAX],
                    "x-queue": row["_queue"] or "",
                    "x-offset": row["_offset"] or 0,
                },
            )
            for row in rows
        ]
        with self.told(), pooled(self.settings, RETRY_TIMEOUT_S).channel(confirm=True) as channel:
            channel.publish_many(
                [row[MALFORMED] for row in rows],
                self.exchange,
                self.routing_key,
                properties=properties,
                mandatory=True,  # what goes to no queue is lost
            )
