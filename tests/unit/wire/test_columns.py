"""Columns are read as they were laid out, and what does not fit is refused."""

from __future__ import annotations

import struct

import pytest

from flintmq.wire import columns
from flintmq.wire.columns import Column, Columns, encode


def two_rows() -> bytes:
    return encode(
        2,
        10,
        12,
        [
            Column(columns.OFFSET, struct.pack("<2q", 10, 11)),
            Column(columns.TIMESTAMP, struct.pack("<2q", 5_000, 6_000)),
            Column(columns.VALUE, struct.pack("<3i", 0, 3, 8), b"onethree"),
            Column(columns.ROUTING_KEY, struct.pack("<3i", 0, 0, 1), b"k"),
        ],
    )


def test_rows_come_back() -> None:
    found = Columns(two_rows())
    assert (len(found), found.first_offset, found.next_offset) == (2, 10, 12)
    assert found.names == ("offset", "timestamp", "value", "routing_key")
    assert list(found.numbers("offset")) == [10, 11]
    assert list(found.rows()) == [
        {"offset": 10, "timestamp": 5_000, "value": b"one", "routing_key": b""},
        {"offset": 11, "timestamp": 6_000, "value": b"three", "routing_key": b"k"},
    ]
    with pytest.raises(KeyError):
        found.numbers("value")
    with pytest.raises(KeyError):
        found.octets("offset")


def test_no_rows() -> None:
    empty = Columns(
        encode(0, 7, 7, [Column(columns.OFFSET, b""), Column(columns.VALUE, struct.pack("<i", 0), b"")])
    )
    assert len(empty) == 0
    assert list(empty.rows()) == []


def test_views_share_the_body() -> None:
    found = Columns(two_rows())
    starts, data = found.octets("value")
    assert starts.obj is data.obj is found.body.obj


@pytest.mark.parametrize("size", [0, 31, 32, 100, 160])
def test_what_is_cut_short_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="octets"):
        Columns(two_rows()[:size])


def test_another_version_is_refused() -> None:
    body = bytearray(two_rows())
    body[4] = 9
    with pytest.raises(ValueError, match="version 1"):
        Columns(body)


def test_a_column_outside_the_body_is_refused() -> None:
    body = bytearray(two_rows())
    struct.pack_into("<Q", body, columns.HEAD_BYTES + 8, 1 << 40)
    with pytest.raises(ValueError, match="column offset does not fit"):
        Columns(body)


def test_unknown_columns_are_left_out() -> None:
    body = bytearray(two_rows())
    struct.pack_into("<H", body, columns.HEAD_BYTES, 99)
    assert "offset" not in Columns(body).names


def test_arrow_shares_the_memory() -> None:
    pyarrow = pytest.importorskip("pyarrow")
    batch = Columns(two_rows()).record_batch()
    assert batch.column("value").to_pylist() == [b"one", b"three"]
    assert batch.column("offset").to_pylist() == [10, 11]
    assert batch.schema.field("timestamp").type == pyarrow.timestamp("us", "UTC")
    assert Columns(two_rows()).arrow("routing_key", pyarrow.string()).to_pylist() == ["", "k"]
