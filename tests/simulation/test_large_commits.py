"""Transactions of the tx class that are too large for one pass: committed in portions, and whole on disk."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flintmq.broker.scheduling import pass_work
from flintmq.broker.transactions import dtx_branch, dtx_completion, transaction
from flintmq.broker.transactions.xid import Xid
from flintmq.config import Dtx
from flintmq.wire import amqp, methods
from flintmq.wire.methods import Method

from .broker_client import Client, frame
from .simulated_disk import PowerLost
from .test_broker_recovery import Bench
from .test_ruled_recovery import bodies, crash, declare, get, passes, publish
from .test_streams_beside_queues import come_to_rest

COUNT = 11


@pytest.fixture(autouse=True)
def _portions(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("MESSAGES_MAX", 5), ("CHECKED", 4), ("STAGED", 3)):
        monkeypatch.setattr(transaction, name, value)
    monkeypatch.setattr(dtx_completion, "GROUP_MESSAGES_MAX", 5)
    monkeypatch.setattr(dtx_completion, "PORTION_MESSAGES", 2)


def opened(bench: Bench) -> Client:
    """A transaction that acks what was in the queue `in`, and publishes to `q`."""
    client = bench.client()
    declare(client, "q")
    declare(client, "in")
    publish(client, "in", b"in")
    assert get(client, "in", no_ack=False) is not None
    client.say(1, methods.TxSelect())
    client.say(1, methods.BasicAck(delivery_tag=1))
    for number in range(COUNT):
        publish(client, "q", b"%d" % number)
    come_to_rest(bench)
    client.written()
    return client


def numbered() -> list[bytes]:
    return [b"%d" % number for number in range(COUNT)]


def settle(bench: Bench) -> None:
    for _ in range(10):
        passes(bench, 1)
        come_to_rest(bench)


def test_all_of_it_is_there_before_it_is_answered() -> None:
    bench = Bench()
    client = opened(bench)
    queue = bench.broker.virtual_hosts["/"].queues["q"]
    client.say(1, methods.TxCommit())
    counts = []
    while not (told := client.written()):
        counts.append(queue.message_count())
        passes(bench, 0)
        come_to_rest(bench)
        assert len(counts) < 100
    assert [type(event.method) for event in told] == [methods.TxCommitOk]
    assert (counts[0], queue.message_count()) == (0, COUNT)
    client = crash(bench)
    assert bodies(client, "q") == numbered()
    assert bodies(client, "in") == []
    assert not bench.broker.virtual_hosts["/"].branches.branches


def test_the_power_fails_at_any_write() -> None:
    ends = set()
    for writes in range(24):
        bench = Bench()
        client = opened(bench)
        bench.disk.power_left = writes
        told = False
        try:
            client.say(1, methods.TxCommit())
            for _ in range(12):
                passes(bench, 1)
                come_to_rest(bench)
                told = told or any(isinstance(each.method, methods.TxCommitOk) for each in client.written())
        except PowerLost:
            pass
        bench.disk.power_left = None
        bench.disk.crash()
        bench.open()
        settle(bench)
        client = bench.client()
        found, back = bodies(client, "q"), bodies(client, "in")
        # Portions of one write that the power failure tore apart come back in another order.
        found.sort(key=int)
        assert (found, back) in ((numbered(), []), ([], [b"in"])), f"after {writes} writes"
        assert found or not told
        assert not bench.broker.virtual_hosts["/"].branches.branches
        ends.add(bool(found))
    assert ends == {False, True}


def test_it_waits_while_memory_is_full_and_after_a_crash_too(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    client = opened(bench)
    queue = bench.broker.virtual_hosts["/"].queues["q"]
    bench.broker.pass_work.is_memory_full = lambda: queue.message_count() > 0
    client.say(1, methods.TxCommit())
    settle(bench)
    found = queue.message_count()
    assert 0 < found < COUNT
    assert not client.written()
    monkeypatch.setattr(pass_work, "never", lambda: True)
    bench.disk.crash()
    bench.open()
    settle(bench)
    queue = bench.broker.virtual_hosts["/"].queues["q"]
    assert queue.message_count() == found
    bench.broker.pass_work.is_memory_full = lambda: False
    settle(bench)
    client = bench.client()
    assert (bodies(client, "q"), bodies(client, "in")) == (numbered(), [])


@pytest.mark.parametrize("steps", range(8))
def test_the_connection_is_lost_meanwhile(steps: int) -> None:
    bench = Bench()
    client = opened(bench)
    pass_work = bench.broker.pass_work
    pass_work.chores.pass_number, pass_work.chores.credit = pass_work.passes, steps
    client.say(1, methods.TxCommit())
    if steps > 5:
        settle(bench)
    client.drop()
    settle(bench)
    client = bench.client()
    found, back = bodies(client, "q"), bodies(client, "in")
    assert (found, back) in ((numbered(), []), ([], [b"in"]))
    assert bool(found) == (steps > 5)
    assert not bench.broker.virtual_hosts["/"].branches.branches
    assert not pass_work.asking
    client = crash(bench)
    assert bodies(client, "q") == []


def test_what_leads_nowhere_is_returned_before_the_answer() -> None:
    bench = Bench()
    client = opened(bench)
    method = methods.BasicPublish(routing_key="nowhere", mandatory=True)
    header = b"\x00\x3c\x00\x00" + (4).to_bytes(8, "big") + bytes(2)
    client.receive(
        frame(1, 1, methods.encode_method(amqp.VERSION_0_9_1, method))
        + frame(2, 1, header)
        + frame(3, 1, b"lost")
    )
    client.say(1, methods.TxCommit())
    settle(bench)
    told = [type(event.method) for event in client.written()]
    assert told == [methods.BasicReturn, methods.TxCommitOk]
    assert bodies(client, "q") == numbered()


def test_a_queue_that_has_no_room_for_it_refuses_all_of_it() -> None:
    bench = Bench()
    client = bench.client()
    declare(client, "q", max_length=COUNT - 1, overflow="reject-publish")
    client.say(1, methods.TxSelect())
    for number in range(COUNT):
        publish(client, "q", b"%d" % number)
    client.written()
    client.say(1, methods.TxCommit())
    settle(bench)
    [event] = client.written()
    assert isinstance(event.method, methods.ChannelClose)
    assert event.method.reply_code == 406
    assert bodies(bench.client(), "q") == []
    assert not bench.broker.virtual_hosts["/"].branches.branches


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_queue_that_others_fill_meanwhile_takes_all_of_it(is_restarted: bool) -> None:
    """There was room for it when the commit began, and nobody could be told that there is none now."""
    bench = Bench()
    client = bench.client()
    declare(client, "q", max_length=COUNT, overflow="reject-publish")
    client.say(1, methods.TxSelect())
    for number in range(COUNT):
        publish(client, "q", b"%d" % number)
    client.written()
    other = bench.client()
    pass_work = bench.broker.pass_work
    pass_work.chores.pass_number, pass_work.chores.credit = pass_work.passes, 5
    client.say(1, methods.TxCommit())
    publish(other, "q", b"other")
    if is_restarted:
        store, outcomes = bench.broker.store, bench.broker.virtual_hosts["/"].branches.outcomes
        assert store is not None
        while not outcomes.decided or outcomes.decided[0].manifest > store.synced:
            bench.broker.finish_pass()
            come_to_rest(bench)
        crash(bench)
        settle(bench)
    else:
        settle(bench)
        assert [type(event.method) for event in client.written()] == [methods.TxCommitOk]
    client = bench.client()
    publish(client, "q", b"refused")
    assert bodies(client, "q") == [b"other", *numbered()]


@pytest.mark.parametrize("messages", [1, 4])
def test_few_messages_to_many_queues_are_many(monkeypatch: pytest.MonkeyPatch, messages: int) -> None:
    bench = Bench()
    client = bench.client()
    for number in range(10):
        declare(client, f"q{number}")
        client.say(1, methods.QueueBind(queue=f"q{number}", exchange="amq.fanout"))
    client.say(1, methods.TxSelect())
    for number in range(messages):
        publish(client, "", b"%d" % number, exchange="amq.fanout")
    channel = client.session.connection.channels[1]
    assert channel is not None
    opened = channel.owner.transaction  # type: ignore[union-attr]
    assert isinstance(opened, transaction.Transaction)
    assert not opened.is_large()
    monkeypatch.setattr(transaction, "COPIES_MAX", 10 * messages - 1)
    assert opened.is_large()


@pytest.mark.parametrize("keys", [1, 4], ids=["by headers", "of many routes"])
@pytest.mark.parametrize("is_synced", [True, False])
def test_more_copies_than_were_told_beforehand(
    monkeypatch: pytest.MonkeyPatch, keys: int, is_synced: bool
) -> None:
    """The exchange decides by the message, or the branch has not noted all of its routes."""
    monkeypatch.setattr(dtx_completion, "GROUP_COPIES_MAX", 150)
    monkeypatch.setattr(dtx_completion, "PORTION_COPIES", 50)
    monkeypatch.setattr(dtx_branch, "ROUTES_MAX", 3)
    bench = Bench()
    client = bench.client()
    for number in range(50):
        declare(client, f"q{number}")
        client.say(1, methods.QueueBind(queue=f"q{number}", exchange="amq.headers"))
    xid = Xid(1, b"global", b"one").octets()
    client.say(1, methods.DtxDemarcationSelect())
    client.say(1, methods.DtxDemarcationStart(xid=xid))
    for number in range(4):
        publish(client, str(number % keys), b"%d" % number, exchange="amq.headers")
    client.say(1, methods.DtxDemarcationEnd(xid=xid))
    if is_synced:
        settle(bench)
    client.say(1, methods.DtxCoordinationCommit(xid=xid, one_phase=True))
    settle(bench)
    assert isinstance(client.written()[-1].method, methods.DtxCoordinationCommitOk)
    queues = bench.broker.virtual_hosts["/"].queues
    assert {queues[f"q{number}"].message_count() for number in range(50)} == {4}
    client = crash(bench)
    assert [bodies(client, f"q{number}") for number in (0, 49)] == [[b"0", b"1", b"2", b"3"]] * 2
    assert not bench.broker.virtual_hosts["/"].branches.branches


@pytest.mark.parametrize("credit", [0, 64], ids=["while it is staged", "before the commit"])
def test_an_exchange_that_is_gone_takes_its_messages_with_it(credit: int) -> None:
    """As in a commit that is small: the other messages go to their queues."""
    bench = Bench()
    client = bench.client()
    declare(client, "q")
    client.say(1, methods.ExchangeDeclare(exchange="x", type="fanout"))
    client.say(1, methods.QueueBind(queue="q", exchange="x"))
    client.say(1, methods.TxSelect())
    for number in range(COUNT):
        publish(client, "q", b"%d" % number, exchange="" if number % 2 else "x")
    client.written()
    other = bench.client()
    if credit:
        other.say(1, methods.ExchangeDelete(exchange="x"))
    pass_work = bench.broker.pass_work
    pass_work.chores.pass_number, pass_work.chores.credit = pass_work.passes, credit
    client.say(1, methods.TxCommit())
    other.say(1, methods.ExchangeDelete(exchange="x"))
    settle(bench)
    assert [type(event.method) for event in client.written()] == [methods.TxCommitOk]
    assert bodies(client, "q") == numbered()[1::2]


def test_limits_of_distributed_transactions_are_not_those_of_others() -> None:
    """One branch of three messages may be open, and is."""
    bench = Bench()
    client = opened(bench)
    other = bench.client()
    host = bench.broker.virtual_hosts["/"]
    host.branches.limits = Dtx(branches_max=1, operations_per_branch_max=3, branch_bytes_max=10)
    other.say(1, methods.DtxDemarcationSelect())
    other.say(1, methods.DtxDemarcationStart(xid=Xid(1, b"global", b"one").octets()))
    client.say(1, methods.TxCommit())
    settle(bench)
    assert [type(event.method) for event in client.written()] == [methods.TxCommitOk]
    assert bodies(client, "q") == numbered()


@pytest.mark.parametrize(
    "meddling",
    [
        lambda xid: methods.DtxCoordinationCommit(xid=xid, one_phase=True),
        lambda xid: methods.DtxCoordinationPrepare(xid=xid),
        lambda xid: methods.DtxCoordinationRollback(xid=xid),
        lambda xid: methods.DtxCoordinationSetTimeout(xid=xid, timeout=1),
        lambda xid: methods.DtxDemarcationStart(xid=xid, join=True),
    ],
    ids=["commit", "prepare", "rollback", "set-timeout", "join"],
)
def test_nobody_else_ends_it_half_way(meddling: Callable[[bytes], Method]) -> None:
    """Its xid is told by dtx.list."""
    bench = Bench()
    client = opened(bench)
    other = bench.client()
    other.say(1, methods.DtxDemarcationSelect())
    other.written()
    pass_work = bench.broker.pass_work
    pass_work.chores.pass_number, pass_work.chores.credit = pass_work.passes, 5
    client.say(1, methods.TxCommit())
    [branch] = bench.broker.virtual_hosts["/"].branches.branches.values()
    assert 0 < branch.published() < COUNT
    other.say(1, meddling(branch.xid.octets()))
    settle(bench)
    [event] = other.written()
    assert isinstance(event.method, methods.ChannelClose)
    assert event.method.reply_code == amqp.PRECONDITION_FAILED
    assert [type(event.method) for event in client.written()] == [methods.TxCommitOk]
    assert bodies(client, "q") == numbered()


def test_what_fails_when_one_is_done_does_not_keep_the_next_from_its_queues() -> None:
    bench = Bench()
    clients = [opened(bench), opened(bench)]
    for client in clients:
        client.say(1, methods.TxCommit())
    outcomes = bench.broker.virtual_hosts["/"].branches.outcomes
    while not outcomes.decided:
        passes(bench, 0)
        come_to_rest(bench)

    def fail() -> None:
        raise RuntimeError("a bug")

    outcomes.awaited.insert(0, (set(outcomes.decided[:1]), fail))
    settle(bench)
    settle(bench)
    for client in clients:
        assert [type(event.method) for event in client.written()] == [methods.TxCommitOk]
    assert bodies(client, "q") == numbered() * 2
