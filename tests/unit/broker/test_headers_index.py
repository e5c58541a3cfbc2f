"""Matching of headers: the four modes, presence, type classes, and what is looked at."""

from __future__ import annotations

from typing import Any

import pytest

from flintmq.broker.headers_index import HeadersIndex, match_mode
from flintmq.errors import ChannelFault


def matches(arguments: dict[str, Any], headers: dict[str, Any]) -> bool:
    index = HeadersIndex()
    index.add(arguments, "q")
    found: dict[Any, Any] = {}
    index.match(headers, found)
    return "q" in found


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
    assert len(fault.value.text.encode()) <= 255


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
    index = HeadersIndex()
    for arguments in bindings:
        index.add(arguments, "q")
        index.add(arguments, "r")
    for arguments in bindings:
        index.remove(arguments, "q")
        index.remove(arguments, "r")
    assert not index.names
    assert not index.requirements
    assert index.always is None


def test_removing_unknown_arguments_is_an_error() -> None:
    index = HeadersIndex()
    index.add({"a": 1}, "q")
    unknown: list[dict[str, Any]] = [{"a": 2}, {"b": 1}, {"x-match": "any", "c": 1}, {}]
    for arguments in unknown:
        with pytest.raises(KeyError):
            index.remove(arguments, "q")


def test_requirements_hang_on_their_rarest_term() -> None:
    """One common term must not make every message look at every binding."""
    index = HeadersIndex()
    for number in range(1000):
        index.add({"common": "yes", "number": number, "there": None}, number)
    header = index.names["common"]
    assert len(header.all_values or {}) <= 1
    assert index.names["there"].all_present is None
    numbers = index.names["number"].all_values
    assert numbers is not None
    assert len(numbers) >= 999
    found: dict[Any, Any] = {}
    index.match({"common": "yes", "number": 500, "there": 1}, found)
    assert list(found) == [500]


def test_bindings_with_the_same_terms_are_checked_once() -> None:
    index = HeadersIndex()
    for number in range(1000):
        index.add({"a": 1, "b": 2, "x-ignored": number}, number)
    assert len(index.requirements) == 1
