"""A server that breaks the rules: the client says which, and holds no more memory than it agreed to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.client.scripted import Script, content_frames, frame, method_frame

from flintmq.client.core.errors import ClientError
from flintmq.client.core.topology import QueueRecord
from flintmq.wire import methods

DELIVER = method_frame(1, methods.BasicDeliver(consumer_tag="t", delivery_tag=1, routing_key="k"))
HEADER_OF_9 = frame(2, 1, b"\x00\x3c\0\0" + (9).to_bytes(8, "big") + b"\0\0")


def consuming() -> Script:
    script = Script(message_bytes_max=100_000)
    script.shake_hands()
    channel = script.channel()
    script.drive(
        channel.consume(QueueRecord("q"), "t", True, False, None), methods.BasicConsumeOk(consumer_tag="t")
    )
    return script


@pytest.mark.parametrize(
    ("octets", "reason"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "larger than the agreed"),
        (frame(1, 0, b"\0\x0a\0\x1e")[:-1] + b"\0", "does not end with 0xCE"),
        (frame(9, 1, b""), "unknown frame type"),
        (frame(8, 0, b"x"), "a heartbeat is empty"),
        (frame(1, 1, b"\0\x3c"), "a method frame is cut short"),
        (frame(1, 7, b"\0\x3c\0\x3c"), "is cut short"),
        (method_frame(7, methods.BasicAck(delivery_tag=1)), "channel 7 is not open"),
        (method_frame(0, methods.ConnectionTune(frame_max=4096)), "not expected in state open"),
        (method_frame(1, methods.ConnectionStart()), "nobody asked for it"),
        (frame(3, 1, b"body"), "where a method was due"),
        (frame(3, 5, b"body"), "content on channel 5, which is not open"),
        (DELIVER + DELIVER, "where a content header was due"),
        (DELIVER + frame(2, 1, b"\x00\x3c\0\0"), "a content header is cut short"),
        (DELIVER + frame(2, 1, b"\x00\x3d" + bytes(12)), "class 61 where one of class 60 was due"),
        (DELIVER + frame(2, 1, b"\x00\x3c\0\0" + b"\xff" * 8 + b"\0\0"), "message_bytes_max is 100000"),
        (DELIVER + HEADER_OF_9 + frame(3, 1, b"0123456789"), "larger than its header announced"),
        (frame(1, 1, b"\0\x3c\0\x3c" + b"\xff" * 20), "basic.deliver is cut short"),
        (frame(1, 1, b"\0\x3c\0\x3c\x01t" + bytes(9) + b"\x00\x05k"), "basic.deliver is cut short"),
        (method_frame(1, methods.BasicAck(delivery_tag=1)), "which has none"),
        (
            content_frames(1, methods.BasicDeliver(consumer_tag="other", delivery_tag=1), b"x"),
            "a consumer that there is not",
        ),
    ],
)
def test_a_broken_rule_is_named(octets: bytes, reason: str) -> None:
    script = consuming()
    script.says(octets)
    assert isinstance(script.core.failure, ClientError)
    assert reason in str(script.core.failure)


@given(st.binary(max_size=400))
def test_noise_before_the_login(octets: bytes) -> None:
    script = Script()
    script.says(octets)


@given(st.binary(max_size=200), st.integers(1, 3), st.integers(0, 2))
def test_noise_in_a_frame(payload: bytes, kind: int, channel: int) -> None:
    script = consuming()
    script.says(frame(kind, channel, payload) * 2)


@given(st.lists(st.sampled_from([DELIVER, HEADER_OF_9, frame(3, 1, b"123"), frame(3, 1, b"")]), max_size=12))
def test_frames_in_any_order(frames: list[bytes]) -> None:
    """Whole messages are delivered, anything else is a fault; in pieces or in one."""
    whole, split = consuming(), consuming()
    octets = b"".join(frames)
    whole.says(octets)
    left = bytearray()
    for octet in octets:
        left.append(octet)
        used = split.core.receive(left, len(left))
        del left[:used]
        if split.core.failure is not None:
            break
    assert str(whole.core.failure) == str(split.core.failure)
    boxes = [script.core.channels.get(1) for script in (whole, split)]
    if None not in boxes and whole.core.failure is None:
        first, second = (box.consumers["t"].inbox.waiting() for box in boxes if box is not None)
        assert first == second


def test_damaged_properties_are_found_when_they_are_read() -> None:
    script = consuming()
    bad = frame(2, 1, b"\x00\x3c\0\0" + (1).to_bytes(8, "big") + b"\x80\x00\xff")
    script.says(DELIVER + bad + frame(3, 1, b"x"))
    message = script.core.channels[1].consumers["t"].inbox.next()
    assert message is not None
    assert message.body == b"x"
    with pytest.raises(ClientError, match="damaged"):
        _ = message.properties
