"""A flow as Spark sees it: its sources and transforms become the DataFrame that its sink writes."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flintmq.pipelines.errors import PipelineFailed
from flintmq.pipelines.file import sql
from flintmq.pipelines.file.model import Flow, Pipeline, Source, Transform
from flintmq.pipelines.queries import brokers, decoding, lake
from flintmq.spark.columns import STANDARD

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OFFSETS_PER_TRIGGER_MAX = 500_000


def build(
    session: SparkSession,
    pipeline: Pipeline,
    flow: Flow,
    doing: Callable[[str], None] = lambda _: None,
    read: Callable[[Source], DataFrame] | None = None,
) -> DataFrame:
    """What the flow's sink is to write. `session` is the flow's own: names of views are not shared.

    `doing` is told what comes next, in words that follow "has been starting: ". `read` gives the messages of
    a source in place of its broker, and then nothing is sent to one.
    """
    frames: dict[str, DataFrame] = {}
    for source in flow.sources:
        doing(f"source {source.name!r}")
        if read is None:
            frames[source.name] = _source(session, pipeline, flow, source)
        elif source.kind in ("rate", "lake"):
            frames[source.name] = _finished(read(source), source)
        else:
            given = decoding.decoded(read(source), source, pipeline.name, sends_letters=False)
            frames[source.name] = _finished(given, source)
        frames[source.name].createOrReplaceTempView(source.name)
    for transform in flow.transforms:
        doing(f"transform {transform.name!r}")
        made = _transform(session, pipeline, transform, frames)
        if "watermark" in transform.given:
            made = made.withWatermark(*transform.given["watermark"])
        made.createOrReplaceTempView(transform.name)
        frames[transform.name] = made
    return frames[flow.sink.input]


def build_empty(session: SparkSession, pipeline: Pipeline) -> None:
    """Every transform over sources without rows: finds what only Spark can find, and reads nothing."""
    from flintmq.spark.schema import COLUMNS as amqp_types

    frames: dict[str, DataFrame] = {}
    for source in pipeline.sources:
        frame = session.readStream.format("rate").load()
        schema = source.given.get("schema") or (
            AMQP_SCHEMA if source.kind != "rate" else "timestamp TIMESTAMP, value BIGINT"
        )
        if source.kind == "lake":
            schema = lake.ddl_of(source.target)
        columns = [
            f"CAST(NULL AS {field.dataType.simpleString()}) AS `{field.name}`" for field in _fields(schema)
        ]
        for name in source.given.get("metadata", ()) if source.format != "raw" else ():
            columns.append(f"CAST(NULL AS {amqp_types[name].simpleString()}) AS `{name}`")
        frames[source.name] = _finished(frame.selectExpr(*columns), source)
        frames[source.name].createOrReplaceTempView(source.name)
    for transform in pipeline.transforms:
        try:
            made = _transform(session, pipeline, transform, frames)
            if "watermark" in transform.given:
                made = made.withWatermark(*transform.given["watermark"])
        except Exception as error:
            raise PipelineFailed(f"{pipeline.file}:{transform.line}: {first_line(error)}") from error
        made.createOrReplaceTempView(transform.name)
        frames[transform.name] = made


AMQP_SCHEMA = ", ".join(f"{name} {kind}" for name, kind in STANDARD.items())


def _fields(ddl: str) -> list[Any]:
    from pyspark.sql.types import StructType

    return list(StructType.fromDDL(ddl).fields)


def first_line(error: BaseException) -> str:
    """What a user needs of an exception of Spark's: what it says, without plans and stacks."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def _source(session: SparkSession, pipeline: Pipeline, flow: Flow, source: Source) -> DataFrame:
    if source.kind == "rate":
        return _finished(
            session.readStream.format("rate").option("rowsPerSecond", source.target).load(), source
        )
    if source.kind == "lake":
        return _finished(lake.frame(session, source), source)
    reader = session.readStream.format("amqp").options(**amqp_options(pipeline, flow, source))
    is_first = next(each for each in pipeline.flows() if source in each.sources) == flow
    return _finished(decoding.decoded(reader.load(), source, pipeline.name, sends_letters=is_first), source)


def amqp_options(pipeline: Pipeline, flow: Flow, source: Source) -> dict[str, str]:
    """The options of the amqp source; what the file says under options wins."""
    name = brokers.reader_name(pipeline, flow, source)
    options = {"startingOffsets": "earliest"}
    if source.kind == "stream":
        options["queueType"] = "stream"  # of a classic queue each flow would get some of the rows
    else:
        options["consumerName"] = name
    if source.kind == "queues":
        options["queues"] = ",".join(source.target)
    elif source.kind == "queue_pattern":
        options["queuePattern"] = source.target
    else:
        options["queue"] = name if source.kind == "exchange" else source.target
    options |= brokers.spark_options(source.given.get("uri"))
    if source.format != "raw" or "metadata" in source.given:
        options["columns"] = ",".join(decoding.wanted_columns(source))
    options["maxOffsetsPerTrigger"] = str(OFFSETS_PER_TRIGGER_MAX)
    return {**options, **source.given.get("options", {})}


def _finished(frame: DataFrame, source: Source) -> DataFrame:
    for name, expression in source.given.get("columns", {}).items():
        frame = frame.selectExpr("*", f"{expression} AS `{name}`")
    if "watermark" in source.given:
        frame = frame.withWatermark(*source.given["watermark"])
    return frame


def _transform(
    session: SparkSession, pipeline: Pipeline, transform: Transform, frames: dict[str, DataFrame]
) -> DataFrame:
    given = transform.given
    if transform.kind == "sql":
        return session.sql(given["sql"])
    if transform.kind == "python":
        return _called(pipeline, transform, {name: frames[name] for name in transform.inputs})
    frame = frames[transform.inputs[0]]
    if transform.kind == "distinct_by":
        return frame.dropDuplicatesWithinWatermark(list(given["distinct_by"]))
    return _routed(frame, transform)


def _called(pipeline: Pipeline, transform: Transform, inputs: dict[str, DataFrame]) -> DataFrame:
    """What the user's function makes of its inputs."""
    from pyspark.sql import DataFrame

    where = f"transform {transform.name!r} ({transform.given['python']})"
    try:
        function = function_of(pipeline, transform.given["python"])
        made = function(inputs, transform.given.get("arguments", {}))
    except PipelineFailed:
        raise
    except (Exception, SystemExit) as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(frame.filename).name}, line {frame.lineno}"
        said = "ended the process" if isinstance(error, SystemExit) else f"raised {type(error).__name__}"
        raise PipelineFailed(f"{where} {said} at {place}: {first_line(error)}") from None
    if not isinstance(made, DataFrame):
        raise PipelineFailed(f"{where} returned {type(made).__name__}, expected a DataFrame of Spark")
    return made


def function_of(pipeline: Pipeline, reference: str) -> Any:
    """The function, from a module that is installed or lies beside the pipeline's file."""
    name, _, attribute = reference.partition(":")
    directory = str(pipeline.directory) if pipeline.directory is not None else None
    if directory is not None and directory not in sys.path:
        sys.path.insert(0, directory)
    module = importlib.import_module(name)
    if directory is not None and (module.__file__ or "").startswith(directory):
        # Executors do not have the file: what it defines travels by value.
        from pyspark import cloudpickle

        cloudpickle.register_pickle_by_value(module)
    function = getattr(module, attribute, None)
    if not callable(function):
        raise PipelineFailed(f"python = {reference!r}: the module {name!r} has no function {attribute!r}")
    return function


def _routed(frame: DataFrame, transform: Transform) -> DataFrame:
    """Adds exchange and routing_key; a row that no rule wants is dropped."""
    targets = ", ".join(
        f"CASE WHEN {rule.when} THEN struct({sql.expression(rule.exchange)} AS exchange, "
        f"{sql.expression(rule.routing_key)} AS routing_key) END"
        for rule in transform.rules
    )
    others = [f"`{name}`" for name in frame.columns if name not in ("exchange", "routing_key")]
    if transform.given.get("match", "first") == "first":
        chosen = frame.selectExpr("*", f"coalesce({targets}) AS _target").filter("_target IS NOT NULL")
    else:
        chosen = frame.selectExpr("*", f"explode(array_compact(array({targets}))) AS _target")
    return chosen.selectExpr(*others, "_target.exchange AS exchange", "_target.routing_key AS routing_key")
