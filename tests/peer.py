"""A small synchronous AMQP client for tests: every frame is in the test's hands, right or wrong.

    peer = Peer.connect(port, "0-9-1")                       logged in, nothing opened
    peer.open(1)                                             channel.open
    peer.call(1, methods.QueueDeclare(queue="q"))            sends, and returns the answer
    peer.publish(1, b"hello", key="q")
    deliver, content = peer.delivery(1)
    peer.send(1, methods.BasicAck(delivery_tag=9))
    peer.expect_channel_close(1, amqp.PRECONDITION_FAILED)

Frames of a channel are read in order, whatever other channels receive meanwhile. What comes instead of
what was expected fails the test with its own words, and a broker that says nothing fails it after
`timeout_s`. For bad manners there are `raw`, `frame` and `Peer.greeted`.
"""

from __future__ import annotations

import socket
import struct
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

from flintmq.wire import amqp, methods
from flintmq.wire.methods import Method, decode_method, encode_method
from flintmq.wire.properties import BasicProperties, Properties, decode_properties, encode_properties

HEADERS = {
    "0-8": b"AMQP\x01\x01\x08\x00",
    "0-9": b"AMQP\x01\x01\x00\x09",
    "0-9-1": b"AMQP\x00\x00\x09\x01",
}
NUMBERS = {"0-8": amqp.VERSION_0_8, "0-9": amqp.VERSION_0_9, "0-9-1": amqp.VERSION_0_9_1}
# What a client of today announces. A test that wants less says so.
CAPABILITIES = (
    "authentication_failure_close",
    "basic.nack",
    "connection.blocked",
    "consumer_cancel_notify",
    "publisher_confirms",
)
SPARE_CHANNEL = 2000

_FRAME_HEAD = struct.Struct(">BHI")
_CONTENT_HEAD = struct.Struct(">HHQ")
_EXCHANGE_HEAD = struct.Struct(">QQI")

M = TypeVar("M", bound=Method)


class Gone(Exception):
    """The broker closed the socket."""


class Frame(NamedTuple):
    kind: int
    channel: int
    payload: bytes


class Content(NamedTuple):
    properties: Any  # the Properties of the content's class; for basic, BasicProperties
    body: bytes


class Exchange(NamedTuple):
    """A request or a response of 0-9."""

    is_request: bool
    request_id: int
    batch_offset: int
    method: Any


def encode_frame(kind: int, channel: int, payload: bytes = b"") -> bytes:
    return _FRAME_HEAD.pack(kind, channel, len(payload)) + payload + bytes((amqp.FRAME_END,))


class Peer:
    """One connection to a broker on this machine."""

    def __init__(self, port: int, version: str = "0-9-1", timeout_s: float = 10.0) -> None:
        self.version = NUMBERS[version]
        self.header = HEADERS[version]
        self.socket = socket.create_connection(("127.0.0.1", port), timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.input = self.socket.makefile("rb")
        self.waiting: dict[int, deque[Frame]] = {}
        self.held: bytearray | None = None
        self.frame_bytes_max = amqp.FRAME_BYTES_MIN
        self.tune = methods.ConnectionTune()

    # The handshake

    @classmethod
    def greeted(cls, port: int, version: str = "0-9-1") -> Peer:
        """The protocol header is sent; connection.start is the next thing to come."""
        peer = cls(port, version)
        peer.raw(peer.header)
        return peer

    @classmethod
    def connect(cls, port: int, version: str = "0-9-1", **wishes: Any) -> Peer:
        """A connection that is open; `wishes` are those of `log_in` and `enter`."""
        peer = cls.greeted(port, version)
        entering = {name: wishes.pop(name) for name in list(wishes) if name in ("virtual_host", "insist")}
        peer.log_in(**wishes)
        peer.enter(**entering)
        return peer

    def log_in(
        self,
        user: str = "guest",
        password: str = "guest",
        capabilities: tuple[str, ...] = CAPABILITIES,
        heartbeat_s: int = 0,
    ) -> None:
        """From connection.start to connection.tune-ok, which accepts what the broker offers."""
        self.expect(0, methods.ConnectionStart)
        self.send(
            0,
            methods.ConnectionStartOk(
                client_properties={"product": "peer", "capabilities": dict.fromkeys(capabilities, True)},
                mechanism="PLAIN",
                response=f"\0{user}\0{password}".encode(),
                locale="en_US",
            ),
        )
        self.tune = self.expect(0, methods.ConnectionTune)
        self.frame_bytes_max = self.tune.frame_max
        self.send(
            0,
            methods.ConnectionTuneOk(
                channel_max=self.tune.channel_max, frame_max=self.tune.frame_max, heartbeat=heartbeat_s
            ),
        )

    def enter(self, virtual_host: str = "/", insist: bool = False) -> None:
        self.call(0, methods.ConnectionOpen(virtual_host=virtual_host, insist=insist))

    def open(self, *channels: int) -> None:
        for channel in channels:
            self.call(channel, methods.ChannelOpen())

    # Sending

    def raw(self, octets: bytes) -> None:
        if self.held is None:
            self.socket.sendall(octets)
        else:
            self.held += octets

    @contextmanager
    def together(self) -> Iterator[None]:
        """What is sent inside leaves in one piece, so that the broker has read it all before it answers."""
        self.held = held = bytearray()
        yield
        self.held = None
        self.raw(bytes(held))

    def frame(self, kind: int, channel: int, payload: bytes = b"") -> None:
        self.raw(encode_frame(kind, channel, payload))

    def send(self, channel: int, *sent: Method) -> None:
        """All of them in one piece."""
        payloads = (encode_method(self.version, method) for method in sent)
        self.raw(b"".join(encode_frame(amqp.FRAME_METHOD, channel, payload) for payload in payloads))

    def send_content(self, channel: int, method: Method, body: bytes, properties: Properties) -> None:
        """A method with its content, the body in frames as large as was agreed."""
        size = self.frame_bytes_max - amqp.FRAME_HEADER_BYTES - amqp.FRAME_END_BYTES
        header = _CONTENT_HEAD.pack(method.CLASS_ID, 0, len(body)) + encode_properties(properties)
        frames = [
            encode_frame(amqp.FRAME_METHOD, channel, encode_method(self.version, method)),
            encode_frame(amqp.FRAME_HEADER, channel, header),
        ]
        for start in range(0, len(body), size):
            frames.append(encode_frame(amqp.FRAME_BODY, channel, body[start : start + size]))
        self.raw(b"".join(frames))

    def request(self, channel: int, request_id: int, method: Method, mark: int = 0) -> None:
        """A method in a request frame of 0-9."""
        head = _EXCHANGE_HEAD.pack(request_id, mark, 0)
        self.frame(amqp.FRAME_REQUEST, channel, head + encode_method(self.version, method))

    def respond(self, channel: int, response_id: int, request_id: int, method: Method, more: int = 0) -> None:
        """A method in a response frame of 0-9, for a request and so many behind it."""
        head = _EXCHANGE_HEAD.pack(response_id, request_id, more)
        self.frame(amqp.FRAME_RESPONSE, channel, head + encode_method(self.version, method))

    def publish(
        self,
        channel: int,
        body: bytes = b"",
        *,
        exchange: str = "",
        key: str = "",
        mandatory: bool = False,
        immediate: bool = False,
        **properties: Any,
    ) -> None:
        """basic.publish; `properties` are fields of BasicProperties."""
        method = methods.BasicPublish(
            exchange=exchange, routing_key=key, mandatory=mandatory, immediate=immediate
        )
        self.send_content(channel, method, body, BasicProperties(**properties))

    # Receiving

    def octets(self, size: int) -> bytes:
        """Exactly `size` octets, as they come; Gone if there are no more."""
        try:
            octets = self.input.read(size)
        except ConnectionError as error:
            raise Gone(str(error)) from error
        if len(octets) < size:
            raise Gone(f"the broker closed the socket; its last octets were {octets!r}")
        return octets

    def next_frame(self) -> Frame:
        """The next frame of any channel, heartbeats included."""
        kind, channel, size = _FRAME_HEAD.unpack(self.octets(_FRAME_HEAD.size))
        payload = self.octets(size)
        assert self.octets(1) == bytes((amqp.FRAME_END,))
        return Frame(kind, channel, payload)

    def frame_of(self, channel: int) -> Frame:
        """The next frame of the channel; a connection.close that comes first fails the test."""
        while not self.waiting.get(channel):
            found = self.next_frame()
            if found.kind == amqp.FRAME_HEARTBEAT:
                continue
            if found.channel == 0 and channel != 0:
                raise AssertionError(f"the broker said {decode_method(self.version, found.payload)!r}")
            self.waiting.setdefault(found.channel, deque()).append(found)
        return self.waiting[channel].popleft()

    def expect(self, channel: int, kind: type[M]) -> M:
        """The next thing on the channel is a method of this kind."""
        frame = self.frame_of(channel)
        assert frame.kind == amqp.FRAME_METHOD, f"expected {kind.NAME}, got {frame!r}"
        method = decode_method(self.version, frame.payload)
        assert isinstance(method, kind), f"expected {kind.NAME}, got {method!r}"
        return method

    def call(self, channel: int, method: Method) -> Any:
        """Sends the method and returns its first answer, which has to be one of those it may have."""
        self.send(channel, method)
        frame = self.frame_of(channel)
        assert frame.kind == amqp.FRAME_METHOD, f"expected an answer to {method.NAME}, got {frame!r}"
        answer = decode_method(self.version, frame.payload)
        assert answer.NAME in method.REPLIES, f"expected an answer to {method!r}, got {answer!r}"
        return answer

    def exchange(self, channel: int) -> Exchange:
        """The next thing on the channel, which is a request or a response."""
        frame = self.frame_of(channel)
        assert frame.kind in (amqp.FRAME_REQUEST, amqp.FRAME_RESPONSE), f"expected neither, got {frame!r}"
        first, second, third = _EXCHANGE_HEAD.unpack_from(frame.payload)
        method = decode_method(self.version, frame.payload[_EXCHANGE_HEAD.size :])
        if frame.kind == amqp.FRAME_REQUEST:
            return Exchange(True, first, 0, method)
        return Exchange(False, second, third, method)

    def content(self, channel: int) -> Content:
        """The content that follows a method: its header, and body frames until its size is reached."""
        frame = self.frame_of(channel)
        assert frame.kind == amqp.FRAME_HEADER, f"expected a content header, got {frame!r}"
        class_id, _, size = _CONTENT_HEAD.unpack_from(frame.payload)
        properties = decode_properties(class_id, frame.payload, _CONTENT_HEAD.size, len(frame.payload))
        body = b""
        while len(body) < size:
            frame = self.frame_of(channel)
            assert frame.kind == amqp.FRAME_BODY, f"expected a content body, got {frame!r}"
            body += frame.payload
        assert len(body) == size
        return Content(properties, body)

    def delivery(self, channel: int) -> tuple[methods.BasicDeliver, Content]:
        return self.expect(channel, methods.BasicDeliver), self.content(channel)

    def get(
        self, channel: int, queue: str, no_ack: bool = False
    ) -> tuple[methods.BasicGetOk, Content] | None:
        """basic.get; None when the queue is empty."""
        answer = self.call(channel, methods.BasicGet(queue=queue, no_ack=no_ack))
        return None if isinstance(answer, methods.BasicGetEmpty) else (answer, self.content(channel))

    def is_quiet(self, channel: int) -> bool:
        """Whether nothing is on its way to the channel.

        A round trip over a spare channel tells without waiting: what the broker had to say when it read
        the first question is on the socket before the answer to the second.
        """
        for _ in range(2):
            self.open(SPARE_CHANNEL)
            self.call(SPARE_CHANNEL, methods.ChannelClose(reply_code=200))
        return not self.waiting.get(channel)

    # The end

    def expect_channel_close(self, channel: int, code: int) -> methods.ChannelClose:
        """The broker closes the channel for this reason; answered, so that the number is free again."""
        closed = self.expect(channel, methods.ChannelClose)
        assert closed.reply_code == code, f"expected {code}, got {closed!r}"
        self.send(channel, methods.ChannelCloseOk())
        return closed

    def expect_connection_close(self, code: int) -> methods.ConnectionClose:
        """The broker closes the connection for this reason; answered, and then it is gone."""
        closed = self.expect(0, methods.ConnectionClose)
        assert closed.reply_code == code, f"expected {code}, got {closed!r}"
        self.send(0, methods.ConnectionCloseOk())
        self.expect_end()
        return closed

    def expect_end(self) -> None:
        """Nothing more comes but the end of the socket."""
        try:
            rest = self.input.read()
        except ConnectionResetError:
            return
        assert rest == b"", f"expected the end, got {rest!r}"

    def close(self) -> None:
        """connection.close and its answer."""
        self.send(0, methods.ConnectionClose(reply_code=200))
        self.expect(0, methods.ConnectionCloseOk)
        self.expect_end()
        self.abort()

    def abort(self) -> None:
        """Away without a word."""
        self.input.close()
        self.socket.close()

    def reset(self) -> None:
        """Away without a word, and the broker hears of it at once: what is on its way either way is lost."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.abort()

    def __enter__(self) -> Peer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()
