"""Lists of many rows: made in portions, with a limit on what a pattern may cost."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, strategies

from flintmq.management.app import App
from flintmq.management.broker_state.shapes import inner
from flintmq.management.requests.context import Context
from flintmq.management.requests.faults import BadRequest
from flintmq.management.requests.identities import NOBODY
from flintmq.management.requests.listing import (
    Listing,
    ListResponse,
    Part,
    answer,
    columns_of,
    narrowed,
    orderly,
)
from flintmq.management.requests.routes import Call


class Work:
    """A clock that rows move on: to look at one takes a millisecond."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic_s(self) -> float:
        return self.now_s

    def on(self, row: str) -> str:
        self.now_s += 0.001
        return row


def listed(query: dict[str, str], count: int) -> tuple[Any, float]:
    """The list as it is answered, and how long another request had to wait meanwhile."""
    work = Work()

    async def use() -> tuple[Any, float]:
        context = Context(SimpleNamespace(), SimpleNamespace(http=[]))  # type: ignore[arg-type]
        context.clock = work  # type: ignore[assignment]
        request: Any = SimpleNamespace(query_params=query)
        rows = [f"q{at:05}" for at in range(count)]
        show: Callable[[str], dict[str, Any]] = lambda row: {"name": work.on(row)}  # noqa: E731
        waits: list[float] = []

        async def other() -> None:
            while True:
                before_s = work.now_s
                await asyncio.sleep(0)
                waits.append(work.now_s - before_s)

        meanwhile = asyncio.create_task(other())
        await asyncio.sleep(0)
        try:
            call = Call(context, request, NOBODY, {})
            response = await App(context).made(call, answer(call, Listing(rows, show, work.on)))
            chunks = getattr(response, "body_iterator", None)
            octets = response.body if chunks is None else b"".join([each async for each in chunks])
        finally:
            await asyncio.sleep(0)
            meanwhile.cancel()
        return octets, max(waits)

    return asyncio.run(use())


@pytest.mark.parametrize(
    "query",
    [
        {"name": "7", "use_regex": "true", "page": "1"},
        {"name": "7", "page": "1"},
        {"sort": "name", "page": "1"},
        {"page": "1", "page_size": "500"},
        {},
    ],
)
def test_others_have_their_turn(query: dict[str, str]) -> None:
    octets, waited_s = listed(query, 900)
    assert b"q0007" in octets
    assert waited_s < 0.01


def test_a_pattern_that_takes_too_long() -> None:
    with pytest.raises(BadRequest, match="longer than 1 s after 1000 rows: use a simpler one"):
        listed({"name": "7", "use_regex": "true", "page": "1"}, 5000)
    octets, _ = listed({"name": "q00007", "page": "1"}, 5000)
    assert b'"total_count":5000' in octets


def told_all(queries: list[dict[str, str]], listings: Callable[[], list[Listing[Any]]]) -> list[Any]:
    """Lists as they are answered."""

    async def use() -> list[Any]:
        context = Context(SimpleNamespace(), SimpleNamespace(http=[]))  # type: ignore[arg-type]
        found: list[Any] = []
        for query in queries:
            request: Any = SimpleNamespace(query_params=query)
            call = Call(context, request, NOBODY, {})
            found.append(json.loads((await ListResponse(call, listings()).made()).body))
        return found

    return asyncio.run(use())


def told(query: dict[str, str], listing: Listing[Any]) -> Any:
    return told_all([query], lambda: [listing])[0]


def listing_of(rows: list[tuple[int, Any]], way: str) -> Listing[Any]:
    """Rows of a place and a value, which lies in the column a. They are sorted by one of the three ways."""
    shape: Callable[[Any], dict[str, Any]] = lambda row: {"at": row[0], "a": {"b": row[1]}}  # noqa: E731
    if way == "quick":
        quick = {"a.b": lambda row: orderly(row[1])}
        return Listing(rows, shape, lambda row: str(row[0]), quick.get, is_complete=True)
    if way == "part":
        part: Part[Any] = Part(
            lambda row: json.dumps(row[1]), lambda path: lambda text: inner({"b": json.loads(text)}, path)
        )
        return Listing(rows, shape, lambda row: str(row[0]), parts={"a": part})
    return Listing(rows, shape, lambda row: str(row[0]))


def plain_order(row: dict[str, Any], path: list[str]) -> tuple[int, Any]:
    value = inner(row, path)
    if value is None:
        return 0, 0
    if isinstance(value, str):
        return 2, value
    return (3, str(value)) if isinstance(value, dict | list) else (1, value)


VALUES = strategies.recursive(
    strategies.none()
    | strategies.booleans()
    | strategies.integers(-3, 3)
    | strategies.floats(-2, 2)
    | strategies.text("ab1", max_size=2),
    lambda inside: (
        strategies.lists(inside, max_size=2)
        | strategies.dictionaries(strategies.sampled_from("bc"), inside, max_size=2)
    ),
    max_leaves=4,
)


@pytest.mark.parametrize("way", ["quick", "part", "shape"])
@given(
    values=strategies.lists(strategies.lists(VALUES, max_size=20), max_size=3),
    column=strategies.sampled_from(["a.b", "a.b", "a", "a.b.c", "a.b.b", "a.none", "none", "at.b"]),
    reverse=strategies.booleans(),
    size=strategies.integers(1, 9),
    name=strategies.sampled_from(["", "", "1"]),
)
def test_pages_are_those_of_a_plain_sort(
    way: str, values: list[list[Any]], column: str, reverse: bool, size: int, name: str
) -> None:
    """Values of all types, in some listings: equal ones keep their order from page to page."""
    if way == "quick":
        column = "a.b" if column == "a.b" else "none"
    rows, at = [], 0
    for some in values:
        rows.append(list(enumerate(some, at)))
        at += len(some)
    query = {"sort": column, "sort_reverse": str(reverse).lower(), "name": name}
    shown = [{"at": at, "a": {"b": value}} for some in rows for at, value in some if name in str(at)]
    shown.sort(key=lambda row: plain_order(row, column.split(".")), reverse=reverse)
    pages = max(1, -(-len(shown) // size))
    by_page = [{**query, "page": str(page + 1), "page_size": str(size)} for page in range(pages)]
    whole, *found = told_all([query, *by_page], lambda: [listing_of(some, way) for some in rows])
    assert whole == shown
    for page, each in enumerate(found):
        assert each["items"] == shown[page * size : (page + 1) * size], page
        counts = (each["filtered_count"], each["page_count"], each["total_count"])
        assert counts == (len(shown), pages, at)


def test_what_is_no_number_is_sorted_as_nothing() -> None:
    rows = [(0, 1.5), (1, math.nan), (2, -1), (3, math.nan), (4, None)]
    for way in ("part", "shape"):
        found = told({"sort": "a.b"}, listing_of(rows, way))
        assert [row["at"] for row in found] == [1, 3, 4, 2, 0]


def test_a_column_that_the_first_row_lacks() -> None:
    """message_stats are left out of a channel that has done nothing."""
    rows = [(0, None), (1, 5), (2, None), (3, 7)]
    quick: dict[str, Callable[[Any], Any]] = {"name": lambda row: row[0]}
    listing = Listing(
        rows, lambda row: {"at": row[0]} | ({"a": row[1]} if row[1] else {}), lambda row: "", quick.get
    )
    found = told({"sort": "a", "sort_reverse": "true"}, listing)
    assert [row["at"] for row in found] == [3, 1, 0, 2]


def test_a_source_is_read_once() -> None:
    """Rows share sources, and what is known of these is kept from one request to the next."""
    read: list[str] = []
    known: dict[Any, Any] = {}

    def reader(path: list[str]) -> Callable[[str], Any]:
        return lambda source: read.append(source) or len(source)  # type: ignore[func-returns-value]

    part: Part[str] = Part(lambda row: row, reader, lambda path: known)
    listing = Listing(["bb", "a", "bb", "a"], lambda row: {"it": row}, lambda row: row, parts={"n": part})
    for _ in range(2):
        assert told({"sort": "n"}, listing) == [{"it": "a"}, {"it": "a"}, {"it": "bb"}, {"it": "bb"}]
    assert read == ["bb", "a"]


def test_columns_leave_what_is_shown_as_it_is() -> None:
    """Tables of arguments are shared by requests: a column that lies in a chosen one adds nothing to it."""
    shown = {"name": "q", "arguments": {"a": {"b": {"c": 1}}, "n": 5}}
    before = json.dumps(shown)
    for chosen, expected in (
        ("arguments.a,arguments.a.none", {"arguments": {"a": {"b": {"c": 1}}}}),
        ("arguments.a.b,arguments.a.b.none.deeper", {"arguments": {"a": {"b": {"c": 1}}}}),
        ("arguments.a.none,arguments.a", {"arguments": {"a": {"b": {"c": 1}}}}),
        ("arguments,arguments.none", {"arguments": {"a": {"b": {"c": 1}}, "n": 5}}),
        ("arguments.n,arguments.n.deeper,name", {"arguments": {"n": 5}, "name": "q"}),
        ("none.deeper,none", {}),
    ):
        assert narrowed(shown, columns_of(chosen)) == expected, chosen
        assert json.dumps(shown) == before, chosen
