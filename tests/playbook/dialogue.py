"""Conversations with a broker, without sockets: what a client says, and what it must hear in return.

    client >> QueueDeclare(queue="q")                 the client sends a method on its channel
    client << QueueDeclareOk(queue="q")               the next thing it hears is this

A `Playbook` holds a real Broker; each `Client` talks to a real Session over a link that only takes notes.
`client[2]` is its channel 2, `client` itself channel 1. After each thing said the broker finishes its pass,
as the server would; `with playbook.one_pass():` has several things arrive together. Whoever ends a test
without having heard everything has missed something: `Playbook.end` says what.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from flintmq.auth import Verification
from flintmq.broker.broker import Broker
from flintmq.broker.definitions import definition_services  # noqa: F401 - registers them
from flintmq.clock import Clock
from flintmq.config import Config
from flintmq.errors import PeerFault
from flintmq.protocol.outbox import Output
from flintmq.server.sessions.session import Session
from flintmq.wire import amqp, methods
from flintmq.wire.methods import Method, decode_method, encode_method
from flintmq.wire.properties import BasicProperties, decode_properties, encode_properties

HEADERS = {
    amqp.VERSION_0_9_1: b"AMQP\x00\x00\x09\x01",
    amqp.VERSION_0_9: b"AMQP\x01\x01\x00\x09",
    amqp.VERSION_0_8: b"AMQP\x01\x01\x08\x00",
}
CAPABILITIES = {
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "authentication_failure_close": True,
}

# More than any chore of a test takes.
CHORE_PASSES_MAX = 1000

M = TypeVar("M", bound=Method)


@dataclass
class Carried:
    """A method with its content."""

    method: Method
    body: bytes = b""
    properties: Any = field(default_factory=BasicProperties)


@dataclass
class Request:
    """A method in a request frame of 0-9."""

    request_id: int
    method: Method
    response_mark: int = 0


@dataclass
class Response:
    """A method in a response frame of 0-9, which answers requests from the one named to so many behind it."""

    response_id: int
    request_id: int
    method: Method
    batch_offset: int = 0


@dataclass
class Heartbeat:
    """A heartbeat frame."""


def carrying(method: Method, body: bytes = b"", **properties: Any) -> Carried:
    return Carried(method, body, BasicProperties(**properties))


class NotingLink:
    """What a session asks of its link, noted; logins are verified at once unless they are to be slow."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.heartbeat_s = 0
        self.slow_logins = False
        self.verifying: list[Verification] = []
        self.session: Session | None = None
        self.received_octets = self.sent_octets = 0
        self.certificate: dict[str, Any] | None = None

    def peer_certificate(self) -> dict[str, Any] | None:
        return self.certificate

    def verify(self, verification: Verification) -> None:
        self.notes.append("verify")
        if self.slow_logins:
            self.verifying.append(verification)
        else:
            assert self.session is not None
            self.session.login_step(verification.now())

    def wait_for_answer(self) -> None:
        assert self.session is not None
        self.notes.append("wait_for_answer")
        self.session.connection.paused = True

    def answered(self) -> None:
        assert self.session is not None
        self.notes.append("answered")
        self.session.connection.paused = False

    def look_again(self) -> None:
        """The test says how much memory there is."""

    def wait_for_rate(self, wait_s: float, rated: object) -> None:
        self.notes.append(f"wait {wait_s:.3f}")

    def rate_changed(self) -> None:
        """Nobody waits."""

    def refuse_login(self, pause_s: float) -> None:
        self.notes.append("refuse_login")

    def refuse(self, pause_s: float, then: Callable[[], None]) -> None:
        """The pause is over at once."""
        then()

    def greeted(self) -> None:
        """Nobody counts strangers."""

    def describe(self) -> dict[str, int]:
        return {"received": 0, "sent": 0}

    def start_heartbeats(self, interval_s: int) -> None:
        self.heartbeat_s = interval_s

    def opened(self) -> None:
        self.notes.append("opened")

    def closing(self) -> None:
        self.notes.append("closing")

    def finish(self) -> None:
        self.notes.append("finish")

    def drop(self) -> None:
        self.notes.append("drop")


class Playbook:
    """A broker and those who talk to it."""

    def __init__(self, config: Config | None = None, clock: Clock | None = None) -> None:
        self.broker = Broker(config or Config(), clock or Clock())
        self.outbox: list[Output] = []
        self.clients: list[Client] = []
        self.holding = False

    def stranger(self, version: int = amqp.VERSION_0_9_1, address: str = "127.0.0.1") -> Client:
        """One who has connected and said nothing yet."""
        client = Client(self, version, address)
        self.clients.append(client)
        return client

    def client(self, version: int = amqp.VERSION_0_9_1, **options: Any) -> Client:
        """One with an open connection and channel 1."""
        client = self.stranger(version)
        client.open(**options)
        client >> methods.ChannelOpen()
        client.hears(methods.ChannelOpenOk)
        return client

    @contextlib.contextmanager
    def one_pass(self) -> Iterator[None]:
        """All that is said within arrives before the broker hands anything out."""
        self.holding = True
        try:
            yield
        finally:
            self.holding = False
        self.finish_pass()

    def finish_pass(self) -> None:
        if not self.holding:
            while self.broker.has_work():
                self.broker.finish_pass()

    def end(self) -> None:
        unheard = [(index, client.heard()) for index, client in enumerate(self.clients)]
        assert not [each for each in unheard if each[1]], f"unheard: {[each for each in unheard if each[1]]}"


class Client:
    """One connection, spoken over its channel 1."""

    def __init__(self, playbook: Playbook, version: int, address: str) -> None:
        self.playbook = playbook
        self.version = version
        self.link = NotingLink()
        self.output = Output(playbook.outbox, self.link)
        self.session = Session(playbook.broker, self.output, self.link, address)
        self.link.session = self.session
        self.inbox: list[tuple[int, object]] = []
        self.leftover = b""

    def __getitem__(self, number: int) -> Voice:
        return Voice(self, number)

    def __rshift__(self, said: Method | Carried | Request | Response | bytes) -> Client:
        self.say(1, said)
        return self

    def __lshift__(self, expected: object) -> Client:
        self.expect(1, expected)
        return self

    def hears(self, kind: type[M], number: int = 1) -> M:
        """The next thing, which must be of this kind."""
        found = self.next(number)
        assert isinstance(found, kind), f"heard {found} where {kind.NAME} was due"
        return found

    def hears_nothing(self) -> None:
        assert self.heard() == []

    def heard(self) -> list[tuple[int, object]]:
        self.listen()
        return self.inbox

    # -- the octets --------------------------------------------------------------------------------

    def say(self, number: int, said: Method | Carried | Request | Response | bytes) -> None:
        if isinstance(said, bytes):
            self.receive(said)
        elif isinstance(said, Request | Response):
            self.receive(exchange_frame(number, said))
        elif isinstance(said, Carried):
            self.receive(self.frames(number, said))
        else:
            number = 0 if said.CLASS_ID == amqp.CLASS_CONNECTION else number
            self.receive(frame(amqp.FRAME_METHOD, number, encode_method(self.version, said)))

    def frames(self, number: int, said: Carried) -> bytes:
        properties = encode_properties(said.properties)
        head = said.method.CLASS_ID.to_bytes(2, "big") + bytes(2) + len(said.body).to_bytes(8, "big")
        whole = frame(amqp.FRAME_METHOD, number, encode_method(self.version, said.method))
        whole += frame(amqp.FRAME_HEADER, number, head + properties)
        size = self.session.connection.frame_bytes_max - 8
        for at in range(0, len(said.body), size):
            whole += frame(amqp.FRAME_BODY, number, said.body[at : at + size])
        return whole

    def receive(self, octets: bytes) -> None:
        self.playbook.finish_pass()  # what a call into the broker has left, such as the end of a session
        pass_work, connection = self.playbook.broker.pass_work, self.session.connection
        self.leftover += octets
        while True:
            pass_work.copies = 0
            buffer = bytearray(self.leftover)
            try:
                used = connection.receive(buffer, len(buffer))
            except PeerFault as fault:
                self.session.fail(None, fault)
                used = len(buffer)
            self.leftover = bytes(buffer[used:])
            if not connection.paused or not pass_work.is_laden():
                break
            connection.paused = False  # others would have their turn now
        self.playbook.finish_pass()

    def listen(self) -> None:
        """Moves what was sent to this client into its inbox."""
        output = self.output
        sent = b""
        while output.pending() or output.streaming:
            output.fill_from_streams()
            sent += bytes(output.buffer[output.start : output.fill])
            output.sent(output.pending())
        if not sent:
            return
        output.waiting = False
        self.playbook.outbox.clear()
        self.inbox += decoded(sent, self.version)
        if output.wanted:
            wanted = list(output.wanted)
            output.wanted.clear()
            for consumer in wanted:
                consumer.wake()  # type: ignore[attr-defined]
        # A stream that ends wakes consumers too.
        if self.playbook.broker.has_work():
            self.playbook.finish_pass()
            self.listen()

    def next(self, number: int) -> object:
        self.listen()
        for _ in range(CHORE_PASSES_MAX):
            # On a busy machine the end of a channel or queue takes more than the pass in which it began.
            if self.inbox or not self.playbook.broker.pass_work.has_chores:
                break
            self.playbook.finish_pass()
            self.listen()
        assert self.inbox, "heard nothing"
        channel, found = self.inbox.pop(0)
        expected = 0 if isinstance(found, Method) and found.CLASS_ID == amqp.CLASS_CONNECTION else number
        assert channel == expected, f"heard {found} on channel {channel}, not {expected}"
        return found

    def expect(self, number: int, expected: object) -> None:
        found = self.next(number)
        assert found == expected, f"\nheard    {found}\ninstead of {expected}"

    # -- the usual beginnings ----------------------------------------------------------------------

    def greet(self) -> methods.ConnectionStart:
        self >> HEADERS[self.version]
        return self.hears(methods.ConnectionStart)

    def log_in(self, user: str = "guest", password: str = "guest", **properties: Any) -> None:
        properties.setdefault("capabilities", CAPABILITIES)
        response = b"\0" + user.encode() + b"\0" + password.encode()
        self >> methods.ConnectionStartOk(
            client_properties=properties, mechanism="PLAIN", response=response, locale="en_US"
        )

    def open(self, virtual_host: str = "/", frame_max: int = 0, **login: Any) -> None:
        self.greet()
        self.log_in(**login)
        self.hears(methods.ConnectionTune)
        self >> methods.ConnectionTuneOk(channel_max=0, frame_max=frame_max, heartbeat=0)
        self >> methods.ConnectionOpen(virtual_host=virtual_host)
        self.hears(methods.ConnectionOpenOk)

    # -- the usual requests ------------------------------------------------------------------------

    def declares(self, queue: str, **settings: Any) -> None:
        self >> methods.QueueDeclare(queue=queue, **settings)
        self.hears(methods.QueueDeclareOk)

    def binds(self, queue: str, exchange: str, key: str = "", **arguments: Any) -> None:
        self >> methods.QueueBind(queue=queue, exchange=exchange, routing_key=key, arguments=arguments)
        self << methods.QueueBindOk()

    def publishes(self, key: str, *bodies: bytes, exchange: str = "", **properties: Any) -> None:
        for body in bodies:
            self >> carrying(methods.BasicPublish(exchange=exchange, routing_key=key), body, **properties)

    def consumes(self, queue: str, tag: str = "c", **settings: Any) -> None:
        self >> methods.BasicConsume(queue=queue, consumer_tag=tag, **settings)
        self << methods.BasicConsumeOk(consumer_tag=tag)

    def gets(self, queue: str) -> bytes | None:
        """The body of the next message, taken for good."""
        self >> methods.BasicGet(queue=queue, no_ack=True)
        found = self.next(1)
        return found.body if isinstance(found, Carried) else None

    def gets_all(self, queue: str) -> list[bytes]:
        bodies = []
        while (body := self.gets(queue)) is not None:
            bodies.append(body)
        return bodies

    def deliveries(self) -> list[tuple[str, int, bytes]]:
        """All that was delivered: consumer tag, delivery tag, body."""
        found = []
        for _, each in self.heard():
            assert isinstance(each, Carried), each
            assert isinstance(each.method, methods.BasicDeliver), each
            found.append((each.method.consumer_tag, each.method.delivery_tag, each.body))
        self.inbox.clear()
        return found

    def bodies(self) -> list[bytes]:
        return [body for _, _, body in self.deliveries()]


@dataclass
class Voice:
    """One channel of a client."""

    client: Client
    number: int

    def __rshift__(self, said: Method | Carried | Request | Response | bytes) -> Voice:
        self.client.say(self.number, said)
        return self

    def __lshift__(self, expected: object) -> Voice:
        self.client.expect(self.number, expected)
        return self


def frame(kind: int, number: int, payload: bytes) -> bytes:
    return bytes((kind,)) + number.to_bytes(2, "big") + len(payload).to_bytes(4, "big") + payload + b"\xce"


def exchange_frame(number: int, said: Request | Response) -> bytes:
    method = encode_method(amqp.VERSION_0_9, said.method)
    if isinstance(said, Request):
        head = struct.pack(">QQI", said.request_id, said.response_mark, 0)
        return frame(amqp.FRAME_REQUEST, number, head + method)
    head = struct.pack(">QQI", said.response_id, said.request_id, said.batch_offset)
    return frame(amqp.FRAME_RESPONSE, number, head + method)


def decoded(octets: bytes, version: int) -> Iterator[tuple[int, object]]:
    """The methods in frames, those with content as Carried; a protocol header as octets."""
    at = 0
    pending: dict[int, tuple[Carried, int]] = {}
    while at < len(octets):
        if octets[at : at + 4] == b"AMQP":
            yield 0, octets[at : at + 8]
            at += 8
            continue
        kind, number = octets[at], int.from_bytes(octets[at + 1 : at + 3], "big")
        end = at + 7 + int.from_bytes(octets[at + 3 : at + 7], "big")
        payload = octets[at + 7 : end]
        assert octets[end] == amqp.FRAME_END
        at = end + 1
        if kind == amqp.FRAME_HEARTBEAT:
            yield number, Heartbeat()
            continue
        if kind == amqp.FRAME_METHOD:
            method = decode_method(version, payload)
            if not method.CONTENT:
                yield number, method
                continue
            pending[number] = (Carried(method), -1)
            continue
        if kind in (amqp.FRAME_REQUEST, amqp.FRAME_RESPONSE):
            first, second, third = struct.unpack_from(">QQI", payload)
            method = decode_method(version, payload[20:])
            if kind == amqp.FRAME_REQUEST:
                yield number, Request(first, method, second)
            else:
                yield number, Response(first, second, method, third)
            continue
        carried, size = pending.pop(number)
        if kind == amqp.FRAME_HEADER:
            size = int.from_bytes(payload[4:12], "big")
            carried.properties = decode_properties(carried.method.CLASS_ID, payload, 12, len(payload))
        else:
            carried.body += payload
        if len(carried.body) == size:
            yield number, carried
        else:
            pending[number] = (carried, size)
    assert not pending
