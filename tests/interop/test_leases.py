"""Batch leases, looking into queues and moving between them, asked for with pika over the system exchange."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from broker_process import BrokerProcess

from flintmq.wire.columns import Columns

REPLY_S_MAX = 20


class Refused(Exception):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Asker:
    """A connection that asks services, one at a time."""

    def __init__(self, port: int) -> None:
        parameters = pika.ConnectionParameters("127.0.0.1", port, heartbeat=0, socket_timeout=10)
        self.connection = pika.BlockingConnection(parameters)
        self.channel = self.connection.channel()
        self.channel.confirm_delivery()
        self.replies: list[tuple[Any, bytes]] = []
        self.channel.basic_consume(
            "amq.rabbitmq.reply-to", lambda _c, _m, p, body: self.replies.append((p, body)), auto_ack=True
        )

    def ask(self, service: str, **arguments: Any) -> tuple[dict[str, Any], bytes]:
        return self.answer(self.send(service, **arguments))

    def send(self, service: str, **arguments: Any) -> str:
        headers = {name.replace("_", "-"): value for name, value in arguments.items()}
        properties = pika.BasicProperties(
            reply_to="amq.rabbitmq.reply-to", correlation_id=uuid.uuid4().hex, headers=headers
        )
        self.channel.basic_publish("amq.system", service, b"", properties)
        return str(properties.correlation_id)

    def answer(self, correlation_id: str) -> tuple[dict[str, Any], bytes]:
        while not self.replies:
            self.connection.process_data_events(time_limit=REPLY_S_MAX)
        reply, body = self.replies.pop(0)
        assert reply.correlation_id == correlation_id
        if "error-code" in reply.headers:
            raise Refused(reply.headers["error-code"], reply.headers["error-text"])
        return reply.headers, body

    def fill(self, queue: str, *bodies: bytes, durable: bool = True) -> None:
        self.channel.queue_declare(queue, durable=durable)
        for body in bodies:
            self.channel.basic_publish("", queue, body, pika.BasicProperties(delivery_mode=2))

    def depth(self, queue: str) -> int:
        return int(self.channel.queue_declare(queue, passive=True).method.message_count)

    def read(self, queue: str, reader: str, epoch: int, start: int, end: int) -> list[dict[str, Any]]:
        arguments = {"queue": queue, "consumer": reader, "epoch": epoch, "from": start, "to": end}
        return list(Columns(self.ask("lease.read", **arguments)[1]).rows())


@pytest.fixture
def asker(tmp_path: Path) -> Iterator[Asker]:
    with BrokerProcess("--data", str(tmp_path / "data")) as broker:
        asker = Asker(broker.port)
        yield asker
        asker.connection.close()


def numbered(count: int) -> list[bytes]:
    return [b"message %d" % number for number in range(1, count + 1)]


def values(rows: list[dict[str, Any]]) -> list[bytes]:
    return [row["value"] for row in rows]


def test_the_same_start_gives_the_same_messages_until_they_are_acked(asker: Asker) -> None:
    asker.fill("orders", *numbered(10))
    first, _ = asker.ask("queue.lease", queue="orders", consumer="spark", claim=True, max_rows=4)
    assert (first["first"], first["last"], first["epoch"], first["acked"]) == (1, 4, 1, 0)
    again, _ = asker.ask("queue.lease", queue="orders", consumer="spark", epoch=1, start=0, max_rows=100)
    assert (again["first"], again["last"]) == (1, 4)
    more, _ = asker.ask("queue.lease", queue="orders", consumer="spark", epoch=1, start=4, max_rows=3)
    assert (more["first"], more["last"]) == (5, 7)
    assert asker.depth("orders") == 3
    rows = asker.read("orders", "spark", 1, 2, 6)
    assert values(rows) == numbered(10)[2:6]
    assert [row["offset"] for row in rows] == [3, 4, 5, 6]
    assert {row["routing_key"] for row in rows} == {b"orders"}
    assert {row["redelivered"] for row in rows} == {0}
    acked, _ = asker.ask("lease.ack", queue="orders", consumer="spark", epoch=1, through=5)
    assert acked["settled"] == 5
    with pytest.raises(Refused, match="not within") as refused:
        asker.read("orders", "spark", 1, 2, 6)
    assert refused.value.code == 406
    assert values(asker.read("orders", "spark", 1, 5, 7)) == numbered(10)[5:7]


def test_a_new_reader_of_the_name_fences_the_old_one(asker: Asker) -> None:
    asker.fill("orders", *numbered(3))
    asker.ask("queue.lease", queue="orders", consumer="spark", claim=True)
    claimed, _ = asker.ask("queue.lease", queue="orders", consumer="spark", claim=True)
    assert (claimed["first"], claimed["last"], claimed["epoch"]) == (1, 3, 2)
    with pytest.raises(
        Refused, match=r"epoch 2, not 1: another reader of that name has claimed it$"
    ) as refused:
        asker.ask("lease.ack", queue="orders", consumer="spark", epoch=1, through=3)
    assert refused.value.code == 403
    assert asker.ask("lease.ack", queue="orders", consumer="spark", epoch=2, through=3)[0]["acked"] == 3
    assert asker.depth("orders") == 0


def test_released_messages_are_back_in_their_places_redelivered(asker: Asker) -> None:
    asker.fill("orders", *numbered(4))
    asker.ask("queue.lease", queue="orders", consumer="spark", claim=True, max_rows=2)
    assert asker.ask("lease.release", queue="orders", consumer="spark", epoch=1)[0]["returned"] == 2
    got = [asker.channel.basic_get("orders", auto_ack=True) for _ in range(4)]
    assert [body for _, _, body in got] == numbered(4)
    assert [method.redelivered for method, _, _ in got] == [True, True, False, False]


def test_a_lease_that_is_not_renewed_expires(asker: Asker) -> None:
    asker.fill("orders", *numbered(2))
    asker.ask("queue.lease", queue="orders", consumer="spark", claim=True, timeout_ms=50)
    taken, _ = asker.ask("queue.lease", queue="orders", consumer="other", claim=True, wait_ms=10_000)
    assert (taken["first"], taken["last"]) == (1, 2)
    assert [row["redelivered"] for row in asker.read("orders", "other", 1, 0, 2)] == [1, 1]
    with pytest.raises(Refused, match=r"epoch 2, not 1: the lease has expired$"):
        asker.ask("lease.renew", queue="orders", consumer="spark", epoch=1)


def test_waiting_for_a_message_ends_when_one_comes_or_the_time_is_up(asker: Asker) -> None:
    asker.fill("orders")
    empty, _ = asker.ask("queue.lease", queue="orders", consumer="spark", claim=True, wait_ms=30)
    assert (empty["first"], empty["last"]) == (1, 0)


def test_a_renewal_waits_until_a_message_comes_or_the_time_is_up(asker: Asker) -> None:
    asker.fill("orders")
    held = {"queue": "orders", "consumer": "spark"}
    epoch = asker.ask("queue.lease", **held, claim=True, max_rows=0)[0]["epoch"]
    assert asker.ask("lease.renew", **held, epoch=epoch, wait_ms=30)[0]["messages-ready"] == 0
    begun = time.monotonic()
    asked = asker.send("lease.renew", **held, epoch=epoch, wait_ms=30_000)
    asker.fill("orders", b"0")
    assert asker.answer(asked)[0]["messages-ready"] == 1
    assert time.monotonic() - begun < REPLY_S_MAX
    assert asker.depth("orders") == 1


def test_a_renewal_that_waits_ends_when_somebody_else_claims_the_lease(asker: Asker) -> None:
    asker.fill("orders")
    held = {"queue": "orders", "consumer": "spark"}
    epoch = asker.ask("queue.lease", **held, claim=True, max_rows=0)[0]["epoch"]
    asked = asker.send("lease.renew", **held, epoch=epoch, wait_ms=30_000)
    claim = asker.send("queue.lease", **held, claim=True, max_rows=0)
    asker.answer(claim)
    with pytest.raises(Refused, match="epoch") as refused:
        asker.answer(asked)
    assert refused.value.code == 403


def test_leases_outlive_a_kill(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    broker = BrokerProcess("--data", data)
    asker = Asker(broker.port)
    asker.fill("orders", *numbered(10))
    asker.fill("gone", *numbered(3))
    asker.ask("queue.lease", queue="orders", consumer="spark", claim=True, max_rows=4)
    asker.ask("queue.lease", queue="orders", consumer="spark", epoch=1, start=4, max_rows=4)
    asker.ask("lease.ack", queue="orders", consumer="spark", epoch=1, through=2)
    asker.ask("queue.lease", queue="gone", consumer="spark", claim=True)
    asker.channel.queue_delete("gone")
    broker.process.kill()
    broker.process.wait()
    with BrokerProcess("--data", data) as again:
        asker = Asker(again.port)
        assert asker.depth("orders") == 2
        found, _ = asker.ask("queue.lease", queue="orders", consumer="spark", epoch=1, start=4)
        assert (found["first"], found["last"], found["acked"]) == (5, 8, 2)
        assert values(asker.read("orders", "spark", 1, 2, 8)) == numbered(10)[2:8]
        asker.ask("lease.release", queue="orders", consumer="spark", epoch=1)
        got = [asker.channel.basic_get("orders", auto_ack=True)[2] for _ in range(8)]
        assert got == numbered(10)[2:]
        asker.connection.close()


def test_looking_disturbs_nothing_and_goes_on_where_it_stopped(asker: Asker) -> None:
    asker.fill("orders", *numbered(5))
    asker.channel.basic_nack(asker.channel.basic_get("orders")[0].delivery_tag)
    found, body = asker.ask("queue.peek", queue="orders", limit=2)
    rows = list(Columns(body).rows())
    assert values(rows) == numbered(5)[:2]
    assert [row["redelivered"] for row in rows] == [1, 0]
    _, body = asker.ask("queue.peek", queue="orders", after=found["last"], columns=["headers", "properties"])
    assert values(list(Columns(body).rows())) == numbered(5)[2:]
    _, body = asker.ask("queue.peek", queue="orders", contains="sage 4")
    assert values(list(Columns(body).rows())) == [b"message 4"]
    assert asker.depth("orders") == 5


def test_a_selector_finds_messages_and_leaves_them(asker: Asker) -> None:
    asker.channel.queue_declare("orders")
    for amount in range(10):
        properties = pika.BasicProperties(headers={"amount": amount})
        asker.channel.basic_publish("", "orders", b"%d" % amount, properties)
    found, body = asker.ask("queue.peek", queue="orders", selector="amount >= 3", limit=4)
    assert values(list(Columns(body).rows())) == [b"3", b"4", b"5", b"6"]
    assert (found["more"], found["looked-at"]) == (True, 7)
    found, body = asker.ask("queue.peek", queue="orders", selector="amount >= 3", after=found["last"])
    assert values(list(Columns(body).rows())) == [b"7", b"8", b"9"]
    assert found["more"] is False
    _, body = asker.ask("queue.peek", queue="orders", selector="amount >= 3", contains="8")
    assert values(list(Columns(body).rows())) == [b"8"]
    assert asker.depth("orders") == 10


def test_messages_are_moved_and_copied(asker: Asker) -> None:
    asker.fill("from", *numbered(5))
    asker.fill("to")
    copied, _ = asker.ask("queue.copy", queue="from", to="to", limit=2)
    assert copied["copied"] == 2
    moved, _ = asker.ask("queue.move", queue="from", to="to", limit=3)
    assert (moved["moved"], moved["left"]) == (3, 2)
    got = [asker.channel.basic_get("to", auto_ack=True)[2] for _ in range(5)]
    assert got == numbered(5)[:2] + numbered(5)[:3]
    assert asker.depth("from") == 2


@pytest.mark.parametrize(
    ("service", "arguments", "text"),
    [
        ("queue.lease", {"consumer": "spark"}, "argument 'queue': is missing"),
        ("queue.lease", {"queue": "none", "consumer": "spark", "claim": True}, "no queue 'none'"),
        ("queue.lease", {"queue": "orders", "consumer": "", "claim": True}, "argument 'consumer'"),
        ("queue.lease", {"queue": "orders", "consumer": "spark", "claim": True, "start": 5}, "'start'"),
        ("lease.read", {"queue": "orders", "consumer": "nobody", "epoch": 1}, "has no lease"),
        ("queue.move", {"queue": "orders", "to": "orders"}, "the same queue"),
        ("queue.peek", {"queue": "orders", "columns": ["nonsense"]}, "'columns'"),
        ("queue.peek", {"queue": "orders", "selector": "a ="}, "selector, position 4"),
        ("queue.peek", {"queue": "orders", "selector": 1}, "'selector'"),
    ],
)
def test_what_is_wrong_with_a_request_is_said(
    asker: Asker, service: str, arguments: dict[str, Any], text: str
) -> None:
    asker.fill("orders")
    with pytest.raises(Refused, match=text):
        asker.ask(service, **arguments)


def test_the_age_of_the_oldest_message(asker: Asker) -> None:
    asker.fill("orders", b"first", b"second")
    found, _ = asker.ask("queue.info", queue="orders")
    now, _ = asker.ask("broker.info")
    assert found["oldest-ms"] <= now["now-ms"] < found["oldest-ms"] + 60_000
    assert 0 <= found["oldest-age-ms"] < 60_000
    asker.channel.queue_purge("orders")
    found, _ = asker.ask("queue.info", queue="orders")
    assert "oldest-ms" not in found

    asker.channel.queue_declare("log", durable=True, arguments={"x-queue-type": "stream"})
    asker.channel.basic_publish("", "log", b"safe when this returns")
    rows, _ = asker.ask("queue.list")
    log = {row["name"]: row for row in rows["rows"]}["log"]
    assert found.get("oldest-ms") is None
    assert now["now-ms"] <= log["oldest-ms"] < now["now-ms"] + 60_000
