"""Distributed transactions, without a disk: demarcation, both phases, and every way to do it wrong."""

from __future__ import annotations

from typing import Any

import pytest
from playbook.dialogue import Carried, Client, Playbook, carrying

from flintmq.broker.xid import Xid
from flintmq.clock import Clock
from flintmq.config import parse
from flintmq.wire import amqp, methods
from flintmq.wire.methods import BasicAck, BasicGet, BasicNack, BasicPublish, Method

X1 = Xid(1, b"global", b"one").octets()
X2 = Xid(1, b"global", b"two").octets()
OK = amqp.XA_OK


def start(xid: bytes = X1, **flags: bool) -> Method:
    return methods.DtxDemarcationStart(xid=xid, **flags)


def end(xid: bytes = X1, **flags: bool) -> Method:
    return methods.DtxDemarcationEnd(xid=xid, **flags)


def prepare(xid: bytes = X1) -> Method:
    return methods.DtxCoordinationPrepare(xid=xid)


def commit(xid: bytes = X1, one_phase: bool = False) -> Method:
    return methods.DtxCoordinationCommit(xid=xid, one_phase=one_phase)


def rollback(xid: bytes = X1) -> Method:
    return methods.DtxCoordinationRollback(xid=xid)


def started(code: int = OK) -> Method:
    return methods.DtxDemarcationStartOk(flags=code)


def ended(code: int = OK) -> Method:
    return methods.DtxDemarcationEndOk(flags=code)


def prepared(code: int = OK) -> Method:
    return methods.DtxCoordinationPrepareOk(flags=code)


def committed(code: int = OK) -> Method:
    return methods.DtxCoordinationCommitOk(flags=code)


def rolled_back(code: int = OK) -> Method:
    return methods.DtxCoordinationRollbackOk(flags=code)


def select(client: Client, number: int = 1) -> None:
    client[number] >> methods.DtxDemarcationSelect()
    client[number] << methods.DtxDemarcationSelectOk()


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


def refused(client: Client, code: int, number: int = 1) -> str:
    closed = client.hears(methods.ChannelClose, number)
    assert closed.reply_code == code, closed
    client[number] >> methods.ChannelCloseOk()
    return closed.reply_text


def taken(client: Client, queue: str = "q") -> tuple[int, bytes, bool]:
    """The next message, not acked: its tag, its body, whether it was handed out before."""
    client >> BasicGet(queue=queue)
    found = client.next(1)
    assert isinstance(found, Carried), found
    assert isinstance(found.method, methods.BasicGetOk)
    return found.method.delivery_tag, found.body, found.method.redelivered


def in_branch(client: Client, *bodies: bytes, xid: bytes = X1) -> None:
    client >> start(xid)
    client << started()
    client.publishes("q", *bodies)
    client >> end(xid)
    client << ended()


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


def settled_in_branch(worker: Client, settle: Any) -> None:
    worker.publishes("q", b"m")
    tag, _, _ = taken(worker)
    worker >> start()
    worker << started()
    worker >> settle(tag)
    worker >> end()
    worker << ended()


SETTLING = {
    "ack": lambda tag: BasicAck(delivery_tag=tag),
    "reject": lambda tag: methods.BasicReject(delivery_tag=tag, requeue=False),
    "requeue": lambda tag: methods.BasicReject(delivery_tag=tag, requeue=True),
}


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
    worker << methods.ChannelOpenOk()
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


# Recovery and forgetting


def recovered(client: Client, anew: bool = True, last: bool = False) -> dict[bytes, str]:
    client >> methods.DtxCoordinationRecover(startscan=anew, endscan=last)
    found = client.hears(methods.DtxCoordinationRecoverOk).xids
    xids, states = found["xids"], found["states"]
    assert isinstance(xids, list)
    assert isinstance(states, list)
    return dict(zip(xids, states, strict=True))  # type: ignore[arg-type]


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

SETTINGS = """
[dtx]
branches_max = 2
operations_per_branch_max = 3
branch_bytes_max = 100
markers_max = 2
"""


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

USERS = """
[users.ann]
password = "ann"
permissions."/" = {configure = ".*", write = ".*", read = ".*"}
[users.bob]
password = "bob"
permissions."/" = {configure = ".*", write = ".*", read = ".*"}
[users.root]
password = "root"
tags = ["administrator"]
permissions."/" = {configure = ".*", write = ".*", read = ".*"}
"""


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
    assert "belongs to user 'ann'" in refused(bob, amqp.ACCESS_REFUSED)
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
