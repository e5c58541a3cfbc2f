"""Branches in which very much was settled: prepared in portions and whole, whatever happens meanwhile."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from flintmq.broker.transactions import dtx_branches, dtx_completion
from flintmq.broker.transactions.dtx_branch import Branch, BranchState
from flintmq.broker.transactions.xid import Xid
from flintmq.wire import amqp, methods
from flintmq.wire.methods import Method

from .broker_client import Client
from .simulated_disk import PowerLost
from .test_broker_recovery import Bench
from .test_ruled_recovery import bodies, crash, declare, get, passes, publish
from .test_streams_beside_queues import come_to_rest

BRANCH = Xid(1, b"branch", b"1")
XID = BRANCH.octets()
COUNT = 9
NUMBERED = [b"%d" % number for number in range(COUNT)]


@pytest.fixture(autouse=True)
def _portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dtx_branches, "LOCKED_AT_ONCE", 0)
    monkeypatch.setattr(dtx_branches, "LOCKED_IN_STEP", 1)


def worked(bench: Bench) -> Client:
    """A branch that is open: it acks what was in `w`, and publishes to `out`."""
    client = bench.client()
    declare(client, "w")
    declare(client, "out")
    for body in NUMBERED:
        publish(client, "w", body)
    client.say(1, methods.DtxDemarcationSelect())
    client.say(1, methods.DtxDemarcationStart(xid=XID))
    for _ in range(COUNT):
        assert get(client, "w", no_ack=False) is not None
    client.say(1, methods.BasicAck(delivery_tag=COUNT, multiple=True))
    publish(client, "out", b"out")
    client.say(1, methods.DtxDemarcationEnd(xid=XID))
    come_to_rest(bench)
    client.written()
    return client


def begin(bench: Bench, client: Client, steps: int, method: Method) -> Branch:
    """The client asks, and so many steps are taken."""
    pass_work = bench.broker.pass_work
    pass_work.chores.pass_number, pass_work.chores.credit = pass_work.passes, steps
    client.say(1, method)
    branch = branch_of(bench)
    assert branch is not None
    assert (branch.state, len(branch.locks)) == (BranchState.PREPARING, steps)
    return branch


def branch_of(bench: Bench) -> Branch | None:
    return bench.broker.virtual_hosts["/"].branches.branches.get(BRANCH)


def prepare() -> Method:
    return methods.DtxCoordinationPrepare(xid=XID)


def settle(bench: Bench) -> None:
    for _ in range(3):
        passes(bench, 1)
        come_to_rest(bench)


def codes(client: Client, kind: type[Method]) -> list[int]:
    return [each.method.flags for each in client.written() if isinstance(each.method, kind)]


def check_undone(bench: Bench) -> None:
    for _ in range(2):
        assert branch_of(bench) is None
        queue = bench.broker.virtual_hosts["/"].queues["w"]
        assert (queue.message_count(), queue.unacked) == (COUNT, 0)
        crash(bench)
    client = bench.client()
    assert bodies(client, "w") == NUMBERED
    assert bodies(client, "out") == []


def check_done(bench: Bench) -> None:
    client = crash(bench)
    assert branch_of(bench) is None
    assert bodies(client, "w") == []
    assert bodies(client, "out") == [b"out"]


def test_it_is_told_when_it_is_safe() -> None:
    bench = Bench()
    client = worked(bench)
    begin(bench, client, 3, prepare())
    assert codes(client, methods.DtxCoordinationPrepareOk) == []
    settle(bench)
    assert codes(client, methods.DtxCoordinationPrepareOk) == [amqp.XA_OK]
    crash(bench)
    branch = branch_of(bench)
    assert branch is not None
    assert (branch.state, len(branch.locks)) == (BranchState.PREPARED, COUNT)
    bench.client().say(1, methods.DtxCoordinationCommit(xid=XID))
    settle(bench)
    check_done(bench)


@pytest.mark.parametrize("steps", [1, COUNT - 1])
def test_a_crash_meanwhile_undoes_it(steps: int) -> None:
    bench = Bench()
    begin(bench, worked(bench), steps, prepare())
    bench.disk.crash()
    bench.open()
    check_undone(bench)


def test_the_power_fails_at_any_write() -> None:
    states = set()
    for writes in range(8):
        bench = Bench()
        client = worked(bench)
        bench.disk.power_left = writes
        told: list[int] = []
        try:
            begin(bench, client, 2, prepare())
            for _ in range(4):
                passes(bench, 1)
                come_to_rest(bench)
                told += codes(client, methods.DtxCoordinationPrepareOk)
        except PowerLost:
            pass
        bench.disk.power_left = None
        bench.disk.crash()
        bench.open()
        branch = branch_of(bench)
        states.add(None if branch is None else branch.state)
        assert branch is not None or not told
        if branch is not None:
            bench.client().say(1, methods.DtxCoordinationRollback(xid=XID))
            settle(bench)
        check_undone(bench)
    assert states == {None, BranchState.PREPARED}


@pytest.mark.parametrize("steps", [1, COUNT - 1])
def test_the_channel_is_lost_meanwhile(steps: int) -> None:
    bench = Bench()
    client = worked(bench)
    begin(bench, client, steps, prepare())
    client.drop()
    settle(bench)
    assert not bench.broker.pass_work.asking
    check_undone(bench)


@pytest.mark.parametrize("asks", ["prepare", "commit"])
def test_another_one_rolls_it_back_meanwhile(asks: str) -> None:
    bench = Bench()
    client, other = worked(bench), bench.client()
    method = prepare() if asks == "prepare" else methods.DtxCoordinationCommit(xid=XID, one_phase=True)
    begin(bench, client, 3, method)
    other.say(1, methods.DtxCoordinationRollback(xid=XID))
    settle(bench)
    assert codes(other, methods.DtxCoordinationRollbackOk) == [amqp.XA_OK]
    kind = methods.DtxCoordinationPrepareOk if asks == "prepare" else methods.DtxCoordinationCommitOk
    assert codes(client, kind) == [amqp.XA_RBROLLBACK]
    client.drop()
    settle(bench)
    check_undone(bench)


@pytest.mark.parametrize(
    "meddling",
    [
        prepare,
        lambda: methods.DtxCoordinationCommit(xid=XID),
        lambda: methods.DtxCoordinationCommit(xid=XID, one_phase=True),
        lambda: methods.DtxCoordinationForget(xid=XID),
        lambda: methods.DtxCoordinationSetTimeout(xid=XID, timeout=1),
        lambda: methods.DtxDemarcationStart(xid=XID, join=True),
    ],
    ids=["prepare", "commit", "one-phase", "forget", "set-timeout", "join"],
)
def test_nobody_else_touches_it_meanwhile(meddling: Callable[[], Method]) -> None:
    bench = Bench()
    client, other = worked(bench), bench.client()
    other.say(1, methods.DtxDemarcationSelect())
    begin(bench, client, 3, prepare())
    other.say(1, meddling())
    settle(bench)
    closed = [each.method for each in other.written() if isinstance(each.method, methods.ChannelClose)]
    assert [each.reply_code for each in closed] == [amqp.PRECONDITION_FAILED]
    assert codes(client, methods.DtxCoordinationPrepareOk) == [amqp.XA_OK]


def test_the_virtual_host_rolls_all_back_meanwhile() -> None:
    bench = Bench()
    client = worked(bench)
    branch = begin(bench, client, 3, prepare())
    bench.broker.virtual_hosts["/"].branches.undo(branch)
    settle(bench)
    assert codes(client, methods.DtxCoordinationPrepareOk) == [amqp.XA_RBROLLBACK]


@pytest.mark.parametrize("name", ["lock_some", "seal"])
def test_a_bug_meanwhile_undoes_it(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    bench = Bench()
    client = worked(bench)
    begin(bench, client, 3, prepare())

    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(bench.broker.virtual_hosts["/"].branches, name, fail)
    logging.disable(logging.CRITICAL)
    try:
        settle(bench)
    finally:
        logging.disable(logging.NOTSET)
    assert codes(client, methods.DtxCoordinationPrepareOk) == []
    client.drop()
    settle(bench)
    branch = branch_of(bench)
    if branch is not None:  # no channel is in it any more: whoever coordinates ends it
        assert branch.state is BranchState.ROLLBACK_ONLY
        bench.client().say(1, methods.DtxCoordinationRollback(xid=XID))
    check_undone(bench)


def test_one_phase() -> None:
    bench = Bench()
    client = worked(bench)
    begin(bench, client, 3, methods.DtxCoordinationCommit(xid=XID, one_phase=True))
    settle(bench)
    assert codes(client, methods.DtxCoordinationCommitOk) == [amqp.XA_OK]
    check_done(bench)


def test_a_large_commit_waits_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what is not on disk yet nothing is done; nobody else waits for that."""
    monkeypatch.setattr(dtx_completion, "GROUP_SETTLED_MAX", 0)
    bench = Bench()
    client = worked(bench)
    client.say(1, prepare())
    assert branch_of(bench).state is BranchState.PREPARED
    client.say(1, methods.DtxCoordinationCommit(xid=XID))
    store = bench.broker.store
    assert store is not None
    assert store.synced < store.last()
    assert branch_of(bench).state is BranchState.PREPARED
    for _ in range(COUNT):
        settle(bench)
    assert codes(client, methods.DtxCoordinationCommitOk) == [amqp.XA_OK]
    check_done(bench)


def test_a_commit_that_waits_for_the_disk_finds_it_rolled_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dtx_completion, "GROUP_SETTLED_MAX", 0)
    bench = Bench()
    client, other = worked(bench), bench.client()
    client.say(1, prepare())
    client.say(1, methods.DtxCoordinationCommit(xid=XID))
    other.say(1, methods.DtxCoordinationRollback(xid=XID))
    settle(bench)
    assert codes(other, methods.DtxCoordinationRollbackOk) == [amqp.XA_OK]
    told = [each.method for each in client.written() if isinstance(each.method, methods.ChannelClose)]
    assert [each.reply_code for each in told] == [amqp.NOT_FOUND]
    client.drop()
    settle(bench)
    check_undone(bench)
