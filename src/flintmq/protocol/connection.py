"""A connection as a sans-IO state machine: octets in, events out.

Splits the input into frames, checks each against the limits and the state tables, assembles contents
and tells the owner. It is the only place that decides whether a frame or method is legal now.

    | type 1 | channel 2 | size 4 | payload ... | end 0xCE |

A frame is at most frame-max octets. Clients that count its payload alone send 8 more in method and body
frames: these are taken, as in RabbitMQ. A content header is passed on as it is, so it has to fit.
A publish usually arrives as three frames in one piece (method, header, body): `publish` takes them
in one go, and stream.publish too, whose content goes on with a basic header (wire/content_class.py).
Everything that is none of these or basic.ack goes through the generated codec.
Whatever is raised here is a ConnectionFault; the owner answers it with connection.close.
"""

from __future__ import annotations

from flintmq.errors import ChannelFault, ConnectionFault, ProtocolMisuse
from flintmq.protocol import phases
from flintmq.protocol.channel import Channel
from flintmq.protocol.events import Events
from flintmq.protocol.greeting import INCOMPLETE, NUMERIC, OPENINGS, PREFERRED, UNKNOWN, recognise
from flintmq.protocol.outbox import Output
from flintmq.protocol.requests import HEAD_OCTETS, REQUESTS, Requests
from flintmq.protocol.states import CHANNEL, CONNECTION, HEADER, OTHER_HEADER, ConnectionState
from flintmq.wire import amqp, methods, octets, traits
from flintmq.wire.content_class import to_basic
from flintmq.wire.fields import is_text
from flintmq.wire.methods import Method, decode_method, encode_method

# Until login a peer gets small frames: start-ok with its properties and a token fits in 8 KiB.
FRAME_BYTES_MAX_BEFORE_LOGIN = 8192
# A body this long does not gather in memory if its owner has a better place for it. A file of its own
# costs about a millisecond, which is little beside the time that so many octets take.
SPOOLED_BYTES_MIN = 4_194_304
# The same while memory is short: a file costs about as much time as this many octets.
SPOOLED_BYTES_LEAN = 65_536
# Clients open and close all their connections and channels with the same octets, which are decoded once. For
# each version 256 methods are kept, of some 300 octets each. Nobody changes a method of these kinds.
SAID_OFTEN = frozenset(
    (
        methods.ConnectionTuneOk,
        methods.ConnectionOpen,
        methods.ConnectionClose,
        methods.ChannelOpen,
        methods.ChannelClose,
        methods.BasicQos,
        methods.ConfirmSelect,
    )
)
SAID_OCTETS_MAX = 64
SAID_MAX = 256
SAID: dict[int, dict[bytes, Method]] = {
    version: {} for version in (amqp.VERSION_0_8, amqp.VERSION_0_9, amqp.VERSION_0_9_1)
}
# What all clients hear in the same words is one object, which is encoded once for each version. Of each of
# these kinds the newest is kept with its octets. Nobody changes a method of these kinds either.
HEARD_OFTEN = frozenset(
    (
        methods.ConnectionTune,
        methods.ConnectionOpenOk,
        methods.ConnectionCloseOk,
        methods.ChannelOpenOk,
        methods.ChannelCloseOk,
    )
)
HEARD: dict[int, dict[type[Method], tuple[Method, bytes]]] = {version: {} for version in SAID}
# The table of states by their numbers, which are those of a list.
STEPS: list[dict[str, int]] = [CONNECTION[state] for state in ConnectionState]


class Connection:
    """The receiving half of one connection; what it sends goes to `output`."""

    __slots__ = (
        "by_ticket",
        "channel_max",
        "channels",
        "events",
        "far_channels",
        "frame_bytes_max",
        "has_content",
        "message_bytes_max",
        "numeric",
        "open_channels",
        "output",
        "paused",
        "state",
        "version",
    )

    def __init__(self, events: Events, output: Output, message_bytes_max: int) -> None:
        self.events = events
        self.output = output
        self.message_bytes_max = message_bytes_max
        self.state: int = phases.CONNECTION_HEADER
        self.version = 0
        self.numeric = False  # field types are numbers, see greeting.py
        self.by_ticket = False  # a publish is shown to the owner with its ticket, by Events.content
        self.frame_bytes_max = FRAME_BYTES_MAX_BEFORE_LOGIN
        self.channel_max = 0
        self.channels: list[Channel | None] = [None]
        self.far_channels: dict[int, Channel] = {}  # numbers above channel_max, not worth a long list
        self.open_channels = 0
        self.has_content = False  # whether it ever began one that did not come in one piece
        self.paused = False  # set by the owner, who then keeps what is not used up and brings it again

    def follow(self, event: str) -> None:
        """Goes to the state that an event of our own leads to, as the table says."""
        steps = STEPS[self.state]
        following = steps.get(event)
        if following is None:
            raise ProtocolMisuse(f"{event!r} in state {ConnectionState(self.state).name.lower()}")
        self.state = following

    def send(self, method: Method) -> None:
        """A method of the connection class."""
        self.follow(f"> {method.NAME}")
        self.output.write_method(0, self.encoded(method))

    def encoded(self, method: Method) -> bytes:
        """The payload of a method in the version that the client speaks."""
        heard = HEARD[self.version]
        kind = type(method)
        kept = heard.get(kind)
        if kept is not None and kept[0] is method:
            return kept[1]
        payload = encode_method(self.version, method)
        if kind in HEARD_OFTEN:
            heard[kind] = (method, payload)
        return payload

    def receive(self, buffer: bytearray, size: int) -> int:
        """Takes the first `size` octets of `buffer`; the number used up, up to the last whole frame.

        Fewer when `paused` comes on: by the owner, or because the peer must first read what it asked for.
        """
        frames = octets.readable(buffer)
        output = self.output
        filled = -1
        at = 0
        if self.state == phases.CONNECTION_HEADER:
            at = self.receive_greeting(octets.copy(frames, 0, size if size < 8 else 8))
            if at == 0:
                return 0
        while size - at >= 8 and self.state != phases.CONNECTION_CLOSED and not self.paused:
            if output.fill != filled or output.streaming:  # else nothing was written since the last look
                filled = output.fill
                if output.is_full():
                    self.paused = True
                    break
            length = octets.read_long(frames, at + 3)
            if length > self.frame_bytes_max:
                raise self.oversized(length)
            end = at + 7 + length
            if end >= size:
                break
            if frames[end] != amqp.FRAME_END:
                raise ConnectionFault(amqp.FRAME_ERROR, f"frame of {length} octets does not end with 0xCE")
            number = octets.read_short(frames, at + 1)
            if number and self.state == phases.CONNECTION_CLOSING:
                at = end + 1  # dropped unseen: the channels have given back all they had
                continue
            channel = self.channels[number] if number < len(self.channels) else self.far_channels.get(number)
            kind = frames[at]
            if kind == amqp.FRAME_METHOD:
                if length >= 4:
                    code = octets.read_long(frames, at + 7)
                    if channel is not None and channel.state == phases.CHANNEL_OPEN:
                        if channel.expects != phases.EXPECTS_METHOD:
                            raise self.unexpected(channel, "a method")
                        if code == amqp.BASIC_PUBLISH and not self.by_ticket:
                            at = self.publish(frames, at, end, size, channel, 0)
                            continue
                        if code == amqp.BASIC_ACK and length == 13:
                            self.events.ack(
                                channel, octets.read_longlong(frames, at + 11), frames[at + 19] & 1 != 0
                            )
                            at = end + 1
                            continue
                        if (
                            code == amqp.STREAM_PUBLISH
                            and self.version != amqp.VERSION_0_9_1
                            and not self.by_ticket
                        ):
                            at = self.publish(frames, at, end, size, channel, traits.STREAM_CONTENT)
                            continue
                self.receive_method(number, channel, octets.copy(frames, at + 7, end))
            elif kind == amqp.FRAME_BODY:
                self.receive_body(number, channel, octets.copy(frames, at + 7, end))
            elif kind == amqp.FRAME_HEADER:
                self.receive_header(number, channel, octets.copy(frames, at + 7, end))
            elif self.version == amqp.VERSION_0_9 and (
                kind == amqp.FRAME_REQUEST or kind == amqp.FRAME_RESPONSE
            ):
                self.receive_exchange(kind, number, channel, octets.copy(frames, at + 7, end))
            else:
                self.receive_other(kind, number, length)
            at = end + 1
        return at

    def due(self, start: bytearray) -> int:
        """How long the frame is that has begun, of which seven octets are there at least."""
        return 8 + octets.read_long(octets.readable(start), 3)

    def publish(
        self, frames: octets.Readable, at: int, end: int, size: int, channel: Channel, class_trait: int
    ) -> int:
        """basic.publish at `at`, and its content if all of it is there; the position after what was used.

        | ticket 2 | exchange 1+n | routing key 1+n | flags 1 |

        Or stream.publish, which has the same octets; its trait goes on among the flags.
        """
        start = at + 13
        if end - start < 3:
            raise truncated(publish_name(class_trait))
        stop = start + 1 + frames[start]
        if stop + 1 >= end:
            raise truncated(publish_name(class_trait))
        stop += 1 + frames[stop]
        if stop >= end:
            raise truncated(publish_name(class_trait))
        if not octets.equal(frames, start, stop, channel.route):
            channel.route = octets.copy(frames, start, stop)
        channel.flags = frames[stop] | class_trait
        channel.method = None
        channel.expects = phases.EXPECTS_HEADER
        # The header frame, if it is all here and the next thing on this channel.
        head = end + 1
        if size - head < 22 or frames[head] != amqp.FRAME_HEADER:
            return head
        header_size = octets.read_long(frames, head + 3)
        # The three octets of type and channel were checked for the method frame: compare with those.
        if (
            header_size > self.frame_bytes_max - 8
            or header_size < 14
            or head + 7 + header_size >= size
            or octets.read_short(frames, head + 1) != channel.number
        ):
            return head
        head_end = head + 7 + header_size
        body_size = octets.read_longlong(frames, head + 11)
        if (
            frames[head_end] != amqp.FRAME_END
            # With a weight of 0.
            or octets.read_long(frames, head + 7)
            != (amqp.CLASS_STREAM if class_trait else amqp.CLASS_BASIC) << 16
            or body_size > self.frame_bytes_max  # its frame would be too large
            or body_size > self.message_bytes_max
        ):
            return head
        if body_size == 0:
            channel.expects = phases.EXPECTS_METHOD
            content = octets.copy(frames, head + 7, head_end)
            if class_trait:
                content = to_basic(content)
            self.events.publish(channel, channel.route, channel.flags, content, header_size)
            return head_end + 1
        body = head_end + 1
        body_end = body + 7 + body_size
        if (
            body_end >= size
            or frames[body] != amqp.FRAME_BODY
            or octets.read_short(frames, body + 1) != channel.number
            or octets.read_long(frames, body + 3) != body_size
            or frames[body_end] != amqp.FRAME_END
        ):
            return head
        channel.expects = phases.EXPECTS_METHOD
        content = octets.join(frames, head + 7, head_end, body + 7, body_end)
        if class_trait:
            content = to_basic(content)
        self.events.publish(channel, channel.route, channel.flags, content, header_size)
        return body_end + 1

    def receive_greeting(self, start: bytes) -> int:
        version, used = OPENINGS.get(start, UNKNOWN), len(start)
        if version == UNKNOWN:
            version, used = recognise(start)
        if version == INCOMPLETE:
            return 0
        if version == UNKNOWN:
            self.output.write(PREFERRED)
            self.follow(OTHER_HEADER)
            return len(start)
        self.version = version
        self.numeric = start == NUMERIC
        self.follow(HEADER)
        self.events.greeted(version)
        return used

    def receive_method(self, number: int, channel: Channel | None, payload: bytes) -> None:
        if len(payload) < 4:
            raise truncated("a method frame")
        if channel is not None and channel.state >= phases.CHANNEL_CLOSING and payload[:2] != b"\x00\x14":
            return  # discarded unseen, whatever it holds; class 20 is channel
        method = decoded(self.version, payload)
        if not payload.isascii():
            check_texts(method)
        if number == 0:
            self.receive_connection_method(method)
            return
        if self.state != phases.CONNECTION_OPEN:
            raise fault_of(method, amqp.CHANNEL_ERROR, "the connection is not open yet")
        state = phases.CHANNEL_CLOSED if channel is None else channel.state
        following = CHANNEL[state].get(method.NAME)
        if following is None:
            self.refuse(number, state, method)
            return
        if channel is None:
            channel = self.open_channel(number, method)
        channel.state = following
        if method.CONTENT:
            channel.method = method
            channel.expects = phases.EXPECTS_HEADER
            return
        self.events.method(channel, method)

    def receive_exchange(self, kind: int, number: int, channel: Channel | None, payload: bytes) -> None:
        """A request or a response of 0-9, see requests.py."""
        what = "a request" if kind == amqp.FRAME_REQUEST else "a response"
        if len(payload) < HEAD_OCTETS + 4:
            raise truncated(what)
        if channel is None:
            raise ConnectionFault(amqp.CHANNEL_ERROR, f"{what} on channel {number}, which is not open")
        if channel.state != phases.CHANNEL_OPEN:
            return
        if channel.expects != phases.EXPECTS_METHOD:
            raise self.unexpected(channel, what)
        method = decode_method(self.version, payload[HEAD_OCTETS:])
        if not payload.isascii():
            check_texts(method)
        if channel.requests is None:
            channel.requests = Requests()
        if kind == amqp.FRAME_RESPONSE:
            self.events.message_response(channel, method, channel.requests.take_response(payload, method))
            return
        if method.NAME not in REQUESTS:
            raise fault_of(method, amqp.COMMAND_INVALID, "it is not for a request")
        self.events.message_request(channel, channel.requests.take_request(payload), method)

    def receive_connection_method(self, method: Method) -> None:
        steps = STEPS[self.state]
        following = steps.get(method.NAME)
        if following is not None:
            self.state = following
            self.events.method(None, method)
        elif self.state != phases.CONNECTION_CLOSING:
            state = ConnectionState(self.state).name.lower()
            raise fault_of(method, amqp.COMMAND_INVALID, f"not expected on channel 0 in state {state}")

    def refuse(self, number: int, state: int, method: Method) -> None:
        if state >= phases.CHANNEL_CLOSING:
            return
        if state == phases.CHANNEL_CLOSED:
            if method.NAME == "channel.close-ok":
                return  # crossed our own forgetting of the channel
            raise fault_of(method, amqp.CHANNEL_ERROR, f"channel {number} is not open")
        if method.NAME == "channel.open":
            raise fault_of(method, amqp.CHANNEL_ERROR, f"channel {number} is open already")
        raise fault_of(method, amqp.COMMAND_INVALID, f"not expected on channel {number}")

    def open_channel(self, number: int, method: Method) -> Channel:
        """As in RabbitMQ, channel-max limits how many there are, not which numbers they have."""
        if self.open_channels >= self.channel_max:
            raise fault_of(
                method,
                amqp.NOT_ALLOWED,
                f"number of channels opened ({self.open_channels}) has reached "
                f"the negotiated channel_max ({self.channel_max})",
            )
        channel = Channel(number)
        if number > self.channel_max:
            self.far_channels[number] = channel
        else:
            while len(self.channels) <= number:
                self.channels.append(None)
            self.channels[number] = channel
        self.open_channels += 1
        return channel

    def all_channels(self) -> list[Channel]:
        """The channels that are open or closing."""
        return [channel for channel in (*self.channels, *self.far_channels.values()) if channel is not None]

    def forget_channel(self, channel: Channel) -> None:
        """The channel is closed: its number is free again."""
        if self.far_channels.pop(channel.number, None) is None:
            self.channels[channel.number] = None
        self.open_channels -= 1

    def receive_header(self, number: int, channel: Channel | None, payload: bytes) -> None:
        """| class 2 | weight 2 | body size 8 | flags 2 | properties |"""
        if channel is None or channel.state != phases.CHANNEL_OPEN:
            self.discard(number, channel, "content header")
            return
        if channel.expects != phases.EXPECTS_HEADER:
            raise self.unexpected(channel, "a content header")
        if len(payload) < 14:
            raise truncated("a content header")
        if len(payload) > self.frame_bytes_max - 8:
            raise self.oversized(len(payload))  # it could not be passed on: a header goes in one frame
        is_stream = channel.method is None and channel.flags & traits.STREAM_CONTENT
        expected = amqp.CLASS_STREAM if is_stream else amqp.CLASS_BASIC
        if channel.method is not None:
            expected = channel.method.CLASS_ID
        class_id = int.from_bytes(payload[:2], "big")
        if class_id != expected:
            raise ConnectionFault(
                amqp.UNEXPECTED_FRAME,
                f"content header of class {class_id} after a method of class {expected}",
            )
        if payload[2] or payload[3]:
            weight = int.from_bytes(payload[2:4], "big")
            text = f"content header with a weight of {weight}, where 0 was due"
            raise ConnectionFault(amqp.UNEXPECTED_FRAME, text, expected, 40)
        size = int.from_bytes(payload[4:12], "big")
        if size > self.message_bytes_max and not is_staged(channel.method):
            channel.abandon_content()
            text = f"message size {size} is above the maximum of {self.message_bytes_max}"
            self.events.fault(channel, ChannelFault(amqp.PRECONDITION_FAILED, text, expected, 40))
            return
        self.has_content = True
        if is_stream:
            payload = to_basic(payload)
        channel.header = payload
        channel.remaining = size
        channel.expects = phases.EXPECTS_BODY
        if size == 0:
            self.complete(channel)
        elif size >= SPOOLED_BYTES_MIN or (size >= SPOOLED_BYTES_LEAN and self.events.is_short()):
            # Either may close the channel, and what follows is then discarded.
            if channel.method is not None:
                self.events.content_begins(channel, channel.method, payload)
            if channel.method is None and channel.state == phases.CHANNEL_OPEN:
                channel.sink = self.events.body_begins(channel, channel.route, channel.flags, channel.header)

    def receive_body(self, number: int, channel: Channel | None, payload: bytes) -> None:
        if channel is None or channel.state != phases.CHANNEL_OPEN:
            self.discard(number, channel, "content body")
            return
        if channel.expects != phases.EXPECTS_BODY:
            raise self.unexpected(channel, "a content body")
        channel.remaining -= len(payload)
        if channel.remaining < 0:
            raise ConnectionFault(
                amqp.FRAME_ERROR,
                f"content body on channel {number} is larger than its header announced",
            )
        if channel.sink is None:
            channel.add_body(payload)
        else:
            try:
                channel.sink.append(payload)
            except ChannelFault as fault:
                self.events.fault(channel, fault)
                return
        if channel.remaining == 0:
            self.complete(channel)

    def complete(self, channel: Channel) -> None:
        header_size = len(channel.header)
        method = channel.method
        if channel.sink is not None:
            sink, channel.sink = channel.sink, None
            header = channel.header
            channel.abandon_content()
            if method is not None:
                self.events.content(channel, method, header, header_size)  # its body is where the sink is
                return
            self.events.publish_spooled(channel, channel.route, channel.flags, header, sink)
            return
        content = channel.take_content()
        if method is None:
            self.events.publish(channel, channel.route, channel.flags, content, header_size)
        else:
            self.events.content(channel, method, content, header_size)

    def receive_other(self, kind: int, number: int, length: int) -> None:
        if kind == amqp.FRAME_HEARTBEAT:
            if number != 0 or length != 0:
                raise ConnectionFault(amqp.FRAME_ERROR, "a heartbeat is empty and on channel 0")
            return
        if kind == amqp.FRAME_TRACE and self.version != amqp.VERSION_0_9_1:
            return  # 001, grammar: whoever does not trace discards it
        raise ConnectionFault(amqp.FRAME_ERROR, f"unknown frame type {kind}")

    def discard(self, number: int, channel: Channel | None, what: str) -> None:
        """Content frames of a channel that is closing are dropped; on one that never was they are a fault."""
        if channel is None and self.state != phases.CONNECTION_CLOSING:
            raise ConnectionFault(amqp.CHANNEL_ERROR, f"{what} on channel {number}, which is not open")

    def oversized(self, length: int) -> ConnectionFault:
        return ConnectionFault(
            amqp.FRAME_ERROR,
            f"frame of {length + 8} octets is larger than the agreed {self.frame_bytes_max}",
        )

    def unexpected(self, channel: Channel, what: str) -> ConnectionFault:
        wanted = ("a method", "a content header", "a content body")[channel.expects]
        return ConnectionFault(
            amqp.UNEXPECTED_FRAME,
            f"got {what} on channel {channel.number} where {wanted} was due",
        )


def is_staged(method: Method | None) -> bool:
    """Whether the body goes to a store with limits of its own, and never lies in memory."""
    return method is not None and method.NAME == "file.stage"


def publish_name(class_trait: int) -> str:
    return "stream.publish" if class_trait else "basic.publish"


def truncated(what: str) -> ConnectionFault:
    return ConnectionFault(amqp.SYNTAX_ERROR, f"{what} is cut short")


def decoded(version: int, payload: bytes) -> Method:
    """The method of a frame. One of a kind that is said in the same words again and again is shared."""
    said = SAID[version]
    method = said.get(payload)
    if method is None:
        method = decode_method(version, payload)
        if type(method) in SAID_OFTEN and len(payload) <= SAID_OCTETS_MAX:
            if len(said) >= SAID_MAX:
                said.clear()
            said[payload] = method
    return method


def check_texts(method: Method) -> None:
    """Names, keys, tags and what else is a short string are UTF-8, as in RabbitMQ."""
    for field in method.FIELDS:
        value = getattr(method, field)
        if type(value) is str and not is_text(value):
            raise fault_of(method, amqp.FRAME_ERROR, f"malformed UTF-8 in {field}")


def fault_of(method: Method, code: int, why: str) -> ConnectionFault:
    return ConnectionFault(code, f"{method.NAME}: {why}", method.CLASS_ID, method.METHOD_ID)
