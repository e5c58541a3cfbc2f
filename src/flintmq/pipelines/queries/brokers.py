"""What a pipeline asks of a broker itself: where it is, and that queues, streams and exchanges are there."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from flintmq.client.core.errors import ClientError, NotFound
from flintmq.client.core.settings import Settings
from flintmq.client.sync.connection import Connection, connect
from flintmq.pipelines.errors import PipelineFailed
from flintmq.pipelines.file.model import Flow, Pipeline, Source
from flintmq.spark import options
from flintmq.spark.errors import BadOption


def settings_of(uri: str | None, environment: Mapping[str, str] | None = None) -> Settings:
    """A URI, or the environment's FLINTMQ_URI, or this machine; FLINTMQ_PASSWORD where the URI has none."""
    try:
        return options.settings_of({"uri": uri}, environment, "flintmq pipeline")
    except BadOption as error:
        raise PipelineFailed(str(error)) from None


def spark_options(uri: str | None) -> dict[str, str]:
    """How the amqp format is told of a broker. Spark shows options in its plans, and plans in its errors, but
    not the one called `url`: there a password may be."""
    if uri is None:
        return {}
    return {"url" if urlsplit(uri).password else "uri": uri}


def reader_name(pipeline: Pipeline, flow: Flow, source: Source) -> str:
    """What a flow's own queue, or its lease of a queue, is called at the broker."""
    return f"{pipeline.name}.{flow.name}.{source.name}"


def prepare(pipeline: Pipeline, flow: Flow) -> None:
    """Declares and binds what the flow's file says is to be declared."""
    for source in flow.sources:
        if source.kind in ("queue", "queues", "stream", "exchange"):
            _prepare_source(pipeline, flow, source)
    sink = flow.sink
    if sink.kind == "exchange" and sink.given.get("exchange_type"):
        uri = sink_uri(flow)
        try:
            with connect(settings_of(uri)) as connection:
                connection.channel().exchange(sink.target, sink.given["exchange_type"], durable=True)
        except ClientError as error:
            raise PipelineFailed(f"sink {sink.name!r}: {error}") from error


def sink_uri(flow: Flow) -> str | None:
    """A sink that names no broker writes to that of the first source that does."""
    named = [source.given["uri"] for source in flow.sources if "uri" in source.given]
    uri: str | None = flow.sink.given.get("uri") or (named[0] if named else None)
    return uri


def _prepare_source(pipeline: Pipeline, flow: Flow, source: Source) -> None:
    declares = source.given.get("declare", False)
    if source.kind != "exchange" and not declares:
        return
    try:
        with connect(settings_of(source.given.get("uri"))) as connection:
            if source.kind == "exchange":
                _bind(connection, source, reader_name(pipeline, flow, source))
                return
            arguments = {"x-queue-type": "stream"} if source.kind == "stream" else {}
            for name in [source.target] if isinstance(source.target, str) else source.target:
                try:
                    connection.channel().queue(name, passive=True)
                except NotFound:
                    connection.channel().queue(name, durable=True, arguments={**arguments})
    except ClientError as error:
        raise PipelineFailed(f"source {source.name!r}: {error}") from error


def _bind(connection: Connection, source: Source, queue: str) -> None:
    channel = connection.channel()
    if source.given.get("exchange_type"):
        channel.exchange(source.target, source.given["exchange_type"], durable=True)
    declared = channel.queue(queue, durable=True)
    for key in source.given["binding"]:
        declared.bind(source.target, key)
