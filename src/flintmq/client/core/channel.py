"""A client's channel without its socket: calls, publishes, consumers, and its next life after a loss."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any

from flintmq.client.core.batch import HEADER_FRAME_BYTES, Rows, publish_frame, row_head, total_bytes
from flintmq.client.core.confirms import MANDATORY, RETURNED_MAX, Ledger
from flintmq.client.core.errors import (
    ChannelClosed,
    ClientError,
    CommitUnknown,
    ConnectionLost,
    ConsumerCancelled,
    MessageTooLarge,
    TransactionLost,
)
from flintmq.client.core.inbox import Deliveries, Inbox
from flintmq.client.core.message import Message
from flintmq.client.core.pending import Pending, Steps
from flintmq.client.core.topology import BindingRecord, QueueRecord
from flintmq.client.core.transfers import Transfers
from flintmq.errors import ProtocolMisuse
from flintmq.protocol import phases
from flintmq.wire import amqp, methods
from flintmq.wire.fields import encode_shortstr
from flintmq.wire.methods import Method
from flintmq.wire.properties import BasicProperties, StreamProperties, encode_properties
from flintmq.wire.tables import FieldTable

if TYPE_CHECKING:
    from flintmq.client.core.connection import ConnectionCore

# Rows of publish_many that are written, confirmed and kept together. The async client hands all of them to
# its transport at once, as nothing else may be published in between.
ROWS_MAX = 16_384
ROWS_BYTES = 4_194_304
# Encoded at a time, and handed to the socket.
CHUNK_BYTES = 262_144
PERSISTENT = 2
REQUEUE = 2


class ConsumerRecord:
    """A consumer, as it was asked for."""

    def __init__(
        self,
        queue: QueueRecord,
        tag: str,
        method: methods.BasicConsume | methods.StreamConsume | methods.MessageConsume,
        inbox: Inbox,
    ) -> None:
        self.queue = queue
        self.tag = tag
        self.method = method
        self.inbox = inbox
        self.is_stream = isinstance(method, methods.StreamConsume)
        self.no_ack = isinstance(method, methods.StreamConsume) or method.no_ack
        self.prefetch: int | None = None  # of the channel when the consumer began

    def cancel_method(self) -> Method:
        if self.is_stream:
            return methods.StreamCancel(consumer_tag=self.tag)
        if isinstance(self.method, methods.MessageConsume):
            return methods.MessageCancel(destination=self.tag)
        return methods.BasicCancel(consumer_tag=self.tag)


class ChannelCore:
    """One channel, through all its lives."""

    def __init__(
        self,
        connection: ConnectionCore,
        number: int,
        confirm: bool,
        transactional: bool,
        prefetch: int | None,
    ) -> None:
        self.connection = connection
        self.number = number
        self.transactional = transactional
        self.distributed = False  # whether it has dtx mode
        self.ledger = Ledger(connection.changed) if confirm else None
        self.prefetch = prefetch  # None: that of the settings, when there is a consumer
        self.qos_sent: int | None = None
        self.qos_global = False
        self.stream_limits: methods.StreamQos | None = None
        self.stream_limits_sent = False
        self.deliveries = Deliveries(self)
        self.transfers = Transfers(self)
        self.consumers: dict[str, ConsumerRecord] = {}
        self.failure: ClientError | None = None
        self.flowing = True
        self.transaction_begun = False  # something was published or settled since the last commit
        self.transaction_lost = False
        self.committing = False  # a commit has no answer yet
        self.commit_unknown = False  # and never got one, and nobody was told
        self.unclaimed: dict[str, deque[Message]] = {}  # of a cancelled get without acks, for the next one
        self.returns: deque[Message] = deque(maxlen=RETURNED_MAX)
        self.on_return: Callable[[Message, int, str], None] | None = None
        self.listeners: list[Callable[[], None]] = []  # told when something changed
        self.tags_made = 0
        self.epoch = 0  # as that of the deliveries
        self.protocol = connection.protocol.open_channel(number)
        self._begin()

    def _begin(self) -> None:
        self.epoch = self.deliveries.epoch = self.connection.epoch
        self.flowing = True
        self.qos_sent = None
        self.stream_limits_sent = False
        self.transfers.begin()
        self.protocol.owner = self.deliveries

    # Lives

    def open(self) -> Steps[None]:
        """channel.open, and confirms or transactions if they were asked for."""
        yield self.call(methods.ChannelOpen(), "opening a channel")
        if self.ledger is not None:
            yield self.call(methods.ConfirmSelect(), "asking for confirms")
        if self.transactional:
            yield self.call(methods.TxSelect(), "asking for transactions")
        if self.distributed:
            yield self.call(methods.DtxDemarcationSelect(), "asking for distributed transactions")
        if self.prefetch is not None:
            yield from self._set_qos(self.prefetch, self.qos_global)

    def reopen(self) -> Steps[None]:
        """The same channel on a new connection."""
        self.protocol = self.connection.protocol.open_channel(self.number)
        self.deliveries.inboxes.clear()
        self._drop_unread()
        self._begin()
        yield from self.open()

    def _drop_unread(self) -> None:
        """What was delivered and not read comes again. Without acks the server has forgotten what it sent."""
        for consumer in self.consumers.values():
            if not consumer.no_ack:
                consumer.inbox.clear()

    def resume(self) -> Steps[None]:
        """Consumers consume again, each with its own prefetch."""
        for consumer in list(self.consumers.values()):
            if consumer.tag in self.consumers:
                consumer.method.queue = consumer.queue.name
                yield from self._consume(consumer)
        if self.prefetch is not None and self.qos_sent not in (None, self.prefetch):
            yield from self._set_qos(self.prefetch, self.qos_global)

    def publish_again(self) -> None:
        """What was not confirmed is published again, or reported."""
        if self.ledger is None or self.failure is not None:
            return
        recovery = self.connection.settings.recovery
        resend = recovery is not None and recovery.unconfirmed == "resend"
        for rows in self.ledger.start_again(resend, self.connection.output.frame_bytes_max):
            for chunk in self.chunks(rows):
                self.connection.output.write(bytes(chunk))
        self.told()

    def interrupted(self, error: ClientError) -> None:
        """The connection is gone, perhaps for a while. What was delivered and not read is not handed out.

        The connection has its next life before the channel does: nothing is sent on the channel until then.
        """
        self.epoch = self.deliveries.epoch = 0
        waiters: list[object] = []
        if self.protocol.state != phases.CHANNEL_CLOSING:  # then the answer to the close is waited for
            waiters = [*self.protocol.all_awaited(), self.protocol.waiter]
            self.protocol.awaited.clear()
            self.protocol.requests.awaited.clear()
        if self.committing:
            # The answer is lost, and nobody knows which one it was: whoever waits for it says so.
            self.committing = self.transaction_begun = False
            self.commit_unknown = True
        self.transaction_lost = self.transaction_lost or self.transaction_begun
        self.transaction_begun = False
        for waiter in waiters:
            if isinstance(waiter, Pending):
                waiter.fail(error)
        self.told()

    def end(self, error: ClientError) -> None:
        """The channel is gone for good."""
        if self.failure is not None:
            return
        self.failure = error
        self.connection.forget(self)
        self.interrupted(error)
        if self.ledger is not None:
            self.ledger.abandon(error)
            self.connection.bury(self.ledger)
        for consumer in self.consumers.values():
            consumer.inbox.ended = error
            _tell(consumer.inbox)
        self.told()

    def told_later(self, failure: ClientError) -> ClientError:
        """The failure for a call that was made after it: the broker has refused something else."""
        if not isinstance(failure, ChannelClosed) or not failure.code:
            return failure
        text = f"channel {self.number} was closed by the broker earlier: {failure}"
        again = type(failure)(text, failure.code, failure.text)
        again.__cause__ = failure
        return again

    def told(self) -> None:
        for consumer in self.consumers.values():
            _tell(consumer.inbox)
        for listener in self.listeners:
            listener()
        if self.ledger is not None:
            self.ledger.stir()
        self.connection.changed()

    def doing(self) -> str:
        """What a refusal without a call was probably about."""
        return "publishing or settling on the channel"

    def call(self, method: Method, doing: str, then: Callable[[Any], None] | None = None) -> Pending:
        """`then` takes note of the answer, although who asked may not wait for it any more."""
        return self.connection.call(self, method, doing, then)

    def close(self) -> Steps[None]:
        closed = self.begin_close()
        self.end(ChannelClosed("the channel was closed; open another"))
        if closed is None:
            return
        if closed.late_is_fine and self.connection.blocked is not None:
            closed.resolve(None)  # the broker reads nothing for now
        yield closed

    def begin_close(self) -> Pending | None:
        """Says channel.close. The number is not used again before the server has answered."""
        if self.epoch == 0 or self.protocol.state != phases.CHANNEL_OPEN:
            return None
        protocol = self.protocol
        # With confirms each message has an answer of its own, so that of the close may come late.
        closed = Pending("closing the channel", late_is_fine=self.ledger is not None)
        answer = self.call(
            methods.ChannelClose(reply_code=amqp.REPLY_SUCCESS, reply_text="goodbye"), closed.doing
        )
        # Calls that were made before get no answer any more; that of the close stays to be waited for.
        waiting = protocol.awaited.pop()
        for waiter in protocol.all_awaited():
            if isinstance(waiter, Pending):
                waiter.fail(ChannelClosed("the channel was closed meanwhile"))
        protocol.awaited[:] = [waiting]
        connection = self.connection
        connection.closing[self.number] = closed

        def freed(_: object) -> None:
            connection.protocol.close_channel(protocol)
            connection.closing.pop(self.number, None)
            closed.resolve(None)

        answer.then = freed
        return closed

    def discard(self, error: ClientError) -> None:
        """Closes a channel that nobody is going to use, without waiting."""
        self.begin_close()
        self.end(error)
        self.connection.flush_if_open()

    # Declarations

    def declare_queue(self, method: methods.QueueDeclare) -> Steps[QueueRecord]:
        topology = self.connection.topology
        records: list[QueueRecord] = []

        def note(reply: methods.QueueDeclareOk) -> None:
            record = topology.queues.get(reply.queue) or QueueRecord(reply.queue)
            if not method.passive:
                if record.declared is None or not record.server_named:
                    record.declared = method  # the newest arguments count
                topology.declared(record)
            record.message_count, record.consumer_count = reply.message_count, reply.consumer_count
            records.append(record)

        yield self.call(method, f"declaring queue {method.queue!r}", note)
        return records[0]

    def delete_queue(self, name: str, if_unused: bool, if_empty: bool) -> Steps[int]:
        method = methods.QueueDelete(queue=name, if_unused=if_unused, if_empty=if_empty)
        reply = yield self.call(
            method, f"deleting queue {name!r}", lambda _: self.connection.topology.deleted_queue(name)
        )
        return int(reply.message_count)

    def purge_queue(self, name: str) -> Steps[int]:
        reply = yield self.call(methods.QueuePurge(queue=name), f"purging queue {name!r}")
        return int(reply.message_count)

    def declare_exchange(self, method: methods.ExchangeDeclare) -> Steps[None]:
        def note(_: object) -> None:
            if not method.passive:
                self.connection.topology.declared_exchange(method)

        yield self.call(method, f"declaring exchange {method.exchange!r}", note)

    def delete_exchange(self, name: str, if_unused: bool) -> Steps[None]:
        method = methods.ExchangeDelete(exchange=name, if_unused=if_unused)
        yield self.call(
            method, f"deleting exchange {name!r}", lambda _: self.connection.topology.deleted_exchange(name)
        )

    def bind(self, record: BindingRecord) -> Steps[None]:
        yield self.call(
            record.bind(),
            f"binding {_bound(record)} to exchange {record.source!r}",
            lambda _: self.connection.topology.bound(record),
        )

    def unbind(self, record: BindingRecord) -> Steps[None]:
        method: Method
        if record.queue is not None:
            method = methods.QueueUnbind(
                queue=record.queue.name,
                exchange=record.source,
                routing_key=record.routing_key,
                arguments=record.arguments,
            )
        else:
            method = methods.ExchangeUnbind(
                destination=record.exchange,
                source=record.source,
                routing_key=record.routing_key,
                arguments=record.arguments,
            )
        yield self.call(
            method,
            f"unbinding {_bound(record)} from exchange {record.source!r}",
            lambda _: self.connection.topology.unbound(record),
        )

    # Publishing

    def rows(
        self,
        bodies: list[bytes],
        exchange: str,
        routing_key: str,
        properties: BasicProperties | StreamProperties,
        mandatory: bool,
        routing_keys: Sequence[str] | None = None,
        properties_each: Sequence[BasicProperties] | None = None,
    ) -> Rows:
        """The rows, encoded as far as they can be before they are sent, in the class of the properties."""
        flags = MANDATORY if mandatory else 0
        class_id = properties.CLASS_ID
        try:
            source = encode_shortstr(exchange)
            method = publish_frame(self.number, source, encode_shortstr(routing_key), flags, class_id)
            by_key = {
                key: publish_frame(self.number, source, encode_shortstr(key), flags, class_id)
                for key in set(() if routing_keys is None else routing_keys)
            }
            octets = encode_properties(properties)
            each = None if properties_each is None else [encode_properties(one) for one in properties_each]
        except ProtocolMisuse as misuse:
            raise ClientError(f"publishing to exchange {exchange[:80]!r} cannot be done: {misuse}") from None
        for name, given in (("routing_keys", routing_keys), ("properties", each)):
            if given is not None and len(given) != len(bodies):
                raise ClientError(
                    f"there are {len(given)} {name} for {len(bodies)} bodies; give one for each"
                )
        largest = max(map(len, each), default=0) if each is not None else len(octets)
        if largest + HEADER_FRAME_BYTES > self.connection.output.frame_bytes_max:
            raise MessageTooLarge(
                f"headers of {largest} octets do not fit a frame of "
                f"{self.connection.output.frame_bytes_max}; make them smaller or put them into the body"
            )
        head_of = partial(row_head, self.number, class_id)
        heads = None
        if each is not None:
            frames = repeat(method) if routing_keys is None else map(by_key.__getitem__, routing_keys)
            heads = list(map(head_of, frames, each))
        elif routing_keys is not None:
            shared = {key: head_of(frame, octets) for key, frame in by_key.items()}
            heads = [shared[key] for key in routing_keys]
        return Rows(self.number, head_of(method, octets), heads, bodies)

    def check_stream(self) -> None:
        """Raises unless messages of the stream class can be published and consumed here."""
        if self.connection.settings.version == amqp.VERSION_0_9_1:
            raise ClientError(
                "the stream class is not in AMQP 0-9-1: connect with protocol='0-9' "
                "(a queue with x-queue-type=stream is another matter, and needs no such thing)"
            )

    def check_messages(self) -> None:
        """Raises unless messages of the message class can be published and consumed here."""
        if self.connection.settings.version != amqp.VERSION_0_9:
            raise ClientError("the message class is in AMQP 0-9 alone: connect with protocol='0-9'")

    def check_stream_publish(self) -> None:
        self.check_stream()
        if self.ledger is not None:
            raise ClientError(
                "messages of the stream class are not confirmed: open a channel with confirm=False for them"
            )

    def chunks(self, rows: Rows) -> Iterator[bytearray]:
        """The frames of the rows in pieces, for one socket write each."""
        frame_bytes_max = self.connection.output.frame_bytes_max
        while rows.reached < len(rows.bodies):
            yield rows.encode(frame_bytes_max, CHUNK_BYTES)

    def check_publishable(self) -> None:
        if self.failure is not None:
            raise self.told_later(self.failure)
        if self.connection.failure is not None:
            raise self.connection.failure
        self.check_transaction()
        if self.transactional:
            self.transaction_begun = True

    def check_transaction(self) -> None:
        """Nothing may join a transaction whose beginning is lost, until that is known: a rollback says so."""
        if self.commit_unknown:
            raise self._commit_unknown()
        if self.transaction_lost:
            raise TransactionLost(
                "the connection was lost in the middle of a transaction, which the broker has rolled back; "
                "roll it back and begin again"
            )

    def _commit_unknown(self) -> CommitUnknown:
        return CommitUnknown(
            "the connection was lost before the answer to a commit: the broker has committed all of the "
            "transaction, or nothing of it; look at its messages before you repeat it"
        )

    def commit(self) -> Steps[None]:
        self.check_transaction()

        def done(_: object) -> None:
            self.committing = self.transaction_begun = False

        self.committing = True
        try:
            pending = self.call(methods.TxCommit(), "committing the transaction", done)
        except BaseException:
            self.committing = False  # it was not sent
            raise
        try:
            yield pending
        except ConnectionLost as error:
            was_sent, self.commit_unknown, self.committing = self.commit_unknown, False, False
            if was_sent:
                raise self._commit_unknown() from error
            raise
        except ClientError:
            self.committing = self.commit_unknown = False  # refused, or no answer: the caller is told
            raise

    def rollback(self) -> Steps[None]:
        yield self.call(methods.TxRollback(), "rolling back the transaction")
        self.transaction_begun = self.transaction_lost = self.commit_unknown = False

    def returned(self, message: Message, method: methods.BasicReturn | methods.StreamReturn) -> None:
        told = self.on_return
        if told is not None:
            code, text = method.reply_code, method.reply_text
            self.connection.callbacks.append(lambda: told(message, code, text))
        elif self.ledger is not None:
            self.ledger.note_returned(message)
        else:
            self.returns.append(message)

    # Consuming

    def qos(self, prefetch: int, is_global: bool = False) -> Steps[None]:
        yield from self._set_qos(prefetch, is_global)
        self.prefetch = prefetch
        self.qos_global = is_global

    def _set_qos(self, prefetch: int, is_global: bool) -> Steps[None]:
        yield self.call(
            methods.BasicQos(prefetch_count=prefetch, global_=is_global), f"setting a prefetch of {prefetch}"
        )
        self.qos_sent = prefetch

    def stream_qos(self, rate: int, prefetch_bytes: int, prefetch: int) -> Steps[None]:
        self.check_stream()
        limits = methods.StreamQos(
            consume_rate=rate, prefetch_size=prefetch_bytes, prefetch_count=prefetch, global_=False
        )
        yield self.call(limits, "setting the limits of streams")
        self.stream_limits = limits
        self.stream_limits_sent = True

    def consume(
        self, queue: QueueRecord, tag: str, no_ack: bool, exclusive: bool, arguments: FieldTable | None
    ) -> Steps[ConsumerRecord]:
        tag = self._new_tag(tag)
        method = methods.BasicConsume(
            queue=queue.name, consumer_tag=tag, no_ack=no_ack, exclusive=exclusive, arguments=arguments
        )
        inbox = Inbox(self.connection, None if no_ack else self.deliveries)
        return self._begin_consumer(ConsumerRecord(queue, tag, method, inbox))

    def consume_stream(
        self, queue: QueueRecord, tag: str, rate: int, exclusive: bool, arguments: FieldTable | None
    ) -> Steps[ConsumerRecord]:
        self.check_stream()
        tag = self._new_tag(tag)
        given = {**(arguments or {}), **({"x-consume-rate": rate} if rate else {})}
        method = methods.StreamConsume(
            queue=queue.name, consumer_tag=tag, exclusive=exclusive, arguments=given
        )
        return self._begin_consumer(ConsumerRecord(queue, tag, method, Inbox(self.connection, None)))

    def consume_messages(
        self, queue: QueueRecord, tag: str, no_ack: bool, exclusive: bool, arguments: FieldTable | None
    ) -> Steps[ConsumerRecord]:
        self.check_messages()
        tag = self._new_tag(tag)
        method = methods.MessageConsume(
            queue=queue.name, destination=tag, no_ack=no_ack, exclusive=exclusive, arguments=arguments
        )
        inbox = Inbox(self.connection, None if no_ack else self.deliveries)
        return self._begin_consumer(ConsumerRecord(queue, tag, method, inbox))

    def _new_tag(self, tag: str) -> str:
        if not tag:
            self.tags_made += 1
            tag = f"c{self.number}.{self.tags_made}"
        if tag in self.consumers:
            raise ClientError(f"there is a consumer {tag!r} on this channel already; use another tag")
        return tag

    def _begin_consumer(self, consumer: ConsumerRecord) -> Steps[ConsumerRecord]:
        try:
            yield from self._consume(consumer)
        except ClientError as error:
            self._forget(consumer.tag, error)
            raise
        except BaseException:
            self.withdraw(consumer)
            raise
        return consumer

    def withdraw(self, consumer: ConsumerRecord) -> None:
        """Ends a consumer that nobody will read, without waiting; what it was sent goes back."""
        self.consumers.pop(consumer.tag, None)  # no recovery brings it back
        consumer.inbox.ended = ClientError(f"consumer {consumer.tag!r} was cancelled")
        self.connection.consumer_left(consumer.queue)

        def cancelled(_: object) -> None:
            tag = encode_shortstr(consumer.tag)
            if self.deliveries.inboxes.get(tag) is consumer.inbox:  # else another consumer has the tag by now
                del self.deliveries.inboxes[tag]
            # Not in the middle of a read, as it sends.
            self.connection.callbacks.append(lambda: self.give_back(consumer))

        if self.epoch != 0:
            self.call(
                consumer.cancel_method(),
                f"cancelling consumer {consumer.tag!r}",
                cancelled,
            )
            self.connection.flush_if_open()

    def _consume(self, consumer: ConsumerRecord) -> Steps[None]:
        if consumer.is_stream and self.stream_limits is not None and not self.stream_limits_sent:
            yield self.call(self.stream_limits, "setting the limits of streams")
            self.stream_limits_sent = True
        wanted = consumer.prefetch
        if wanted is None:
            wanted = self.prefetch
            if wanted is None and not consumer.no_ack:
                wanted = self.connection.settings.prefetch or None
        if wanted is not None and wanted != self.qos_sent:
            yield from self._set_qos(wanted, self.qos_global)
        if not self.qos_global:
            consumer.prefetch = self.qos_sent
        # Deliveries may come in one piece with the answer: the inbox is there before.
        self.deliveries.inboxes[encode_shortstr(consumer.tag)] = consumer.inbox
        self.consumers[consumer.tag] = consumer
        yield self.call(consumer.method, f"consuming from queue {consumer.queue.name!r}")

    def is_bounded(self) -> bool:
        """Whether what the server sends to the consumers without a settlement is limited by a prefetch."""
        return bool(self.qos_sent) and not any(each.no_ack for each in self.consumers.values())

    def cancel(self, tag: str) -> Steps[None]:
        consumer = self.consumers.get(tag)
        if consumer is None:
            return
        yield self.call(consumer.cancel_method(), f"cancelling consumer {tag!r}", lambda _: self.left(tag))

    def left(self, tag: str) -> None:
        """The consumer is over by our own wish: it does not come back after a loss."""
        consumer = self.consumers.get(tag)
        self._forget(tag, ClientError(f"consumer {tag!r} was cancelled"))
        if consumer is not None:
            self.connection.consumer_left(consumer.queue)

    def cancelled(self, tag: str) -> None:
        """The server ended the consumer."""
        consumer = self.consumers.get(tag)
        if consumer is not None:
            name = consumer.queue.name
            self._forget(
                tag,
                ConsumerCancelled(
                    f"the server ended the consumer of queue {name!r}; the queue was deleted or moved"
                ),
            )
            self.connection.topology.deleted_queue(name)

    def _forget(self, tag: str, why: ClientError) -> None:
        consumer = self.consumers.pop(tag, None)
        self.deliveries.inboxes.pop(encode_shortstr(tag), None)
        if consumer is not None:
            consumer.inbox.ended = why
            _tell(consumer.inbox)

    def give_back(self, consumer: ConsumerRecord) -> None:
        """What nobody has read goes back to the queue."""
        unread = consumer.inbox.take(consumer.inbox.waiting())
        if consumer.no_ack or self.epoch == 0:
            return
        if isinstance(consumer.method, methods.MessageConsume):
            for message in unread:
                message.nack()
            return
        for message in unread:
            self.connection.output.write_settlement(
                self.number, amqp.BASIC_NACK, message.delivery_tag, REQUEUE
            )
        self.connection.flush()

    def recover_deliveries(self, requeue: bool) -> Steps[None]:
        """basic.recover. What comes again is not to be read, or settled, as it came before."""

        def begin_again(_: object) -> None:
            self.transfers.come_again(came_before)
            if requeue:
                self.connection.epoch += 1
                self.epoch = self.deliveries.epoch = self.connection.epoch
                self._drop_unread()

        came_before = list(self.transfers.unsettled)
        if not requeue:
            self._drop_unread()  # the deliveries come before the answer
        yield self.call(methods.BasicRecover(requeue=requeue), "recovering deliveries", begin_again)

    def get(self, queue: str, no_ack: bool) -> Steps[Message | None]:
        kept = self.unclaimed.get(queue) if no_ack else None
        if kept:
            return kept.popleft()
        pending = self.call(methods.BasicGet(queue=queue, no_ack=no_ack), f"getting from queue {queue!r}")
        try:
            reply: Any = yield pending
        except BaseException:
            pending.then = lambda result: self._give_back(queue, no_ack, result)
            if pending.done and pending.error is None:
                self._give_back(queue, no_ack, pending.result)
            raise
        if isinstance(reply, Message):
            return reply
        kept = self.unclaimed.get(queue) if no_ack else None  # one that came meanwhile
        return kept.popleft() if kept else None

    def _give_back(self, queue: str, no_ack: bool, result: Any) -> None:
        """A message came for a caller that was cancelled meanwhile."""
        if not isinstance(result, Message):
            return
        if no_ack:  # the server has forgotten it
            self.unclaimed.setdefault(queue, deque()).append(result)
        else:
            result.nack()

    def settle(self, message: Message, code: int, flags: int) -> bool:
        """basic.ack, nack or reject of a delivery; False if it is of a life that is over."""
        if not self.may_settle(message):
            return False
        self.connection.output.write_settlement(self.number, code, message.delivery_tag, flags)
        self.connection.flush()
        return True

    def may_settle(self, message: Message) -> bool:
        """Whether a settlement of the message would mean something; it becomes part of a transaction."""
        if message.epoch != self.epoch:
            in_transaction = self.transactional or (self.distributed and self.transaction_begun)
            if in_transaction and self.failure is None and message.delivery_tag:
                # A commit without this settlement would be half of what the application means.
                self.transaction_lost = True
                raise TransactionLost(
                    "the message was delivered on a connection that is lost, and comes again: the "
                    "transaction cannot settle it; roll it back and begin again"
                )
            return False
        if message.delivery_tag == 0:
            raise ClientError("a returned message is not a delivery: there is nothing to settle")
        if self.transactional or self.distributed:
            self.check_transaction()
            self.transaction_begun = self.transaction_begun or self.transactional
        return True


def _tell(inbox: Inbox) -> None:
    if inbox.told is not None:
        inbox.told()


def _bound(record: BindingRecord) -> str:
    return f"queue {record.queue.name!r}" if record.queue is not None else f"exchange {record.exchange!r}"


def slices(bodies: Iterable[bytes]) -> Iterator[list[bytes]]:
    """The bodies, at most ROWS_MAX at a time, and ROWS_BYTES unless a single one is larger."""
    iterator = iter(bodies)
    while piece := list(islice(iterator, ROWS_MAX)):
        yield from _halves(piece)


def _halves(piece: list[bytes]) -> Iterator[list[bytes]]:
    if total_bytes(piece) <= ROWS_BYTES or len(piece) == 1:
        yield piece
    else:
        middle = len(piece) // 2
        yield from _halves(piece[:middle])
        yield from _halves(piece[middle:])
