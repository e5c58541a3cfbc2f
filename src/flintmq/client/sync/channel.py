"""Channels, queues, exchanges and consumers of the sync client."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from flintmq.client.core.batch import total_bytes
from flintmq.client.core.channel import ChannelCore, ConsumerRecord, slices
from flintmq.client.core.errors import CallTimeout, ClientError, ConsumerCancelled, PublishFailed
from flintmq.client.core.message import Message
from flintmq.client.core.pending import Pending, Steps
from flintmq.client.core.publishing import merged, properties_of
from flintmq.client.core.topology import BindingRecord, QueueRecord
from flintmq.client.sync.dtx import Branches
from flintmq.wire import methods
from flintmq.wire.properties import BasicProperties
from flintmq.wire.tables import FieldTable

if TYPE_CHECKING:
    from flintmq.client.core.batch import Rows
    from flintmq.client.sync.connection import Connection

T = TypeVar("T")


class Channel:
    """A channel of a connection. Not for several threads at once."""

    def __init__(self, connection: Connection, core: ChannelCore) -> None:
        self.connection = connection
        self.core = core

    def _run(self, steps: Callable[[], Steps[T]], repeat: bool = True) -> T:
        return self.connection.run(steps, repeat=repeat)

    @property
    def is_open(self) -> bool:
        return self.core.failure is None and self.connection.is_open

    # Declarations

    def queue(
        self,
        name: str = "",
        *,
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        passive: bool = False,
        arguments: FieldTable | None = None,
    ) -> Queue:
        """Declares a queue; the server names it if `name` is empty. `passive` only looks for it."""
        method = methods.QueueDeclare(
            queue=name,
            durable=durable,
            exclusive=exclusive,
            auto_delete=auto_delete,
            passive=passive,
            arguments=arguments,
        )
        return Queue(self, self._run(lambda: self.core.declare_queue(method)))

    def exchange(
        self,
        name: str,
        type: str = "direct",
        *,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        passive: bool = False,
        arguments: FieldTable | None = None,
    ) -> Exchange:
        """Declares an exchange. `passive` only looks whether it is there."""
        method = methods.ExchangeDeclare(
            exchange=name,
            type=type,
            durable=durable,
            auto_delete=auto_delete,
            internal=internal,
            passive=passive,
            arguments=arguments,
        )
        self._run(lambda: self.core.declare_exchange(method))
        return Exchange(self, name)

    # Publishing

    def publish(
        self,
        body: bytes,
        exchange: str = "",
        routing_key: str = "",
        *,
        persistent: bool = False,
        headers: FieldTable | None = None,
        properties: BasicProperties | None = None,
        mandatory: bool = False,
        wait: bool = True,
        timeout_s: float | None = None,
    ) -> int:
        """Publishes one message; its number, counted from 1 on this channel, or 0 without confirms.

        With confirms it returns when the broker has taken the message, unless `wait` is False: then
        wait_for_confirms tells. A refused or returned one is a PublishFailed.
        """
        made = properties_of(properties, headers, persistent)
        total_bytes([body])
        self._make_room(timeout_s)
        rows = self.core.rows([body], exchange, routing_key, made, mandatory)
        ledger = self.core.ledger
        if ledger is None:
            self._send_unconfirmed(rows)
            return 0
        pending = _confirm(1, exchange) if wait else None
        number = ledger.add(rows, pending)
        self._send(rows)
        if pending is not None:
            self._settle(pending, timeout_s)
        return number

    def publish_many(
        self,
        bodies: Iterable[bytes],
        exchange: str = "",
        routing_key: str = "",
        *,
        persistent: bool = False,
        headers: FieldTable | None = None,
        properties: BasicProperties | Sequence[BasicProperties] | None = None,
        routing_keys: Sequence[str] | None = None,
        mandatory: bool = False,
        wait: bool = True,
        timeout_s: float | None = None,
    ) -> int:
        """Publishes many messages, thousands at a time; how many.

        `routing_keys`, and `properties` if it is a sequence, have one entry for each body. With confirms
        it returns when all are taken, unless `wait` is False. PublishFailed names the rows that were not.
        """
        each = properties if isinstance(properties, Sequence) else None
        alike = properties_of(None if isinstance(properties, Sequence) else properties, headers, persistent)
        ledger = self.core.ledger
        first = 1 if ledger is None else ledger.published + 1
        pendings: list[Pending] = []
        count = 0
        for piece in slices(bodies):
            start, count = count, count + len(piece)
            self._make_room(timeout_s)
            rows = self.core.rows(
                piece,
                exchange,
                routing_key,
                alike,
                mandatory,
                None if routing_keys is None else routing_keys[start:count],
                None if each is None else each[start:count],
            )
            if ledger is None:
                self._send_unconfirmed(rows)
                continue
            pending = _confirm(len(piece), exchange) if wait else None
            ledger.add(rows, pending)
            if pending is not None:
                pendings.append(pending)
            self._send(rows)
        failures: list[PublishFailed] = []
        for pending in pendings:
            try:
                self._settle(pending, timeout_s)
            except PublishFailed as failure:
                failures.append(failure)
        if failures:
            raise merged(failures, first)
        return count

    def _send(self, rows: Rows) -> None:
        """When the connection is lost on the way, recovery sends or reports what is in the ledger."""
        for chunk in self.core.chunks(rows):
            if self.core.connection.failure is not None:
                return
            self.connection.send_all(chunk)

    def _send_unconfirmed(self, rows: Rows) -> None:
        """Nothing tells what arrived. What the socket did not take is sent again."""
        for chunk in self.core.chunks(rows):
            self.connection.send_all(chunk)
            while self.core.connection.failure is not None:
                self.connection.recover()
                self.core.check_publishable()
                self.connection.send_all(chunk)

    def _make_room(self, timeout_s: float | None = None) -> None:
        """Waits until the channel may publish."""
        self.connection.check()
        self.connection.glance()
        if self.core.connection.failure is not None:
            self.connection.recover()
        self.core.check_publishable()
        ledger = self.core.ledger
        if not self.core.flowing or (ledger is not None and ledger.is_full()):
            self._until(
                lambda: self.core.flowing and (ledger is None or not ledger.is_full()),
                "publishing: the broker is too slow to confirm, or stopped the flow",
                timeout_s,
            )

    def _settle(self, pending: Pending, timeout_s: float | None) -> None:
        self._until(lambda: pending.done, pending.doing, timeout_s)
        pending.outcome()

    def _until(self, holds: Callable[[], bool], doing: str, timeout_s: float | None) -> None:
        """Lets the connection work until it holds, over as many connections as it takes."""
        connection = self.connection
        timeout_s = connection.settings.timeout_s if timeout_s is None else timeout_s
        deadline_s = connection.clock.monotonic_s() + timeout_s
        while not holds():
            if self.core.failure is not None:
                raise self.core.failure
            if self.core.connection.failure is not None:
                connection.recover()
                continue
            left_s = deadline_s - connection.clock.monotonic_s()
            if left_s <= 0:
                blocked = (
                    f"; the broker blocks publishers ({connection.blocked})" if connection.blocked else ""
                )
                raise CallTimeout(f"{doing}: not done in {timeout_s:g} seconds{blocked}")
            connection.pump(left_s)

    def wait_for_confirms(self, timeout_s: float | None = None) -> None:
        """Waits until all that was published is settled; PublishFailed if anything of it is not safe."""
        ledger = self.core.ledger
        if ledger is None:
            raise ClientError("the channel has no confirms; open it with confirm=True")
        self.connection.check()
        self._until(lambda: ledger.outstanding == 0, "waiting for confirms", timeout_s)
        failure = ledger.take_failure()
        if failure is not None:
            raise failure

    @property
    def unconfirmed(self) -> int:
        """How many messages are on their way and not confirmed yet."""
        return self.core.ledger.outstanding if self.core.ledger is not None else 0

    def on_return(self, told: Callable[[Message, int, str], None] | None) -> None:
        """Has `told(message, code, text)` called for each returned message, which is then not reported."""
        self.core.on_return = told

    def returned(self) -> list[Message]:
        """Takes the messages that were returned so far on a channel without confirms."""
        taken = list(self.core.returns)
        self.core.returns.clear()
        return taken

    # Consuming

    def qos(self, prefetch: int, *, shared: bool = False) -> None:
        """How many unsettled deliveries each later consumer may have; with `shared`, all of the channel."""
        self._run(lambda: self.core.qos(prefetch, shared))

    def consume(
        self,
        queue: str | Queue,
        *,
        no_ack: bool = False,
        exclusive: bool = False,
        tag: str = "",
        arguments: FieldTable | None = None,
        timeout_s: float | None = None,
    ) -> Consumer:
        """A consumer of the queue: an iterator that ends when nothing came for `timeout_s`."""
        record = queue.record if isinstance(queue, Queue) else self.core.connection.topology.queue(queue)
        consumer = self._run(lambda: self.core.consume(record, tag, no_ack, exclusive, arguments))
        return Consumer(self, consumer, timeout_s)

    def get(self, queue: str, *, no_ack: bool = False) -> Message | None:
        """One message, or None if the queue is empty."""
        return self._run(lambda: self.core.get(queue, no_ack))

    def recover_deliveries(self, requeue: bool = True) -> None:
        """basic.recover: all that was delivered and not settled comes again."""

        def steps() -> Steps[None]:
            yield self.core.call(methods.BasicRecover(requeue=requeue), "recovering deliveries")

        self._run(steps)

    # Transactions

    def commit(self) -> None:
        self._run(self.core.commit, repeat=False)

    def rollback(self) -> None:
        self._run(self.core.rollback)

    @property
    def branches(self) -> Branches:
        """Distributed transactions."""
        return Branches(self)

    # The end

    def close(self) -> None:
        """Waits for outstanding confirms, and closes; PublishFailed if a message is not safe."""
        if self.core.failure is not None or self.connection.is_closed:
            unsafe = None if self.core.ledger is None else self.core.ledger.take_failure()
            if unsafe is not None:
                raise unsafe from self.core.failure
            return
        try:
            if self.core.ledger is not None:
                self.wait_for_confirms()
        finally:
            self._abandon()

    def _abandon(self) -> None:
        if (
            self.core.failure is None
            and self.core.connection.failure is None
            and not self.connection.is_closed
        ):
            self.connection.run(self.core.close, repeat=False)
        self.core.end(ClientError("the channel was closed; open another"))

    def __enter__(self) -> Channel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            return
        try:
            self._abandon()
        except ClientError as second:
            error.add_note(f"and closing the channel failed: {second}")

    def __repr__(self) -> str:
        return f"<Channel {self.core.number} of {self.connection!r}>"


class Queue:
    """A queue by name, on the channel it was declared on."""

    def __init__(self, channel: Channel, record: QueueRecord) -> None:
        self.channel = channel
        self.record = record

    @property
    def name(self) -> str:
        """Changes when the server named the queue and the connection was lost."""
        return self.record.name

    @property
    def message_count(self) -> int:
        """As it was when the queue was declared."""
        return self.record.message_count

    @property
    def consumer_count(self) -> int:
        """As it was when the queue was declared."""
        return self.record.consumer_count

    def bind(
        self, exchange: str | Exchange, routing_key: str = "", arguments: FieldTable | None = None
    ) -> Queue:
        record = BindingRecord(_name(exchange), routing_key, arguments or {}, queue=self.record)
        self.channel.connection.run(lambda: self.channel.core.bind(record))
        return self

    def unbind(
        self, exchange: str | Exchange, routing_key: str = "", arguments: FieldTable | None = None
    ) -> None:
        record = BindingRecord(_name(exchange), routing_key, arguments or {}, queue=self.record)
        self.channel.connection.run(lambda: self.channel.core.unbind(record))

    def purge(self) -> int:
        """Drops what waits in the queue; how many messages that was."""
        return self.channel.connection.run(lambda: self.channel.core.purge_queue(self.name))

    def delete(self, *, if_unused: bool = False, if_empty: bool = False) -> int:
        """Deletes it; how many messages went with it."""
        return self.channel.connection.run(
            lambda: self.channel.core.delete_queue(self.name, if_unused, if_empty)
        )

    def get(self, *, no_ack: bool = False) -> Message | None:
        return self.channel.get(self.name, no_ack=no_ack)

    def consume(
        self,
        *,
        no_ack: bool = False,
        exclusive: bool = False,
        tag: str = "",
        arguments: FieldTable | None = None,
        timeout_s: float | None = None,
    ) -> Consumer:
        return self.channel.consume(
            self, no_ack=no_ack, exclusive=exclusive, tag=tag, arguments=arguments, timeout_s=timeout_s
        )

    def __repr__(self) -> str:
        return f"<Queue {self.name!r}>"


class Exchange:
    """An exchange by name, on the channel it was declared on."""

    def __init__(self, channel: Channel, name: str) -> None:
        self.channel = channel
        self.name = name

    def publish(
        self, body: bytes, routing_key: str = "", *, persistent: bool = False, wait: bool = True
    ) -> int:
        """As Channel.publish, to this exchange."""
        return self.channel.publish(body, self.name, routing_key, persistent=persistent, wait=wait)

    def bind(
        self, source: str | Exchange, routing_key: str = "", arguments: FieldTable | None = None
    ) -> Exchange:
        """Messages of the source come to this exchange as well."""
        record = BindingRecord(_name(source), routing_key, arguments or {}, exchange=self.name)
        self.channel.connection.run(lambda: self.channel.core.bind(record))
        return self

    def unbind(
        self, source: str | Exchange, routing_key: str = "", arguments: FieldTable | None = None
    ) -> None:
        record = BindingRecord(_name(source), routing_key, arguments or {}, exchange=self.name)
        self.channel.connection.run(lambda: self.channel.core.unbind(record))

    def delete(self, *, if_unused: bool = False) -> None:
        self.channel.connection.run(lambda: self.channel.core.delete_exchange(self.name, if_unused))

    def __repr__(self) -> str:
        return f"<Exchange {self.name!r}>"


class Consumer:
    """Deliveries of a queue, one by one or many at a time."""

    def __init__(self, channel: Channel, record: ConsumerRecord, timeout_s: float | None) -> None:
        self.channel = channel
        self.record = record
        self.timeout_s = timeout_s
        self._inbox = record.inbox

    @property
    def tag(self) -> str:
        return self.record.tag

    def __iter__(self) -> Iterator[Message]:
        return self

    def __next__(self) -> Message:
        self.channel.connection.check_process()
        message = self._inbox.next()
        if message is None:
            if not self._await(self.timeout_s):
                raise StopIteration
            message = self._inbox.next()
            if message is None:
                raise StopIteration
        return message

    def take(self, count_max: int, timeout_s: float | None = None) -> list[Message]:
        """What is there, up to so many; waits for the first one at most `timeout_s`, then is empty."""
        self.channel.connection.check()
        if not self._inbox.waiting():
            self._await(timeout_s)
        return self._inbox.take(count_max)

    def _await(self, timeout_s: float | None) -> bool:
        """Waits until something is in the inbox; False when the time, or the consumer, is over."""
        connection = self.channel.connection
        connection.check()
        deadline_s = None if timeout_s is None else connection.clock.monotonic_s() + timeout_s
        while not self._inbox.waiting():
            ended = self._inbox.ended
            if ended is not None:
                if isinstance(ended, ConsumerCancelled) or self.channel.core.failure is not None:
                    raise ended
                return False
            if connection.core.failure is not None:
                connection.recover()
                continue
            left_s = None if deadline_s is None else deadline_s - connection.clock.monotonic_s()
            if left_s is not None and left_s <= 0:
                return False
            connection.pump(left_s)
        return True

    def cancel(self) -> None:
        """No more deliveries; what is in the inbox can still be read, and has to be settled."""
        self.channel.connection.run(lambda: self.channel.core.cancel(self.record.tag))

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.channel.is_open:
            self.cancel()
            self.channel.core.give_back(self.record)


def _name(exchange: str | Exchange) -> str:
    return exchange if isinstance(exchange, str) else exchange.name


def _confirm(count: int, exchange: str) -> Pending:
    return Pending(f"confirming {count} messages to exchange {exchange!r}", late_is_fine=True)
