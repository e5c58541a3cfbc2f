"""Where a flow ends: its DataFrame becomes a query that writes to an exchange, to files or the terminal.

Directories of Parquet files and Delta tables know the numbers of the batches that are in them, and a batch
whose number they have is not written again. That is right when Spark runs the last batch once more, as it
does not know that the batch was written. It is wrong when numbers come again of other rows: from a checkpoint
that was restored from a backup, or from a new one. Such a flow fails and says so, before rows are left out.
For Parquet files see pipelines/queries/parquet_directory.py, which is asked before a query is started.

With the rows of each batch the log of a Delta table gets the versions of three "applications", as Delta calls
those who write:

    flintmq.PIPELINE.SINK.QUERY        the number of the batch
    flintmq.PIPELINE.SINK.QUERY.plan   a digest of the file offsets/N in the checkpoint. Spark writes the file
                                       once, before the batch first runs, with the time and the offsets of all
                                       sources. A batch that is run again has the same, no other has.
    flintmq.PIPELINE.SINK.QUERY.run    digits of the name of the run, of which the checkpoint has a note.
                                       Spark keeps the plans of 100 batches: for older ones the run tells.

Delta keeps the last version of each application when the log is cut. A commit fails if the same application
was given a version since the table was looked at.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

from flintmq.pipelines.errors import CheckpointUnfit, PipelineFailed
from flintmq.pipelines.file import sql
from flintmq.pipelines.file.model import Flow, Pipeline, Sink
from flintmq.pipelines.queries import brokers
from flintmq.pipelines.queries.fingerprint import FlowRecord, is_remote
from flintmq.pipelines.queries.parquet_directory import LOG, last_number
from flintmq.pipelines.queries.run_notes import RUNS_MAX, Run, RunNotes
from flintmq.pipelines.queries.spark_files import SparkFiles

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

log = logging.getLogger("flintmq.pipelines")

_ROUTING = ("exchange", "routing_key")
_ORDER = "flintmq_order"
_PLAN, _RUN = ".plan", ".run"
# A version is a whole number: of 52 bits, which a reader of JSON that knows no others takes as they are.
_DIGITS = 13


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
        files = SparkFiles(frame.sparkSession)
        note_run(record, files)
        return frame.writeStream.foreachBatch(DeltaWriter(pipeline, sink, record, files))
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


def check_reset(flow: Flow) -> None:
    """Raises if the sink would not take the batches of a new checkpoint: then the old one is to stay."""
    from flintmq.spark.write.batch_identity import local_directory

    sink = flow.sink
    directory = local_directory(sink.target) if sink.kind == "parquet" else None
    log_of_batches = None if directory is None else directory / LOG
    if log_of_batches is None or not log_of_batches.is_dir():
        return  # where the directory is on no file system of this machine, the start of the flow finds out
    written = last_number(os.listdir(log_of_batches))
    if written >= 0:
        raise CheckpointUnfit(
            f"--reset was refused and set nothing aside: {sink.target}, the directory of sink {sink.name!r}, "
            f"has batches up to {written}, and rows of batches that it has would be left out. Give the sink "
            "another directory, or run without --reset."
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


def note_run(record: FlowRecord, files: SparkFiles) -> None:
    """Notes a run into a Delta table in the checkpoint, once."""
    notes = RunNotes(record.checkpoint, files)
    known = notes.runs()
    if record.run not in {run.token for run in known}:
        last = max((run.sequence for run in known), default=-1)
        notes.add(Run(last + 1, 0, record.run), known)


def _digits(text: str) -> int:
    return int(text[:_DIGITS], 16)


class DeltaWriter:
    """Writes each batch to a Delta table once: its number goes into the table's own log with the rows."""

    def __init__(self, pipeline: Pipeline, sink: Sink, record: FlowRecord, files: SparkFiles) -> None:
        self.table = sink.target
        self.checkpoint = record.checkpoint
        self.files = files
        self.flow = f"flintmq.{pipeline.name}.{sink.name}"
        self.record_id = record.id
        self.run = record.run
        self.partition_by = list(sink.given.get("partition_by", ()))
        self.options = dict(sink.given.get("options", {}))
        self._last: tuple[int, int] | None = None  # number and plan of the batch that was written last

    def __call__(self, batch: DataFrame, number: int) -> None:
        import deltalake

        table, application = self._opened(batch), self._application(batch)
        if self._is_written(table, application, number):
            log.warning("batch %d was written to %s before, and is not written again", number, self.table)
            return
        rows = batch.toArrow()
        if rows.num_rows == 0:
            return
        plan = self._plan(number)
        if plan is None:
            raise CheckpointUnfit(
                f"the checkpoint {self.checkpoint} has no file offsets/{number}, which Spark wrote before "
                "the batch: it was deleted or moved while the flow ran. Nothing was written. Restore it, or "
                f"{self._afresh()}: rows that are in the table come again then."
            )
        versions = {application: number, application + _PLAN: plan, application + _RUN: _digits(self.run)}
        marks: Any = deltalake.CommitProperties(
            app_transactions=[deltalake.Transaction(name, version) for name, version in versions.items()]
        )
        is_wider = not {field.name for field in table.schema().fields}.issuperset(rows.column_names)
        # The table as it was looked at: if the same application has written since, the commit fails.
        deltalake.write_deltalake(
            table,
            rows,
            mode="append",
            schema_mode="merge" if is_wider else None,
            partition_by=self.partition_by or None,
            commit_properties=marks,
        )
        self._last = number, plan

    def _opened(self, batch: DataFrame) -> DeltaTable:
        """The table, which is made without rows if there is none: whoever else makes it then, nobody writes
        rows before looking at it."""
        import deltalake

        options = self.options or None
        if not deltalake.DeltaTable.is_deltatable(self.table, options):
            deltalake.write_deltalake(
                self.table,
                batch.limit(0).toArrow(),
                mode="ignore",
                partition_by=self.partition_by or None,
                storage_options=options,
            )
        return deltalake.DeltaTable(self.table, storage_options=options)

    def _application(self, batch: DataFrame) -> str:
        """Whose numbers these are in the log of the table: those of one checkpoint.

        Spark keeps the id of a query in the checkpoint: another checkpoint, which numbers its batches from 0
        again, has another. The id of the record serves where Spark tells none to this thread.
        """
        query = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        return f"{self.flow}.{query or self.record_id}"

    def _plan(self, number: int) -> int | None:
        """The digest of a batch's plan; None if the checkpoint has none. Spark keeps those of 100 batches."""
        from flintmq.spark.write.batch_identity import digest

        planned = self.files.text(f"{self.checkpoint}/offsets/{number}")
        return None if planned is None else _digits(digest(planned))

    def _is_written(self, table: DeltaTable, application: str, number: int) -> bool:
        """Whether the table has the batch; raises if the last batch in the table is not this checkpoint's.

        Spark runs none but the last batch again. A copy of the checkpoint may have written a batch while this
        one, of the same number, had no rows: then its rows are in the next batch.
        """
        written = table.transaction_version(application)
        if written is None:
            return False
        noted = table.transaction_version(application + _PLAN)
        if noted is None and number >= written:  # a table of an older version has no plans: it is believed
            return bool(number == written)
        own = noted if (written, noted) == self._last else self._plan(written)
        if number > written and (own == noted or (own is None and self._is_of_this(table, application))):
            return False
        if number == written and own is not None and own == noted:
            return True
        if number > written:
            what = f"{self.table} has another batch {written} than the checkpoint"
        else:
            what = f"it has the number of another, as {self.table} has batches of this flow up to {written}"
        raise CheckpointUnfit(
            f"batch {number} was not written: {what}. The checkpoint {self.checkpoint} was restored from a "
            f"backup or copied. {self._afresh().capitalize()}: rows that are in the table come again."
        )

    def _is_of_this(self, table: DeltaTable, application: str) -> bool:
        """Whether a run of this checkpoint wrote the last batch in the table, as far as its notes go back."""
        noted = table.transaction_version(application + _RUN)
        if noted is None:  # a table of an older version has no runs: it is believed
            return True
        known = RunNotes(self.checkpoint, self.files).runs()
        return len(known) >= RUNS_MAX or noted in {_digits(run.token) for run in known}

    def _afresh(self) -> str:
        return "name another checkpoint" if is_remote(self.checkpoint) else "start afresh with --reset"
