"""The octets a connection is about to send: encoders write here, the server sends and drains.

                 start            fill             capacity
    | sent already | still to send | free           |

Frames are written straight into one buffer, which is taken from a pool at the first write and given
back when everything is sent, so that an idle connection owns none. Knows frames, not sockets.

    | type 1 | channel 2 | size 4 | payload ... | end 0xCE |
"""

from __future__ import annotations

from typing import Any

from flintmq.wire import amqp, octets
from flintmq.wire.stream import Body, BodyStream, Told

# One pass fills at most OUTPUT_BYTES_MAX and one message over it: a third more rarely grows.
BUFFER_BYTES = 524_288
# Past this many octets waiting, a connection gets no further deliveries. Half as much again as a link
# reads at once: what one publisher sent goes to one consumer in one piece.
OUTPUT_BYTES_MAX = 393_216
# Past this many nothing more is done for it: replies and returned messages pile up as fast as it asks
# for them, and a request of 20 octets may ask for a message of any size again and again.
OUTPUT_BYTES_STOP = 16_777_216
# Streams fill the output to here, and with one frame more: half of what deliveries may, so that those
# of other channels have their turn however slowly the peer reads.
STREAM_BYTES_MAX = 131_072
# As many streams of a connection are read in turn, each with a file open; others wait for one to end.
STREAMS_READ_MAX = 16
# And so many may wait: a client could ask for the same in one basic.get after another.
STREAMS_MAX = 4096
# What a connection may have waiting where all of them together have more than their budget, and when it must
# read first; bodies over the former then leave in pieces, read from the message as the peer takes them.
TIGHT_BYTES_MAX = 16_384
# A larger content never waits here whole: to make room for 60 MiB and to copy them takes 60 ms.
WHOLE_BYTES_MAX = 4_194_304
TIGHT_BYTES_STOP = 262_144
# 16 connections being written to at once is common, each a buffer: 16 x 512 KiB = 8 MiB kept at most.
POOL_BUFFERS_MAX = 16
# A connection's replies fit in this; only deliveries need a big buffer.
SMALL_BUFFER_BYTES = 1024

NO_BUFFER = bytearray()
POOL: list[bytearray] = []
SMALL_POOL: list[bytearray] = []


class Room:
    """What the connections of a server may have waiting for them, each and all together."""

    __slots__ = ("budget_bytes", "held_bytes", "is_tight", "output_bytes_max", "output_bytes_stop")

    def __init__(self) -> None:
        self.budget_bytes = 1 << 62
        self.held_bytes = 0  # the buffers of all outputs
        self.is_tight = False
        self.output_bytes_max = OUTPUT_BYTES_MAX
        self.output_bytes_stop = OUTPUT_BYTES_STOP

    def take(self, size: int) -> int:
        """So much more is held, or less if it is negative."""
        self.held_bytes += size
        is_tight = self.held_bytes > self.budget_bytes
        if is_tight != self.is_tight:
            self.is_tight = is_tight
            self.output_bytes_max = TIGHT_BYTES_MAX if is_tight else OUTPUT_BYTES_MAX
            self.output_bytes_stop = TIGHT_BYTES_STOP if is_tight else OUTPUT_BYTES_STOP
        return 0


class Output:
    """One connection's outgoing octets; tells `outbox` when there is something to send."""

    __slots__ = (
        "barrier",
        "behind_bytes",
        "blocked",
        "body_bytes_max",
        "buffer",
        "capacity",
        "ended",
        "fill",
        "frame_bytes_max",
        "header_bytes_max",
        "is_torn",
        "outbox",
        "room",
        "sender",
        "start",
        "streaming",
        "streaming_channels",
        "streams",
        "waiting",
        "wanted",
    )

    def __init__(self, outbox: list[Output], sender: Any, room: Room | None = None) -> None:
        self.outbox = outbox
        self.room = Room() if room is None else room
        self.sender = sender  # whoever empties the outbox asks it to send
        self.buffer = NO_BUFFER
        self.capacity = 0
        self.start = 0
        self.fill = 0
        # The largest frame the peer takes; 4096 until tuned.
        self.frame_bytes_max = amqp.FRAME_BYTES_MIN
        self.body_bytes_max = 1 << 62  # of one content that the protocol can tell
        self.header_bytes_max = 1 << 62  # of a content's header, which is one frame where there are frames
        self.waiting = False  # in the outbox, to be flushed at the end of the pass
        self.blocked = False  # the socket took less than it was offered; the server waits for it
        self.is_torn = False  # what is pending may begin in the middle of a frame
        self.barrier = 0  # nothing is sent until the journal has synced this far
        self.streams: list[BodyStream] = []  # bodies that are read from elsewhere, in turn
        self.streaming_channels: dict[int, BodyStream] = {}
        self.streaming = 0  # how many, with those that wait for another of their channel
        self.behind_bytes = 0  # what waits behind them
        self.ended = False  # no more deliveries, whatever room there is
        self.wanted: dict[object, None] = {}  # who to tell when there is room for deliveries again

    def pending(self) -> int:
        return self.fill - self.start

    def has_room(self) -> bool:
        """Whether deliveries may still be added."""
        if self.ended or (self.streaming and self.room.is_tight):
            return False
        return self.fill - self.start + self.behind_bytes < self.room.output_bytes_max

    def is_full(self) -> bool:
        """Whether the peer must read before anything more is done for it."""
        waiting = self.fill - self.start + self.behind_bytes
        return waiting > self.room.output_bytes_stop or self.streaming > STREAMS_MAX

    def reserve(self, size: int) -> int:
        """Makes room for `size` more octets, and has the connection flushed at the end of the pass."""
        if not self.waiting:
            self.waiting = True
            self.outbox.append(self)
        if self.fill + size > self.capacity:
            self.grow(size)
        return 0

    def grow(self, size: int) -> None:
        pending = self.fill - self.start
        needed = pending + size
        if needed <= SMALL_BUFFER_BYTES:
            buffer = SMALL_POOL.pop() if SMALL_POOL else bytearray(SMALL_BUFFER_BYTES)
        elif needed > BUFFER_BYTES or self.room.is_tight:
            buffer = bytearray(needed + needed // 2)
        elif POOL:
            buffer = POOL.pop()
        else:
            buffer = bytearray(BUFFER_BYTES)
        self.move(buffer)

    def move(self, buffer: bytearray) -> None:
        """What is pending goes on in another buffer."""
        pending = self.fill - self.start
        if pending:
            buffer[:pending] = memoryview(self.buffer)[self.start : self.fill]
        self.release()
        self.buffer = buffer
        self.capacity = len(buffer)
        self.room.take(self.capacity)
        self.start = 0
        self.fill = pending

    def release(self) -> None:
        """Gives the buffer back; nothing may be pending, or it has been copied."""
        self.room.take(-self.capacity)
        if self.capacity == BUFFER_BYTES and len(POOL) < POOL_BUFFERS_MAX:
            POOL.append(self.buffer)
        elif self.capacity == SMALL_BUFFER_BYTES and len(SMALL_POOL) < POOL_BUFFERS_MAX:
            SMALL_POOL.append(self.buffer)
        self.buffer = NO_BUFFER
        self.capacity = 0
        self.start = 0
        self.fill = 0

    def sent(self, size: int) -> None:
        """The socket took `size` octets."""
        self.start += size
        self.is_torn = self.start != self.fill
        if not self.is_torn:
            self.release()
        elif self.room.is_tight and self.capacity > 2 * (self.fill - self.start) + SMALL_BUFFER_BYTES:
            self.move(bytearray(self.fill - self.start))

    def lift_barrier(self) -> None:
        """What was held back may go."""
        self.barrier = 0
        self.reserve(0)

    def write(self, source: bytes) -> None:
        """Octets that are already in frames."""
        self.reserve(len(source))
        self.fill = octets.write_bytes(octets.writable(self.buffer), self.fill, source)

    def write_method(self, channel: int, payload: bytes) -> None:
        if self.streaming:
            behind = self.behind(channel)
            if behind is not None:
                behind.write_method(channel, payload)
                self.behind_bytes += behind.fill
                return
        size = len(payload)
        self.reserve(size + 8)
        target = octets.writable(self.buffer)
        at = octets.write_frame_head(target, self.fill, amqp.FRAME_METHOD, channel, size)
        at = octets.write_bytes(target, at, payload)
        self.fill = octets.write_octet(target, at, amqp.FRAME_END)

    def write_frame(self, kind: int, channel: int, payload: bytes) -> None:
        """A frame of another type than that of methods: a request or a response."""
        if self.streaming:
            behind = self.behind(channel)
            if behind is not None:
                behind.write_frame(kind, channel, payload)
                self.behind_bytes += behind.fill
                return
        size = len(payload)
        self.reserve(size + 8)
        target = octets.writable(self.buffer)
        self.fill = octets.write_frame(target, self.fill, kind, channel, payload, 0, size)

    def write_settlement(self, channel: int, code: int, tag: int, flags: int) -> None:
        """basic.ack or basic.nack of a publish."""
        if self.streaming:
            behind = self.behind(channel)
            if behind is not None:
                behind.write_settlement(channel, code, tag, flags)
                self.behind_bytes += behind.fill
                return
        self.reserve(21)
        target = octets.writable(self.buffer)
        at = octets.write_method_head(target, self.fill, channel, 13, code)
        at = octets.write_longlong(target, at, tag)
        at = octets.write_octet(target, at, flags)
        self.fill = octets.write_octet(target, at, amqp.FRAME_END)

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
        """basic.deliver with its content. `consumer_tag` and `route` are encoded short strings."""
        if self.streaming:
            behind = self.behind(channel)
            if behind is not None:
                behind.write_delivery(
                    channel, consumer_tag, delivery_tag, redelivered, route, content, header_size
                )
                self.behind_bytes += behind.fill
                return
        size = 4 + len(consumer_tag) + 9 + len(route)
        self.reserve(size + 8 + self.framed_size(len(content)))
        target = octets.writable(self.buffer)
        at = octets.write_deliver(
            target,
            self.fill,
            channel,
            size,
            amqp.BASIC_DELIVER,
            consumer_tag,
            delivery_tag,
            1 if redelivered else 0,
            route,
        )
        self.fill = self.write_content(target, at, channel, content, header_size)

    def write_method_content(self, channel: int, payload: bytes, content: bytes, header_size: int) -> None:
        """Any other method that carries content: basic.get-ok, basic.return, basic.publish."""
        if self.streaming:
            behind = self.behind(channel)
            if behind is not None:
                behind.write_method_content(channel, payload, content, header_size)
                self.behind_bytes += behind.fill
                return
        self.reserve(len(payload) + 8 + self.framed_size(len(content)))
        self.write_method(channel, payload)
        self.fill = self.write_content(octets.writable(self.buffer), self.fill, channel, content, header_size)

    def framed_size(self, size: int) -> int:
        """An upper bound of a content's size in frames: 8 octets for the header's, 8 for each body's."""
        if size <= self.frame_bytes_max - 8:
            return size + 16
        return size + 16 + 8 * (size // (self.frame_bytes_max - 8) + 1)

    def write_content(
        self, target: octets.Writable, at: int, channel: int, content: bytes, header_size: int
    ) -> int:
        at = octets.write_frame(target, at, amqp.FRAME_HEADER, channel, content, 0, header_size)
        end = len(content)
        start = header_size
        payload_max = self.frame_bytes_max - 8
        while start < end:
            stop = end if end - start <= payload_max else start + payload_max
            at = octets.write_frame(target, at, amqp.FRAME_BODY, channel, content, start, stop)
            start = stop
        return at

    # Streams

    def streams_large(self, size: int) -> bool:
        """Whether a content of this size should leave in pieces although it lies in memory."""
        return size > WHOLE_BYTES_MAX or (size > TIGHT_BYTES_MAX and self.room.is_tight)

    def stream(self, channel: int, body: Body, told: Told, tag: int = 0) -> None:
        """The body of the content whose header was written last on this channel; `tag` is its delivery's."""
        stream = BodyStream(channel, body, told, tag)
        first = self.streaming_channels.get(channel)
        self.streaming += 1
        if first is not None:
            first.followers.append(stream)
            return
        self.streaming_channels[channel] = stream
        self.streams.append(stream)
        self.reserve(0)

    def behind(self, channel: int) -> Output | None:
        """Where the channel writes while a body of its own is on its way; None while there is none.

        Whoever writes there adds its fill to behind_bytes afterwards.
        """
        stream = self.streaming_channels.get(channel)
        if stream is None:
            return None
        stream = stream.last()
        if stream.behind is None:
            stream.behind = Output([], None, self.room)
            stream.behind.frame_bytes_max = self.frame_bytes_max
        found: Output = stream.behind
        self.behind_bytes -= found.fill
        return found

    def fill_from_streams(self) -> None:
        """Body frames of each stream in turn, while there is room.

        Called by whoever is about to send, so unlike other writes it does not ask for a flush.
        """
        room = TIGHT_BYTES_MAX if self.room.is_tight else STREAM_BYTES_MAX
        payload_max = min(self.frame_bytes_max - 8, room)
        while self.streams and self.fill - self.start < room:
            stream = self.streams[0]
            self.write_piece(stream, stream.next_piece(payload_max))
            del self.streams[0]
            if stream.is_over():
                self.end_stream(stream)
            else:
                self.streams.insert(STREAMS_READ_MAX - 1, stream)

    def write_piece(self, stream: BodyStream, piece: bytes) -> None:
        """A body frame of a stream."""
        self.make_room(len(piece) + 8)
        self.fill = octets.write_frame(
            octets.writable(self.buffer), self.fill, amqp.FRAME_BODY, stream.channel, piece, 0, len(piece)
        )

    def make_room(self, size: int) -> None:
        if self.fill + size > self.capacity:
            self.grow(size)

    def end_stream(self, stream: BodyStream) -> None:
        """What waited behind it follows, and perhaps the next stream of the channel."""
        self.streaming -= 1
        behind = stream.behind
        if behind is not None:
            waiting = bytes(memoryview(behind.buffer)[: behind.fill])
            self.behind_bytes -= len(waiting)
            self.make_room(len(waiting))
            self.fill = octets.write_bytes(octets.writable(self.buffer), self.fill, waiting)
            behind.release()
        following = stream.next_of_channel()
        if following is None:
            del self.streaming_channels[stream.channel]
        else:
            self.streaming_channels[stream.channel] = following
            self.streams.append(following)
        stream.end()

    def call_off(self, channel: int, tag: int) -> None:
        """The client does not want the rest of this delivery."""
        first = self.streaming_channels.get(channel)
        if first is not None and tag:
            for stream in (first, *first.followers):
                if stream.tag == tag:
                    stream.call_off()

    def streamed_tag(self, channel: int) -> int:
        """The delivery whose body is on its way on the channel; 0 if there is none."""
        stream = self.streaming_channels.get(channel)
        return 0 if stream is None else stream.tag

    def drop_streams(self, channel: int) -> None:
        """The client has closed the channel: the rest of a body, and what waits behind it, is for nobody."""
        first = self.streaming_channels.pop(channel, None)
        if first is None:
            return
        self.streams.remove(first)
        for stream in (first, *first.followers):
            self.streaming -= 1
            behind = stream.behind
            if behind is not None:
                self.behind_bytes -= behind.fill
                behind.release()
            stream.end()

    def end_streams(self) -> None:
        """Nothing more of them will be sent."""
        streams, self.streams = self.streams, []
        self.streaming_channels.clear()
        self.streaming = 0
        self.behind_bytes = 0
        for stream in streams:
            for each in (stream, *stream.followers):
                if each.behind is not None:
                    each.behind.release()
                each.end()
