"""Branches of distributed transactions over queues with rules: dead letters, limits, expiry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from flintmq.broker.transactions import dtx_branches, dtx_completion
from flintmq.broker.transactions.dtx_branches import Branches
from flintmq.broker.transactions.xid import Xid
from flintmq.wire import amqp, methods

from .agreement import check_agreement
from .broker_client import Client
from .test_broker_recovery import Bench
from .test_ruled_recovery import bodies, crash, declare, get, passes, publish
from .test_streams_beside_queues import come_to_rest

XID = Xid(1, b"branch", b"1").octets()


def selected(bench: Bench) -> Client:
    client = bench.client()
    client.say(1, methods.DtxDemarcationSelect())
    return client


def prepared(client: Client, tag: int, method: methods.BasicAck | methods.BasicNack) -> None:
    """A branch that settles one delivery."""
    client.say(1, methods.DtxDemarcationStart(xid=XID))
    method.delivery_tag = tag
    client.say(1, method)
    client.say(1, methods.DtxDemarcationEnd(xid=XID))
    client.written()
    client.say(1, methods.DtxCoordinationPrepare(xid=XID))
    [event] = client.written()
    assert isinstance(event.method, methods.DtxCoordinationPrepareOk)
    assert event.method.flags == amqp.XA_OK


def test_an_ack_outside_of_branches_is_no_rejection() -> None:
    bench = Bench()
    client = selected(bench)
    declare(client, "morgue")
    declare(client, "q", dead_letter_exchange="", dead_letter_routing_key="morgue")
    publish(client, "q", b"1")
    assert get(client, "q", no_ack=False) is not None
    client.say(1, methods.BasicAck(delivery_tag=1))
    assert bodies(client, "morgue") == []
    assert bench.broker.virtual_hosts["/"].queues["q"].unacked == 0


def test_returns_before_a_branch_count_after_a_restart() -> None:
    bench = Bench()
    client = selected(bench)
    declare(client, "morgue")
    declare(client, "q", delivery_limit=1, dead_letter_exchange="", dead_letter_routing_key="morgue")
    publish(client, "q", b"1")
    get(client, "q", no_ack=False)
    client.say(1, methods.BasicNack(delivery_tag=1, requeue=True))
    get(client, "q", no_ack=False)
    prepared(client, 2, methods.BasicAck())
    client = crash(bench)
    client.say(1, methods.DtxCoordinationRollback(xid=XID))
    assert bodies(client, "morgue") == [b"1"]


def test_a_branch_that_survives_a_restart_is_no_return() -> None:
    bench = Bench()
    client = selected(bench)
    declare(client, "q", delivery_limit=1)
    publish(client, "q", b"1")
    get(client, "q", no_ack=False)
    prepared(client, 1, methods.BasicAck())
    client = crash(bench)
    client.say(1, methods.DtxCoordinationRollback(xid=XID))
    got = get(client, "q", no_ack=False)
    assert got is not None
    assert got[0].redelivered


def test_what_a_branch_held_expires_though_the_clock_was_set_back() -> None:
    bench = Bench()
    client = selected(bench)
    declare(client, "morgue")
    declare(client, "q", message_ttl=1000, dead_letter_exchange="", dead_letter_routing_key="morgue")
    publish(client, "q", b"1")
    get(client, "q", no_ack=False)
    prepared(client, 1, methods.BasicAck())
    bench.clock.skew_s -= 7200
    client = crash(bench)
    client.say(1, methods.DtxCoordinationRollback(xid=XID))
    passes(bench, 1000)
    assert bodies(client, "morgue") == [b"1"]


def test_what_was_tried_again_and_locked_is_not_there_twice_when_the_clock_is_set_back() -> None:
    bench = Bench()
    client = selected(bench)
    declare(client, "q", delayed_retry_type="all", delayed_retry_min=1000)
    publish(client, "q", b"1")
    get(client, "q", no_ack=False)
    client.say(1, methods.BasicNack(delivery_tag=1, requeue=True))
    passes(bench, 1000)
    get(client, "q", no_ack=False)
    prepared(client, 2, methods.BasicAck())
    bench.clock.skew_s -= 7200
    client = crash(bench)
    passes(bench, 7_300_000)
    assert bodies(client, "q") == []
    client.say(1, methods.DtxCoordinationRollback(xid=XID))
    passes(bench, 10_000)
    assert bodies(client, "q") == [b"1"]


def test_what_waits_for_its_next_try_waits_no_longer_for_a_clock_that_was_set_back() -> None:
    bench = Bench()
    client = bench.client()
    declare(client, "q", delayed_retry_type="all", delayed_retry_min=1000)
    publish(client, "q", b"1")
    get(client, "q", no_ack=False)
    client.say(1, methods.BasicNack(delivery_tag=1, requeue=True))
    bench.clock.skew_s -= 7200
    client = crash(bench)
    passes(bench, 1000)
    assert bodies(client, "q") == [b"1"]


def test_what_damage_brings_back_of_a_branch_is_not_part_of_a_later_one() -> None:
    bench = Bench()
    client = selected(bench)
    declare(client, "q")
    client.say(1, methods.DtxDemarcationStart(xid=XID))
    publish(client, "q", b"never prepared")
    bench.broker.finish_pass()
    store = bench.broker.store
    assert store is not None
    store.journal.commit_now()
    [first] = bench.broker.virtual_hosts["/"].branches.branches.values()
    owner = first.owner()
    bench.disk.kill()
    bench.open()  # which lets go of it; and that is the record which damage may cost
    client = selected(bench)
    client.say(1, methods.DtxDemarcationStart(xid=XID))
    [second] = bench.broker.virtual_hosts["/"].branches.branches.values()
    assert second.owner() != owner


def test_a_branch_that_is_handed_over_in_portions_ends_when_they_are_safe() -> None:
    """Else a torn write could leave its end, and not what was handed over before."""
    bench = Bench()
    client = selected(bench)
    declare(client, "q")
    outcomes = bench.broker.virtual_hosts["/"].branches.outcomes
    outcomes.group_bytes_max = outcomes.portion_bytes = 0
    client.say(1, methods.DtxDemarcationStart(xid=XID))
    for body in (b"1", b"2", b"3"):
        publish(client, "q", body)
    client.say(1, methods.DtxDemarcationEnd(xid=XID))
    client.say(1, methods.DtxCoordinationPrepare(xid=XID))
    come_to_rest(bench)
    client.say(1, methods.DtxCoordinationCommit(xid=XID))
    assert bench.broker.store is not None
    bench.broker.store.journal.commit_now()
    for _ in range(5):
        bench.broker.timetable.run()
    assert [branch.published() for branch in outcomes.decided] == [0]
    for _ in range(3):
        come_to_rest(bench)
        bench.broker.timetable.run()
    come_to_rest(bench)
    assert not outcomes.decided
    assert not bench.broker.virtual_hosts["/"].branches.branches
    bench.disk.crash()
    bench.open()
    assert bodies(bench.client(), "q") == [b"1", b"2", b"3"]


def test_what_a_branch_gives_back_after_a_restart_goes_to_a_consumer_that_may_refuse() -> None:
    bench = Bench()
    client = selected(bench)
    declare(client, "q")
    publish(client, "q", b"1")
    publish(client, "q", b"2")
    assert get(client, "q", no_ack=False) is not None
    prepared(client, 1, methods.BasicAck())
    client = crash(bench)
    client.say(1, methods.DtxDemarcationSelect())
    client.say(1, methods.DtxCoordinationRollback(xid=XID))
    client.written()
    client.say(1, methods.BasicConsume(queue="q", consumer_tag="c", no_local=True))
    bench.broker.finish_pass()
    heard = [event.body for event in client.written() if isinstance(event.method, methods.BasicDeliver)]
    assert heard == [b"1", b"2"]


def many_published(bench: Bench, client: Client, count: int) -> None:
    """A prepared branch of so many messages for the queue `q`."""
    declare(client, "q")
    client.say(1, methods.DtxDemarcationStart(xid=XID))
    for number in range(count):
        publish(client, "q", b"%d" % number)
    client.say(1, methods.DtxDemarcationEnd(xid=XID))
    client.say(1, methods.DtxCoordinationPrepare(xid=XID))
    come_to_rest(bench)
    client.written()


def test_a_branch_of_many_messages_is_committed_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dtx_completion, "GROUP_MESSAGES_MAX", 10)
    monkeypatch.setattr(dtx_completion, "PORTION_MESSAGES", 4)
    bench = Bench()
    client = selected(bench)
    many_published(bench, client, 11)
    queue = bench.broker.virtual_hosts["/"].queues["q"]
    client.say(1, methods.DtxCoordinationCommit(xid=XID))
    counts = []
    while not (told := client.written()):
        counts.append(queue.message_count())
        passes(bench, 1)
        come_to_rest(bench)
        assert len(counts) < 100
    assert isinstance(told[0].method, methods.DtxCoordinationCommitOk)
    assert counts[0] == 0
    assert queue.message_count() == 11
    client = crash(bench)
    assert bodies(client, "q") == [b"%d" % number for number in range(11)]


def test_a_crash_in_a_commit_of_many_messages_costs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dtx_completion, "GROUP_MESSAGES_MAX", 10)
    monkeypatch.setattr(dtx_completion, "PORTION_MESSAGES", 4)
    bench = Bench()
    client = selected(bench)
    many_published(bench, client, 11)
    client.say(1, methods.DtxCoordinationCommit(xid=XID))
    client = crash(bench)
    for _ in range(10):
        passes(bench, 1)
        come_to_rest(bench)
    assert bodies(client, "q") == [b"%d" % number for number in range(11)]


def test_a_branch_of_many_messages_is_rolled_back_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dtx_branches, "LET_GO_AT_ONCE", 4)
    bench = Bench()
    client = selected(bench)
    many_published(bench, client, 11)
    store = bench.broker.store
    assert store is not None
    [owner] = store.branch_owners
    pass_work = bench.broker.pass_work
    pass_work.chores.pass_number, pass_work.chores.credit = pass_work.passes, 1
    client.say(1, methods.DtxCoordinationRollback(xid=XID))
    kept = [each for each in store.journal.index.live() if owner in store.journal.owners_of(each)]
    assert len(kept) == 7
    assert store.branch_owners == {owner}, "no other branch may have its number yet"
    pass_work.chores.finish()
    assert not [each for each in store.journal.index.live() if owner in store.journal.owners_of(each)]
    assert not store.branch_owners
    client = crash(bench)
    assert bodies(client, "q") == []


class Bug(Exception):
    """For once."""


class FailingStore:
    """A store with its journal. The n-th call of one of these, by default of what lets go, raises."""

    def __init__(
        self, whole: Any, calls: list[int], names: tuple[str, ...] = ("append_settle", "settle_many")
    ) -> None:
        self.whole = whole
        self.calls = calls
        self.names = names

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.whole, name)
        if name == "journal":
            return FailingStore(found, self.calls, self.names)
        if name in self.names:
            self.calls[0] -= 1
            if not self.calls[0]:
                raise Bug
        return found


def failing(bench: Bench, monkeypatch: pytest.MonkeyPatch, calls: int) -> Branches:
    """The branches of a broker where that call raises."""
    branches = bench.broker.virtual_hosts["/"].branches
    monkeypatch.setattr(branches, "store", FailingStore(bench.broker.store, [calls]))
    return branches


def kept_for_branches(bench: Bench) -> list[int]:
    """What the journal has for the branches that there are."""
    store = bench.broker.store
    assert store is not None
    owned = {each: store.journal.owners_of(each) for each in store.journal.index.live()}
    return [each for each, owners in owned.items() if store.branch_owners.intersection(owners)]


@pytest.mark.parametrize("way", ["rollback", "spoil", "heuristic"])
def test_a_branch_that_a_bug_keeps_from_letting_go_has_what_the_journal_has(
    monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    bench = Bench()
    client = selected(bench)
    many_published(bench, client, 5)
    branches = failing(bench, monkeypatch, 4)
    [branch] = branches.branches.values()
    ends: dict[str, Callable[[], object]] = {
        "rollback": lambda: branches.rollback(branch),
        "spoil": lambda: branches.spoil(branch, amqp.XA_RBROLLBACK),
        "heuristic": lambda: branches.complete_heuristically(branch, False),
    }
    with pytest.raises(Bug):
        ends[way]()
    check_agreement(bench.broker, [])
    assert 0 < len(branch.entries) < 5
    branches.forget(branch) if way == "heuristic" else branches.rollback(branch)
    assert not branches.branches
    assert kept_for_branches(bench) == []
    client = crash(bench)
    assert bodies(client, "q") == []


def test_no_branch_has_the_number_of_one_that_a_bug_keeps_from_letting_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dtx_branches, "LET_GO_AT_ONCE", 4)
    bench = Bench()
    client = selected(bench)
    many_published(bench, client, 11)
    branches = failing(bench, monkeypatch, 3)  # of the manifest, and twice of messages
    store = bench.broker.store
    assert store is not None
    [owner] = store.branch_owners
    with pytest.raises(Bug):
        client.say(1, methods.DtxCoordinationRollback(xid=XID))
    client = selected(bench)
    client.say(1, methods.DtxCoordinationRollback(xid=XID))
    bench.broker.pass_work.chores.finish()
    assert not branches.branches
    assert store.branch_owners == {owner}
    assert len(kept_for_branches(bench)) == 7
    client = crash(bench)
    assert bench.broker.store is not None
    assert not bench.broker.store.branch_owners
    assert bodies(client, "q") == []


def test_what_a_branch_had_locked_is_back_though_reading_it_fails_at_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench()
    client = selected(bench)
    declare(client, "q")
    for body in (b"1", b"2"):
        publish(client, "q", body)
    get(client, "q", no_ack=False)
    prepared(client, 1, methods.BasicAck())
    client = crash(bench)  # of what is locked the branch has no more than its entries
    client.say(1, methods.DtxDemarcationSelect())
    branches = bench.broker.virtual_hosts["/"].branches
    monkeypatch.setattr(branches.outcomes, "store", FailingStore(bench.broker.store, [1], ("load",)))
    client.say(1, methods.DtxCoordinationRollback(xid=XID))
    assert bodies(bench.client(), "q") == [b"1", b"2"]
