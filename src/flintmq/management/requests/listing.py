"""Lists as RabbitMQ's API has them: filtered by name, sorted, cut into pages, narrowed down to columns.

Rows are shaped when they are told: a page of a hundred out of 100,000 is sorted by what the snapshot has.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import re
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from itertools import compress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import orjson
from starlette.responses import Response, StreamingResponse

from flintmq.management.broker_state import shapes
from flintmq.management.requests.faults import BadRequest
from flintmq.patterns.name_pattern import NamePattern, PatternFault

if TYPE_CHECKING:
    from flintmq.management.requests.routes import Call

PAGE_SIZE_MAX = 500
# Rows made and sent at a time: some milliseconds.
STREAMED = 256
# How long rows are worked on before other requests have their turn, and how long a pattern may take in all:
# 100,000 names take a usual one less than half of it.
TURN_S = 0.005
FILTER_S_MAX = 1.0
# Values to sort by that are read before the clock is looked at, a tenth of a microsecond each.
READ_TOGETHER = 1024
# To find some out of so many times as many is quicker than to sort them all.
FEW = 20
COLUMN = re.compile(r"[A-Za-z0-9_.-]+")

Row = TypeVar("Row")
Shape = Callable[[Row], dict[str, Any]]


class Listing(Generic[Row]):
    """Rows with the way to show one, and quick ways to values of one type that they can be sorted by."""

    def __init__(
        self,
        rows: Iterable[Row],
        shape: Shape[Row],
        name: Callable[[Row], str],
        quick: dict[str, Callable[[Row], Any]] | None = None,
        parts: dict[str, Callable[[Row], Any]] | None = None,
        told: Shape[Row] | None = None,
    ) -> None:
        self.rows = rows
        self.shape = shape
        self.name = name
        self.quick = quick or {}
        self.told = told or shape  # the way to show one in the answer, where that has more to tell
        self.parts = parts or {}  # ways to one column alone, of any value, in which others may lie


class ListResponse(Response):
    """A list that is yet to be made. A handler returns it at once; the application makes it in portions, so
    that other requests do not wait for all of its rows."""

    def __init__(self, call: Call, listing: Listing[Any]) -> None:
        super().__init__()
        self.call = call
        self.listing = listing
        self.clock = call.context.clock

    async def made(self) -> Response:
        """The list as the query of the request wants it."""
        call, listing = self.call, self.listing
        columns = columns_of(call.query("columns"))
        rows: Sequence[Any] = list(listing.rows)
        total = len(rows)
        rows = await self.filtered(rows)
        filtered = len(rows)
        is_paged = call.is_paged
        sort = call.query("sort")
        page = call.number("page", 1, 1, 1_000_000)
        size = call.number("page_size", 100, 1, PAGE_SIZE_MAX)
        if sort:
            most = page * size if is_paged else len(rows)
            rows = await self.sorted(rows, sort, call.flag("sort_reverse"), most)
        elif call.flag("sort_reverse"):
            rows = rows[::-1]
        if not is_paged and len(rows) > STREAMED:
            return self.streamed(rows, columns)
        if not is_paged:
            shape = listing.told
            return json_response(await self.each(rows, lambda row: narrowed(shape(row), columns)))
        return json_response(await self.paged(rows, (total, filtered), page, size, columns))

    async def each(
        self, rows: Iterable[Any], work: Callable[[Any], Any], most_s: float = math.inf
    ) -> list[Any]:
        """What `work` makes of each row. Others have their turn every few milliseconds."""
        now_s = self.clock.monotonic_s
        found: list[Any] = []
        spent_s, began_s = 0.0, now_s()
        for row in rows:
            found.append(work(row))
            took_s = now_s() - began_s
            if took_s >= TURN_S:
                spent_s += took_s
                if spent_s >= most_s:
                    raise BadRequest(
                        f"the pattern in name took longer than {most_s:g} s after {len(found)} rows: use a "
                        "simpler one, without counted repetitions, or leave out use_regex"
                    )
                await asyncio.sleep(0)
                began_s = now_s()
        return found

    async def filtered(self, rows: Sequence[Any]) -> Sequence[Any]:
        wanted, name = self.call.query("name"), self.listing.name
        if not wanted:
            return rows
        if not self.call.flag("use_regex"):
            lower = wanted.lower()
            are_found = await self.each(rows, lambda row: lower in name(row).lower())
            return list(compress(rows, are_found))
        try:
            pattern = NamePattern(wanted)
        except PatternFault as fault:
            raise BadRequest(f"name is no pattern: {fault}") from None
        async with self.call.context.filter_of(self.call.identity.user):
            are_found = await self.each(rows, lambda row: pattern.matches(name(row)), FILTER_S_MAX)
        return list(compress(rows, are_found))

    async def sorted(self, rows: Sequence[Any], column: str, reverse: bool, most: int) -> Sequence[Any]:
        """The first `most` by one column, which may lie deeper, as in message_stats.publish_details.rate."""
        if not COLUMN.fullmatch(column):
            raise BadRequest("sort must name a column")
        listing = self.listing
        path = column.split(".")
        part = listing.parts.get(path[0])
        key = listing.quick.get(column)
        if key is None and part is not None:
            key = order_within(part, path[1:])
        if key is None:
            if rows and listing.quick and path[0] not in listing.shape(rows[0]):
                return rows  # no row has it
            keys = await self.each(rows, lambda row: orderly(inner(listing.shape(row), path)))
        else:
            keys = []
            for start in range(0, len(rows), READ_TOGETHER):
                keys += map(key, rows[start : start + READ_TOGETHER])
                await asyncio.sleep(0)
        places: Iterable[int] = range(len(rows))
        if most * FEW < len(rows):
            first = heapq.nlargest if reverse else heapq.nsmallest
            places = first(most, places, key=keys.__getitem__)
        else:
            places = sorted(places, key=keys.__getitem__, reverse=reverse)
        return [rows[at] for at in places]

    async def paged(
        self, rows: Sequence[Any], counts: tuple[int, int], page: int, size: int, columns: list[list[str]]
    ) -> dict[str, Any]:
        """One page, of rows that go so far at least; `counts` are all, and those with the name."""
        total, filtered = counts
        pages = max(1, math.ceil(filtered / size))
        if page > pages:
            raise BadRequest(f"page_out_of_range: page {page} of {pages}")
        shape = self.listing.told
        shown = await self.each(
            rows[(page - 1) * size : page * size], lambda row: narrowed(shape(row), columns)
        )
        return {
            "filtered_count": filtered,
            "item_count": len(shown),
            "items": shown,
            "page": page,
            "page_count": pages,
            "page_size": size,
            "total_count": total,
        }

    def streamed(self, rows: Sequence[Any], columns: list[list[str]]) -> Response:
        """An array, made while it is sent."""
        shape = self.listing.told

        async def chunks() -> AsyncIterator[bytes]:
            apart = b"["
            for start in range(0, len(rows), STREAMED):
                some = await self.each(
                    rows[start : start + STREAMED], lambda row: narrowed(shape(row), columns)
                )
                yield apart + octets_of(some)[1:-1]
                apart = b","
                await asyncio.sleep(0)  # others have their turn
            yield b"]"

        return StreamingResponse(chunks(), media_type="application/json")


def answer(call: Call, listing: Listing[Any]) -> Response:
    """The list as the query of the request wants it, made by the application."""
    return ListResponse(call, listing)


def order_within(part: Callable[[Any], Any], path: list[str]) -> Callable[[Any], Any]:
    """What rows are sorted by that lies in one column. Rows often share the very value: it is read once."""
    known: dict[int, tuple[Any, Any]] = {}  # with the value itself, or another could come to have its number

    def key(row: Any) -> Any:
        value = part(row)
        found = known.get(id(value))
        if found is None:
            found = known[id(value)] = (value, orderly(inner(value, path)))
        return found[1]

    return key


def orderly(value: Any) -> tuple[int, Any]:
    """Values of all types in one order: nothing, numbers, texts, the rest by how it is written."""
    kind = type(value)
    if kind is int or kind is float or kind is bool:
        return (1, value)
    if kind is str:
        return (2, value)
    return (0, 0) if value is None else (3, str(value))


def inner(shown: Any, path: list[str]) -> Any:
    for name in path:
        if not isinstance(shown, dict):
            return None
        shown = shown.get(name)
    return shown


def columns_of(text: str) -> list[list[str]]:
    names = [name for name in text.split(",") if name]
    for name in names:
        if not COLUMN.fullmatch(name):
            raise BadRequest("columns must be names with commas between them")
    return [name.split(".") for name in names]


def narrowed(shown: dict[str, Any], columns: list[list[str]]) -> dict[str, Any]:
    """The chosen columns alone; all without a choice."""
    if not columns:
        return shown
    found: dict[str, Any] = {}
    for path in columns:
        value = inner(shown, path)
        if value is None and path[0] not in shown:
            continue
        place = found
        for name in path[:-1]:
            deeper = place.setdefault(name, {})
            if not isinstance(deeper, dict) or deeper is shown.get(name):
                break
            place = deeper
        else:
            place[path[-1]] = value
    return found


def octets_of(value: Any) -> bytes:
    """As JSON; names that are not UTF-8, or numbers beyond 64 bits, take a second try."""
    try:
        return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)
    except TypeError:
        return orjson.dumps(shapes.plain(value), option=orjson.OPT_NON_STR_KEYS)


def json_response(value: Any, status: int = 200) -> Response:
    return Response(octets_of(value), status, media_type="application/json")
