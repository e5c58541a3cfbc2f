"""What makes two bindings the same, when header values match, and how bindings are named."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from itertools import combinations
from typing import Any

import pytest

from flintmq.broker.exchanges.exchange import DirectExchange
from flintmq.broker.matching.field_equality import matching_form, table_form, typed_form


class Queue:
    def __init__(self, name: str = "q") -> None:
        self.name = name


MOMENT = datetime(2024, 5, 1, 12, tzinfo=UTC)
DISTINCT: list[Any] = [
    None,
    "",
    "1",
    "nan",
    0,
    1,
    0.0,
    1.0,
    float("nan"),
    True,
    False,
    Decimal("1"),
    Decimal("1.0"),
    MOMENT,
    int(MOMENT.timestamp()),
    [],
    [1],
    [True],
    [1.0],
    ["1"],
    {},
    {"a": 1},
    {"a": True},
    {"a": [1]},
    {"b": 1},
]


@pytest.mark.parametrize(("one", "other"), list(combinations(DISTINCT, 2)))
def test_types_count_in_identity(one: Any, other: Any) -> None:
    assert typed_form(one) != typed_form(other)


@pytest.mark.parametrize("value", DISTINCT)
def test_a_value_equals_itself(value: Any) -> None:
    copy = float("nan") if value != value else value
    assert typed_form(copy) == typed_form(value)
    assert hash(typed_form(copy)) == hash(typed_form(value))
    assert matching_form(copy) == matching_form(value)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (MOMENT, int(MOMENT.timestamp())),
        ("ä", "ä".encode()),
        (b"\xff\x00", bytearray(b"\xff\x00")),
        (MOMENT, MOMENT.replace(tzinfo=None)),
        (MOMENT, MOMENT.astimezone(timezone(timedelta(hours=2)))),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    ],
)
def test_values_that_match(one: Any, other: Any) -> None:
    assert matching_form(one) == matching_form(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [(True, 1), (False, 0), ("1", 1), (None, ""), (None, 0), (Decimal(1), 1), ([1], [1.0]), ([1], [True])],
)
def test_values_that_do_not_match(one: Any, other: Any) -> None:
    assert matching_form(one) != matching_form(other)


def test_order_of_fields_does_not_count() -> None:
    assert table_form({"a": 1, "b": "x"}) == table_form({"b": "x", "a": 1})


def test_what_no_field_table_holds_is_refused() -> None:
    with pytest.raises(TypeError, match="set"):
        typed_form({1})  # type: ignore[arg-type]


def properties_key(routing_key: str, arguments: dict[str, Any]) -> str:
    exchange, queue = DirectExchange("x"), Queue()
    exchange.bind(queue, routing_key, arguments)
    return next(iter(exchange.bindings_after(0))).properties_key


@pytest.mark.parametrize(
    ("routing_key", "expected"),
    [
        ("", "~"),
        ("orders", "orders"),
        ("a.*.#", "a.%2A.%23"),
        ("foo~bar/bash", "foo%7Ebar%2Fbash"),
        ("two words", "two+words"),
    ],
)
def test_properties_key_without_arguments(routing_key: str, expected: str) -> None:
    assert properties_key(routing_key, {}) == expected


def test_properties_key_with_arguments_tells_them_apart() -> None:
    keys = [properties_key("k", {"a": value}) for value in (1, 1.0, True, "1", "\udcff", [1], {"b": None})]
    assert len(set(keys)) == len(keys)
    for key in keys:
        name, _, digest = key.partition("~")
        assert name == "k"
        assert len(digest) == 22
    assert properties_key("", {"a": 1}).startswith("~")
    assert properties_key("k", {"a": 1, "b": 2}) == properties_key("k", {"b": 2, "a": 1})


def test_arguments_are_a_copy() -> None:
    exchange, queue = DirectExchange("x"), Queue()
    arguments: dict[str, Any] = {"a": 1}
    exchange.bind(queue, "k", arguments)
    arguments["a"] = 2
    (binding,) = exchange.bindings.values()
    assert binding.arguments == {"a": 1}
    assert (binding.source, binding.destination, binding.routing_key) == (exchange, queue, "k")
