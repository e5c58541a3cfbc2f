"""Headers keep their types through a data frame."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from flintmq.spark.errors import AmqpError
from flintmq.spark.header_values import Table, described, table_of
from flintmq.wire.tables import FieldTable, FieldValue, Timestamp, decode_table, encode_table

TABLE: FieldTable = {
    "text": "a",
    "octets": b"\x00\xff",
    "whole": 7,
    "large": (1 << 64) - 1,
    "real": 0.5,
    "flag": True,
    "time": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    "far": Timestamp(1 << 60),
    "exact": Decimal("1.20"),
    "nothing": None,
    "list": [1, "a", b"\x01", datetime(2026, 1, 1, tzinfo=UTC)],
    "table": {"inner": {"exact": Decimal("0.1"), "far": Timestamp(1 << 60), "large": (1 << 64) - 1}},
}


def test_what_was_read_can_be_written_again() -> None:
    row = [(name, described(value)) for name, value in TABLE.items()]
    again = table_of(row)
    assert again is not None
    assert again == TABLE
    # A whole number above 63 bits stays one, and is none for a decimal, which no message can hold.
    assert type(again["large"]) is int
    assert decode_table(encode_table(again), 0, len(encode_table(again)))[0]["large"] in (
        TABLE["large"],
        str(TABLE["large"]),
    )


@pytest.mark.parametrize(
    "table",
    [
        {"$binary": "no digits"},
        {"$binary": "00"},
        {"$table": {"a": 1}},
        {"$table": {"$seconds": "x"}},
        {"$": b"x"},
        {"$timestamp": {"$decimal": [Decimal("1.5")]}},
    ],
)
def test_a_table_that_looks_like_a_value_stays_a_table(table: FieldTable) -> None:
    """Names are for whoever publishes: none of them may end the query that copies the message."""
    for value in (table, [table], {"inner": table}):
        assert table_of([("a", described(value))]) == {"a": value}


@pytest.mark.parametrize(
    ("value", "kind"), [("a", "string"), (7, "long"), (True, "boolean"), (0.5, "double")]
)
def test_the_value_is_in_the_field_of_its_type(value: FieldValue, kind: str) -> None:
    assert described(value) == {"type": kind, kind: value}


def test_plain_maps_are_taken_as_they_are() -> None:
    assert table_of({"a": "text", "b": 5}) == {"a": "text", "b": 5}
    assert table_of(None) is None


def test_a_type_without_its_value_is_told() -> None:
    with pytest.raises(AmqpError, match="Header 'a' says it is of type 'long'"):
        table_of({"a": {"type": "long", "long": None, "string": "7"}})


def test_a_map_in_a_map_is_a_table() -> None:
    assert table_of({"a": Table(type="text", n=1), "b": [1]}) == {"a": {"type": "text", "n": 1}, "b": [1]}


@pytest.mark.parametrize("large", [1 << 63, (1 << 64) - 1])
def test_whole_decimals_of_64_bits_without_a_sign_are_whole_numbers(large: int) -> None:
    """DECIMAL(20, 0) is what Spark has for them; no decimal of a message can hold as much."""
    made = table_of({"plain": Decimal(large), "inner": Table(each=[Decimal(large), None])})
    assert made == {"plain": large, "inner": {"each": [large, None]}}
    assert type(made["plain"]) is int
    octets = encode_table(made)
    assert decode_table(octets, 0, len(octets))[0] == {
        "plain": str(large),
        "inner": {"each": [str(large), None]},
    }


def test_other_decimals_stay_decimals() -> None:
    made = table_of({"a": Decimal("1.50"), "b": Decimal(7)})
    assert made is not None
    assert [type(each) for each in made.values()] == [Decimal, Decimal]
