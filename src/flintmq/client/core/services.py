"""Requests to the broker itself: published to the exchange `amq.system`, answered over direct reply-to.

    request   routing key: the service      headers: arguments     body: bulk input
    reply     headers: results              body: bulk data
              or headers: error-code, error-text

An Ask is one request with the way its reply is read, so that the sync and the async client share what is
known of a service. These are the services with a wrapper (see also docs/internals/streams.md):

| service | arguments | results |
|---|---|---|
| stream.offsets | stream, beyond, wait-ms | first, end, octets |
| stream.offset-for-time | stream, time-ms | offset |
| stream.bytes | stream, from, to | octets |
| stream.fetch | stream, from, to, max-bytes, columns | first, next, count, end; body: columns |
| queue.peek | queue, after, limit, selector, contains, max-bytes, columns | last, more; body: columns |
| queue.lease | queue, consumer, start, max-rows, max-bytes, timeout-ms, wait-ms | epoch, start, end, octets |
| lease.read | queue, consumer, epoch, start, end, max-bytes, columns | next, count; body: columns |
| lease.ack | queue, consumer, epoch, end | acked |
| lease.renew | queue, consumer, epoch, timeout-ms | |
| lease.release | queue, consumer, epoch | released |

A lease gives consecutive numbers to messages of a queue for one consumer name: `start` is the number
after which it begins (0 for the first), (start, end] is what it holds; asking again with the same start
gives the same messages until they are acked. `epoch` fences: a later lease of the same consumer name by
another client has a higher one, and the calls with a lower are refused with 405.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from flintmq.client.core.batch import total_bytes
from flintmq.client.core.channel import ChannelCore
from flintmq.client.core.confirms import failure
from flintmq.client.core.errors import ClientError, NotFound, RequestUnknown, ServiceError
from flintmq.client.core.message import Message
from flintmq.client.core.pending import Pending, Steps
from flintmq.client.core.topology import QueueRecord
from flintmq.wire import amqp, methods
from flintmq.wire.columns import Columns
from flintmq.wire.properties import BasicProperties
from flintmq.wire.tables import FieldTable, FieldValue

if TYPE_CHECKING:
    from flintmq.client.core.connection import ConnectionCore
    from flintmq.client.core.inbox import Inbox

EXCHANGE = "amq.system"
# Services that change something: to ask twice would do it twice, or undo what others did in between.
CHANGING = {
    "backup.begin",
    "backup.end",
    "ban.clear",
    "queue.move",
    "queue.copy",
    "queue.lease",
    "lease.ack",
    "lease.release",
    "definitions.import",
    "dtx.prepare",
    "dtx.commit",
    "dtx.rollback",
    "dtx.forget-marker",
    "user.add",
    "user.delete",
    "user.set-password",
    "user.set-tags",
    "memory-limit.set",
    "disk-limit.set",
    "vhost.add",
    "vhost.describe",
    "vhost.delete",
    "permission.set",
    "permission.clear",
    "topic-permission.set",
    "topic-permission.clear",
    "policy.set",
    "policy.clear",
    "operator-policy.set",
    "operator-policy.clear",
    "parameter.set",
    "parameter.clear",
    "limit.set",
    "limit.clear",
    "connection.close",
    "staging.delete",
    "staging.publish",
    "trace.off",
    "trace.on",
}
DIRECT_REPLY_TO = "amq.rabbitmq.reply-to"

T = TypeVar("T")


class Reply(NamedTuple):
    """What a service answered."""

    results: FieldTable
    body: bytes


@dataclass(frozen=True)
class Ask(Generic[T]):
    """One request, and how its reply is read."""

    service: str
    arguments: FieldTable
    body: bytes
    read: Callable[[Reply], T]


class Request:
    """An Ask on its way, over as many connections as it takes, under one id that the broker remembers.

    docs/services.md, "Asking again", has the broker's side.
    """

    def __init__(self, ask: Ask[Any]) -> None:
        self.ask = ask
        self.id = str(uuid.uuid4())
        self.changes = ask.service in CHANGING
        self.first_s: float | None = None  # when it was sent for the first time
        self.memory: FieldValue = None  # of the broker it was first sent to

    def headers(self, connection: ConnectionCore) -> FieldTable:
        """The arguments, and for a repeat what proves that the first attempt did not come."""
        now_s = connection.clock.monotonic_s()
        if self.first_s is None:
            self.first_s = now_s
            self.memory = connection.server_properties.get("request_memory")
            return self.ask.arguments
        if not self.changes:
            return self.ask.arguments
        again_ms = int((now_s - self.first_s) * 1000)
        return {**self.ask.arguments, "x-repeat": again_ms, "x-memory": self.memory}

    def may_repeat(self) -> bool:
        """Whether asking again does nothing twice."""
        return not self.changes or self.first_s is None or isinstance(self.memory, str)

    def renew(self) -> bool:
        """A commit with a marker is done once whatever its id is: the marker is on the broker's disk."""
        if "marker" not in self.ask.arguments or self.first_s is None:
            return False
        self.id = str(uuid.uuid4())
        self.first_s = None
        return True

    def lost(self, error: ClientError) -> ClientError:
        """What to raise when the answer is lost."""
        if self.changes and self.first_s is not None:
            return RequestUnknown(self.ask.service, str(error))
        return error


class Sent:
    """Whether a request has left: it may have been done then."""

    def __init__(self) -> None:
        self.is_sent = False


class ServiceCalls:
    """The channel that a connection asks services on."""

    def __init__(self, connection: ConnectionCore) -> None:
        self.connection = connection
        self.channel: ChannelCore | None = None
        self.reply_to = QueueRecord(DIRECT_REPLY_TO)
        self.inbox: Inbox | None = None
        self.waiting: dict[str, Pending] = {}
        self.asked = 0

    def is_over(self) -> bool:
        return self.channel is not None and self.channel.failure is not None

    def open(self) -> Steps[None]:
        """The channel, consuming replies; of a queue of its own where there is no direct reply-to."""
        try:
            yield from self._consume(self.reply_to)
        except NotFound:
            yield from self._consume(None)

    def _consume(self, reply_to: QueueRecord | None) -> Steps[None]:
        channel = self.connection.new_channel(False, False, None)
        try:
            yield from channel.open()
            if reply_to is None:
                reply_to = yield from channel.declare_queue(
                    methods.QueueDeclare(exclusive=True, auto_delete=True)
                )
            consumer = yield from channel.consume(reply_to, "", True, False, None)
        except ClientError as error:
            channel.discard(error)
            raise
        except BaseException:
            channel.discard(ClientError("the channel was never open"))
            raise
        self.channel = channel
        self.reply_to = reply_to
        self.inbox = consumer.inbox
        consumer.inbox.told = self._received
        channel.listeners.append(self._changed)
        channel.on_return = self._returned

    def ask(self, request: Request) -> Steps[Reply]:
        ask = request.ask
        if self.channel is None:
            yield from self.open()
        assert self.channel is not None
        self.channel.check_publishable()
        properties = BasicProperties(headers=request.headers(self.connection), message_id=request.id)
        pending = Pending(f"asking service {ask.service}", late_is_fine=True)
        reply = yield from self._exchange(ask.body, EXCHANGE, ask.service, properties, False, pending)
        return read_reply(ask.service, reply)

    def call(
        self, body: bytes, exchange: str, routing_key: str, properties: BasicProperties, sent: Sent
    ) -> Steps[Message]:
        """A request to whoever consumes there."""
        assert self.channel is not None
        self.channel.check_publishable()
        pending = Pending(f"calling {routing_key or exchange!r}", late_is_fine=True)
        sent.is_sent = True
        return (yield from self._exchange(body, exchange, routing_key, properties, True, pending))

    def _exchange(
        self,
        body: bytes,
        exchange: str,
        routing_key: str,
        properties: BasicProperties,
        mandatory: bool,
        pending: Pending,
    ) -> Steps[Message]:
        """Publishes, and waits for what comes back under the same correlation id."""
        assert self.channel is not None
        self.asked += 1
        correlation_id = str(self.asked)
        given = {name: getattr(properties, name) for name in properties.FIELDS}
        given.update(reply_to=self.reply_to.name, correlation_id=correlation_id)
        rows = self.channel.rows([body], exchange, routing_key, BasicProperties(**given), mandatory)
        total_bytes(rows.bodies)
        self.waiting[correlation_id] = pending
        try:
            for chunk in self.channel.chunks(rows):
                self.connection.output.write(bytes(chunk))
            reply: Message = yield pending
        finally:
            self.waiting.pop(correlation_id, None)
        return reply

    def _received(self) -> None:
        assert self.inbox is not None
        while (message := self.inbox.next()) is not None:
            # A reply that nobody waits for any more came after its time.
            pending = self.waiting.get(message.properties.correlation_id or "")
            if pending is not None:
                pending.resolve(message)

    def _changed(self) -> None:
        """The channel, or the connection, has come to an end: no answers will come."""
        assert self.channel is not None
        error = self.channel.failure or self.connection.failure
        if error is None:
            return
        if isinstance(error, NotFound):
            error = ServiceError("the request", amqp.NOT_FOUND, "this broker has no services")
        for pending in list(self.waiting.values()):
            pending.fail(error)

    def _returned(self, message: Message, code: int, text: str) -> None:
        pending = self.waiting.get(message.properties.correlation_id or "")
        if pending is None:
            return
        if message.exchange == EXCHANGE:
            pending.fail(ServiceError(message.routing_key, code, text))
        else:
            pending.fail(failure(1, [], [], [message], [1]))


def read_reply(service: str, message: Message) -> Reply:
    """Results and body; an error reply is raised."""
    headers = message.headers
    code = headers.get("error-code")
    if headers.get("request-unknown") is True:
        raise RequestUnknown(service, "its answer was lost, and the broker does not remember the request")
    if code is not None:
        raise ServiceError(service, code if isinstance(code, int) else 0, str(headers.get("error-text", "")))
    return Reply(headers, message.body)


def number(reply: Reply, name: str) -> int:
    value = reply.results.get(name)
    if not isinstance(value, int):
        raise ClientError(f"the broker's reply has no number {name!r}; is it of another version?")
    return value


def creation_id_of(reply: Reply) -> str:
    """Empty where the broker tells none."""
    return str(reply.results.get("creation-id", ""))


def columns_of(reply: Reply) -> Columns:
    try:
        return Columns(reply.body)
    except ValueError as error:
        raise ClientError(f"the broker's reply cannot be read: {error}") from None


# Streams


class Offsets(NamedTuple):
    """`first` is the oldest offset still there, `end` the one that the next message gets."""

    first: int
    end: int
    octets: int
    creation_id: str = ""  # differs when the stream was deleted and made again


def stream_offsets(stream: str, beyond: int | None, wait_ms: int) -> Ask[Offsets]:
    arguments: FieldTable = {"stream": stream}
    if beyond is not None:
        arguments.update({"beyond": beyond, "wait-ms": wait_ms})
    return Ask(
        "stream.offsets",
        arguments,
        b"",
        lambda reply: Offsets(
            number(reply, "first"), number(reply, "end"), number(reply, "octets"), creation_id_of(reply)
        ),
    )


def stream_offset_for_time(stream: str, time_ms: int) -> Ask[int]:
    arguments: FieldTable = {"stream": stream, "time-ms": time_ms}
    return Ask("stream.offset-for-time", arguments, b"", lambda reply: number(reply, "offset"))


def stream_bytes(stream: str, start: int, end: int) -> Ask[int]:
    arguments: FieldTable = {"stream": stream, "from": start, "to": end}
    return Ask("stream.bytes", arguments, b"", lambda reply: number(reply, "octets"))


def stream_fetch(
    stream: str,
    start: int,
    end: int,
    bytes_max: int,
    columns: tuple[str, ...] | None,
    creation_id: str = "",
) -> Ask[Columns]:
    """With a creation id it is refused where the stream of that name is another one by now."""
    arguments: FieldTable = {"stream": stream, "from": start, "to": end, "max-bytes": bytes_max}
    if creation_id:
        arguments["creation-id"] = creation_id
    if columns is not None:
        names: list[FieldValue] = list(columns)
        arguments["columns"] = names
    return Ask("stream.fetch", arguments, b"", columns_of)


# Looking into queues


class Glance(NamedTuple):
    """What one look has found. `last` is the place to go on after, `more` whether there may be more."""

    columns: Columns
    last: int
    more: bool


def queue_peek(
    queue: str,
    after: int | None,
    limit: int,
    selector: str,
    contains: str,
    bytes_max: int,
    columns: tuple[str, ...] | None,
) -> Ask[Glance]:
    arguments: FieldTable = {"queue": queue, "limit": limit, "max-bytes": bytes_max}
    if after is not None:
        arguments["after"] = after
    if selector:
        arguments["selector"] = selector
    if contains:
        arguments["contains"] = contains
    if columns is not None:
        names: list[FieldValue] = list(columns)
        arguments["columns"] = names
    return Ask(
        "queue.peek",
        arguments,
        b"",
        lambda reply: Glance(columns_of(reply), number(reply, "last"), bool(reply.results.get("more"))),
    )


# Leases


class Leased(NamedTuple):
    """The batch (start, end] of a lease; empty when start = end."""

    epoch: int
    start: int
    end: int
    octets: int


def queue_lease(
    queue: str,
    consumer: str,
    epoch: int,
    start: int | None,
    rows_max: int,
    bytes_max: int,
    timeout_ms: int,
    wait_ms: int,
) -> Ask[Leased]:
    """Without an epoch the name is claimed: whoever read under it before is refused from then on."""
    arguments: FieldTable = {
        "queue": queue,
        "consumer": consumer,
        "max-rows": rows_max,
        "max-bytes": bytes_max,
        "timeout-ms": timeout_ms,
        "wait-ms": wait_ms,
    }
    if epoch:
        arguments["epoch"] = epoch
    else:
        arguments["claim"] = True
    if start is not None:
        arguments["start"] = start
    return Ask(
        "queue.lease",
        arguments,
        b"",
        lambda reply: Leased(
            number(reply, "epoch"), number(reply, "first") - 1, number(reply, "last"), number(reply, "octets")
        ),
    )


def lease_read(
    queue: str,
    consumer: str,
    epoch: int,
    start: int,
    end: int,
    bytes_max: int,
    columns: tuple[str, ...] | None,
) -> Ask[Columns]:
    arguments: FieldTable = {
        "queue": queue,
        "consumer": consumer,
        "epoch": epoch,
        "from": start,
        "to": end,
        "max-bytes": bytes_max,
    }
    if columns is not None:
        names: list[FieldValue] = list(columns)
        arguments["columns"] = names
    return Ask("lease.read", arguments, b"", columns_of)


def lease_ack(queue: str, consumer: str, epoch: int, end: int) -> Ask[int]:
    arguments: FieldTable = {"queue": queue, "consumer": consumer, "epoch": epoch, "through": end}
    return Ask("lease.ack", arguments, b"", lambda reply: number(reply, "settled"))


def lease_renew(queue: str, consumer: str, epoch: int, timeout_ms: int) -> Ask[None]:
    arguments: FieldTable = {"queue": queue, "consumer": consumer, "epoch": epoch, "timeout-ms": timeout_ms}
    return Ask("lease.renew", arguments, b"", lambda reply: None)


def lease_release(queue: str, consumer: str, epoch: int) -> Ask[int]:
    arguments: FieldTable = {"queue": queue, "consumer": consumer, "epoch": epoch}
    return Ask("lease.release", arguments, b"", lambda reply: number(reply, "returned"))
