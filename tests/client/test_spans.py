"""Spans of OpenTelemetry, and the context that messages carry.

Recorded by a tracer of our own, of the API alone, and by the SDK's exporter.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from broker_process import BrokerProcess
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from flintmq.client import BadSettings, PublishFailed, Settings, Spans, connect
from flintmq.client.aio.connection import connect as connect_async
from flintmq.client.core import spans as spans_module

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
STATE = "vendor=of-mine"


class Recorded(NonRecordingSpan):
    """A span that remembers what became of it."""

    def __init__(self, name: str, parent: SpanContext, number: int, options: dict[str, Any]) -> None:
        trace_id = parent.trace_id or 1000 + number
        super().__init__(SpanContext(trace_id, number, False, TraceFlags(1), parent.trace_state))
        self.name = name
        self.parent = parent
        self.kind = options.get("kind")
        self.attributes = dict(options.get("attributes") or {})
        self.failure: BaseException | None = None


class Recorder(trace.TracerProvider, trace.Tracer):
    def __init__(self) -> None:
        self.spans: list[Recorded] = []

    def get_tracer(self, *_: Any, **__: Any) -> trace.Tracer:
        return self

    def start_span(self, name: str, context: Context | None = None, **options: Any) -> Recorded:
        parent = trace.get_current_span(context).get_span_context()
        span = Recorded(name, parent, len(self.spans) + 1, options)
        self.spans.append(span)
        return span

    @contextmanager
    def start_as_current_span(  # type: ignore[override]
        self, name: str, context: Context | None = None, **options: Any
    ) -> Iterator[Recorded]:
        span = self.start_span(name, context, **options)
        try:
            with trace.use_span(span):
                yield span
        except Exception as failure:
            span.failure = failure
            raise


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess() as process:
        yield process


@pytest.fixture
def url(broker: BrokerProcess) -> str:
    return f"amqp://guest:guest@127.0.0.1:{broker.port}/"


def test_the_context_goes_through_the_broker_as_it_is(url: str) -> None:
    with connect(url) as connection, connection.channel(confirm=True) as channel:
        queue = channel.queue("", exclusive=True)
        headers = {"traceparent": PARENT, "tracestate": STATE, "baggage": "k=v"}
        channel.publish(b"x", routing_key=queue.name, headers=headers)
        message = queue.get(no_ack=True)
        assert message is not None
        assert message.headers == headers


def test_from_the_publisher_to_whoever_handles_the_message(url: str) -> None:
    recorder = Recorder()
    with (
        connect(url, spans=Spans(recorder)) as connection,
        connection.channel(confirm=True) as channel,
    ):
        queue = channel.queue("spanned", exclusive=True)
        channel.publish(b"one", routing_key="spanned", headers={"own": 1})
        channel.publish_many([b"two", b"three"], routing_key="spanned")
        seen: list[tuple[bytes, Any, int]] = []

        def handle(message: Any) -> None:
            seen.append(
                (
                    message.body,
                    message.headers.get("own"),
                    trace.get_current_span().get_span_context().span_id,
                )
            )
            if message.body == b"three":
                raise ValueError("of the program")

        consumer = queue.consume(timeout_s=0.5)
        consumer.run(handle)
    first, many, *handled = recorder.spans
    assert (first.name, first.kind) == ("spanned publish", trace.SpanKind.PRODUCER)
    assert first.attributes["messaging.destination.name"] == "spanned"
    assert many.attributes["messaging.batch.message_count"] == 2
    assert [span.name for span in handled] == ["spanned process"] * 3
    assert {span.kind for span in handled} == {trace.SpanKind.CONSUMER}
    parents = [(span.parent.trace_id, span.parent.span_id) for span in handled]
    expected = [
        (span.get_span_context().trace_id, span.get_span_context().span_id) for span in (first, many, many)
    ]
    assert parents == expected
    ids = [span.get_span_context().span_id for span in handled]
    assert seen == [(b"one", 1, ids[0]), (b"two", None, ids[1]), (b"three", None, ids[2])]
    assert [type(span.failure) for span in handled] == [type(None), type(None), ValueError]
    assert first.parent == trace.INVALID_SPAN_CONTEXT


@pytest.mark.parametrize("many", [False, True])
def test_a_publish_that_fails_ends_its_span(url: str, many: bool) -> None:
    recorder = Recorder()
    with connect(url, spans=Spans(recorder)) as connection:
        channel = connection.channel(confirm=True)
        publish = (lambda body, **how: channel.publish_many([body], **how)) if many else channel.publish
        with pytest.raises(PublishFailed):
            publish(b"x", routing_key="nowhere", mandatory=True)
    assert recorder.spans[0].failure is not None


async def of_the_async_client(url: str, recorder: Recorder) -> None:
    async with (
        await connect_async(url, spans=Spans(recorder)) as connection,
        await connection.channel(confirm=True) as channel,
    ):
        queue = await channel.queue("", exclusive=True)
        await channel.publish(b"x", routing_key=queue.name)
        message = await queue.get(no_ack=True)
        assert message is not None
        with Spans(recorder).handling(message, "by hand"):
            pass


def test_the_async_client(url: str) -> None:
    import asyncio

    recorder = Recorder()
    asyncio.run(of_the_async_client(url, recorder))
    published, handled = recorder.spans
    assert handled.name == "by hand process"
    assert handled.parent.span_id == published.get_span_context().span_id


def test_nothing_is_loaded_unasked(url: str) -> None:
    program = (
        "import sys; from flintmq.client import connect\n"
        f"with connect({url!r}) as connection, connection.channel() as channel:\n"
        "    channel.publish(b'x', routing_key='nowhere')\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_settings_with_spans_pickle() -> None:
    settings = Settings.of("amqp://localhost/", spans=Spans())
    assert pickle.loads(pickle.dumps(settings)).spans.provider is None


def test_without_opentelemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(spans_module.importlib, "import_module", missing)
    with pytest.raises(BadSettings, match=r"pip install 'flintmq\[otel\]'"):
        Spans()


def test_the_exporter_of_the_sdk(url: str) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    spans = Spans(provider)
    with connect(url, spans=spans) as connection, connection.channel(confirm=True) as channel:
        queue = channel.queue("", exclusive=True)
        channel.publish(b"x", routing_key=queue.name)
        message = queue.get(no_ack=True)
        assert message is not None
        with spans.handling(message):
            pass
    published, handled = exporter.get_finished_spans()
    assert handled.parent.span_id == published.context.span_id
    assert handled.context.trace_id == published.context.trace_id
