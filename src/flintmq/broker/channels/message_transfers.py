"""The message class of AMQP 0-9 on one channel: confirms, references that come in, and what goes out.

    client                                   broker
    transfer(destination, body) ----------->                            published, see `publish`
                                <----------- ok, for many at once        when it is safe, see ResponseOutput

    open(reference)             ----------->                            IncomingReference
    append(reference, octets)   ----------->                            in memory, or in the staging store
    transfer(reference)         ----------->
    close(reference)            ----------->                            published now

                                <----------- transfer(destination, body)
    ok or reject                ----------->                            settled

                                <----------- open, append ...            OutgoingMessage: larger than a frame
    ok to each                  ----------->
                                <----------- transfer(reference), close
    ok or reject                ----------->

All but the answers are requests, see protocol/requests.py.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

from flintmq.broker.channels.confirms import Confirms
from flintmq.protocol.outbox import Output
from flintmq.protocol.requests import FRAMED_OCTETS
from flintmq.wire import amqp, methods
from flintmq.wire.message_class import body_octets, transfer_octets
from flintmq.wire.methods import Method, encode_method
from flintmq.wire.stream import HeldBody

if TYPE_CHECKING:
    from collections.abc import Callable

    from flintmq.broker.channels.channel import Channel
    from flintmq.broker.channels.file_transfers import IncomingFile
    from flintmq.broker.messages.message import Message
    from flintmq.broker.store.staging import StagedContent, Staging
    from flintmq.protocol.requests import Requests
    from flintmq.wire.stream import Body

# Requests of the broker that a channel may have open: one response may settle all of them in one go, which is
# some milliseconds.
UNANSWERED_MAX = 8192
# Frames of a body that are on their way to a client at the same time: up to 512 KiB of 128 each.
APPENDS_MAX = 4
# Bodies that wait to go out by a reference, each asked for by a message.get.
OUTGOING_MAX = 64

# Codes of message.reject. That of a client with the second has no use for the message, and another may.
REJECTED = 0
NOT_TAKEN = 1

OK = encode_method(amqp.VERSION_0_9, methods.MessageOk())
_OPEN, _APPEND, _CLOSE, _TRANSFER = (
    methods.MessageOpen(),
    methods.MessageAppend(),
    methods.MessageClose(),
    methods.MessageTransfer(),
)


class Teller(Protocol):
    """Who sends the message of a get in another way than by basic.get-ok."""

    def tell(self, message: Message, tag: int, redelivered: bool, content: bytes, body: Body | None) -> None:
        """`content` has the basic header, and the body unless that is to be read from `body`."""


class ResponseOutput(Output):
    """What the confirms of transfers are written to: each becomes responses to the requests they came by."""

    def __init__(self, transfers: MessageTransfers) -> None:
        super().__init__([], None)
        self.transfers = transfers

    def write_settlement(self, channel: int, code: int, tag: int, flags: int) -> None:
        self.transfers.settled(code, tag)


class IncomingReference:
    """A body that comes in parts: in memory while it is small, and else in the staging store."""

    __slots__ = ("content", "held", "identifier", "incoming", "name", "staging", "transfer")

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.held = bytearray()
        self.staging: Staging | None = None
        self.content: StagedContent | None = None  # where the store has it
        self.incoming: IncomingFile | None = None  # what writes to that
        self.identifier = ""  # of a checkpoint; else nobody comes back for it
        self.transfer: tuple[int, methods.MessageTransfer] | None = None  # the request that publishes it

    def gathered_bytes(self) -> int:
        """What of it lies in memory."""
        return len(self.held) + (0 if self.incoming is None else len(self.incoming.gathered))

    def end(self) -> None:
        """Nothing more is appended here. What has no identifier is of no use to anybody."""
        self.held.clear()
        if self.incoming is not None:
            self.incoming.discard()
        if self.content is not None and self.staging is not None and not self.identifier:
            self.staging.forget(self.content)


class OutgoingMessage:
    """A message on its way to the client whose body does not fit into one frame."""

    __slots__ = ("arguments", "at", "body", "instead", "is_begun", "name", "settles", "then", "unanswered")

    def __init__(self, arguments: bytes, body: Body, name: bytes, settles: int) -> None:
        self.arguments = arguments  # of its transfer
        self.body = body
        self.name = name  # of the reference
        self.settles = settles  # the delivery tag that the answer to the transfer settles; 0 for none
        self.at = 0
        self.unanswered = 0
        self.is_begun = False
        self.then: Callable[[], None] | None = None  # done when all of it is sent
        self.instead: Callable[[], None] | None = None  # done when its message has gone back to its queue


class MessageTransfers:
    """The transfers of one channel."""

    def __init__(self, channel: Channel, requests: Requests) -> None:
        self.channel = channel
        self.requests = requests
        self.confirms = Confirms(channel.number, channel.origin, channel.router, ResponseOutput(self))
        self.confirms.active = True
        self.published: deque[tuple[int, int]] = deque()  # number among the confirms, and request
        self.refusals: dict[int, tuple[int, str]] = {}  # code and text for requests that are rejected
        self.is_publishing = False
        self.is_returned = False  # what is being published has no taker
        self.references: dict[bytes, IncomingReference] = {}
        self.outgoing: deque[OutgoingMessage] = deque()
        self.named = 0  # references that the broker has opened

    # Publishing

    def publish(self, request_id: int, route: bytes, flags: int, whole: bytes, header_size: int) -> None:
        """A transfer with its content, which has a basic header. It is answered when it is safe.

        In a transaction it is answered now: the answer to the commit says that it is safe.
        """
        channel = self.channel
        self.is_publishing, self.is_returned = True, False
        others, channel.confirms = channel.confirms, self.confirms
        try:
            channel.publish(route, flags, whole, header_size)
        except BaseException:
            channel.disown_publish()
            raise
        finally:
            self.is_publishing = False
            channel.confirms = others
        if channel.transaction is not None:
            self.respond(request_id, OK)
            return
        if self.is_returned:
            self.refusals[request_id] = (NOT_TAKEN, "NO_CONSUMERS")
            self.confirms.lose(self.confirms.published)
        self.published.append((self.confirms.published, request_id))

    def takes_back(self) -> bool:
        """Whether what comes back was published by a transfer: its answer says so, and nothing else does."""
        if self.is_publishing:
            self.is_returned = True
        return self.is_publishing

    def confirm_when_safe(self, request_id: int) -> None:
        """A message that is in the journal already is to be answered for when that is on disk."""
        store = self.channel.store
        self.confirms.count()
        if store is not None:
            self.confirms.note_kept(store.last())
        self.published.append((self.confirms.published, request_id))

    def settled(self, code: int, number: int) -> None:
        """All that was published up to this number is safe, or this one is not."""
        if code == amqp.BASIC_NACK:
            _, request_id = self.published.popleft()
            default = (REJECTED, "the queues are full and refuse it, or the disk has failed")
            self.reject(request_id, *self.refusals.pop(request_id, default))
            return
        first = last = 0
        while self.published and self.published[0][0] <= number:
            _, request_id = self.published.popleft()
            if first and request_id != last + 1:
                self.respond(first, OK, last - first)
                first = 0
            first = first or request_id
            last = request_id
        if first:
            self.respond(first, OK, last - first)

    def reject(self, request_id: int, code: int, text: str) -> None:
        method = methods.MessageReject(code=code, text=text)
        self.respond(request_id, encode_method(amqp.VERSION_0_9, method))

    # Frames

    def respond(self, request_id: int, payload: bytes, batch_offset: int = 0) -> None:
        frame = self.requests.response(request_id, payload, batch_offset)
        self.channel.output.write_frame(amqp.FRAME_RESPONSE, self.channel.number, frame)

    def ask(self, method: Method, payload: bytes, waiter: object) -> None:
        frame = self.requests.request(method, payload, waiter)
        self.channel.output.write_frame(amqp.FRAME_REQUEST, self.channel.number, frame)

    # References that come in

    def gathered_bytes(self) -> int:
        return sum([each.gathered_bytes() for each in self.references.values()])

    # Deliveries

    def has_room(self) -> bool:
        """Whether another message may go out."""
        return not self.outgoing and self.may_ask()

    def may_ask(self) -> bool:
        """Whether the client has answered enough of what the broker has sent."""
        return len(self.requests.awaited) < UNANSWERED_MAX

    def deliver(
        self,
        destination: bytes,
        message: Message,
        settles: int,
        redelivered: bool,
        content: bytes,
        body: Body | None,
        then: Callable[[], None] | None = None,
        instead: Callable[[], None] | None = None,
    ) -> None:
        """Sends a transfer; `destination` is an encoded short string. `then` is called when it is sent.

        `instead` is called if the message goes back to its queue before all of it is sent.
        """
        channel = self.channel
        header = content[: message.header_size]
        lifetime_ms = message.lifetime_ms
        expiration_s = (message.arrived_ms + lifetime_ms) // 1000 if lifetime_ms >= 0 else 0
        arguments = transfer_octets(
            header, destination, redelivered, message.shown_route(), expiration_s, channel.numeric
        )
        most = channel.output.frame_bytes_max - FRAMED_OCTETS - len(arguments) - len(body_octets(b""))
        if body is None and len(content) - message.header_size <= most and not self.outgoing:
            inline = body_octets(content[message.header_size :])
            self.ask(_TRANSFER, arguments + inline, settles)
            if then is not None:
                then()
            return
        if body is None:
            body = HeldBody(content, message.header_size)
        self.named += 1
        outgoing = OutgoingMessage(arguments, body, b"amq.reference-%d" % self.named, settles)
        outgoing.then, outgoing.instead = then, instead
        self.outgoing.append(outgoing)
        if len(self.outgoing) == 1:
            self.advance(outgoing, True)

    def answered(self, outgoing: OutgoingMessage) -> None:
        """The client has taken one more part of a body."""
        outgoing.unanswered -= 1
        if self.outgoing and self.outgoing[0] is outgoing:
            self.advance(outgoing)
            if not self.outgoing:
                self.channel.wake_parked()

    def advance(self, outgoing: OutgoingMessage | None, is_new: bool = False) -> None:
        """Sends what may be sent of the body that is on its way, and of those behind it.

        `is_new`: the channel holds the message of the body from the end of this delivery on.
        """
        while outgoing is not None:
            is_gone = outgoing.settles and not is_new and not self.channel.holds(outgoing.settles)
            is_new = False
            if is_gone:
                self.give_up(outgoing)
            elif not self.send_some(outgoing):
                return
            self.outgoing.popleft()
            outgoing.body.close()
            if outgoing.then is not None:
                outgoing.then()
            outgoing = self.outgoing[0] if self.outgoing else None

    def give_up(self, outgoing: OutgoingMessage) -> None:
        """The message goes another way meanwhile. A reference without a transfer means nothing."""
        if outgoing.is_begun:
            self.ask(_CLOSE, encoded(methods.MessageClose(reference=outgoing.name)), None)
        outgoing.then = outgoing.instead

    def send_some(self, outgoing: OutgoingMessage) -> bool:
        """Whether nothing is left to send of it."""
        channel = self.channel
        if not outgoing.is_begun:
            outgoing.is_begun = True
            self.ask(_OPEN, encoded(methods.MessageOpen(reference=outgoing.name)), outgoing)
            outgoing.unanswered += 1
        size = channel.output.frame_bytes_max - FRAMED_OCTETS - 12 - len(outgoing.name)
        while outgoing.at < outgoing.body.octets:
            if outgoing.unanswered >= APPENDS_MAX:
                return False
            piece = outgoing.body.read(outgoing.at, min(size, outgoing.body.octets - outgoing.at))
            outgoing.at += len(piece)
            append = methods.MessageAppend(reference=outgoing.name, octets=piece)
            self.ask(_APPEND, encoded(append), outgoing)
            outgoing.unanswered += 1
        self.ask(_TRANSFER, outgoing.arguments + body_octets(outgoing.name, True), outgoing.settles)
        self.ask(_CLOSE, encoded(methods.MessageClose(reference=outgoing.name)), None)
        return True

    # The end

    def retire(self, farewell: Callable[[], None] | None) -> Callable[[], None] | None:
        """The channel closes. What it is to say when its other publishes are confirmed."""
        for reference in self.references.values():
            reference.end()
        self.references.clear()
        while self.outgoing:
            self.outgoing.popleft().body.close()
        if farewell is None:
            self.confirms.retire(None)
            return None
        both = BothConfirmed(farewell)
        self.confirms.retire(both.say)
        return both.say


class BothConfirmed:
    """A farewell that is said when it was said twice: for the transfers, and for the other publishes."""

    def __init__(self, farewell: Callable[[], None]) -> None:
        self.farewell = farewell
        self.due = 2

    def say(self) -> None:
        self.due -= 1
        if not self.due:
            self.farewell()


def encoded(method: Method) -> bytes:
    return encode_method(amqp.VERSION_0_9, method)
