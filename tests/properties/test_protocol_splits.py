"""However octets are cut into reads, the same events follow, and the same fault at the same place."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.errors import ChannelFault, ConnectionFault
from flintmq.protocol.channel import Channel
from flintmq.protocol.connection import Connection
from flintmq.protocol.events import Events
from flintmq.protocol.outbox import Output
from flintmq.protocol.states import END
from flintmq.wire import methods
from flintmq.wire.methods import Method, encode_method

FRAME_BYTES_MAX = 200


class Notes(Events):
    """Writes down what the connection tells."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def method(self, channel: Channel | None, method: Method) -> None:
        self.told.append(("method", None if channel is None else channel.number, repr(method)))

    def publish(self, channel: Channel, route: bytes, flags: int, content: bytes, header_size: int) -> None:
        self.told.append(("publish", channel.number, route, flags, content, header_size))

    def ack(self, channel: Channel, tag: int, multiple: bool) -> None:
        self.told.append(("ack", channel.number, tag, bool(multiple)))

    def content(self, channel: Channel, method: Method, content: bytes, header_size: int) -> None:
        self.told.append(("content", channel.number, repr(method), content, header_size))

    def fault(self, channel: Channel, fault: ChannelFault) -> None:
        self.told.append(("fault", channel.number, fault.code))
        channel.follow(END)

    def greeted(self, version: int) -> None:
        self.told.append(("greeted", version))


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return bytes((kind,)) + channel.to_bytes(2, "big") + len(payload).to_bytes(4, "big") + payload + b"\xce"


def hear(pieces: list[bytes]) -> list[tuple[Any, ...]]:
    """All that is told of the pieces as so many reads, with the fault that ended it last."""
    notes = Notes()
    connection = Connection(notes, Output([], None), 1000)
    connection.receive(bytearray(b"AMQP\x00\x00\x09\x01"), 8)
    for event in ("> connection.tune", "connection.tune-ok", "> connection.open-ok"):
        connection.follow(event)
    connection.channel_max = 4
    connection.frame_bytes_max = FRAME_BYTES_MAX
    opening = b"".join(frame(1, n, encode_method(91, methods.ChannelOpen())) for n in (1, 2))
    connection.receive(bytearray(opening), len(opening))
    leftover = b""
    for piece in pieces:
        # Octets after the end must never be looked at: these would be a fault.
        buffer = bytearray(leftover + piece + b"\xff" * 64)
        size = len(leftover) + len(piece)
        try:
            used = connection.receive(buffer, size)
        except ConnectionFault as fault:
            return [*notes.told, ("closed", fault.code, fault.text)]
        assert 0 <= used <= size
        leftover = bytes(buffer[used:size])
    return [*notes.told, ("left", len(leftover))]


channels = st.sampled_from([1, 1, 1, 2, 2, 0, 3])
sizes = st.one_of(st.integers(0, 30), st.sampled_from([189, 190, 191, 192, 193, 194, 200, 201, 1000, 1001]))


@st.composite
def publishes(draw: st.DrawFn) -> bytes:
    """basic.publish with a content that is nearly always right."""
    channel = draw(channels)
    size = draw(sizes)
    announced = draw(st.sampled_from([size, size, size, size, size + 1, max(0, size - 1), 2**64 - 1]))
    header = draw(st.sampled_from([b"\x00\x00", b"\x10\x00\x02", b"\x80\x00\x03abc", b""]))
    piece = draw(st.sampled_from([FRAME_BYTES_MAX - 8, 250, 7]))
    method = methods.BasicPublish(exchange="e", routing_key=draw(st.sampled_from(["", "key"])))
    octets = frame(1, channel, encode_method(91, method))
    octets += frame(
        2,
        draw(st.sampled_from([channel] * 9 + [2])),
        b"\x00\x3c\x00\x00" + announced.to_bytes(8, "big") + header,
    )
    for at in range(0, size, piece):
        octets += frame(3, channel, bytes(min(piece, size - at)))
    return octets


plain = st.sampled_from(
    [
        methods.BasicAck(delivery_tag=2**64 - 1, multiple=True),
        methods.BasicNack(delivery_tag=1),
        methods.QueueDeclare(queue="q", arguments={"a": 1}),
        methods.ChannelClose(reply_code=200, reply_text="bye"),
        methods.ChannelOpen(),
        methods.BasicPublish(),
    ]
)
phrases = st.one_of(
    publishes(),
    st.builds(lambda channel, method: frame(1, channel, encode_method(91, method)), channels, plain),
    st.builds(frame, st.sampled_from([1, 2, 3, 8]), channels, st.binary(max_size=20)),
    st.just(frame(8, 0, b"")),
    st.just(frame(3, 1, b"")),
)
conversations = st.lists(st.one_of(publishes(), phrases), min_size=1, max_size=6).map(b"".join)


@given(conversations, st.data())
@settings(max_examples=300)
def test_any_cuts_give_the_same_events(octets: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(octets)), max_size=8)))
    pieces = [octets[start:end] for start, end in zip([0, *cuts], [*cuts, len(octets)], strict=True)]
    assert hear(pieces) == hear([octets])


@given(publishes(), phrases)
@settings(max_examples=60)
def test_a_cut_at_every_offset_gives_the_same_events(first: bytes, second: bytes) -> None:
    octets = first + second
    whole = hear([octets])
    for at in range(len(octets)):
        assert hear([octets[:at], octets[at:]]) == whole
    assert hear([octets[at : at + 1] for at in range(len(octets))]) == whole


@given(conversations, st.data())
@settings(max_examples=300)
def test_damaged_octets_give_the_same_events_however_they_are_cut(octets: bytes, data: st.DataObject) -> None:
    damaged = bytearray(octets)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(octets) - 1))] = data.draw(st.integers(0, 255))
    at = data.draw(st.integers(0, len(octets)))
    assert hear([bytes(damaged[:at]), bytes(damaged[at:])]) == hear([bytes(damaged)])
