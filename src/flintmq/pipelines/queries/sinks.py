"""Where a flow ends: its DataFrame becomes a query that writes to an exchange, to files or the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flintmq.pipelines.errors import PipelineFailed
from flintmq.pipelines.file import sql
from flintmq.pipelines.file.model import Flow, Pipeline, Sink
from flintmq.pipelines.queries import brokers
from flintmq.pipelines.queries.fingerprint import FlowRecord

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

_ROUTING = ("exchange", "routing_key")
_ORDER = "flintmq_order"


def start(
    frame: DataFrame, pipeline: Pipeline, flow: Flow, record: FlowRecord, available_now: bool
) -> StreamingQuery:
    """Starts the flow's query."""
    sink = flow.sink
    writer = _writer(frame, pipeline, flow, record)
    writer = writer.queryName(f"{pipeline.name}.{flow.name}").option("checkpointLocation", record.checkpoint)
    writer = writer.outputMode(sink.given.get("output_mode", "append"))
    trigger = sink.given.get("trigger", pipeline.trigger)
    if available_now or trigger == "available-now":
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=trigger).start()


def _writer(frame: DataFrame, pipeline: Pipeline, flow: Flow, record: FlowRecord) -> DataStreamWriter:
    sink = flow.sink
    options = sink.given.get("options", {})
    if sink.kind == "exchange":
        made = ordered(frame, sink).writeStream.format("amqp").options(**_constants(sink))
        made = made.options(**brokers.spark_options(brokers.sink_uri(flow)))
        made = made.option("mode", sink.given.get("mode", "confirm"))
        made = made.option("persistent", str(sink.given.get("persistent", True)).lower())
        if "order" in sink.given:
            made = made.option("orderBy", _ORDER)
        if record.figures:
            made = made.option("figuresFile", record.figures)
        return made.options(**options)
    if sink.kind == "parquet":
        _check_files(frame, sink)
        made = frame.writeStream.format("parquet").option("path", sink.target).options(**options)
        return made.partitionBy(*sink.given["partition_by"]) if "partition_by" in sink.given else made
    if sink.kind == "delta":
        return frame.writeStream.foreachBatch(DeltaWriter(pipeline, sink, record))
    return frame.writeStream.format("console").option("truncate", "false").options(**options)


def _check_files(frame: DataFrame, sink: Sink) -> None:
    """Parquet files take any type, but nobody can read a directory in which a column has two."""
    from pyspark.errors import AnalysisException

    try:
        known = {field.name: field.dataType for field in frame.sparkSession.read.parquet(sink.target).schema}
    except AnalysisException:
        return  # no directory, or no file in it yet
    for field in frame.schema:
        was = known.get(field.name)
        # The type of a column that became a directory is guessed from its name.
        if was is None or field.name in sink.given.get("partition_by", ()):
            continue
        if was.simpleString() != field.dataType.simpleString():
            raise PipelineFailed(
                f"sink {sink.name!r}: column {field.name!r} is {was.simpleString()} in the files of "
                f"{sink.target}, and {field.dataType.simpleString()} now; give the column another name, or "
                "the sink another directory"
            )


def ordered(frame: DataFrame, sink: Sink) -> DataFrame:
    """The messages of a sink. Where some are to come in order, one task gets all of them, and the amqp sink
    sorts what a task has: Spark sorts no stream."""
    if "order" not in sink.given:
        return messages(frame, sink)
    within, by = sink.given["order"]
    spread = frame.repartition(*(frame[f"`{name}`"] for name in within))
    return messages(spread, sink, f"`{by}` AS {_ORDER}")


def messages(frame: DataFrame, sink: Sink, *more: str) -> DataFrame:
    """The columns of the amqp sink: value, exchange, routing_key and properties; and these beside."""
    form = sink.given.get("value", "json")
    if form == "raw":
        if "value" not in frame.columns:
            raise PipelineFailed(f'sink {sink.name!r}: value = "raw" needs a column value in {sink.input!r}')
        value = "CAST(value AS BINARY)"
    else:
        columns = sink.given.get("columns") or [name for name in frame.columns if name not in _ROUTING]
        quoted = ", ".join(f"`{name}`" for name in columns)
        value = f"CAST(to_{form}(struct({quoted})) AS BINARY)"
    made = [f"{value} AS value"]
    for name, template in _templates(sink).items():
        if any(is_sql for is_sql, _ in sql.pieces(template)):
            made.append(f"{sql.expression(template)} AS {name}")
    properties = sink.given.get("properties", {})
    made += [f"{expression} AS `{name}`" for name, expression in properties.items()]
    return frame.selectExpr(*made, *more)


def _templates(sink: Sink) -> dict[str, str]:
    return {"exchange": sink.target, "routing_key": sink.given.get("routing_key", "")}


def _constants(sink: Sink) -> dict[str, str]:
    """What is the same for each row goes as an option: a column of it would cost each row."""
    names = {"exchange": "exchange", "routing_key": "routingKey"}
    made = {name: sql.pieces(template) for name, template in _templates(sink).items()}
    return {names[name]: found[0][1] for name, found in made.items() if len(found) == 1 and not found[0][0]}


class DeltaWriter:
    """Writes each batch to a Delta table once: its number goes into the table's own log with the rows."""

    def __init__(self, pipeline: Pipeline, sink: Sink, record: FlowRecord) -> None:
        self.table = sink.target
        # With the id of the checkpoint: a fresh one numbers its batches from 0 again.
        self.application = f"flintmq.{pipeline.name}.{sink.name}.{record.id}"
        self.partition_by = list(sink.given.get("partition_by", ()))
        self.options = dict(sink.given.get("options", {}))

    def __call__(self, batch: DataFrame, number: int) -> None:
        import deltalake

        known: set[str] | None = None
        if deltalake.DeltaTable.is_deltatable(self.table, self.options or None):
            table = deltalake.DeltaTable(self.table, storage_options=self.options or None)
            written = table.transaction_version(self.application)
            if written is not None and written >= number:
                return
            known = {field.name for field in table.schema().fields}
        rows = batch.toArrow()
        if rows.num_rows == 0:
            return
        marks: Any = deltalake.CommitProperties(
            app_transactions=[deltalake.Transaction(self.application, number)]
        )
        is_wider = known is not None and not known.issuperset(rows.column_names)
        deltalake.write_deltalake(
            self.table,
            rows,
            mode="append",
            schema_mode="merge" if is_wider else None,
            partition_by=self.partition_by or None,
            commit_properties=marks,
            storage_options=self.options or None,
        )
