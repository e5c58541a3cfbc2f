"""Both clients against RabbitMQ, where it is installed."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flintmq.client import NotFound, PublishFailed, ServiceError, aio, connect

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
brokers: Any = importlib.import_module("brokers")

pytestmark = [
    pytest.mark.skipif(not brokers.RABBITMQ_SERVER.exists(), reason="RabbitMQ is not installed"),
    pytest.mark.timeout(300),
]


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with brokers.rabbitmq(tmp_path_factory.mktemp("rabbitmq")) as broker:
        yield f"amqp://guest:guest@127.0.0.1:{broker.port}"


def test_sync(uri: str) -> None:
    with connect(uri, heartbeat_s=30) as connection, connection.channel(confirm=True) as channel:
        assert connection.server_properties["product"] == "RabbitMQ"
        exchange = channel.exchange("ours", "topic")
        queue = channel.queue("ours", durable=True).bind(exchange, "a.#")
        assert (
            channel.publish_many([b"%d" % n for n in range(20_000)], "ours", "a.b", persistent=True) == 20_000
        )
        bodies: list[int] = []
        with queue.consume(timeout_s=10) as consumer:
            while len(bodies) < 20_000:
                batch = consumer.take(1000, timeout_s=10)
                bodies += [int(message.body) for message in batch]
                batch[-1].ack(multiple=True)
        assert bodies == list(range(20_000))
        with pytest.raises(PublishFailed, match="returned"):
            channel.publish(b"x", "ours", "nowhere", mandatory=True)
        full = channel.queue(exclusive=True, arguments={"x-max-length": 2, "x-overflow": "reject-publish"})
        with pytest.raises(PublishFailed, match="3 messages were refused") as refused:
            channel.publish_many([b"x"] * 5, routing_key=full.name)
        assert refused.value.rows() == [2, 3, 4]
        with connection.channel() as other, pytest.raises(NotFound):
            other.queue("nothing", passive=True)


def test_transactions_and_services(uri: str) -> None:
    with connect(uri) as connection, connection.channel(transactional=True) as channel:
        queue = channel.queue(exclusive=True)
        channel.publish(b"dropped", routing_key=queue.name)
        channel.rollback()
        channel.publish(b"kept", routing_key=queue.name)
        channel.commit()
        message = queue.get(no_ack=True)
        assert message is not None
        assert message.body == b"kept"
        with pytest.raises(ServiceError, match="this broker has no services"):
            connection.request("broker.info")


def test_async(uri: str) -> None:
    async def test() -> None:
        async with await aio.connect(uri) as connection, connection.channel(confirm=True) as channel:
            queue = await channel.queue(exclusive=True)
            await asyncio.gather(*[channel.publish(b"%d" % n, routing_key=queue.name) for n in range(500)])
            consumer = await queue.consume(timeout_s=5)
            found = []
            async for message in consumer:
                found.append(int(message.body))
                message.ack()
                if len(found) == 500:
                    break
            assert found == list(range(500))

    asyncio.run(test())
