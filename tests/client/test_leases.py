"""Leases with the client: batches that stay as they are until they are acked."""

from __future__ import annotations

import asyncio

import pytest

from flintmq.client import ServiceError, aio, connect


def fill(uri: str, queue: str) -> None:
    with connect(uri) as connection, connection.channel(confirm=True) as channel:
        channel.queue(queue, durable=True)
        channel.publish_many([b"%d" % number for number in range(1, 11)], routing_key=queue, persistent=True)


def test_take_read_ack_and_release(uri: str) -> None:
    fill(uri, "leased")
    with connect(uri) as connection:
        lease = connection.lease("leased", "export")
        batch = lease.take(rows_max=4)
        assert (batch.start, batch.end, batch.octets > 0) == (0, 4, True)
        assert lease.take(0, rows_max=99)[1:3] == (0, 4), "the same start, the same batch"
        for _ in range(2):
            columns = lease.read(batch.start, batch.end)
            assert [row["value"] for row in columns.rows()] == [b"1", b"2", b"3", b"4"]
        first = lease.read(0, 4, bytes_max=1)
        assert [row["value"] for row in first.rows()] == [b"1"]
        assert [row["value"] for row in lease.read(first.next_offset - 1, 4).rows()] == [b"2", b"3", b"4"]
        assert lease.ack(3) == 3
        assert lease.take(4, rows_max=2)[1:3] == (4, 6)
        lease.renew(30.0)
        assert lease.release() == 3
        assert lease.take()[1:3] == (6, 13), "numbers are never used again"
        assert [row["redelivered"] for row in lease.read(6, 13).rows()] == [True] * 3 + [False] * 4


def test_who_claims_later_is_the_one_who_reads(uri: str) -> None:
    fill(uri, "claimed")
    with connect(uri) as connection:
        first, second = connection.lease("claimed", "export"), connection.lease("claimed", "export")
        assert first.take(rows_max=2).end == 2
        assert second.take()[1:3] == (0, 2), "what the first one held, as it was"
        with pytest.raises(ServiceError, match="epoch"):
            first.ack(2)
        assert second.ack(2) == 2


def test_async(uri: str) -> None:
    fill(uri, "leased.too")

    async def main() -> None:
        async with await aio.connect(uri) as connection:
            lease = connection.lease("leased.too", "export")
            batch = await lease.take(wait_s=5.0)
            columns = await lease.read(batch.start, batch.end)
            assert [row["value"] for row in columns.rows()] == [b"%d" % number for number in range(1, 11)]
            await lease.renew(30.0)
            assert await lease.ack(9) == 9
            assert await lease.release() == 1

    asyncio.run(main())
