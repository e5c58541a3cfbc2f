"""Distributed transactions: the dtx class, and the two XA classes on 0-9 and on 0-9-1."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import count

import pytest
from broker_process import BrokerProcess
from conformance.rule import rule
from peer import Peer

from flintmq.broker.transactions.xid import Xid
from flintmq.wire import amqp, methods
from flintmq.wire.methods import Method

_serial = count(1)
# The rules speak of 0-9; 0-9-1 has the same classes here, and 0-8 has them not.
XA_VERSIONS = ("0-9", "0-9-1")


@pytest.fixture(params=XA_VERSIONS)
def spoken(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def worker(broker: BrokerProcess, spoken: str, name: str) -> Iterator[Peer]:
    """Channel 1 is in dtx mode, and there is a queue of the test's name."""
    with Peer.connect(broker.port, spoken) as peer:
        peer.open(1)
        peer.call(1, methods.QueueDeclare(queue=name))
        peer.call(1, methods.DtxDemarcationSelect())
        yield peer


@pytest.fixture
def other(broker: BrokerProcess, spoken: str) -> Iterator[Peer]:
    with Peer.connect(broker.port, spoken) as peer:
        peer.open(1)
        yield peer


@pytest.fixture
def xid() -> bytes:
    return Xid(9, b"conformance", b"%d" % next(_serial)).octets()


def flags(peer: Peer, method: Method) -> int:
    answer: int = peer.call(1, method).flags
    return answer


def branch(peer: Peer, xid: bytes, queue: str, body: bytes = b"x") -> None:
    assert flags(peer, methods.DtxDemarcationStart(xid=xid)) == amqp.XA_OK
    peer.publish(1, body, key=queue)
    assert flags(peer, methods.DtxDemarcationEnd(xid=xid)) == amqp.XA_OK


def refused(peer: Peer, method: Method, code: int) -> None:
    peer.send(1, method)
    if code == amqp.COMMAND_INVALID:
        peer.expect_connection_close(code)
    else:
        peer.expect_channel_close(1, code)


@rule("0-9/dtx-demarcation.start/selected")
def test_select_comes_first(other: Peer, xid: bytes) -> None:
    refused(other, methods.DtxDemarcationStart(xid=xid), amqp.PRECONDITION_FAILED)


@rule("0-9/dtx-demarcation.start/known")
def test_a_branch_is_started_once(worker: Peer, xid: bytes, name: str) -> None:
    branch(worker, xid, name)
    refused(worker, methods.DtxDemarcationStart(xid=xid), amqp.PRECONDITION_FAILED)


@rule("0-9/dtx-demarcation.start/join-and-resume")
def test_join_and_resume(worker: Peer, xid: bytes) -> None:
    refused(worker, methods.DtxDemarcationStart(xid=xid, join=True, resume=True), amqp.COMMAND_INVALID)


@rule("0-9/dtx-demarcation.end/fail-and-suspend")
def test_fail_and_suspend(worker: Peer, xid: bytes) -> None:
    flags(worker, methods.DtxDemarcationStart(xid=xid))
    refused(worker, methods.DtxDemarcationEnd(xid=xid, fail=True, suspend=True), amqp.COMMAND_INVALID)


@rule("0-9/dtx-demarcation.start/join")
def test_two_channels_in_a_branch(worker: Peer, other: Peer, xid: bytes, name: str) -> None:
    branch(worker, xid, name, b"one")
    other.call(1, methods.DtxDemarcationSelect())
    assert flags(other, methods.DtxDemarcationStart(xid=xid, join=True)) == amqp.XA_OK
    other.publish(1, b"two", key=name)
    flags(other, methods.DtxDemarcationEnd(xid=xid))
    flags(worker, methods.DtxCoordinationCommit(xid=xid, one_phase=True))
    assert worker.call(1, methods.QueueDeclare(queue=name, passive=True)).message_count == 2


@rule("0-9/dtx-demarcation.start/resume")
def test_resume_what_was_suspended(worker: Peer, other: Peer, xid: bytes) -> None:
    flags(worker, methods.DtxDemarcationStart(xid=xid))
    flags(worker, methods.DtxDemarcationEnd(xid=xid, suspend=True))
    other.call(1, methods.DtxDemarcationSelect())
    refused(other, methods.DtxDemarcationStart(xid=xid, resume=True), amqp.PRECONDITION_FAILED)
    assert flags(worker, methods.DtxDemarcationStart(xid=xid, resume=True)) == amqp.XA_OK


@rule("0-9/dtx-demarcation.end/associated")
def test_end_what_goes_on(worker: Peer, xid: bytes, name: str) -> None:
    branch(worker, xid, name)
    refused(worker, methods.DtxDemarcationEnd(xid=xid), amqp.PRECONDITION_FAILED)


@rule("0-9/dtx-demarcation.end/fail")
def test_work_that_failed(worker: Peer, xid: bytes, name: str) -> None:
    flags(worker, methods.DtxDemarcationStart(xid=xid))
    worker.publish(1, b"x", key=name)
    assert flags(worker, methods.DtxDemarcationEnd(xid=xid, fail=True)) == amqp.XA_RBROLLBACK
    assert flags(worker, methods.DtxCoordinationPrepare(xid=xid)) == amqp.XA_RBROLLBACK
    assert worker.get(1, name) is None


@rule("0-9/dtx-demarcation/association")
@pytest.mark.parametrize("outcome", ["commit", "rollback"])
def test_work_shows_at_commit(worker: Peer, other: Peer, xid: bytes, name: str, outcome: str) -> None:
    worker.publish(1, b"taken", key=name)
    got = worker.get(1, name)
    assert got is not None
    flags(worker, methods.DtxDemarcationStart(xid=xid))
    worker.send(1, methods.BasicAck(delivery_tag=got[0].delivery_tag))
    worker.publish(1, b"sent", key=name)
    flags(worker, methods.DtxDemarcationEnd(xid=xid))
    flags(worker, methods.DtxCoordinationPrepare(xid=xid))
    assert other.get(1, name) is None
    if outcome == "commit":
        flags(worker, methods.DtxCoordinationCommit(xid=xid))
    else:
        flags(worker, methods.DtxCoordinationRollback(xid=xid))
    found = other.get(1, name, no_ack=True)
    assert found is not None
    assert found[1].body == (b"sent" if outcome == "commit" else b"taken")
    assert found[0].redelivered == (outcome == "rollback")
    assert other.get(1, name) is None


@rule("0-9/dtx-coordination/unknown-xid")
@pytest.mark.parametrize(
    "asked",
    [
        methods.DtxCoordinationPrepare,
        methods.DtxCoordinationCommit,
        methods.DtxCoordinationRollback,
        methods.DtxCoordinationForget,
        methods.DtxCoordinationGetTimeout,
        methods.DtxCoordinationSetTimeout,
    ],
)
def test_a_branch_that_is_not_there(worker: Peer, xid: bytes, name: str, asked: type[Method]) -> None:
    branch(worker, xid, name)
    flags(worker, methods.DtxCoordinationCommit(xid=xid, one_phase=True))
    refused(worker, asked(xid=xid), amqp.NOT_FOUND)


@rule("0-9/dtx-coordination/disassociated")
@pytest.mark.parametrize(
    "asked",
    [
        methods.DtxCoordinationPrepare,
        methods.DtxCoordinationCommit,
        methods.DtxCoordinationRollback,
    ],
)
def test_a_branch_that_is_worked_in(worker: Peer, other: Peer, xid: bytes, asked: type[Method]) -> None:
    flags(worker, methods.DtxDemarcationStart(xid=xid))
    refused(other, asked(xid=xid), amqp.PRECONDITION_FAILED)


@rule("0-9/dtx-coordination.prepare/promise")
def test_the_connection_is_lost(worker: Peer, other: Peer, xid: bytes, name: str) -> None:
    branch(worker, xid, name)
    flags(worker, methods.DtxCoordinationPrepare(xid=xid))
    worker.close()
    assert flags(other, methods.DtxCoordinationCommit(xid=xid)) == amqp.XA_OK
    assert other.get(1, name) is not None


@rule("0-9/dtx-coordination.prepare/read-only")
def test_nothing_was_done(worker: Peer, xid: bytes) -> None:
    flags(worker, methods.DtxDemarcationStart(xid=xid))
    flags(worker, methods.DtxDemarcationEnd(xid=xid))
    assert flags(worker, methods.DtxCoordinationPrepare(xid=xid)) == amqp.XA_RDONLY
    refused(worker, methods.DtxCoordinationCommit(xid=xid), amqp.NOT_FOUND)


@rule("0-9/dtx-coordination.commit/one-phase")
@pytest.mark.parametrize("one_phase", [False, True])
def test_one_phase_or_two(worker: Peer, xid: bytes, name: str, one_phase: bool) -> None:
    branch(worker, xid, name)
    if one_phase:
        flags(worker, methods.DtxCoordinationPrepare(xid=xid))
    asked = methods.DtxCoordinationCommit(xid=xid, one_phase=one_phase)
    refused(worker, asked, amqp.PRECONDITION_FAILED)


@rule("0-9/dtx-coordination.recover/in-doubt")
def test_what_is_in_doubt_is_listed(worker: Peer, other: Peer, xid: bytes, name: str) -> None:
    def listed() -> list[object]:
        found: list[object] = []
        anew = True
        while xids := other.call(1, methods.DtxCoordinationRecover(startscan=anew)).xids["xids"]:
            found += xids
            anew = False
        return found

    branch(worker, xid, name)
    assert xid not in listed()
    flags(worker, methods.DtxCoordinationPrepare(xid=xid))
    assert xid in listed()
    flags(worker, methods.DtxCoordinationRollback(xid=xid))
    assert xid not in listed()


@rule("0-9/dtx-coordination.forget/heuristic")
def test_nothing_to_forget(worker: Peer, xid: bytes, name: str) -> None:
    branch(worker, xid, name)
    flags(worker, methods.DtxCoordinationPrepare(xid=xid))
    refused(worker, methods.DtxCoordinationForget(xid=xid), amqp.PRECONDITION_FAILED)


@rule("0-9/dtx-coordination.set-timeout/seconds", "0-9/dtx-coordination.get-timeout/last")
def test_a_branch_that_takes_too_long(worker: Peer, xid: bytes, name: str) -> None:
    flags(worker, methods.DtxDemarcationStart(xid=xid))
    worker.publish(1, b"x", key=name)
    worker.call(1, methods.DtxCoordinationSetTimeout(xid=xid, timeout=60))
    worker.call(1, methods.DtxCoordinationSetTimeout(xid=xid, timeout=1))
    assert worker.call(1, methods.DtxCoordinationGetTimeout(xid=xid)).timeout == 1
    deadline_s = time.monotonic() + 10
    while flags(worker, methods.DtxDemarcationEnd(xid=xid, suspend=True)) == amqp.XA_OK:
        assert time.monotonic() < deadline_s
        time.sleep(0.05)  # nothing is told when it runs out: it is asked for
        if flags(worker, methods.DtxDemarcationStart(xid=xid, resume=True)) != amqp.XA_OK:
            break
    flags(worker, methods.DtxDemarcationEnd(xid=xid))
    assert flags(worker, methods.DtxCoordinationRollback(xid=xid)) == amqp.XA_RBTIMEOUT
    assert worker.get(1, name) is None


@rule("0-9/dtx/start")
def test_the_dtx_class(connect: object, peer: Peer, version: str, broker: BrokerProcess, name: str) -> None:
    peer.call(1, methods.QueueDeclare(queue=name))
    peer.call(1, methods.DtxSelect())
    peer.call(1, methods.DtxStart(dtx_identifier=name))
    peer.publish(1, b"x", key=name)
    assert peer.call(1, methods.QueueDeclare(queue=name, passive=True)).message_count == 0
    with Peer.connect(broker.port, "0-9") as coordinator:
        coordinator.open(1)
        xid = Xid(0, name.encode(), b"").octets()
        assert flags(coordinator, methods.DtxCoordinationCommit(xid=xid, one_phase=True)) == amqp.XA_OK
    assert peer.call(1, methods.QueueDeclare(queue=name, passive=True)).message_count == 1
