"""JSON in bulk gives the rows that it gives one by one, whatever lies between them."""

from __future__ import annotations

import json
import math
from typing import Any

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.pipelines.queries import json_rows

SCHEMA = pyarrow.schema(
    [
        ("id", pyarrow.int64()),
        ("small", pyarrow.int32()),
        ("word", pyarrow.string()),
        ("price", pyarrow.float64()),
        ("is_new", pyarrow.bool_()),
    ]
)


def parsed(*bodies: bytes) -> tuple[list[dict[str, Any]], list[int]]:
    table, malformed = json_rows.parse(pyarrow.array(bodies, pyarrow.binary()), SCHEMA)
    rows: list[dict[str, Any]] = table.to_pylist()
    assert table.schema == SCHEMA
    return rows, malformed


def test_a_batch_of_objects() -> None:
    bodies = [
        b' {"id": %d, "price": 1, "word": "\\u00e9", "other": [1, {}]}\n' % number for number in range(100)
    ]
    rows, malformed = parsed(*bodies)
    assert malformed == []
    assert [row["id"] for row in rows] == list(range(100))
    assert rows[7] == {"id": 7, "small": None, "word": "é", "price": 1.0, "is_new": None}


@pytest.mark.parametrize(
    "body",
    [
        *(
            b"",
            b"{",
            b"[]",
            b"7",
            b"null",
            b'{"id": 1} {"id": 2}',
            b'{"id": 1}\n{"id": 2}',
            b'{"id": nothing}',
        ),
        *(b'{"id": 1.5}', b'{"id": "1"}', b'{"id": true}', b'{"id": 9223372036854775808}'),
        *(b'{"small": 2147483648}', b'{"price": "cheap"}', b'{"price": true}', b'{"is_new": 1}'),
        *(b'{"word": "\xff"}', b'{"word": "\\ud800"}', b"[" * 100_000),
    ],
)
def test_what_is_malformed_is_found_among_the_others(body: bytes) -> None:
    bodies = [b'{"id": %d}' % number for number in range(99)]
    bodies.insert(37, body)
    rows, malformed = parsed(*bodies)
    assert malformed == [37]
    assert [row["id"] for row in rows] == [*range(37), None, *range(37, 99)]
    assert parsed(body) == ([dict.fromkeys(SCHEMA.names)], [0])


def test_bodies_that_are_objects_only_together_are_not_taken_for_any() -> None:
    """The text of all has as many objects as there are bodies."""
    rows, malformed = parsed(b'{"id":', b"1}", b'{"id": 2}{"id": 3}', *[b"{}"] * 30)
    assert malformed == [0, 1, 2]
    assert all(row["id"] is None for row in rows)


def test_what_sparks_own_parser_takes_is_taken() -> None:
    rows, malformed = parsed(
        b'{"word": 5}', b'{"word": {"a": [1, null]}}', b'{"price": "NaN"}', b'{"price": "-Infinity"}',
        b'{"id": 1, "id": 2}', b'{"word": "a\\nb"}', b'{"price": -1' + b"0" * 400 + b"}",
    )  # fmt: skip
    assert malformed == []
    assert [row["word"] for row in rows[:2]] == ["5", '{"a":[1,null]}']
    assert math.isnan(rows[2]["price"])
    assert rows[3]["price"] == -math.inf
    assert rows[4]["id"] == 2
    assert rows[5]["word"] == "a\nb"
    assert rows[6]["price"] == -math.inf


texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
objects = st.fixed_dictionaries(
    {},
    optional={
        "id": st.none() | st.integers(-(2**63), 2**63 - 1),
        "small": st.integers(-(2**31), 2**31 - 1),
        "word": texts,
        "price": st.floats(allow_nan=False),
        "is_new": st.booleans(),
        "other": texts | st.lists(st.integers(), max_size=2),
    },
).map(lambda row: json.dumps(row).encode())
anything = st.binary(max_size=12) | st.sampled_from([b"{", b"}", b"{}{}", b'"', b"1}", b'{"id":'])


@given(st.lists(objects | anything, max_size=60))
def test_in_bulk_is_one_by_one(bodies: list[bytes]) -> None:
    rows, malformed = parsed(*bodies)
    alone = [parsed(body) for body in bodies]
    assert malformed == [place for place, (_, bad) in enumerate(alone) if bad]
    assert rows == [row for [row], _ in alone]
