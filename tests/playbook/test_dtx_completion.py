"""Distributed transactions, without a disk: recovery, limits, time, users, and the old class."""

from __future__ import annotations

import pytest
from playbook.branches import (
    SETTINGS,
    SETTLING,
    USERS,
    X1,
    X2,
    commit,
    committed,
    end,
    ended,
    in_branch,
    prepare,
    prepared,
    recovered,
    refused,
    rollback,
    rolled_back,
    select,
    settled_in_branch,
    start,
    started,
    taken,
)
from playbook.dialogue import Client, Playbook

from flintmq.broker.transactions import dtx_completion
from flintmq.broker.transactions.xid import Xid
from flintmq.clock import Clock
from flintmq.config import parse
from flintmq.wire import amqp, methods


@pytest.fixture(params=[amqp.VERSION_0_9, amqp.VERSION_0_9_1])
def worker(playbook: Playbook, request: pytest.FixtureRequest) -> Client:
    """A client in dtx mode, with a queue "q"."""
    client = playbook.client(request.param)
    client.declares("q")
    select(client)
    return client


@pytest.fixture
def witness(playbook: Playbook) -> Client:
    return playbook.client()


# Recovery and forgetting


def test_recover_lists_what_is_in_doubt(worker: Client, witness: Client) -> None:
    in_branch(worker, b"open", xid=X2)
    assert recovered(witness) == {}
    in_branch(worker, b"prepared", xid=X1)
    worker >> prepare()
    worker << prepared()
    assert recovered(witness) == {X1: "prepared"}
    assert recovered(witness, anew=False) == {}
    worker >> rollback()
    worker << rolled_back()
    assert recovered(witness) == {}


def test_recover_goes_on_where_a_frame_was_full(playbook: Playbook, worker: Client) -> None:
    xids = [Xid(7, b"%064d" % number, b"b" * 64).octets() for number in range(100)]
    for xid in xids:
        in_branch(worker, b"a", xid=xid)
        worker >> prepare(xid)
        worker << prepared()
    asker = playbook.client(frame_max=4096)
    found = list(recovered(asker))
    assert 0 < len(found) < 100
    while portion := recovered(asker, anew=False):
        found += portion
    assert found == xids
    recovered(asker, last=True)
    assert recovered(asker, anew=False) == {}, "the scan was ended"


# Limits


@pytest.fixture
def narrow() -> Client:
    client = Playbook(parse(SETTINGS)).client()
    client.declares("q")
    select(client)
    return client


def test_so_many_branches(narrow: Client) -> None:
    in_branch(narrow)
    in_branch(narrow, xid=X2)
    narrow >> start(Xid(1, b"three", b"").octets())
    assert "has 2 branches that are not finished" in refused(narrow, amqp.RESOURCE_ERROR)


def test_so_many_operations(narrow: Client) -> None:
    narrow >> start()
    narrow << started()
    narrow.publishes("q", b"1", b"2", b"3", b"4")
    assert "over 3 messages and settlements" in refused(narrow, amqp.RESOURCE_ERROR)
    narrow >> methods.ChannelOpen()
    narrow << methods.ChannelOpenOk()
    assert narrow.gets_all("q") == []


def test_so_many_octets(narrow: Client) -> None:
    narrow >> start()
    narrow << started()
    narrow.publishes("q", b"1" * 50, b"2" * 50)
    assert "over 100 octets" in refused(narrow, amqp.RESOURCE_ERROR)


@pytest.mark.parametrize("settled", [3, 4])
def test_so_many_settlements(settled: int) -> None:
    """As many as a transaction of the tx class may have; a dead letter counts for one, unlike there."""
    client = Playbook(parse("[limits]\nsettlements_per_transaction_max = 3")).client()
    client.declares("q")
    select(client)
    client.publishes("q", *[b"m"] * settled)
    tags = [taken(client)[0] for _ in range(settled)]
    client >> start()
    client << started()
    client >> methods.BasicNack(delivery_tag=tags[1], multiple=True, requeue=False)
    client >> methods.BasicAck(delivery_tag=tags[-1], multiple=True)
    if settled > 3:
        assert "over 3 settlements" in refused(client, amqp.RESOURCE_ERROR)
        return
    client >> end()
    client << ended()
    client >> commit(one_phase=True)
    client << committed()


# Copies


def test_a_commit_to_many_queues_each_leaves_nothing_out(playbook: Playbook, worker: Client) -> None:
    """More copies than go to queues in one portion, and fewer than are decided first."""
    for number in range(100):
        worker.declares(f"q{number}")
        worker.binds(f"q{number}", "amq.fanout")
    worker >> start()
    worker << started()
    worker.publishes("", *[b"%d" % number for number in range(100)], exchange="amq.fanout")
    worker >> end()
    worker << ended()
    worker >> commit(one_phase=True)
    worker << committed()
    queues = playbook.broker.virtual_hosts["/"].queues
    assert {queues[f"q{number}"].message_count() for number in range(100)} == {100}


# Time


class SettableClock(Clock):
    def __init__(self) -> None:
        super().__init__()
        self.ahead_s = 0.0

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.ahead_s


@pytest.fixture
def clock(playbook: Playbook) -> SettableClock:
    clock = SettableClock()
    playbook.broker.clock = playbook.broker.timetable.clock = clock
    return clock


def pass_time(playbook: Playbook, clock: SettableClock, seconds: float) -> None:
    clock.ahead_s += seconds
    playbook.broker.timetable.run()
    playbook.finish_pass()


def test_a_commit_to_many_queues_waits_while_memory_is_full(
    playbook: Playbook,
    clock: SettableClock,
    worker: Client,
    witness: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What another one has settled leaves its queue all the same: that gives memory back."""
    monkeypatch.setattr(dtx_completion, "PORTION_COPIES", 3)
    settled_in_branch(worker, SETTLING["ack"])
    other = playbook.client()
    select(other)
    for queue in ("r", "s"):
        other.declares(queue)
        other.binds(queue, "amq.fanout")
    other >> start(X2)
    other << started()
    other.publishes("", b"1", b"2", exchange="amq.fanout")
    other >> end(X2)
    other << ended()
    pass_work = playbook.broker.pass_work
    pass_work.is_memory_full = lambda: True
    other >> commit(X2, one_phase=True)
    outcomes = playbook.broker.virtual_hosts["/"].branches.outcomes
    outcomes.group_settled_max = 0
    worker >> commit(one_phase=True)
    assert [len(branch.locks) for branch in outcomes.decided] == [0, 1]
    pass_time(playbook, clock, 60)
    assert [len(branch.locks) for branch in outcomes.decided] == [0, 0]
    pass_time(playbook, clock, 60)
    assert [witness.gets_all(queue) for queue in ("r", "s")] == [[], []]
    pass_work.is_memory_full = lambda: False
    for _ in range(3):
        pass_time(playbook, clock, 1)
    assert [witness.gets_all(queue) for queue in ("r", "s")] == [[b"1", b"2"]] * 2
    other << committed()
    worker << committed()


def timeout_of(client: Client) -> int:
    client >> methods.DtxCoordinationGetTimeout(xid=X1)
    return client.hears(methods.DtxCoordinationGetTimeoutOk).timeout


def set_timeout(client: Client, seconds: int) -> None:
    client >> methods.DtxCoordinationSetTimeout(xid=X1, timeout=seconds)
    client << methods.DtxCoordinationSetTimeoutOk()


def test_a_branch_that_takes_too_long(
    playbook: Playbook, clock: SettableClock, worker: Client, witness: Client
) -> None:
    worker >> start()
    worker << started()
    assert timeout_of(worker) == 0
    set_timeout(worker, 10)
    assert timeout_of(worker) == 10
    worker.publishes("q", b"a")
    pass_time(playbook, clock, 9)
    worker.publishes("q", b"b")
    pass_time(playbook, clock, 2)
    worker.publishes("q", b"c")
    worker >> end()
    worker << ended(amqp.XA_RBTIMEOUT)
    worker >> rollback()
    worker << rolled_back(amqp.XA_RBTIMEOUT)
    assert witness.gets_all("q") == []


def test_a_prepared_branch_waits_for_ever(
    playbook: Playbook, clock: SettableClock, worker: Client, witness: Client
) -> None:
    worker >> start()
    worker << started()
    set_timeout(worker, 10)
    worker.publishes("q", b"a")
    worker >> end()
    worker << ended()
    worker >> prepare()
    worker << prepared()
    pass_time(playbook, clock, 1e6)
    worker >> commit()
    worker << committed()
    assert witness.gets_all("q") == [b"a"]


def test_unless_the_operator_has_set_a_time() -> None:
    playbook = Playbook(parse("[dtx]\nheuristic_timeout_s = 60\ntimeout_s = 30\n"))
    clock = SettableClock()
    playbook.broker.clock = playbook.broker.timetable.clock = clock
    client = playbook.client()
    client.declares("q")
    select(client)
    settled_in_branch(client, SETTLING["ack"])
    assert timeout_of(client) == 30
    client >> prepare()
    client << prepared()
    pass_time(playbook, clock, 61)
    assert recovered(client) == {X1: "heuristic-rollback"}
    assert taken(client)[1:] == (b"m", True)
    for asked, answer in (
        (commit(), committed(amqp.XA_HEURRB)),
        (rollback(), rolled_back(amqp.XA_HEURRB)),
        (methods.DtxCoordinationForget(xid=X1), methods.DtxCoordinationForgetOk()),
    ):
        client >> asked
        client << answer
    assert recovered(client) == {}
    client >> commit()
    refused(client, amqp.NOT_FOUND)


# Who may


def test_a_branch_belongs_to_its_user() -> None:
    playbook = Playbook(parse(USERS))
    ann, bob, root = (playbook.client(user=name, password=name) for name in ("ann", "bob", "root"))
    ann.declares("q")
    select(ann)
    in_branch(ann, b"a")
    ann >> prepare()
    ann << prepared()
    assert recovered(bob) == {}
    assert recovered(root) == {X1: "prepared"}
    bob >> commit()
    text = refused(bob, amqp.ACCESS_REFUSED)
    assert "belongs to another user than 'bob'" in text
    assert "ann" not in text  # whose it is need not be known
    root >> commit()
    root << committed()
    assert ann.gets_all("q") == [b"a"]


# The dtx class of 0-8 and 0-9


@pytest.mark.parametrize("version", [amqp.VERSION_0_8, amqp.VERSION_0_9])
def test_the_old_class_starts_and_others_end(playbook: Playbook, witness: Client, version: int) -> None:
    client = playbook.client(version)
    client.declares("q")
    client >> methods.DtxSelect()
    client << methods.DtxSelectOk()
    for name, body in (("one", b"a"), ("two", b"b"), ("one", b"c")):
        client >> methods.DtxStart(dtx_identifier=name)
        client << methods.DtxStartOk()
        client.publishes("q", body)
    one, two = (Xid(0, name, b"").octets() for name in (b"one", b"two"))
    witness >> prepare(two)
    witness << prepared()
    witness >> commit(one, one_phase=True)
    witness << committed()
    assert witness.gets_all("q") == [b"a", b"c"]
    client.publishes("q", b"at once")
    assert witness.gets_all("q") == [b"at once"]
    client >> methods.DtxStart(dtx_identifier="")
    refused(client, amqp.PRECONDITION_FAILED)
