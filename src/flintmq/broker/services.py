"""Requests to the broker itself: the interface that services are written against."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flintmq.errors import FlintError
from flintmq.wire import amqp
from flintmq.wire.tables import FieldTable, FieldValue

if TYPE_CHECKING:
    from flintmq.broker.channel import Channel

Service = Callable[["Request"], None]

SERVICES: dict[str, Service] = {}
NUMBER_MAX = (1 << 63) - 1
_REQUIRED: Any = object()


class ServiceFault(FlintError):
    """A request that is answered by a failure: an AMQP reply code, and what was wrong."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code} {text}")
        self.code = code
        self.text = text


class Request:
    """One question to the broker; `answered` gets its results and body."""

    def __init__(
        self,
        channel: Channel,
        name: str,
        arguments: FieldTable,
        answered: Callable[[FieldTable, bytes], None],
        body: bytes = b"",
    ) -> None:
        self.channel = channel
        self.name = name
        self.arguments = arguments
        self.answered = answered
        self.body = body

    def text(self, name: str, default: str = _REQUIRED) -> str:
        value = self._argument(name, default)
        if not isinstance(value, str):
            raise self.wrong(name, "expected text")
        return value

    def number(self, name: str, default: int = _REQUIRED, minimum: int = 0, maximum: int = NUMBER_MAX) -> int:
        value = self._argument(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
            raise self.wrong(name, f"expected a whole number from {minimum} to {maximum}")
        return value

    def _argument(self, name: str, default: FieldValue) -> FieldValue:
        value = self.arguments.get(name, default)
        if value is _REQUIRED:
            raise self.wrong(name, "is missing")
        return value

    def wrong(self, name: str, why: str) -> ServiceFault:
        """The fault of an argument."""
        return ServiceFault(
            amqp.PRECONDITION_FAILED, f"PRECONDITION_FAILED - {self.name}: argument '{name}': {why}"
        )

    def reply(self, results: FieldTable, body: bytes = b"") -> None:
        self.answered(results, body)

    def fail(self, code: int, text: str) -> None:
        self.reply({"error-code": code, "error-text": text})


def service(name: str) -> Callable[[Service], Service]:
    """Registers a function(request: Request) as the service of this name."""

    def register(function: Service) -> Service:
        SERVICES[name] = function
        return function

    return register
