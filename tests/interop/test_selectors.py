"""Selectors, wild cards and patterns with pika: exchanges of FlintMQ's own, and late bindings."""

from decimal import Decimal
from typing import Any

import pika
import pytest
from interop_live import Broker
from interop_pika import Name, await_depth, bodies, connected, gather
from pika.exceptions import ChannelClosedByBroker

# None of this is in RabbitMQ.
pytestmark = pytest.mark.standard


def selecting(channel: Any, exchange: str, key: str = "", **arguments: Any) -> str:
    queue: str = channel.queue_declare("", exclusive=True).method.queue
    channel.queue_bind(queue, exchange, key, {name.replace("_", "-"): v for name, v in arguments.items()})
    return queue


def send(channel: Any, exchange: str, key: str, body: bytes, headers: dict[str, Any], **more: Any) -> None:
    channel.basic_publish(exchange, key, body, pika.BasicProperties(headers=headers, **more))


def test_selector_exchange(channel: Any, name: Name) -> None:
    channel.exchange_declare(name("x"), "x-selector")
    dear = selecting(channel, name("x"), x_selector="symbol = 'IBM' AND price > 100.5")
    known = selecting(channel, name("x"), x_selector="symbol IN ('IBM', 'SAP') OR JMSPriority >= 5")
    odd = selecting(channel, name("x"), x_selector="symbol IS NULL")
    send(channel, name("x"), "", b"1", {"symbol": "IBM", "price": 101})
    send(channel, name("x"), "", b"2", {"symbol": "IBM", "price": Decimal("99.5")})
    send(channel, name("x"), "", b"3", {"symbol": "XYZ"}, priority=5)
    send(channel, name("x"), "", b"4", {"price": 200})
    assert bodies(channel, dear) == [b"1"]
    assert bodies(channel, known) == [b"1", b"2", b"3"]
    assert bodies(channel, odd) == [b"4"]


def test_a_wrong_selector_says_where(channel: Any, name: Name) -> None:
    channel.exchange_declare(name("x"), "x-selector")
    with pytest.raises(ChannelClosedByBroker, match=r"406.*position 9: expected a value"):
        selecting(channel, name("x"), x_selector="price > ")


def test_prop_wild_exchange(channel: Any, name: Name) -> None:
    channel.exchange_declare(name("x"), "x-prop-wild")
    queue: str = channel.queue_declare("", exclusive=True).method.queue
    channel.queue_bind(queue, name("x"), "", {"content_type": "image/*", "file": "holiday-??.*"})
    send(channel, name("x"), "", b"1", {"file": "holiday-07.png"}, content_type="image/png")
    send(channel, name("x"), "", b"2", {"file": "holiday-7.png"}, content_type="image/png")
    send(channel, name("x"), "", b"3", {"file": "holiday-08.mp4"}, content_type="video/mp4")
    assert bodies(channel, queue) == [b"1"]


def test_regexp_exchange(channel: Any, name: Name) -> None:
    channel.exchange_declare(name("x"), "x-regexp")
    by_key = selecting(channel, name("x"), r"^stock\.(nyse|lse)\.[a-z]{1,4}$")
    by_header = selecting(channel, name("x"), x_header="host", x_pattern=r"\.example\.(com|org)$")
    send(channel, name("x"), "stock.nyse.ibm", b"1", {"host": "a.example.net"})
    send(channel, name("x"), "stock.tse.ibm", b"2", {"host": "a.example.org"})
    assert bodies(channel, by_key) == [b"1"]
    assert bodies(channel, by_header) == [b"2"]


def test_backreferences_are_refused(channel: Any, name: Name) -> None:
    channel.exchange_declare(name("x"), "x-regexp")
    with pytest.raises(ChannelClosedByBroker, match=r"406.*backreferences"):
        selecting(channel, name("x"), r"(a)\1")


def test_late_bindings(broker: Broker, channel: Any, name: Name) -> None:
    queue = name("orders")
    channel.queue_declare(queue)
    got: list[tuple[str, bytes]] = []
    with connected(broker) as connection:
        reader = connection.channel()
        for tag, selector in (("large", "amount >= 1000"), ("eu", "region = 'eu' AND amount < 1000")):
            reader.basic_consume(
                queue,
                lambda _, method, __, body: got.append((method.consumer_tag, body)),
                auto_ack=True,
                consumer_tag=tag,
                arguments={"x-selector": selector},
            )
        send(channel, "", queue, b"1", {"region": "eu", "amount": 5})
        send(channel, "", queue, b"2", {"region": "us", "amount": 5})
        send(channel, "", queue, b"3", {"region": "us", "amount": 5000})
        send(channel, "", queue, b"4", {"region": "eu", "amount": 7})
        gather(connection, got, 3)
    assert sorted(got) == [("eu", b"1"), ("eu", b"4"), ("large", b"3")]
    await_depth(channel, queue, 1)
    assert bodies(channel, queue) == [b"2"]
