"""The outgoing octets of a connection: frames as they must be, buffers that come and go."""

from __future__ import annotations

import pytest

from flintmq.protocol.fast.outbox import FastOutput
from flintmq.protocol.outbox import Output, Room
from flintmq.wire import amqp
from flintmq.wire.stream import HeldBody

# As in outbox.py, whose numbers are C's own in the compiled build.
BUFFER_BYTES = 524_288
POOL_BUFFERS_MAX = 16
SMALL_BUFFER_BYTES = 1024


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return bytes((kind,)) + channel.to_bytes(2, "big") + len(payload).to_bytes(4, "big") + payload + b"\xce"


def pending(output: Output) -> bytes:
    return bytes(output.buffer[output.start : output.fill])


def new_output() -> Output:
    return Output([], None)


def test_an_idle_connection_owns_no_buffer() -> None:
    output = new_output()
    assert (len(output.buffer), output.pending()) == (0, 0)
    output.write(b"x")
    assert len(output.buffer) == SMALL_BUFFER_BYTES
    output.sent(1)
    assert (len(output.buffer), output.pending()) == (0, 0)


def test_the_first_write_asks_for_a_flush_and_no_other() -> None:
    outbox: list[Output] = []
    sender = object()
    output = Output(outbox, sender)
    output.write(b"x")
    output.write(b"y")
    assert outbox == [output]
    assert output.sender is sender
    output.waiting = False
    output.write(b"z")
    assert outbox == [output, output]


@pytest.mark.parametrize("cut", [0, 1, 500, 1023, 1024])
def test_what_is_pending_survives_growing(cut: int) -> None:
    output = new_output()
    first = bytes(index % 251 for index in range(SMALL_BUFFER_BYTES))
    output.write(first)
    output.sent(cut)
    output.write(b"y" * 2000)
    assert pending(output) == first[cut:] + b"y" * 2000
    output.write(b"z" * BUFFER_BYTES)
    assert pending(output) == first[cut:] + b"y" * 2000 + b"z" * BUFFER_BYTES
    assert len(output.buffer) > BUFFER_BYTES
    while output.pending():
        output.sent(min(output.pending(), 100_000))
    assert len(output.buffer) == 0


def test_many_small_writes() -> None:
    output = new_output()
    written = b""
    for index in range(3000):
        piece = b"%d," % index
        output.write(piece)
        written += piece
        if index % 7 == 3:
            output.sent(5)
            written = written[5:]
    assert pending(output) == written


def test_buffers_are_used_again() -> None:
    one, two = new_output(), new_output()
    one.write(b"x" * (SMALL_BUFFER_BYTES + 1))
    buffer = one.buffer
    assert len(buffer) == BUFFER_BYTES
    one.sent(one.pending())
    two.write(b"y" * (SMALL_BUFFER_BYTES + 1))
    assert two.buffer is buffer
    two.release()
    assert two.pending() == 0


def test_only_so_many_buffers_are_kept() -> None:
    outputs = [new_output() for _ in range(POOL_BUFFERS_MAX + 4)]

    def fill() -> set[int]:
        for output in outputs:
            output.write(b"x" * (SMALL_BUFFER_BYTES + 1))
        return {id(output.buffer) for output in outputs}

    held = [output.buffer for output in outputs if fill()]
    kept = {id(buffer) for buffer in held}
    for output in outputs:
        output.release()
    assert len(fill() & kept) == POOL_BUFFERS_MAX
    for output in outputs:
        output.release()


def test_methods_and_settlements() -> None:
    output = new_output()
    output.write_method(3, b"\x00\x3c\x00\x0b")
    output.write_settlement(65535, amqp.BASIC_ACK, 2**64 - 1, 1)
    assert pending(output) == frame(1, 3, b"\x00\x3c\x00\x0b") + frame(
        1, 65535, b"\x00\x3c\x00\x50" + b"\xff" * 8 + b"\x01"
    )


@pytest.mark.parametrize("size", [0, 1, 4087, 4088, 4089, 8176, 8177, 50_000])
def test_contents_are_cut_into_frames(size: int) -> None:
    output = new_output()
    output.frame_bytes_max = 4096
    header = b"\x00\x3c" + bytes(2) + size.to_bytes(8, "big") + b"\x00\x00"
    body = bytes(index % 253 for index in range(size))
    output.write_method_content(2, b"\x00\x3c\x00\x32", header + body, len(header))
    expected = frame(1, 2, b"\x00\x3c\x00\x32") + frame(2, 2, header)
    for at in range(0, size, 4088):
        expected += frame(3, 2, body[at : at + 4088])
    assert pending(output) == expected


def test_all_outputs_share_a_budget() -> None:
    room = Room()
    room.budget_bytes = BUFFER_BYTES
    first, second = (Output([], None, room) for _ in range(2))
    first.write(bytes(20_000))
    assert (room.held_bytes, room.is_tight, room.output_bytes_max) == (BUFFER_BYTES, False, 393_216)
    second.write(bytes(2000))
    assert (room.held_bytes, room.is_tight, room.output_bytes_max) == (2 * BUFFER_BYTES, True, 16_384)
    second.sent(2000)
    assert (room.held_bytes, room.is_tight, room.output_bytes_max) == (BUFFER_BYTES, False, 393_216)
    first.sent(20_000)
    assert room.held_bytes == 0


def test_what_waits_takes_no_more_than_it_needs_where_room_is_tight() -> None:
    room = Room()
    output = Output([], None, room)
    first = bytes(index % 251 for index in range(20_000))
    output.write(first)
    room.budget_bytes = 1000
    room.take(0)
    output.sent(15_000)
    assert (room.held_bytes, pending(output)) == (5000, first[15_000:])
    assert not output.is_full()
    output.write(bytes(262_144))
    assert output.is_full()
    output.sent(output.pending())
    assert (room.held_bytes, room.is_tight) == (0, False)


class Waiting:
    """Who waits for the end of a stream."""

    def stream_ended(self) -> None:
        """Nothing follows."""


@pytest.mark.parametrize("is_fast", [False, True])
def test_what_waits_behind_a_body_that_is_dropped_takes_no_room_any_more(is_fast: bool) -> None:
    """A channel is closed while bodies are on their way, again and again: others have room as before."""
    room = Room()
    output = FastOutput([], None, room) if is_fast else Output([], None, room)
    for _ in range(3):
        for _ in range(2):
            output.stream(1, HeldBody(b"header and body", 10), Waiting(), 5)
            if isinstance(output, FastOutput):
                output.write_command(1, bytes(2000))
            else:
                output.write_method(1, bytes(2000))
        assert room.held_bytes == 2 * BUFFER_BYTES
        output.drop_streams(1)
        assert (room.held_bytes, output.is_full(), output.streaming) == (0, False, 0)
