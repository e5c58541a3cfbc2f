"""Test cases of a pipeline: rows that go in, rows that are to come out, run on Spark without a broker.

    [[case]]
    name = "dear orders go on"
    in.orders = [{ id = 1, customer = "ann", amount = 5000.0 }, "not an order"]
    out.dear = [{ routing_key = "dear.ann", id = 1 }]

    in.SOURCE    messages, in order: a table is a row of the source's format, a text is a message as it is.
                 A list of such lists is several batches, one after the other
    out.SINK     rows, in any order. A row needs the columns that are named, and may have others

Each flow is a streaming query as in a run: the messages lie in files instead of a queue, and what would be
published is kept in memory. Malformed rows that would go to an exchange are dropped.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from flintmq.checks import suggestion
from flintmq.errors import ConfigFault
from flintmq.pipelines.errors import PipelineFailed
from flintmq.pipelines.file.document import FILE_BYTES_MAX
from flintmq.pipelines.file.model import Flow, Pipeline, Source
from flintmq.pipelines.queries import decoding, frames, sinks
from flintmq.pipelines.run import reasons
from flintmq.spark.columns import STANDARD

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

SUFFIX = ".test.toml"
QUERY_S_MAX = 300
# Rows come at this time, one microsecond after the other, unless they say otherwise.
FIRST_TIME_US = 1_767_225_600_000_000


@dataclass(frozen=True)
class Case:
    name: str
    given: dict[str, list[list[Any]]]  # by source: batches of messages
    wanted: dict[str, list[dict[str, Any]]]  # by sink


@dataclass(frozen=True)
class Outcome:
    """Of one case: what was wrong, in lines; nothing if it passed."""

    case: Case
    faults: tuple[str, ...]


def file_of(pipeline_file: str) -> Path:
    """Where the cases of a pipeline lie by default: orders.test.toml beside orders.toml."""
    return Path(pipeline_file).with_suffix("").with_suffix(SUFFIX)


def load(file: Path, pipeline: Pipeline) -> list[Case]:
    """The cases of a file; ConfigFault with the first thing that is wrong."""
    try:
        if file.stat().st_size > FILE_BYTES_MAX:
            raise ConfigFault(f"{file}: larger than {FILE_BYTES_MAX} bytes; test with few rows")
        tables = tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise ConfigFault(f"{file}: {error.strerror}; name the file of the cases with --cases") from None
    except (ValueError, RecursionError) as error:
        raise ConfigFault(f"{file}: this is not TOML: {error}") from None
    rows = tables.get("case")
    if not isinstance(rows, list) or not rows or set(tables) != {"case"}:
        raise ConfigFault(f"{file}: expected [[case]] tables, with name, in and out")
    return [_case(file, place, row, pipeline) for place, row in enumerate(rows, 1)]


def _case(file: Path, place: int, row: Any, pipeline: Pipeline) -> Case:
    where = f"{file}: case {place}"
    if not isinstance(row, dict) or not {"in", "out"} <= set(row) <= {"name", "in", "out"}:
        raise ConfigFault(f"{where}: expected in and out, and perhaps name")
    sources = [source.name for source in pipeline.sources]
    flows = [flow.name for flow in pipeline.flows()]
    for key, known in (("in", sources), ("out", flows)):
        if not isinstance(row[key], dict) or not row[key]:
            raise ConfigFault(f"{where}: {key} is a table with rows for one of {', '.join(known)}")
        for name, value in row[key].items():
            if name not in known:
                raise ConfigFault(f"{where}: {key}.{name}: there is no such name{suggestion(name, known)}")
            if not isinstance(value, list):
                raise ConfigFault(f"{where}: {key}.{name}: expected a list of rows")
    wanted = {name: list(rows) for name, rows in row["out"].items()}
    if not all(isinstance(each, dict) for rows in wanted.values() for each in rows):
        raise ConfigFault(f"{where}: out: expected a table for each row")
    given = {name: _batches(rows) for name, rows in row["in"].items()}
    return Case(str(row.get("name", f"case {place}")), given, wanted)


def _batches(rows: list[Any]) -> list[list[Any]]:
    return rows if rows and all(isinstance(row, list) for row in rows) else [rows]


def run(spark: SparkSession, pipeline: Pipeline, cases: list[Case]) -> Iterator[Outcome]:
    """Runs the cases, each on its own."""
    for case in cases:
        faults: list[str] = []
        for flow in pipeline.flows():
            if flow.name in case.wanted:
                with TemporaryDirectory(prefix="flintmq-case-") as directory:
                    faults += _run_flow(spark, pipeline, flow, case, Path(directory))
        yield Outcome(case, tuple(faults))


def _run_flow(
    spark: SparkSession, pipeline: Pipeline, flow: Flow, case: Case, directory: Path
) -> Iterator[str]:
    from pyspark.errors import StreamingQueryException

    from flintmq.pipelines.run.sessions import session_of_flow

    session = session_of_flow(spark, pipeline.spark)
    read = {source.name: Messages(session, source, directory / source.name) for source in flow.sources}
    for number in range(max(len(case.given.get(source.name, [])) for source in flow.sources)):
        for source in flow.sources:
            batches = case.given.get(source.name, [])
            read[source.name].add(batches[number] if number < len(batches) else [])
    frame = frames.build(session, pipeline, flow, read=lambda source: read[source.name].frame())
    if flow.sink.kind == "exchange":
        frame = sinks.messages(frame, flow.sink)
    table = f"case_{flow.name.replace('-', '_')}"
    writer = frame.writeStream.format("memory").queryName(table)
    writer = writer.outputMode(flow.sink.given.get("output_mode", "append"))
    query = writer.trigger(availableNow=True).start()
    try:
        if not query.awaitTermination(QUERY_S_MAX):
            query.stop()
            yield f"{flow.name}: the query took longer than {QUERY_S_MAX} s"
            return
    except StreamingQueryException as error:
        yield f"{flow.name}: {reasons.plain(error)}"
        return
    found = [_shown(flow, row.asDict(recursive=True)) for row in session.table(table).collect()]
    yield from differences(flow.name, case.wanted[flow.name], found)


def _shown(flow: Flow, row: dict[str, Any]) -> dict[str, Any]:
    """A row as cases write it: of a message the columns of its body, and routing key and properties."""
    if flow.sink.kind != "exchange":
        return row
    body = bytes(row.pop("value") or b"")
    made: dict[str, Any] = {
        "exchange": flow.sink.target,
        "routing_key": flow.sink.given.get("routing_key", ""),
    }
    made |= row
    if flow.sink.given.get("value", "json") == "json":
        return made | dict(json.loads(body))
    return made | {"value": body.decode(errors="replace")}


def differences(sink: str, wanted: list[dict[str, Any]], found: list[dict[str, Any]]) -> Iterator[str]:
    """Rows that did not come, and rows that came unasked."""
    left = list(found)
    for row in wanted:
        match = next((each for each in left if _fits(row, each)), None)
        if match is None:
            yield f"{sink}: did not come: {_text(row)}"
        else:
            left.remove(match)
    for row in left:
        yield f"{sink}: came unasked: {_text(row)}"


def _fits(wanted: Any, found: Any) -> bool:
    if isinstance(wanted, dict) and isinstance(found, dict):
        return all(name in found and _fits(value, found[name]) for name, value in wanted.items())
    if isinstance(wanted, bool) or isinstance(found, bool):
        return wanted is found
    if isinstance(wanted, int | float) and isinstance(found, int | float):
        return bool(abs(wanted - found) <= 1e-9 * max(1.0, abs(wanted)))
    if isinstance(wanted, list) and isinstance(found, list):
        return len(wanted) == len(found) and all(map(_fits, wanted, found))
    return bool(wanted == found or (not isinstance(found, str) and str(wanted) == str(found)))


def _text(row: dict[str, Any]) -> str:
    return json.dumps(row, default=str, ensure_ascii=False)


class Messages:
    """The messages of a source, in files that a streaming query reads one after the other."""

    def __init__(self, session: SparkSession, source: Source, directory: Path) -> None:
        self.session = session
        self.source = source
        self.directory = directory
        self.count = 0
        self.files = 0
        self.schema: StructType = _schema(source)
        directory.mkdir()

    def frame(self) -> DataFrame:
        reader = self.session.readStream.schema(self.schema).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.directory))

    def add(self, messages: list[Any]) -> None:
        """A file with these messages; the next batch has them."""
        import pyarrow
        import pyarrow.parquet
        from pyspark.sql.pandas.types import to_arrow_schema

        rows = [self._row(message) for message in messages]
        arrow = to_arrow_schema(self.schema, timezone=decoding.TIMEZONE)
        try:
            table = pyarrow.Table.from_pylist(rows, schema=arrow)
        except (pyarrow.ArrowException, TypeError, ValueError) as error:
            raise PipelineFailed(f"in.{self.source.name}: {error}") from None
        file = self.directory / f"{self.files:06}.parquet"
        pyarrow.parquet.write_table(table, file)
        # Spark reads files in the order of their times.
        os.utime(file, (self.files + 1, self.files + 1))
        self.files += 1

    def _row(self, message: Any) -> dict[str, Any]:
        from datetime import UTC, datetime

        self.count += 1
        arrived = datetime.fromtimestamp((FIRST_TIME_US + self.count) / 1e6, UTC)
        if self.source.kind in ("rate", "lake"):
            return dict(message) if isinstance(message, dict) else {}
        target = self.source.target if isinstance(self.source.target, str) else self.source.target[0]
        row: dict[str, Any] = {
            "queue": target, "partition": 0, "offset": self.count - 1, "timestamp": arrived, "exchange": "",
            "routing_key": target, "key": target, "redelivered": False,
        }  # fmt: skip
        if isinstance(message, str):
            return row | {"value": message.encode()}
        columns = {name: message[name] for name in message if name in self.schema.names and name != "value"}
        body = {name: value for name, value in message.items() if name not in columns}
        return row | columns | {"value": _encoded(self.source, body)}


def _encoded(source: Source, row: dict[str, Any]) -> bytes:
    """A message of the source's format."""
    if source.format == "json":
        return json.dumps(row, default=str).encode()
    if source.format == "csv":
        from flintmq.pipelines.file import schema

        names = [part.split()[0].strip("`:") for part in schema.columns(source.given["schema"])]
        return ",".join(str(row.get(name, "")) for name in names).encode()
    if source.format == "raw" and set(row) <= {"value"}:
        return str(row.get("value", "")).encode()
    raise PipelineFailed(
        f"in.{source.name}: give messages of format {source.format} as texts; tables are for json and csv"
    )


def _schema(source: Source) -> StructType:
    from pyspark.sql.types import StructField, StructType

    from flintmq.spark.schema import COLUMNS

    if source.kind == "rate":
        return StructType.fromDDL("timestamp TIMESTAMP, value BIGINT")
    if source.kind == "lake":
        from flintmq.pipelines.queries import lake

        return StructType.fromDDL(lake.ddl_of(source.target))
    names = dict.fromkeys((*STANDARD, *source.given.get("metadata", ())))
    return StructType([StructField(name, COLUMNS[name]) for name in names])
