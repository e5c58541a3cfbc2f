"""Distributed transactions, without a disk: demarcation, both phases, and every way to do it wrong."""

from __future__ import annotations

from typing import Any

import pytest
from playbook.branches import (
    SETTLING,
    X1,
    X2,
    commit,
    committed,
    end,
    ended,
    in_branch,
    prepare,
    prepared,
    refused,
    rollback,
    rolled_back,
    select,
    settled_in_branch,
    start,
    started,
    taken,
)
from playbook.dialogue import Carried, Client, Playbook, carrying

from flintmq.broker.transactions.xid import Xid
from flintmq.wire import amqp, methods
from flintmq.wire.methods import BasicAck, BasicNack, BasicPublish, Method


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


def test_published_messages_show_at_commit(worker: Client, witness: Client) -> None:
    in_branch(worker, b"a", b"b")
    assert witness.gets_all("q") == []
    worker >> prepare()
    worker << prepared()
    assert witness.gets_all("q") == []
    worker >> commit()
    worker << committed()
    assert witness.gets_all("q") == [b"a", b"b"]
    worker >> commit()
    assert "no branch with xid 1:676c6f62616c:6f6e65" in refused(worker, amqp.NOT_FOUND)


def test_one_phase(worker: Client, witness: Client) -> None:
    in_branch(worker, b"a")
    worker >> commit(one_phase=True)
    worker << committed()
    assert witness.gets_all("q") == [b"a"]


def test_rollback_of_either_phase_leaves_nothing(worker: Client, witness: Client) -> None:
    in_branch(worker, b"a")
    worker >> rollback()
    worker << rolled_back()
    in_branch(worker, b"b")
    worker >> prepare()
    worker << prepared()
    worker >> rollback()
    worker << rolled_back()
    assert witness.gets_all("q") == []
    worker >> rollback()
    refused(worker, amqp.NOT_FOUND)


def test_outside_of_a_branch_all_is_done_at_once(worker: Client, witness: Client) -> None:
    worker.publishes("q", b"at once")
    tag, body, _ = taken(worker)
    assert body == b"at once"
    worker >> BasicAck(delivery_tag=tag)
    assert witness.gets_all("q") == []
    worker.publishes("q", b"back")
    tag, _, _ = taken(worker)
    worker >> BasicNack(delivery_tag=tag, requeue=True)
    assert witness.gets_all("q") == [b"back"]
    worker.publishes("q", b"away")
    tag, _, _ = taken(worker)
    worker >> BasicNack(delivery_tag=tag, requeue=False)
    assert witness.gets_all("q") == []


def test_another_channel_coordinates(playbook: Playbook, worker: Client, witness: Client) -> None:
    in_branch(worker, b"a")
    other = playbook.client()
    other >> prepare()
    other << prepared()
    other >> commit()
    other << committed()
    assert witness.gets_all("q") == [b"a"]


@pytest.mark.parametrize("way", SETTLING)
def test_what_is_settled_is_so_at_commit(worker: Client, witness: Client, way: str) -> None:
    settled_in_branch(worker, SETTLING[way])
    worker >> prepare()
    worker << prepared()
    assert worker.playbook.broker.virtual_hosts["/"].queues["q"].unacked == 1
    worker >> commit()
    worker << committed()
    assert worker.playbook.broker.virtual_hosts["/"].queues["q"].unacked == 0
    assert witness.gets_all("q") == ([b"m"] if way == "requeue" else [])


@pytest.mark.parametrize("way", SETTLING)
def test_what_a_prepared_branch_settled_is_back_after_rollback(
    worker: Client, witness: Client, way: str
) -> None:
    settled_in_branch(worker, SETTLING[way])
    worker >> prepare()
    worker << prepared()
    worker >> methods.ChannelClose()
    worker << methods.ChannelCloseOk()
    assert witness.gets_all("q") == [], "locked, though its channel is gone"
    witness >> rollback()
    witness << rolled_back()
    assert taken(witness)[1:] == (b"m", True)


def test_a_rollback_before_prepare_leaves_deliveries_unsettled(worker: Client) -> None:
    settled_in_branch(worker, SETTLING["ack"])
    worker >> BasicAck(delivery_tag=1)
    assert "unknown delivery tag" in refused(worker, amqp.PRECONDITION_FAILED), "it belongs to the branch"
    worker >> methods.ChannelOpen()
    worker.hears(methods.ChannelOpenOk)
    select(worker)
    settled = worker.playbook.broker.virtual_hosts["/"].queues["q"]
    tag, body, redelivered = taken(worker)
    assert (body, redelivered) == (b"m", True)
    worker >> start()
    worker << started()
    worker >> BasicAck(delivery_tag=tag)
    worker >> end()
    worker << ended()
    worker >> rollback()
    worker << rolled_back()
    worker >> BasicAck(delivery_tag=tag)
    assert (settled.message_count(), settled.unacked) == (0, 0)


def test_prepare_gives_the_consumer_credit(worker: Client) -> None:
    worker.publishes("q", b"1", b"2")
    worker >> methods.BasicQos(prefetch_count=1, global_=True)
    worker << methods.BasicQosOk()
    worker.consumes("q")
    [(_, tag, _)] = worker.deliveries()
    worker >> start()
    worker << started()
    worker >> BasicAck(delivery_tag=tag)
    worker >> end()
    worker << ended()
    worker.hears_nothing()
    worker >> prepare()
    worker << prepared()
    assert worker.bodies() == [b"2"]


def test_the_branch_dies_with_its_channel_unless_prepared(
    playbook: Playbook, worker: Client, witness: Client
) -> None:
    in_branch(worker, b"lost", xid=X1)
    in_branch(worker, b"kept", xid=X2)
    witness >> prepare(X2)
    witness << prepared()
    worker >> methods.ChannelClose()
    worker << methods.ChannelCloseOk()
    witness >> commit(X2)
    witness << committed()
    assert witness.gets_all("q") == [b"kept"]
    witness >> prepare(X1)
    refused(witness, amqp.NOT_FOUND)


def test_suspend_and_resume(worker: Client, witness: Client) -> None:
    worker >> start()
    worker << started()
    worker.publishes("q", b"in 1")
    worker >> end(suspend=True)
    worker << ended()
    worker.publishes("q", b"at once")
    in_branch(worker, b"other", xid=X2)
    worker >> start(resume=True)
    worker << started()
    worker.publishes("q", b"in 2")
    worker >> end()
    worker << ended()
    assert witness.gets_all("q") == [b"at once"]
    worker >> commit(one_phase=True)
    worker << committed()
    assert witness.gets_all("q") == [b"in 1", b"in 2"]


def test_a_suspended_branch_can_be_ended_and_not_prepared(worker: Client) -> None:
    worker >> start()
    worker << started()
    worker.publishes("q", b"a")
    worker >> end(suspend=True)
    worker << ended()
    worker >> end()
    worker << ended()
    worker >> prepare()
    worker << prepared()


def test_two_channels_in_one_branch(playbook: Playbook, worker: Client, witness: Client) -> None:
    second = playbook.client()
    select(second)
    worker >> start()
    worker << started()
    worker.publishes("q", b"first")
    second >> start(join=True)
    second << started()
    second.publishes("q", b"second")
    worker >> end()
    worker << ended()
    second >> end()
    second << ended()
    worker >> commit(one_phase=True)
    worker << committed()
    assert witness.gets_all("q") == [b"first", b"second"]


def test_one_of_two_channels_is_lost(playbook: Playbook, worker: Client, witness: Client) -> None:
    second = playbook.client()
    select(second)
    worker >> start()
    worker << started()
    worker.publishes("q", b"first")
    second >> start(join=True)
    second << started()
    worker >> methods.ChannelClose()
    worker << methods.ChannelCloseOk()
    second.publishes("q", b"second")
    second >> end()
    second << ended(amqp.XA_RBROLLBACK)
    second >> prepare()
    second << prepared(amqp.XA_RBROLLBACK)
    assert witness.gets_all("q") == []
    second >> rollback()
    refused(second, amqp.NOT_FOUND)


def test_work_that_failed_can_only_be_rolled_back(worker: Client, witness: Client) -> None:
    worker >> start()
    worker << started()
    worker.publishes("q", b"a")
    worker >> end(fail=True)
    worker << ended(amqp.XA_RBROLLBACK)
    worker >> start(join=True)
    worker << started(amqp.XA_RBROLLBACK)
    worker >> commit(one_phase=True)
    worker << committed(amqp.XA_RBROLLBACK)
    assert witness.gets_all("q") == []


def test_a_branch_in_which_nothing_was_done(worker: Client) -> None:
    in_branch(worker)
    worker >> prepare()
    worker << prepared(amqp.XA_RDONLY)
    worker >> commit()
    refused(worker, amqp.NOT_FOUND)


# Doing it wrong

WRONG: dict[str, tuple[list[Method], Method, int, str]] = {
    "start twice": ([start()], start(X2), 406, "works in branch 1:676c6f62616c:6f6e65 already"),
    "start what is there": ([start(), end()], start(), 406, "is there already"),
    "join the unknown": ([], start(join=True), 404, "no branch"),
    "join what is prepared": ([start(), "work", end(), prepare()], start(join=True), 406, "is prepared"),  # type: ignore[list-item]
    "join what is suspended": ([start(), end(suspend=True)], start(join=True), 406, "resume it"),
    "resume the unknown": ([], start(resume=True), 404, "no branch"),
    "resume what goes on": ([start(), end()], start(resume=True), 406, "has not suspended"),
    "end the unknown": ([], end(), 404, "no branch"),
    "end twice": ([start(), end()], end(), 406, "does not work in branch"),
    "prepare while busy": ([start()], prepare(), 406, "end it there first"),
    "prepare while suspended": ([start(), end(suspend=True)], prepare(), 406, "end it there first"),
    "prepare twice": ([start(), "work", end(), prepare()], prepare(), 406, "is prepared already"),  # type: ignore[list-item]
    "prepare the unknown": ([], prepare(), 404, "no branch"),
    "commit while busy": ([start()], commit(one_phase=True), 406, "end it there first"),
    "commit unprepared": ([start(), end()], commit(), 406, "is not prepared"),
    "one phase after two": (
        [start(), "work", end(), prepare()],  # type: ignore[list-item]
        commit(one_phase=True),
        406,
        "commit it without one-phase",
    ),
    "rollback while busy": ([start()], rollback(), 406, "end it there first"),
    "forget what goes on": ([start()], methods.DtxCoordinationForget(xid=X1), 406, "nothing to forget"),
    "forget the unknown": ([], methods.DtxCoordinationForget(xid=X1), 404, "no branch"),
    "timeout of the unknown": ([], methods.DtxCoordinationGetTimeout(xid=X1), 404, "no branch"),
    "timeout of the prepared": (
        [start(), "work", end(), prepare()],  # type: ignore[list-item]
        methods.DtxCoordinationSetTimeout(xid=X1, timeout=1),
        406,
        "has no timeout",
    ),
    "an empty xid": ([], start(b""), 406, "at least 7 octets"),
    "an xid too short": ([], start(X1[:-1]), 406, "the lengths in an xid"),
    "an xid without global id": ([], start(bytes(6)), 406, "global id of an xid has 1 to 64"),
    "a long global id": ([], start(Xid(1, b"g" * 65, b"").octets()), 406, "global id of an xid has 1 to 64"),
    "a long branch id": ([], start(Xid(1, b"g", b"b" * 65).octets()), 406, "at most 64 octets"),
    "no xid at all": ([], start(b"\xff" * 4 + b"\x01\x00g"), 406, "format of an xid"),
    "tx on a dtx channel": ([], methods.TxSelect(), 406, "cannot switch from dtx to tx mode"),
    "tx.commit on a dtx channel": ([], methods.TxCommit(), 406, "channel is not transactional"),
    "confirms on a dtx channel": ([], methods.ConfirmSelect(), 406, "cannot switch"),
}


@pytest.mark.parametrize(("before", "wrong", "code", "text"), WRONG.values(), ids=WRONG)
def test_the_wrong_thing(
    worker: Client, witness: Client, before: list[Any], wrong: Method, code: int, text: str
) -> None:
    for step in before:
        if step == "work":
            worker.publishes("q", b"a")
        else:
            worker >> step
            worker.next(1)
    worker >> wrong
    assert text in refused(worker, code)
    assert witness.gets_all("q") == []


@pytest.mark.parametrize("wrong", [start(join=True, resume=True), end(fail=True, suspend=True)])
def test_flags_that_exclude_each_other(worker: Client, wrong: Method) -> None:
    worker >> wrong
    closed = worker.hears(methods.ConnectionClose)
    assert (closed.reply_code, closed.class_id) == (amqp.COMMAND_INVALID, amqp.CLASS_DTX_DEMARCATION)


@pytest.mark.parametrize("wrong", [start(), end(), methods.DtxDemarcationStart(xid=X1, join=True)])
def test_demarcation_needs_a_select(playbook: Playbook, client: Client, wrong: Method) -> None:
    client >> wrong
    assert "select comes first" in refused(client, amqp.PRECONDITION_FAILED)


@pytest.mark.parametrize(
    ("mode", "answer"),
    [
        (methods.TxSelect(), methods.TxSelectOk()),
        (methods.ConfirmSelect(), methods.ConfirmSelectOk()),
    ],
)
def test_other_modes_exclude_dtx(client: Client, mode: Method, answer: Method) -> None:
    client >> mode
    client << answer
    client >> methods.DtxDemarcationSelect()
    assert "to dtx mode" in refused(client, amqp.PRECONDITION_FAILED)


# The exchange at commit


def test_routes_are_those_at_commit(worker: Client, witness: Client) -> None:
    worker >> methods.ExchangeDeclare(exchange="x", type="direct")
    worker << methods.ExchangeDeclareOk()
    worker >> start()
    worker << started()
    worker.publishes("k", b"a", exchange="x")
    worker >> end()
    worker << ended()
    worker >> prepare()
    worker << prepared()
    worker.binds("q", "x", "k")
    worker >> commit()
    worker << committed()
    assert witness.gets_all("q") == [b"a"]


def test_what_leads_nowhere_is_returned_at_commit(playbook: Playbook, worker: Client) -> None:
    worker >> start()
    worker << started()
    worker >> carrying(BasicPublish(routing_key="nowhere", mandatory=True), b"a")
    worker >> end()
    worker << ended()
    worker >> prepare()
    worker << prepared()
    other = playbook.client()
    other >> commit()
    other << committed()
    returned = worker.next(1)
    assert isinstance(returned, Carried)
    assert isinstance(returned.method, methods.BasicReturn)
    assert returned.method.reply_code == amqp.NO_ROUTE


def test_who_is_gone_gets_nothing_back(playbook: Playbook, worker: Client, witness: Client) -> None:
    worker >> start()
    worker << started()
    worker >> carrying(BasicPublish(routing_key="nowhere", mandatory=True), b"a")
    worker >> carrying(BasicPublish(routing_key="q", immediate=True), b"b")
    worker.publishes("q", b"c")
    worker >> end()
    worker << ended()
    witness >> prepare()
    witness << prepared()
    worker >> methods.ChannelClose()
    worker << methods.ChannelCloseOk()
    witness >> commit()
    witness << committed()
    assert witness.gets_all("q") == [b"c"]


def test_the_exchange_is_gone_at_commit(worker: Client, witness: Client) -> None:
    worker >> methods.ExchangeDeclare(exchange="x", type="fanout")
    worker << methods.ExchangeDeclareOk()
    worker.binds("q", "x")
    worker >> start()
    worker << started()
    worker.publishes("", b"a", exchange="x")
    worker.publishes("q", b"b")
    worker >> methods.ExchangeDelete(exchange="x")
    worker << methods.ExchangeDeleteOk()
    worker >> end()
    worker << ended()
    worker >> commit(one_phase=True)
    worker << committed()
    assert witness.gets_all("q") == [b"b"]


def test_no_local_holds_for_what_a_branch_brings(worker: Client, witness: Client) -> None:
    worker.consumes("q", no_local=True)
    in_branch(worker, b"own")
    worker >> commit(one_phase=True)
    worker << committed()
    worker.hears_nothing()
    assert witness.gets_all("q") == [b"own"]


def test_a_queue_that_is_deleted_while_locked(worker: Client, witness: Client) -> None:
    settled_in_branch(worker, SETTLING["ack"])
    worker >> prepare()
    worker << prepared()
    witness >> methods.QueueDelete(queue="q")
    witness.hears(methods.QueueDeleteOk)
    worker >> rollback()
    worker << rolled_back()
    witness.declares("q")
    assert witness.gets_all("q") == []
