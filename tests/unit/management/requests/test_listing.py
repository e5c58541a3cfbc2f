"""Lists of many rows: made in portions, with a limit on what a pattern may cost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from flintmq.management.app import App
from flintmq.management.requests.context import Context
from flintmq.management.requests.faults import BadRequest
from flintmq.management.requests.identities import NOBODY
from flintmq.management.requests.listing import Listing, answer
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


@pytest.mark.parametrize("reverse", ["true", "false"])
def test_a_page_is_that_of_the_whole_order(reverse: str) -> None:
    """A page near the front is found without sorting all rows; equal ones keep their order."""

    async def use(query: dict[str, str]) -> Any:
        context = Context(SimpleNamespace(), SimpleNamespace(http=[]))  # type: ignore[arg-type]
        request: Any = SimpleNamespace(query_params={"sort": "kind", "sort_reverse": reverse, **query})
        rows = [(at, at * 7 % 5) for at in range(250)]
        call = Call(context, request, NOBODY, {})
        listing = Listing(
            rows, lambda row: {"at": row[0], "kind": row[1]}, lambda row: "", {"kind": lambda row: row[1]}
        )
        return json.loads((await App(context).made(call, answer(call, listing))).body)

    whole = asyncio.run(use({}))
    assert [row["kind"] for row in whole] == sorted((row["kind"] for row in whole), reverse=reverse == "true")
    for page in (1, 2, 9, 25):
        found = asyncio.run(use({"page": str(page), "page_size": "10"}))
        assert found["items"] == whole[(page - 1) * 10 : page * 10], page
        assert (found["filtered_count"], found["page_count"], found["total_count"]) == (250, 25, 250)
