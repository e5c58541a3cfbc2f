"""Bodies that are read piece by piece: whose frames come when."""

from __future__ import annotations

from flintmq.protocol.outbox import Output
from flintmq.wire import amqp

FRAME_BYTES_MAX = 65_544
PIECE = 65_536
OUTPUT_BYTES_STOP = 16_777_216
STREAMS_READ_MAX = 16


class Source:
    """A body of so many octets of one kind, and who is told of its end."""

    def __init__(self, octets: int) -> None:
        self.octets = octets
        self.reads = 0
        self.closed = 0
        self.ended = 0

    def read(self, at: int, count: int) -> bytes:
        assert at + count <= self.octets
        self.reads += 1
        return b"b" * count

    def close(self) -> None:
        self.closed += 1

    def stream_ended(self) -> None:
        self.ended += 1


def new_output() -> Output:
    output = Output([], None)
    output.frame_bytes_max = FRAME_BYTES_MAX
    return output


def begin(output: Output, channel: int, octets: int) -> Source:
    source = Source(octets)
    output.write_method_content(channel, b"get-ok", b"header", 6)
    output.stream(channel, source, source)
    return source


def sent(output: Output, turns: int = 1000) -> list[tuple[int, int, int]]:
    """Kind, channel and size of the frames that leave in so many turns."""
    octets = b""
    for _ in range(turns):
        output.fill_from_streams()
        octets += bytes(output.buffer[output.start : output.fill])
        output.sent(output.pending())
    frames = []
    at = 0
    while at < len(octets):
        size = int.from_bytes(octets[at + 3 : at + 7], "big")
        assert octets[at + 7 + size] == amqp.FRAME_END
        frames.append((octets[at], int.from_bytes(octets[at + 1 : at + 3], "big"), size))
        at += size + 8
    return frames


def test_a_body_leaves_in_frames_of_the_agreed_size_and_ends() -> None:
    output = new_output()
    source = begin(output, 1, 2 * PIECE + 5)
    assert sent(output) == [(1, 1, 6), (2, 1, 6), (3, 1, PIECE), (3, 1, PIECE), (3, 1, 5)]
    assert (source.closed, source.ended, output.streaming) == (1, 1, 0)


def test_no_more_is_read_than_there_is_room_for() -> None:
    output = new_output()
    source = begin(output, 1, 100 * PIECE)
    output.fill_from_streams()
    output.fill_from_streams()
    assert source.reads == 2
    assert output.streaming == 1


def test_streams_take_turns() -> None:
    output = new_output()
    begin(output, 1, 3 * PIECE)
    begin(output, 2, 2 * PIECE)
    bodies = [channel for kind, channel, _ in sent(output) if kind == amqp.FRAME_BODY]
    assert bodies == [1, 2, 1, 2, 1]


def test_other_channels_come_between_and_the_own_waits() -> None:
    output = new_output()
    begin(output, 1, 6 * PIECE)
    first = sent(output, 1)
    output.write_method(1, b"behind")
    output.write_settlement(1, amqp.BASIC_ACK, 1, 0)
    output.write_method(2, b"between")
    frames = first + sent(output)
    assert frames.index((1, 2, 7)) < len(frames) - 3
    assert frames[-3:] == [(3, 1, PIECE), (1, 1, 6), (1, 1, 13)]


def test_streams_of_one_channel_follow_one_another() -> None:
    output = new_output()
    for _ in range(3):
        begin(output, 1, 2 * PIECE)
        output.write_method(1, b"end")
    one = [(1, 1, 6), (2, 1, 6), (3, 1, PIECE), (3, 1, PIECE), (1, 1, 3)]
    assert sent(output) == one * 3
    assert output.behind_bytes == 0


def test_a_thousand_streams_of_one_channel_are_no_deep_matter() -> None:
    output = new_output()
    sources = [begin(output, 1, 10) for _ in range(3000)]
    assert not output.is_full()
    assert len(sent(output)) == 3 * 3000
    assert all(source.closed == 1 for source in sources)


def test_what_waits_behind_a_stream_counts_as_output() -> None:
    output = new_output()
    begin(output, 1, PIECE)
    while output.behind_bytes <= OUTPUT_BYTES_STOP:
        assert not output.is_full()
        output.write_method(1, b"x" * 1_000_000)
    assert output.is_full()
    sent(output)
    assert (output.is_full(), output.behind_bytes) == (False, 0)


def test_too_many_streams_count_as_full() -> None:
    output = new_output()
    for _ in range(4097):
        begin(output, 1, PIECE)
    assert output.is_full()


def test_only_some_are_read_at_a_time() -> None:
    output = new_output()
    sources = [begin(output, channel, 100 * PIECE) for channel in range(1, 41)]
    sent(output, 60)
    assert sum(source.reads > 0 for source in sources) == STREAMS_READ_MAX


def test_an_end_of_all_closes_each_once() -> None:
    output = new_output()
    sources = [begin(output, channel, 9 * PIECE) for channel in (1, 1, 2)]
    sent(output, 1)
    output.end_streams()
    assert [(source.closed, source.ended) for source in sources] == [(1, 1)] * 3
    assert (output.streaming, sent(output)) == (0, [])
