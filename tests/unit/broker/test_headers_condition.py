"""Matching of headers: the four modes, presence, type classes, and what is looked at."""

from __future__ import annotations

from typing import Any

import pytest

from flintmq.broker.exchanges.exchange import HeadersExchange
from flintmq.broker.matching.headers_condition import match_mode
from flintmq.broker.matching.lookup import AskedNames, lookup_for
from flintmq.broker.messages.message import new_message
from flintmq.errors import ChannelFault, ConnectionFault
from flintmq.wire.tables import encode_table


class Queue:
    def __init__(self, name: str) -> None:
        self.name = name


QUEUES = [Queue(f"q{number}") for number in range(1000)]


def matches(arguments: dict[str, Any], headers: dict[str, Any]) -> bool:
    exchange = HeadersExchange("x")
    exchange.bind(QUEUES[0], "", arguments)
    found: dict[Any, Any] = {}
    exchange.route("", headers.copy, found)
    return QUEUES[0] in found


def test_all_is_the_default() -> None:
    arguments = {"format": "pdf", "pages": 2}
    assert matches(arguments, {"format": "pdf", "pages": 2, "more": 1})
    assert not matches(arguments, {"format": "pdf"})
    assert not matches(arguments, {"format": "pdf", "pages": 3})
    assert not matches(arguments, {})


def test_any() -> None:
    arguments = {"x-match": "any", "format": "pdf", "pages": 2}
    assert matches(arguments, {"format": "pdf"})
    assert matches(arguments, {"format": "doc", "pages": 2})
    assert not matches(arguments, {"format": "doc", "pages": 3})
    assert not matches(arguments, {})


def test_all_of_nothing_matches_all_and_any_of_nothing_matches_none() -> None:
    for headers in ({}, {"a": 1}):
        assert matches({}, headers)
        assert matches({"x-match": "all"}, headers)
        assert not matches({"x-match": "any"}, headers)
        assert not matches({"x-match": "any-with-x"}, headers)


def test_names_with_x_count_only_when_asked_for() -> None:
    assert matches({"x-match": "all", "x-a": 1, "b": 2}, {"b": 2})
    assert not matches({"x-match": "all-with-x", "x-a": 1, "b": 2}, {"b": 2})
    assert matches({"x-match": "all-with-x", "x-a": 1, "b": 2}, {"b": 2, "x-a": 1})
    assert not matches({"x-match": "any", "x-a": 1, "b": 2}, {"x-a": 1})
    assert matches({"x-match": "any-with-x", "x-a": 1, "b": 2}, {"x-a": 1})
    assert matches({"x-match": "all", "x-a": 1}, {})


def test_x_match_is_never_a_term() -> None:
    assert not matches({"x-match": "any-with-x"}, {"x-match": "any-with-x"})
    assert matches({"x-match": "all-with-x"}, {})


@pytest.mark.parametrize("mode", ["all", "any"])
def test_no_value_asks_for_presence(mode: str) -> None:
    arguments = {"x-match": mode, "a": None}
    present: list[Any] = [None, 0, "", "x", False, []]
    for value in present:
        assert matches(arguments, {"a": value})
    assert not matches(arguments, {"b": 1})


def test_a_header_without_value_matches_presence_alone() -> None:
    assert not matches({"a": ""}, {"a": None})
    assert not matches({"a": 0}, {"a": None})


@pytest.mark.parametrize(
    ("wanted", "given", "expected"),
    [
        (1, 1, True),
        (1, 1.0, True),
        (True, 1, False),
        (1, True, False),
        ("1", 1, False),
        ("a", b"a", True),
        (b"\xff", bytearray(b"\xff"), True),
        ("a", "A", False),
        ([1, "a"], [1, "a"], True),
        ([1, "a"], ["a", 1], False),
        ({"k": [True]}, {"k": [True]}, True),
        ({"k": [True]}, {"k": [1]}, False),
    ],
)
@pytest.mark.parametrize("mode", ["all", "any"])
def test_type_classes(mode: str, wanted: Any, given: Any, expected: bool) -> None:
    assert matches({"x-match": mode, "a": wanted}, {"a": given}) is expected


@pytest.mark.parametrize("mode", ["ALL", "", "some", 1, None, True, b"all", ["all"], "x" * 5000])
def test_another_x_match_is_refused(mode: Any) -> None:
    with pytest.raises(ChannelFault, match="x-match") as fault:
        match_mode({"x-match": mode})
    assert fault.value.code == 406
    assert len(fault.value.reply_text.encode()) <= 255


def test_removal_leaves_nothing() -> None:
    bindings: list[dict[str, Any]] = [
        {},
        {"a": 1},
        {"a": None},
        {"a": 1, "b": None},
        {"x-match": "any", "a": 1, "b": None},
        {"x-match": "any-with-x", "x-a": [1]},
        {"x-match": "any"},
    ]
    exchange = HeadersExchange("x")
    for arguments in bindings:
        exchange.bind(QUEUES[0], "", arguments)
        exchange.bind(QUEUES[1], "", arguments)
    for arguments in bindings:
        exchange.unbind(QUEUES[0], "", arguments)
        exchange.unbind(QUEUES[1], "", arguments)
    assert not exchange.index.names
    assert not exchange.index.conditions
    assert exchange.index.everywhere is None


def test_conditions_hang_on_their_rarest_term() -> None:
    """One common term must not make every message look at every binding."""
    exchange = HeadersExchange("x")
    for number in range(1000):
        exchange.bind(QUEUES[number], "", {"common": "yes", "number": number, "there": None})
    names = exchange.index.names
    assert "there" not in names
    assert "common" not in names or len(names["common"].values or {}) <= 1
    assert len(names["number"].values or {}) >= 999
    found: dict[Any, Any] = {}
    headers = {"common": "yes", "number": 500, "there": 1}
    exchange.route("", headers.copy, found)
    assert list(found) == [QUEUES[500]]


def test_bindings_with_the_same_terms_are_checked_once() -> None:
    exchange = HeadersExchange("x")
    for number in range(1000):
        exchange.bind(QUEUES[number], "", {"a": 1, "b": 2, "x-ignored": number})
    assert len(exchange.index.conditions) == 1


def message_with(table: bytes) -> Any:
    """A message with these octets as its header table."""
    header = b"\x00\x3c\x00\x00" + bytes(8) + b"\x20\x00" + len(table).to_bytes(4, "big") + table
    return new_message(b"\x00\x00", header, len(header), 0, 0)


def fields(table: dict[str, Any]) -> bytes:
    return encode_table(table)[4:]


def test_of_thousands_of_headers_those_are_decoded_that_bindings_ask_for() -> None:
    asked = AskedNames()
    for name in ("colour", "size", "colour"):
        asked.add(name)
    many = {f"h{number}": number for number in range(2000)}
    lookup = lookup_for(message_with(fields({**many, "colour": "red", "nowhere": [1, {"a": 2}]})), "key")
    assert lookup.headers_among(asked) == {"colour": "red"}
    assert lookup.has_header("colour")
    assert not lookup.has_header("size")
    assert lookup.form("colour") == "red"
    assert lookup.value("size") is None
    assert lookup.form("h77") == 77  # who asks for another one has all of them decoded
    assert len(lookup.headers()) == 2002

    asked.remove("colour")
    asked.add("h1999")
    lookup = lookup_for(message_with(fields({**many, "colour": "red"})), "key")
    assert lookup.headers_among(asked) == {"h1999": 1999, "colour": "red"}
    asked.remove("colour")
    lookup = lookup_for(message_with(fields({**many, "colour": "red"})), "key")
    assert lookup.headers_among(asked) == {"h1999": 1999}


def test_another_exchange_has_all_headers_decoded() -> None:
    first, second = AskedNames(), AskedNames()
    first.add("h1")
    second.add("h2")
    many = {f"h{number}": number for number in range(2000)}
    lookup = lookup_for(message_with(fields(many)), "key")
    assert lookup.headers_among(first) == {"h1": 1}
    assert lookup.headers_among(second) == many
    assert lookup.headers_among(first) == many


def test_of_a_name_that_is_there_twice_the_first_value_counts() -> None:
    asked = AskedNames()
    asked.add("twice")
    padding = fields({f"h{number}": number for number in range(500)})
    lookup = lookup_for(message_with(fields({"twice": 1}) + padding + fields({"twice": 2})), "key")
    assert lookup.headers_among(asked) == {"twice": 1}


def test_a_large_table_with_a_mistake_is_refused() -> None:
    asked = AskedNames()
    asked.add("other")
    octets = fields({f"h{number}": number for number in range(500)}) + b"\x01h?"
    with pytest.raises(ConnectionFault):
        lookup_for(message_with(octets), "key").headers_among(asked)


@pytest.mark.parametrize("fields_more", [0, 500])
def test_large_headers_match_as_small_ones_do(fields_more: int) -> None:
    """Whether all of the headers are decoded or only some makes no difference to the queues that get it."""
    exchange = HeadersExchange("x")
    values = [None, 1, "1", True, 2.5, b"\xff", [1], {"n": 1}]
    for number in range(200):
        mode = ("all", "any", "all-with-x", "any-with-x")[number % 4]
        terms = {f"n{number * 7 % 11}": values[number % 8], f"x-n{number % 5}": values[number * 3 % 8]}
        exchange.bind(QUEUES[number], "", {"x-match": mode, **terms})
    padding = {f"more{number}": "x" for number in range(fields_more)}
    for number in range(100):
        given = {f"n{number % 11}": values[number % 8], f"x-n{number % 5}": values[number * 5 % 8]}
        given[f"n{(number + 3) % 11}"] = values[number // 8 % 8]
        expected: dict[Any, Any] = {}
        exchange.route("", given.copy, expected)
        found: dict[Any, Any] = {}
        exchange.route("", lookup_for(message_with(fields({**padding, **given})), ""), found)
        assert set(found) == set(expected)
