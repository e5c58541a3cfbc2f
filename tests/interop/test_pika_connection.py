"""The life of a connection with pika: log in, tune, beat, and be told why it ends."""

import contextlib
import socket
import time
from typing import Any

import pika
import pytest
from interop_live import Broker, eventually
from interop_pika import Name, bodies, channel_error, connected, connection_error, parameters, publish
from pika.exceptions import (
    AMQPConnectionError,
    ConnectionClosed,
    NoFreeChannels,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
)

CAPABILITIES = [
    "authentication_failure_close",
    "basic.nack",
    "connection.blocked",
    "consumer_cancel_notify",
    "consumer_priorities",
    "exchange_exchange_bindings",
    "per_consumer_qos",
    "publisher_confirms",
]


def test_server_announces_itself(broker: Broker) -> None:
    with connected(broker) as connection:
        properties = connection._impl.server_properties
    assert properties["product"]
    assert properties["version"]
    assert [name for name in CAPABILITIES if properties["capabilities"].get(name) is not True] == []


@pytest.mark.parametrize(("user", "password"), [("guest", "wrong"), ("nobody", "guest"), ("", "")])
def test_wrong_password_is_refused_and_told(broker: Broker, user: str, password: str) -> None:
    credentials = pika.PlainCredentials(user, password)
    with pytest.raises(ProbableAuthenticationError) as caught:
        pika.BlockingConnection(parameters(broker, credentials=credentials))
    assert "403" in repr(caught.value), "access-refused reaches a client that can take it"


def test_unknown_virtual_host_is_refused_and_told(broker: Broker, name: Name) -> None:
    with pytest.raises((ProbableAccessDeniedError, ConnectionClosed)) as caught:
        pika.BlockingConnection(parameters(broker, virtual_host=name("nowhere")))
    assert "530" in repr(caught.value)


@pytest.mark.parametrize("header", [b"HTTP/1.1", b"AMQP\x00\x01\x00\x00", b"AMQP\x01\x01\x63\x63"])
def test_wrong_protocol_header_is_answered_with_ours(broker: Broker, header: bytes) -> None:
    """A client of another protocol learns what is spoken here, and the socket is closed."""
    heard = b""
    with socket.create_connection((broker.host, broker.port), timeout=10) as stream:
        stream.sendall(header)
        with contextlib.suppress(ConnectionResetError):
            while part := stream.recv(100):
                heard += part
    assert heard == b"AMQP\x00\x00\x09\x01"


def test_client_close_is_answered(broker: Broker) -> None:
    connection = pika.BlockingConnection(parameters(broker))
    connection.channel()
    connection.close()
    assert connection.is_closed


def test_short_heartbeat_keeps_an_idle_connection(broker: Broker, name: Name) -> None:
    with connected(broker, heartbeat=1) as connection:
        channel = connection.channel()
        deadline = time.monotonic() + 4
        while (left := deadline - time.monotonic()) > 0:
            connection.process_data_events(left)
        assert connection._impl._heartbeat_checker.connection_is_idle is False
        channel.queue_declare(name("queue"), exclusive=True)
        publish(channel, name("queue"), b"alive")
        assert bodies(channel, name("queue")) == [b"alive"]


def test_client_that_stops_beating_is_dropped(broker: Broker, channel: Any, name: Name) -> None:
    """Its exclusive queue goes with it, though its socket is still open."""
    with connected(broker) as watcher:
        silent = pika.BlockingConnection(parameters(broker, heartbeat=1))
        silent.channel().queue_declare(name("its-own"), exclusive=True)

        def gone() -> bool:
            try:
                watcher.channel().queue_declare(name("its-own"), passive=True)
            except pika.exceptions.ChannelClosedByBroker as refusal:
                return bool(refusal.reply_code == 404)
            return False

        assert not gone()
        eventually(gone, "the silent client is dropped", 10)
        with pytest.raises(AMQPConnectionError):
            silent.channel()


def test_heartbeat_zero_asks_for_none(broker: Broker) -> None:
    with connected(broker, heartbeat=0) as connection:
        assert connection._impl._heartbeat_checker is None
        connection.process_data_events(0.1)


def test_large_message_with_the_smallest_frames(broker: Broker, name: Name) -> None:
    body = bytes(range(256)) * 800
    with connected(broker, frame_max=4096) as connection:
        assert connection._impl.params.frame_max == 4096
        sizes: list[int] = []
        process = connection._impl._process_frame

        def watch(frame: Any) -> None:
            if isinstance(frame, pika.frame.Body):
                sizes.append(len(frame.fragment))
            process(frame)

        connection._impl._process_frame = watch
        channel = connection.channel()
        channel.queue_declare(name("queue"), exclusive=True)
        publish(channel, name("queue"), body)
        assert bodies(channel, name("queue")) == [body]
    assert sum(sizes) == len(body)
    assert max(sizes) <= 4096 - 8, "a frame has 7 octets before its payload and 1 after it"


def test_message_of_large_frames_reaches_a_client_of_small_ones(
    broker: Broker, channel: Any, name: Name
) -> None:
    body = b"0123456789" * 20_000
    channel.queue_declare(name("queue"))
    publish(channel, name("queue"), body)
    with connected(broker, frame_max=4096) as connection:
        assert bodies(connection.channel(), name("queue")) == [body]


def test_channel_max_is_agreed(broker: Broker) -> None:
    with connected(broker, channel_max=3) as connection:
        assert connection._impl.params.channel_max == 3
        for _ in range(3):
            connection.channel()
        with pytest.raises(NoFreeChannels):
            connection.channel()


def test_many_channels_each_with_its_own_queue(broker: Broker, name: Name) -> None:
    with connected(broker) as connection:
        channels = [connection.channel() for _ in range(200)]
        for number, channel in enumerate(channels):
            channel.queue_declare(name(str(number)), exclusive=True)
            publish(channel, name(str(number)), b"%d" % number)
        for number, channel in enumerate(reversed(channels)):
            assert bodies(channel, name(str(number))) == [b"%d" % number]
        for channel in channels[::2]:
            channel.close()
        assert all(channel.is_open for channel in channels[1::2])
        assert connection.channel().channel_number == 1, "a closed number is used again"


def test_update_secret_is_answered(broker: Broker, name: Name) -> None:
    with connected(broker) as connection:
        connection.update_secret("guest", "the old one runs out")
        assert connection.channel().queue_declare(name("queue"), exclusive=True).method.queue


def test_method_on_a_channel_never_opened_closes_the_connection(broker: Broker, name: Name) -> None:
    with connected(broker) as connection:
        connection.channel()
        raw = connection._impl
        raw._send_method(7, pika.spec.Queue.Declare(queue=name("queue")))
        with connection_error(504):
            connection.process_data_events(5)


@pytest.mark.standard
def test_method_unknown_to_the_broker_closes_the_connection(broker: Broker) -> None:
    with connected(broker) as connection:
        channel = connection.channel()
        octets = b"\x01\x00\x01\x00\x00\x00\x04" + b"\x03\xe7\x00\x0a" + b"\xce"
        connection._impl._output_marshaled_frames([octets])
        with pytest.raises(ConnectionClosed) as caught:
            connection.process_data_events(5)
        assert caught.value.reply_code in (501, 503, 540)
        assert channel.is_closed


def test_channel_closed_by_the_client_can_be_followed_by_another(broker: Broker, name: Name) -> None:
    with connected(broker) as connection:
        for _ in range(50):
            channel = connection.channel()
            assert channel.channel_number == 1
            with channel_error(404):
                channel.queue_declare(name("nothing"), passive=True)
        connection.channel().close()


def test_publish_on_a_closing_channel_is_ignored(broker: Broker, name: Name) -> None:
    """What was on its way when the broker closed the channel must not close the connection."""
    with connected(broker) as connection:
        channel, other = connection.channel(), connection.channel()
        other.queue_declare(name("queue"), exclusive=True)
        channel._impl.basic_publish(name("nothing"), "", b"refused")
        for _ in range(50):
            channel._impl.basic_publish("", name("queue"), b"x" * 5000)
        with channel_error(404):
            channel.queue_declare("", exclusive=True)
        assert other.queue_declare(name("queue"), passive=True).method.message_count == 0
        assert connection.is_open
