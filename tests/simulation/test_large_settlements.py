"""Branches that settle more than one pass may: in portions, each message once, whatever happens meanwhile."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from flintmq.broker.scheduling import timetable
from flintmq.broker.transactions import dtx_completion
from flintmq.broker.transactions.dtx_branch import Branch, BranchState
from flintmq.broker.transactions.xid import Xid
from flintmq.wire import methods

from .broker_client import Client
from .simulated_disk import PowerLost
from .test_broker_recovery import Bench
from .test_ruled_recovery import bodies, crash, declare, get, passes, publish
from .test_streams_beside_queues import come_to_rest

XID = Xid(1, b"branch", b"1").octets()
COUNT = 9
NUMBERED = [b"%d" % number for number in range(COUNT)]


@pytest.fixture(autouse=True)
def _portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one message each, and one portion each time that the timetable is run."""
    monkeypatch.setattr(timetable, "ALARMS_MAX_PER_RUN", 1)
    monkeypatch.setattr(dtx_completion, "GROUP_SETTLED_MAX", 0)
    monkeypatch.setattr(dtx_completion, "PORTION_SETTLED", 0)


def prepared(bench: Bench, count: int = COUNT) -> Client:
    """A branch that rejects what `w` has, acks what `a` has, and publishes to `out`.

    Each message is in the queue `other` as well, where nobody touches it. Dead letters of `w` go to `dead`.
    """
    client = bench.client()
    declare(client, "dead")
    declare(client, "w", dead_letter_exchange="", dead_letter_routing_key="dead")
    for name in ("a", "other", "out"):
        declare(client, name)
    for name in ("w", "a", "other"):
        client.say(1, methods.QueueBind(queue=name, exchange="amq.fanout"))
    for number in range(count):
        publish(client, "", b"%d" % number, exchange="amq.fanout")
    client.say(1, methods.DtxDemarcationSelect())
    client.say(1, methods.DtxDemarcationStart(xid=XID))
    for name in ("w", "a"):
        for _ in range(count):
            assert get(client, name, no_ack=False) is not None
    client.say(1, methods.BasicNack(delivery_tag=count, multiple=True, requeue=False))
    client.say(1, methods.BasicAck(delivery_tag=2 * count, multiple=True))
    publish(client, "out", b"out")
    client.say(1, methods.DtxDemarcationEnd(xid=XID))
    client.say(1, methods.DtxCoordinationPrepare(xid=XID))
    come_to_rest(bench)
    client.written()
    return client


def branch_of(bench: Bench) -> Branch | None:
    return bench.broker.virtual_hosts["/"].branches.branches.get(Xid(1, b"branch", b"1"))


def commit(client: Client) -> None:
    client.say(1, methods.DtxCoordinationCommit(xid=XID))


def step(bench: Bench) -> None:
    """One portion, and what it has written is safe."""
    bench.broker.timetable.run()
    come_to_rest(bench)


def settle(bench: Bench) -> None:
    for _ in range(4 * COUNT):
        step(bench)


def is_told(client: Client) -> bool:
    return any(isinstance(each.method, methods.DtxCoordinationCommitOk) for each in client.written())


def check_committed(bench: Bench) -> None:
    """Each settlement has happened once, before a restart and after it."""
    for _ in range(2):
        queues = bench.broker.virtual_hosts["/"].queues
        counts = {name: (queue.message_count(), queue.unacked) for name, queue in queues.items()}
        whole = (COUNT, 0)
        assert counts == {"dead": whole, "w": (0, 0), "a": (0, 0), "other": whole, "out": (1, 0)}
        assert branch_of(bench) is None
        crash(bench)
    client = bench.client()
    assert sorted(bodies(client, "dead"), key=int) == NUMBERED
    assert bodies(client, "other") == NUMBERED
    assert bodies(client, "out") == [b"out"]


def test_it_is_told_when_all_of_it_is_done() -> None:
    bench = Bench()
    client = prepared(bench)
    queues = bench.broker.virtual_hosts["/"].queues
    commit(client)
    letters = []
    while not is_told(client):
        letters.append(queues["dead"].message_count())
        assert queues["w"].message_count() == 0
        assert queues["w"].unacked == COUNT - letters[-1]
        step(bench)
        assert len(letters) < 100
    assert set(letters) == set(range(COUNT + 1))
    check_committed(bench)


def test_a_branch_that_was_not_prepared() -> None:
    bench = Bench()
    client = bench.client()
    declare(client, "w")
    for body in NUMBERED:
        publish(client, "w", body)
    client.say(1, methods.DtxDemarcationSelect())
    client.say(1, methods.DtxDemarcationStart(xid=XID))
    for _ in range(COUNT):
        get(client, "w", no_ack=False)
    client.say(1, methods.BasicAck(delivery_tag=COUNT, multiple=True))
    client.say(1, methods.DtxDemarcationEnd(xid=XID))
    client.say(1, methods.DtxCoordinationCommit(xid=XID, one_phase=True))
    settle(bench)
    assert is_told(client)
    assert bench.broker.virtual_hosts["/"].queues["w"].unacked == 0
    assert bodies(crash(bench), "w") == []


@pytest.mark.parametrize("steps", range(0, 2 * COUNT + 3, 2))
def test_the_broker_is_killed_between_portions(steps: int) -> None:
    bench = Bench()
    commit(prepared(bench))
    for _ in range(steps):
        step(bench)
    crash(bench)
    settle(bench)
    check_committed(bench)


def test_the_power_fails_at_any_write() -> None:
    """What was not decided is in doubt, and can be committed: each message is settled once all the same."""
    states = set()
    for writes in range(0, 60, 2):
        bench = Bench()
        client = prepared(bench)
        bench.disk.power_left = writes
        was_told = False
        try:
            commit(client)
            for _ in range(3 * COUNT):
                passes(bench, 1)
                come_to_rest(bench)
                was_told = was_told or is_told(client)
        except PowerLost:
            pass
        bench.disk.power_left = None
        bench.disk.crash()
        bench.open()
        branch = branch_of(bench)
        states.add(None if branch is None else branch.state)
        if branch is not None and branch.state is BranchState.PREPARED:
            assert not was_told
            commit(bench.client())
        settle(bench)
        check_committed(bench)
    assert states == {None, BranchState.PREPARED, BranchState.DECIDED}


@pytest.mark.parametrize("steps", [2, COUNT + 3])
def test_a_queue_that_is_deleted_meanwhile(steps: int) -> None:
    """What it has not let go of yet goes with it, without dead letters."""
    bench = Bench()
    client = prepared(bench)
    commit(client)
    for _ in range(steps):
        step(bench)
    letters = bench.broker.virtual_hosts["/"].queues["dead"].message_count()
    client.say(1, methods.QueueDelete(queue="w"))
    client.say(1, methods.QueueDelete(queue="a"))
    settle(bench)
    assert is_told(client)
    client = crash(bench)
    assert branch_of(bench) is None
    assert len(bodies(client, "dead")) == letters
    assert bodies(client, "other") == NUMBERED
    assert bodies(client, "out") == [b"out"]


def test_a_queue_that_is_deleted_meanwhile_and_is_gone_after_a_crash() -> None:
    bench = Bench()
    client = prepared(bench)
    commit(client)
    for _ in range(3):
        step(bench)
    client.say(1, methods.QueueDelete(queue="w"))
    client = crash(bench)
    settle(bench)
    assert branch_of(bench) is None
    store = bench.broker.store
    assert store is not None
    assert bodies(client, "other") == NUMBERED
    letters = bodies(client, "dead")
    bodies(client, "out")
    bench.broker.finish_pass()
    assert letters == NUMBERED[: len(letters)]
    assert not list(store.journal.index.live()), "something is left of what the branch had locked"


@pytest.mark.parametrize(
    "meddling",
    [
        lambda: methods.DtxCoordinationRollback(xid=XID),
        lambda: methods.DtxCoordinationForget(xid=XID),
        lambda: methods.DtxCoordinationCommit(xid=XID),
        lambda: methods.DtxDemarcationStart(xid=XID, join=True),
        lambda: methods.QueuePurge(queue="w"),
    ],
    ids=["rollback", "forget", "commit", "join", "purge"],
)
def test_nobody_changes_what_is_decided(meddling: Callable[[], methods.Method]) -> None:
    bench = Bench()
    client = prepared(bench)
    commit(client)
    for _ in range(3):
        step(bench)
    other = bench.client()
    other.say(1, methods.DtxDemarcationSelect())
    other.say(1, meddling())
    settle(bench)
    assert is_told(client)
    check_committed(bench)


def test_what_is_requeued_is_back_at_once() -> None:
    bench = Bench()
    client = bench.client()
    declare(client, "dead")
    declare(client, "w", dead_letter_exchange="", dead_letter_routing_key="dead")
    for body in NUMBERED:
        publish(client, "w", body)
    client.say(1, methods.DtxDemarcationSelect())
    client.say(1, methods.DtxDemarcationStart(xid=XID))
    for number in range(COUNT):
        get(client, "w", no_ack=False)
        client.say(1, methods.BasicNack(delivery_tag=number + 1, requeue=number % 2 == 0))
    client.say(1, methods.DtxDemarcationEnd(xid=XID))
    commit_now = methods.DtxCoordinationCommit(xid=XID, one_phase=True)
    client.say(1, commit_now)
    assert bench.broker.virtual_hosts["/"].queues["w"].message_count() == COUNT // 2 + 1
    step(bench)
    client = crash(bench)
    settle(bench)
    assert bodies(client, "w") == NUMBERED[::2]
    assert bodies(client, "dead") == NUMBERED[1::2]


def test_a_bug_holds_up_one_message_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stays locked, and so do those behind it."""
    bench = Bench()
    client = prepared(bench)
    outcomes = bench.broker.virtual_hosts["/"].branches.outcomes
    whole = outcomes.settle_one
    failures = [RuntimeError("a bug"), RuntimeError("once more")]

    def settle_one(lock: dtx_completion.Lock) -> None:
        if lock.queue.name == "a" and failures:
            raise failures.pop()
        whole(lock)

    monkeypatch.setattr(outcomes, "settle_one", settle_one)
    logging.disable(logging.CRITICAL)
    try:
        commit(client)
        settle(bench)
    finally:
        logging.disable(logging.NOTSET)
    assert not failures
    assert is_told(client)
    check_committed(bench)


def test_a_branch_that_recovery_found_goes_back_in_portions() -> None:
    """In their order, and nothing is handed out before all are there."""
    count = 3 * dtx_completion.LOADED_MESSAGES
    bench = Bench()
    prepared(bench, count)
    client = crash(bench)
    publish(client, "w", b"later")
    pass_work = bench.broker.pass_work
    pass_work.chores.pass_number, pass_work.chores.credit = pass_work.passes, 3
    client.say(1, methods.DtxCoordinationRollback(xid=XID))
    queue = bench.broker.virtual_hosts["/"].queues["w"]
    assert 0 < queue.message_count() < count
    consumer = bench.client()
    consumer.say(1, methods.BasicConsume(queue="w", consumer_tag="c", no_ack=True))
    come_to_rest(bench)
    passes(bench, 1)
    heard = [each.body for each in consumer.written() if isinstance(each.method, methods.BasicDeliver)]
    assert heard == [*[b"%d" % number for number in range(count)], b"later"]
    assert queue.unacked == 0


@pytest.mark.parametrize("name", ["w", "a"])
def test_what_a_rollback_brings_back_is_ahead_of_all_else(name: str) -> None:
    count = 3 * dtx_completion.LOADED_MESSAGES
    bench = Bench()
    prepared(bench, count)
    client = crash(bench)
    publish(client, name, b"later")
    pass_work = bench.broker.pass_work
    pass_work.chores.pass_number, pass_work.chores.credit = pass_work.passes, 3
    client.say(1, methods.DtxCoordinationRollback(xid=XID))
    consumer = bench.client()
    consumer.say(1, methods.BasicConsume(queue=name, consumer_tag="c", no_ack=True))
    come_to_rest(bench)
    passes(bench, 1)
    heard = [each.body for each in consumer.written() if isinstance(each.method, methods.BasicDeliver)]
    assert heard == [*[b"%d" % number for number in range(count)], b"later"]


def test_what_cannot_be_read_of_a_queue_that_goes_is_let_go() -> None:
    bench = Bench()
    prepared(bench, 9)
    client = crash(bench)
    store = bench.broker.store
    assert store is not None
    queue = bench.broker.virtual_hosts["/"].queues["a"]
    entries = [lock.entry for lock in branch_of(bench).locks if lock.queue is queue]
    store.journal.reader.close()
    bench.disk.reads_fail = True
    client.say(1, methods.DtxCoordinationRollback(xid=XID))
    client.say(1, methods.QueueDelete(queue="a"))
    come_to_rest(bench)
    bench.disk.reads_fail = False
    passes(bench, 2000)
    come_to_rest(bench)
    assert not [entry for entry in entries if queue.number in store.journal.owners_of(entry)]
    assert queue.unacked == 0
