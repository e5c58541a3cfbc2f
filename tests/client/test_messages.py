"""Publishing and consuming by the message class of 0-9, over sockets, with both clients and with pika."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pika
import pytest
from broker_process import BrokerProcess
from client.either import Either
from network_proxy import TO_BROKER, Cut, Fault, NetworkProxy

from flintmq.client import (
    AccessRefused,
    ClientError,
    NotFound,
    Properties,
    PublishFailed,
    Recovery,
)

LARGE = bytes(range(256)) * 40_000  # 10 MB: dozens of frames


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    directory = tmp_path_factory.mktemp("messages")
    with BrokerProcess("--data", str(directory / "data")) as started:
        yield started


@pytest.fixture
def blocking(broker: BrokerProcess) -> Iterator[pika.BlockingConnection]:
    connection = pika.BlockingConnection(pika.ConnectionParameters(port=broker.port))
    yield connection
    connection.close()


async def anext_of(consumer: Any) -> Any:
    async for message in consumer:
        return message
    raise AssertionError("nothing came")


def test_messages_of_all_sizes_go_through(either: Either, uri: str) -> None:
    async def test() -> None:
        async with await either.connect(uri, protocol="0-9") as connection:
            channel = await connection.channel()
            queue = await channel.queue(exclusive=True)
            consumer = await channel.consume_messages(queue, timeout_s=30)
            bodies = [b"", b"small", bytes(131_000), bytes(200_000), LARGE]
            given = Properties(
                content_type="t", timestamp=9, expiration="60000", reply_to="r", correlation_id="c"
            )
            for body in bodies:
                await channel.publish_message(body, "", queue.name, properties=given, headers={"a": [1, "b"]})
            for body in bodies:
                message = await anext_of(consumer)
                assert message.body == body
                assert message.headers == {"a": [1, "b"]}
                found = message.properties
                assert (found.content_type, found.timestamp, found.expiration) == ("t", 9, "60000")
                assert (message.routing_key, message.consumer_tag) == (queue.name, consumer.tag)
                assert message.ack()
            await consumer.cancel()
            assert await channel.get_message(queue.name) is None

    either.run(test)


def test_settlements(either: Either, uri: str) -> None:
    async def test() -> None:
        async with await either.connect(uri, protocol="0-9") as connection:
            channel = await connection.channel()
            dead = await channel.queue(exclusive=True)
            arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead.name}
            queue = await channel.queue(exclusive=True, arguments=arguments)
            for number in range(6):
                await channel.publish_message(b"%d" % number, "", queue.name)
            consumer = await channel.consume_messages(queue, timeout_s=30)
            messages = [await anext_of(consumer) for _ in range(6)]
            messages[1].ack(multiple=True)
            with pytest.raises(ClientError, match="settled already"):
                messages[0].ack()
            messages[2].reject()
            messages[3].nack(requeue=False)
            messages[4].nack()
            again = await anext_of(consumer)
            assert (again.body, again.redelivered) == (b"4", True)
            again.ack()
            messages[5].ack()
            await consumer.cancel()
            assert await queue.get() is None
            assert [(await dead.get(no_ack=True)).body for _ in range(2)] == [b"2", b"3"]

    either.run(test)


def test_what_was_not_settled_comes_again_by_recover_and_by_get(either: Either, uri: str) -> None:
    async def test() -> None:
        async with await either.connect(uri, protocol="0-9") as connection:
            channel = await connection.channel()
            queue = await channel.queue(exclusive=True)
            await channel.publish_message(b"m", "", queue.name)
            first = await channel.get_message(queue.name)
            assert first is not None
            await channel.recover_deliveries()
            assert not first.ack(), "it is of a life that is over"
            async with await channel.consume_messages(queue, timeout_s=30) as consumer:
                second = await anext_of(consumer)
                assert (second.body, second.redelivered) == (b"m", True)
                second.nack()
            third = await channel.get_message(queue.name)
            assert third is not None
            third.ack()
            assert await channel.get_message(queue.name) is None

    either.run(test)


def test_without_acks(either: Either, uri: str) -> None:
    async def test() -> None:
        async with await either.connect(uri, protocol="0-9") as connection:
            channel = await connection.channel()
            queue = await channel.queue(exclusive=True)
            consumer = await channel.consume_messages(queue, no_ack=True, timeout_s=30)
            for number in range(100):
                await channel.publish_message(b"%d" % number, "", queue.name)
            assert [(await anext_of(consumer)).body for _ in range(100)] == [b"%d" % n for n in range(100)]

    either.run(test)


def test_what_is_refused_is_told(either: Either, uri: str) -> None:
    async def test() -> None:
        async with await either.connect(uri, protocol="0-9") as connection:
            channel = await connection.channel()
            queue = await channel.queue(exclusive=True)
            with pytest.raises(PublishFailed, match="NO_CONSUMERS"):
                await channel.publish_message(b"m", "", queue.name, immediate=True)
            with pytest.raises(ClientError, match="use a header"):
                await channel.publish_message(b"m", properties=Properties(type="t"))
            with pytest.raises(NotFound, match="nowhere"):
                await channel.publish_message(b"m", "nowhere")
            with pytest.raises(NotFound, match="nowhere"):
                await (await connection.channel()).consume_messages("nowhere")
            with pytest.raises(AccessRefused):
                await (await connection.channel()).publish_message(b"m", "amq.rabbitmq.trace")
        async with await either.connect(uri) as connection:
            channel = await connection.channel()
            with pytest.raises(ClientError, match="protocol='0-9'"):
                await channel.publish_message(b"m")
            with pytest.raises(ClientError, match="protocol='0-9'"):
                await channel.consume_messages("q")

    either.run(test)


def test_transactions(either: Either, uri: str) -> None:
    async def test() -> None:
        async with await either.connect(uri, protocol="0-9") as connection:
            channel = await connection.channel(confirm=False, transactional=True)
            queue = await channel.queue(exclusive=True)
            await channel.publish_message(b"1", "", queue.name)
            await channel.rollback()
            await channel.publish_message(b"2", "", queue.name)
            await channel.commit()
            message = await channel.get_message(queue.name)
            assert message is not None
            assert message.body == b"2"
            message.ack()
            await channel.commit()
            assert await channel.get_message(queue.name) is None

    either.run(test)


def test_a_lost_connection_costs_only_what_was_under_way(either: Either, proxy: NetworkProxy) -> None:
    async def test() -> None:
        recovery = Recovery(delay_s_min=0.05)
        uri = f"amqp://guest:guest@127.0.0.1:{proxy.port}"
        async with await either.connect(uri, protocol="0-9", recovery=recovery) as connection:
            channel = await connection.channel()
            name = "messages.resumed"
            queue = await channel.queue(name, durable=True)
            await queue.purge()
            consumer = await channel.consume_messages(queue, timeout_s=30)
            await channel.publish_message(b"before", "", name, persistent=True)
            before = await anext_of(consumer)
            proxy.cut()
            identifier = f"upload {uuid4()}"
            await channel.publish_message(LARGE, "", name, persistent=True, identifier=identifier)
            again = await anext_of(consumer)
            assert (again.body, again.redelivered) == (b"before", True)
            assert not before.ack()
            again.ack()
            large = await anext_of(consumer)
            assert large.body == LARGE
            large.ack()
            await channel.publish_message(LARGE, "", name, persistent=True, identifier=identifier)
            await consumer.cancel()
            assert await channel.get_message(name) is None, "it is published once"
            await queue.delete()

    either.run(test)


def test_a_queue_of_the_type_stream(either: Either, uri: str) -> None:
    async def test() -> None:
        async with await either.connect(uri, protocol="0-9") as connection:
            channel = await connection.channel(prefetch=2)
            queue = await channel.queue("messages.log", durable=True, arguments={"x-queue-type": "stream"})
            for number in range(5):
                await channel.publish_message(b"%d" % number, "", queue.name)
            arguments = {"x-stream-offset": "first"}
            consumer = await channel.consume_messages(queue, arguments=arguments, timeout_s=30)
            for number in range(5):
                message = await anext_of(consumer)
                assert message.body == b"%d" % number
                message.ack()
            await consumer.cancel()
            await queue.delete()

    either.run(test)


def test_pika_gets_what_was_published_here(
    either: Either, uri: str, blocking: pika.BlockingConnection
) -> None:
    theirs = blocking.channel()
    name = theirs.queue_declare("", exclusive=False, auto_delete=False).method.queue

    async def test() -> None:
        async with await either.connect(uri, protocol="0-9") as connection:
            channel = await connection.channel()
            given = Properties(message_id="m1", priority=3, expiration="90000")
            await channel.publish_message(b"hello", "", name, headers={"n": 1}, properties=given)
            await channel.publish_message(LARGE, "", name)

    either.run(test)
    _, properties, body = theirs.basic_get(name, auto_ack=True)
    assert body == b"hello"
    assert (properties.message_id, properties.priority, properties.expiration) == ("m1", 3, "90000")
    assert properties.headers == {"n": 1}
    assert theirs.basic_get(name, auto_ack=True)[2] == LARGE
    theirs.queue_delete(name)


def test_what_pika_has_published_comes_here(
    either: Either, uri: str, blocking: pika.BlockingConnection
) -> None:
    theirs = blocking.channel()
    name = theirs.queue_declare("", exclusive=False, auto_delete=False).method.queue
    properties = pika.BasicProperties(type="order", app_id="shop", headers={"n": 1}, delivery_mode=2)
    theirs.basic_publish("", name, b"hello", properties)
    theirs.basic_publish("", name, LARGE)

    async def test() -> None:
        async with await either.connect(uri, protocol="0-9") as connection:
            channel = await connection.channel()
            consumer = await channel.consume_messages(name, timeout_s=30)
            small = await anext_of(consumer)
            assert (small.body, small.headers) == (b"hello", {"x-type": "order", "n": 1})
            assert (small.properties.app_id, small.properties.delivery_mode) == ("shop", 2)
            large = await anext_of(consumer)
            assert large.body == LARGE
            large.ack(multiple=True)

    either.run(test)
    assert theirs.queue_declare(name, passive=True).method.message_count == 0
    theirs.queue_delete(name)


def test_an_upload_goes_on_where_it_was(either: Either, proxy: NetworkProxy) -> None:
    """The connection is cut in the middle of the body, behind a checkpoint: that part is not sent again."""

    async def test() -> None:
        uri = f"amqp://guest:guest@127.0.0.1:{proxy.port}"
        recovery = Recovery(delay_s_min=0.05)
        async with await either.connect(uri, protocol="0-9", recovery=recovery) as connection:
            channel = await connection.channel()
            queue = await channel.queue("messages.uploaded", durable=True)
            await queue.purge()
            proxy.strike(Fault(TO_BROKER, Cut(), octet=9_500_000))
            sent = proxy.link.flows[TO_BROKER]
            await channel.publish_message(LARGE, "", queue.name, identifier=f"upload {uuid4()}")
            proxy.wait_for_fault()
            again = proxy.link.flows[TO_BROKER]
            assert again is not sent
            assert again.octets < len(LARGE) // 2
            message = await channel.get_message(queue.name)
            assert message is not None
            assert message.body == LARGE
            message.ack()
            await queue.delete()

    either.run(test)
