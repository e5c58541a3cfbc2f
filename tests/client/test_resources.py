"""What a client holds on to: waiters, sockets, threads, an event loop that is gone, helpers that fail."""

from __future__ import annotations

import asyncio
import gc
import os
import select
import socket
from pathlib import Path
from typing import Any

import pytest
from client.either import Either
from fake_server import FakeServer, Served, honest

from flintmq.client import ClientError, ConnectFailed, PublishFailed, Recovery, aio, connect
from flintmq.wire import methods

QUICK = Recovery(attempts_max=20, delay_s_min=0.01, delay_s_max=0.02)


def test_a_consumer_that_looks_in_vain_keeps_nothing_of_each_look(uri: str) -> None:
    """A program that polls a quiet queue for days."""

    async def test() -> None:
        async with await aio.connect(uri) as connection, connection.channel(confirm=True) as channel:
            queue = await channel.queue(exclusive=True)
            consumer = await queue.consume()
            for _ in range(50):
                assert await consumer.take(1, timeout_s=0.001) == []
            assert not consumer._readers.wakers
            waiting = [asyncio.create_task(consumer.take(1, timeout_s=60)) for _ in range(20)]
            await asyncio.sleep(0)
            for task in waiting:
                task.cancel()
            await asyncio.wait(waiting)
            assert not consumer._readers.wakers
            await channel.publish(b"1", routing_key=queue.name)
            (message,) = await consumer.take(1, timeout_s=30)
            assert message.ack()

    Either("aio").run(test)


def test_a_wake_that_comes_after_its_work_was_done_wakes_once(uri: str) -> None:
    """Another thread puts its work first and wakes after it: the work may be done by then."""
    with connect(uri) as connection:
        connection._waker.send(b"x")
        connection.process_events(0.0)
        connection.process_events(0.0)
        assert select.select([connection._woken], [], [], 0)[0] == []
        done: list[int] = []
        connection.run_soon(lambda: done.append(1))
        connection.process_events(0.0)
        assert done == [1]


def test_connections_that_were_closed_hold_no_socket(uri: str) -> None:
    """Without the collector's help: a connection and its parts know each other."""
    descriptors = Path("/proc/self/fd")
    if not descriptors.exists():
        pytest.skip("the system does not list open files there")
    gc.collect()
    gc.disable()
    try:
        before = len(os.listdir(descriptors))
        for _ in range(20):
            with connect(uri):
                pass
        assert len(os.listdir(descriptors)) == before
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            for _ in range(20):
                with pytest.raises(ConnectFailed):
                    connect(f"amqp://127.0.0.1:{bound.getsockname()[1]}")
        assert len(os.listdir(descriptors)) == before
    finally:
        gc.enable()


def test_work_for_a_closed_connection_is_refused(uri: str) -> None:
    with connect(uri) as connection:
        pass
    with pytest.raises(ClientError, match="closed"):
        connection.run_soon(lambda: None)


def test_a_connection_of_an_event_loop_that_is_gone_says_so(uri: str) -> None:
    held: list[Any] = []

    async def open_and_leave() -> None:
        connection = await aio.connect(uri)
        channel = await connection.channel()
        queue = await channel.queue(exclusive=True)
        await channel.publish(b"1", routing_key=queue.name)
        message = await queue.get()
        while message is None:
            message = await queue.get()
        held.extend((connection, channel, message))

    async def use() -> None:
        connection, channel, message = held
        with pytest.raises(ClientError, match="event loop"):
            await channel.publish(b"2")
        with pytest.raises(ClientError, match="event loop"):
            message.ack()
        with pytest.raises(ClientError, match="event loop"):
            await connection.close()

    asyncio.run(open_and_leave())
    asyncio.run(use())


def test_a_token_provider_that_fails_for_a_while_is_asked_again(either: Either) -> None:
    """Who gives the tokens is often away when the broker is."""

    async def test() -> None:
        asked: list[int] = []

        def token() -> str:
            asked.append(1)
            if len(asked) in (2, 3):
                raise RuntimeError("the issuer is away")
            return "token"

        with FakeServer(honest, honest) as server:
            connection = await either.connect(server.uri, token_provider=token, recovery=QUICK)
            server.served[0].socket.shutdown(socket.SHUT_RDWR)
            channel = await connection.channel()
            assert channel.is_open
            assert len(asked) == 4
            await connection.close()

    either.run(test)


def test_a_token_provider_that_fails_at_first_is_named(either: Either) -> None:
    async def test() -> None:
        def token() -> str:
            raise RuntimeError("the issuer is away")

        with FakeServer(honest) as server, pytest.raises(ConnectFailed, match="the issuer is away") as failed:
            await either.connect(server.uri, token_provider=token)
        assert isinstance(failed.value.__cause__, RuntimeError)

    either.run(test)


@pytest.mark.parametrize("host", ["a" * 64 + ".example", "broker..example"])
def test_a_host_name_that_is_none_is_told(either: Either, host: str) -> None:
    async def test() -> None:
        with pytest.raises(ConnectFailed, match="cannot be reached"):
            await either.connect(host=host)

    either.run(test)


def closes_at_once(served: Served) -> None:
    served.close_connection(320, "full")


def test_a_host_that_closes_before_the_start_is_passed_over(either: Either) -> None:
    async def test() -> None:
        with FakeServer(closes_at_once) as full, FakeServer(honest) as server:
            hosts = f"amqp://127.0.0.1:{full.port},127.0.0.1:{server.port}"
            connection = await either.connect(hosts)
            assert connection.is_open
            await connection.close()
        with FakeServer(closes_at_once) as full, pytest.raises(ConnectFailed, match="320"):
            await either.connect(full.uri)

    either.run(test)


@pytest.mark.parametrize("unconfirmed", ["report", "resend"])
def test_ten_thousand_outstanding_confirms_and_a_loss(either: Either, unconfirmed: Any) -> None:
    """None is taken for safe before a broker has said so."""
    count = 10_000

    def leaves(served: Served, channel: int, method: methods.BasicPublish, content: Any) -> None:
        if len(served.bodies) == count:
            served.hang_up(reset=True)

    def takes_all(served: Served) -> None:
        served.welcome()
        served.honest({methods.BasicPublish: leaves})

    async def test() -> None:
        recovery = Recovery(20, 0.01, 0.02, unconfirmed)
        with FakeServer(takes_all, honest) as server:
            connection = await either.connect(server.uri, recovery=recovery)
            channel = await connection.channel(confirm=True)
            for each in range(count):
                await channel.publish(b"%d" % each, routing_key="q", wait=False)
            if unconfirmed == "resend":
                await channel.wait_for_confirms()
                assert server.served[1].bodies == [b"%d" % each for each in range(count)]
            else:
                with pytest.raises(PublishFailed) as failed:
                    await channel.wait_for_confirms()
                assert list(failed.value.unknown) == list(range(1, count + 1))
                await channel.wait_for_confirms()
            assert channel.unconfirmed == 0
            await connection.close()

    either.run(test)
