"""Lists as RabbitMQ's API has them: filtered by name, sorted, cut into pages, narrowed down to columns.

Rows are shaped when they are told: a page of a hundred out of 100,000 is sorted by what the snapshot has.
"""

from __future__ import annotations

import asyncio
import math
import re
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Mapping, Sequence
from itertools import accumulate, chain, compress, islice
from types import MappingProxyType, NoneType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import orjson
from starlette.responses import Response, StreamingResponse

from flintmq.management.broker_state import shapes
from flintmq.management.broker_state.shapes import inner
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
# Values to sort by that are read before the clock is looked at: a tenth of a microsecond each, or ten
# microseconds where a queue is matched with policies for the first time.
READ_TOGETHER = 64
COLUMN = re.compile(r"[A-Za-z0-9_.-]+")

Row = TypeVar("Row")
Shape = Callable[[Row], dict[str, Any]]
Value = Callable[[Any], Any]


class Written(str):
    """How a table or a list is written."""

    __slots__ = ()


# Types of values to sort by, in their order.
KINDS: dict[type, int] = {NoneType: 0, bool: 1, int: 1, float: 1, str: 2, Written: 3}


class Part(Generic[Row]):
    """A column in which other columns lie. What a row has there is made of a source, which rows may share:
    each source is read once."""

    def __init__(
        self,
        source: Callable[[Row], Hashable],
        reader: Callable[[list[str]], Value],
        known: Callable[[list[str]], dict[Any, Any]] = lambda path: {},
    ) -> None:
        self.source = source
        self.reader = reader  # by the path within the column: what reads the value there of a source
        self.known = known  # by the same path: what the sources that were read before are sorted by


class Listing(Generic[Row]):
    """Rows with the way to show one, and quick ways to what they can be sorted by."""

    def __init__(
        self,
        rows: Sequence[Row],
        shape: Shape[Row],
        name: Callable[[Row], str],
        quick: Callable[[str], Callable[[Row], Any] | None] = lambda column: None,
        parts: Mapping[str, Part[Row]] = MappingProxyType({}),
        is_complete: bool = False,
        told: Shape[Row] | None = None,
        also: Callable[[Row], str] | None = None,
    ) -> None:
        self.rows = rows
        self.shape = shape
        self.name = name
        self.quick = quick  # by the column: what reads a value that is `orderly`
        self.parts = parts
        self.is_complete = is_complete  # in a column without a quick way all rows have the same
        self.told = told or shape  # the way to show one in the answer, where that has more to tell
        self.also = also  # another name that people know it by

    def names(self, row: Row) -> tuple[str, ...]:
        """Those that a filter looks at."""
        return (self.name(row),) if self.also is None else (self.name(row), self.also(row))


class ListResponse(Response):
    """A list that is yet to be made. A handler returns it at once; the application makes it in portions, so
    that other requests do not wait for all of its rows. The rows of all listings are one list: a row has its
    place there."""

    def __init__(self, call: Call, listings: Sequence[Listing[Any]]) -> None:
        super().__init__()
        self.call = call
        self.listings = listings
        self.clock = call.context.clock
        self.columns = columns_of(call.query("columns"))

    async def made(self) -> Response:
        """The list as the query of the request wants it."""
        call = self.call
        total = sum(len(listing.rows) for listing in self.listings)
        await self.filter()
        # Where the rows of each listing begin, and where those of the last one end.
        self.starts = [0, *accumulate(len(listing.rows) for listing in self.listings)]
        places: Sequence[int] = range(self.starts[-1])
        sort = call.query("sort")
        page = call.number("page", 1, 1, 1_000_000)
        size = call.number("page_size", 100, 1, PAGE_SIZE_MAX)
        if sort:
            places = await self.sorted(places, sort, call.flag("sort_reverse"))
        elif call.flag("sort_reverse"):
            places = places[::-1]
        if call.is_paged:
            return json_response(await self.paged(places, total, page, size))
        if len(places) > STREAMED:
            return self.streamed(places)
        return json_response(await self.each(places, self.shown))

    def shown(self, place: int) -> dict[str, Any]:
        """The row at a place, with the columns that were asked for."""
        at = bisect_right(self.starts, place) - 1
        listing = self.listings[at]
        return narrowed(listing.told(listing.rows[place - self.starts[at]]), self.columns)

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

    async def read(self, rows: Sequence[Any], value: Value) -> list[Any]:
        """A value of each row that is quick to read. Others have their turn every few milliseconds."""
        now_s = self.clock.monotonic_s
        found: list[Any] = []
        began_s = now_s()
        for start in range(0, len(rows), READ_TOGETHER):
            found += map(value, rows[start : start + READ_TOGETHER])
            if now_s() - began_s >= TURN_S:
                await asyncio.sleep(0)
                began_s = now_s()
        return found

    async def filter(self) -> None:
        """Leaves the rows whose name is asked for."""
        wanted = self.call.query("name")
        if not wanted:
            return
        names = chain.from_iterable(map(listing.names, listing.rows) for listing in self.listings)
        if not self.call.flag("use_regex"):
            lower = wanted.lower()
            are_found = await self.each(names, lambda each: any(lower in name.lower() for name in each))
        else:
            try:
                pattern = NamePattern(wanted)
            except PatternFault as fault:
                raise BadRequest(f"name is no pattern: {fault}") from None
            async with self.call.context.filter_of(self.call.identity.user):
                are_found = await self.each(names, lambda each: any(map(pattern.matches, each)), FILTER_S_MAX)
        left = iter(are_found)
        for listing in self.listings:
            listing.rows = list(compress(listing.rows, islice(left, len(listing.rows))))

    async def sorted(self, places: Sequence[int], column: str, reverse: bool) -> Sequence[int]:
        """All places by one column, which may lie deeper, as in message_stats.publish_details.rate. Those
        with equal values keep their order."""
        if not COLUMN.fullmatch(column):
            raise BadRequest("sort must name a column")
        keys: list[Any] = []
        for listing in self.listings:
            found = await self.keys(listing, column)
            if found is None:
                return places
            keys += found
        return ordered(keys, reverse)

    async def keys(self, listing: Listing[Any], column: str) -> list[Any] | None:
        """What each row is sorted by; None if all rows have the same in the column."""
        quick = listing.quick(column)
        if quick is not None:
            return await self.read(listing.rows, quick)
        first, *path = column.split(".")
        part = listing.parts.get(first)
        if part is not None:
            sources = await self.read(listing.rows, part.source)
            known, value = part.known(path), part.reader(path)
            new = list(dict.fromkeys(source for source in sources if source not in known))
            known.update(zip(new, await self.read(new, lambda source: orderly(value(source))), strict=True))
            return list(map(known.__getitem__, sources))
        if listing.is_complete:
            return None
        return await self.each(listing.rows, lambda row: orderly(inner(listing.shape(row), [first, *path])))

    async def paged(self, places: Sequence[int], total: int, page: int, size: int) -> dict[str, Any]:
        """One page; `total` counts rows with any name."""
        pages = max(1, math.ceil(len(places) / size))
        if page > pages:
            raise BadRequest(f"page_out_of_range: page {page} of {pages}")
        items = await self.each(places[(page - 1) * size : page * size], self.shown)
        return {
            "filtered_count": len(places),
            "item_count": len(items),
            "items": items,
            "page": page,
            "page_count": pages,
            "page_size": size,
            "total_count": total,
        }

    def streamed(self, places: Sequence[int]) -> Response:
        """An array, made while it is sent."""

        async def chunks() -> AsyncIterator[bytes]:
            apart = b"["
            for start in range(0, len(places), STREAMED):
                some = await self.each(places[start : start + STREAMED], self.shown)
                yield apart + octets_of(some)[1:-1]
                apart = b","
                await asyncio.sleep(0)  # others have their turn
            yield b"]"

        return StreamingResponse(chunks(), media_type="application/json")


def answer(call: Call, *listings: Listing[Any]) -> Response:
    """The list as the query of the request wants it, made by the application."""
    return ListResponse(call, listings)


def orderly(value: Any) -> Any:
    """What a value of any type is sorted by."""
    if type(value) not in KINDS:
        return Written(value)
    return value if value == value else None  # what is no number is null in JSON


def ordered(values: Sequence[Any], reverse: bool) -> list[int]:
    """The places of values that are `orderly`, in order: nothing, numbers, texts, the rest by how it is
    written. Equal ones keep their order. Values of one type are compared with each other alone, which is
    some times as quick as to compare pairs of a type and a value."""
    places: list[list[int]] = [[] for _ in range(1 + max(KINDS.values()))]
    kinds = {KINDS[kind] for kind in set(map(type, values))}
    if len(kinds) == 1:
        places[kinds.pop()] += range(len(values))
    else:
        for place, kind in enumerate(map(type, values)):
            places[KINDS[kind]].append(place)
    for some in places[1:]:
        some.sort(key=values.__getitem__, reverse=reverse)
    return list(chain.from_iterable(places[::-1] if reverse else places))


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
        place, source = found, shown
        for name in path[:-1]:
            deeper = place.setdefault(name, {})
            source = inner(source, [name])
            if not isinstance(deeper, dict) or deeper is source:
                break  # all of it is chosen
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
