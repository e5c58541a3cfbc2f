"""A client's connection of AMQP/Fast 0.9 without its socket.

    octets in  --> receive() --> replies, messages, closes
    octets out <-- take_output() <-- calls

A reply has the synctag of what it answers, by channel. The transports of the client of 0.8 own the socket.
Whoever waits looks at the state here until it has changed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import MutableMapping
from dataclasses import dataclass, field
from typing import Any

from flintmq.client.core.errors import (
    ClientError,
    ConnectFailed,
    ConnectionClosed,
    ConnectionLost,
    LoginRefused,
    MessageTooLarge,
    channel_closed,
)
from flintmq.errors import ConnectionFault, ProtocolMisuse
from flintmq.wire import amqp
from flintmq.wire.fast09 import content_header, frames, methods
from flintmq.wire.fast09.content_header import ContentHeader
from flintmq.wire.fast09.methods import KINDS, Method, method

# What a server may send before frames are agreed on, and what we ask for.
FRAME_BYTES_MAX = 131_072
# A message that a server sends is at most this long.
MESSAGE_BYTES_MAX = 512 * 2**20
SYNCTAG_MAX = 65_535
CHANNEL_MAX = 65_535
MECHANISM = "PLAIN"
LOCALE = "en_US"
OK = "Ok"

# Operations of the test class, in the order in which 0-8 names them.
ADD, MIN, MAX = 1, 2, 3


@dataclass(slots=True)
class Message:
    """What a server has delivered."""

    body: bytes
    header: ContentHeader
    tag: int  # by which it is acked or rejected
    proxy: str = ""
    namespace: str = ""
    queue: str = ""
    is_redelivered: bool = False
    is_traced: bool = False
    identifier: str = ""  # of a file

    @property
    def properties(self) -> dict[str, Any]:
        return self.header.properties

    @property
    def destination(self) -> str:
        return str(self.header.properties.get("destination", ""))

    @property
    def headers(self) -> dict[str, Any]:
        return self.header.properties.get("headers") or {}


@dataclass(slots=True)
class Place:
    """A channel: what has come for it, and how it ended."""

    number: int
    is_open: bool = True
    is_closing: bool = False  # we have closed it, and wait for the answer
    is_paused: bool = False  # the server wants no publishes for now
    failure: ClientError | None = None
    replies: dict[int, Method | None] = field(default_factory=dict)  # by synctag; None while there is none
    synctag: int = 0
    inboxes: dict[tuple[str, str, str], deque[Message]] = field(default_factory=dict)
    browsed: deque[Message | None] = field(default_factory=deque)
    staged: deque[int] = field(default_factory=deque)  # answers to file.open
    # The content that is on its way.
    carrying: Method | None = None
    flags: int = 0
    carried_tag: int = 0
    header: ContentHeader | None = None
    parts: list[bytes] = field(default_factory=list)
    size: int = 0
    # Of a file that the server stages here.
    identifier: str = ""
    file_header: ContentHeader | None = None


class Fast09Core:
    """One connection."""

    def __init__(
        self,
        user: str,
        password: str,
        virtual_host: str,
        client_id: str,
        heartbeat_s: int,
        files: MutableMapping[str, bytearray] | None = None,
    ) -> None:
        self.user = user
        self.password = password
        self.virtual_host = virtual_host
        self.client_id = client_id
        self.heartbeat_s = heartbeat_s
        self.files: MutableMapping[str, bytearray] = {} if files is None else files  # by identifier
        self.output = bytearray(frames.OPENING)
        self.input = bytearray()
        self.is_open = False
        self.is_over = False
        self.is_closing = False
        self.failure: ClientError | None = None
        self.frame_bytes_max = amqp.FRAME_BYTES_MIN  # of both sides
        self.limits: dict[str, Any] = {}  # as the server told them
        self.mechanisms = ""
        self.channels: dict[int, Place] = {}
        self.unknown: set[int] = set()  # synctags of unreal methods that the server does not have

    # Octets

    def take_output(self) -> bytes:
        taken, self.output = bytes(self.output), bytearray()
        return taken

    def write(self, number: int, said: Method, flags: int = 0, synctag: int = 0) -> None:
        self.output += frames.framed(frames.METHOD, number, methods.encode(said, flags, synctag))

    def receive(self, octets: bytes) -> None:
        """What the server sent. Whatever cannot be understood ends the connection."""
        self.input += octets
        try:
            at = 0
            while not self.is_over:
                used = self.receive_frame(at)
                if not used:
                    break
                at = used
            del self.input[:at]
        except ConnectionFault as fault:
            close = method("connection.close", reply_code=fault.code, reply_text=fault.text[:200])
            self.write(0, close)
            self.end(ConnectionClosed(f"the server broke the protocol: {fault.text}", fault.code, fault.text))

    def receive_frame(self, at: int) -> int:
        """The frame at `at`: the position behind it, 0 if it is not all there."""
        head = frames.read_head(self.input, at, len(self.input))
        if head is None:
            return 0
        kind, number, size, start = head
        if not frames.METHOD <= kind < frames.META or frames.OOB_METHOD <= kind <= frames.OOB_BODY:
            raise ConnectionFault(amqp.FRAME_ERROR, f"a frame of type {kind}")
        if size > max(self.frame_bytes_max, FRAME_BYTES_MAX):
            raise ConnectionFault(amqp.FRAME_ERROR, f"a frame body of {size} octets")
        if start + size > len(self.input):
            return 0
        payload = bytes(self.input[start : start + size])
        if kind == frames.METHOD:
            self.receive_method(number, payload)
        elif kind in (frames.HEADER, frames.BODY):
            self.receive_content(kind, number, payload)
        elif kind == frames.HEARTBEAT:
            self.output += frames.HEARTBEAT_FRAME  # whoever reads is alive
        return start + size

    def lost(self, why: str) -> None:
        """The socket is gone."""
        if not self.is_open and not self.is_over:
            text = f"the server hung up: {why}; does it speak AMQP/Fast 0.9, and is the login right?"
            self.end(ConnectFailed(text))
        else:
            self.end(ConnectionLost(f"the connection is lost: {why}"))

    def end(self, failure: ClientError | None) -> None:
        if not self.is_over:
            self.is_over = True
            self.failure = self.failure or failure

    def check(self) -> None:
        """Raises when the connection is over."""
        if self.failure is not None:
            raise self.failure
        if self.is_over or self.is_closing:
            raise ConnectionClosed("the connection is closed", 0, "")

    # What the server says

    def receive_method(self, number: int, payload: bytes) -> None:
        class_id, method_id, flags, synctag, kind = methods.read_ids(payload)
        if flags & methods.SYNCHREQ:
            raise ConnectionFault(amqp.COMMAND_INVALID, "a server must not ask for a synchpoint")
        place = self.channels.get(number)
        if kind is None or not kind.is_for_client:
            self.refuse(class_id, method_id, flags, synctag)
            return
        if flags & methods.UNREAL and (place is None or synctag not in place.replies):
            self.answer_unreal(number, kind, synctag)
            return
        said = methods.decode(kind, payload)
        if kind.class_id == 1:
            self.obey(said)
        elif place is None:
            raise ConnectionFault(amqp.CHANNEL_ERROR, f"{kind.name} on channel {number}, which is not open")
        elif place.carrying is not None:
            raise ConnectionFault(amqp.UNEXPECTED_FRAME, f"{kind.name} in the middle of a content")
        elif kind.has_content and not flags & methods.UNREAL:
            place.carrying, place.flags, place.carried_tag = said, flags, synctag
        else:
            self.obey_on(place, said, synctag)

    def refuse(self, class_id: int, method_id: int, flags: int, synctag: int) -> None:
        """A method that no client has: who only asks is told so, and anybody else breaks the protocol."""
        if not flags & methods.UNREAL:
            raise ConnectionFault(amqp.COMMAND_INVALID, f"method {class_id}/{method_id} is not for a client")
        unknown = method(
            "connection.unknown",
            class_id=class_id,
            method_id=method_id,
            synctag=synctag,
            reply_code=amqp.NOT_IMPLEMENTED,
            reply_text="a client does not have this method",
        )
        self.write(0, unknown, 0, synctag)

    def answer_unreal(self, number: int, kind: methods.MethodKind, synctag: int) -> None:
        """As expected, with nothing done; of what nobody answers nothing is said."""
        if kind.reply and KINDS[kind.reply].is_for_server:
            self.write(number, method(kind.reply), methods.UNREAL, synctag)

    def obey(self, said: Method) -> None:
        name = said.kind.name
        if name == "connection.start":
            self.mechanisms = said.mechanisms.decode("ascii", "replace")
            self.write(0, method("connection.start-ok", mechanism=MECHANISM, locale=LOCALE))
        elif name == "connection.secure":
            response = f"\0{self.user}\0{self.password}".encode()
            self.write(0, method("connection.secure-ok", response=response))
        elif name == "connection.tune":
            self.tune(said)
        elif name == "connection.open-ok":
            self.client_id = said.client_id
            self.is_open = True
        elif name == "connection.unknown":
            self.unknown.add(said.synctag)
        elif name == "connection.close":
            self.closed(said)
        else:
            self.end(None)  # close-ok

    def tune(self, said: Method) -> None:
        self.limits = dict(said.values)
        if said.frame_max < amqp.FRAME_BYTES_MIN:
            raise ConnectionFault(amqp.NOT_ALLOWED, f"frame_max {said.frame_max} is below 4096")
        self.frame_bytes_max = min(said.frame_max, FRAME_BYTES_MAX)
        tuned = method(
            "connection.tune-ok",
            frame_max=self.frame_bytes_max,
            channel_max=said.channel_max,
            ticket_max=said.access_max,
            heartbeat=self.heartbeat_s,
            jms_support=said.jms_support,
            file_support=said.file_support,
            stream_support=said.stream_support,
        )
        self.write(0, tuned)
        opening = method("connection.open", virtual_path=self.virtual_host, client_id=self.client_id)
        self.write(0, opening)

    def closed(self, said: Method) -> None:
        if not self.is_closing:
            self.write(0, method("connection.close-ok"))
            code, text = said.reply_code, said.reply_text
            if self.is_open:
                self.end(ConnectionClosed(f"the server closed the connection: {code} {text}", code, text))
            else:
                self.end(LoginRefused(f"the server refused the connection: {code} {text}", code, text))
        self.end(None)

    def obey_on(self, place: Place, said: Method, synctag: int) -> None:
        name = said.kind.name
        if name == "channel.close":
            self.channel_closed(place, said)
        elif name == "channel.close-ok":
            place.is_open = False
        elif not place.is_open or place.is_closing:
            return  # said before the server heard of our close
        elif name == "channel.flow":
            place.is_paused = said.flow_pause
        elif name == "jms.browse-empty":
            place.browsed.append(None)
        elif name == "file.open":
            place.identifier = said.identifier
            held = self.files.setdefault(said.identifier, bytearray())
            self.write(place.number, method("file.open-ok", staged_size=min(len(held), said.content_size)))
        elif name == "file.open-ok":
            place.staged.append(said.staged_size)
        elif name == "file.deliver":
            self.file_delivered(place, said)
        elif name in ("test.integer", "test.string", "test.table"):
            self.write(place.number, tested(said), 0, synctag)
        elif synctag in place.replies:
            place.replies[synctag] = said
        else:
            raise ConnectionFault(amqp.COMMAND_INVALID, f"{name} answers nothing")

    def channel_closed(self, place: Place, said: Method) -> None:
        self.write(place.number, method("channel.close-ok"))
        if not place.is_closing:
            place.is_open = False
            place.failure = channel_closed(said.reply_code, said.reply_text, "the channel")

    # Contents

    def receive_content(self, kind: int, number: int, payload: bytes) -> None:
        place = self.channels.get(number)
        if place is None:
            raise ConnectionFault(amqp.CHANNEL_ERROR, f"content on channel {number}, which is not open")
        if place.carrying is None:
            if place.is_closing or not place.is_open:
                return  # the rest of one that the server has given up
            raise ConnectionFault(amqp.UNEXPECTED_FRAME, "content that no method has announced")
        if kind == frames.HEADER:
            if place.header is not None:
                raise ConnectionFault(amqp.UNEXPECTED_FRAME, "a content header where a body was due")
            place.header = content_header.decode(payload)
            if place.header.weight or place.header.body_size > MESSAGE_BYTES_MAX:
                raise ConnectionFault(
                    amqp.RESOURCE_ERROR, "a content with children, or one that is too large"
                )
        else:
            if place.header is None:
                raise ConnectionFault(amqp.UNEXPECTED_FRAME, "a content body where a header was due")
            place.size += len(payload)
            if place.carrying.kind.name == "file.stage":
                self.files.setdefault(place.identifier, bytearray()).extend(payload)
            else:
                place.parts.append(payload)
        if place.size > place.header.body_size:
            raise ConnectionFault(amqp.FRAME_ERROR, "a content body is larger than its header announced")
        if place.size == place.header.body_size:
            self.carried(place, place.carrying, place.header, b"".join(place.parts))
            place.carrying = place.header = None
            place.parts, place.size = [], 0

    def carried(self, place: Place, said: Method, header: ContentHeader, body: bytes) -> None:
        name = said.kind.name
        is_traced = place.flags & methods.TRACER != 0
        if not place.is_open or place.is_closing:
            return
        if name == "file.stage":
            place.file_header = header
        elif name == "test.content":
            header.body_size = len(body)
            answer = method("test.content-ok", content_checksum=sum(body) % (1 << 32))
            self.write(place.number, answer, 0, place.carried_tag)
            self.write_content(place.number, header, body)
        elif name == "test.content-ok":
            if place.carried_tag in place.replies:
                place.replies[place.carried_tag] = said
        elif name == "jms.browse-ok":
            browsed = Message(
                body,
                header,
                said.delivery_tag,
                is_redelivered=said.redelivered,
                is_traced=is_traced,
            )
            place.browsed.append(browsed)
        else:
            self.arrived(place, said, Message(body, header, said.delivery_tag, is_traced=is_traced))

    def arrived(self, place: Place, said: Method, message: Message) -> None:
        message.proxy, message.namespace, message.queue = said.proxy, said.namespace, said.queue
        message.is_redelivered = said.redelivered
        kind = said.kind.name.partition(".")[0]
        inbox = place.inboxes.get((kind, said.namespace, said.queue))
        if inbox is not None:  # else its consumer was cancelled
            inbox.append(message)

    def file_delivered(self, place: Place, said: Method) -> None:
        body = self.files.pop(said.identifier, bytearray())
        header, place.file_header = place.file_header, None
        if header is None or said.identifier != place.identifier:
            raise ConnectionFault(amqp.COMMAND_INVALID, "a file that was not staged")
        message = Message(bytes(body), header, said.delivery_tag, identifier=said.identifier)
        self.arrived(place, said, message)

    # What the application says

    def open_place(self) -> Place:
        """A free number for a channel."""
        most = min(self.limits.get("channel_max", 0) or CHANNEL_MAX, CHANNEL_MAX)
        for number in range(1, most + 1):
            found = self.channels.get(number)
            if found is None or not found.is_open:
                self.channels[number] = Place(number)
                return self.channels[number]
        raise ProtocolMisuse(f"all {most} channels are in use")

    def check_place(self, place: Place) -> None:
        self.check()
        if place.failure is not None:
            raise place.failure
        if not place.is_open or place.is_closing:
            raise ConnectionClosed("the channel is closed", 0, "")

    def next_tag(self, place: Place) -> int:
        """A synctag whose reply is awaited from now on."""
        for _ in range(SYNCTAG_MAX):
            place.synctag = place.synctag % SYNCTAG_MAX + 1
            if place.synctag not in place.replies:
                place.replies[place.synctag] = None
                return place.synctag
        raise ProtocolMisuse("65535 methods wait for their replies")

    def write_content(self, number: int, header: ContentHeader, body: bytes) -> None:
        """The header, and the body in frames that the server takes."""
        header.body_size = len(body)
        octets = content_header.encode(header)
        if len(octets) > self.frame_bytes_max:
            text = f"a content header of {len(octets)} octets does not fit a frame of {self.frame_bytes_max}"
            raise MessageTooLarge(text)
        self.output += frames.framed(frames.HEADER, number, octets)
        most = self.frame_bytes_max
        for start in range(0, len(body), most):
            self.output += frames.framed(frames.BODY, number, body[start : start + most])

    def publish(
        self, place: Place, said: Method, header: ContentHeader, body: bytes, flags: int, synctag: int
    ) -> None:
        """A method with content; nothing is written if the header cannot be."""
        self.check_place(place)
        before = len(self.output)
        self.write(place.number, said, flags, synctag)
        try:
            self.write_content(place.number, header, body)
        except Exception:
            del self.output[before:]
            raise


def tested(said: Method) -> Method:
    """What a method of the test class is answered with, as the server of this project answers it."""
    name = said.kind.name
    if name == "test.integer":
        numbers = [said.integer_1, said.integer_2, said.integer_3, said.integer_4]
        return method("test.integer-ok", result=chosen(said.operation, numbers, int) % (1 << 64))
    if name == "test.string":
        texts = [said.string_1.encode(), said.string_2]
        return method("test.string-ok", result=strung(said.operation, texts))
    values = said.table.values()
    numbers = [value for value in values if isinstance(value, int)] or [0]
    texts = [value.encode() if isinstance(value, str) else value for value in values if is_text(value)] or [
        b""
    ]
    return method(
        "test.table-ok",
        integer_result=chosen(said.integer_op, numbers, int) % (1 << 64),
        string_result=strung(said.string_op, texts),
    )


def strung(operation: int, texts: list[bytes]) -> bytes:
    result: bytes = b"".join(texts) if operation == ADD else chosen(operation, texts, len)
    if len(result) > methods.LONGSTR_OCTETS_MAX:
        raise ConnectionFault(amqp.SYNTAX_ERROR, f"a result of {len(result)} octets is too long to tell")
    return result


def is_text(value: object) -> bool:
    return isinstance(value, (str, bytes))


def chosen(operation: int, values: list[Any], key: Any) -> Any:
    if operation == ADD:
        return sum(values)
    if operation in (MIN, MAX):
        return (min if operation == MIN else max)(values, key=key)
    raise ConnectionFault(amqp.SYNTAX_ERROR, f"operation {operation} is not known")
