"""Searching a queue with the client, which asks again until it has seen all of it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from broker_process import BrokerProcess

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


def test_messages_whose_bodies_are_files(tmp_path: Path) -> None:
    """Seen, searched and leased like others: their bodies are read from where they were spooled to."""
    body = b"large" * 1_000_000
    with BrokerProcess("--data", str(tmp_path)) as broker:
        uri = f"amqp://guest:guest@127.0.0.1:{broker.port}"
        with connect(uri) as connection, connection.channel(confirm=True) as channel:
            channel.queue("large", durable=True)
            channel.publish(b"small", routing_key="large", persistent=True)
            channel.publish(body, routing_key="large", persistent=True)
            browser = connection.browse("large")
            first = browser.peek()
            assert [row["value"] for row in first.columns.rows()] == [b"small"], (
                "a reply holds one large body"
            )
            assert [row["value"] for row in browser.peek(after=first.last).columns.rows()] == [body]
            assert [row["value"] for row in browser.search(contains="largelarge")] == [body]
            lease = connection.lease("large", "export")
            batch = lease.take(rows_max=2)
            assert [row["value"] for row in lease.read(batch.start + 1, batch.end).rows()] == [body]
