"""Servers with bad manners on a real socket, and ends of connections: nothing hangs, nothing is hidden."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Iterator

import pytest

from flintmq.client import (
    ChannelClosed,
    ConnectFailed,
    ConnectionClosed,
    ForkedConnection,
    NotFound,
    PublishFailed,
    aio,
    connect,
)


@pytest.fixture(params=[b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0" * 300, b"AMQP\x00\x01\x00\x00", None])
def stranger(request: pytest.FixtureRequest) -> Iterator[str]:
    """Says something that is no AMQP, nothing at all (None: and does not even hang up)."""
    held: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connected, _ = listener.accept()
                except OSError:
                    return
                held.append(connected)
                if request.param is not None:
                    connected.sendall(request.param)
                    connected.shutdown(socket.SHUT_WR)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"amqp://me:secret-word@127.0.0.1:{listener.getsockname()[1]}?connection_timeout=0.5"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
    for connected in held:
        connected.close()


def test_a_stranger_is_a_failure_to_connect(stranger: str) -> None:
    with pytest.raises(ConnectFailed) as sync_error:
        connect(stranger)
    with pytest.raises(ConnectFailed) as async_error:
        asyncio.run(aio.connect(stranger))
    for error in (sync_error.value, async_error.value):
        assert "127.0.0.1" in str(error)
        assert "secret-word" not in str(error)


def test_a_fork_may_not_settle_or_read_either(uri: str) -> None:
    with connect(uri) as connection, connection.channel(confirm=True) as channel:
        queue = channel.queue(exclusive=True)
        channel.publish_many([b"1", b"2", b"3"], routing_key=queue.name)
        consumer = queue.consume()
        message = next(consumer)
        child = os.fork()
        if child == 0:
            refused = 0
            for use in (message.ack, lambda: next(consumer), lambda: consumer.take(1)):
                try:
                    use()
                except ForkedConnection:
                    refused += 1
            os._exit(refused)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
        assert message.ack()
        assert next(consumer).body == b"2"


def test_leaving_a_consumer_gives_back_what_was_not_read(uri: str) -> None:
    with connect(uri) as connection, connection.channel(confirm=True) as channel:
        queue = channel.queue(exclusive=True)
        channel.publish_many([b"%d" % number for number in range(5)], routing_key=queue.name)
        with queue.consume() as consumer:
            next(consumer).ack()
        assert [message.body for message in queue.consume(timeout_s=0.2)] == [b"1", b"2", b"3", b"4"]


def test_closing_waits_for_confirms_and_tells(uri: str) -> None:
    connection = connect(uri)
    channel = connection.channel(confirm=True)
    channel.publish(b"x", routing_key="nowhere", mandatory=True, wait=False)
    with pytest.raises(PublishFailed, match="returned"):
        connection.close()
    assert connection.is_closed


def test_a_channel_that_was_closed_under_unconfirmed_messages_tells_at_its_end(uri: str) -> None:
    with connect(uri) as connection:
        channel = connection.channel(confirm=True)
        channel.publish(b"x", "no-such-exchange", wait=False)
        connection.channel().close()  # a round trip, on which the refusal comes
        with pytest.raises(PublishFailed, match="1 messages were on their way") as failed:
            channel.close()
        assert isinstance(failed.value.__cause__, ChannelClosed)


def test_calls_after_a_channel_error_tell_of_an_earlier_one(uri: str) -> None:
    with connect(uri) as connection:
        channel = connection.channel()
        with pytest.raises(NotFound, match=r"^declaring queue 'nowhere' was refused with 404: ") as first:
            channel.queue("nowhere", passive=True)
        earlier = f"channel {channel.core.number} was closed by the broker earlier: {first.value}"
        for call in (
            lambda: channel.queue("another"),
            lambda: channel.publish(b"x", routing_key="another"),
            lambda: channel.purge_queue("another"),
        ):
            with pytest.raises(NotFound) as later:
                call()
            assert (str(later.value), later.value.code) == (earlier, 404)
            assert later.value.text == first.value.text
        channel.close()
        with connection.channel() as fresh:
            fresh.queue("", exclusive=True)


def test_two_consumers_of_which_one_is_not_read(uri: str) -> None:
    """The other one cannot go on for ever behind it: it says so instead of hanging."""
    with connect(uri, received_bytes_max=50_000) as connection:
        channel = connection.channel()
        unread, read = channel.queue(exclusive=True), channel.queue(exclusive=True)
        unread.consume(no_ack=True)
        consumer = read.consume(no_ack=True)
        with connect(uri) as other, other.channel() as publisher:
            publisher.publish_many([bytes(1000)] * 500, routing_key=unread.name)
        with pytest.raises(ConnectionClosed, match="use a smaller prefetch"):
            next(consumer)


def test_a_service_that_is_late_does_not_cost_the_connection(uri: str) -> None:
    with connect(uri) as connection:
        connection.request("broker.info")
        with pytest.raises(TimeoutError):
            connection.request("broker.info", timeout_s=1e-9)
        assert connection.is_open
        assert connection.request("broker.info").results["product"] == "FlintMQ"
