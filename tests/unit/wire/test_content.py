"""What is known of the headers of a message without decoding them, and how many there may be."""

from __future__ import annotations

import pytest

from flintmq.wire import amqp, content, traits
from flintmq.wire import headers as reading
from flintmq.wire.header_edits import without_entry
from flintmq.wire.tables import encode_table


def header(table: bytes, flags: int = amqp.FLAG_HEADERS) -> bytes:
    """A content header with these headers, length included."""
    return b"\x00\x3c\x00\x00" + bytes(8) + flags.to_bytes(2, "big") + table


def sized(octets: bytes) -> bytes:
    return len(octets).to_bytes(4, "big") + octets


@pytest.mark.parametrize("octets", [1000, 70_000, 120_000])
def test_a_long_table_is_proven_without_being_decoded(octets: int) -> None:
    table = encode_table({"long": "x" * octets, "t": True, "nested": {"a": [1, 2.5, None]}})
    assert content.traits_of(header(table)) == traits.HAS_HEADERS


@pytest.mark.parametrize(
    ("entries", "most"),
    [
        (lambda count: b"\x00V" * count, traits.HEADERS_MAX),
        (lambda count: b"\x00A" + sized(b"V" * count), traits.HEADERS_MAX - 1),
        (lambda count: b"\x00F" + sized(b"\x00t\x01" * count), traits.HEADERS_MAX - 1),
        (lambda count: b"\x00A" + sized(b"A" + sized(b"b\x01" * count)), traits.HEADERS_MAX - 2),
    ],
)
def test_headers_are_counted_on_all_levels(entries, most: int) -> None:  # type: ignore[no-untyped-def]
    assert content.traits_of(header(sized(entries(most)))) == traits.HAS_HEADERS
    assert content.traits_of(header(sized(entries(most + 1)))) & traits.TOO_MANY


def test_a_table_that_cannot_be_vouched_for_is_left_to_others_however_long() -> None:
    numbered = sized(b"\x01a\xf0" * 10_000)
    assert content.traits_of(header(numbered)) & traits.UNPROVEN


@pytest.mark.parametrize(
    "value",
    [
        b"S" + sized(b"text"),
        b"I" + bytes(4),
        b"x" + sized(b"octets"),
        b"l" + bytes(8),
        b"F" + sized(b"\x01tt\x01"),
        b"A" + sized(b"S" + sized(b"text") + b"I" + bytes(4)),
    ],
)
def test_an_entry_that_is_cut_short_is_not_vouched_for(value: bytes) -> None:
    entry = b"\x04name" + value
    assert content.traits_of(header(sized(b"\x01nI" + bytes(4) + entry))) == traits.HAS_HEADERS
    for end in range(1, len(entry)):
        table = sized(b"\x01nI" + bytes(4) + entry[:end])
        assert content.traits_of(header(table)) & traits.UNPROVEN, end


@pytest.mark.parametrize("kind", [b"S", b"x", b"F", b"A"])
@pytest.mark.parametrize("size", [1, 2**31 - 1, 2**31, 2**32 - 1])
def test_a_length_that_does_not_fit_is_not_vouched_for(kind: bytes, size: int) -> None:
    table = sized(b"\x01n" + kind + size.to_bytes(4, "big"))
    assert content.traits_of(header(table)) & traits.UNPROVEN


def test_one_header_of_many_is_found_and_the_others_are_not_decoded() -> None:
    # An S that is no UTF-8 would be octets, were it looked at.
    table = sized(b"\x02CCA" + sized(b"S" + sized(b"one")) + b"\x01xS" + sized(b"\xff") + b"\x02CCt\x01")
    whole = header(table) + b"body"
    size = len(whole) - 4
    assert [each[2] - each[0] for each in reading.entry_places(whole, size, b"CC")] == [16, 5]
    assert reading.read_header(whole, size, b"CC") == (["one"], True)  # the first one of that name
    assert reading.read_header(whole, size, b"BCC") == (None, False)
    left = without_entry(whole[:size], "CC")
    assert reading.read_headers(left, len(left)) == {"x": b"\xff"}
    assert without_entry(left, "CC") is left


def test_all_headers_are_what_tables_makes_of_them() -> None:
    table = encode_table({"a": "text", "b": 1, "c": 2**40, "d": 1.5, "e": False, "f": None, "g": [{"h": 2}]})
    whole = header(table)
    found = {"a": "text", "b": 1, "c": 2**40, "d": 1.5, "e": False, "f": None, "g": [{"h": 2}]}
    assert reading.read_headers(whole, len(whole)) == found
