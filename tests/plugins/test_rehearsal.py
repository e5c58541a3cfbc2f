"""Brokers that tests steer: what they tell, and what fails on demand."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from peer import Gone, Peer

from flintmq import config
from flintmq.auth import Accepted, Verification
from flintmq.clock import MovableClock
from flintmq.server.process.rehearsal import (
    KEPT_BYTES_MAX,
    KEPT_MAX,
    UNROUTABLE,
    HostRecord,
    Published,
    RehearsalServer,
)
from flintmq.testing import Broker, BrokerGone
from flintmq.testing.served_broker import ALARM, ServedBroker
from flintmq.testing.sources import ForkingSource, Source, SpawningSource
from flintmq.wire import amqp, methods

HOUR_S = 3600
SOON_S = 0.05


@pytest.fixture(scope="module")
def source() -> Iterator[Source]:
    made = ForkingSource()
    yield made
    made.close()


@pytest.fixture
def broker(source: Source) -> Iterator[ServedBroker]:
    served = ServedBroker(source)
    yield served
    served.stop()


@pytest.fixture
def durable(source: Source, tmp_path: Path) -> Iterator[ServedBroker]:
    served = ServedBroker(source, ("--data", str(tmp_path / "data")))
    yield served
    served.stop()


@pytest.fixture
def peer(broker: ServedBroker) -> Peer:
    return connected(broker)


def connected(broker: ServedBroker, confirms: bool = False) -> Peer:
    peer = Peer.connect(broker.port, heartbeat_s=0)
    peer.open(1)
    peer.call(1, methods.QueueDeclare(queue="q", durable=True))
    if confirms:
        peer.call(1, methods.ConfirmSelect())
    return peer


def ready(peer: Peer) -> int:
    count: int = peer.call(1, methods.QueueDeclare(queue="q", durable=True)).message_count
    return count


# What it tells


def test_what_was_published_and_what_became_of_it(broker: ServedBroker, peer: Peer) -> None:
    peer.publish(1, b"first", key="q", headers={"n": 1}, type="order")
    peer.publish(1, b"lost", exchange="amq.topic", key="nobody.listens")
    first, lost = broker.published(2)
    assert (first.body, first.exchange, first.routing_key, first.outcome) == (b"first", "", "q", "routed")
    assert first.properties.headers == {"n": 1}
    assert first.properties.type == "order"
    assert (lost.body, lost.exchange, lost.outcome) == (b"lost", "amq.topic", "unroutable")
    assert "b'lost' to 'amq.topic' with 'nobody.listens', unroutable" in repr(lost)
    broker.forget()
    assert broker.published() == []
    with pytest.raises(TimeoutError, match=r"0 of 1 messages came within 0.05 s"):
        broker.published(1, timeout_s=SOON_S)


def test_publishes_of_a_transaction(broker: ServedBroker, peer: Peer) -> None:
    peer.call(1, methods.TxSelect())
    peer.publish(1, b"perhaps", key="q")
    assert [message.outcome for message in broker.published(1)] == ["in a transaction"]


def test_a_publish_that_is_an_error_was_not_published(broker: ServedBroker, peer: Peer) -> None:
    peer.publish(1, b"x", exchange="nowhere", key="q")
    peer.expect_channel_close(1, amqp.NOT_FOUND)
    assert broker.published() == []


def test_requests_to_the_broker_are_no_messages(broker: ServedBroker, peer: Peer) -> None:
    peer.publish(1, b"", exchange="amq.system", key="broker.info", reply_to="q")
    peer.publish(1, b"after", key="q")
    assert [message.body for message in broker.published(1)] == [b"after"]


def test_only_so_much_is_kept() -> None:
    record = HostRecord()
    for _ in range(KEPT_MAX + 3):
        record.keep(Published(b"\x00\x01q", b"x", 1, UNROUTABLE))
    assert (len(record.published), record.forgotten) == (KEPT_MAX, 3)
    assert record.unroutable == {b"\x00\x01q": KEPT_MAX + 3}
    record.keep(Published(b"\x00\x01q", bytes(KEPT_BYTES_MAX), 1, UNROUTABLE))
    assert (len(record.published), record.kept_bytes) == (1, KEPT_BYTES_MAX)
    for number in range(2000):
        record.keep(Published(b"%d" % number, b"", 0, UNROUTABLE))
    assert len(record.unroutable) == 1000


def test_a_look_into_a_queue_leaves_it_as_it_is(broker: ServedBroker, peer: Peer) -> None:
    for body in (b"first", b"second", b"third"):
        peer.publish(1, body, key="q")
    broker.published(3)
    assert [message.body for message in broker.peek("q")] == [b"first", b"second", b"third"]
    assert [message.body for message in broker.peek("q", limit=1)] == [b"first"]
    peer.call(1, methods.BasicGet(queue="q"))
    peer.content(1)
    peer.send(1, methods.BasicReject(delivery_tag=1, requeue=True))
    assert ready(peer) == 3
    assert [message.redelivered for message in broker.peek("q")] == [True, False, False]
    with pytest.raises(ValueError, match="no queue 'p' in virtual host '/': there are 'q'"):
        broker.peek("p")
    peer.call(1, methods.QueueDeclare(queue="s", durable=True, arguments={"x-queue-type": "stream"}))
    with pytest.raises(ValueError, match="queue 's' is a stream"):
        broker.peek("s")


def test_large_bodies_in_files(durable: ServedBroker) -> None:
    peer = connected(durable)
    body = bytes(5 << 20)
    peer.publish(1, body, key="q")
    assert [message.body for message in durable.published(1)] == [b""]
    assert durable.peek("q")[0].body == body


def test_waiting_until_queues_are_empty(broker: ServedBroker, peer: Peer) -> None:
    broker.wait_until_empty()
    peer.publish(1, b"x", key="q")
    broker.published(1)
    with pytest.raises(TimeoutError, match=r"not empty after 0.05 s: 'q' \(1 ready, 0 unacked, 0 delayed\)"):
        broker.wait_until_empty("q", timeout_s=SOON_S)
    peer.call(1, methods.BasicGet(queue="q"))
    peer.content(1)
    with pytest.raises(TimeoutError, match=r"'q' \(0 ready, 1 unacked, 0 delayed\)"):
        broker.wait_until_empty(timeout_s=SOON_S)
    peer.send(1, methods.BasicAck(delivery_tag=1))
    broker.wait_until_empty("q")
    with pytest.raises(LookupError, match="no queue 'p': there are 'q'"):
        broker.wait_until_empty("p")


def test_a_queue_whose_messages_wait_for_a_retry_is_not_empty(broker: ServedBroker, peer: Peer) -> None:
    arguments = {"x-delayed-retry-type": "all", "x-delayed-retry-min": 60_000}
    peer.call(1, methods.QueueDeclare(queue="later", arguments=arguments))
    peer.publish(1, b"x", key="later")
    broker.published(1)
    peer.call(1, methods.BasicGet(queue="later"))
    peer.content(1)
    peer.send(1, methods.BasicNack(delivery_tag=1, requeue=True))
    broker.wait(lambda: not broker.unacked(), 5)
    with pytest.raises(TimeoutError, match=r"'later' \(0 ready, 0 unacked, 1 delayed\)"):
        broker.wait_until_empty("later", timeout_s=SOON_S)


def test_what_is_left_behind(broker: ServedBroker, peer: Peer) -> None:
    assert broker.leftovers() == []
    for body in (b"one", b"two"):
        peer.publish(1, body, key="q")
        peer.publish(1, body, exchange="amq.direct", key="k")
        peer.call(1, methods.BasicGet(queue="q"))
        peer.content(1)
    assert broker.unroutable() == {("amq.direct", "k"): 2}
    assert broker.unacked() == {"q": 2}
    peer.close()  # both come back, and nobody has acked them
    assert broker.leftovers() == [
        "2 published to exchange 'amq.direct' with key 'k' came to no queue",
        "2 of queue 'q' not acked",
    ]


# What fails


def test_dropped_connections(broker: ServedBroker, peer: Peer) -> None:
    assert broker.drop_connections(user="nobody") == 0
    assert broker.drop_connections(name="nobody") == 0
    assert broker.drop_connections(user="guest") == 1
    with pytest.raises((Gone, ConnectionError)):
        peer.call(1, methods.QueueDeclare(queue="q", durable=True))


def test_nacked_publishes(broker: ServedBroker) -> None:
    peer = connected(broker, confirms=True)
    broker.nack_publishes(1)
    peer.publish(1, b"refused", key="q")
    assert peer.expect(1, methods.BasicNack).delivery_tag == 1
    peer.publish(1, b"taken", key="q")
    assert peer.expect(1, methods.BasicAck).delivery_tag == 2
    broker.nack_publishes()
    for tag in (3, 4):
        peer.publish(1, b"refused", key="q")
        assert peer.expect(1, methods.BasicNack).delivery_tag == tag
    broker.nack_publishes(0)
    peer.publish(1, b"taken", key="q")
    assert peer.expect(1, methods.BasicAck).delivery_tag == 5
    assert [message.body for message in broker.peek("q")] == [b"taken", b"taken"]
    outcomes = [message.outcome for message in broker.published()]
    assert outcomes == ["nacked", "routed", "nacked", "nacked", "routed"]
    with pytest.raises(ValueError, match="-2 publishes cannot be refused"):
        broker.nack_publishes(-2)


def test_large_publishes_are_nacked_too(durable: ServedBroker) -> None:
    peer = connected(durable, confirms=True)
    durable.nack_publishes(1)
    for tag, kind in ((1, methods.BasicNack), (2, methods.BasicAck)):
        peer.publish(1, bytes(5_000_000), key="q", delivery_mode=2)
        assert peer.expect(1, kind).delivery_tag == tag
    peer.open(2)
    peer.call(2, methods.TxSelect())
    peer.publish(2, bytes(5_000_000), key="q")
    peer.call(2, methods.TxRollback())
    assert [message.outcome for message in durable.published()] == ["nacked", "routed", "in a transaction"]
    assert ready(peer) == 1


def test_publishes_without_confirms_are_not_nacked(broker: ServedBroker, peer: Peer) -> None:
    broker.nack_publishes()
    peer.publish(1, b"taken", key="q")
    assert ready(peer) == 1


@pytest.mark.parametrize("kind", ["broker", "durable"])
def test_confirms_that_come_late(kind: str, request: pytest.FixtureRequest) -> None:
    broker: ServedBroker = request.getfixturevalue(kind)
    peer = connected(broker, confirms=True)
    broker.delay_confirms(HOUR_S)
    peer.publish(1, b"first", key="q", delivery_mode=2)
    assert ready(peer) == 1  # the answer has overtaken the confirm
    broker.move_time(HOUR_S / 2)
    peer.publish(1, b"second", key="q", delivery_mode=2)
    assert ready(peer) == 2
    broker.move_time(HOUR_S / 2 + 1)
    assert peer.expect(1, methods.BasicAck).delivery_tag == 1
    assert ready(peer) == 2
    broker.move_time(HOUR_S / 2 + 1)
    assert peer.expect(1, methods.BasicAck).delivery_tag == 2
    peer.publish(1, b"third", key="q", delivery_mode=2)
    assert ready(peer) == 3
    broker.delay_confirms(0)
    assert peer.expect(1, methods.BasicAck).delivery_tag == 3
    peer.publish(1, b"fourth", key="q", delivery_mode=2)
    assert peer.expect(1, methods.BasicAck).delivery_tag == 4
    with pytest.raises(ValueError, match="confirms cannot come -1 s later"):
        broker.delay_confirms(-1)


def test_an_alarm(broker: ServedBroker, peer: Peer) -> None:
    peer.publish(1, b"x", key="q")
    assert ready(peer) == 1
    broker.raise_alarm()
    assert peer.expect(0, methods.ConnectionBlocked).reason == ALARM
    broker.clear_alarm()
    peer.expect(0, methods.ConnectionUnblocked)


def test_time_that_is_moved(broker: ServedBroker, peer: Peer) -> None:
    peer.publish(1, b"old", key="q", expiration=str(HOUR_S * 1000))
    peer.publish(1, b"young", key="q", expiration=str(3 * HOUR_S * 1000))
    peer.call(1, methods.QueueDeclare(queue="short-lived", arguments={"x-expires": HOUR_S * 1000}))
    peer.call(
        1,
        methods.ExchangeDeclare(
            exchange="later", type="x-delayed-message", arguments={"x-delayed-type": "fanout"}
        ),
    )
    peer.call(1, methods.QueueDeclare(queue="delayed"))
    peer.call(1, methods.QueueBind(queue="delayed", exchange="later"))
    peer.publish(1, b"late", exchange="later", headers={"x-delay": HOUR_S * 1000})
    broker.published(3)
    assert broker.peek("delayed") == []
    broker.move_time(HOUR_S + 1)
    assert [message.body for message in broker.peek("q")] == [b"young"]
    assert [message.body for message in broker.peek("delayed")] == [b"late"]
    with pytest.raises(ValueError, match="no queue 'short-lived'"):
        broker.peek("short-lived")
    with pytest.raises(ValueError, match="it moves ahead alone"):
        broker.move_time(-1)
    with pytest.raises(ValueError, match="time cannot move by '1h': give seconds"):
        broker.move_time("1h")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="confirms cannot come '1s' s later"):
        broker.delay_confirms("1s")  # type: ignore[arg-type]


def test_kill_and_start_again(durable: ServedBroker) -> None:
    peer = connected(durable, confirms=True)
    lived_ms = str(2 * HOUR_S * 1000)
    durable.move_time(HOUR_S)
    peer.publish(1, b"kept", key="q", delivery_mode=2, expiration=lived_ms)
    peer.expect(1, methods.BasicAck)
    port = durable.port
    durable.kill()
    with pytest.raises(BrokerGone, match="start\\(\\) starts it again"):
        durable.peek("q")
    durable.start()
    assert durable.port == port
    assert [message.body for message in durable.peek("q")] == [b"kept"]
    durable.restart()
    assert [message.body for message in durable.peek("q")] == [b"kept"]
    durable.move_time(HOUR_S + 60)
    assert [message.body for message in durable.peek("q")] == [b"kept"]  # it came an hour later
    durable.move_time(HOUR_S)
    assert durable.peek("q") == []
    with pytest.raises(RuntimeError, match="runs already"):
        durable.start()


def test_a_broker_that_somebody_else_has_killed(broker: ServedBroker) -> None:
    os.kill(broker.process, signal.SIGKILL)
    with pytest.raises(BrokerGone):
        broker.published(1)  # asks until it is gone


# Virtual hosts


def test_virtual_hosts_know_nothing_of_each_other(broker: ServedBroker) -> None:
    first, second = broker.virtual_host(), broker.virtual_host()
    assert first.uri == f"amqp://guest:guest@127.0.0.1:{broker.port}/{first.name}"
    peers = []
    for host in (first, second):
        peer = Peer.greeted(broker.port)
        peer.log_in(heartbeat_s=0)
        peer.enter(host.name)
        peer.open(1)
        peer.call(1, methods.ConfirmSelect())
        peer.call(1, methods.QueueDeclare(queue="q"))
        peers.append(peer)
    first.nack_publishes()
    for peer, kind in zip(peers, (methods.BasicNack, methods.BasicAck), strict=True):
        peer.publish(1, b"x", key="q")
        peer.expect(1, kind)
    assert [message.outcome for message in first.published()] == ["nacked"]
    assert [message.outcome for message in second.published()] == ["routed"]
    assert broker.published() == []
    assert first.drop_connections() == 1
    assert peers[1].call(1, methods.QueueDeclare(queue="q")).message_count == 1
    broker.delete_virtual_host(first.name)
    with pytest.raises(ValueError, match="no virtual host 'test-1': there are '/', 'test-2'"):
        first.published()
    with pytest.raises(ValueError, match="'/' is"):
        broker.delete_virtual_host("/")


def test_an_answer_that_comes_late_is_not_that_of_the_next_command(source: Source) -> None:
    assert isinstance(source, ForkingSource)
    broker = ServedBroker(source)
    try:
        command = {"tell": broker.process, "command": '{"do": "names", "virtual_host": "/"}', "within_s": 0}
        while source.ask(command):
            pass  # it was in time
        assert broker.published() == []
    finally:
        broker.stop()


# Logins


def test_passwords_of_the_settings_are_known_from_the_start() -> None:
    async def logins() -> tuple[object, object]:
        server = RehearsalServer(config.load(), MovableClock(), asyncio.get_running_loop())
        try:
            users = server.broker.users
            return users.login("guest", b"guest", "127.0.0.1"), users.login("guest", b"wrong", "127.0.0.1")
        finally:
            server.close()

    right, wrong = asyncio.run(logins())
    assert isinstance(right, Accepted)
    assert isinstance(wrong, Verification)


# Commands


def test_brokers_that_are_not_forked_obey_too() -> None:
    source = SpawningSource()
    broker = ServedBroker(source)
    peer = connected(broker)
    peer.publish(1, b"x", key="q")
    assert [message.body for message in broker.published(1)] == [b"x"]
    broker.restart()
    assert broker.published() == []
    broker.stop()
    with pytest.raises(BrokerGone):
        source.tell(broker.process, "{}")


def test_commands_that_make_no_sense(broker: ServedBroker) -> None:
    with pytest.raises(ValueError, match=r"no such command: .*there are users, published"):
        broker.tell("explode")
    with pytest.raises(ValueError, match="unexpected keyword argument"):
        broker.tell("set_alarm", reasons=1)
    assert "Expecting value" in broker.source.tell(broker.process, "nonsense")
    assert broker.published() == []


def test_the_input_is_where_commands_come_from() -> None:
    command = [sys.executable, "-m", "flintmq", "serve", "--rehearsal", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "give --until-input-ends too" in done.stderr


def test_other_brokers_obey_nobody() -> None:
    command = [sys.executable, "-m", "flintmq", "serve", "--port", "0", "--until-input-ends"]
    line = '{"do": "set_alarm", "reason": "x"}\n'
    done = subprocess.run(command, input=line, capture_output=True, text=True, timeout=60, check=True)
    assert "answer" not in done.stdout


def test_a_broker_for_a_block() -> None:
    with Broker() as broker:
        connected(broker).close()
    assert not broker.process
    block = Broker(durable=True)
    with block as broker:
        assert "--data" in broker.options
        with pytest.raises(RuntimeError, match="runs already"):
            block.__enter__()
    assert not Path(broker.options[-1]).exists()
    with pytest.raises(RuntimeError, match="ended with status 2"):
        Broker("--no-such-option").__enter__()


@pytest.mark.parametrize("kind", [ForkingSource, SpawningSource])
def test_a_broker_that_has_died_is_started_again(kind: type[Source]) -> None:
    source = kind()
    try:
        broker = ServedBroker(source)
        port = broker.port
        with pytest.raises(RuntimeError, match="runs already"):
            broker.start()
        os.kill(broker.process, signal.SIGKILL)
        with pytest.raises(BrokerGone, match=r"start\(\) starts it again"):
            broker.published(1)  # asks until it is gone
        broker.start()
        assert broker.port == port
        broker.stop()
    finally:
        source.close()
