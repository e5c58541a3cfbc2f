"""Every await point of the async client may be cancelled: nothing leaks, nothing is lost, nothing dies."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from client.either import Either

from flintmq.client import ClientError, aio

# Turns of the event loop after which a call is cancelled; a round trip to the broker takes far fewer, unless
# the machine is busy, and then the call is cancelled while it waits.
TURNS = (*range(12), 15, 20, 30, 50, 100)

Call = Callable[[aio.Connection, aio.Channel], Awaitable[Any]]


async def consume(connection: aio.Connection, channel: aio.Channel) -> None:
    await channel.consume("walk")


async def close_channel(connection: aio.Connection, channel: aio.Channel) -> None:
    await channel.close()


async def open_channel(connection: aio.Connection, channel: aio.Channel) -> None:
    opened = await connection.channel(confirm=True, prefetch=5)
    await opened.close()


async def use_a_channel(connection: aio.Connection, channel: aio.Channel) -> None:
    async with connection.channel() as made:
        await made.queue("walk-too", auto_delete=True)


CALLS: dict[str, Call] = {
    "open a channel": open_channel,
    "use a channel": use_a_channel,
    "close a channel": close_channel,
    "get": lambda connection, channel: channel.get("walk"),
    "consume": consume,
    "qos": lambda connection, channel: channel.qos(7),
    "declare": lambda connection, channel: channel.queue("walk"),
    "bind": lambda connection, channel: aio.Queue(
        channel, channel.core.connection.topology.queue("walk")
    ).bind("amq.topic", "walk"),
    "request": lambda connection, channel: connection.request("broker.info"),
    "publish": lambda connection, channel: channel.publish(b"walked", routing_key="walk-sink"),
    "publish_many": lambda connection, channel: channel.publish_many([b"x"] * 50, routing_key="walk-sink"),
}


async def cancelled_after(turns: int, made: Awaitable[Any]) -> None:
    task = asyncio.ensure_future(made)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("call", CALLS)
def test_a_cancelled_call_leaves_nothing_behind(uri: str, call: str) -> None:
    async def test() -> None:
        async with await aio.connect(uri, recovery=None, channel_max=8) as connection:
            keeper = await connection.channel(confirm=True)
            queue = await keeper.queue("walk")
            await queue.purge()
            await keeper.queue("walk-sink", arguments={"x-max-length": 100})
            await keeper.publish(b"kept", routing_key="walk")
            for turns in TURNS:
                channel = await connection.channel(confirm=True)
                await cancelled_after(turns, CALLS[call](connection, channel))
                with suppress(ClientError):
                    await channel.close()
                assert connection.is_open
            # All channels but the keeper's, and that of the services, are to be had again.
            made = [await connection.channel() for _ in range(6)]
            for each in made:
                await each.close()
            message = await queue.get()
            while message is None:  # a nack of a cancelled one may be on its way
                message = await queue.get()
            assert message.body == b"kept"
            message.ack()
            assert await queue.get() is None

    Either("aio").run(test)


def test_a_get_without_acks_that_is_cancelled_loses_nothing(uri: str) -> None:
    async def test() -> None:
        async with await aio.connect(uri) as connection, connection.channel(confirm=True) as channel:
            queue = await channel.queue(exclusive=True)
            for turns in TURNS:
                await channel.publish(b"%d" % turns, routing_key=queue.name)
                task = asyncio.ensure_future(queue.get(no_ack=True))
                for _ in range(turns):
                    await asyncio.sleep(0)
                task.cancel()
                try:
                    message = await task
                except asyncio.CancelledError:
                    message = await queue.get(no_ack=True)
                assert message is not None, f"lost when cancelled after {turns} turns"
                assert message.body == b"%d" % turns

    Either("aio").run(test)


def test_a_cancelled_consume_gives_its_messages_back(uri: str) -> None:
    async def test() -> None:
        async with await aio.connect(uri) as connection, connection.channel(confirm=True) as channel:
            queue = await channel.queue(exclusive=True)
            await channel.publish_many([b"%d" % number for number in range(20)], routing_key=queue.name)
            for turns in TURNS:
                task = asyncio.ensure_future(queue.consume())
                for _ in range(turns):
                    await asyncio.sleep(0)
                task.cancel()
                try:
                    consumer = await task
                except asyncio.CancelledError:
                    continue
                async with consumer:
                    pass
            async with await queue.consume(timeout_s=5) as consumer:
                found = [int((await anext(consumer)).body) for _ in range(20)]
            assert found == list(range(20))
            assert len(channel.core.deliveries.inboxes) == 0

    Either("aio").run(test)


def test_a_cancelled_close_ends_the_connection_all_the_same(uri: str) -> None:
    async def test() -> None:
        for turns in TURNS:
            connection = await aio.connect(uri)
            channel = await connection.channel(confirm=True)
            await cancelled_after(turns, connection.close())
            await connection.close()
            assert not connection.is_open
            with pytest.raises(ClientError):
                await channel.publish(b"x")

    Either("aio").run(test)


def test_a_cancelled_connect_leaves_no_socket(uri: str) -> None:
    async def test() -> None:
        before = len(asyncio.all_tasks())
        for turns in TURNS:
            task = asyncio.ensure_future(aio.connect(uri))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            try:
                connection = await task
            except asyncio.CancelledError:
                continue
            await connection.close()
        assert len(asyncio.all_tasks()) == before

    Either("aio").run(test)


def test_a_cancelled_commit_is_known_by_its_answer(uri: str) -> None:
    async def test() -> None:
        async with await aio.connect(uri) as connection, connection.channel(transactional=True) as channel:
            queue = await channel.queue(exclusive=True)
            for turns in TURNS:
                await channel.publish(b"x", routing_key=queue.name)
                await cancelled_after(turns, channel.commit())
                await channel.qos(1)  # the answer to the commit has come before that to this
                assert not channel.core.committing
                await channel.rollback()

    Either("aio").run(test)
