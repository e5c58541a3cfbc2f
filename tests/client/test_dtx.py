"""Distributed transactions of both clients, where the broker serves them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from client.restarting import Restarting

from flintmq.client import (
    ChannelClosed,
    ClientError,
    Connection,
    Recovery,
    TransactionFailed,
    Xid,
    aio,
    connect,
)

QUICK = Recovery(attempts_max=60, delay_s_min=0.05, delay_s_max=0.3)
FIRST, SECOND = Xid(b"batch 7", b"task 1"), Xid(b"batch 7", b"task 2")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Restarting]:
    with Restarting(tmp_path / "data") as started:
        with connect(started.uri) as connection:
            capabilities = connection.server_properties["capabilities"]
        if not isinstance(capabilities, dict) or "flintmq.dtx" not in capabilities:
            pytest.skip("this broker has no distributed transactions")
        yield started


def publish(connection: Connection, xid: Xid, body: bytes) -> None:
    """A prepared branch with one message for the queue."""
    with connection.channel() as channel:
        channel.branches.start(xid)
        channel.publish(body, routing_key="kept", persistent=True)
        channel.branches.end(xid)
        assert channel.branches.prepare(xid)


def test_two_phases_over_a_kill(broker: Restarting) -> None:
    with connect(broker.uri, protocol="0-9", recovery=QUICK) as connection:
        channel = connection.channel()
        queue = channel.queue("kept", durable=True)
        publish(connection, FIRST, b"first")
        publish(connection, SECOND, b"second")
        assert queue.get() is None
        broker.restart()
        assert {each.xid for each in channel.branches.recover()} == {FIRST, SECOND}
        channel.branches.commit(FIRST)
        channel.branches.rollback(SECOND)
        message = queue.get(no_ack=True)
        assert message is not None
        assert message.body == b"first"
        assert queue.get() is None
        assert channel.branches.recover() == []


def test_many_at_once_and_only_once(broker: Restarting) -> None:
    with connect(broker.uri, protocol="0-9", recovery=QUICK) as connection:
        channel = connection.channel()
        queue = channel.queue("kept", durable=True)
        publish(connection, FIRST, b"first")
        publish(connection, SECOND, b"second")
        branches = channel.branches
        assert branches.marker_number("query") is None
        done = branches.commit_many([FIRST, SECOND], marker="query", marker_number=7)
        assert (done.already, done.committed) == (False, 2)
        assert branches.commit_many([FIRST, SECOND], marker="query", marker_number=7).already
        assert branches.marker_number("query") == 7
        assert [message.body for message in queue.consume(timeout_s=0.2)] == [b"first", b"second"]


def test_a_branch_that_fails(broker: Restarting) -> None:
    with connect(broker.uri, protocol="0-9") as connection:
        channel = connection.channel()
        channel.queue("kept", durable=True)
        channel.branches.start(FIRST)
        channel.publish(b"x", routing_key="kept")
        channel.branches.end(FIRST, fail=True)
        with pytest.raises((TransactionFailed, ChannelClosed)):
            channel.branches.prepare(FIRST)


def test_the_async_client(broker: Restarting) -> None:
    async def test() -> None:
        async with (
            await aio.connect(broker.uri, protocol="0-9") as connection,
            connection.channel() as channel,
        ):
            queue = await channel.queue("kept", durable=True)
            branches = channel.branches
            await branches.start(FIRST)
            await channel.publish(b"x", routing_key="kept")
            await branches.end(FIRST)
            await branches.prepare(FIRST)
            await branches.commit(FIRST)
            message = await queue.get()
            assert message is not None

    asyncio.run(test())


@pytest.mark.parametrize("xid", [Xid(b""), Xid(bytes(65)), Xid(b"x", bytes(65)), Xid(b"x", b"", 2**32 - 1)])
def test_xids_have_limits(xid: Xid) -> None:
    with pytest.raises(ClientError, match="xid"):
        xid.octets()


def test_an_xid_comes_back_from_its_octets() -> None:
    assert Xid.of(FIRST.octets()) == FIRST
    assert str(FIRST) == f"0:{b'batch 7'.hex()}:{b'task 1'.hex()}"
    for octets in (b"", b"\0\0\0\0\1", FIRST.octets() + b"x"):
        with pytest.raises(ClientError, match="no xid"):
            Xid.of(octets)
