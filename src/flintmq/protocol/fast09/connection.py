"""A connection of AMQP/Fast 0.9 in the server's role: octets in, events out.

    "AMQP" 1 1 0 9  then   | type 1 | channel 1 | size 2 | body ... |  | type 1 | ...

Frames are those of wire/fast09/frames.py. A content goes on with a header of AMQP (wire/fast09/crossing.py),
and is gathered as one of AMQP is: all of the broker behind here serves it. Other methods are told as they
came; server/fast09 says what they are to the broker. The states are those of every connection
(protocol/states.py).
A publish to the same proxy as the one before on its channel is taken in one go if all of it is here; so is an
ack. Neither has flags: what asks for a synchpoint goes the long way.
A fault of the octets, or a channel that was never opened, ends the connection.
"""

from __future__ import annotations

from typing import Protocol

from flintmq.errors import ConnectionFault, ProtocolMisuse
from flintmq.protocol import phases
from flintmq.protocol.channel import Channel
from flintmq.protocol.connection import Connection
from flintmq.protocol.events import Events
from flintmq.protocol.fast09.outbox import Fast09Output
from flintmq.protocol.states import CONNECTION, HEADER, OTHER_HEADER, ConnectionState
from flintmq.wire import amqp, octets, traits
from flintmq.wire import methods as amqp_methods
from flintmq.wire.content_class import to_basic
from flintmq.wire.fast09 import VERSION, crossing, frames, methods
from flintmq.wire.fast09.methods import Method
from flintmq.wire.fields import encode_shortstr

# Frames whose bodies go another way than the connection: none is agreed on (section 3.12.7).
OUT_OF_BAND = (frames.OOB_METHOD, frames.OOB_HEADER, frames.OOB_BODY)

# The types of frames that nearly all are of, and their heads.
METHOD = frames.METHOD
HEADER_FRAME = frames.HEADER
BODY = frames.BODY
META = frames.META
HEAD_OCTETS = frames.HEAD_OCTETS

# Of a method, before its fields; and an ack, of a Jms or a File content.
METHOD_OCTETS = methods.HEAD_OCTETS
CLASS_JMS = methods.CLASS_JMS
CLASS_FILE = methods.CLASS_FILE
JMS_ACK = methods.KINDS["jms.ack"]
FILE_ACK = methods.KINDS["file.ack"]
ACK_ID = JMS_ACK.method_id
ACK_OCTETS = METHOD_OCTETS + 9
PUBLISH_ID = methods.KINDS["jms.publish"].method_id
# Of a content header: class, weight and body size; and the least of one.
SIZED_OCTETS = 10
CONTENT_OCTETS = 12

# Methods with content, by what gathers the content: those of AMQP that its owner is told of.
_PUBLISH = 0
_STREAM = traits.STREAM_CONTENT
IMMEDIATE = 2  # the bit of basic.publish

# A header of more octets is not remembered: 2,047 channels keep 4 MiB of them at the most, in both forms.
REPEATED_OCTETS_MAX = 1024

NOBODY = (0, 0, 0)


class Call:
    """A method that is being done: who hears of it in a reply or a close has its synctag and its flags."""

    __slots__ = ("fields", "flags", "ids", "kind", "synctag")

    def __init__(self, kind: methods.MethodKind, flags: int, synctag: int, fields: bytes = b"") -> None:
        self.kind = kind
        self.flags = flags
        self.synctag = synctag
        self.fields = fields  # of a method with content, in octets
        self.ids: tuple[int, int, int] = (kind.class_id, kind.method_id, synctag)

    def is_traced(self) -> bool:
        return self.flags & methods.TRACER != 0

    def wants_synch(self) -> bool:
        """SYNCHREQ has no effect on a synchronous method (section 3.14.3)."""
        return self.kind.is_async and self.flags & methods.SYNCHREQ != 0


class Repeated:
    """The last publish of a channel, for those to the same proxy: they differ in header, body and synctag."""

    __slots__ = ("call", "class_id", "flags", "header", "properties", "route")

    def __init__(self, call: Call, channel: Channel, properties: bytes, header: bytes) -> None:
        self.call = call
        self.class_id: int = call.kind.class_id
        self.route = channel.route
        self.flags = channel.flags
        self.properties = properties  # what the header has behind the body size
        self.header = header  # that of AMQP


class Told(Protocol):
    """Who hears what the methods say; contents are told as Events."""

    def connection_method(self, method: Method, call: Call) -> None:
        """A method of the connection class, which the state allows."""

    def channel_method(self, channel: Channel, method: Method, call: Call) -> None:
        """Any other, on a channel that is open, and open or close of a channel."""

    def immediate_begins(self, channel: Channel, call: Call) -> None:
        """A publish with `immediate` has come, and its content is to follow. It may close the channel."""

    def stage_begins(self, channel: Channel, destination: str, call: Call) -> None:
        """The header of a file.stage has come, with this destination."""

    def test_begins(self, channel: Channel, header: bytes, call: Call) -> None:
        """The header of a test.content has come."""

    def content_follows(self, channel: Channel, call: Call) -> None:
        """The whole content of a method is told next."""

    def content_came(self, channel: Channel, call: Call) -> None:
        """It is told."""

    def unreal(self, number: int, kind: methods.MethodKind, call: Call) -> None:
        """A method that is not to be done, and is well formed (section 3.14.5)."""

    def unknown(self, class_id: int, method_id: int, synctag: int) -> None:
        """One of which the peer wants to know whether it is supported, and which is not."""

    def say(self, method: amqp_methods.Method) -> None:
        """Writes a method of the connection class, which is told as that of AMQP."""

    def unknown_frame(self, kind: int) -> None:
        """A frame of a type that is not defined: nothing more is said (section 3.12.4)."""


class Fast09Connection(Connection):
    """The receiving half of one connection."""

    __slots__ = ("calls", "current", "failing", "failing_flags", "repeated", "told")

    def __init__(self, events: Events, told: Told, output: Fast09Output, message_bytes_max: int) -> None:
        super().__init__(events, output, message_bytes_max)
        self.told = told
        self.calls: dict[int, Call] = {}  # by channel: whose content is on its way
        self.current: dict[int, Call] = {}  # by channel: what is being done, or was done last
        self.repeated: dict[int, Repeated] = {}  # by channel
        # Class, method and synctag of what is being received, which a close names; none between frames.
        self.failing = NOBODY
        self.failing_flags = 0  # of the same

    # Frames

    def receive(self, buffer: bytearray, size: int) -> int:
        """Takes the first `size` octets of `buffer`; the number used up, up to the last whole frame."""
        source = octets.readable(buffer)
        output = self.output
        at, filled = 0, -1
        if self.state == phases.CONNECTION_HEADER:
            at = self.receive_opening(octets.copy(source, 0, size if size < 8 else 8))
            if at == 0:
                return 0
        while size - at >= HEAD_OCTETS and self.state != phases.CONNECTION_CLOSED and not self.paused:
            if output.fill != filled or output.streaming:  # else nothing was written since the last look
                filled = output.fill
                if output.is_full():
                    self.paused = True
                    break
            kind, number = source[at], source[at + 1]
            length, start = octets.read_short(source, at + 2), at + HEAD_OCTETS
            if kind == META:
                head = frames.read_head(buffer, at, size)
                if head is None:
                    break
                if not self.takes(head[0], head[2]):
                    return size
                kind, number, length, start = head
            elif (kind > BODY or kind < METHOD or length > self.frame_bytes_max) and not self.takes(
                kind, length
            ):
                return size
            end = start + length
            if end > size:
                break
            channel = self.channel_of(number)
            if kind == METHOD and channel is not None and self.is_idle(channel):
                used = self.receive_at_once(source, start, end, size, channel)
                if used:
                    at = used
                    continue
            self.receive_frame(kind, number, channel, octets.copy(source, start, end))
            self.failing = NOBODY
            self.failing_flags = 0
            at = end
        return at

    def takes(self, kind: int, length: int) -> bool:
        """Whether a frame of this type and size is taken; of a type that is not defined nothing more is."""
        if not frames.METHOD <= kind < frames.META:
            self.told.unknown_frame(kind)
            return False
        if kind in OUT_OF_BAND:
            text = "frames are not taken out of band: no other way than the connection is agreed on"
            raise ConnectionFault(amqp.NOT_IMPLEMENTED, text)
        if length > self.frame_bytes_max:
            raise self.oversized(length)
        return True

    def is_idle(self, channel: Channel) -> bool:
        """Whether a method of this channel is done as it comes."""
        return (
            self.state == phases.CONNECTION_OPEN
            and channel.state == phases.CHANNEL_OPEN
            and channel.expects == phases.EXPECTS_METHOD
        )

    # What comes often

    def receive_at_once(
        self, source: octets.Readable, start: int, end: int, size: int, channel: Channel
    ) -> int:
        """An ack, or another publish to the same proxy: the position behind it, 0 if it goes the long way.

        | class 1 | method 1 | flags 1 | synctag 2 | fields ... |
        """
        if end - start < METHOD_OCTETS or source[start + 2]:
            return 0
        if source[start + 1] == PUBLISH_ID:
            repeated = self.repeated.get(channel.number)
            if (
                repeated is None
                or self.by_ticket
                or source[start] != repeated.class_id
                or not octets.equal(source, start + METHOD_OCTETS, end, repeated.call.fields)
            ):
                return 0
            return self.publish_again(source, start, end, size, channel, repeated)
        if source[start + 1] != ACK_ID or end - start != ACK_OCTETS:
            return 0
        if source[start] == CLASS_JMS:
            kind = JMS_ACK
        elif source[start] == CLASS_FILE:
            kind = FILE_ACK
        else:
            return 0
        synctag = octets.read_short(source, start + 3)
        call = self.current.get(channel.number)
        if call is None or call.kind is not kind or call.synctag != synctag or call.flags:
            call = self.current[channel.number] = Call(kind, 0, synctag)
        self.failing = call.ids
        self.events.ack(
            channel, octets.read_longlong(source, start + METHOD_OCTETS), source[end - 1] & 1 != 0
        )
        self.failing = NOBODY
        return end

    def publish_again(
        self, source: octets.Readable, start: int, at: int, size: int, channel: Channel, repeated: Repeated
    ) -> int:
        """The same for a publish at `start`. Its content begins at `at`: a header frame and a body frame."""
        header = at + HEAD_OCTETS
        if size - header < CONTENT_OCTETS or source[at] != HEADER_FRAME or source[at + 1] != channel.number:
            return 0
        body = header + octets.read_short(source, at + 2)
        if (
            size - body < HEAD_OCTETS
            or body - header < CONTENT_OCTETS
            or source[header] != repeated.class_id
            or source[header + 1]
        ):
            return 0
        length = octets.read_short(source, body + 2)
        stop = body + HEAD_OCTETS + length
        if (
            stop > size
            or source[body] != BODY
            or source[body + 1] != channel.number
            or length == 0
            or octets.read_longlong(source, header + 2) != length
            or length > self.frame_bytes_max
            or length > self.message_bytes_max
        ):
            return 0
        if not octets.equal(source, header + SIZED_OCTETS, body, repeated.properties) and not self.renew(
            repeated, octets.copy(source, header, body)
        ):
            return 0
        call = repeated.call
        if octets.read_short(source, start + 3) != call.synctag:
            call = Call(call.kind, 0, octets.read_short(source, start + 3), call.fields)
            repeated.call = call
        self.current[channel.number] = call
        self.failing = call.ids
        content = octets.with_body(repeated.header, length, source, body + HEAD_OCTETS, stop)
        self.events.publish(channel, repeated.route, repeated.flags, content, len(repeated.header))
        self.failing = NOBODY
        return stop

    def renew(self, repeated: Repeated, payload: bytes) -> bool:
        """The next publish has another header. False if it goes the long way, which tells what is wrong."""
        if len(payload) > REPEATED_OCTETS_MAX:
            return False
        try:
            crossed = crossing.crossed(payload, False)
        except (ConnectionFault, ProtocolMisuse):
            return False
        if len(crossed.header) > self.frame_bytes_max - 8:
            return False
        repeated.properties = payload[SIZED_OCTETS:]
        repeated.header = to_basic(crossed.header) if repeated.flags & _STREAM else crossed.header
        repeated.route = repeated.route[: 1 + repeated.route[0]] + encode_shortstr(crossed.destination)
        return True

    # Frames that go the long way

    def due(self, start: bytearray) -> int:
        """How long the frame is that has begun, as far as one can tell."""
        head = frames.read_head(start, 0, len(start))
        if head is None:
            return frames.EXTENDED_OCTETS
        return min(head[3] + head[2], frames.EXTENDED_OCTETS + self.frame_bytes_max)

    def oversized(self, length: int) -> ConnectionFault:
        text = f"a frame body of {length} octets is larger than the agreed {self.frame_bytes_max}"
        return ConnectionFault(amqp.FRAME_ERROR, text)

    def receive_opening(self, start: bytes) -> int:
        """Whoever speaks anything else hears nothing; a wish for another version costs no pause (3.10.2)."""
        if start == frames.OPENING:
            self.version = VERSION
            self.follow(HEADER)
            self.events.greeted(VERSION)
            return len(start)
        if frames.OPENING.startswith(start):
            return 0
        if start.startswith(frames.PROTOCOL):
            if len(start) < len(frames.OPENING):
                return 0
            self.version = VERSION
        self.follow(OTHER_HEADER)
        return len(start)

    def receive_frame(self, kind: int, number: int, channel: Channel | None, payload: bytes) -> None:
        call = self.calls.get(number)
        if call is not None:
            self.failing, self.failing_flags = call.ids, call.flags
        if kind == frames.TRACE:
            return  # nobody traces here (section 3.12.8)
        if kind == frames.HEARTBEAT:
            if number or payload:
                raise ConnectionFault(amqp.FRAME_ERROR, "a heartbeat is empty and on channel 0")
            return
        if number and self.state == phases.CONNECTION_CLOSING:
            return  # dropped unseen: the channels have given back all they had
        if kind == frames.METHOD:
            self.receive_fast_method(number, channel, payload)
        elif not number:
            raise ConnectionFault(amqp.FRAME_ERROR, "a content frame on channel 0")
        elif kind == frames.HEADER:
            self.receive_fast_header(number, channel, payload)
        else:
            if channel is not None and not payload and channel.expects != phases.EXPECTS_HEADER:
                return  # an empty body frame means nothing, behind the last octet too (section 3.13.5)
            self.receive_body(number, channel, payload)

    def channel_of(self, number: int) -> Channel | None:
        channel: Channel | None
        channel = self.channels[number] if number < len(self.channels) else self.far_channels.get(number)
        return channel

    # Methods

    def receive_fast_method(self, number: int, channel: Channel | None, payload: bytes) -> None:
        class_id, method_id, flags, synctag, kind = methods.read_ids(payload)
        self.failing, self.failing_flags = (class_id, method_id, synctag), flags
        is_closing = channel is not None and channel.state >= phases.CHANNEL_CLOSING
        if is_closing and (kind is None or kind.name not in ("channel.close", "channel.close-ok")):
            return  # discarded unseen, whatever it holds
        if flags & methods.REVISION:
            text = f"method {class_id}/{method_id}: revision {flags & methods.REVISION} is not known"
            raise ConnectionFault(amqp.SYNTAX_ERROR, text, class_id, method_id)
        is_open = channel is not None and channel.state == phases.CHANNEL_OPEN
        if channel is not None and is_open and channel.expects != phases.EXPECTS_METHOD:
            raise self.unexpected(channel, "a method")
        if kind is None or not kind.is_for_server:
            if flags & methods.UNREAL:
                self.told.unknown(class_id, method_id, synctag)
                return
            text = f"method {class_id}/{method_id} is not one that a server has"
            raise ConnectionFault(amqp.COMMAND_INVALID, text, class_id, method_id)
        method = decoded(kind, payload)
        call = Call(kind, flags, synctag, payload[METHOD_OCTETS:] if kind.has_content else b"")
        if flags & methods.UNREAL:
            self.told.unreal(number, kind, call)
        elif kind.class_id == 1:
            self.receive_connection(number, method, call)
        else:
            self.receive_on_channel(number, channel, method, call)

    def receive_connection(self, number: int, method: Method, call: Call) -> None:
        name = method.kind.name
        if number:
            raise self.misplaced(call, "belongs on channel 0")
        if name != "connection.unknown":
            if name not in CONNECTION[self.state]:
                if self.state == phases.CONNECTION_CLOSING:
                    return
                state = ConnectionState(self.state).name.lower()
                raise self.misplaced(call, f"is not expected in state {state}")
            self.follow(name)
        self.told.connection_method(method, call)

    def receive_on_channel(self, number: int, channel: Channel | None, method: Method, call: Call) -> None:
        name = method.kind.name
        if not number:
            raise self.misplaced(call, "does not belong on channel 0")
        if self.state != phases.CONNECTION_OPEN:
            if self.state == phases.CONNECTION_CLOSING:
                return
            raise self.misplaced(call, "the connection is not open yet", amqp.CHANNEL_ERROR)
        if channel is None:
            if name == "channel.close-ok":
                return  # crossed our own forgetting of the channel
            if name != "channel.open":
                raise self.misplaced(call, f"channel {number} is not open", amqp.CHANNEL_ERROR)
            channel = self.open_channel(number, amqp_methods.ChannelOpen())
            channel.follow("channel.open")
        elif name == "channel.open":
            raise self.misplaced(call, f"channel {number} is open already", amqp.CHANNEL_ERROR)
        elif name == "channel.close":
            channel.follow(name)
        elif name == "channel.close-ok":
            if channel.state == phases.CHANNEL_OPEN:
                raise self.misplaced(call, "answers nothing")
            channel.follow(name)
        if method.kind.has_content:
            self.await_content(channel, method, call)
        else:
            self.told.channel_method(channel, method, call)

    def await_content(self, channel: Channel, method: Method, call: Call) -> None:
        """A content is to follow: its header has the destination, which is the other half of the route."""
        name = method.kind.name
        if name == "file.stage":
            channel.method = amqp_methods.FileStage()
        elif name == "test.content":
            channel.method = amqp_methods.TestContent()
        elif name in ("jms.publish", "stream.publish"):
            if method.immediate:
                self.told.immediate_begins(channel, call)
                if channel.state != phases.CHANNEL_OPEN:
                    return
            is_stream = name == "stream.publish"
            channel.route = encode_shortstr(method.proxy)
            channel.flags = (_STREAM if is_stream else _PUBLISH) | (IMMEDIATE if method.immediate else 0)
            channel.method = None
            if self.by_ticket:
                publish = amqp_methods.StreamPublish if is_stream else amqp_methods.BasicPublish
                channel.method = publish(
                    ticket=method.ticket, exchange=method.proxy, immediate=method.immediate
                )
        else:
            raise self.misplaced(call, "answers nothing")
        channel.expects = phases.EXPECTS_HEADER
        self.calls[channel.number] = call

    def misplaced(self, call: Call, why: str, code: int = amqp.COMMAND_INVALID) -> ConnectionFault:
        kind = call.kind
        return ConnectionFault(code, f"{kind.name} {why}", kind.class_id, kind.method_id)

    # Contents

    def receive_fast_header(self, number: int, channel: Channel | None, payload: bytes) -> None:
        if channel is None or channel.state != phases.CHANNEL_OPEN:
            self.discard(number, channel, "content header")
            return
        if channel.expects != phases.EXPECTS_HEADER:
            raise self.unexpected(channel, "a content header")
        call = self.current[number] = self.calls[number]
        kind = call.kind
        try:
            header = crossing.crossed(payload, call.is_traced())
        except ProtocolMisuse as misuse:
            raise ConnectionFault(amqp.SYNTAX_ERROR, str(misuse), kind.class_id, kind.method_id) from misuse
        if header.class_id != kind.class_id:
            text = f"content header of class {header.class_id} after {kind.name}"
            raise ConnectionFault(amqp.UNEXPECTED_FRAME, text, kind.class_id, kind.method_id)
        if header.weight:
            text = f"content with {header.weight} child contents: structured content is not served"
            raise ConnectionFault(amqp.NOT_IMPLEMENTED, text, kind.class_id, kind.method_id)
        destination = header.destination
        if kind.class_id == methods.CLASS_TEST:
            self.told.test_begins(channel, payload, call)
            made = amqp.CLASS_TEST.to_bytes(2, "big") + bytes(2) + payload[2:10] + bytes(2)
            self.receive_header(number, channel, made)
            return
        made = header.sized(payload)
        if kind.class_id == methods.CLASS_FILE:
            self.told.stage_begins(channel, destination, call)
        elif channel.method is None:
            channel.route += encode_shortstr(destination)
            self.may_repeat(channel, call, payload, made)
        else:
            channel.method.routing_key = destination  # type: ignore[attr-defined]
        self.receive_header(number, channel, made)

    def may_repeat(self, channel: Channel, call: Call, payload: bytes, header: bytes) -> None:
        """Remembers a publish with this header, of which the one of AMQP is made."""
        if call.flags or channel.flags & IMMEDIATE or len(payload) > REPEATED_OCTETS_MAX:
            self.repeated.pop(channel.number, None)
            return
        if channel.flags & _STREAM:
            header = to_basic(header)
        self.repeated[channel.number] = Repeated(call, channel, payload[SIZED_OCTETS:], header)

    def complete(self, channel: Channel) -> None:
        call = self.calls.pop(channel.number, None)
        if call is not None:
            self.told.content_follows(channel, call)
        Connection.complete(self, channel)  # compiled methods know no super()
        if call is not None:
            self.told.content_came(channel, call)

    def forget_channel(self, channel: Channel) -> None:
        for kept in (self.calls, self.repeated):
            kept.pop(channel.number, None)
        Connection.forget_channel(self, channel)

    # Sending

    def send(self, method: amqp_methods.Method) -> None:
        """What the session says by methods of the connection class; it writes them itself."""
        self.follow(f"> {method.NAME}")
        self.told.say(method)


def decoded(kind: methods.MethodKind, payload: bytes) -> Method:
    try:
        return methods.decode(kind, payload)
    except ConnectionFault as fault:
        fault.class_id, fault.method_id = kind.class_id, kind.method_id
        raise
