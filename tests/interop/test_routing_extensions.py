"""pika and aio-pika with what FlintMQ's routing has beyond the standard: services, exchange types, chains."""

import asyncio
import time
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import aio_pika
import pika
import pytest
from interop_live import Broker
from interop_pika import await_depth, bodies, channel_error, connected, depth, gather

Name = Callable[[str], str]
PSEUDO = "amq.rabbitmq.reply-to"


@pytest.fixture(autouse=True)
def _flintmq(broker: Broker) -> None:
    if broker.is_rabbitmq:
        pytest.skip("RabbitMQ has this by plug-ins, or not at all")


@pytest.fixture
def ask(channel: Any) -> Callable[..., dict[str, Any]]:
    """Asks a service, over direct reply-to."""
    answers: list[Any] = []
    channel.basic_consume(PSEUDO, lambda _c, _m, properties, _b: answers.append(properties), auto_ack=True)

    def request(service: str, **arguments: Any) -> dict[str, Any]:
        answers.clear()
        properties = pika.BasicProperties(reply_to=PSEUDO, correlation_id="c", headers=arguments)
        channel.basic_publish("amq.system", service, b"", properties)
        gather(channel.connection, answers, 1)
        assert answers[0].correlation_id == "c"
        return dict(answers[0].headers)

    return request


def test_services_answer(channel: Any, name: Name, ask: Callable[..., dict[str, Any]]) -> None:
    for number in range(3):
        channel.queue_declare(name(str(number)), exclusive=True)
    info = ask("broker.info")
    assert info["product"] == "FlintMQ"
    assert info["queues"] >= 3
    page = ask("queue.list", limit=2, after=name(""))
    assert [row["name"] for row in page["rows"]] == [name("0"), name("1")]
    assert page["next"] == name("1")
    assert ask("queue.info", queue=name("0"))["exclusive"] is True
    assert ask("no.such")["error-code"] == 404
    assert ask("queue.list", limit=-1)["error-code"] == 406
    rows = ask("connection.list", limit=1000)["rows"]
    assert any(row["protocol"] == "0-9-1" and row["user"] == "guest" for row in rows)


def test_unknown_service_is_returned(channel: Any) -> None:
    channel.confirm_delivery()
    with pytest.raises(pika.exceptions.UnroutableError):
        channel.basic_publish("amq.system", "no.such", b"", mandatory=True)


def test_reply_to_across_connections(broker: Broker, channel: Any, name: Name) -> None:
    answers: list[bytes] = []
    channel.queue_declare(name("requests"))
    channel.basic_consume(PSEUDO, lambda _c, _m, _p, body: answers.append(body), auto_ack=True)
    for number in range(3):
        channel.basic_publish(
            "",
            name("requests"),
            b"%d" % number,
            pika.BasicProperties(reply_to=PSEUDO, headers={"a": [1, "b"]}),
        )
    with connected(broker) as other:
        server = other.channel()
        await_depth(server, name("requests"), 3)
        for _ in range(3):
            _, header, body = server.basic_get(name("requests"), auto_ack=True)
            assert header.headers == {"a": [1, "b"]}
            server.basic_publish("", header.reply_to, b"answer to " + body)
        gather(channel.connection, answers, 3)
        assert answers == [b"answer to 0", b"answer to 1", b"answer to 2"]
        channel.connection.close()
        server.confirm_delivery()
        with pytest.raises(pika.exceptions.UnroutableError):
            server.basic_publish("", header.reply_to, b"too late", mandatory=True)


def test_reply_consumer_must_not_ack(channel: Any) -> None:
    with channel_error(406):
        channel.basic_consume(PSEUDO, lambda *_: None)


@pytest.mark.parametrize("header", ["CC", "BCC"])
def test_copies_of_the_wrong_type(channel: Any, name: Name, header: str) -> None:
    channel.queue_declare(name("queue"))
    with channel_error(406):
        channel.basic_publish("", name("queue"), b"x", pika.BasicProperties(headers={header: "text"}))
        channel.queue_declare(name("queue"), passive=True)


def test_delayed_message_is_on_time(channel: Any, name: Name) -> None:
    exchange, queue = name("exchange"), name("queue")
    channel.exchange_declare(
        exchange, "x-delayed-message", durable=True, arguments={"x-delayed-type": "topic"}
    )
    channel.queue_declare(queue, durable=True)
    channel.queue_bind(queue, exchange, "a.#")
    channel.confirm_delivery()
    arrived: list[float] = []
    channel.basic_consume(queue, lambda *_: arrived.append(time.monotonic()), auto_ack=True)
    sent = time.monotonic()
    for delay_ms in (400, 200):
        channel.basic_publish(
            exchange, "a.b", b"x", pika.BasicProperties(delivery_mode=2, headers={"x-delay": delay_ms})
        )
    confirmed = time.monotonic()
    gather(channel.connection, arrived, 2)
    assert arrived[0] >= sent + 0.2
    assert arrived[1] >= sent + 0.4
    assert arrived[1] < confirmed + 0.4 + 1.0, "a busy machine may be late, but not by that much"


def test_hash_spreads_and_holds(channel: Any, name: Name) -> None:
    exchange = name("exchange")
    channel.exchange_declare(exchange, "x-consistent-hash", auto_delete=True)
    queues = [name(str(number)) for number in range(4)]
    for queue in queues:
        channel.queue_declare(queue, exclusive=True)
        channel.queue_bind(queue, exchange, "10")
    for number in range(400):
        channel.basic_publish(exchange, f"key {number % 100}", b"%d" % (number % 100))
    found = [bodies(channel, queue) for queue in queues]
    assert sum(map(len, found)) == 400
    for one in found:
        assert len(one) > 0
        assert all(one.count(body) == 4 for body in one)


def test_random_and_lossy(channel: Any, name: Name) -> None:
    for noun, kind, arguments in (
        ("random", "x-random", {}),
        ("lossy", "x-lossy", {"x-drop-rate": Decimal("0.5")}),
    ):
        channel.exchange_declare(name(noun), kind, auto_delete=True, arguments=arguments)
        for number in range(2):
            queue = name(f"{noun}{number}")
            channel.queue_declare(queue, exclusive=True)
            channel.queue_bind(queue, name(noun), "")
        for _ in range(200):
            channel.basic_publish(name(noun), "", b"x")
    first, second = depth(channel, name("random0")), depth(channel, name("random1"))
    assert first + second == 200
    assert min(first, second) > 20
    assert 20 < depth(channel, name("lossy0")) < 180


def test_recent_history_and_deduplication(channel: Any, name: Name) -> None:
    channel.exchange_declare(name("history"), "x-recent-history", arguments={"x-recent-history-length": 2})
    for number in range(4):
        channel.basic_publish(name("history"), "", b"%d" % number)
    channel.queue_declare(name("late"), exclusive=True)
    channel.queue_bind(name("late"), name("history"), "")
    assert bodies(channel, name("late")) == [b"2", b"3"]
    channel.exchange_declare(
        name("once"), "x-message-deduplication", arguments={"x-cache-size": 100, "x-cache-ttl": 60_000}
    )
    channel.queue_declare(name("unique"), exclusive=True, arguments={"x-message-deduplication": True})
    channel.queue_bind(name("unique"), name("once"), "")
    for value in ("a", "b", "a"):
        channel.basic_publish(
            name("once"), "", value.encode(), pika.BasicProperties(headers={"x-deduplication-header": value})
        )
    assert bodies(channel, name("unique")) == [b"a", b"b"]
    with channel_error(406):
        channel.exchange_declare(name("wrong"), "x-message-deduplication", arguments={"x-cache-size": "many"})


def test_chained_bindings(channel: Any, name: Name) -> None:
    queue = name("queue")
    channel.queue_declare(queue, exclusive=True)
    channel.queue_bind(queue, "amq.topic", name("usd.*"))
    condition = {"x-match": "all", "kind": "pdf", "x-via": "amq.topic"}
    channel.queue_bind(queue, "amq.headers", "", arguments=condition)
    for key, kind in (("usd.a", "pdf"), ("usd.a", "text"), ("eur.a", "pdf")):
        body = f"{key} {kind}".encode()
        channel.basic_publish("amq.topic", name(key), body, pika.BasicProperties(headers={"kind": kind}))
    assert bodies(channel, queue) == [b"usd.a pdf"]
    channel.queue_unbind(queue, "amq.headers", "", arguments=condition)
    channel.basic_publish("amq.topic", name("usd.a"), b"any")
    assert bodies(channel, queue) == [b"any"]


def test_namespaces(channel: Any) -> None:
    channel.queue_declare("7", exclusive=True, arguments={"x-namespace": "replies"})
    channel.basic_publish("", "replies:7", b"x")
    assert bodies(channel, "replies:7") == [b"x"]


def test_aio_pika_asks_and_delays(broker: Broker, name: Name) -> None:
    async def conversation() -> None:
        async with await aio_pika.connect(broker.url) as connection:
            channel = await connection.channel()
            exchange = await channel.declare_exchange(
                name("exchange"), "x-delayed-message", arguments={"x-delayed-type": "fanout"}
            )
            queue = await channel.declare_queue(name("queue"), exclusive=True)
            await queue.bind(exchange)
            started = time.monotonic()
            await exchange.publish(aio_pika.Message(b"later", headers={"x-delay": 100}), "")
            async with queue.iterator(timeout=10) as messages:
                message = await anext(messages)
            assert message.body == b"later"
            assert time.monotonic() - started >= 0.1
            answers = await channel.declare_queue(name("answers"), exclusive=True)
            system = await channel.get_exchange("amq.system", ensure=True)
            request = aio_pika.Message(b"", reply_to=answers.name, headers={"limit": 5})
            await system.publish(request, "exchange.list")
            async with answers.iterator(timeout=10) as messages:
                answer = await anext(messages)
            assert len(answer.headers["rows"]) == 5

    asyncio.run(asyncio.wait_for(conversation(), 20))
