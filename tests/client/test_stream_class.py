"""Publishing and consuming in the stream class, over sockets, with both clients."""

from __future__ import annotations

import pytest
from client.either import Either
from network_proxy import NetworkProxy

from flintmq.client import ClientError, Recovery, ResourceLocked, StreamProperties


def test_a_stream_goes_through_and_others_see_basic_messages(either: Either, uri: str) -> None:
    async def test() -> None:
        async with await either.connect(uri, protocol="0-9") as connection:
            channel = await connection.channel(confirm=False)
            queue = await channel.queue(exclusive=True)
            await channel.publish_stream(b"for 0-9-1", "", queue.name, headers={"a": 1}, priority=3)
            message = await queue.get(no_ack=True)
            assert (message.body, message.headers, message.properties.priority) == (b"for 0-9-1", {"a": 1}, 3)
            consumer = await channel.consume_stream(queue, timeout_s=30)
            bodies = [b"%d" % number for number in range(100)] + [b"", bytes(300_000)]
            for body in bodies:
                await channel.publish_stream(
                    body, "", queue.name, properties=StreamProperties(content_type="t", timestamp=9)
                )
            await channel.publish(b"basic", "", queue.name)
            got = []
            async for message in consumer:
                got.append(message.body)
                assert message.properties.content_type == "t"
                assert message.properties.timestamp == 9
                assert (message.exchange, message.routing_key) == ("", queue.name)
                if len(got) == len(bodies):
                    break
            assert got == bodies
            await consumer.cancel()
            left = await queue.get(no_ack=True)
            assert left.body == b"basic"

    either.run(test)


def test_a_rate_and_what_is_dropped_are_told(either: Either, uri: str) -> None:
    async def test() -> None:
        async with await either.connect(uri, protocol="0-9") as connection:
            channel = await connection.channel(confirm=False)
            queue = await channel.queue(exclusive=True, arguments={"x-max-length": 10})
            await channel.stream_qos(prefetch=100)
            consumer = await channel.consume_stream(queue, rate=1000, timeout_s=3)
            for number in range(500):
                await channel.publish_stream(bytes(100), "", queue.name, priority=number % 2)
            got = [message.properties.priority async for message in consumer]
            info = (await connection.request("queue.info", {"queue": queue.name})).results
            assert info["messages-dropped"] == 500 - len(got)
            assert info["messages-dropped"] > 0
            assert got[-10:] == [1] * 10, "what waited at the end is what is important"

    either.run(test)


def test_what_nobody_takes_comes_back(either: Either, uri: str) -> None:
    async def test() -> None:
        async with await either.connect(uri, protocol="0-9") as connection:
            channel = await connection.channel(confirm=False)
            await channel.publish_stream(b"back", "", "no.such.queue", mandatory=True, headers={"a": 1})
            await channel.queue(exclusive=True)  # its answer comes behind what was returned
            (message,) = channel.returned()
            assert (message.body, message.routing_key, message.headers) == (
                b"back",
                "no.such.queue",
                {"a": 1},
            )

    either.run(test)


def test_a_second_consumer_of_a_queue_is_refused(either: Either, uri: str) -> None:
    async def test() -> None:
        async with await either.connect(uri, protocol="0-9") as connection:
            channel = await connection.channel(confirm=False)
            queue = await channel.queue(exclusive=True)
            await channel.consume_stream(queue)
            other = await connection.channel()
            with pytest.raises(ResourceLocked, match="bind a queue for each"):
                await other.consume_stream(queue.name)

    either.run(test)


def test_what_stands_in_the_way_is_said_before_anything_is_sent(either: Either, uri: str) -> None:
    async def test() -> None:
        async with await either.connect(uri) as connection:
            channel = await connection.channel(confirm=False)
            for call in (
                lambda: channel.publish_stream(b"m"),
                lambda: channel.consume_stream("q"),
                lambda: channel.stream_qos(rate=1),
            ):
                with pytest.raises(ClientError, match="protocol='0-9'"):
                    await call()
            assert channel.is_open
        async with await either.connect(uri, protocol="0-9") as connection:
            channel = await connection.channel(confirm=True)
            with pytest.raises(ClientError, match="confirm=False"):
                await channel.publish_stream(b"m")

    either.run(test)


def test_a_consumer_goes_on_after_the_connection_was_lost(either: Either, proxy: NetworkProxy) -> None:
    async def test() -> None:
        uri = f"amqp://guest:guest@127.0.0.1:{proxy.port}"
        recovery = Recovery(delay_s_min=0.05)
        async with await either.connect(uri, protocol="0-9", recovery=recovery) as connection:
            channel = await connection.channel(confirm=False)
            queue = await channel.queue("streams.recovered", auto_delete=True)
            await channel.stream_qos(rate=1_000_000)
            consumer = await channel.consume_stream(queue, timeout_s=30)
            await channel.publish_stream(b"before", "", queue.name)
            assert (await anext_of(consumer)).body == b"before"
            proxy.cut()
            await channel.queue("streams.recovered", auto_delete=True)  # waits until it is there again
            await channel.publish_stream(b"after", "", queue.name)
            assert (await anext_of(consumer)).body == b"after"

    async def anext_of(consumer: object) -> object:
        async for message in consumer:  # type: ignore[attr-defined]
            return message
        raise AssertionError("nothing came")

    either.run(test)
