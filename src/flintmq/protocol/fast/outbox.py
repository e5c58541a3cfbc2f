"""What a connection of AMQP/Fast is about to send: what the broker writes as methods goes out as commands.

    | size 2 | 41 | handle 2 | message number 4 | fragment size 4 | flags 1 | name 1+n | 0xCE |  [fragment]

A delivery becomes a HANDLE NOTIFY, in several fragments if it is longer than the peer takes at once. The
number of a message is its delivery tag, of which the wire has the lower 32 bits.
"""

from __future__ import annotations

from typing import Any, Protocol

from flintmq.errors import PeerFault
from flintmq.protocol.outbox import Output, Room
from flintmq.wire import amqp, octets
from flintmq.wire.fast import crossing
from flintmq.wire.stream import Body, BodyStream
from flintmq.wire.stream import Told as StreamTold

PARTIAL = 1
DELIVERED = 8
REDELIVERED = 16

# The shortest NOTIFY with its size: what each fragment takes beside itself and the name.
NOTIFY_OCTETS = 15

# What the four octets of a body size hold.
BODY_BYTES_MAX = 4_294_967_295

# The header of a message whose own nobody can read: nothing is said of it.
BARE_HEAD = bytes(11)


class Told(Protocol):
    """Who turns what the broker says of publishes and consumers into commands."""

    def settled(self, channel: int, code: int, tag: int) -> None:
        """basic.ack or basic.nack of all publishes of the channel up to this one, or of this one."""

    def returned(self, channel: int, payload: bytes) -> None:
        """basic.return"""

    def cancelled(self, channel: int, tag: bytes) -> None:
        """basic.cancel: the consumer with this tag, an encoded short string, has lost its queue."""

    def now_ms(self) -> int:
        """The wall clock."""


class Target:
    """Where the deliveries of one consumer go: its handle, and the full name of the destination.

    A consumer of topics has none: the name is that by which each message was sent.
    """

    __slots__ = ("handle", "name")

    def __init__(self, handle: int, name: bytes) -> None:
        self.handle = handle
        self.name = name  # an encoded short string


class Nobody:
    """Who does not wait for the end of a stream."""

    def stream_ended(self) -> None:
        """The channel goes on all the same."""


class FastOutput(Output):
    """One connection's outgoing octets."""

    __slots__ = ("browsed", "head", "names", "parts", "properties", "targets", "told")

    def __init__(self, outbox: list[Output], sender: Any, room: Room | None = None) -> None:
        super().__init__(outbox, sender, room)
        self.body_bytes_max = BODY_BYTES_MAX
        self.told: Told | None = None
        self.targets: dict[bytes, Target] = {}  # by consumer tag, an encoded short string
        self.browsed = 0
        self.names: dict[bytes, bytes] = {}  # the short names that the peer has for headers
        # Of streams, by channel and delivery tag: handle, name and flags.
        self.parts: dict[tuple[int, int], tuple[int, bytes, int]] = {}
        # The properties of the message that was delivered last, and its header in Fast.
        self.properties = b""
        self.head = b""

    def write_command(self, channel: int, frame: bytes) -> None:
        """A whole command of a channel; it follows the fragments of a message that is on its way there."""
        if self.streaming:
            behind = self.behind(channel)
            if behind is not None:
                behind.write(frame)
                self.behind_bytes += behind.fill
                return
        self.write(frame)

    def write_delivery(
        self,
        channel: int,
        consumer_tag: bytes,
        delivery_tag: int,
        redelivered: bool,
        route: bytes,
        content: bytes,
        header_size: int,
    ) -> None:
        if self.streaming:
            behind = self.behind(channel)
            if behind is not None:
                behind.write_delivery(
                    channel, consumer_tag, delivery_tag, redelivered, route, content, header_size
                )
                self.behind_bytes += behind.fill
                return
        target = self.targets[consumer_tag]
        name = target.name or crossing.short_text(route[2 + route[0] :])
        flags = DELIVERED | REDELIVERED if redelivered else DELIVERED
        head = self.head_of(content, header_size)
        body_size = octets.read_longlong(octets.readable_bytes(content), 4)
        size = len(content) - header_size
        number = delivery_tag & 0xFFFFFFFF
        fragment = 4 + len(head) + size
        if body_size != size:
            self.parts[channel, delivery_tag] = (target.handle, name, flags)
            self.write_fragments(target.handle, number, flags, b"", head, body_size, content, header_size)
            return
        if fragment > self.frame_bytes_max:
            self.write_fragments(target.handle, number, flags, name, head, body_size, content, header_size)
            return
        self.reserve(NOTIFY_OCTETS + len(name) + fragment)
        out = octets.writable(self.buffer)
        at = octets.write_notify(out, self.fill, target.handle, number, fragment, flags, name)
        at = octets.write_long(out, at, body_size)
        at = octets.write_bytes(out, at, head)
        self.fill = octets.write_range(out, at, content, header_size, len(content))

    def write_browsed(
        self,
        channel: int,
        target: Target,
        number: int,
        redelivered: bool,
        content: bytes,
        header_size: int,
        body: Body | None,
    ) -> None:
        """A message that is looked at, and stays where it is; its body may be elsewhere."""
        flags = REDELIVERED if redelivered else 0
        head = self.head_of(content, header_size)
        size = int.from_bytes(content[4:12], "big")
        name = target.name if body is None else b""
        behind = self.behind(channel)
        if behind is None:
            self.write_fragments(target.handle, number, flags, name, head, size, content, header_size)
        else:
            behind.write_fragments(target.handle, number, flags, name, head, size, content, header_size)
            self.behind_bytes += behind.fill
        if body is not None:
            self.browsed += 1
            tag = self.browsed << 33 | 1 << 32 | number  # no delivery has it
            self.parts[channel, tag] = (target.handle, target.name, flags)
            self.stream(channel, body, Nobody(), tag)

    def head_of(self, content: bytes, header_size: int) -> bytes:
        """The header in Fast, without its body size."""
        if octets.equal(octets.readable_bytes(content), 12, header_size, self.properties):
            return self.head
        return self.translate(content[:header_size])

    def translate(self, header: bytes) -> bytes:
        self.properties = b""
        try:
            head = crossing.fast_head(header, 0 if self.told is None else self.told.now_ms(), self.names)
        except PeerFault:
            return BARE_HEAD  # it was accepted when nobody needed to read it
        if not header[12:14] or not int.from_bytes(header[12:14], "big") & amqp.FLAG_EXPIRATION:
            self.properties, self.head = header[12:], head
        return head

    def write_fragments(
        self,
        handle: int,
        number: int,
        flags: int,
        name: bytes,
        head: bytes,
        body_size: int,
        content: bytes,
        header_size: int,
    ) -> None:
        """Header and body in as many fragments as it takes; without a name, more of the body follows."""
        whole = body_size.to_bytes(4, "big") + head + content[header_size:]
        most = self.frame_bytes_max
        count = -(-len(whole) // most)
        self.reserve(len(whole) + count * (NOTIFY_OCTETS + 1) + len(name))
        out = octets.writable(self.buffer)
        at = self.fill
        for start in range(0, len(whole), most):
            stop = min(start + most, len(whole))
            is_last = bool(name) and stop == len(whole)
            at = octets.write_notify(
                out,
                at,
                handle,
                number,
                stop - start,
                flags if is_last else flags | PARTIAL,
                name if is_last else b"\0",
            )
            at = octets.write_range(out, at, whole, start, stop)
        self.fill = at

    def write_piece(self, stream: BodyStream, piece: bytes) -> None:
        handle, full_name, flags = self.parts[stream.channel, stream.tag]
        is_last = stream.is_over()
        if is_last:
            del self.parts[stream.channel, stream.tag]
        name = full_name if is_last else b"\0"
        self.make_room(len(piece) + NOTIFY_OCTETS + len(name))
        out = octets.writable(self.buffer)
        number = stream.tag & 0xFFFFFFFF
        at = octets.write_notify(
            out, self.fill, handle, number, len(piece), flags if is_last else flags | PARTIAL, name
        )
        self.fill = octets.write_range(out, at, piece, 0, len(piece))

    def stream(self, channel: int, body: Body, told: StreamTold, tag: int = 0) -> None:
        if not tag:  # of a message that came back, of which the peer is told without it
            body.close()
            told.stream_ended()
            return
        Output.stream(self, channel, body, told, tag)

    def behind(self, channel: int) -> FastOutput | None:
        stream = self.streaming_channels.get(channel)
        if stream is None:
            return None
        stream = stream.last()
        if stream.behind is None:
            behind = FastOutput([], None, self.room)
            behind.frame_bytes_max = self.frame_bytes_max
            behind.told, behind.targets = self.told, self.targets
            behind.names, behind.parts = self.names, self.parts
            stream.behind = behind
        found: FastOutput = stream.behind
        self.behind_bytes -= found.fill
        return found

    def drop_streams(self, channel: int) -> None:
        Output.drop_streams(self, channel)  # compiled methods know no super()
        for key in [key for key in self.parts if key[0] == channel]:
            del self.parts[key]

    # What the broker's channels say by methods

    def write_method(self, channel: int, payload: bytes) -> None:
        """Of a channel of the broker that is basic.cancel alone."""
        if self.told is not None and int.from_bytes(payload[:4], "big") == amqp.BASIC_CANCEL:
            self.told.cancelled(channel, payload[4 : 5 + payload[4]])

    def write_settlement(self, channel: int, code: int, tag: int, flags: int) -> None:
        if self.told is not None:
            self.told.settled(channel, code, tag)

    def write_method_content(self, channel: int, payload: bytes, content: bytes, header_size: int) -> None:
        if self.told is not None and int.from_bytes(payload[:4], "big") == amqp.BASIC_RETURN:
            self.told.returned(channel, payload)
