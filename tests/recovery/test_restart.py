"""What a broker keeps over its own end, orderly or not, and what it lets go."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from peer import Peer

from flintmq.wire import amqp, methods

ODD_NAMES = ("plain", "with space", "ünïcödé ☃", "a/b\\c\"'", "-", "x" * 255, "tab\there", "q\x00nul")
TYPED: dict[str, Any] = {
    "x-bool": True,
    "x-int": -5,
    "x-long": 1 << 40,
    "x-text": "tëxt",
    "x-nested": {"deep": {"deeper": [1, "two", False, None]}},
    "x-double": 1.5,
    "x-nothing": None,
}


def end(life: Any, by: str) -> None:
    if by == "SIGTERM":
        life.stop()
    else:
        life.kill()


@pytest.fixture(params=["SIGTERM", "SIGKILL"])
def by(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_durable_topology_comes_back_as_it_was(start: Any, publish: Any, drain: Any, by: str) -> None:
    life = start()
    with life.connect() as peer:
        for kind in ("direct", "fanout", "topic", "headers"):
            peer.call(
                1,
                methods.ExchangeDeclare(
                    exchange=f"x.{kind}", type=kind, durable=True, arguments={"x-own": kind}
                ),
            )
        peer.call(1, methods.ExchangeBind(destination="x.fanout", source="x.direct", routing_key="over"))
        for name in ODD_NAMES:
            peer.call(1, methods.QueueDeclare(queue=name, durable=True, arguments=TYPED))
            peer.call(1, methods.QueueBind(queue=name, exchange="x.direct", routing_key=name))
        peer.call(1, methods.QueueBind(queue="plain", exchange="x.topic", routing_key="a.*.c"))
        peer.call(1, methods.QueueBind(queue="plain", exchange="x.fanout"))
        matched = {"x-match": "all", "colour": "red", "size": 5}
        peer.call(1, methods.QueueBind(queue="plain", exchange="x.headers", arguments=matched))
        peer.call(1, methods.QueueBind(queue="plain", exchange="x.direct", routing_key="undone"))
        peer.call(1, methods.QueueUnbind(queue="plain", exchange="x.direct", routing_key="undone"))
    end(life, by)

    with start().connect() as peer:
        for kind in ("direct", "fanout", "topic", "headers"):
            # Declared again as it was: another type or other arguments would close the channel.
            peer.call(
                1,
                methods.ExchangeDeclare(
                    exchange=f"x.{kind}", type=kind, durable=True, arguments={"x-own": kind}
                ),
            )
        for name in ODD_NAMES:
            peer.call(1, methods.QueueDeclare(queue=name, durable=True, arguments=TYPED))
            peer.publish(1, b"direct", exchange="x.direct", key=name)
        peer.publish(1, b"topic", exchange="x.topic", key="a.b.c")
        peer.publish(1, b"over", exchange="x.direct", key="over")
        peer.publish(1, b"headers", exchange="x.headers", headers={"colour": "red", "size": 5})
        peer.publish(1, b"not", exchange="x.headers", headers={"colour": "red", "size": 6})
        peer.publish(1, b"undone", exchange="x.direct", key="undone")
        assert [body for body, _ in drain(peer, "plain")] == [b"direct", b"topic", b"over", b"headers"]
        for name in ODD_NAMES[1:]:
            assert drain(peer, name) == [(b"direct", False)]


def test_persistent_messages_come_back_in_order_and_whole(
    start: Any, publish: Any, drain: Any, by: str
) -> None:
    life = start()
    bodies = [f"{number}".encode() * (number % 300) for number in range(500)] + [b"", b"L" * 300_000]
    with life.connect() as peer:
        peer.call(1, methods.QueueDeclare(queue="q", durable=True))
        publish(peer, "q", bodies, headers={"n": 1, "t": "ü"}, correlation_id="c", priority=3)
    end(life, by)

    with start().connect() as peer:
        got = peer.get(1, "q")
        assert got is not None
        assert got[1].properties.headers == {"n": 1, "t": "ü"}
        assert (got[1].properties.correlation_id, got[1].properties.priority) == ("c", 3)
        assert got[0].routing_key == "q"
        peer.send(1, methods.BasicNack(delivery_tag=got[0].delivery_tag, requeue=True))
        assert [body for body, _ in drain(peer, "q")] == bodies


def test_what_is_transient_is_gone(start: Any, publish: Any, drain: Any, by: str) -> None:
    life = start()
    with life.connect() as peer:
        peer.call(1, methods.QueueDeclare(queue="durable", durable=True))
        peer.call(1, methods.QueueDeclare(queue="passing"))
        peer.call(1, methods.QueueDeclare(queue="mine", durable=True, exclusive=True))
        named = peer.call(1, methods.QueueDeclare(durable=True, exclusive=True)).queue  # by the broker
        peer.call(1, methods.ExchangeDeclare(exchange="passing", type="fanout"))
        peer.call(1, methods.QueueBind(queue="durable", exchange="passing"))
        publish(peer, "durable", [b"stays"])
        peer.publish(1, b"goes", key="durable", delivery_mode=1)
        peer.publish(1, b"goes", key="durable")
        peer.publish(1, b"goes with its queue", key="passing", delivery_mode=2)
        # The tags go on behind the first one.
        while peer.expect(1, methods.BasicAck).delivery_tag < 4:
            pass
        end(life, by)

    with start().connect() as peer:
        assert drain(peer, "durable") == [(b"stays", False)]
        for method in (
            methods.QueueDeclare(queue="passing", passive=True),
            methods.QueueDeclare(queue="mine", passive=True),
            methods.QueueDeclare(queue=named, passive=True),
            methods.ExchangeDeclare(exchange="passing", passive=True),
        ):
            peer.send(1, method)
            peer.expect_channel_close(1, amqp.NOT_FOUND)
            peer.open(1)


def test_what_was_handed_out_is_redelivered_and_acked_is_gone(
    start: Any, publish: Any, drain: Any, by: str
) -> None:
    life = start()
    with life.connect() as peer:
        peer.call(1, methods.QueueDeclare(queue="q", durable=True))
        publish(peer, "q", [b"%d" % number for number in range(10)])
        peer.call(1, methods.BasicQos(prefetch_count=6))
        peer.call(1, methods.BasicConsume(queue="q", consumer_tag="c"))
        tags = [peer.delivery(1)[0].delivery_tag for _ in range(6)]
        peer.call(1, methods.BasicCancel(consumer_tag="c"))
        for index in (1, 3):
            peer.send(1, methods.BasicAck(delivery_tag=tags[index]))
        peer.publish(1, b"10", key="q", delivery_mode=2)
        peer.expect(1, methods.BasicAck)  # the journal is in order: now the acks are on disk, too
        end(life, by)

    with start().connect() as peer:
        found = drain(peer, "q")
        assert [body for body, _ in found] == [b"%d" % number for number in (0, 2, 4, 5, 6, 7, 8, 9, 10)]
        assert [redelivered for _, redelivered in found] == [True] * 4 + [False] * 5


def test_a_commit_survives_and_an_open_transaction_does_not(start: Any, drain: Any, by: str) -> None:
    life = start()
    with life.connect() as peer:
        for queue in ("a", "b"):
            peer.call(1, methods.QueueDeclare(queue=queue, durable=True))
        peer.call(1, methods.TxSelect())
        peer.publish(1, b"1", key="a", delivery_mode=2)
        peer.call(1, methods.TxCommit())
        got = peer.get(1, "a")
        assert got is not None
        peer.send(1, methods.BasicAck(delivery_tag=got[0].delivery_tag))
        for queue in ("a", "b"):
            peer.publish(1, b"2", key=queue, delivery_mode=2)
        peer.call(1, methods.TxCommit())
        for queue in ("a", "b"):
            peer.publish(1, b"never", key=queue, delivery_mode=2)
        peer.open(2)
        end(life, by)
    with start().connect() as peer:
        assert drain(peer, "a") == drain(peer, "b") == [(b"2", False)]


def test_deleted_and_purged_stay_so(start: Any, publish: Any, drain: Any) -> None:
    life = start()
    with life.connect() as peer:
        for queue in ("deleted", "purged", "kept"):
            peer.call(1, methods.QueueDeclare(queue=queue, durable=True))
        publish(peer, "purged", [b"1", b"2"])
        peer.publish(1, b"3", key="deleted", delivery_mode=2)
        peer.expect(1, methods.BasicAck)
        peer.call(1, methods.QueuePurge(queue="purged"))
        peer.call(1, methods.QueueDelete(queue="deleted"))
        peer.call(1, methods.QueueDeclare(queue="deleted", durable=True))
        peer.publish(1, b"4", key="kept", delivery_mode=2)
        peer.expect(1, methods.BasicAck)
    life.kill()
    with start().connect() as peer:
        assert [drain(peer, queue) for queue in ("deleted", "purged", "kept")] == [[], [], [(b"4", False)]]


def test_many_lives(start: Any, publish: Any, drain: Any) -> None:
    """Each adds something, half of them take something; names of queues come and go."""
    expected: list[bytes] = []
    for number in range(6):
        life = start()
        with life.connect() as peer:
            peer.call(1, methods.QueueDeclare(queue="q", durable=True))
            peer.call(1, methods.QueueDeclare(queue=f"q{number}", durable=True))
            publish(peer, "q", [b"%d" % number] * 3)
            expected += [b"%d" % number] * 3
            publish_again = [b"own"]
            for body in publish_again:
                peer.publish(1, body, key=f"q{number}", delivery_mode=2)
            peer.expect(1, methods.BasicAck)
            if number:
                assert drain(peer, f"q{number - 1}") == [(b"own", False)]
                peer.call(1, methods.QueueDelete(queue=f"q{number - 1}"))
            if number % 2:
                got = peer.get(1, "q")
                assert got is not None
                assert got[1].body == expected.pop(0)
                peer.send(1, methods.BasicAck(delivery_tag=got[0].delivery_tag))
                peer.publish(1, b"mark", key=f"q{number}", delivery_mode=1)
                peer.expect(1, methods.BasicAck)
                peer.call(1, methods.QueueDeclare(queue=f"after{number}", durable=True))
        end(life, "SIGKILL" if number % 3 else "SIGTERM")
    with start().connect() as peer:
        assert [body for body, _ in drain(peer, "q")] == expected


def test_a_pause_loses_nothing(start: Any, publish: Any, drain: Any) -> None:
    life = start()
    with life.connect() as peer:
        peer.call(1, methods.QueueDeclare(queue="q", durable=True))
        publish(peer, "q", [b"before"])
        os.kill(life.process.pid, signal.SIGSTOP)
        try:
            for number in range(100):
                peer.publish(1, b"%d" % number, key="q", delivery_mode=2)
        finally:
            os.kill(life.process.pid, signal.SIGCONT)
        while peer.expect(1, methods.BasicAck).delivery_tag < 101:
            pass
    life.kill()
    with start().connect() as peer:
        assert [body for body, _ in drain(peer, "q")] == [b"before", *(b"%d" % n for n in range(100))]


def test_a_second_process_says_who_holds_the_directory(start: Any, data: Path) -> None:
    life = start()
    command = [sys.executable, "-m", "flintmq", "serve", "--port", "0", "--data", str(data)]
    second = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert second.returncode == 1
    assert f"in use by process {life.process.pid}" in second.stderr
    assert "Traceback" not in second.stderr
    with life.connect() as peer:
        peer.call(1, methods.QueueDeclare(queue="q", durable=True))
    life.stop()
    start().stop()  # the lock goes with its process


@pytest.mark.parametrize("sync", ["interval", "never"])
def test_other_policies_survive_the_death_of_the_process(
    start: Any, publish: Any, drain: Any, sync: str
) -> None:
    settings = f'[storage]\nsync = "{sync}"\nsync_interval_ms = 50\n'
    life = start(settings)
    with life.connect() as peer:
        peer.call(1, methods.QueueDeclare(queue="q", durable=True))
        publish(peer, "q", [b"%d" % number for number in range(300)])
    life.kill()
    with start(settings).connect() as peer:
        assert [body for body, _ in drain(peer, "q")] == [b"%d" % number for number in range(300)]


def test_a_virtual_host_left_out_of_the_settings_keeps_what_it_has(
    start: Any, publish: Any, drain: Any
) -> None:
    both = 'virtual_hosts = ["/", "other"]\n'
    life = start(both)
    with Peer.connect(life.port, virtual_host="other") as peer:
        peer.open(1)
        peer.call(1, methods.QueueDeclare(queue="q", durable=True))
        publish(peer, "q", [b"mine"])
    life.stop()
    life = start()
    with life.connect() as peer:
        # Must not get the number of the queue that nobody sees.
        peer.call(1, methods.QueueDeclare(queue="q", durable=True))
        publish(peer, "q", [b"other"])
    life.stop()
    life.wait_for(re.compile("virtual host 'other' is not configured"))
    life = start(both)
    with Peer.connect(life.port, virtual_host="other") as peer:
        peer.open(1)
        assert drain(peer, "q") == [(b"mine", False)]
    with life.connect() as peer:
        assert drain(peer, "q") == [(b"other", False)]
