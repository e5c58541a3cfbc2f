"""Deliveries of a connection that is lost: not handed out once the loss is known, nor settled in silence."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from client.either import Either
from fake_server import FakeServer, Served
from network_proxy import NetworkProxy

from flintmq.client import ChannelClosed, ConnectionLost, Recovery
from flintmq.wire import methods

QUICK = Recovery(attempts_max=60, delay_s_min=0.01, delay_s_max=0.1)
ROWS = [b"%d" % number for number in range(50)]


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(2000):
        if holds():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("not within 10 s")


async def filled(
    either: Either, proxy: NetworkProxy, queue: str, recovery: Recovery | None = QUICK, **options: Any
) -> tuple[Any, Any]:
    """A connection, and a consumer of all rows, which have come."""
    connection = await either.connect(proxy.uri, recovery=recovery)
    channel = await connection.channel(confirm=True)
    await channel.queue(queue)
    await channel.purge_queue(queue)
    await channel.publish_many(ROWS, routing_key=queue)
    consumer = await channel.consume(queue, **options)
    while consumer.record.inbox.waiting() < len(ROWS):
        await channel.queue(queue, passive=True)
    return connection, consumer


async def lose(either: Either, proxy: NetworkProxy, connection: Any) -> None:
    """Cuts the connection, and has the client know."""
    proxy.refuse()
    proxy.cut()
    if either.name == "sync":
        while connection.is_open:
            connection.inner.pump(0.1)
    else:
        await until(lambda: not connection.is_open)


async def iterated(consumer: Any) -> Any:
    return await anext(consumer)


async def taken(consumer: Any) -> Any:
    [message] = await consumer.take(1, timeout_s=5)
    return message


@pytest.mark.parametrize("read", [iterated, taken])
def test_what_was_not_read_before_a_loss_is_not_handed_out(
    either: Either, proxy: NetworkProxy, read: Any
) -> None:
    async def test() -> None:
        connection, consumer = await filled(either, proxy, "unread")
        (await read(consumer)).ack()
        await consumer.channel.queue("unread", passive=True)  # the ack has arrived
        await lose(either, proxy, connection)
        proxy.accept()
        seen: Counter[bytes] = Counter()
        while len(seen) < len(ROWS) - 1:
            message = await read(consumer)
            seen[message.body] += 1
            assert message.ack(), "a message was handed out whose ack cannot count"
        assert seen == Counter(ROWS[1:])
        await connection.close()

    either.run(test)


def test_a_callback_does_nothing_twice(either: Either, proxy: NetworkProxy) -> None:
    async def test() -> None:
        connection, consumer = await filled(either, proxy, "called-back", timeout_s=0.3)
        await lose(either, proxy, connection)
        proxy.accept()
        seen: Counter[bytes] = Counter()
        await consumer.run(lambda message: seen.update([message.body]))
        assert seen == Counter(ROWS)
        await connection.close()

    either.run(test)


def test_without_acks_what_was_not_read_is_kept(either: Either, proxy: NetworkProxy) -> None:
    async def test() -> None:
        connection, consumer = await filled(either, proxy, "kept", no_ack=True)
        await lose(either, proxy, connection)
        assert [message.body for message in await consumer.take(100)] == ROWS
        proxy.accept()
        await connection.close()

    either.run(test)


def test_a_consumer_that_was_cancelled_hands_out_nothing_stale(either: Either, proxy: NetworkProxy) -> None:
    async def test() -> None:
        connection, consumer = await filled(either, proxy, "left")
        await consumer.cancel()
        assert len(await consumer.take(10)) == 10
        await lose(either, proxy, connection)
        assert await consumer.take(100) == []
        proxy.accept()
        await consumer.channel.queue("left")
        assert await consumer.take(100) == []
        await connection.close()

    either.run(test)


def test_a_channel_that_died_hands_out_nothing_stale(either: Either, proxy: NetworkProxy) -> None:
    async def test() -> None:
        connection, consumer = await filled(either, proxy, "died")
        with pytest.raises(ChannelClosed):
            await consumer.channel.queue("no-such-queue", passive=True)
        with pytest.raises(ChannelClosed):
            await consumer.take(100)
        with pytest.raises(ChannelClosed):
            await anext(consumer)
        await connection.close()

    either.run(test)


def test_without_recovery_a_loss_is_told_at_once(either: Either, proxy: NetworkProxy) -> None:
    async def test() -> None:
        connection, consumer = await filled(either, proxy, "told", None)
        await lose(either, proxy, connection)
        with pytest.raises(ConnectionLost):
            await anext(consumer)
        await connection.close()

    either.run(test)


def test_recovered_deliveries_come_once(either: Either, proxy: NetworkProxy) -> None:
    """basic.recover: neither what was read nor what was not can be settled by its old tag."""

    async def test() -> None:
        connection, consumer = await filled(either, proxy, "again")
        [read] = await consumer.take(1)
        await consumer.channel.recover_deliveries()
        assert not read.ack(), "the old delivery is back in its queue"
        seen: Counter[bytes] = Counter()
        while len(seen) < len(ROWS):
            for message in await consumer.take(100, timeout_s=5):
                assert message.redelivered
                assert message.ack()
                seen[message.body] += 1
        assert seen == Counter(ROWS)
        assert (await consumer.channel.queue("again", passive=True)).message_count == 0
        await connection.close()

    either.run(test)


def test_nothing_is_settled_or_closed_in_the_midst_of_a_login() -> None:
    """The connection has its next life before its channels do: their frames would break the handshake."""
    goes_on = threading.Event()
    heard: list[list[str]] = []

    def delivers(served: Served) -> None:
        served.welcome()
        channel, method, _ = served.until(methods.BasicConsume)
        served.honest_answer(channel, method)
        served.deliver(channel, 1, b"x", method.consumer_tag)
        served.until(methods.BasicQos)
        served.hang_up()

    def slow(served: Served) -> None:
        heard.append(served.heard)
        assert goes_on.wait(10)
        served.welcome()
        served.honest()

    async def test() -> None:
        with FakeServer(delivers, slow) as server:
            connection = await Either("aio").connect(server.uri, recovery=QUICK)
            channel = await connection.channel()
            other = await connection.channel()
            consumer = await channel.consume("q")
            [message] = await consumer.take(1)
            call = asyncio.ensure_future(channel.qos(7))
            await until(lambda: server.connections == 2 and connection.core.failure is None)
            await asyncio.sleep(0)
            assert not message.ack()
            other.core.discard(ChannelClosed("not used"))
            await asyncio.sleep(0.01)
            goes_on.set()
            await call
            assert heard[0][0] == "channel.open"
            assert "basic.ack" not in heard[0]
            assert heard[0].count("channel.close") == 0
            assert server.connections == 2, "the login failed"
            await connection.close()

    Either("aio").run(test)


def test_handling_that_did_not_count_is_logged(
    either: Either, proxy: NetworkProxy, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        connection, consumer = await filled(either, proxy, "handled")
        acked, rejected, returned = await consumer.take(3)
        assert not acked.is_lost
        await lose(either, proxy, connection)
        assert acked.is_lost
        with acked.process():
            pass
        with pytest.raises(ZeroDivisionError), rejected.process():
            raise ZeroDivisionError
        with pytest.raises(ZeroDivisionError), returned.process(requeue=True):
            raise ZeroDivisionError
        proxy.accept()
        await connection.close()

    with caplog.at_level("WARNING", "flintmq.client"):
        either.run(test)
    told = [each.getMessage() for each in caplog.records if "delivers it again" in each.getMessage()]
    for text, name, settled in zip(told, ("<Message 1 ", "<Message 2 "), ("acked", "rejected"), strict=True):
        assert name in text
        assert settled in text
