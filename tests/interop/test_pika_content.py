"""Messages come out as they went in: bodies of every size, every property, every header type."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pika
import pytest
from interop_live import Broker
from interop_pika import Name, connected, publish, take
from pika.compat import long

FRAME_BYTES = 8192


def round_trip(channel: Any, queue: str, body: bytes, properties: Any = None) -> tuple[Any, bytes]:
    channel.queue_declare(queue, exclusive=True)
    channel.basic_publish("", queue, body, properties)
    [(_, header, back)] = take(channel, queue, 1)
    return header, back


def test_ten_mebibytes(channel: Any, name: Name) -> None:
    body = bytes(range(256)) * (10 * 1024 * 4)
    assert len(body) == 10 * 1024 * 1024
    header, back = round_trip(channel, name("queue"), body, pika.BasicProperties(delivery_mode=2))
    assert back == body
    assert header.delivery_mode == 2


@pytest.mark.parametrize("spare", [-1, 0, 1], ids=["one-less", "exact", "one-more"])
@pytest.mark.parametrize("frames", [1, 3])
def test_body_around_the_edge_of_a_frame(broker: Broker, name: Name, frames: int, spare: int) -> None:
    body = b"z" * (frames * (FRAME_BYTES - 8) + spare)
    with connected(broker, frame_max=FRAME_BYTES) as connection:
        assert round_trip(connection.channel(), name("queue"), body)[1] == body


def test_empty_body_by_get_and_by_consume(channel: Any, name: Name) -> None:
    header, back = round_trip(channel, name("queue"), b"", pika.BasicProperties(message_id="empty"))
    assert (header.message_id, back) == ("empty", b"")
    publish(channel, name("queue"), b"", b"full", b"")
    assert [channel.basic_get(name("queue"), auto_ack=True)[2] for _ in range(3)] == [b"", b"full", b""]


def test_every_octet_value(channel: Any, name: Name) -> None:
    body = bytes(range(256))
    assert round_trip(channel, name("queue"), body)[1] == body


PROPERTIES = {
    "content_type": "application/json",
    "content_encoding": "utf-8",
    "delivery_mode": 1,
    "priority": 9,
    "correlation_id": "c-1",
    "reply_to": "answers",
    "expiration": "60000",
    "message_id": "m-1",
    "timestamp": 1_700_000_000,
    "type": "order",
    "user_id": "guest",
    "app_id": "shop",
    "cluster_id": "here",
}


def test_all_properties(channel: Any, name: Name) -> None:
    header, _ = round_trip(channel, name("queue"), b"x", pika.BasicProperties(headers={"a": 1}, **PROPERTIES))
    assert {key: getattr(header, key) for key in PROPERTIES} == PROPERTIES
    assert header.headers == {"a": 1}


@pytest.mark.parametrize("key", sorted(PROPERTIES))
def test_each_property_alone(channel: Any, name: Name, key: str) -> None:
    header, _ = round_trip(channel, name("queue"), b"x", pika.BasicProperties(**{key: PROPERTIES[key]}))
    for other in PROPERTIES:
        assert getattr(header, other) == (PROPERTIES[key] if other == key else None)
    assert header.headers is None


def test_no_properties_at_all(channel: Any, name: Name) -> None:
    header, _ = round_trip(channel, name("queue"), b"x")
    assert all(getattr(header, key) is None for key in [*PROPERTIES, "headers"])


HEADERS: dict[str, Any] = {
    "string": "text \u2603",
    "empty": "",
    "octets": b"\x00\xff\x80",
    "true": True,
    "false": False,
    "int": -5,
    "int-max": 2**31 - 1,
    "long": long(2**62),
    "long-negative": -(2**62),
    "decimal": Decimal("3.14"),
    "decimal-negative": Decimal("-271.8"),
    "time": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    "nothing": None,
    "list": [1, "two", None, [True, [b"deep"]], {"k": Decimal("0.1")}],
    "list-empty": [],
    "table": {"inner": {"innermost": [1, 2, 3]}, "n": 1},
    "table-empty": {},
}


@pytest.mark.parametrize("key", sorted(HEADERS))
def test_header_of_each_type(channel: Any, name: Name, key: str) -> None:
    sent = {key: HEADERS[key]}
    header, _ = round_trip(channel, name("queue"), b"x", pika.BasicProperties(headers=sent))
    assert header.headers == sent
    assert isinstance(header.headers[key], type(HEADERS[key])), "True is not 1, and octets are not text"


def test_headers_of_all_types_together(channel: Any, name: Name) -> None:
    header, _ = round_trip(channel, name("queue"), b"x", pika.BasicProperties(headers=HEADERS))
    assert header.headers == HEADERS


def test_large_header_table(channel: Any, name: Name) -> None:
    sent = {f"key-{number}": "v" * 100 for number in range(500)}
    header, _ = round_trip(channel, name("queue"), b"x", pika.BasicProperties(headers=sent))
    assert header.headers == sent


def test_names_may_be_any_utf8(channel: Any, name: Name) -> None:
    queue, exchange = name("\u961f\u5217"), name("\u00e9change")
    channel.exchange_declare(exchange, "direct")
    channel.queue_declare(queue, exclusive=True)
    channel.queue_bind(queue, exchange, "\u043a\u043b\u044e\u0447")
    channel.basic_publish(exchange, "\u043a\u043b\u044e\u0447", b"x")
    method = channel.basic_get(queue)[0]
    assert (method.exchange, method.routing_key) == (exchange, "\u043a\u043b\u044e\u0447")


def test_longest_names_and_keys(channel: Any) -> None:
    key = "k" * 255
    queue = channel.queue_declare("", exclusive=True).method.queue
    channel.queue_bind(queue, "amq.topic", key)
    channel.basic_publish("amq.topic", key, b"x")
    assert channel.basic_get(queue)[0].routing_key == key


def test_user_id_must_be_the_users_own(channel: Any, name: Name) -> None:
    channel.queue_declare(name("queue"), exclusive=True)
    channel.basic_publish("", name("queue"), b"x", pika.BasicProperties(user_id="someone-else"))
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        channel.queue_declare("", exclusive=True)
    assert caught.value.reply_code == 406
