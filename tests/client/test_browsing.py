"""Searching a queue with the client, which asks again until it has seen all of it."""

from __future__ import annotations

import asyncio

import pytest

from flintmq.client import ServiceError, aio, connect

# More than one look goes through.
MESSAGES = 5000
RARE = "number IN (1, 2500, 4999)"


def fill(uri: str, queue: str) -> None:
    with connect(uri) as connection, connection.channel(confirm=True) as channel:
        channel.queue(queue)
        for number in range(MESSAGES):
            channel.publish(b"%d" % number, routing_key=queue, headers={"number": number}, wait=False)


def test_search(uri: str) -> None:
    fill(uri, "searched")
    with connect(uri) as connection:
        browser = connection.browse("searched")
        assert [row["value"] for row in browser.search(selector=RARE)] == [b"1", b"2500", b"4999"]
        assert [row["value"] for row in browser.search(contains="499")][:2] == [b"499", b"1499"]
        glance = browser.peek(selector="number > 4000")
        assert (len(glance.columns), glance.more) == (0, True), "one look ends before the first of them"
        glance = browser.peek(after=glance.last, limit=1)
        assert [row["value"] for row in glance.columns.rows()] == [b"2048"]
        assert sum(1 for _ in browser.search(selector="number >= 0")) == MESSAGES
        with pytest.raises(ServiceError, match="position"):
            browser.peek(selector="number >")


def test_search_async(uri: str) -> None:
    fill(uri, "searched.too")

    async def search() -> list[bytes]:
        async with await aio.connect(uri) as connection:
            browser = connection.browse("searched.too")
            assert (await browser.peek(limit=2)).more
            return [row["value"] async for row in browser.search(selector=RARE, columns=("headers",))]

    assert asyncio.run(search()) == [b"1", b"2500", b"4999"]
