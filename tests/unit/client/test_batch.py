"""Rows encoded many at a time are the frames that the general codec makes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.client.scripted import content_frames

from flintmq.client.core.batch import Rows, header_frame_bytes, publish_frame, row_head, total_bytes
from flintmq.client.core.channel import ROWS_BYTES, ROWS_MAX, slices
from flintmq.wire import amqp, methods
from flintmq.wire.fields import encode_shortstr
from flintmq.wire.properties import BasicProperties, encode_properties


@given(st.lists(st.binary(max_size=300), max_size=20), st.integers(64, 200), st.integers(1, 2000))
def test_rows_are_the_frames_of_basic_publish(bodies: list[bytes], frame_max: int, octets_max: int) -> None:
    method = publish_frame(3, encode_shortstr("an exchange"), encode_shortstr("a.key"), 1)
    properties = encode_properties(BasicProperties(delivery_mode=2))
    rows = Rows(3, row_head(3, amqp.CLASS_BASIC, method, properties), None, bodies)
    encoded = b""
    while chunk := rows.encode(frame_max, octets_max):
        encoded += chunk
    publish = methods.BasicPublish(exchange="an exchange", routing_key="a.key", mandatory=True)
    expected = [content_frames(3, publish, body, frame_max - 8, delivery_mode=2) for body in bodies]
    assert encoded == b"".join(expected)


@given(st.lists(st.tuples(st.binary(max_size=20), st.text(max_size=10), st.integers(0, 9)), max_size=20))
def test_rows_that_differ(rows: list[tuple[bytes, str, int]]) -> None:
    heads = [
        row_head(
            1,
            amqp.CLASS_BASIC,
            publish_frame(1, b"\0", encode_shortstr(key), 0),
            encode_properties(BasicProperties(priority=priority)),
        )
        for _, key, priority in rows
    ]
    batch = Rows(1, b"", heads, [body for body, _, _ in rows])
    expected = [
        content_frames(1, methods.BasicPublish(routing_key=key), body, priority=priority)
        for body, key, priority in rows
    ]
    assert batch.encode(4096, 1_000_000) == b"".join(expected)
    picked = batch.pick(range(0, len(rows), 2))
    assert picked.encode(4096, 1_000_000) == b"".join(expected[::2])


@given(st.text(max_size=50), st.text(max_size=50))
def test_the_header_frame_of_a_head(key: str, content_type: str) -> None:
    method = publish_frame(1, b"\0", encode_shortstr(key), 0)
    properties = encode_properties(BasicProperties(content_type=content_type))
    head = row_head(1, amqp.CLASS_BASIC, method, properties)
    assert header_frame_bytes(head) == len(head) - len(method) == len(properties) + 20


class Octets(bytes):
    """Reads like bytes, and is no such."""


@pytest.mark.parametrize("body", ["text", bytearray(b"text"), Octets(b"text")])
def test_a_body_that_is_no_bytes_is_named(body: bytes) -> None:
    with pytest.raises(TypeError, match=f"body 1 must be bytes, not {type(body).__name__}"):
        total_bytes([b"", body])


def test_slices_are_bounded_in_number_and_in_octets() -> None:
    many = [b"x"] * (ROWS_MAX + 1)
    assert [len(piece) for piece in slices(iter(many))] == [ROWS_MAX, 1]
    large = [bytes(ROWS_BYTES // 2)] * 5
    assert [len(piece) for piece in slices(large)] == [2, 1, 2]
    huge = [bytes(ROWS_BYTES + 1)]
    assert list(slices(huge)) == [huge]
