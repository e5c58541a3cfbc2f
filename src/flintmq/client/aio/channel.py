"""Channels, queues, exchanges and consumers of the async client."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from flintmq.client.aio.dtx import Branches
from flintmq.client.aio.transport import CHECKS_EACH_READ, Waiters, finished
from flintmq.client.core.batch import total_bytes
from flintmq.client.core.channel import ChannelCore, ConsumerRecord, slices
from flintmq.client.core.confirms import Ledger
from flintmq.client.core.deadline import Deadline
from flintmq.client.core.errors import (
    CallTimeout,
    ChannelClosed,
    ClientError,
    ConnectionClosed,
    ConsumerCancelled,
    PublishFailed,
)
from flintmq.client.core.message import Message
from flintmq.client.core.pending import Pending, Steps
from flintmq.client.core.publishing import merged, properties_of, stream_properties_of
from flintmq.client.core.topology import BindingRecord, QueueRecord
from flintmq.client.core.transfers import transfer_of
from flintmq.wire import methods
from flintmq.wire.properties import BasicProperties, StreamProperties
from flintmq.wire.tables import FieldTable

if TYPE_CHECKING:
    from flintmq.client.aio.connection import Connection
    from flintmq.client.core.batch import Rows

T = TypeVar("T")

log = logging.getLogger("flintmq.client")


class Channel:
    """A channel of a connection."""

    def __init__(self, connection: Connection, core: ChannelCore) -> None:
        self.connection = connection
        self.core = core

    async def _run(self, steps: Callable[[], Steps[T]], repeat: bool = True) -> T:
        return await self.connection.run(steps, repeat=repeat)

    @property
    def is_open(self) -> bool:
        return self.core.failure is None and self.connection.is_open

    # Declarations

    async def queue(
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
        return Queue(self, await self._run(lambda: self.core.declare_queue(method)))

    async def exchange(
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
        await self._run(lambda: self.core.declare_exchange(method))
        return Exchange(self, name)

    # What is there, by name

    async def bind_queue(
        self, queue: str, exchange: str, routing_key: str = "", arguments: FieldTable | None = None
    ) -> None:
        await self._by_name(queue).bind(exchange, routing_key, arguments)

    async def unbind_queue(
        self, queue: str, exchange: str, routing_key: str = "", arguments: FieldTable | None = None
    ) -> None:
        await self._by_name(queue).unbind(exchange, routing_key, arguments)

    async def purge_queue(self, queue: str) -> int:
        """Drops what waits in the queue; how many messages that was."""
        return await self._by_name(queue).purge()

    async def delete_queue(self, queue: str, *, if_unused: bool = False, if_empty: bool = False) -> int:
        """Deletes the queue; how many messages went with it."""
        return await self._by_name(queue).delete(if_unused=if_unused, if_empty=if_empty)

    async def bind_exchange(
        self, exchange: str, source: str, routing_key: str = "", arguments: FieldTable | None = None
    ) -> None:
        """Messages of the source come to the exchange as well."""
        await Exchange(self, exchange).bind(source, routing_key, arguments)

    async def unbind_exchange(
        self, exchange: str, source: str, routing_key: str = "", arguments: FieldTable | None = None
    ) -> None:
        await Exchange(self, exchange).unbind(source, routing_key, arguments)

    async def delete_exchange(self, exchange: str, *, if_unused: bool = False) -> None:
        await Exchange(self, exchange).delete(if_unused=if_unused)

    def _by_name(self, queue: str) -> Queue:
        return Queue(self, self.core.connection.topology.queue(queue))

    # Publishing

    async def publish(
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
        spans = self.connection.settings.spans
        if spans is None:
            return await self._publish(body, exchange, routing_key, made, mandatory, wait, timeout_s)
        with spans.publishing(exchange, routing_key, 1):
            made = spans.marked(made)
            return await self._publish(body, exchange, routing_key, made, mandatory, wait, timeout_s)

    async def _publish(
        self,
        body: bytes,
        exchange: str,
        routing_key: str,
        made: BasicProperties,
        mandatory: bool,
        wait: bool,
        timeout_s: float | None,
    ) -> int:
        total_bytes([body])
        deadline = self.connection.deadline(timeout_s)
        await self._make_room(deadline)
        rows = self.core.rows([body], exchange, routing_key, made, mandatory)
        ledger = self.core.ledger
        if ledger is None:
            await self._send_unconfirmed(rows, deadline)
            return 0
        pending = _confirm(1, exchange) if wait else None
        number = self._send(rows, ledger, pending, deadline)
        if pending is not None:
            try:
                await self._settle(pending, deadline)
            except PublishFailed as failure:
                if isinstance(failure.__cause__, ClientError):
                    raise failure.__cause__ from None  # why its channel is gone says more
                raise
        return number

    async def publish_stream(
        self,
        body: bytes,
        exchange: str = "",
        routing_key: str = "",
        *,
        priority: int | None = None,
        headers: FieldTable | None = None,
        properties: StreamProperties | None = None,
        mandatory: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        """Publishes one message of the stream class of AMQP 0-9, on a channel without confirms.

        It is never persistent, and may be dropped when its consumer is behind, low priorities first.
        """
        self.core.check_stream_publish()
        made = stream_properties_of(properties, headers, priority)
        total_bytes([body])
        deadline = self.connection.deadline(timeout_s)
        await self._make_room(deadline)
        await self._send_unconfirmed(self.core.rows([body], exchange, routing_key, made, mandatory), deadline)

    async def publish_message(
        self,
        body: bytes,
        exchange: str = "",
        routing_key: str = "",
        *,
        persistent: bool = False,
        headers: FieldTable | None = None,
        properties: BasicProperties | None = None,
        immediate: bool = False,
        identifier: str = "",
        timeout_s: float | None = None,
    ) -> None:
        """Publishes one message by the message class of AMQP 0-9, with or without confirms on the channel.

        It returns when the message is safe; PublishFailed if the broker has rejected it. With an
        `identifier`, what a lost connection has brought of a large body is not sent again.
        """
        made = properties_of(properties, headers, persistent)
        total_bytes([body])
        deadline = self.connection.deadline(timeout_s)
        await self._make_room(deadline)
        await self.connection.run(
            lambda: self.core.transfers.publish(
                transfer_of(exchange, routing_key, made, immediate), body, identifier
            ),
            deadline.left_s(),
            repeat=bool(identifier),
        )

    async def publish_many(
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
        given = (mandatory, wait, timeout_s)
        spans = self.connection.settings.spans
        if spans is None:
            return await self._publish_many(bodies, exchange, routing_key, alike, each, routing_keys, *given)
        bodies = list(bodies)
        with spans.publishing(exchange, routing_key, len(bodies)):
            alike = spans.marked(alike)
            each = None if each is None else spans.marked_each(each)
            return await self._publish_many(bodies, exchange, routing_key, alike, each, routing_keys, *given)

    async def _publish_many(
        self,
        bodies: Iterable[bytes],
        exchange: str,
        routing_key: str,
        alike: BasicProperties,
        each: Sequence[BasicProperties] | None,
        routing_keys: Sequence[str] | None,
        mandatory: bool,
        wait: bool,
        timeout_s: float | None,
    ) -> int:
        ledger = self.core.ledger
        first = 1 if ledger is None else ledger.published + 1
        pendings: list[Pending] = []
        deadline = self.connection.deadline(timeout_s)
        count = 0
        for piece in slices(bodies):
            start, count = count, count + len(piece)
            try:
                await self._make_room(deadline)
            except ClientError as error:
                unsent = range(first + start, first + _count_of(bodies, count))
                raise self._not_all_sent(pendings, first, unsent, error) from error
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
                await self._send_unconfirmed(rows, deadline)
                continue
            pending = _confirm(len(piece), exchange) if wait else None
            if pending is not None:
                pendings.append(pending)
            self._send(rows, ledger, pending, deadline)
        failures = await self._settle_all(pendings, deadline)
        if failures:
            raise merged(failures, first)
        return count

    def _not_all_sent(
        self, pendings: list[Pending], first: int, unsent: Sequence[int], error: ClientError
    ) -> ClientError:
        """What to raise when not all rows could be sent: where some were, it names them all."""
        if self.core.ledger is None or not pendings:
            return error
        failures: list[PublishFailed] = []
        for pending in pendings:
            if isinstance(pending.error, PublishFailed):
                failures.append(pending.error)
            pending.abandoned = True  # the others are told by wait_for_confirms
        return merged(failures, first, unsent, error)

    def _send(self, rows: Rows, ledger: Ledger, pending: Pending | None, deadline: Deadline) -> int:
        """All of them in one go: nothing may be published between. What is lost is in the ledger."""
        try:
            number = ledger.add(rows, pending)
            for chunk in self.core.chunks(rows):
                if self.core.connection.failure is not None:
                    break
                self.connection.write(chunk, deadline)
        except BaseException:
            self.connection.give_up_life("publishing was interrupted")
            raise
        return number

    async def _send_unconfirmed(self, rows: Rows, deadline: Deadline) -> None:
        """Nothing tells what arrived, so nothing is sent twice: what was written before a loss is gone."""
        try:
            for chunk in self.core.chunks(rows):
                if self.core.connection.failure is not None:
                    await self._make_room(deadline)
                self.connection.write(chunk, deadline)
        except ClientError:
            raise
        except BaseException:
            self.connection.give_up_life("publishing was interrupted")
            raise

    def _has_room(self) -> bool:
        ledger = self.core.ledger
        return (
            self.connection.is_open
            and self.core.flowing
            and self.connection.is_writable
            and (ledger is None or not ledger.is_full())
        )

    async def _make_room(self, deadline: Deadline) -> None:
        """Waits until the channel may publish; nothing else runs between that and the publish."""
        self.connection.check_use()
        self.connection.glance()
        if not self._has_room():
            await self.connection.ready(deadline)
            await self._until(
                self._has_room, "publishing: the broker is too slow, or stopped the flow", deadline
            )
        self.core.check_publishable()

    async def _until(self, holds: Callable[[], bool], doing: str, deadline: Deadline) -> None:
        """Waits until it holds, over as many connections as it takes."""
        while not holds():
            self._check_open()
            if deadline.is_over():
                raise CallTimeout(
                    f"{doing}: not done in {deadline.timeout_s:g} seconds{self.connection.blocking()}"
                )
            await self.connection.ready(deadline)
            if not holds():
                self._check_open()
                await self.connection.changed.wait(deadline)

    def _check_open(self) -> None:
        if self.core.failure is not None:
            raise self.core.failure

    async def _settle(self, pending: Pending, deadline: Deadline) -> None:
        """Waits for the confirms of one publish, over as many connections as it takes."""
        try:
            while not pending.done:
                if deadline.is_over():
                    raise CallTimeout(
                        f"{pending.doing}: not done in {deadline.timeout_s:g} seconds"
                        f"{self.connection.blocking()}"
                    )
                await self.connection.ready(deadline)
                if not pending.done:
                    await self.connection.until_told(pending, deadline)
        except BaseException:
            self._leave_to_ledger([pending])
            raise
        pending.outcome()

    async def _settle_all(self, pendings: list[Pending], deadline: Deadline) -> list[PublishFailed]:
        failures: list[PublishFailed] = []
        try:
            for pending in pendings:
                try:
                    await self._settle(pending, deadline)
                except PublishFailed as failure:
                    failures.append(failure)
        except BaseException:
            self._leave_to_ledger(pendings)
            raise
        return failures

    def _leave_to_ledger(self, pendings: list[Pending]) -> None:
        """Nobody waits for these any more: the next who asks for the confirms is told how they ended."""
        ledger = self.core.ledger
        for pending in pendings:
            if not pending.abandoned:
                pending.abandoned = True
                if ledger is not None and isinstance(pending.error, PublishFailed):
                    ledger.keep(pending.error)

    async def wait_for_confirms(self, timeout_s: float | None = None) -> None:
        """Waits until all that was published is settled; PublishFailed if anything of it is not safe."""
        ledger = self.core.ledger
        if ledger is None:
            raise ClientError("the channel has no confirms; open it with confirm=True")
        self.connection.check_use()
        deadline = self.connection.deadline(timeout_s)
        await self._until(lambda: ledger.outstanding == 0, "waiting for confirms", deadline)
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

    async def qos(self, prefetch: int, *, shared: bool = False) -> None:
        """How many unsettled deliveries each later consumer may have; with `shared`, all of the channel."""
        await self._run(lambda: self.core.qos(prefetch, shared))

    async def consume(
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
        consumer = await self._run(lambda: self.core.consume(record, tag, no_ack, exclusive, arguments))
        return Consumer(self, consumer, timeout_s)

    async def stream_qos(self, *, rate: int = 0, prefetch_bytes: int = 0, prefetch: int = 0) -> None:
        """Limits of each stream consumer of the channel; 0 is none.

        `rate` is in octets of bodies in a second. The others are octets and messages that the broker may
        have waiting for the client's socket.
        """
        await self._run(lambda: self.core.stream_qos(rate, prefetch_bytes, prefetch))

    async def consume_stream(
        self,
        queue: str | Queue,
        *,
        rate: int = 0,
        exclusive: bool = False,
        tag: str = "",
        arguments: FieldTable | None = None,
        timeout_s: float | None = None,
    ) -> Consumer:
        """A consumer of the stream class: as `consume`, for messages of that class alone, without acks.

        `rate` limits it to so many octets of bodies in a second. The queue has one such consumer at a time.
        A message tells the queue as its routing key.
        """
        record = queue.record if isinstance(queue, Queue) else self.core.connection.topology.queue(queue)
        consumer = await self._run(lambda: self.core.consume_stream(record, tag, rate, exclusive, arguments))
        return Consumer(self, consumer, timeout_s)

    async def consume_messages(
        self,
        queue: str | Queue,
        *,
        no_ack: bool = False,
        exclusive: bool = False,
        tag: str = "",
        arguments: FieldTable | None = None,
        timeout_s: float | None = None,
    ) -> Consumer:
        """A consumer of the message class of AMQP 0-9: as `consume`, for the same messages."""
        record = queue.record if isinstance(queue, Queue) else self.core.connection.topology.queue(queue)
        consumer = await self._run(
            lambda: self.core.consume_messages(record, tag, no_ack, exclusive, arguments)
        )
        return Consumer(self, consumer, timeout_s)

    async def get_message(self, queue: str) -> Message | None:
        """As `get`, by the message class of AMQP 0-9."""
        return await self._run(lambda: self.core.transfers.get(queue))

    async def get(self, queue: str, *, no_ack: bool = False) -> Message | None:
        """One message, or None if the queue is empty.

        Without acks it is not asked for again when the connection is lost meanwhile: the one that was on its
        way would be lost without a word.
        """
        return await self._run(lambda: self.core.get(queue, no_ack), repeat=not no_ack)

    async def recover_deliveries(self, requeue: bool = True) -> None:
        """basic.recover: all that was delivered and not settled comes again, read or not."""
        await self._run(lambda: self.core.recover_deliveries(requeue))

    # Transactions

    async def commit(self) -> None:
        await self._run(self.core.commit, repeat=False)

    async def rollback(self) -> None:
        await self._run(self.core.rollback)

    @property
    def branches(self) -> Branches:
        """Distributed transactions."""
        return Branches(self)

    # The end

    async def close(self) -> None:
        """Waits for outstanding confirms, and closes; PublishFailed if a message is not safe.

        With confirms a broker that does not answer the close is no error, and one that blocks publishers is
        not waited for.
        """
        if self.core.failure is not None or self.connection.is_closed:
            unsafe = None if self.core.ledger is None else self.core.ledger.take_failure()
            if unsafe is not None:
                raise unsafe from self.core.failure
            return
        deadline = self.connection.deadline()
        try:
            if self.core.ledger is not None:
                await self.wait_for_confirms(deadline.left_s())
        finally:
            await self._abandon(deadline)

    async def _abandon(self, deadline: Deadline) -> None:
        try:
            if self.connection.is_open and not deadline.is_over():
                await self.connection.run(self.core.close, deadline.left_s(), repeat=False)
        except CallTimeout:
            if self.core.ledger is None:
                raise  # what was published without confirms may be lost
        finally:
            # A close that could not be waited for is said all the same; its outcomes are told below.
            self.core.discard(ChannelClosed("the channel was closed; open another"))

    async def leave(self, error: BaseException | None) -> None:
        """The end of `with`."""
        if error is None:
            await self.close()
            return
        try:
            await self._abandon(self.connection.deadline())
        except ClientError as second:
            error.add_note(f"and closing the channel failed: {second}")

    async def __aenter__(self) -> Channel:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.leave(error)

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

    async def bind(
        self, exchange: str | Exchange, routing_key: str = "", arguments: FieldTable | None = None
    ) -> Queue:
        record = BindingRecord(_name(exchange), routing_key, arguments or {}, queue=self.record)
        await self.channel.connection.run(lambda: self.channel.core.bind(record))
        return self

    async def unbind(
        self, exchange: str | Exchange, routing_key: str = "", arguments: FieldTable | None = None
    ) -> None:
        record = BindingRecord(_name(exchange), routing_key, arguments or {}, queue=self.record)
        await self.channel.connection.run(lambda: self.channel.core.unbind(record))

    async def purge(self) -> int:
        """Drops what waits in the queue; how many messages that was."""
        return await self.channel.connection.run(lambda: self.channel.core.purge_queue(self.name))

    async def delete(self, *, if_unused: bool = False, if_empty: bool = False) -> int:
        """Deletes it; how many messages went with it."""
        return await self.channel.connection.run(
            lambda: self.channel.core.delete_queue(self.name, if_unused, if_empty)
        )

    async def get(self, *, no_ack: bool = False) -> Message | None:
        return await self.channel.get(self.name, no_ack=no_ack)

    async def consume(
        self,
        *,
        no_ack: bool = False,
        exclusive: bool = False,
        tag: str = "",
        arguments: FieldTable | None = None,
        timeout_s: float | None = None,
    ) -> Consumer:
        return await self.channel.consume(
            self, no_ack=no_ack, exclusive=exclusive, tag=tag, arguments=arguments, timeout_s=timeout_s
        )

    def __repr__(self) -> str:
        return f"<Queue {self.name!r}>"


class Exchange:
    """An exchange by name, on the channel it was declared on."""

    def __init__(self, channel: Channel, name: str) -> None:
        self.channel = channel
        self.name = name

    async def publish(
        self,
        body: bytes,
        routing_key: str = "",
        *,
        persistent: bool = False,
        headers: FieldTable | None = None,
        properties: BasicProperties | None = None,
        mandatory: bool = False,
        wait: bool = True,
        timeout_s: float | None = None,
    ) -> int:
        """As Channel.publish, to this exchange."""
        return await self.channel.publish(
            body,
            self.name,
            routing_key,
            persistent=persistent,
            headers=headers,
            properties=properties,
            mandatory=mandatory,
            wait=wait,
            timeout_s=timeout_s,
        )

    async def publish_many(
        self,
        bodies: Iterable[bytes],
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
        """As Channel.publish_many, to this exchange."""
        return await self.channel.publish_many(
            bodies,
            self.name,
            routing_key,
            persistent=persistent,
            headers=headers,
            properties=properties,
            routing_keys=routing_keys,
            mandatory=mandatory,
            wait=wait,
            timeout_s=timeout_s,
        )

    async def bind(
        self, source: str | Exchange, routing_key: str = "", arguments: FieldTable | None = None
    ) -> Exchange:
        """Messages of the source come to this exchange as well."""
        record = BindingRecord(_name(source), routing_key, arguments or {}, exchange=self.name)
        await self.channel.connection.run(lambda: self.channel.core.bind(record))
        return self

    async def unbind(
        self, source: str | Exchange, routing_key: str = "", arguments: FieldTable | None = None
    ) -> None:
        record = BindingRecord(_name(source), routing_key, arguments or {}, exchange=self.name)
        await self.channel.connection.run(lambda: self.channel.core.unbind(record))

    async def delete(self, *, if_unused: bool = False) -> None:
        await self.channel.connection.run(lambda: self.channel.core.delete_exchange(self.name, if_unused))

    def __repr__(self) -> str:
        return f"<Exchange {self.name!r}>"


class Consumer:
    """Deliveries of a queue, one by one or many at a time."""

    def __init__(self, channel: Channel, record: ConsumerRecord, timeout_s: float | None) -> None:
        self.channel = channel
        self.record = record
        self.timeout_s = timeout_s
        self._inbox = record.inbox
        self._readers = Waiters(channel.connection, reading=False)

    @property
    def tag(self) -> str:
        return self.record.tag

    def __aiter__(self) -> Consumer:
        return self

    async def __anext__(self) -> Message:
        if CHECKS_EACH_READ:
            self.channel.connection.check_use()
        message = self._inbox.next()
        while message is None:
            if not await self._await(self.timeout_s):
                await self._leave()
                message = self._inbox.next()  # what came before the broker knew
                if message is None:
                    raise StopAsyncIteration
                return message
            message = self._inbox.next()
        return message

    async def take(self, count_max: int, timeout_s: float | None = None) -> list[Message]:
        """What is there, up to so many; waits for the first one at most `timeout_s`, then is empty."""
        self.channel.connection.check_use()
        if not self._inbox.waiting():
            await self._await(timeout_s)
        return self._inbox.take(count_max)

    async def run(
        self, handle: Callable[[Message], Any], *, requeue: bool = False, reject_on_redelivered: bool = False
    ) -> None:
        """Has `handle(message)` called for each message, and settles it as Message.process does.

        Returns when nothing came for the consumer's `timeout_s`, or when the consumer was cancelled. An
        exception of `handle` is logged, and the next message has its turn.
        """
        queue = self.record.queue.name
        async for message in self:
            context = message.process(requeue=requeue, reject_on_redelivered=reject_on_redelivered)
            spans = self.channel.connection.settings.spans
            span = contextlib.nullcontext() if spans is None else spans.handling(message, queue)
            try:
                with contextlib.nullcontext() if self.record.no_ack else context, span:
                    await finished(handle(message))
            except ClientError:
                raise
            except Exception:
                log.exception("handling a message of queue %r failed", self.record.queue.name)

    async def serve(self, answer: Callable[[Message], Any]) -> None:
        """Answers requests: what `answer(message)` returns is published to the `reply_to` of each.

        The other side is Connection.call. An exception of `answer` is logged, and the request rejected.
        """

        async def reply(message: Message) -> None:
            body = await finished(answer(message))
            asked = message.properties
            if asked.reply_to:
                properties = BasicProperties(correlation_id=asked.correlation_id)
                await self.channel.publish(body, routing_key=asked.reply_to, properties=properties)

        await self.run(reply)

    async def _await(self, timeout_s: float | None) -> bool:
        """Waits until something is in the inbox; False when the time, or the consumer, is over."""
        connection = self.channel.connection
        deadline = None if timeout_s is None else connection.deadline(timeout_s)
        while not self._inbox.waiting():
            ended = self._inbox.ended
            if ended is not None:
                if isinstance(ended, ConsumerCancelled) or self.channel.core.failure is not None:
                    raise ended
                return False
            connection.check_use()
            if deadline is not None and deadline.is_over():
                return False
            if not connection.is_open:
                try:
                    await connection.ready(deadline or connection.forever())
                except CallTimeout:
                    return False
                continue
            self._inbox.told = self._wake
            await self._readers.wait(deadline)
        return True

    def _wake(self) -> None:
        self._inbox.told = None  # a delivery costs no call while nobody waits
        self._readers.wake()

    async def cancel(self) -> None:
        """No more deliveries; what is in the inbox can still be read, and has to be settled."""
        if self.record.inbox.ended is not None:
            return
        await self.channel.connection.run(lambda: self.channel.core.cancel(self.record.tag))

    async def _leave(self) -> None:
        """Ends a consumer whose iteration is over: it must not take the messages of the next one."""
        core, connection = self.channel.core, self.channel.connection
        if self._inbox.ended is not None:
            return
        if not connection.is_open:
            core.left(self.record.tag)  # a recovery does not bring it back
        elif connection.blocked is not None:
            # The broker answers nothing for now. What comes meanwhile could not go back without acks.
            if not self.record.no_ack:
                core.withdraw(self.record)
        else:
            try:
                await self.cancel()
            except ClientError:
                core.left(self.record.tag)

    async def __aenter__(self) -> Consumer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.cancel()
            self.channel.core.give_back(self.record)
        except ClientError as second:
            self.channel.core.left(self.record.tag)  # a recovery does not bring it back
            if error is not None:
                error.add_note(f"and cancelling the consumer failed: {second}")
            elif not isinstance(second, ConnectionClosed | ChannelClosed):
                raise


def _name(exchange: str | Exchange) -> str:
    return exchange if isinstance(exchange, str) else exchange.name


def _count_of(bodies: Iterable[bytes], count: int) -> int:
    """How many rows there are, as far as that is known."""
    return len(bodies) if isinstance(bodies, Sequence) else count


def _confirm(count: int, exchange: str) -> Pending:
    return Pending(f"confirming {count} messages to exchange {exchange!r}", late_is_fine=True)
