"""A disk that does not answer for a while: queues wait, and lose, kill and count nothing meanwhile."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playbook.dialogue import Carried, Client
from playbook.paged import PagedPlaybook
from playbook.test_large import LARGE

from flintmq.wire.methods import (
    BasicAck,
    BasicConsume,
    BasicConsumeOk,
    BasicQos,
    BasicQosOk,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
)

AWAY_S = 30


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def playbook(directory: Path) -> Iterator[PagedPlaybook]:
    playbook = PagedPlaybook(directory)
    yield playbook
    playbook.close()


@pytest.fixture
def client(playbook: PagedPlaybook) -> Client:
    return playbook.client()


@contextmanager
def away(directory: Path) -> Iterator[None]:
    """The data directory is another one meanwhile, as with a mount that is renewed."""
    elsewhere = directory.with_name("elsewhere")
    directory.rename(elsewhere)
    try:
        yield
    finally:
        elsewhere.rename(directory)


def seconds(playbook: PagedPlaybook, count: int) -> None:
    for _ in range(count):
        playbook.passes(1000)
        assert playbook.broker.store is not None
        playbook.broker.store.tick()
        playbook.broker.timetable.run()
        playbook.finish_pass()


def consuming(playbook: PagedPlaybook, prefetch: int = 0) -> Client:
    client = playbook.client()
    if prefetch:
        client >> BasicQos(prefetch_count=prefetch)
        client << BasicQosOk()
    client >> BasicConsume(queue="q", consumer_tag="c")
    client << BasicConsumeOk(consumer_tag="c")
    return client


def stored(playbook: PagedPlaybook, client: Client, *bodies: bytes) -> None:
    client.publishes("q", *bodies, delivery_mode=2)
    assert playbook.broker.store is not None
    playbook.broker.store.journal.commit_now()
    playbook.finish_pass()


def test_no_try_counts_as_a_delivery(playbook: PagedPlaybook, client: Client, directory: Path) -> None:
    client.declares("q", durable=True, arguments={"x-queue-type": "quorum"})
    stored(playbook, client, LARGE)
    with away(directory):
        consumer = consuming(playbook)
        seconds(playbook, AWAY_S)
    seconds(playbook, 5)
    assert [each.body for _, each in consumer.heard() if isinstance(each, Carried)] == [LARGE]


def test_a_full_queue_waits_too(
    playbook: PagedPlaybook, client: Client, directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    client.declares("q", durable=True, arguments={"x-max-length": 1})
    consumer = consuming(playbook, prefetch=1)
    stored(playbook, client, b"A")
    stored(playbook, client, LARGE)
    with away(directory), playbook.one_pass():
        consumer >> BasicAck(delivery_tag=1)
        client.publishes("q", b"C")
    seconds(playbook, 5)
    assert playbook.queue("q").message_count() + playbook.queue("q").unacked == 1
    assert "a bug" not in caplog.text


def test_messages_expire_when_the_file_is_back(
    playbook: PagedPlaybook, client: Client, directory: Path
) -> None:
    client.declares("q", durable=True, arguments={"x-message-ttl": 5000})
    stored(playbook, client, *(b"%d" % number for number in range(12)))
    assert playbook.broker.store is not None
    playbook.broker.store.journal.reader.close()
    with away(directory):
        seconds(playbook, 8)
    seconds(playbook, 20)
    assert playbook.queue("q").message_count() == 0


def test_a_large_message_that_cannot_be_read_is_told_once_and_once_when_it_can_be(
    playbook: PagedPlaybook, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    client.declares("q", durable=True)
    stored(playbook, client, LARGE)
    assert playbook.broker.store is not None
    journal = playbook.broker.store.journal
    open_to_read = journal.disk.open_to_read

    def failing(path: str) -> int:
        raise OSError(errno.EIO, "Input/output error", path)

    journal.disk.open_to_read = failing
    consumer = consuming(playbook)
    seconds(playbook, AWAY_S)
    assert caplog.text.count("Input/output error: its message waits until it can be read") == 1
    assert len(journal.spools.unreadable()) == 1
    journal.disk.open_to_read = open_to_read
    seconds(playbook, 5)
    assert [each.body for _, each in consumer.heard() if isinstance(each, Carried)] == [LARGE]
    assert caplog.text.count("can be read again") == 1
    assert journal.spools.unreadable() == []


def test_a_queue_that_waits_can_be_declared_consumed_from_and_deleted(
    playbook: PagedPlaybook, client: Client, directory: Path
) -> None:
    client.declares("q", durable=True)
    stored(playbook, client, *(b"%d" % number for number in range(12)))
    assert playbook.broker.store is not None
    playbook.broker.store.journal.reader.close()
    with away(directory):
        consuming(playbook)
        with playbook.one_pass():
            client.publishes("q", b"more")
            client >> QueueDeclare(queue="q", durable=True)
            client << QueueDeclareOk(queue="q", message_count=9, consumer_count=1)
            client >> BasicConsume(queue="q", consumer_tag="d")
            client << BasicConsumeOk(consumer_tag="d")
            client >> QueueDelete(queue="q")
            client << QueueDeleteOk(message_count=9)
