"""Messages too large for a stream, which others get: what the broker sends by itself, and what refuses it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playbook.branches import (
    X1,
    commit,
    committed,
    end,
    ended,
    prepare,
    prepared,
    refused,
    rollback,
    rolled_back,
    select,
    start,
    started,
)
from playbook.dialogue import Carried, Client, Playbook
from playbook.hourglass import Hourglass
from playbook.paged import PagedPlaybook
from playbook.test_services import answer, ask, reply_queue, request

from flintmq.broker.exchanges import router
from flintmq.broker.streams import stream_arguments
from flintmq.broker.transactions.xid import xid_of
from flintmq.errors import StorageFault
from flintmq.storage.disk import Disk
from flintmq.storage.options import JournalOptions
from flintmq.storage.spool import SpoolReader
from flintmq.storage.streams.store import StreamStore
from flintmq.wire import amqp, methods

X1_TEXT = str(xid_of(X1))
LARGE = bytes(range(256)) * 20_000  # 5 MB


@pytest.fixture(autouse=True)
def small_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """What streams take is less than what lies in a file."""
    for module in (router, stream_arguments):
        monkeypatch.setattr(module, "MESSAGE_OCTETS_MAX", len(LARGE) - 1)


@pytest.fixture
def playbook(tmp_path: Path) -> Iterator[PagedPlaybook]:
    playbook = PagedPlaybook(tmp_path / "data", sync="never")
    yield playbook
    playbook.end()
    playbook.close()


@pytest.fixture
def wired(client: Client) -> Client:
    """A client, and a fanout `f` to a transient queue, a stream, a durable queue and one more that is not."""
    client >> methods.ExchangeDeclare(exchange="f", type="fanout", durable=True)
    client << methods.ExchangeDeclareOk()
    client.declares("before")
    stream(client, "s")
    client.declares("durable", durable=True)
    client.declares("behind")
    for queue in ("before", "s", "durable", "behind"):
        client.binds(queue, "f")
    return client


def stream(client: Client, name: str) -> None:
    client.declares(name, durable=True, arguments={"x-queue-type": "stream"})


def depth(client: Client, queue: str) -> int:
    client >> methods.QueueDeclare(queue=queue, passive=True)
    return client.hears(methods.QueueDeclareOk).message_count


def dead(client: Client, mode: int, letters_to: str = "f") -> None:
    """A large message is rejected."""
    client.declares("d", durable=True, arguments={"x-dead-letter-exchange": letters_to})
    client.publishes("d", LARGE, delivery_mode=mode)
    client >> methods.BasicGet(queue="d")
    found = client.next(1)
    assert isinstance(found, Carried)
    client >> methods.BasicReject(delivery_tag=found.method.delivery_tag, requeue=False)


def is_left_out(playbook: PagedPlaybook, caplog: pytest.LogCaptureFixture, count: int = 1) -> bool:
    """Whether the log has told so often of the stream, and all counts say so."""
    told = [each for each in caplog.records if "does not get to streams" in each.getMessage()]
    assert {each.levelname for each in told} == {"WARNING"}
    assert all(each.getMessage().endswith(": s") for each in told)
    tally = playbook.queue("s").tally
    assert tally is not None
    assert playbook.broker.pass_work.fates.refused == tally.refused == count
    return len(told) == count


def holds_nothing(playbook: PagedPlaybook) -> bool:
    """No body is kept for nobody."""
    store = playbook.broker.store
    assert store is not None
    store.journal.commit_now()
    return not store.held and not store.arrived and not list(playbook.directory.rglob("*.spool"))


def held_shares(playbook: PagedPlaybook) -> list[int]:
    assert playbook.broker.store is not None
    return [each.queues for each in playbook.broker.store.held.values()]


@pytest.mark.parametrize("mode", [1, 2])
def test_a_dead_letter_gets_to_all_queues_but_the_stream(
    playbook: PagedPlaybook, wired: Client, caplog: pytest.LogCaptureFixture, mode: int
) -> None:
    dead(wired, mode)
    assert is_left_out(playbook, caplog)
    assert [depth(wired, each) for each in ("before", "durable", "behind", "s")] == [1, 1, 1, 0]
    assert [wired.gets(each) for each in ("before", "durable", "behind")] == [LARGE] * 3
    assert holds_nothing(playbook)


def test_a_dead_letter_of_a_message_that_a_stream_takes_may_be_too_large_for_it(
    playbook: PagedPlaybook, wired: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It has more headers."""
    for module in (router, stream_arguments):
        monkeypatch.setattr(module, "MESSAGE_OCTETS_MAX", len(LARGE) + 100)
    wired.publishes("", LARGE, exchange="f")
    assert playbook.broker.streams is not None
    playbook.broker.streams.storage.commit_now()
    assert depth(wired, "s") == 1
    dead(wired, 1)
    assert is_left_out(playbook, caplog)
    assert [wired.gets_all(each) for each in ("before", "durable", "behind")] == [[LARGE, LARGE]] * 3
    assert holds_nothing(playbook)


def test_a_dead_letter_for_a_stream_alone_is_refused(
    playbook: PagedPlaybook, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    stream(client, "s")
    client.binds("s", "amq.fanout")
    dead(client, 2, "amq.fanout")
    assert is_left_out(playbook, caplog)
    assert depth(client, "s") == depth(client, "d") == 0
    assert holds_nothing(playbook)


@pytest.mark.parametrize("further", [{}, {"CC": ["other"]}])
def test_a_delayed_message_gets_to_all_queues_but_the_stream(
    playbook: PagedPlaybook, wired: Client, caplog: pytest.LogCaptureFixture, further: dict[str, object]
) -> None:
    kind = {"x-delayed-type": "fanout"}
    wired >> methods.ExchangeDeclare(exchange="x", type="x-delayed-message", durable=True, arguments=kind)
    wired << methods.ExchangeDeclareOk()
    wired >> methods.ExchangeBind(destination="f", source="x")
    wired << methods.ExchangeBindOk()
    wired.publishes("", LARGE, exchange="x", headers={"x-delay": 50, **further}, delivery_mode=2)
    assert depth(wired, "before") == 0
    playbook.passes(100)
    playbook.finish_pass()
    playbook.broker.timetable.run()
    assert [wired.gets(each) for each in ("before", "durable", "behind")] == [LARGE] * 3
    assert is_left_out(playbook, caplog)
    assert depth(wired, "s") == 0
    assert holds_nothing(playbook)


def test_a_stream_that_fails_gives_up_its_own_share_alone(
    playbook: PagedPlaybook, wired: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the router does not look at the size, and the stream does: in the midst of the queues."""
    monkeypatch.setattr(router, "MESSAGE_OCTETS_MAX", 2 * len(LARGE))
    dead(wired, 1)
    assert [depth(wired, each) for each in ("before", "durable", "behind", "s")] == [1, 0, 0, 0]
    assert held_shares(playbook) == [1]
    assert wired.gets("before") == LARGE
    assert holds_nothing(playbook)


def test_a_stream_whose_body_the_disk_does_not_give_keeps_it_from_nobody(
    playbook: PagedPlaybook, wired: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (router, stream_arguments):
        monkeypatch.setattr(module, "MESSAGE_OCTETS_MAX", 2 * len(LARGE))

    def failing(reader: SpoolReader, offset: int, size: int) -> bytes:
        raise StorageFault("for once")

    wired >> methods.ConfirmSelect()
    wired << methods.ConfirmSelectOk()
    with monkeypatch.context() as patched:
        patched.setattr("flintmq.storage.spool.SpoolReader.read", failing)
        wired.publishes("", LARGE, exchange="f")
    wired << methods.BasicNack(delivery_tag=1)
    assert playbook.broker.pass_work.fates.lost == 1
    assert [wired.gets(each) for each in ("before", "durable", "behind")] == [LARGE] * 3
    assert depth(wired, "s") == 0
    assert holds_nothing(playbook)


# Without a data directory bodies lie in memory, and streams are temporary.


@pytest.fixture
def light() -> Iterator[Client]:
    clock = Hourglass()
    playbook = Playbook(clock=clock)
    storage = StreamStore(None, Disk(), JournalOptions(threaded=False), clock, lambda: None)
    playbook.broker.attach_streams(storage)
    yield playbook.client()
    playbook.end()
    storage.close()


def test_a_message_in_memory_is_refused_before_any_queue_has_it(light: Client) -> None:
    light.declares("before")
    stream(light, "s")
    for queue in ("before", "s"):
        light.binds(queue, "amq.fanout")
    light.publishes("", LARGE, exchange="amq.fanout")
    refused(light, amqp.CONTENT_TOO_LARGE)
    light >> methods.ChannelOpen()
    light << methods.ChannelOpenOk()
    assert depth(light, "before") == depth(light, "s") == 0


@pytest.mark.parametrize(("service", "done"), [("queue.move", "moved"), ("queue.copy", "copied")])
def test_a_message_in_memory_is_not_moved_to_a_stream(light: Client, service: str, done: str) -> None:
    reply_queue(light)
    stream(light, "s")
    light.declares("q")
    light.publishes("q", LARGE)
    told = ask(light, service, queue="q", to="s")
    assert (told[done], told["stopped"]) == (0, "the next message is too large for stream 's'")
    assert depth(light, "q") == 1


# Distributed transactions


def branch_with_large(client: Client, exchange: str = "f", **headers: object) -> None:
    select(client)
    client >> start()
    client << started()
    client.publishes("durable", b"small", delivery_mode=2)
    client.publishes("", LARGE, exchange=exchange, delivery_mode=2, headers=headers)
    client >> end()
    client << ended()


@pytest.mark.parametrize("one_phase", [True, False])
def test_a_branch_is_refused_as_long_as_it_can_be(
    playbook: PagedPlaybook, wired: Client, one_phase: bool
) -> None:
    branch_with_large(wired)
    asker = playbook.client()
    asker >> (commit(one_phase=True) if one_phase else prepare())
    assert "too large for stream 's'" in refused(asker, amqp.CONTENT_TOO_LARGE)
    assert depth(wired, "durable") == 0, "nothing of it has happened"
    wired >> methods.QueueUnbind(queue="s", exchange="f")
    wired << methods.QueueUnbindOk()
    wired >> (commit(one_phase=True) if one_phase else prepare())
    wired << (committed() if one_phase else prepared())
    if not one_phase:
        wired >> commit()
        wired << committed()
    assert wired.gets_all("durable") == [b"small", LARGE]
    assert [wired.gets(each) for each in ("before", "behind")] == [LARGE] * 2


def test_a_branch_that_was_refused_can_be_rolled_back(playbook: PagedPlaybook, wired: Client) -> None:
    branch_with_large(wired)
    asker = playbook.client()
    asker >> prepare()
    refused(asker, amqp.CONTENT_TOO_LARGE)
    wired >> rollback()
    wired << rolled_back()
    assert depth(wired, "durable") == 0
    assert holds_nothing(playbook)


def test_a_branch_is_refused_for_a_stream_that_further_keys_lead_to(
    playbook: PagedPlaybook, wired: Client
) -> None:
    branch_with_large(wired, "", CC=["durable", "s"])
    asker = playbook.client()
    asker >> prepare()
    refused(asker, amqp.CONTENT_TOO_LARGE)


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_stream_that_is_bound_after_the_prepare_is_left_out(
    playbook: PagedPlaybook, wired: Client, caplog: pytest.LogCaptureFixture, is_gone: bool
) -> None:
    """Whether or not the channel that has published is there still."""
    worker = playbook.client()
    wired >> methods.QueueUnbind(queue="s", exchange="f")
    wired << methods.QueueUnbindOk()
    branch_with_large(worker)
    worker >> prepare()
    worker << prepared()
    wired.binds("s", "f")
    if is_gone:
        worker >> methods.ChannelClose(reply_code=200)
        worker << methods.ChannelCloseOk()
    reply_queue(wired)
    told = ask(wired, "dtx.commit", xids=[X1_TEXT], mandatory=True)
    assert told["error-code"] == amqp.CONTENT_TOO_LARGE
    request(wired, "dtx.commit", xids=[X1_TEXT], wait=True)
    assert playbook.broker.store is not None
    for _ in range(3):
        playbook.broker.store.journal.commit_now()
        playbook.finish_pass()
    told = answer(wired)
    assert (told["committed"], told["refused"], told["unrouted"]) == (1, 1, 0)
    assert is_left_out(playbook, caplog)
    assert wired.gets_all("durable") == [b"small", LARGE]
    assert [wired.gets(each) for each in ("before", "behind")] == [LARGE] * 2
    assert depth(wired, "s") == 0
    assert holds_nothing(playbook)


def test_dtx_prepare_prepares_none_where_one_is_refused(playbook: PagedPlaybook, wired: Client) -> None:
    branch_with_large(wired)
    asker = playbook.client()
    reply_queue(asker)
    told = ask(asker, "dtx.prepare", xids=[X1_TEXT])
    assert told["error-code"] == amqp.CONTENT_TOO_LARGE
    wired >> rollback()
    wired << rolled_back()
