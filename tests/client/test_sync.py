"""The sync client against a live broker."""

from __future__ import annotations

import os
import pickle
import traceback
from collections.abc import Iterator
from typing import Any

import pytest

from flintmq.client import (
    Channel,
    ChannelClosed,
    ClientError,
    ConnectFailed,
    Connection,
    ConnectionClosed,
    ConsumerCancelled,
    ForkedConnection,
    LoginRefused,
    MessageTooLarge,
    NotFound,
    PreconditionFailed,
    Properties,
    PublishFailed,
    ServiceError,
    Settings,
    connect,
)


@pytest.fixture
def connection(uri: str) -> Iterator[Connection]:
    with connect(uri) as made:
        yield made


@pytest.fixture
def channel(connection: Connection) -> Iterator[Channel]:
    with connection.channel(confirm=True) as made:
        yield made


def test_publish_get_ack(channel: Channel) -> None:
    queue = channel.queue("orders", durable=True)
    assert channel.publish(b"hello", routing_key="orders", persistent=True, headers={"a": [1, "b"]}) == 1
    message = queue.get()
    assert message is not None
    assert (message.body, message.routing_key, message.exchange) == (b"hello", "orders", "")
    assert message.properties.delivery_mode == 2
    assert message.headers == {"a": [1, "b"]}
    assert message.ack()
    assert queue.get() is None


def test_all_properties_and_large_bodies_come_through(channel: Channel) -> None:
    queue = channel.queue(exclusive=True)
    sent = Properties(content_type="text/plain", priority=3, correlation_id="c", reply_to="r", message_id="m")
    body = os.urandom(500_000)
    channel.publish(body, routing_key=queue.name, properties=sent)
    message = queue.get(no_ack=True)
    assert message is not None
    assert message.body == body
    assert message.properties == sent


def test_exchanges_bindings_and_deletion(channel: Channel) -> None:
    source = channel.exchange("source", "topic")
    target = channel.exchange("target", "fanout", auto_delete=False).bind(source, "a.#")
    queue = channel.queue("bound").bind(target).bind(source, "b.*")
    source.publish(b"1", "a.x.y")
    source.publish(b"2", "b.x")
    source.publish(b"3", "c")
    assert channel.queue("bound", passive=True).message_count == 2
    queue.unbind(source, "b.*")
    target.unbind(source, "a.#")
    source.publish(b"4", "a.x")
    assert queue.purge() == 2
    source.delete()
    target.delete(if_unused=False)
    assert queue.delete() == 0
    with pytest.raises(NotFound, match=r"declaring queue 'bound' was refused with 404: .*; declare it first"):
        channel.queue("bound", passive=True)


def test_a_refusal_costs_the_channel_alone(connection: Connection) -> None:
    first = connection.channel()
    first.queue("once", durable=True)
    with pytest.raises(PreconditionFailed, match="'once'"):
        first.queue("once", durable=False)
    assert not first.is_open
    with pytest.raises(PreconditionFailed):
        first.publish(b"", routing_key="once")
    with connection.channel() as second:
        second.queue("once", durable=True).delete()


def test_publishing_to_no_exchange_is_told(connection: Connection) -> None:
    channel = connection.channel(confirm=True)
    with pytest.raises(ChannelClosed, match="404"):
        channel.publish(b"x", "there-is-none", "k")
    with connection.channel():
        assert connection.is_open


def test_consume_iterates_until_nothing_came(channel: Channel) -> None:
    queue = channel.queue(exclusive=True)
    channel.publish_many([b"%d" % number for number in range(100)], routing_key=queue.name)
    with queue.consume(timeout_s=0.05) as consumer:
        bodies = []
        for message in consumer:
            bodies.append(int(message.body))
            message.ack()
    assert bodies == list(range(100))
    assert channel.queue(queue.name, passive=True).message_count == 0


def test_take_and_multiple_ack_with_a_prefetch(connection: Connection) -> None:
    with connection.channel(prefetch=10) as channel:
        queue = channel.queue(exclusive=True)
        channel.publish_many([b"x"] * 25, routing_key=queue.name)
        consumer = queue.consume()
        taken = []
        while len(taken) < 25:
            batch = consumer.take(100, timeout_s=10)
            assert 0 < len(batch) <= 10
            assert batch[-1].ack(multiple=True)
            taken += batch
        assert consumer.take(1, timeout_s=0.01) == []
        consumer.cancel()
        assert list(consumer) == []


def test_nack_and_reject(channel: Channel) -> None:
    queue = channel.queue(exclusive=True)
    channel.publish(b"x", routing_key=queue.name)
    first = queue.get()
    assert first is not None
    assert not first.redelivered
    first.nack()
    second = queue.get()
    assert second is not None
    assert second.redelivered
    second.reject()
    assert queue.get() is None


def test_a_deleted_queue_ends_its_consumer(connection: Connection, channel: Channel) -> None:
    queue = channel.queue("short-lived")
    consumer = queue.consume()
    with connection.channel() as other:
        other.queue("short-lived", passive=True).delete()
    with pytest.raises(ConsumerCancelled, match="'short-lived'"):
        next(consumer)


def test_publish_many_with_keys_and_properties_of_their_own(channel: Channel) -> None:
    channel.exchange("sorted", "direct")
    queues = [channel.queue(exclusive=True).bind("sorted", key) for key in "ab"]
    count = channel.publish_many(
        [b"0", b"1", b"2", b"3"],
        "sorted",
        routing_keys=["a", "b", "a", "b"],
        properties=[Properties(message_id=str(number)) for number in range(4)],
    )
    assert count == 4
    found = []
    for queue in queues:
        for message in queue.consume(no_ack=True, timeout_s=0.05):
            found.append((message.routing_key, message.body, message.properties.message_id))
    assert found == [("a", b"0", "0"), ("a", b"2", "2"), ("b", b"1", "1"), ("b", b"3", "3")]
    with pytest.raises(ClientError, match="there are 1 routing_keys for 2 bodies"):
        channel.publish_many([b"", b""], "sorted", routing_keys=["a"])


def test_many_without_waiting_then_all_confirms(channel: Channel) -> None:
    queue = channel.queue(exclusive=True)
    for _ in range(5):
        channel.publish_many(iter([b"x" * 50] * 4000), routing_key=queue.name, wait=False)
    channel.wait_for_confirms()
    assert channel.unconfirmed == 0
    assert channel.queue(queue.name, passive=True).message_count == 20_000


def test_returned_messages_are_reported(channel: Channel) -> None:
    with pytest.raises(
        PublishFailed, match=r"1 messages were returned, .* routing key 'nowhere'; bind one"
    ) as bad:
        channel.publish(b"lost?", routing_key="nowhere", mandatory=True)
    assert [message.body for message in bad.value.returned] == [b"lost?"]
    channel.publish(b"lost?", routing_key="nowhere", mandatory=True, wait=False)
    with pytest.raises(PublishFailed, match="returned"):
        channel.wait_for_confirms()
    told: list[tuple[bytes, int]] = []
    channel.on_return(lambda message, code, text: told.append((message.body, code)))
    channel.publish(b"again", routing_key="nowhere", mandatory=True)
    assert told == [(b"again", 312)]


def test_transactions(connection: Connection) -> None:
    with connection.channel(transactional=True) as channel, connection.channel() as reader:
        queue = channel.queue("in-a-transaction")
        channel.publish(b"dropped", routing_key=queue.name)
        channel.rollback()
        channel.publish(b"kept", routing_key=queue.name)
        assert reader.get(queue.name) is None
        channel.commit()
        message = reader.get(queue.name, no_ack=True)
        assert message is not None
        assert message.body == b"kept"
        queue.delete()


def test_services(connection: Connection) -> None:
    for _ in range(2):
        reply = connection.request("broker.info")
        assert reply.results["product"] == "FlintMQ"
    with pytest.raises(ServiceError, match=r"no\.such\.service was refused with 404") as refused:
        connection.request("no.such.service", {"a": 1}, b"body")
    assert refused.value.code == 404
    assert str(pickle.loads(pickle.dumps(refused.value))) == str(refused.value)


def test_frames_and_headers_that_do_not_fit(connection: Connection) -> None:
    with connection.channel() as channel:
        with pytest.raises(MessageTooLarge, match="do not fit a frame of 131072"):
            channel.publish(b"", headers={"x": "y" * 200_000})
        with pytest.raises(ClientError, match="too large"):
            channel.queue("q", arguments={"x": "y" * 200_000})
        with pytest.raises(TypeError, match="must be bytes, not str"):
            channel.publish("text")  # type: ignore[arg-type]
        channel.queue(exclusive=True)


def test_more_channels_than_agreed(uri: str) -> None:
    with connect(uri, channel_max=2) as connection:
        first, _ = connection.channel(), connection.channel()
        with pytest.raises(ClientError, match="all 2 channels of the connection are open"):
            connection.channel()
        first.close()
        connection.channel()


def test_a_call_that_must_wait_behind_too_many_deliveries(uri: str) -> None:
    with connect(uri, received_bytes_max=100_000) as connection, connection.channel() as channel:
        queue = channel.queue(exclusive=True)
        channel.publish_many([bytes(1000)] * 1000, routing_key=queue.name)
        consumer = queue.consume(no_ack=True)
        assert len(consumer.take(50, timeout_s=10)) > 0
        with pytest.raises(
            ConnectionClosed, match="wait to be read before anything else can be; use a smaller prefetch"
        ):
            channel.queue(queue.name, passive=True)


def test_closed_is_closed(uri: str) -> None:
    connection = connect(uri)
    channel = connection.channel()
    connection.close()
    connection.close()
    with pytest.raises(ConnectionClosed, match="open another"):
        connection.channel()
    with pytest.raises(ConnectionClosed):
        channel.publish(b"")


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"password": "not-this-one"}, LoginRefused),
        ({"user": "nobody", "password": "not-this-one"}, LoginRefused),
        ({"virtual_host": "nowhere", "password": "guest"}, LoginRefused),
        ({"port": 1, "password": "not-this-one"}, ConnectFailed),
    ],
)
def test_a_failed_login_shows_no_password(uri: str, changes: dict[str, Any], kind: type[Exception]) -> None:
    with pytest.raises(kind) as failed:
        connect(uri, **changes)
    assert "not-this-one" not in "".join(traceback.format_exception(failed.value))


def test_use_after_a_fork_is_refused_and_harms_nobody(uri: str) -> None:
    with connect(uri) as connection, connection.channel(confirm=True) as channel:
        queue = channel.queue(exclusive=True)
        child = os.fork()
        if child == 0:
            refused = 0
            for use in (lambda: channel.publish(b"x"), connection.channel, queue.get):
                try:
                    use()
                except ForkedConnection as error:
                    refused += "open a connection in each process" in str(error)
            connection.close()
            with connect(connection.settings) as own:
                refused += own.is_open
            os._exit(refused)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4
        channel.publish(b"after", routing_key=queue.name)
        assert queue.get() is not None


def test_settings_travel_and_connections_do_not(connection: Connection) -> None:
    again: Settings = pickle.loads(pickle.dumps(connection.settings))
    with connect(again) as other:
        assert other.is_open
    with pytest.raises(TypeError, match="send its settings"):
        pickle.dumps(connection)


def test_heartbeats_keep_a_connection(uri: str) -> None:
    with connect(uri, heartbeat_s=1) as connection, connection.channel() as channel:
        queue = channel.queue(exclusive=True)
        assert queue.consume(timeout_s=3.5).take(1, timeout_s=3.5) == []
        assert connection.is_open
        assert channel.queue(queue.name, passive=True).consumer_count == 1


def test_0_9_is_spoken_too(uri: str) -> None:
    with connect(uri, protocol="0-9") as connection, connection.channel(confirm=True) as channel:
        queue = channel.queue(exclusive=True)
        channel.publish(b"old", routing_key=queue.name)
        message = queue.get()
        assert message is not None
        assert message.ack()
