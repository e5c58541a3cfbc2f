"""Streams as pika sees them: read by many, from any place, and again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pika
import pytest
from interop_live import Broker, eventually
from interop_pika import Name, connected, depth, publish
from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker

STREAM = {"x-queue-type": "stream"}


@pytest.fixture
def stream(channel: Any, name: Name) -> Iterator[str]:
    channel.confirm_delivery()
    channel.queue_declare(name("stream"), durable=True, arguments=STREAM)
    yield name("stream")
    if channel.is_open:
        channel.queue_delete(name("stream"))


def read(channel: Any, stream: str, count: int, **arguments: Any) -> list[tuple[int, bytes]]:
    """The offsets and bodies of the next `count` messages that a new consumer gets."""
    channel.basic_qos(prefetch_count=100)
    got: list[tuple[int, bytes]] = []
    named = {f"x-stream-{key.replace('_', '-')}": value for key, value in arguments.items()}
    for method, properties, body in channel.consume(stream, arguments=named, inactivity_timeout=10):
        assert method is not None, f"{len(got)} of {count} came"
        got.append((properties.headers["x-stream-offset"], body))
        channel.basic_ack(method.delivery_tag)
        if len(got) == count:
            break
    channel.cancel()
    return got


@contextmanager
def refused(kind: Any, code: int, text: str) -> Iterator[None]:
    """The broker closes with this code, and says why."""
    with pytest.raises(kind) as caught:
        yield
    assert caught.value.reply_code == code
    assert text in caught.value.reply_text


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def test_every_reader_gets_everything(channel: Any, stream: str) -> None:
    publish(channel, stream, *numbered(500))
    expected = list(enumerate(numbered(500)))
    assert read(channel, stream, 500, offset="first") == expected
    assert read(channel, stream, 500, offset="first") == expected
    assert depth(channel, stream) == 500


def test_reading_begins_where_it_is_told(channel: Any, stream: str) -> None:
    publish(channel, stream, *numbered(50))
    assert read(channel, stream, 10, offset=40) == list(enumerate(numbered(50)))[40:]
    assert read(channel, stream, 1, offset="last")[-1] == (49, b"49")
    past = datetime.now(UTC) - timedelta(hours=1)
    assert read(channel, stream, 50, offset=past)[0] == (0, b"0")
    assert read(channel, stream, 50, offset="1h")[0] == (0, b"0")


def test_next_is_what_comes_from_now_on(channel: Any, stream: str, broker: Broker) -> None:
    publish(channel, stream, b"before")
    got: list[bytes] = []
    with connected(broker) as other:
        reading = other.channel()
        reading.basic_qos(prefetch_count=10)
        reading.basic_consume(stream, lambda ch, method, properties, body: got.append(body))
        publish(channel, stream, b"after")
        eventually(lambda: other.process_data_events(0.05) or got, "the new message")
    assert got == [b"after"]


def test_properties_and_headers_come_back_with_the_offset(channel: Any, stream: str) -> None:
    sent = pika.BasicProperties(
        content_type="text/plain",
        content_encoding="utf-8",
        headers={"a": 1, "b": {"c": "d"}},
        delivery_mode=2,
        priority=3,
        correlation_id="c",
        timestamp=1,
        type="t",
        app_id="x",
    )
    channel.basic_publish("", stream, b"with", sent)
    channel.basic_publish("", stream, b"without")
    channel.basic_qos(prefetch_count=10)
    consumed = channel.consume(stream, arguments={"x-stream-offset": "first"}, inactivity_timeout=10)
    _, with_all, _ = next(consumed)
    _, without, _ = next(consumed)
    channel.cancel()
    assert with_all.headers == {"a": 1, "b": {"c": "d"}, "x-stream-offset": 0}
    for field in ("content_type", "content_encoding", "delivery_mode", "priority", "correlation_id", "type"):
        assert getattr(with_all, field) == getattr(sent, field)
    assert (with_all.timestamp, with_all.app_id) == (1, "x")
    assert without.headers == {"x-stream-offset": 1}


def test_acks_give_credit_and_take_nothing(channel: Any, stream: str) -> None:
    publish(channel, stream, *numbered(30))
    channel.basic_qos(prefetch_count=10)
    got: list[Any] = []
    channel.basic_consume(
        stream, lambda ch, method, *_: got.append(method.delivery_tag), arguments={"x-stream-offset": "first"}
    )
    channel.connection.process_data_events(0.3)
    assert len(got) == 10
    channel.basic_ack(got[-1], multiple=True)
    eventually(lambda: channel.connection.process_data_events(0.05) or len(got) == 20, "ten more")
    channel.basic_nack(got[-1], multiple=True, requeue=True)
    eventually(lambda: channel.connection.process_data_events(0.05) or len(got) == 30, "the last ten")
    assert depth(channel, stream) == 30


def test_filters(channel: Any, stream: str) -> None:
    for number in range(300):
        value = ("red", "green", None)[number % 3]
        headers = {} if value is None else {"x-stream-filter-value": value, "n": number}
        channel.basic_publish("", stream, b"%d" % number, pika.BasicProperties(headers=headers))
    reds = [b"%d" % number for number in range(0, 300, 3)]
    assert [body for _, body in read(channel, stream, 100, offset="first", filter="red")] == reds
    colours = read(channel, stream, 200, offset="first", filter=["red", "green"])
    assert [offset for offset, _ in colours] == [number for number in range(300) if number % 3 != 2]
    rest = read(channel, stream, 200, offset="first", filter="green", match_unfiltered=True)
    assert [offset for offset, _ in rest] == [number for number in range(300) if number % 3]


def test_routed_like_any_queue_and_kept_in_both(channel: Any, stream: str, name: Name) -> None:
    channel.queue_declare(name("classic"), durable=True)
    channel.exchange_declare(name("exchange"), "fanout")
    channel.queue_bind(stream, name("exchange"))
    channel.queue_bind(name("classic"), name("exchange"))
    for body in (b"small", bytes(5_000_000)):
        channel.basic_publish(name("exchange"), "key", body, pika.BasicProperties(delivery_mode=2))
    assert [body for _, body in read(channel, stream, 2, offset="first")] == [b"small", bytes(5_000_000)]
    assert channel.basic_get(name("classic"), auto_ack=True)[2] == b"small"
    assert channel.basic_get(name("classic"), auto_ack=True)[2] == bytes(5_000_000)
    channel.queue_delete(name("classic"))
    channel.exchange_delete(name("exchange"))


def test_transactions_show_at_commit(broker: Broker, stream: str) -> None:
    with connected(broker) as connection:
        channel = connection.channel()
        channel.tx_select()
        publish(channel, stream, b"one", b"two")
        channel.tx_rollback()
        publish(channel, stream, b"three", b"four")
        channel.tx_commit()
        assert depth(channel, stream) == 2
        assert [body for _, body in read(channel, stream, 2, offset="first")] == [b"three", b"four"]


def test_retention_drops_the_oldest(channel: Any, name: Name) -> None:
    channel.confirm_delivery()
    arguments = {**STREAM, "x-max-length-bytes": 200_000, "x-stream-max-segment-size-bytes": 50_000}
    channel.queue_declare(name("stream"), durable=True, arguments=arguments)
    for _ in range(80):
        publish(channel, name("stream"), bytes(10_000))
    first = read(channel, name("stream"), 1, offset="first")[0][0]
    assert 55 <= first <= 70
    assert read(channel, name("stream"), 1, offset=3)[0][0] == first
    assert depth(channel, name("stream")) == 80 - first
    channel.queue_delete(name("stream"))


def test_many_readers_beside_a_publisher(broker: Broker, channel: Any, stream: str) -> None:
    count, readers = 400, 5
    got: dict[int, list[tuple[int, bytes]]] = {}

    def follow(number: int) -> None:
        with connected(broker) as connection:
            got[number] = read(connection.channel(), stream, count, offset="first")

    threads = [threading.Thread(target=follow, args=(number,)) for number in range(readers)]
    for thread in threads:
        thread.start()
    publish(channel, stream, *numbered(count))
    for thread in threads:
        thread.join()
    assert all(got[number] == list(enumerate(numbered(count))) for number in range(readers))


def test_delete_tells_readers(broker: Broker, channel: Any, stream: str) -> None:
    with connected(broker) as connection:
        reading = connection.channel()
        reading.basic_qos(prefetch_count=1)
        cancelled: list[Any] = []
        reading.add_on_cancel_callback(cancelled.append)
        reading.basic_consume(stream, lambda *_: None)
        channel.queue_delete(stream)
        eventually(lambda: connection.process_data_events(0.05) or cancelled, "the cancel")
    channel.queue_declare(stream, durable=True, arguments=STREAM)
    assert depth(channel, stream) == 0


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"durable": False}, "durable"),
        ({"exclusive": True}, "exclusive"),
        ({"auto_delete": True}, "auto-delete"),
    ],
)
def test_streams_are_durable_and_shared(channel: Any, name: Name, settings: Any, text: str) -> None:
    with refused(ChannelClosedByBroker, 406, text):
        channel.queue_declare(name("stream"), **{"durable": True, "arguments": STREAM, **settings})


@pytest.mark.parametrize(
    "wrong",
    [
        {"x-max-age": "7 days"},
        {"x-max-length-bytes": -1},
        {"x-stream-max-segment-size-bytes": 1 << 40},
        {"x-stream-filter-size-bytes": 5},
    ],
)
def test_wrong_arguments_are_named(channel: Any, name: Name, wrong: Any) -> None:
    with refused(ChannelClosedByBroker, 406, next(iter(wrong))):
        channel.queue_declare(name("stream"), durable=True, arguments={**STREAM, **wrong})


def test_reading_needs_credit(channel: Any, stream: str) -> None:
    with refused(ChannelClosedByBroker, 406, "prefetch count is not set"):
        channel.basic_consume(stream, lambda *_: None)


def test_a_wrong_offset_is_refused(channel: Any, stream: str) -> None:
    channel.basic_qos(prefetch_count=1)
    with refused(ChannelClosedByBroker, 406, "x-stream-offset"):
        channel.basic_consume(stream, lambda *_: None, arguments={"x-stream-offset": "yesterday"})


@pytest.mark.parametrize(
    ("method", "text"),
    [("get", "basic.get"), ("purge", "queue.purge"), ("automatic", "automatic acknowledgement")],
)
def test_what_a_stream_does_not_do(broker: Broker, stream: str, method: str, text: str) -> None:
    with refused(ConnectionClosedByBroker, 540, text), connected(broker) as connection:
        channel = connection.channel()
        if method == "get":
            channel.basic_get(stream)
        elif method == "purge":
            channel.queue_purge(stream)
        else:
            channel.basic_qos(prefetch_count=1)
            channel.basic_consume(stream, lambda *_: None, auto_ack=True)
