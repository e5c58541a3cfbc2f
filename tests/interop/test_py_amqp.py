"""py-amqp, the library under kombu and Celery, used directly."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import amqp
import pytest
from interop_live import Broker, eventually

Name = Callable[[str], str]


def connect(broker: Broker, **settings: Any) -> Any:
    connection = amqp.Connection(f"{broker.host}:{broker.port}", "guest", "guest", **settings)
    connection.connect()
    return connection


@pytest.fixture
def connection(broker: Broker) -> Iterator[Any]:
    opened = connect(broker)
    yield opened
    if opened.connected:
        opened.close()


def drain(connection: Any, into: list[Any], count: int) -> None:
    while len(into) < count:
        connection.drain_events(timeout=10)


@pytest.mark.parametrize("method", ["PLAIN", "AMQPLAIN"])
def test_login_methods(broker: Broker, method: str) -> None:
    connection = connect(broker, login_method=method)
    assert connection.server_properties["product"]
    connection.close()
    wrong = amqp.Connection(f"{broker.host}:{broker.port}", "guest", "wrong", login_method=method)
    with pytest.raises(amqp.AccessRefused):
        wrong.connect()


def test_publish_get_ack(connection: Any, name: Name) -> None:
    channel = connection.channel()
    channel.queue_declare(name("queue"), auto_delete=False)
    channel.basic_publish(amqp.Message("text", content_type="text/plain"), "", name("queue"))
    message = channel.basic_get(name("queue"))
    assert (message.body, message.content_type) == ("text", "text/plain")
    channel.basic_ack(message.delivery_tag)
    assert channel.basic_get(name("queue")) is None


def test_consume_with_prefetch(connection: Any, name: Name) -> None:
    channel = connection.channel()
    got: list[Any] = []
    channel.queue_declare(name("queue"))
    for number in range(6):
        channel.basic_publish(amqp.Message(str(number)), "", name("queue"))
    channel.basic_qos(0, 2, False)
    channel.basic_consume(name("queue"), callback=got.append)
    drain(connection, got, 2)
    with pytest.raises(TimeoutError):
        connection.drain_events(timeout=0.3)
    while len(got) < 6:
        channel.basic_ack(got[-1].delivery_tag, multiple=True)
        drain(connection, got, len(got) + 2)
    assert [message.body for message in got] == list("012345")


def test_confirmed_publish(broker: Broker, name: Name) -> None:
    connection = connect(broker, confirm_publish=True)
    channel = connection.channel()
    channel.queue_declare(name("queue"))
    for number in range(20):
        channel.basic_publish_confirm(amqp.Message(str(number)), "", name("queue"))
        assert channel.queue_declare(name("queue"), passive=True).message_count == number + 1
    connection.close()


def test_return(connection: Any, name: Name) -> None:
    channel = connection.channel()
    returned: list[Any] = []
    channel.events["basic_return"].add(lambda *parts: returned.append(parts))
    channel.basic_publish(amqp.Message("back"), "", name("nowhere"), mandatory=True)
    drain(connection, returned, 1)
    error, _, key, message = returned[0]
    assert (error.reply_code, key, message.body) == (312, name("nowhere"), "back")


@pytest.mark.parametrize(
    ("error", "operation"),
    [
        (amqp.NotFound, lambda channel, name: channel.queue_declare(name("nothing"), passive=True)),
        (amqp.NotFound, lambda channel, name: channel.exchange_declare(name("no"), "direct", passive=True)),
        (amqp.AccessRefused, lambda channel, name: channel.queue_declare("amq." + name("mine"))),
        (amqp.PreconditionFailed, lambda channel, name: channel.tx_commit()),
    ],
    ids=["no-queue", "no-exchange", "reserved", "no-transaction"],
)
def test_errors_have_their_class(connection: Any, name: Name, error: type[Exception], operation: Any) -> None:
    channel = connection.channel()
    with pytest.raises(error):
        operation(channel, name)
    assert connection.channel().queue_declare("", exclusive=True).queue


def test_exclusive_queue_is_resource_locked(broker: Broker, connection: Any, name: Name) -> None:
    connection.channel().queue_declare(name("mine"), exclusive=True)
    other = connect(broker)
    with pytest.raises(amqp.ResourceLocked):
        other.channel().queue_declare(name("mine"), passive=True)
    other.close()


HEADERS = {
    "float": 2.5,
    "text": "\u2603",
    "octets": b"\xff\x00",
    "true": True,
    "small": 1,
    "negative": -(2**31),
    "long": 2**40,
    "list": [1, 2.25, "three", {"k": [None]}],
    "table": {"a": {"b": 1.5}},
    "nothing": None,
}


def test_headers_round_trip(connection: Any, name: Name) -> None:
    channel = connection.channel()
    channel.queue_declare(name("queue"))
    channel.basic_publish(amqp.Message("x", application_headers=HEADERS), "", name("queue"))
    assert channel.basic_get(name("queue")).headers == HEADERS


def test_exchange_binding_and_unbinding(connection: Any, name: Name) -> None:
    channel = connection.channel()
    channel.exchange_declare(name("outer"), "fanout", auto_delete=False)
    channel.exchange_declare(name("inner"), "direct", auto_delete=False)
    channel.exchange_bind(name("inner"), name("outer"))
    channel.queue_declare(name("queue"))
    channel.queue_bind(name("queue"), name("inner"), "k")
    channel.basic_publish(amqp.Message("through"), name("outer"), "k")
    assert channel.basic_get(name("queue"), no_ack=True).body == "through"
    channel.exchange_unbind(name("inner"), name("outer"))
    channel.basic_publish(amqp.Message("lost"), name("outer"), "k")
    assert channel.basic_get(name("queue")) is None


def test_transaction(connection: Any, name: Name) -> None:
    channel = connection.channel()
    channel.queue_declare(name("queue"))
    channel.tx_select()
    channel.basic_publish(amqp.Message("undone"), "", name("queue"))
    channel.tx_rollback()
    channel.basic_publish(amqp.Message("done"), "", name("queue"))
    channel.tx_commit()
    assert channel.queue_declare(name("queue"), passive=True).message_count == 1
    assert channel.basic_get(name("queue")).body == "done"


def test_recover(connection: Any, name: Name) -> None:
    channel = connection.channel()
    got: list[Any] = []
    channel.queue_declare(name("queue"))
    channel.basic_publish(amqp.Message("again"), "", name("queue"))
    channel.basic_consume(name("queue"), callback=got.append)
    drain(connection, got, 1)
    channel.basic_recover(requeue=True)
    drain(connection, got, 2)
    assert [message.delivery_info["redelivered"] for message in got] == [False, True]


def test_cancelled_by_the_broker(broker: Broker, connection: Any, name: Name) -> None:
    channel = connection.channel()
    cancelled: list[str] = []
    channel.queue_declare(name("queue"))
    channel.basic_consume(name("queue"), callback=lambda _: None, on_cancel=cancelled.append)
    other = connect(broker)
    other.channel().queue_delete(name("queue"))
    drain(connection, cancelled, 1)
    assert len(cancelled) == 1
    other.close()


def test_heartbeats_both_ways(broker: Broker) -> None:
    connection = connect(broker, heartbeat=1)
    received = connection.bytes_recv

    def beaten() -> bool:
        connection.heartbeat_tick()
        with contextlib.suppress(TimeoutError):
            connection.drain_events(timeout=0.2)
        return bool(connection.bytes_recv >= received + 3)

    eventually(beaten, "three heartbeats", 10)
    assert connection.channel().is_open
    connection.close()


def test_large_message(connection: Any, name: Name) -> None:
    channel = connection.channel()
    body = b"\x00\x01\x02\xff" * 500_000
    channel.queue_declare(name("queue"))
    channel.basic_publish(amqp.Message(body), "", name("queue"))
    assert channel.basic_get(name("queue"), no_ack=True).body == body
