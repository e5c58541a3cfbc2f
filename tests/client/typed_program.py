"""A program as a user may write it: orders come in, are checked, priced and answered.

A test runs it against a live broker, and has mypy check it strictly: whatever is public has a type that such
a program can use.

    python typed_program.py amqp://guest:guest@localhost:5672
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from flintmq.client import (
    Channel,
    ClientError,
    Connection,
    Consumer,
    Exchange,
    Message,
    Properties,
    PublishFailed,
    Queue,
    Recovery,
    Reply,
    Settings,
    aio,
    connect,
)

ORDERS = "typed.orders"
PRICED = "typed.priced"
REFUSED = "typed.refused"
EVENTS = "typed.events"
QUOTES = "typed.quotes"


@dataclass(frozen=True)
class Order:
    """One line of a customer's wish."""

    number: int
    item: str
    count: int

    def encode(self) -> bytes:
        return json.dumps({"number": self.number, "item": self.item, "count": self.count}).encode()

    @classmethod
    def decode(cls, octets: bytes) -> Order:
        found = json.loads(octets)
        return cls(int(found["number"]), str(found["item"]), int(found["count"]))


PRICES = {"flint": 7, "steel": 11, "tinder": 2}


def price(order: Order) -> int:
    return PRICES[order.item] * order.count


def orders(count: int) -> Iterator[Order]:
    items = [*PRICES, "water"]
    for number in range(count):
        yield Order(number, items[number % len(items)], number % 5 + 1)


# The blocking half


def declare(channel: Channel) -> tuple[Exchange, Queue]:
    """What the program needs to be there."""
    events: Exchange = channel.exchange(EVENTS, "topic")
    incoming: Queue = channel.queue(ORDERS, arguments={"x-dead-letter-exchange": EVENTS})
    for name, key in ((PRICED, "priced.#"), (REFUSED, ORDERS)):
        channel.queue(name).bind(events, key)
    return events, incoming


def publish(channel: Channel, found: Iterable[Order]) -> int:
    """How many orders were published; those that are not safe are published again, one by one."""
    waiting = list(found)
    properties = [Properties(message_id=str(order.number), content_type="text/json") for order in waiting]
    try:
        return channel.publish_many(
            [order.encode() for order in waiting], routing_key=ORDERS, properties=properties, mandatory=True
        )
    except PublishFailed as failure:
        for row in failure.rows():
            channel.publish(waiting[row].encode(), routing_key=ORDERS, persistent=True)
        return len(waiting)


class Pricing:
    """Prices each order, and counts."""

    def __init__(self, events: Exchange) -> None:
        self.events = events
        self.total = 0

    def handle(self, message: Message) -> None:
        order = Order.decode(message.body)
        amount = price(order)
        headers = {"amount": amount, "redelivered": message.redelivered}
        self.events.publish(message.body, f"priced.{order.item}", headers=dict(headers), mandatory=True)
        self.total += amount


def price_all(connection: Connection) -> int:
    with connection.channel(confirm=True, prefetch=20) as channel:
        events, incoming = declare(channel)
        pricing = Pricing(events)
        consumer: Consumer = incoming.consume(timeout_s=0.5)
        with consumer:
            consumer.run(pricing.handle)
        return pricing.total


def amounts(channel: Channel) -> list[int]:
    found: list[int] = []
    with channel.consume(PRICED, timeout_s=0.3) as consumer:
        for message in consumer:
            with message.process():
                amount = message.headers["amount"]
                assert isinstance(amount, int)
                found.append(amount)
    return found


def about(connection: Connection) -> str:
    reply: Reply = connection.request("broker.info", timeout_s=5.0)
    product = reply.results["product"]
    return str(product)


def tidy_up(channel: Channel) -> int:
    dropped = 0
    for name in (ORDERS, PRICED, REFUSED):
        dropped += channel.purge_queue(name)
        channel.delete_queue(name)
    channel.delete_exchange(EVENTS)
    return dropped


# The asynchronous half


async def quote(message: Message) -> bytes:
    """Answers a request with a price."""
    await asyncio.sleep(0)
    return str(price(Order.decode(message.body))).encode()


async def serve_quotes(connection: aio.Connection, ready: asyncio.Event) -> None:
    async with connection.channel(prefetch=5) as channel:
        queue: aio.Queue = await channel.queue(QUOTES, auto_delete=True)
        async with await queue.consume() as consumer:
            ready.set()
            await consumer.serve(quote)


async def ask_for_quotes(settings: Settings, count: int) -> list[int]:
    losses: list[ClientError] = []
    async with await aio.connect(settings, name="quotes") as connection:
        connection.on_lost(losses.append)
        ready = asyncio.Event()
        serving = asyncio.create_task(serve_quotes(connection, ready))
        await ready.wait()
        wanted = [order for order in orders(count) if order.item in PRICES]
        replies: list[Message] = await asyncio.gather(
            *[connection.call(order.encode(), routing_key=QUOTES, timeout_s=10.0) for order in wanted]
        )
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
    assert not losses
    return [int(reply.body) for reply in replies]


async def watch(settings: Settings, seen: asyncio.Queue[str]) -> None:
    """Notes each event until it is cancelled."""
    async with await aio.connect(settings) as connection, connection.channel() as channel:
        exchange: aio.Exchange = await channel.exchange(EVENTS, "topic")
        queue = await channel.queue(exclusive=True)
        await queue.bind(exchange, "#")
        async with await queue.consume(no_ack=True) as consumer:
            seen.put_nowait("ready")
            async for message in consumer:
                seen.put_nowait(message.routing_key)


async def watched(settings: Settings, count: int) -> int:
    """How many events were seen while orders were priced by another thread."""
    seen: asyncio.Queue[str] = asyncio.Queue()
    watching = asyncio.create_task(watch(settings, seen))
    assert await seen.get() == "ready"

    def work() -> None:
        with connect(settings) as connection:
            with connection.channel(confirm=True) as channel:
                declare(channel)
                publish(channel, orders(count))
            price_all(connection)

    thread = threading.Thread(target=work)
    thread.start()
    await asyncio.to_thread(thread.join)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    return seen.qsize()


def main(uri: str) -> None:
    settings = Settings.of(uri, recovery=Recovery(attempts_max=5), timeout_s=20.0)
    with connect(settings) as connection, connection.channel(confirm=True) as channel:
        declare(channel)
        assert about(connection) == "FlintMQ"
        assert publish(channel, orders(40)) == 40
        total = price_all(connection)
        assert sum(amounts(channel)) == total
        assert channel.queue(REFUSED, passive=True).message_count == 10
        tidy_up(channel)
    assert sum(asyncio.run(ask_for_quotes(settings, 40))) == total
    assert asyncio.run(watched(settings, 20)) == 20
    with connect(settings) as connection, connection.channel() as channel:
        tidy_up(channel)


if __name__ == "__main__":
    main(sys.argv[1])
