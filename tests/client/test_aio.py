"""The async client against a live broker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from client.restarting import Restarting

from flintmq.client import (
    ClientError,
    ConnectFailed,
    ConnectionClosed,
    ConnectionLost,
    ConsumerCancelled,
    LoginRefused,
    NotFound,
    PublishFailed,
    Recovery,
    ServiceError,
    aio,
)

QUICK = Recovery(attempts_max=60, delay_s_min=0.05, delay_s_max=0.3)


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(60):
            await test()

    asyncio.run(limited())


def test_publish_get_ack(uri: str) -> None:
    async def test() -> None:
        async with await aio.connect(uri) as connection, connection.channel(confirm=True) as channel:
            queue = await channel.queue("aio-orders", durable=True)
            assert await channel.publish(b"hello", routing_key=queue.name, persistent=True) == 1
            message = await queue.get()
            assert message is not None
            assert message.body == b"hello"
            assert message.ack()
            assert await queue.get() is None
            await queue.delete()

    run(test)


def test_many_tasks_share_a_channel(uri: str) -> None:
    async def test() -> None:
        async with await aio.connect(uri) as connection, connection.channel(confirm=True) as channel:
            queue = await channel.queue(exclusive=True)
            publishes = [channel.publish(b"%d" % number, routing_key=queue.name) for number in range(500)]
            many = channel.publish_many(
                [b"%d" % number for number in range(500, 40_000)], routing_key=queue.name
            )
            numbers = await asyncio.gather(*publishes, many)
            assert numbers[:500] == list(range(1, 501))
            assert numbers[-1] == 39_500
            found: list[int] = []
            async with await queue.consume() as consumer:

                async def read() -> None:
                    while len(found) < 40_000:
                        for message in await consumer.take(100, timeout_s=0.5):
                            found.append(int(message.body))
                            message.ack()

                await asyncio.gather(read(), read(), read())
            assert sorted(found) == list(range(40_000))

    run(test)


def test_iterating_ends_when_nothing_came(uri: str) -> None:
    async def test() -> None:
        async with await aio.connect(uri) as connection, connection.channel() as channel:
            queue = await channel.queue(exclusive=True)
            await channel.publish_many([b"x"] * 3, routing_key=queue.name)
            consumer = await queue.consume(no_ack=True, timeout_s=0.2)
            assert [message.body async for message in consumer] == [b"x"] * 3

    run(test)


def test_a_waiting_consumer_is_told_of_its_end(uri: str) -> None:
    async def test() -> None:
        async with await aio.connect(uri) as connection:
            channel = await connection.channel()
            other = await connection.channel()
            consumer = await channel.consume((await channel.queue("aio-short-lived")).name)
            waiting = asyncio.ensure_future(anext(consumer))
            await (await other.queue("aio-short-lived", passive=True)).delete()
            with pytest.raises(ConsumerCancelled):
                await waiting

    run(test)


def test_returned_and_refused(uri: str) -> None:
    async def test() -> None:
        async with await aio.connect(uri) as connection, connection.channel(confirm=True) as channel:
            queue = await channel.queue(exclusive=True)
            good = [channel.publish(b"good", routing_key=queue.name, mandatory=True) for _ in range(20)]
            bad = channel.publish(b"bad", routing_key="nowhere", mandatory=True)
            *fine, failed = await asyncio.gather(*good, bad, return_exceptions=True)
            assert all(isinstance(number, int) for number in fine)
            assert isinstance(failed, PublishFailed)
            with pytest.raises(NotFound):
                await channel.queue("aio-no-such", passive=True)

    run(test)


def test_services_side_by_side(uri: str) -> None:
    async def test() -> None:
        async with await aio.connect(uri) as connection:
            replies = await asyncio.gather(*[connection.request("broker.info") for _ in range(20)])
            assert {reply.results["product"] for reply in replies} == {"FlintMQ"}
            with pytest.raises(ServiceError):
                await connection.request("no.such.service")

    run(test)


def test_a_slow_reader_holds_no_more_than_agreed(uri: str) -> None:
    async def test() -> None:
        async with (
            await aio.connect(uri, received_bytes_max=200_000) as connection,
            connection.channel() as channel,
        ):
            queue = await channel.queue(exclusive=True)
            await channel.publish_many([bytes(1000)] * 5000, routing_key=queue.name)
            consumer = await queue.consume(no_ack=True)
            count = 0
            while count < 5000:
                assert connection.core.received_bytes < 210_000
                count += len(await consumer.take(20, timeout_s=5))
            assert connection.core.received_bytes == 0

    run(test)


def test_transactions(uri: str) -> None:
    async def test() -> None:
        async with await aio.connect(uri) as connection, connection.channel(transactional=True) as channel:
            queue = await channel.queue(exclusive=True)
            await channel.publish(b"dropped", routing_key=queue.name)
            await channel.rollback()
            await channel.publish(b"kept", routing_key=queue.name)
            await channel.commit()
            message = await queue.get()
            assert message is not None
            assert message.body == b"kept"
            message.ack()
            await channel.commit()

    run(test)


def test_a_cancelled_get_gives_its_message_back(uri: str) -> None:
    async def test() -> None:
        async with await aio.connect(uri) as connection, connection.channel(confirm=True) as channel:
            queue = await channel.queue(exclusive=True)
            await channel.publish(b"x", routing_key=queue.name)
            getting = asyncio.ensure_future(queue.get())
            await asyncio.sleep(0)
            getting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await getting
            message = await queue.get()
            while message is None:
                message = await queue.get()
            assert message.body == b"x"

    run(test)


def test_heartbeats_go_on_by_themselves(uri: str) -> None:
    async def test() -> None:
        async with await aio.connect(uri, heartbeat_s=1, recovery=None) as connection:
            await asyncio.sleep(3.5)
            assert connection.is_open
            await connection.channel()

    run(test)


def test_failures_to_connect(uri: str) -> None:
    async def test() -> None:
        with pytest.raises(LoginRefused, match="'guest'"):
            await aio.connect(uri, password="no")
        with pytest.raises(ConnectFailed, match="cannot be reached"):
            await aio.connect(uri, port=1)
        connection = await aio.connect(uri)
        await connection.close()
        with pytest.raises(ConnectionClosed):
            await connection.channel()

    run(test)


def test_a_killed_broker_is_come_back_to(tmp_path: Path) -> None:
    rows = 20_000

    async def test() -> None:
        with Restarting(tmp_path / "data") as broker:
            async with await aio.connect(broker.uri, recovery=QUICK) as connection:
                channel = await connection.channel(confirm=True)
                reading = await connection.channel(prefetch=500)
                queue = await channel.queue("kept", durable=True)
                found: set[int] = set()
                published, finished = 0, False
                consumer = await reading.consume(queue.name)

                async def read() -> None:
                    while len(found) < published or not finished:
                        for message in await consumer.take(500, timeout_s=0.2):
                            found.add(int(message.body))
                            message.ack()

                striking = broker.restart_later(0.3)
                task = asyncio.ensure_future(read())
                while published < rows or striking.is_alive():
                    bodies = [b"%d" % number for number in range(published, published + 500)]
                    published += await channel.publish_many(bodies, routing_key="kept", persistent=True)
                finished = True
                await task
                striking.join()
                assert found == set(range(published))
                assert (await connection.request("broker.info")).results["product"] == "FlintMQ"

    run(test)


def test_attempts_come_to_an_end(tmp_path: Path) -> None:
    async def test() -> None:
        few = Recovery(attempts_max=2, delay_s_min=0.01, delay_s_max=0.02)
        with Restarting(tmp_path / "data") as broker:
            connection = await aio.connect(broker.uri, recovery=few)
            channel = await connection.channel(confirm=True)
            consumer = await channel.consume((await channel.queue("q")).name)
            waiting = asyncio.ensure_future(anext(consumer))
            await asyncio.sleep(0)
            broker.kill()
            with pytest.raises(ConnectionLost, match="could not be opened again"):
                await waiting
            with pytest.raises(ClientError):
                await channel.publish(b"x", routing_key="q")
            await connection.close()
            broker.start()

    run(test)
