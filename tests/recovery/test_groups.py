"""A commit that is refused or fails costs nobody else anything: what is confirmed later is found again."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from peer import Peer

from flintmq.broker.store import topology_records
from flintmq.storage.disk import Disk
from flintmq.storage.inspection.journal_inspection import repair
from flintmq.storage.journal.journal import Journal
from flintmq.storage.options import JournalOptions
from flintmq.wire import amqp, methods

TOO_LARGE_FOR_A_STREAM = 70_000_000
SETTINGS = """
[users.guest]
password = "guest"
tags = ["administrator"]
permissions."/" = { configure = ".*", write = ".*", read = ".*" }

[users.asker]
password = "asker"
permissions."/" = { configure = "", write = "^(amq\\\\.)?system$", read = "" }
"""
BODIES = [b"%d" % number for number in range(20)]


def end(life: Any, way: signal.Signals) -> None:
    if way == signal.SIGKILL:
        life.kill()
    else:
        life.stop()


def wire(life: Any) -> Peer:
    peer: Peer = life.connect()
    peer.call(1, methods.QueueDeclare(queue="q", durable=True))
    peer.call(1, methods.QueueDeclare(queue="s", durable=True, arguments={"x-queue-type": "stream"}))
    return peer


@pytest.mark.parametrize("way", [signal.SIGTERM, signal.SIGKILL])
def test_a_message_too_large_for_a_stream_in_a_transaction(
    start: Callable[..., Any], publish: Callable[..., None], drain: Callable[..., Any], way: signal.Signals
) -> None:
    life = start()
    bystander = wire(life)
    peer = life.connect()
    peer.call(1, methods.TxSelect())
    peer.publish(1, b"small", key="q", delivery_mode=2)
    peer.publish(1, bytes(TOO_LARGE_FOR_A_STREAM), key="s", delivery_mode=2)
    peer.send(1, methods.TxCommit())
    peer.expect_channel_close(1, amqp.CONTENT_TOO_LARGE)
    publish(bystander, "q", BODIES)
    end(life, way)
    life = start()
    peer = life.connect()
    assert drain(peer, "q") == [(body, False) for body in BODIES], "of the transaction nothing, of others all"
    assert peer.call(1, methods.QueueDeclare(queue="s", passive=True)).message_count == 0
    peer.close()
    life.stop()


@pytest.mark.parametrize("way", [signal.SIGTERM, signal.SIGKILL])
def test_a_request_in_a_transaction_whose_answer_may_not_be_sent(
    start: Callable[..., Any], publish: Callable[..., None], drain: Callable[..., Any], way: signal.Signals
) -> None:
    life = start(SETTINGS)
    bystander = wire(life)
    peer = Peer.connect(life.port, heartbeat_s=0, user="asker", password="asker")
    peer.open(1)
    peer.call(1, methods.TxSelect())
    peer.publish(1, exchange="amq.system", key="broker.info", reply_to="q", delivery_mode=2)
    peer.send(1, methods.TxCommit())
    peer.expect_channel_close(1, amqp.ACCESS_REFUSED)
    publish(bystander, "q", BODIES)
    end(life, way)
    life = start(SETTINGS)
    peer = life.connect()
    assert drain(peer, "q") == [(body, False) for body in BODIES]
    peer.close()
    life.stop()


class Nobody:
    """Wants to know nothing of what recovery finds."""

    def value(self, key: bytes, octets: bytes) -> None:
        """Nothing to do."""

    def entry(self, sequence: int, owners: tuple[int, ...], header: bytes, payload_octets: int) -> None:
        """Nothing to do."""

    def progress(self, done_octets: int, total_octets: int) -> None:
        """Nothing to do."""


@pytest.fixture
def cut(data: Path) -> None:
    """A data directory as a broker leaves it that has confirmed messages inside a group without an end."""
    journal = Journal.open(str(data), Disk(), JournalOptions(threaded=False))
    journal.recover(Nobody())
    journal.begin_group()
    for body in BODIES:
        journal.append_entry((1,), b"", body)
        journal.commit_now()
    journal.close()


@pytest.mark.usefixtures("cut")
def test_a_start_says_aloud_what_it_drops_with_a_group(start: Callable[..., Any], journal: Any) -> None:
    checked = journal("check")
    assert checked.returncode == 1
    assert f"{len(BODIES)} synced records" in checked.stdout
    assert "not sound" in checked.stdout
    life = start()
    life.wait_for(re.compile(r"ERROR.*recovery: 20 synced records, from 1 to 20, belong to a group"))
    life.stop()
    assert journal("check").returncode == 0


@pytest.mark.usefixtures("cut")
def test_a_repair_says_what_it_drops_with_a_group(data: Path, journal: Any) -> None:
    done = journal("repair")
    assert "20 synced records" in done.stdout
    assert "nothing was damaged" not in done.stdout
    assert [line for line in repair(str(data)).losses() if not line.startswith("found by an earlier")] == []


class Queues(Nobody):
    """Keeps the records of queues."""

    def __init__(self) -> None:
        self.records: list[tuple[bytes, bytes]] = []

    def value(self, key: bytes, octets: bytes) -> None:
        if key.startswith(topology_records.QUEUE):
            self.records.append((key, octets))


@pytest.mark.parametrize("by", ["a start", "a repair"])
def test_a_stream_whose_queue_is_dropped_with_a_group_is_rescued(
    start: Callable[..., Any], publish: Callable[..., None], data: Path, by: str
) -> None:
    life = start()
    with life.connect() as peer:
        peer.call(1, methods.QueueDeclare(queue="s", durable=True, arguments={"x-queue-type": "stream"}))
        publish(peer, "s", BODIES)
    life.stop()
    journal = Journal.open(str(data), Disk(), JournalOptions(threaded=False))
    queues = Queues()
    journal.recover(queues)
    ((key, octets),) = queues.records
    journal.delete_value(key)
    journal.begin_group()
    journal.put_value(key, octets)
    journal.commit_now()
    journal.close()
    if by == "a repair":
        repair(str(data))
    life = start()
    with life.connect() as peer:
        found = peer.call(1, methods.QueueDeclare(queue="lost-and-found-1", passive=True))
        assert found.message_count == len(BODIES)
    life.stop()
