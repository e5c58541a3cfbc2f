"""Large messages that go to a stream while the disk does not give their bodies, as without a descriptor."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playbook.branches import commit, committed, end, ended, prepare, prepared, select, start, started
from playbook.dialogue import Carried, Client
from playbook.paged import PagedPlaybook

from flintmq.storage.spool import Spool
from flintmq.wire import methods

LARGE = bytes(range(256)) * 20_000  # 5 MB


@pytest.fixture
def playbook(tmp_path: Path) -> Iterator[PagedPlaybook]:
    playbook = PagedPlaybook(tmp_path / "data", sync="never")
    yield playbook
    playbook.end()
    playbook.close()


@pytest.fixture
def wired(client: Client) -> Client:
    """A client, and the fanout to a queue, a stream and another queue."""
    client.declares("before", durable=True)
    client.declares("s", durable=True, arguments={"x-queue-type": "stream"})
    client.declares("behind", durable=True)
    for queue in ("before", "s", "behind"):
        client.binds(queue, "amq.fanout")
    return client


@contextmanager
def no_descriptors(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def fails(spool: Spool) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(Spool, "open_to_read", fails)
        yield


def depths(playbook: PagedPlaybook) -> list[int]:
    """Of all three, with what is on its way to the disk."""
    store, streams = playbook.broker.store, playbook.broker.streams
    assert store is not None
    assert streams is not None
    for _ in range(3):
        streams.storage.commit_now()  # on a slow disk the journal waits for them
        store.journal.commit_now()
        playbook.passes(1100)
        playbook.broker.timetable.run()
        playbook.finish_pass()
    return [playbook.queue(name).message_count() for name in ("before", "s", "behind")]


def is_there_once(playbook: PagedPlaybook, client: Client) -> bool:
    """All have it once, whole; nothing is kept besides."""
    assert depths(playbook) == [1, 1, 1]
    assert [client.gets(queue) for queue in ("before", "behind")] == [LARGE] * 2
    store = playbook.broker.store
    return store is not None and not store.held and not store.arrived


def test_a_dead_letter_waits(playbook: PagedPlaybook, wired: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    wired.declares("d", durable=True, arguments={"x-dead-letter-exchange": "amq.fanout"})
    wired.publishes("d", LARGE, delivery_mode=2)
    wired >> methods.BasicGet(queue="d")
    found = wired.next(1)
    assert isinstance(found, Carried)
    assert isinstance(found.method, methods.BasicGetOk)
    with no_descriptors(monkeypatch):
        wired >> methods.BasicReject(delivery_tag=found.method.delivery_tag, requeue=False)
        for _ in range(5):
            assert depths(playbook) == [0, 0, 0]
    assert is_there_once(playbook, wired)


def test_a_delayed_message_waits(
    playbook: PagedPlaybook, wired: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = {"x-delayed-type": "fanout"}
    wired >> methods.ExchangeDeclare(exchange="x", type="x-delayed-message", durable=True, arguments=kind)
    wired << methods.ExchangeDeclareOk()
    wired >> methods.ExchangeBind(destination="amq.fanout", source="x")
    wired << methods.ExchangeBindOk()
    wired.publishes("", LARGE, exchange="x", headers={"x-delay": 50}, delivery_mode=2)
    with no_descriptors(monkeypatch):
        assert depths(playbook) == [0, 0, 0]
    assert is_there_once(playbook, wired)


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_branch_that_is_committed_waits(
    playbook: PagedPlaybook, wired: Client, monkeypatch: pytest.MonkeyPatch, is_gone: bool
) -> None:
    """Whether or not the channel that has published is there still."""
    worker = playbook.client()
    select(worker)
    worker >> start()
    worker << started()
    worker.publishes("", LARGE, exchange="amq.fanout", delivery_mode=2)
    worker >> end()
    worker << ended()
    worker >> prepare()
    depths(playbook)
    worker << prepared()
    if is_gone:
        worker >> methods.ChannelClose(reply_code=200)
        worker << methods.ChannelCloseOk()
    select(wired)
    with no_descriptors(monkeypatch):
        wired >> commit()
        assert depths(playbook) == [0, 0, 0]
    assert is_there_once_after(playbook, wired)


def is_there_once_after(playbook: PagedPlaybook, wired: Client) -> bool:
    assert depths(playbook) == [1, 1, 1]
    wired << committed()
    return is_there_once(playbook, wired)


def test_a_transaction_is_refused_before_any_of_it_shows(
    playbook: PagedPlaybook, wired: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    wired >> methods.TxSelect()
    wired << methods.TxSelectOk()
    wired.publishes("before", b"small", delivery_mode=2)
    wired.publishes("", LARGE, exchange="amq.fanout", delivery_mode=2)
    with no_descriptors(monkeypatch):
        wired >> methods.TxCommit()
        assert wired.hears(methods.ChannelClose).reply_code == 506
        wired >> methods.ChannelCloseOk()
        assert depths(playbook) == [0, 0, 0]
    assert depths(playbook) == [0, 0, 0]
