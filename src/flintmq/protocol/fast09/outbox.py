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
from flintmq.wire import amqp
from flintmq.wire.fast09 import crossing, frames, methods
from flintmq.wire.stream import Body, BodyStream
from flintmq.wire.stream import Told as StreamTold

# Proxies that the messages of a consumer come by, of up to 500 octets each.
TAILS_MAX = 64

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

    __slots__ = ("class_id", "kind", "namespace", "queue", "tails")

    def __init__(self, kind: str, namespace: str, queue: str) -> None:
        self.kind = kind  # jms.deliver or stream.deliver
        self.namespace = namespace
        self.queue = queue
        self.class_id: int = methods.KINDS[kind].class_id
        self.tails: dict[str, bytes] = {}  # by proxy: the end of a deliver, see methods.delivery_tail

    def tail(self, proxy: str) -> bytes:
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

    def header_of(self, class_id: int, octets: bytes, destination: str) -> tuple[bytes, int]:
        """The header of a content that the broker keeps with this one, and the flags of its method."""
        try:
            header, is_traced = crossing.fast_header(class_id, octets, destination, self.frame_bytes_max)
        except (PeerFault, ProtocolMisuse):  # it was accepted when nobody needed to read it
            size = int.from_bytes(octets[4:12], "big")
            return crossing.bare_header(class_id, size, destination), 0
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
        class_id = target.class_id
        header, flags = self.header_of(class_id, content[:header_size], crossing.key_of(route))
        tail = target.tail(crossing.proxy_of(route))
        method = methods.encode_delivery(class_id, flags, delivery_tag, bool(redelivered), tail)
        self.write_whole(channel, method, header, content, header_size)

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
