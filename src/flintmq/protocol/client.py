"""A connection in the client's role as a sans-IO state machine: octets in, events out.

The counterpart of connection.py. Splits the input into frames, checks each against the limits and the
tables of client_states.py, pairs answers with calls, assembles contents and tells the owner.

    | type 1 | channel 2 | size 4 | payload ... | end 0xCE |

A delivery usually arrives as three frames in one piece (method, header, body): `deliver` takes them in
one go. Whatever is raised here is a ConnectionFault: the server broke a rule.
"""

from __future__ import annotations

from flintmq.errors import ConnectionFault, ProtocolMisuse
from flintmq.protocol import phases
from flintmq.protocol.client_events import ClientEvents
from flintmq.protocol.client_states import CHANNEL, CONNECTION, SERVER_REQUESTS, ClientState
from flintmq.protocol.outbox import Output
from flintmq.protocol.requests import FRAMED_OCTETS, HEAD_OCTETS, REQUESTS, Requests
from flintmq.protocol.states import END, ChannelState
from flintmq.wire import amqp, octets
from flintmq.wire.content_class import to_basic
from flintmq.wire.methods import BasicNack, Method, decode_method, encode_method

OPENINGS = {
    amqp.VERSION_0_9_1: b"AMQP\x00\x00\x09\x01",
    amqp.VERSION_0_9: b"AMQP\x01\x01\x00\x09",
    amqp.VERSION_0_8: b"AMQP\x01\x01\x08\x00",
}
# Until tuned: connection.start with the server's properties fits, and no more has to be believed.
FRAME_BYTES_MAX_BEFORE_TUNE = 131_072
# Calls of one channel that wait for an answer; a client that makes more has lost count of them.
AWAITED_MAX = 65_536


class ClientChannel:
    """One channel number between channel.open and channel.close-ok, as its client sees it."""

    __slots__ = (
        "awaited",
        "body",
        "consumer_tag",
        "expects",
        "method",
        "number",
        "owner",
        "properties",
        "redelivered",
        "remaining",
        "requests",
        "route",
        "state",
        "tag",
        "waiter",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.state: int = phases.CHANNEL_CLOSED
        self.owner: object = None
        self.awaited: list[tuple[tuple[str, ...], object]] = []  # the replies of each call, and its waiter
        self.expects = phases.EXPECTS_METHOD
        # The method whose content is on its way; None for basic.deliver, whose fields are below.
        self.method: Method | None = None
        self.waiter: object = None
        self.consumer_tag = b""
        self.tag = 0
        self.redelivered = False
        self.route = b""
        self.properties = b""
        self.remaining = 0
        self.body = bytearray()
        self.requests = Requests()  # of the message class, in both directions

    def follow(self, event: str) -> None:
        """Goes to the state that an event of our own leads to, as the table says."""
        following = CHANNEL[self.state].get(event)
        if following is None:
            raise ProtocolMisuse(f"{event!r} on a channel that is {ChannelState(self.state).name.lower()}")
        self.state = following

    def all_awaited(self) -> list[object]:
        """Who waits for an answer of any kind."""
        return [waiter for _, waiter in (*self.awaited, *self.requests.awaited.values())]

    def keep_properties(self, frames: octets.Readable, start: int, end: int) -> None:
        """Messages of one publisher mostly have the same: they share one object."""
        if not octets.equal(frames, start, end, self.properties):
            self.properties = octets.copy(frames, start, end)


class ClientConnection:
    """The receiving half of a client's connection; what it sends goes to `output`."""

    __slots__ = (
        "channel_max",
        "channels",
        "events",
        "frame_bytes_max",
        "message_bytes_max",
        "output",
        "paused",
        "state",
        "version",
    )

    def __init__(self, events: ClientEvents, output: Output, message_bytes_max: int) -> None:
        self.events = events
        self.output = output
        self.message_bytes_max = message_bytes_max
        self.version = amqp.VERSION_0_9_1
        self.state: int = ClientState.START
        self.frame_bytes_max = FRAME_BYTES_MAX_BEFORE_TUNE
        self.channel_max = 0
        self.channels: list[ClientChannel | None] = [None]
        self.paused = False  # set by the owner, who then keeps what is not used up and brings it again

    # What the owner sends

    def greet(self, version: int) -> None:
        self.version = version
        self.output.write(OPENINGS[version])

    def follow(self, event: str) -> None:
        """Goes to the state that an event of our own leads to, as the table says."""
        following = CONNECTION[self.state].get(event)
        if following is None:
            raise ProtocolMisuse(f"{event!r} in state {ClientState(self.state).name.lower()}")
        self.state = following

    def send(self, number: int, method: Method) -> None:
        """A method that is not answered, or whose answer is a notice of its state."""
        if number == 0:
            self.follow(f"> {method.NAME}")
        payload = encode_method(self.version, method)
        if len(payload) + 8 > self.output.frame_bytes_max:
            raise ProtocolMisuse(
                f"{method.NAME} of {len(payload)} octets does not fit a frame of "
                f"{self.output.frame_bytes_max}: its arguments are too large"
            )
        self.output.write_method(number, payload)

    def call(self, channel: ClientChannel, method: Method, waiter: object) -> None:
        """A method whose answer comes to `waiter`."""
        if method.NAME in REQUESTS:
            self.request(channel, method, waiter)
            return
        if len(channel.awaited) >= AWAITED_MAX:
            raise ProtocolMisuse(f"{AWAITED_MAX} calls of channel {channel.number} have no answer yet")
        self.send(channel.number, method)
        channel.awaited.append((method.REPLIES, waiter))
        if method.NAME == "channel.close":
            channel.follow("> channel.close")

    def request(self, channel: ClientChannel, method: Method, waiter: object) -> None:
        """A request of 0-9, whose response comes to `waiter`."""
        if len(channel.requests.awaited) >= AWAITED_MAX:
            raise ProtocolMisuse(f"{AWAITED_MAX} requests of channel {channel.number} have no answer yet")
        payload = encode_method(self.version, method)
        if len(payload) + FRAMED_OCTETS > self.output.frame_bytes_max:
            raise ProtocolMisuse(
                f"{method.NAME} of {len(payload)} octets does not fit a frame of "
                f"{self.output.frame_bytes_max}: its arguments are too large"
            )
        frame = channel.requests.request(method, payload, waiter)
        self.output.write_frame(amqp.FRAME_REQUEST, channel.number, frame)

    def respond(self, channel: ClientChannel, request_id: int, method: Method, batch_offset: int = 0) -> None:
        """The answer to a request of the server, and to so many behind it."""
        payload = encode_method(self.version, method)
        frame = channel.requests.response(request_id, payload, batch_offset)
        self.output.write_frame(amqp.FRAME_RESPONSE, channel.number, frame)

    def open_channel(self, number: int) -> ClientChannel:
        while len(self.channels) <= number:
            self.channels.append(None)
        channel = ClientChannel(number)
        channel.follow("> channel.open")
        self.channels[number] = channel
        return channel

    def close_channel(self, channel: ClientChannel) -> None:
        """Forgets the channel: its number is free again."""
        channel.follow(END)
        self.channels[channel.number] = None

    # What the server sends

    def receive(self, buffer: bytearray, size: int) -> int:
        """Takes the first `size` octets of `buffer`; the number used up, up to the last whole frame.

        Fewer when `paused` comes on.
        """
        frames = octets.readable(buffer)
        at = 0
        while size - at >= 8 and self.state != phases.CONNECTION_CLOSED and not self.paused:
            if self.state == phases.CONNECTION_START and octets.equal(frames, 0, 4, b"AMQP"):
                raise ConnectionFault(amqp.NOT_IMPLEMENTED, other_version(octets.copy(frames, 4, 8)))
            length = octets.read_long(frames, at + 3)
            if length + 8 > self.frame_bytes_max:
                raise self.oversized(length)
            end = at + 7 + length
            if end >= size:
                break
            if frames[end] != amqp.FRAME_END:
                raise ConnectionFault(amqp.FRAME_ERROR, f"a frame of {length} octets does not end with 0xCE")
            number = octets.read_short(frames, at + 1)
            if number and self.state == phases.CONNECTION_CLOSING:
                at = end + 1
                continue
            channel = self.channels[number] if number < len(self.channels) else None
            kind = frames[at]
            if kind == amqp.FRAME_METHOD and length >= 4 and channel is not None:
                code = octets.read_long(frames, at + 7)
                if channel.state == phases.CHANNEL_OPEN and channel.expects == phases.EXPECTS_METHOD:
                    if code == amqp.BASIC_DELIVER:
                        at = self.deliver(frames, at, end, size, channel)
                        continue
                    if code == amqp.BASIC_ACK and length == 13:
                        self.events.settled(
                            channel, octets.read_longlong(frames, at + 11), frames[at + 19] & 1 != 0, False
                        )
                        at = end + 1
                        continue
            self.receive_frame(kind, number, channel, octets.copy(frames, at + 7, end))
            at = end + 1
        return at

    def deliver(self, frames: octets.Readable, at: int, end: int, size: int, channel: ClientChannel) -> int:
        """basic.deliver at `at`, and its content if all of it is there; the position after what was used.

        | consumer tag 1+n | delivery tag 8 | redelivered 1 | exchange 1+n | routing key 1+n |
        """
        start = at + 11
        if end - start < 12:
            raise truncated("basic.deliver")
        stop = start + 1 + frames[start]
        route = stop + 9
        if route + 1 >= end:
            raise truncated("basic.deliver")
        if not octets.equal(frames, start, stop, channel.consumer_tag):
            channel.consumer_tag = octets.copy(frames, start, stop)
        channel.tag = octets.read_longlong(frames, stop)
        channel.redelivered = frames[stop + 8] & 1 != 0
        stop = route + 1 + frames[route]
        if stop >= end or stop + 1 + frames[stop] != end:
            raise truncated("basic.deliver")
        if not octets.equal(frames, route, end, channel.route):
            channel.route = octets.copy(frames, route, end)
        channel.method = None
        channel.expects = phases.EXPECTS_HEADER
        # The header frame, if it is all here and the next thing on this channel.
        head = end + 1
        if size - head < 22 or frames[head] != amqp.FRAME_HEADER:
            return head
        header_size = octets.read_long(frames, head + 3)
        if (
            header_size + 8 > self.frame_bytes_max
            or header_size < 14
            or head + 7 + header_size >= size
            or octets.read_short(frames, head + 1) != channel.number
        ):
            return head
        head_end = head + 7 + header_size
        body_size = octets.read_longlong(frames, head + 11)
        if (
            frames[head_end] != amqp.FRAME_END
            or octets.read_short(frames, head + 7) != amqp.CLASS_BASIC
            or body_size == 0
            or body_size > self.frame_bytes_max - 8
            or body_size > self.message_bytes_max
        ):
            return head
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
        channel.keep_properties(frames, head + 19, head_end)
        channel.expects = phases.EXPECTS_METHOD
        self.events.deliver(
            channel,
            channel.consumer_tag,
            channel.tag,
            channel.redelivered,
            channel.route,
            channel.properties,
            octets.copy(frames, body + 7, body_end),
        )
        return body_end + 1

    def receive_frame(self, kind: int, number: int, channel: ClientChannel | None, payload: bytes) -> None:
        """A frame of any kind."""
        if kind == amqp.FRAME_METHOD:
            self.receive_method(number, channel, payload)
        elif kind == amqp.FRAME_HEARTBEAT:
            if number != 0 or payload:
                raise ConnectionFault(amqp.FRAME_ERROR, "a heartbeat is empty and on channel 0")
        elif kind in (amqp.FRAME_HEADER, amqp.FRAME_BODY):
            if channel is None:
                raise ConnectionFault(amqp.CHANNEL_ERROR, f"content on channel {number}, which is not open")
            if channel.state != phases.CHANNEL_OPEN:
                return
            if kind == amqp.FRAME_HEADER:
                self.receive_header(channel, payload)
            else:
                self.receive_body(channel, payload)
        elif kind in (amqp.FRAME_REQUEST, amqp.FRAME_RESPONSE) and self.version == amqp.VERSION_0_9:
            self.receive_exchange(kind, number, channel, payload)
        else:
            raise ConnectionFault(amqp.FRAME_ERROR, f"unknown frame type {kind}")

    def receive_exchange(self, kind: int, number: int, channel: ClientChannel | None, payload: bytes) -> None:
        """A request or a response of 0-9, see requests.py."""
        if len(payload) < HEAD_OCTETS + 4:
            raise truncated("a request or a response")
        if channel is None:
            raise ConnectionFault(amqp.CHANNEL_ERROR, f"a request on channel {number}, which is not open")
        if channel.state != phases.CHANNEL_OPEN:
            return
        if channel.expects != phases.EXPECTS_METHOD:
            raise self.unexpected(channel, "a request or a response")
        method = decode_method(self.version, payload[HEAD_OCTETS:])
        if kind == amqp.FRAME_RESPONSE:
            answered = channel.requests.take_response(payload, method)
            self.events.message_response(channel, method, answered)
            return
        if method.NAME not in SERVER_REQUESTS:
            raise refused(method, f"no server asks it on channel {number}")
        self.events.message_request(channel, channel.requests.take_request(payload), method)

    def receive_method(self, number: int, channel: ClientChannel | None, payload: bytes) -> None:
        if len(payload) < 4:
            raise truncated("a method frame")
        if channel is not None:
            if channel.state == phases.CHANNEL_CLOSING and payload[:2] != b"\x00\x14":
                return  # discarded unseen, whatever it holds; class 20 is channel
            if channel.expects != phases.EXPECTS_METHOD and channel.state == phases.CHANNEL_OPEN:
                raise self.unexpected(channel, "a method")
        method = decode_method(self.version, payload)
        if number == 0:
            self.receive_connection_method(method)
            return
        if self.state != phases.CONNECTION_OPEN or channel is None:
            raise refused(method, f"channel {number} is not open", amqp.CHANNEL_ERROR)
        waiter: object = None
        if method.NAME not in CHANNEL[channel.state]:
            if not channel.awaited or method.NAME not in channel.awaited[0][0]:
                if channel.state == phases.CHANNEL_CLOSING:
                    self.skip_awaited(channel, method)
                    return
                raise refused(method, f"nobody asked for it on channel {number}")
            waiter = channel.awaited.pop(0)[1]
            if not method.CONTENT:
                self.events.reply(channel, method, waiter)
                return
        if method.CONTENT:
            channel.method = method
            channel.waiter = waiter
            channel.expects = phases.EXPECTS_HEADER
        elif isinstance(method, BasicNack):
            self.events.settled(channel, method.delivery_tag, method.multiple, True)
        else:
            self.events.notice(channel, method)

    def skip_awaited(self, channel: ClientChannel, method: Method) -> None:
        """close-ok comes while calls made before the close wait still: they get no answer any more."""
        for place, (replies, waiter) in enumerate(channel.awaited):
            if method.NAME in replies and method.NAME == "channel.close-ok":
                del channel.awaited[place]
                self.events.reply(channel, method, waiter)
                return

    def receive_connection_method(self, method: Method) -> None:
        following = CONNECTION[self.state].get(method.NAME)
        if following is not None:
            self.state = following
            self.events.connection_notice(method)
        elif self.state != phases.CONNECTION_CLOSING:
            raise refused(method, f"not expected in state {ClientState(self.state).name.lower()}")

    def receive_header(self, channel: ClientChannel, payload: bytes) -> None:
        """| class 2 | weight 2 | body size 8 | flags 2 | properties |"""
        if channel.expects != phases.EXPECTS_HEADER:
            raise self.unexpected(channel, "a content header")
        if len(payload) < 14:
            raise truncated("a content header")
        expected = amqp.CLASS_BASIC if channel.method is None else channel.method.CLASS_ID
        class_id = int.from_bytes(payload[:2], "big")
        if class_id != expected:
            text = f"a content header of class {class_id} where one of class {expected} was due"
            raise ConnectionFault(amqp.UNEXPECTED_FRAME, text)
        if class_id == amqp.CLASS_STREAM:
            payload = to_basic(payload)  # its properties are some of those of basic
        size = int.from_bytes(payload[4:12], "big")
        if size > self.message_bytes_max:
            raise ConnectionFault(
                amqp.CONTENT_TOO_LARGE,
                f"a message of {size} octets comes, and message_bytes_max is {self.message_bytes_max}",
            )
        channel.properties = payload[12:]
        channel.remaining = size
        channel.expects = phases.EXPECTS_BODY
        if size == 0:
            self.complete(channel)

    def receive_body(self, channel: ClientChannel, payload: bytes) -> None:
        if channel.expects != phases.EXPECTS_BODY:
            raise self.unexpected(channel, "a content body")
        if not payload and channel.method is None:  # called off: the rest of the delivery does not come
            channel.body = bytearray()
            channel.expects = phases.EXPECTS_METHOD
            return
        channel.remaining -= len(payload)
        if channel.remaining < 0:
            raise ConnectionFault(
                amqp.FRAME_ERROR, f"the body on channel {channel.number} is larger than its header announced"
            )
        channel.body += payload
        if channel.remaining == 0:
            self.complete(channel)

    def complete(self, channel: ClientChannel) -> None:
        body = bytes(channel.body)
        method = channel.method
        waiter = channel.waiter
        channel.body = bytearray()
        channel.method = None
        channel.waiter = None
        channel.expects = phases.EXPECTS_METHOD
        if method is None:
            self.events.deliver(
                channel,
                channel.consumer_tag,
                channel.tag,
                channel.redelivered,
                channel.route,
                channel.properties,
                body,
            )
        else:
            self.events.content(channel, method, channel.properties, body, waiter)

    def oversized(self, length: int) -> ConnectionFault:
        return ConnectionFault(
            amqp.FRAME_ERROR,
            f"a frame of {length + 8} octets is larger than the agreed {self.frame_bytes_max}",
        )

    def unexpected(self, channel: ClientChannel, what: str) -> ConnectionFault:
        wanted = ("a method", "a content header", "a content body")[channel.expects]
        return ConnectionFault(
            amqp.UNEXPECTED_FRAME, f"got {what} on channel {channel.number} where {wanted} was due"
        )


def truncated(what: str) -> ConnectionFault:
    return ConnectionFault(amqp.SYNTAX_ERROR, f"{what} is cut short")


def refused(method: Method, why: str, code: int = amqp.COMMAND_INVALID) -> ConnectionFault:
    return ConnectionFault(code, f"{method.NAME}: {why}", method.CLASS_ID, method.METHOD_ID)


def other_version(octets_of_version: bytes) -> str:
    """A server answers a version it does not speak with the header of one that it does."""
    spoken = ".".join(map(str, octets_of_version))
    return f"the server does not speak this version of AMQP; it offers {spoken}"
