"""No call of either client outlives its deadline by more than a second, whatever the network does."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from client.either import Either
from fake_server import FakeServer, answering, gets_part, hangs_up, honest, silent_once_open
from network_proxy import TO_BROKER, TO_CLIENT, Fault, NetworkProxy, StopReading, Swallow

from flintmq.client import CallTimeout, ClientError, ConnectionLost, Recovery
from flintmq.wire import methods

TIMEOUT_S = 1.0
GRACE_S = 1.0
QUICK = Recovery(attempts_max=60, delay_s_min=0.01, delay_s_max=0.1)


def black_hole(proxy: NetworkProxy) -> None:
    proxy.strike(Fault(TO_BROKER, Swallow()), Fault(TO_CLIENT, Swallow()))


def stuffed(proxy: NetworkProxy) -> None:
    """The peer stops to read, so that buffers fill."""
    proxy.strike(Fault(TO_BROKER, StopReading()))


def gone(proxy: NetworkProxy) -> None:
    """Nobody is there any more: the recovery fails again and again."""
    proxy.refuse()
    proxy.cut("rst")


def swallowed_again(proxy: NetworkProxy) -> None:
    """The connection is lost, and each further one ends in a black hole."""
    for _ in range(100):
        proxy.plan(Fault(TO_BROKER, Swallow()))
    proxy.cut()


class Desk:
    """What calls are made on."""

    def __init__(self, connection: Any, channel: Any, transactional: Any, queue: Any, consumer: Any) -> None:
        self.connection = connection
        self.channel = channel
        self.transactional = transactional
        self.queue = queue
        self.consumer = consumer


CALLS: dict[str, Callable[[Desk], Awaitable[Any]]] = {
    "publish": lambda desk: desk.channel.publish(b"x", routing_key="desk"),
    "publish a large one": lambda desk: desk.channel.publish(bytes(20_000_000), routing_key="desk"),
    "publish_many": lambda desk: desk.channel.publish_many([bytes(10_000)] * 3000, routing_key="desk"),
    "publish_many without confirms": lambda desk: desk.transactional.publish_many(
        [bytes(10_000)] * 3000, routing_key="desk"
    ),
    "get": lambda desk: desk.queue.get(),
    "declare": lambda desk: desk.channel.queue("desk"),
    "bind": lambda desk: desk.queue.bind("amq.topic", "a"),
    "purge": lambda desk: desk.queue.purge(),
    "consume": lambda desk: desk.queue.consume(),
    "cancel": lambda desk: desk.consumer.cancel(),
    "qos": lambda desk: desk.channel.qos(5),
    "commit": lambda desk: desk.transactional.commit(),
    "rollback": lambda desk: desk.transactional.rollback(),
    "open a channel": lambda desk: desk.connection.channel(),
    "close a channel": lambda desk: desk.channel.close(),
    "request": lambda desk: desk.connection.request("broker.info"),
    "stream offsets": lambda desk: desk.connection.stream("desk").offsets(),
    "lease": lambda desk: desk.connection.lease("desk", "me").take(),
    "call": lambda desk: desk.connection.call(b"x", routing_key="desk"),
    "take": lambda desk: desk.consumer.take(1, timeout_s=TIMEOUT_S),
    "close": lambda desk: desk.connection.close(),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("fault", [black_hole, stuffed, gone, swallowed_again])
def test_every_call_ends_in_time(
    either: Either, proxy: NetworkProxy, fault: Callable[[NetworkProxy], None], call: str
) -> None:
    async def test() -> None:
        connection = await either.connect(proxy.uri, timeout_s=TIMEOUT_S, heartbeat_s=0)
        channel = await connection.channel(confirm=True)
        transactional = await connection.channel(transactional=True)
        queue = await channel.queue("desk", arguments={"x-max-length": 10})
        consumer = await channel.consume("desk")
        fault(proxy)
        begun_s = time.monotonic()
        with suppress(ClientError):
            await CALLS[call](Desk(connection, channel, transactional, queue, consumer))
        assert time.monotonic() - begun_s < TIMEOUT_S + GRACE_S
        begun_s = time.monotonic()
        with suppress(ClientError):
            await connection.close()
        assert time.monotonic() - begun_s < TIMEOUT_S + GRACE_S

    either.run(test)


def test_a_consumer_in_a_black_hole_is_told_by_heartbeats(either: Either, proxy: NetworkProxy) -> None:
    async def test() -> None:
        connection = await either.connect(proxy.uri, heartbeat_s=1, recovery=None)
        channel = await connection.channel()
        consumer = await (await channel.queue(exclusive=True)).consume()
        black_hole(proxy)
        begun_s = time.monotonic()
        with pytest.raises(ConnectionLost, match="nothing was heard"):
            await consumer.take(1)
        assert time.monotonic() - begun_s < 4
        await connection.close()

    either.run(test)


def test_the_consumer_goes_on_behind_the_black_hole(either: Either, proxy: NetworkProxy) -> None:
    async def test() -> None:
        connection = await either.connect(proxy.uri, heartbeat_s=1, recovery=QUICK)
        channel = await connection.channel(confirm=True)
        queue = await channel.queue("behind", durable=True)
        consumer = await queue.consume()
        black_hole(proxy)
        other = await either.connect(f"amqp://guest:guest@127.0.0.1:{proxy.target}")
        await (await other.channel(confirm=True)).publish(b"x", routing_key="behind")
        await other.close()
        [message] = await consumer.take(1)
        assert message.body == b"x"
        message.ack()
        await connection.close()

    either.run(test)


def test_half_a_frame_is_no_sign_of_life(either: Either, proxy: NetworkProxy) -> None:
    """The black hole begins in the middle of a delivery, and the consumer looks again and again."""

    async def test() -> None:
        connection = await either.connect(proxy.uri, heartbeat_s=1, recovery=None)
        channel = await connection.channel(confirm=True)
        queue = await channel.queue(exclusive=True)
        consumer = await queue.consume()
        proxy.strike(Fault(TO_CLIENT, Swallow(), method="basic.deliver", edge="within"))
        await channel.publish(b"x", routing_key=queue.name, wait=False)

        async def look_again_and_again() -> None:
            begun_s = time.monotonic()
            while time.monotonic() - begun_s < 10:
                await consumer.take(1, timeout_s=0.2)

        with pytest.raises(ConnectionLost, match="nothing was heard"):
            await look_again_and_again()
        with suppress(ClientError):
            await connection.close()

    either.run(test)


def test_the_sync_client_sends_heartbeats_while_the_application_computes(uri: str) -> None:
    """Longer than the broker waits for a silent client."""
    from flintmq.client import connect

    with connect(uri, heartbeat_s=1, recovery=None) as connection, connection.channel() as channel:
        busy_until_s = time.monotonic() + 5
        while time.monotonic() < busy_until_s:
            sum(range(1000))
        channel.queue(exclusive=True)


def test_the_system_gives_up_on_a_peer_that_acknowledges_nothing(either: Either, uri: str) -> None:
    if not hasattr(socket, "TCP_USER_TIMEOUT"):
        return
    made: list[tuple[int, int, int]] = []
    real = socket.socket.setsockopt

    def noting(self: socket.socket, level: int, option: int, value: int) -> None:
        made.append((level, option, value))
        real(self, level, option, value)

    async def test() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(socket.socket, "setsockopt", noting)
            connection = await either.connect(uri, timeout_s=7)
            await connection.close()
        assert (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 7000) in made

    either.run(test)


def test_a_get_that_is_cut_in_its_body_is_asked_again(either: Either) -> None:
    async def test() -> None:
        cut = answering({methods.BasicGet: gets_part(100, b"half", hangs_up)})
        with FakeServer(cut, honest) as server:
            connection = await either.connect(server.uri, recovery=QUICK)
            channel = await connection.channel()
            begun_s = time.monotonic()
            assert await channel.get("q") is None
            assert time.monotonic() - begun_s < 5
            assert server.connections == 2
            await connection.close()

    either.run(test)


def test_results_are_published_while_large_messages_wait(either: Either, uri: str) -> None:
    """More waits to be read than the limit says; the confirms of the results come all the same."""

    async def test() -> None:
        connection = await either.connect(uri, received_bytes_max=1_000_000, timeout_s=10)
        channel = await connection.channel(confirm=True)
        work = await channel.queue(exclusive=True)
        results = await channel.queue(exclusive=True)
        await channel.publish_many([bytes(20_000)] * 400, routing_key=work.name)
        async with await work.consume() as consumer:
            for _ in range(400):
                [message] = await consumer.take(1, timeout_s=10)
                await channel.publish(message.body[:10], routing_key=results.name)
                message.ack()
        assert (await channel.queue(results.name, passive=True)).message_count == 400
        await connection.close()

    either.run(test)


def test_a_connection_that_is_never_answered_ends_in_time(either: Either) -> None:
    async def test() -> None:
        with FakeServer(silent_once_open) as server:
            connection = await either.connect(server.uri, timeout_s=0.5, recovery=None)
            with pytest.raises(CallTimeout, match=r"no answer .* in 0.5 seconds"):
                await connection.channel()
            await connection.close()

    either.run(test)


def test_a_deadline_holds_for_many_tasks() -> None:
    either = Either("aio")

    async def test() -> None:
        with FakeServer(silent_once_open) as server:
            connection = await either.connect(server.uri, timeout_s=0.5)
            begun_s = time.monotonic()
            calls = [connection.request("broker.info") for _ in range(50)]
            ended = await asyncio.gather(*calls, return_exceptions=True)
            assert all(isinstance(each, ClientError) for each in ended)
            assert time.monotonic() - begun_s < 0.5 + GRACE_S
            with suppress(ClientError):
                await connection.close()

    either.run(test)
