"""pika's blocking client in the few forms the tests need: connect, count, take, and expect a refusal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pika
import pytest
from interop_live import Broker, eventually
from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker

TAKE_S_MAX = 10.0


def parameters(broker: Broker, **settings: Any) -> pika.ConnectionParameters:
    settings.setdefault("heartbeat", 0)
    settings.setdefault("socket_timeout", 10)
    settings.setdefault("blocked_connection_timeout", 10)
    return pika.ConnectionParameters(broker.host, broker.port, **settings)


@contextmanager
def connected(broker: Broker, **settings: Any) -> Iterator[pika.BlockingConnection]:
    connection = pika.BlockingConnection(parameters(broker, **settings))
    try:
        yield connection
    finally:
        if connection.is_open:
            connection.close()


def depth(channel: Any, queue: str) -> int:
    """Messages ready in the queue, as passive declare tells."""
    return int(channel.queue_declare(queue, passive=True).method.message_count)


def await_depth(channel: Any, queue: str, count: int) -> None:
    eventually(lambda: depth(channel, queue) == count, f"{count} messages ready in {queue}")


def publish(channel: Any, queue: str, *bodies: bytes) -> None:
    """Publish to the queue by its own name; what this channel asks next comes after it."""
    for body in bodies:
        channel.basic_publish("", queue, body)


def take(channel: Any, queue: str, count: int, *, ack: bool = True) -> list[Any]:
    """The next `count` messages, pushed by the broker, as (method, properties, body)."""
    got: list[Any] = []
    for method, properties, body in channel.consume(queue, inactivity_timeout=TAKE_S_MAX):
        if method is None:
            break
        got.append((method, properties, body))
        if ack:
            channel.basic_ack(method.delivery_tag)
        if len(got) == count:
            break
    channel.cancel()
    assert len(got) == count, f"{len(got)} of {count} messages came from {queue}"
    return got


def bodies(channel: Any, queue: str) -> list[bytes]:
    """Empty the queue with basic.get, oldest first."""
    got: list[bytes] = []
    while True:
        method, _, body = channel.basic_get(queue, auto_ack=True)
        if method is None:
            return got
        got.append(body)


def gather(connection: Any, into: list[Any], count: int) -> None:
    """Serve the connection until its callbacks have collected `count` things."""

    def enough() -> bool:
        connection.process_data_events(time_limit=0.05)
        return len(into) >= count

    eventually(enough, f"{count} events, have {len(into)}")


@contextmanager
def channel_error(code: int, *others: int) -> Iterator[None]:
    """The block ends with the broker closing the channel with this reply code."""
    with pytest.raises(ChannelClosedByBroker) as caught:
        yield
    assert caught.value.reply_code in (code, *others), caught.value
    assert caught.value.reply_text, "a refusal says what was wrong"


@contextmanager
def connection_error(code: int) -> Iterator[None]:
    with pytest.raises(ConnectionClosedByBroker) as caught:
        yield
    assert caught.value.reply_code == code, caught.value
    assert caught.value.reply_text, "a refusal says what was wrong"


Name = Callable[[str], str]
