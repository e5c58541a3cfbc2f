"""What a connection has declared, so that it can be declared again when a lost broker is back.

Records are kept in the order they came. A queue that the server named gets a new name with its next
life: whoever holds the record sees it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from flintmq.wire.methods import ExchangeBind, ExchangeDeclare, Method, QueueBind, QueueDeclare
from flintmq.wire.tables import FieldTable

# Declared by one connection; more would take minutes to declare again.
RECORDS_MAX = 100_000


@dataclass(eq=False)
class QueueRecord:
    """A queue, as it was declared."""

    name: str
    declared: QueueDeclare | None = None  # None: only looked at, never declared again
    message_count: int = 0
    consumer_count: int = 0

    def declaration(self) -> QueueDeclare:
        assert self.declared is not None
        return self.declared

    @property
    def server_named(self) -> bool:
        return self.declared is not None and self.declared.queue == ""


@dataclass(frozen=True)
class BindingRecord:
    """A binding of a queue, or of an exchange, to a source exchange."""

    source: str
    routing_key: str
    arguments: FieldTable = field(compare=False)
    queue: QueueRecord | None = None
    exchange: str = ""

    def bind(self) -> Method:
        if self.queue is not None:
            return QueueBind(
                queue=self.queue.name,
                exchange=self.source,
                routing_key=self.routing_key,
                arguments=self.arguments,
            )
        return ExchangeBind(
            destination=self.exchange,
            source=self.source,
            routing_key=self.routing_key,
            arguments=self.arguments,
        )


class Topology:
    """The exchanges, queues and bindings of one connection."""

    def __init__(self) -> None:
        self.exchanges: dict[str, ExchangeDeclare] = {}
        self.queues: dict[str, QueueRecord] = {}
        self.bindings: list[BindingRecord] = []

    def queue(self, name: str) -> QueueRecord:
        """The record of a queue by its present name; a new one if this connection did not declare it."""
        return self.queues.get(name) or QueueRecord(name)

    def declared(self, record: QueueRecord) -> None:
        if len(self.queues) < RECORDS_MAX:
            self.queues[record.name] = record

    def renamed(self, record: QueueRecord, name: str) -> None:
        self.queues.pop(record.name, None)
        record.name = name
        self.queues[name] = record

    def deleted_queue(self, name: str) -> None:
        self.queues.pop(name, None)
        self.bindings = [each for each in self.bindings if each.queue is None or each.queue.name != name]

    def declared_exchange(self, method: ExchangeDeclare) -> None:
        if len(self.exchanges) < RECORDS_MAX:
            self.exchanges[method.exchange] = method

    def deleted_exchange(self, name: str) -> None:
        self.exchanges.pop(name, None)
        self.bindings = [each for each in self.bindings if name not in (each.source, each.exchange)]

    def bound(self, record: BindingRecord) -> None:
        self.unbound(record)
        if len(self.bindings) < RECORDS_MAX:
            self.bindings.append(record)

    def unbound(self, record: BindingRecord) -> None:
        self.bindings = [
            each
            for each in self.bindings
            if (each.source, each.routing_key, each.exchange, each.arguments)
            != (record.source, record.routing_key, record.exchange, record.arguments)
            or each.queue is not record.queue
        ]

    def again(self) -> Iterator[tuple[Method, QueueRecord | None]]:
        """The methods that declare everything again; each is made when it is its turn, as names change."""
        for exchange in list(self.exchanges.values()):
            yield exchange, None
        for record in list(self.queues.values()):
            yield record.declaration(), record
        for binding in list(self.bindings):
            yield binding.bind(), None
