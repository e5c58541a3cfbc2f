"""Spans of OpenTelemetry for what a client publishes and handles, and the context in messages' headers.

    publish            a span of kind PRODUCER; traceparent and tracestate go into the headers
    handling, run      a span of kind CONSUMER, whose parent is what the headers name

Given to a connection as `spans=Spans()`. A connection without it loads nothing of OpenTelemetry, and asks one
attribute for each call. The broker carries the headers as they are.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from flintmq.client.core.errors import BadSettings
from flintmq.wire.properties import BasicProperties

if TYPE_CHECKING:
    from flintmq.client.core.message import Message

SYSTEM = "flintmq"


class Spans:
    """`provider` is a TracerProvider, by default that of the program; with one the settings do not pickle."""

    def __init__(self, provider: Any = None) -> None:
        self.provider = provider
        api()

    def tracer(self) -> Any:
        return api().get_tracer("flintmq.client", tracer_provider=self.provider)

    @contextmanager
    def publishing(self, exchange: str, routing_key: str, count: int) -> Iterator[None]:
        """The span of one call that publishes so many messages."""
        attributes: dict[str, Any] = {
            "messaging.system": SYSTEM,
            "messaging.operation.type": "send",
            "messaging.destination.name": exchange or routing_key,
            "messaging.rabbitmq.destination.routing_key": routing_key,
        }
        if count != 1:
            attributes["messaging.batch.message_count"] = count
        with self.tracer().start_as_current_span(
            f"{exchange or routing_key or 'amqp'} publish",
            kind=api().SpanKind.PRODUCER,
            attributes=attributes,
        ):
            yield

    def marked(self, properties: BasicProperties) -> BasicProperties:
        """The same properties with the context of the current span in their headers."""
        given = {name: getattr(properties, name) for name in properties.FIELDS}
        headers = dict(properties.headers or {})
        importlib.import_module("opentelemetry.propagate").inject(headers)
        given["headers"] = headers or None
        return BasicProperties(**given)

    def marked_each(self, properties: Sequence[BasicProperties]) -> list[BasicProperties]:
        return [self.marked(each) for each in properties]

    @contextmanager
    def handling(self, message: Message, queue: str = "") -> Iterator[None]:
        """The span of what is done with a message; an exception ends it as failed, and goes on."""
        carrier = {name: value for name, value in message.headers.items() if isinstance(value, str)}
        parent = importlib.import_module("opentelemetry.propagate").extract(carrier)
        attributes = {
            "messaging.system": SYSTEM,
            "messaging.operation.type": "process",
            "messaging.destination.name": message.exchange or message.routing_key,
            "messaging.rabbitmq.destination.routing_key": message.routing_key,
            "messaging.message.body.size": len(message.body),
        }
        with self.tracer().start_as_current_span(
            f"{queue or message.routing_key or 'amqp'} process",
            context=parent,
            kind=api().SpanKind.CONSUMER,
            attributes=attributes,
        ):
            yield


def api() -> Any:
    try:
        return importlib.import_module("opentelemetry.trace")
    except ImportError:
        raise BadSettings(
            "spans need OpenTelemetry: pip install 'flintmq[otel]', or connect without spans"
        ) from None
