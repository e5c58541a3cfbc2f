"""Where a flow ends: its DataFrame becomes a query that writes to an exchange, to files or the terminal.

Directories of Parquet files and Delta tables know the numbers of the batches that are in them, and a batch
whose number they have is not written again. That is right when Spark runs the last batch once more, as it
does not know that the batch was written. It is wrong when numbers come again of other rows: from a checkpoint
that was restored from a backup, or from a new one. Such a flow fails and says so, before rows are left out.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flintmq.pipelines.errors import CheckpointUnfit, PipelineFailed
from flintmq.pipelines.file import sql
from flintmq.pipelines.file.model import Flow, Pipeline, Sink
from flintmq.pipelines.queries import brokers
from flintmq.pipelines.queries.fingerprint import FlowRecord, is_remote

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

log = logging.getLogger("flintmq.pipelines")

_ROUTING = ("exchange", "routing_key")
_ORDER = "flintmq_order"
# In the log of a Delta table, with each batch: which it is, and the plan that it was made by.
_BATCH, _PLAN = "flintmq.batch", "flintmq.plan"
# Others may write to the table as well. A batch that is run again is looked for in so many commits.
COMMITS_MAX = 1000


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
        _check_batches(sink, record)
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


def _check_batches(sink: Sink, record: FlowRecord) -> None:
    """Spark leaves out a batch whose number is in the log of the directory, and tells nobody.

    A batch is in the checkpoint before it is in that log. Where one of the two is on no file system of this
    machine nothing is known.
    """
    from flintmq.spark.write.batch_identity import local_directory

    directory, checkpoint = local_directory(sink.target), local_directory(record.checkpoint)
    if directory is None or checkpoint is None:
        return
    written, planned = last_number(directory / "_spark_metadata"), last_number(checkpoint / "offsets")
    if written > planned:
        raise CheckpointUnfit(
            f"sink {sink.name!r}: {sink.target} has batches up to {written}, and the checkpoint "
            f"{record.checkpoint} {f'goes up to {planned}' if planned >= 0 else 'is new'}: it was restored, "
            "deleted or set aside, or is another flow's, and rows of batches that the directory has would be "
            "left out. Give the sink another directory, with --reset if rows are to be read anew."
        )


def check_reset(flow: Flow) -> None:
    """Raises if the sink would not take the batches of a new checkpoint: then the old one is to stay."""
    from flintmq.spark.write.batch_identity import local_directory

    sink = flow.sink
    directory = local_directory(sink.target) if sink.kind == "parquet" else None
    written = -1 if directory is None else last_number(directory / "_spark_metadata")
    if written >= 0:
        raise CheckpointUnfit(
            f"--reset was refused and set nothing aside: {sink.target}, the directory of sink {sink.name!r}, "
            f"has batches up to {written}, and rows of batches that it has would be left out. Give the sink "
            "another directory, or run without --reset."
        )


def last_number(directory: Path) -> int:
    """The highest number of a batch in a log of Spark's, a directory with a file for each; -1 if none."""
    try:
        names = [file.name.partition(".")[0] for file in directory.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return -1
    return max((int(name) for name in names if name.isdigit()), default=-1)


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
        self.checkpoint = record.checkpoint
        self.flow = f"flintmq.{pipeline.name}.{sink.name}"
        self.record_id = record.id
        self.partition_by = list(sink.given.get("partition_by", ()))
        self.options = dict(sink.given.get("options", {}))

    def __call__(self, batch: DataFrame, number: int) -> None:
        import deltalake

        known: set[str] | None = None
        application = self._application(batch)
        if deltalake.DeltaTable.is_deltatable(self.table, self.options or None):
            table = deltalake.DeltaTable(self.table, storage_options=self.options or None)
            written = table.transaction_version(application)
            if written is not None and written >= number:
                self._check_same(table, application, written, number)
                return
            known = {field.name for field in table.schema().fields}
        rows = batch.toArrow()
        if rows.num_rows == 0:
            return
        marks: Any = deltalake.CommitProperties(
            custom_metadata={_BATCH: f"{application} {number}", _PLAN: self._plan(number)},
            app_transactions=[deltalake.Transaction(application, number)],
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

    def _application(self, batch: DataFrame) -> str:
        """Whose numbers these are in the log of the table: those of one checkpoint.

        Spark keeps the id of a query in the checkpoint: another checkpoint, which numbers its batches from 0
        again, has another. The id of the record serves where Spark tells none to this thread.
        """
        query = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        return f"{self.flow}.{query or self.record_id}"

    def _plan(self, number: int) -> str:
        """Spark plans a batch once; empty where the checkpoint is on no file system of this machine."""
        from flintmq.spark.write.batch_identity import digest, planned_in

        planned = planned_in(self.checkpoint, None, number)
        return "" if planned is None else digest(planned)

    def _check_same(self, table: DeltaTable, application: str, written: int, number: int) -> None:
        """Whether a batch whose number is known is the one that is in the table; raises if it is another.

        Spark runs none but the last batch again. A table of an older version has no plans: it is believed.
        """
        name, plan = f"{application} {number}", self._plan(number)
        noted = [each.get(_PLAN) for each in table.history(COMMITS_MAX) if each.get(_BATCH) == name]
        if number < written or (noted and plan and noted[0] not in ("", plan)):
            afresh = "Name another checkpoint" if is_remote(self.checkpoint) else "Start afresh with --reset"
            raise CheckpointUnfit(
                f"batch {number} has the number of another, as {self.table} has batches of this flow up to "
                f"{written}: the checkpoint {self.checkpoint} was restored from a backup or copied. Nothing "
                f"was written. {afresh}: rows that are in the table come again."
            )
        log.warning("batch %d was written to %s before, and is not written again", number, self.table)
