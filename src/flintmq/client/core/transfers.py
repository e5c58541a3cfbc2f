"""The message class of AMQP 0-9 on one channel of a client: transfers that come, and how they are settled.

    transfer, or open, append ... transfer, close  -->  a Message in the inbox of its consumer
    ack, nack, reject of the message               -->  ok or reject, in a response to the transfer

The delivery tag of such a message is the id of the request that it came by. Numbers and frames are those of
protocol/requests.py; what the channel asks itself is in core/channel.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from flintmq.client.core.errors import ClientError, PublishFailed
from flintmq.client.core.message import Message, received
from flintmq.client.core.pending import Pending, Steps
from flintmq.errors import ConnectionFault
from flintmq.protocol.requests import FRAMED_OCTETS
from flintmq.wire import amqp, methods
from flintmq.wire.fields import Content, encode_shortstr
from flintmq.wire.message_class import properties_of
from flintmq.wire.methods import Method, encode_method
from flintmq.wire.properties import BasicProperties, encode_properties

if TYPE_CHECKING:
    from flintmq.client.core.channel import ChannelCore

# What a message takes besides its body, as in inbox.py, where it is a C constant.
MESSAGE_BYTES = 200
# Parts of a body that are on their way and have no answer yet.
APPENDS_MAX = 8
# So much is sent again at the most after a break, of a body with an identifier.
CHECKPOINT_BYTES = 8_388_608
# What an append has beside its octets: ids, two lengths, and the name of the reference.
APPEND_OCTETS = FRAMED_OCTETS + 4 + 4 + 4 + 32
# Codes of message.reject: for good, and for somebody else.
REJECTED = 0
NOT_TAKEN = 1
MULTIPLE = 1
REQUEUE = 2


def transfer_of(
    exchange: str, routing_key: str, properties: BasicProperties, immediate: bool
) -> methods.MessageTransfer:
    """A transfer with these properties, and no body yet."""
    return methods.MessageTransfer(
        destination=exchange,
        immediate=immediate,
        routing_key=routing_key,
        ttl=lifetime_of(properties),
        priority=properties.priority or 0,
        timestamp=properties.timestamp or 0,
        delivery_mode=properties.delivery_mode or 0,
        message_id=properties.message_id or "",
        correlation_id=properties.correlation_id or "",
        reply_to=properties.reply_to or "",
        content_type=properties.content_type or "",
        content_encoding=properties.content_encoding or "",
        user_id=properties.user_id or "",
        app_id=properties.app_id or "",
        application_headers=properties.headers,
    )


def lifetime_of(properties: BasicProperties) -> int:
    text = properties.expiration
    if properties.type or properties.cluster_id:
        raise ClientError("the message class has no property for type and cluster_id: use a header")
    if not text:
        return 0
    if not (text.isascii() and text.isdigit()):
        raise ClientError(f"an expiration is a number of milliseconds, not {text!r}")
    return int(text)


class Transfers:
    """Those of one channel, in its present life."""

    def __init__(self, channel: ChannelCore) -> None:
        self.channel = channel
        self.named = 0  # references that were opened, and gets that were made
        self.begin()

    def begin(self) -> None:
        """The channel has a new life: what was on its way is not any more."""
        self.unsettled: dict[int, None] = {}
        self.references: dict[bytes, bytearray] = {}
        self.waiting: dict[bytes, tuple[int, methods.MessageTransfer]] = {}  # for the end of a reference
        self.gets: dict[bytes, Message | None] = {}  # by destination

    @property
    def epoch(self) -> int:
        """Which life of the channel, for Message.is_lost."""
        return self.channel.epoch

    # What the server asks

    def requested(self, request_id: int, method: Method) -> None:
        if isinstance(method, methods.MessageTransfer):
            if method.body.is_reference:
                self.reference(method.body.octets)
                self.waiting[method.body.octets] = (request_id, method)
            else:
                self.deliver(request_id, method, method.body.octets)
            return
        if isinstance(method, methods.MessageOpen):
            if method.reference in self.references:
                raise ConnectionFault(amqp.COMMAND_INVALID, "a reference is opened that is open already")
            self.references[method.reference] = bytearray()
        elif isinstance(method, methods.MessageAppend):
            body = self.reference(method.reference)
            body += method.octets
            most = self.channel.connection.settings.message_bytes_max
            if len(body) > most:
                text = f"a message of {len(body)} octets comes, and message_bytes_max is {most}"
                raise ConnectionFault(amqp.CONTENT_TOO_LARGE, text)
        elif isinstance(method, methods.MessageClose):
            body = self.reference(method.reference)
            del self.references[method.reference]
            transfer = self.waiting.pop(method.reference, None)
            if transfer is not None:
                self.deliver(*transfer, bytes(body))
        self.respond(request_id, methods.MessageOk())

    def reference(self, name: bytes) -> bytearray:
        found = self.references.get(name)
        if found is None:
            raise ConnectionFault(amqp.COMMAND_INVALID, "a reference is used that is not open")
        return found

    def respond(self, request_id: int, method: Method, batch_offset: int = 0) -> None:
        protocol = self.channel.connection.protocol
        protocol.respond(self.channel.protocol, request_id, method, batch_offset)

    def deliver(self, request_id: int, method: methods.MessageTransfer, body: bytes) -> None:
        channel = self.channel
        destination = encode_shortstr(method.destination)
        route = encode_shortstr(method.exchange) + encode_shortstr(method.routing_key)
        settles: Any = self  # as the channel would
        message = received(
            settles,
            channel.epoch,
            request_id,
            method.redelivered,
            route,
            encode_properties(properties_of(method)),
            body,
            destination,
        )
        self.unsettled[request_id] = None
        if destination in self.gets:
            self.gets[destination] = message
            return
        consumer = channel.consumers.get(method.destination)
        inbox = channel.deliveries.inboxes.get(destination)
        if inbox is None:
            raise ConnectionFault(amqp.COMMAND_INVALID, "a transfer to a destination that there is not")
        if consumer is not None and consumer.no_ack:
            del self.unsettled[request_id]
            self.respond(request_id, methods.MessageOk())
        inbox.messages.append(message)
        intake = channel.connection
        intake.received_bytes += len(body) + MESSAGE_BYTES
        if intake.received_bytes > intake.received_bytes_max:
            intake.protocol.paused = True
        if inbox.told is not None:
            inbox.told()

    # What the application answers

    def settle(self, message: Message, code: int, flags: int) -> bool:
        """The ack, nack or reject of a message; False if it is of a life that is over."""
        if not self.channel.may_settle(message):
            return False
        tag = message.delivery_tag
        if tag not in self.unsettled:
            raise ClientError("the message is settled already, or its consumer needs no settlements")
        is_many = code != amqp.BASIC_REJECT and flags & MULTIPLE
        answer: Method = methods.MessageOk()
        if code != amqp.BASIC_ACK:
            requeue = flags & (1 if code == amqp.BASIC_REJECT else REQUEUE)
            answer = methods.MessageReject(code=NOT_TAKEN if requeue else REJECTED)
        settled = [each for each in self.unsettled if each <= tag] if is_many else [tag]
        self.answer(settled, answer)
        self.channel.connection.flush()
        return True

    def come_again(self, request_ids: list[int]) -> None:
        """What came by these is going to come again: it was for nobody here."""
        unsettled = [each for each in request_ids if each in self.unsettled]
        self.answer(unsettled, methods.MessageReject(code=NOT_TAKEN))

    def answer(self, request_ids: list[int], method: Method) -> None:
        for first, last in runs(request_ids):
            self.respond(first, method, last - first)
        for each in request_ids:
            del self.unsettled[each]

    # What the application asks

    def publish(self, transfer: methods.MessageTransfer, body: bytes, identifier: str) -> Steps[None]:
        """Sends the message, by a reference where it is too large for a frame or has an identifier."""
        channel = self.channel
        doing = f"publishing to exchange {transfer.destination!r}"
        channel.check_messages()
        channel.check_publishable()
        version, frame_bytes_max = amqp.VERSION_0_9, channel.connection.output.frame_bytes_max
        size = len(encode_method(version, transfer)) + len(body)
        if not identifier and size + FRAMED_OCTETS <= frame_bytes_max:
            transfer.body = Content(body)
            answer = yield channel.call(transfer, doing)
        else:
            answer = yield from self.publish_reference(transfer, body, identifier, doing)
        if isinstance(answer, methods.MessageReject):
            raise PublishFailed(f"{doing} was rejected by the broker: {answer.text}", [1])

    def publish_reference(
        self, transfer: methods.MessageTransfer, body: bytes, identifier: str, doing: str
    ) -> Steps[Method]:
        channel = self.channel
        self.named += 1
        name = b"r%d" % self.named
        epoch = channel.epoch
        at = 0
        if identifier:
            resume = methods.MessageResume(reference=name, identifier=identifier)
            at = (yield channel.call(resume, f"resuming {identifier!r}")).value
        else:
            yield channel.call(methods.MessageOpen(reference=name), doing)
        try:
            if at > len(body):
                text = f"of {identifier!r} {at} octets are there, and the body has {len(body)}: it is another"
                raise ClientError(text)
            yield from self.append_all(name, body, at, identifier, doing)
            transfer.body = Content(name, True)
            answered = channel.call(transfer, doing)
            closed = channel.call(methods.MessageClose(reference=name), doing)
            answer: Method = yield answered
            yield closed
        except BaseException:
            if channel.epoch == epoch and channel.failure is None:
                channel.call(methods.MessageClose(reference=name), doing)
                channel.connection.flush_if_open()
            raise
        return answer

    def append_all(self, name: bytes, body: bytes, at: int, identifier: str, doing: str) -> Steps[None]:
        """The body from here on, some parts at a time, with checkpoints if it has an identifier."""
        channel = self.channel
        size = channel.connection.output.frame_bytes_max - APPEND_OCTETS
        open_parts: list[Pending] = []
        unsaved = 0
        while at < len(body):
            part = methods.MessageAppend(reference=name, octets=body[at : at + size])
            open_parts.append(channel.call(part, doing))
            at += len(part.octets)
            unsaved += len(part.octets)
            if len(open_parts) == APPENDS_MAX:
                yield open_parts.pop(0)
            if identifier and unsaved >= CHECKPOINT_BYTES:
                yield channel.call(methods.MessageCheckpoint(reference=name, identifier=identifier), doing)
                unsaved = 0
        while open_parts:
            yield open_parts.pop(0)

    def get(self, queue: str) -> Steps[Message | None]:
        channel = self.channel
        channel.check_messages()
        self.named += 1
        tag = f"g{channel.number}.{self.named}"
        destination = encode_shortstr(tag)
        self.gets[destination] = None
        get = methods.MessageGet(queue=queue, destination=tag)
        pending = channel.call(get, f"getting from queue {queue!r}")
        try:
            yield pending
        except BaseException:
            pending.then = lambda _: self.put_back(destination)
            if pending.done and pending.error is None:
                self.put_back(destination)
            raise
        return self.gets.pop(destination, None)

    def put_back(self, destination: bytes) -> None:
        """A message came for a caller that was cancelled meanwhile."""
        message = self.gets.pop(destination, None)
        if message is not None:
            message.nack()


def runs(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """The first and the last of all that follow each other without a gap."""
    first = last = 0
    for number in sorted(numbers):
        if first and number != last + 1:
            yield first, last
            first = 0
        first = first or number
        last = number
    if first:
        yield first, last
