"""What a connection of AMQP/Fast 0.9 is about to send: what the broker writes as methods of AMQP goes out as
methods of AMQP/Fast.

    | method frame: deliver | header frame | body frame ... |

A body frame has as many octets as the peer takes, and is an extended one where two octets do not hold its
size. A body cannot be called off: an empty body frame means nothing (section 3.13.5), so the rest is sent.
"""

from __future__ import annotations

from typing import Any, Protocol

from flintmq.errors import PeerFault, ProtocolMisuse
from flintmq.protocol.outbox import Output, Room
from flintmq.wire import amqp, octets
from flintmq.wire.fast09 import crossing, frames, methods
from flintmq.wire.stream import Body, BodyStream
from flintmq.wire.stream import Told as StreamTold

# Proxies that the messages of a consumer come by, of up to 500 octets each.
TAILS_MAX = 64

# Properties of more octets are not remembered: a consumer keeps 2 KiB of them, in both forms.
REMEMBERED_OCTETS_MAX = 1024

METHOD = frames.METHOD
HEADER = frames.HEADER
BODY = frames.BODY
META = frames.META
CHANNEL_MAX_NORMAL = frames.CHANNEL_MAX_NORMAL
SIZE_MAX_NORMAL = frames.SIZE_MAX_NORMAL
EXTENDED_OCTETS = frames.EXTENDED_OCTETS
# A deliver before its tail: class, method, flags and synctag, the tag and its bit.
DELIVER_ID = methods.KINDS["jms.deliver"].method_id
DELIVER_OCTETS = 14
# A header of AMQP/Fast has the body size at 2, one of AMQP at 4; behind it are the properties.
PROPERTIES = 10
AMQP_PROPERTIES = 12

RETURNS = (amqp.BASIC_RETURN, amqp.FILE_RETURN, amqp.STREAM_RETURN)


class Told(Protocol):
    """Who turns what the broker says by itself into methods."""

    def settled(self, channel: int, code: int, tag: int) -> None:
        """basic.ack or basic.nack of all publishes of the channel up to this one, or of this one."""

    def returned(self, channel: int, payload: bytes) -> None:
        """basic.return, or that of another class."""

    def told_by_broker(self, channel: int, payload: bytes) -> None:
        """Any other method without content: basic.cancel, file.open."""

    def answering(self, channel: int) -> tuple[int, int]:
        """The flags and the synctag of an answer that is written now."""


class Target:
    """Where the deliveries of one consumer come from: the class of its methods, namespace and queue."""

    __slots__ = (
        "class_id",
        "flags",
        "header",
        "kind",
        "namespace",
        "properties",
        "queue",
        "route",
        "start",
        "tail",
        "tails",
    )

    def __init__(self, kind: str, namespace: str, queue: str) -> None:
        self.kind = kind  # jms.deliver or stream.deliver
        self.namespace = namespace
        self.queue = queue
        self.class_id: int = methods.KINDS[kind].class_id
        self.tails: dict[str, bytes] = {}  # by proxy: the end of a deliver, see methods.delivery_tail
        # Of the message before: its route, class and weight, the properties, and what was made of these.
        self.route = b""
        self.start = 0
        self.properties = b""
        self.header = b""
        self.flags = 0
        self.tail = b""

    def tail_of(self, proxy: str) -> bytes:
        found = self.tails.get(proxy)
        if found is None:
            if len(self.tails) >= TAILS_MAX:
                self.tails.clear()
            found = self.tails[proxy] = methods.delivery_tail(proxy, self.namespace, self.queue)
        return found


class Fast09Output(Output):
    """One connection's outgoing octets."""

    __slots__ = ("targets", "told")

    def __init__(self, outbox: list[Output], sender: Any, room: Room | None = None) -> None:
        super().__init__(outbox, sender, room)
        self.told: Told | None = None
        self.targets: dict[tuple[int, bytes], Target] = {}  # by channel and consumer tag

    def write_on(self, channel: int, octets: bytes) -> None:
        """Whole frames of a channel; they follow the body of a content that is on its way there."""
        if self.streaming:
            behind = self.behind(channel)
            if behind is not None:
                behind.write(octets)
                self.behind_bytes += behind.fill
                return
        self.write(octets)

    def write_said(self, channel: int, method: methods.Method, flags: int, synctag: int) -> None:
        self.write_on(channel, frames.framed(frames.METHOD, channel, methods.encode(method, flags, synctag)))

    def write_carrying(
        self,
        channel: int,
        method: methods.Method,
        flags: int,
        synctag: int,
        header: bytes,
        content: bytes,
        start: int,
    ) -> None:
        """A method, a content header, and the body that begins at `start`, or what is there of it."""
        self.write_whole(channel, methods.encode(method, flags, synctag), header, content, start)

    def write_whole(self, channel: int, method: bytes, header: bytes, content: bytes, start: int) -> None:
        """The same with the octets of the method."""
        parts = [
            frames.framed(frames.METHOD, channel, method),
            frames.framed(frames.HEADER, channel, header),
        ]
        end, most = len(content), self.frame_bytes_max
        while start < end:
            stop = min(end, start + most)
            parts.append(frames.head_of(frames.BODY, channel, stop - start))
            parts.append(content[start:stop])
            start = stop
        self.write_on(channel, b"".join(parts))

    def header_of(self, class_id: int, octets: bytes, key: bytes) -> tuple[bytes, int]:
        """The header of a content that the broker keeps with this one, and the flags of its method."""
        try:
            header, is_traced = crossing.fast_header(class_id, octets, key, self.frame_bytes_max)
        except (PeerFault, ProtocolMisuse):  # it was accepted when nobody needed to read it
            size = int.from_bytes(octets[4:12], "big")
            return crossing.bare_header(class_id, size, crossing.shown_key(key)), 0
        return header, methods.TRACER if is_traced else 0

    # What the broker says by methods of AMQP

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
        target = self.targets[channel, consumer_tag]
        source = octets.readable_bytes(content)
        if (
            target.route != route
            or target.start != octets.read_long(source, 0)
            or not octets.equal(source, AMQP_PROPERTIES, header_size, target.properties)
        ):
            self.translate(target, route, content[:header_size])
        header, tail = target.header, target.tail
        if self.streaming:
            header = header[:2] + content[4:12] + header[PROPERTIES:]
            method = methods.encode_delivery(
                target.class_id, target.flags, delivery_tag, bool(redelivered), tail
            )
            self.write_whole(channel, method, header, content, header_size)
            return
        start, end, most = header_size, len(content), self.frame_bytes_max
        heads = 3 + (end - start) // most
        self.reserve(heads * EXTENDED_OCTETS + DELIVER_OCTETS + len(tail) + len(header) + end - start)
        out = octets.writable(self.buffer)
        at = self.put_head(out, self.fill, METHOD, channel, DELIVER_OCTETS + len(tail))
        at = octets.write_long(out, at, target.class_id << 24 | DELIVER_ID << 16 | target.flags << 8)
        at = octets.write_octet(out, at, 0)
        at = octets.write_longlong(out, at, delivery_tag)
        at = octets.write_octet(out, at, 1 if redelivered else 0)
        at = octets.write_bytes(out, at, tail)
        at = self.put_head(out, at, HEADER, channel, len(header))
        at = octets.write_range(out, at, header, 0, 2)
        at = octets.write_longlong(out, at, octets.read_longlong(source, 4))
        at = octets.write_range(out, at, header, PROPERTIES, len(header))
        while start < end:
            stop = start + most if end - start > most else end
            at = self.put_head(out, at, BODY, channel, stop - start)
            at = octets.write_range(out, at, content, start, stop)
            start = stop
        self.fill = at

    def put_head(self, out: octets.Writable, at: int, kind: int, channel: int, size: int) -> int:
        """What `frames.head_of` makes."""
        if channel <= CHANNEL_MAX_NORMAL and size <= SIZE_MAX_NORMAL:
            return octets.write_long(out, at, kind << 24 | channel << 16 | size)
        at = octets.write_long(out, at, META << 24)
        at = octets.write_long(out, at, kind << 24 | channel)
        return octets.write_longlong(out, at, size)

    def translate(self, target: Target, route: bytes, header: bytes) -> None:
        """Sets what a message with this route and header is to a consumer."""
        target.properties, target.start = b"", 0
        made, target.flags = self.header_of(target.class_id, header, crossing.key_of(route))
        target.header, target.tail = made, target.tail_of(crossing.proxy_of(route))
        if len(header) <= REMEMBERED_OCTETS_MAX:
            target.route, target.start = route, int.from_bytes(header[:4], "big")
            target.properties = header[AMQP_PROPERTIES:]

    def write_method_content(self, channel: int, payload: bytes, content: bytes, header_size: int) -> None:
        """basic.get-ok, and what comes back to its publisher."""
        if self.told is None:
            return
        code = int.from_bytes(payload[:4], "big")
        if code in RETURNS:
            self.told.returned(channel, payload)
        elif code == amqp.BASIC_GET_OK:
            route_end = len(payload) - 4
            method = methods.method(
                "jms.browse-ok",
                delivery_tag=int.from_bytes(payload[4:12], "big"),
                redelivered=payload[12] & 1 == 1,
                message_count=int.from_bytes(payload[route_end:], "big"),
            )
            key = crossing.key_of(payload[13:route_end])
            header, flags = self.header_of(methods.CLASS_JMS, content[:header_size], key)
            answer_flags, synctag = self.told.answering(channel)
            self.write_carrying(channel, method, flags | answer_flags, synctag, header, content, header_size)

    def write_method(self, channel: int, payload: bytes) -> None:
        if self.told is not None:
            self.told.told_by_broker(channel, payload)

    def write_settlement(self, channel: int, code: int, tag: int, flags: int) -> None:
        if self.told is not None:
            self.told.settled(channel, code, tag)

    # Streams

    def stream(self, channel: int, body: Body, told: StreamTold, tag: int = 0) -> None:
        if not tag:  # of a message that came back, of which the peer is told without it
            body.close()
            told.stream_ended()
            return
        Output.stream(self, channel, body, told, tag)

    def write_piece(self, stream: BodyStream, piece: bytes) -> None:
        head = frames.head_of(frames.BODY, stream.channel, len(piece))
        self.make_room(len(piece) + len(head))
        self.put(head)
        self.put(piece)

    def put(self, source: bytes) -> None:
        """Octets for which there is room; whoever is about to send has called for them."""
        end = self.fill + len(source)
        self.buffer[self.fill : end] = source
        self.fill = end

    def call_off(self, channel: int, tag: int) -> None:
        """The peer takes the rest."""
