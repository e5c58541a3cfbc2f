"""aio-pika: confirms, the consume iterator, RPC, and a robust connection that comes back."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import aio_pika
import aiormq
import pytest
from aio_pika.patterns import RPC, Master
from aiormq.abc import ChannelFrame
from interop_live import Broker, StartBroker

Name = Callable[[str], str]
TALK_S_MAX = 20.0


def talk(conversation: Awaitable[None]) -> None:
    """Run one conversation to its end, within a bound."""

    async def bounded() -> None:
        await asyncio.wait_for(conversation, TALK_S_MAX)

    asyncio.run(bounded())


async def first(queue: Any) -> Any:
    """The next message of the queue, by its iterator."""
    async with queue.iterator(timeout=10) as messages:
        async for message in messages:
            return message
    raise AssertionError("the iterator ended without a message")


def test_publish_confirm_and_iterate(broker: Broker, name: Name) -> None:
    async def conversation() -> None:
        async with await aio_pika.connect(broker.url) as connection:
            channel = await connection.channel(publisher_confirms=True)
            await channel.set_qos(prefetch_count=3)
            exchange = await channel.declare_exchange(name("exchange"), aio_pika.ExchangeType.TOPIC)
            queue = await channel.declare_queue(name("queue"), exclusive=True)
            await queue.bind(exchange, "n.*")
            for number in range(10):
                message = aio_pika.Message(b"%d" % number, headers={"n": number})
                confirm = await exchange.publish(message, f"n.{number}")
                assert isinstance(confirm, aiormq.spec.Basic.Ack)
            got = []
            async with queue.iterator(timeout=10) as messages:
                async for delivery in messages:
                    async with delivery.process():
                        got.append((delivery.body, delivery.headers["n"], delivery.routing_key))
                    if len(got) == 10:
                        break
            assert got == [(b"%d" % number, number, f"n.{number}") for number in range(10)]

    talk(conversation())


def test_concurrent_publishes_are_all_confirmed(broker: Broker, name: Name) -> None:
    async def conversation() -> None:
        async with await aio_pika.connect(broker.url) as connection:
            channel = await connection.channel()
            queue = await channel.declare_queue(name("queue"), exclusive=True)
            publishes = [
                channel.default_exchange.publish(aio_pika.Message(b"%d" % number), queue.name)
                for number in range(300)
            ]
            confirms = await asyncio.gather(*publishes)
            assert all(isinstance(confirm, aiormq.spec.Basic.Ack) for confirm in confirms)
            again = await channel.declare_queue(queue.name, passive=True)
            assert again.declaration_result.message_count == 300

    talk(conversation())


def test_unroutable_mandatory_message_is_returned(broker: Broker, name: Name) -> None:
    async def conversation() -> None:
        async with await aio_pika.connect(broker.url) as connection:
            channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
            with pytest.raises(aio_pika.exceptions.DeliveryError) as caught:
                await channel.default_exchange.publish(aio_pika.Message(b"back"), name("nowhere"))
            assert isinstance(caught.value.frame, aiormq.spec.Basic.Ack | aiormq.spec.Basic.Return)

    talk(conversation())


def test_failed_message_is_requeued_by_the_context(broker: Broker, name: Name) -> None:
    async def conversation() -> None:
        async with await aio_pika.connect(broker.url) as connection:
            channel = await connection.channel()
            queue = await channel.declare_queue(name("queue"), exclusive=True)
            await channel.default_exchange.publish(aio_pika.Message(b"hard"), queue.name)
            message = await queue.get(timeout=5)

            async def fail_within() -> None:
                async with message.process(requeue=True):
                    raise ValueError("no luck")

            with pytest.raises(ValueError, match="no luck"):
                await fail_within()
            again = await first(queue)
            await again.ack()
            assert (again.body, again.redelivered) == (b"hard", True)

    talk(conversation())


def test_transaction(broker: Broker, name: Name) -> None:
    async def conversation() -> None:
        async with await aio_pika.connect(broker.url) as connection:
            channel = await connection.channel(publisher_confirms=False)
            queue = await channel.declare_queue(name("queue"), exclusive=True)

            async def fail_within() -> None:
                async with channel.transaction():
                    await channel.default_exchange.publish(aio_pika.Message(b"undone"), queue.name)
                    raise ValueError("undo")

            with pytest.raises(ValueError, match="undo"):
                await fail_within()
            async with channel.transaction():
                await channel.default_exchange.publish(aio_pika.Message(b"done"), queue.name)
            assert (await queue.get(timeout=5)).body == b"done"
            assert await queue.get(fail=False, timeout=5) is None

    talk(conversation())


def test_rpc(broker: Broker, name: Name) -> None:
    async def add(*, left: int, right: int) -> int:
        return left + right

    async def fail() -> None:
        raise LookupError("no such thing")

    async def conversation() -> None:
        async with (
            await aio_pika.connect(broker.url) as serving,
            await aio_pika.connect(broker.url) as asking,
        ):
            server = await RPC.create(await serving.channel())
            await server.register(name("add"), add, auto_delete=True)
            await server.register(name("fail"), fail, auto_delete=True)
            client = await RPC.create(await asking.channel())
            answers = [client.call(name("add"), {"left": n, "right": 1}) for n in range(20)]
            assert await asyncio.gather(*answers) == list(range(1, 21))
            with pytest.raises(LookupError, match="no such thing"):
                await client.call(name("fail"))
            await client.close()
            await server.close()

    talk(conversation())


def test_master_and_worker(broker: Broker, name: Name) -> None:
    async def conversation() -> None:
        done: list[int] = []
        all_done = asyncio.Event()
        async with await aio_pika.connect(broker.url) as connection:
            channel = await connection.channel()
            master = Master(channel)

            async def work(*, number: int) -> None:
                done.append(number)
                if len(done) == 5:
                    all_done.set()

            worker = await master.create_worker(name("work"), work, auto_delete=True)
            for number in range(5):
                await master.create_task(name("work"), {"number": number})
            await all_done.wait()
            await worker.close()
        assert sorted(done) == list(range(5))

    talk(conversation())


def test_channel_error_is_raised_where_it_happened(broker: Broker, name: Name) -> None:
    async def conversation() -> None:
        async with await aio_pika.connect(broker.url) as connection:
            channel = await connection.channel()
            with pytest.raises(aio_pika.exceptions.ChannelNotFoundEntity):
                await channel.declare_queue(name("nothing"), passive=True)
            channel = await connection.channel()
            await channel.declare_queue(name("queue"))
            with pytest.raises(aio_pika.exceptions.ChannelPreconditionFailed):
                await channel.declare_queue(name("queue"), durable=True)

    talk(conversation())


def test_update_secret(broker: Broker) -> None:
    async def conversation() -> None:
        async with await aio_pika.connect(broker.url) as connection:
            answer = await connection.update_secret("guest", reason="renewed")
            assert isinstance(answer, aiormq.spec.Connection.UpdateSecretOk)
            await connection.channel()

    talk(conversation())


async def robust_queue(url: str, queue_name: str, **settings: Any) -> tuple[Any, Any, asyncio.Queue[bytes]]:
    """A robust connection and channel with a consumer that hands its bodies to a local queue."""
    connection = await aio_pika.connect_robust(url, reconnect_interval=0.1)
    channel = await connection.channel()
    queue = await channel.declare_queue(queue_name, **settings)
    inbox: asyncio.Queue[bytes] = asyncio.Queue()

    async def deliver(message: Any) -> None:
        async with message.process():
            await inbox.put(message.body)

    await queue.consume(deliver)
    return connection, channel, inbox


async def send(url: str, queue: str, body: bytes) -> None:
    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        message = aio_pika.Message(body, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        await channel.default_exchange.publish(message, queue, mandatory=True)


def test_robust_connection_comes_back_after_the_server_closes_it(broker: Broker, name: Name) -> None:
    """A method on a channel that is not open makes the server close; queue and consumer are restored."""

    async def conversation() -> None:
        connection, _, inbox = await robust_queue(broker.url, name("queue"), auto_delete=False)
        try:
            await send(broker.url, name("queue"), b"before")
            assert await inbox.get() == b"before"
            back = asyncio.Event()
            connection.reconnect_callbacks.add(lambda *_: back.set())
            offence = ChannelFrame.marshall(999, [aiormq.spec.Tx.Select()])
            await connection.transport.connection.write_queue.put(offence)
            await back.wait()
            await send(broker.url, name("queue"), b"after")
            assert await inbox.get() == b"after"
        finally:
            await connection.close()

    talk(conversation())


def test_robust_connection_survives_a_restart_of_the_broker(start_broker: StartBroker, name: Name) -> None:
    async def conversation() -> None:
        process = start_broker(0)
        url = f"amqp://guest:guest@127.0.0.1:{process.port}/"
        connection, _, inbox = await robust_queue(url, name("queue"), durable=True)
        try:
            await send(url, name("queue"), b"before")
            assert await inbox.get() == b"before"
            back = asyncio.Event()
            connection.reconnect_callbacks.add(lambda *_: back.set())
            await asyncio.to_thread(process.stop)
            await asyncio.to_thread(start_broker, process.port)
            await back.wait()
            await send(url, name("queue"), b"after")
            assert await inbox.get() == b"after"
        finally:
            await connection.close()

    talk(conversation())
