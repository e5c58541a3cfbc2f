"""The broker is killed and started again under the sync client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from client.restarting import Restarting

from flintmq.client import (
    ConnectionClosed,
    ConnectionLost,
    NotFound,
    PublishFailed,
    Recovery,
    TransactionLost,
    connect,
)

QUICK = Recovery(attempts_max=60, delay_s_min=0.05, delay_s_max=0.3)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Restarting]:
    with Restarting(tmp_path / "data") as started:
        yield started


def test_calls_go_on_and_what_was_declared_is_there(broker: Restarting) -> None:
    with connect(broker.uri, recovery=QUICK) as connection, connection.channel() as channel:
        exchange = channel.exchange("transient", "topic")
        named = channel.queue("transient-too").bind(exchange, "a.*")
        unnamed = channel.queue(exclusive=True).bind(exchange, "a.*")
        gone = channel.queue("deleted").bind(exchange, "a.*")
        gone.delete()
        first_name = unnamed.name
        broker.restart()
        exchange.publish(b"x", "a.b")
        assert named.get() is not None
        assert unnamed.get() is not None
        assert unnamed.name != first_name
        with pytest.raises(NotFound):
            connection.channel().queue("deleted", passive=True)


def test_a_consumer_goes_on(broker: Restarting) -> None:
    with connect(broker.uri, recovery=QUICK) as connection, connection.channel(confirm=True) as channel:
        queue = channel.queue("kept", durable=True)
        channel.publish_many([b"%d" % number for number in range(20)], routing_key="kept", persistent=True)
        consumer = queue.consume()
        early = [next(consumer) for _ in range(10)]
        assert early[4].ack(multiple=True)
        channel.queue("kept", durable=True)  # the ack has arrived before the answer to this
        broker.restart()
        assert connection.request("broker.info")  # notices the loss, and recovers
        late = [next(consumer)]
        while late[-1].body != b"19":
            late.append(next(consumer))
        # A kill may take acks back that were not on the disk yet, but never a message.
        assert int(late[0].body) <= 5
        assert [int(message.body) for message in late] == list(range(int(late[0].body), 20))
        assert not early[-1].ack()
        assert late[-1].ack(multiple=True)
        channel.publish(b"new", routing_key="kept")
        assert next(consumer).body == b"new"


def test_nothing_confirmed_or_unconfirmed_is_lost_when_killed_in_the_middle(broker: Restarting) -> None:
    rows = 30_000
    with connect(broker.uri, recovery=QUICK) as connection, connection.channel(confirm=True) as channel:
        channel.queue("kept", durable=True)
        strike = broker.restart_later(0.2)
        published = 0
        while published < rows or strike.is_alive():
            bodies = [b"%d" % number for number in range(published, published + 1000)]
            published += channel.publish_many(bodies, routing_key="kept", persistent=True)
        strike.join()
        found = set()
        with channel.consume("kept", timeout_s=1.0) as consumer:
            while batch := consumer.take(1000, timeout_s=1.0):
                found.update(int(message.body) for message in batch)
                batch[-1].ack(multiple=True)
        assert found == set(range(published))


def test_what_is_unknown_is_reported_when_asked_for(broker: Restarting) -> None:
    recovery = Recovery(attempts_max=60, delay_s_min=0.05, delay_s_max=0.3, unconfirmed="report")
    with connect(broker.uri, recovery=recovery) as connection:
        channel = connection.channel(confirm=True)
        channel.queue("kept", durable=True)
        broker.broker.process.send_signal(19)  # SIGSTOP: it takes octets and answers nothing
        channel.publish_many([b"x"] * 5, routing_key="kept", wait=False)
        broker.restart()
        with pytest.raises(PublishFailed, match="5 messages were on their way") as failed:
            channel.wait_for_confirms()
        assert failed.value.unknown == [1, 2, 3, 4, 5]
        channel.publish(b"x", routing_key="kept")
        channel.close()


def test_a_transaction_is_lost_aloud(broker: Restarting) -> None:
    with (
        connect(broker.uri, recovery=QUICK) as connection,
        connection.channel(transactional=True) as channel,
    ):
        queue = channel.queue("kept", durable=True)
        channel.publish(b"first half", routing_key="kept")
        broker.restart()
        with pytest.raises(TransactionLost, match="roll it back and begin again"):
            channel.publish(b"second half", routing_key="kept")
        channel.rollback()
        channel.publish(b"all", routing_key="kept")
        channel.commit()
        message = queue.get()
        assert message is not None
        assert message.body == b"all"
        assert queue.get() is None
        channel.rollback()


def test_without_recovery_a_loss_is_an_error(broker: Restarting) -> None:
    connection = connect(broker.uri, recovery=None)
    channel = connection.channel()
    broker.restart()
    with pytest.raises(ConnectionLost, match="was lost"):
        channel.queue("x")
    with pytest.raises(ConnectionLost):
        connection.channel()
    connection.close()


def test_attempts_come_to_an_end_and_can_be_begun_again(broker: Restarting) -> None:
    few = Recovery(attempts_max=2, delay_s_min=0.01, delay_s_max=0.02)
    with connect(broker.uri, recovery=few) as connection, connection.channel(confirm=True) as channel:
        channel.queue("kept", durable=True)
        broker.kill()
        with pytest.raises(ConnectionLost, match=r"could not be opened again: .*cannot be reached"):
            channel.publish(b"while it is down", routing_key="kept", persistent=True)
        broker.start()
        channel.publish(b"later", routing_key="kept", persistent=True)
        channel.wait_for_confirms()
        bodies = [message.body for message in channel.consume("kept", timeout_s=0.2)]
        assert bodies[-1] == b"later"


def test_an_orderly_stop_is_a_loss_and_a_refusal_is_not(broker: Restarting) -> None:
    with connect(broker.uri, recovery=QUICK) as connection, connection.channel() as channel:
        channel.queue("kept", durable=True)
        broker.broker.stop()
        broker.start()
        assert channel.queue("kept", durable=True).name == "kept"
    with connect(broker.uri, recovery=QUICK) as connection:
        channel = connection.channel()
        connection.core.protocol.output.write(b"\x01\x00\x01\x00\x00\x00\x04\x00\xff\x00\x01\xce")
        with pytest.raises(ConnectionClosed) as closed:
            channel.queue("x")
        assert not isinstance(closed.value, ConnectionLost)
        assert closed.value.code in (503, 540)
