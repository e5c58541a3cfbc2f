"""A prepared branch outlives its channel and its broker; one that is not does not; commits are whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from peer import Peer

from flintmq.broker.transactions.xid import Xid
from flintmq.wire import amqp, methods
from flintmq.wire.methods import Method

XID = Xid(3, b"transfer", b"1")
X = XID.octets()
OK = amqp.XA_OK

Drain = Callable[[Peer, str], list[tuple[bytes, bool]]]


def call(peer: Peer, method: Method, code: int = OK, channel: int = 2) -> None:
    answer = peer.call(channel, method)
    assert answer.flags == code, answer


def dtx_channel(peer: Peer, channel: int = 2) -> None:
    peer.open(channel)
    peer.call(channel, methods.DtxDemarcationSelect())


def work(peer: Peer, bodies: list[bytes], xid: bytes = X, queue: str = "to") -> None:
    """Takes the first message of "from", publishes to "to", in one branch on channel 2."""
    dtx_channel(peer)
    call(peer, methods.DtxDemarcationStart(xid=xid))
    got = peer.get(2, "from")
    assert got is not None
    peer.send(2, methods.BasicAck(delivery_tag=got[0].delivery_tag))
    for body in bodies:
        peer.publish(2, body, key=queue, delivery_mode=2)
    call(peer, methods.DtxDemarcationEnd(xid=xid))


def prepare(xid: bytes = X) -> Method:
    return methods.DtxCoordinationPrepare(xid=xid)


def commit(xid: bytes = X, one_phase: bool = False) -> Method:
    return methods.DtxCoordinationCommit(xid=xid, one_phase=one_phase)


def rollback(xid: bytes = X) -> Method:
    return methods.DtxCoordinationRollback(xid=xid)


def in_doubt(peer: Peer) -> dict[Any, Any]:
    found = peer.call(1, methods.DtxCoordinationRecover(startscan=True)).xids
    return dict(zip(found["xids"], found["states"], strict=True))


@pytest.fixture
def wired(start: Any, publish: Any) -> Any:
    """A broker with two durable queues, and "first" and "second" in "from"."""
    life = start()
    with life.connect() as peer:
        for name in ("from", "to"):
            peer.call(1, methods.QueueDeclare(queue=name, durable=True))
        publish(peer, "from", [b"first", b"second"])
        peer.close()
    return life


@pytest.mark.parametrize("outcome", ["commit", "rollback"])
def test_a_prepared_branch_outlives_kill_9(wired: Any, start: Any, drain: Drain, outcome: str) -> None:
    peer = wired.connect()
    work(peer, [b"one", b"two"])
    call(peer, prepare())
    wired.kill()
    life = start()
    with life.connect() as peer:
        assert in_doubt(peer) == {X: "prepared"}
        assert drain(peer, "to") == []
        assert drain(peer, "from") == [(b"second", False)], "the other one is locked"
        peer.call(1, methods.QueueDeclare(queue="barrier", durable=True))
    life.kill()
    with start().connect() as peer:
        assert in_doubt(peer) == {X: "prepared"}, "and again"
        if outcome == "commit":
            call(peer, commit(), channel=1)
            assert drain(peer, "to") == [(b"one", False), (b"two", False)]
            assert drain(peer, "from") == []
        else:
            call(peer, rollback(), channel=1)
            assert drain(peer, "to") == []
            assert drain(peer, "from") == [(b"first", True)]


def test_a_branch_that_is_not_prepared_dies(wired: Any, start: Any, drain: Drain) -> None:
    peer = wired.connect()
    work(peer, [b"one"])
    # Answered when all that came before it is on disk, the branch's message too.
    peer.call(1, methods.QueueDeclare(queue="barrier", durable=True))
    wired.kill()
    with start().connect() as peer:
        assert in_doubt(peer) == {}
        assert drain(peer, "to") == []
        assert drain(peer, "from") == [(b"first", True), (b"second", False)]


def test_a_lost_connection_leaves_the_prepared_branch(wired: Any, drain: Drain) -> None:
    peer = wired.connect()
    work(peer, [b"one"])
    call(peer, prepare())
    peer.abort()
    with wired.connect() as peer:
        assert drain(peer, "from") == [(b"second", False)]
        call(peer, rollback(), channel=1)
        assert drain(peer, "from") == [(b"first", True)]


STEPS = ("work", "prepare sent", "prepare-ok", "commit sent", "commit-ok")


@pytest.mark.parametrize("one_phase", [False, True], ids=["two phases", "one phase"])
@pytest.mark.parametrize("killed_after", STEPS)
def test_killed_between_two_steps(
    wired: Any, start: Any, drain: Drain, killed_after: str, one_phase: bool
) -> None:
    """Whatever was answered holds; whatever was not is all there or not there at all."""
    bodies = [b"%d" % number for number in range(20)]
    peer = wired.connect()
    work(peer, bodies)
    at = STEPS.index(killed_after)
    if not one_phase:
        if at >= 1:
            peer.send(2, prepare())
        if at >= 2:
            peer.expect(2, methods.DtxCoordinationPrepareOk)
    if at >= 3:
        peer.send(2, commit(one_phase=one_phase))
    if at >= 4:
        peer.expect(2, methods.DtxCoordinationCommitOk)
    wired.kill()
    with start().connect() as peer:
        is_prepared = in_doubt(peer) == {X: "prepared"}
        there = [body for body, _ in drain(peer, "to")]
        left = [body for body, _ in drain(peer, "from")]
        assert there in ([], bodies)
        if there:
            assert left == [b"second"]
            assert not is_prepared
        else:
            assert left == ([b"second"] if is_prepared else [b"first", b"second"])
        assert not (one_phase and is_prepared)
        if killed_after == "prepare-ok" and not one_phase:
            assert is_prepared
        if killed_after == "commit-ok":
            assert there
        if is_prepared:
            call(peer, commit(), channel=1)
            assert [body for body, _ in drain(peer, "to")] == bodies


def test_transient_messages_of_a_prepared_branch(wired: Any, start: Any, drain: Drain) -> None:
    peer = wired.connect()
    dtx_channel(peer)
    call(peer, methods.DtxDemarcationStart(xid=X))
    peer.publish(2, b"transient", key="to")
    peer.publish(2, b"nowhere", key="nothing", mandatory=True)
    peer.publish(2, b"nobody", key="to", immediate=True)
    call(peer, methods.DtxDemarcationEnd(xid=X))
    call(peer, prepare())
    wired.kill()
    with start().connect() as peer:
        call(peer, commit(), channel=1)
        assert drain(peer, "to") == [(b"transient", False)]
        assert peer.is_quiet(1)


def test_large_messages(wired: Any, start: Any) -> None:
    large = b"L" * 5_000_000
    peer = wired.connect()
    work(peer, [b"small", large])
    call(peer, prepare())
    wired.kill()
    life = start()
    with life.connect() as peer:
        call(peer, commit(), channel=1)
    life.kill()
    with start().connect() as peer:
        for expected in (b"small", large):
            got = peer.get(1, "to", no_ack=True)
            assert got is not None
            assert got[1].body == expected
        assert peer.get(1, "to") is None


def test_a_large_message_that_is_rolled_back_leaves_no_file(wired: Any, start: Any, data: Any) -> None:
    peer = wired.connect()
    work(peer, [b"L" * 5_000_000])
    call(peer, prepare())
    assert list(data.glob("*.spool"))
    call(peer, rollback())
    peer.close()
    wired.stop()
    assert not list(data.glob("*.spool"))


def test_a_commit_larger_than_a_group(start: Any, drain: Drain) -> None:
    """Decided first, then handed over in portions; a crash on the way costs nothing."""
    bodies = [b"%06d" % number + b"." * 1_000_000 for number in range(60)]
    life = start()
    peer = life.connect()
    peer.call(1, methods.QueueDeclare(queue="to", durable=True))
    dtx_channel(peer)
    call(peer, methods.DtxDemarcationStart(xid=X))
    for body in bodies:
        peer.publish(2, body, key="to", delivery_mode=2)
    call(peer, methods.DtxDemarcationEnd(xid=X))
    call(peer, prepare())
    call(peer, commit())
    life.kill()
    with start().connect() as peer:
        peer.call(1, methods.BasicConsume(queue="to", consumer_tag="c", no_ack=True))
        for body in bodies:
            _, content = peer.delivery(1)
            assert content.body == body
        assert in_doubt(peer) == {}
        peer.send(1, commit())
        peer.expect_channel_close(1, amqp.NOT_FOUND)


def test_what_a_branch_has_locked_takes_no_room_of_its_queue_after_a_restart(
    start: Any, publish: Any, drain: Drain
) -> None:
    life = start()
    with life.connect() as peer:
        limit = {"x-max-length-bytes": 1000}
        peer.call(1, methods.QueueDeclare(queue="from", durable=True, arguments=limit))
        publish(peer, "from", [b"a" * 400, b"b" * 400])
        work(peer, [])
        call(peer, prepare())
        life.kill()
    with start().connect() as peer:
        publish(peer, "from", [b"c" * 400])
        assert [body[:1] for body, _ in drain(peer, "from")] == [b"b", b"c"]


def listen(peer: Peer) -> None:
    peer.call(1, methods.QueueDeclare(queue="replies", exclusive=True))
    peer.call(1, methods.BasicConsume(queue="replies", consumer_tag="r", no_ack=True))


def ask(peer: Peer, name: str, **arguments: Any) -> Any:
    peer.publish(1, exchange="amq.system", key=name, headers=arguments, reply_to="replies")
    return peer.delivery(1)[1].properties.headers


def test_coordination_cannot_be_asked_inside_a_transaction(wired: Any) -> None:
    with wired.connect() as peer:
        listen(peer)
        peer.call(1, methods.TxSelect())
        peer.publish(1, exchange="amq.system", key="dtx.commit", headers={"xids": []}, reply_to="replies")
        peer.call(1, methods.TxCommit())
        answer = peer.delivery(1)[1].properties.headers
        assert "from inside a transaction" in answer["error-text"]


def test_many_branches_are_committed_whole(wired: Any, start: Any, drain: Drain) -> None:
    """Killed as soon as the request is sent: all of them or none."""
    xids = [Xid(5, b"batch", b"%d" % number) for number in range(10)]
    peer = wired.connect()
    listen(peer)
    dtx_channel(peer)
    for number, each in enumerate(xids):
        call(peer, methods.DtxDemarcationStart(xid=each.octets()))
        peer.publish(2, b"%d" % number, key="to", delivery_mode=2)
        call(peer, methods.DtxDemarcationEnd(xid=each.octets()))
        call(peer, prepare(each.octets()))
    arguments = {"xids": [str(each) for each in xids], "marker": "m", "marker-number": 3}
    peer.publish(1, exchange="amq.system", key="dtx.commit", headers=arguments, reply_to="replies")
    wired.kill()
    life = start()
    with life.connect() as peer:
        left = len(in_doubt(peer))
        assert left in (0, 10)
        listen(peer)
        done = ask(peer, "dtx.commit", **arguments)
        assert done["already"] == (left == 0)
        assert ask(peer, "dtx.commit", **arguments)["already"]
        assert ask(peer, "dtx.marker", marker="m")["marker-number"] == 3
    life.kill()
    with start().connect() as peer:
        assert [body for body, _ in drain(peer, "to")] == [b"%d" % number for number in range(10)]


def test_markers_and_heuristic_outcomes_are_kept(wired: Any, start: Any) -> None:
    other = Xid(3, b"transfer", b"2")
    peer = wired.connect()
    listen(peer)
    work(peer, [b"one"])
    call(peer, prepare())
    call(peer, methods.DtxDemarcationStart(xid=other.octets()))
    peer.publish(2, b"two", key="to", delivery_mode=2)
    call(peer, methods.DtxDemarcationEnd(xid=other.octets()))
    call(peer, prepare(other.octets()))
    done = ask(peer, "dtx.commit", xids=[str(XID)], marker="query", **{"marker-number": 12})
    assert done["committed"] == 1
    assert ask(peer, "dtx.rollback", xids=[str(other)], heuristic=True)["rolled-back"] == 1
    wired.kill()
    life = start()
    with life.connect() as peer:
        listen(peer)
        told = ask(peer, "dtx.marker", marker="query")
        assert (told["known"], told["marker-number"]) == (True, 12)
        assert in_doubt(peer) == {other.octets(): "heuristic-rollback"}
        call(peer, commit(other.octets()), amqp.XA_HEURRB, channel=1)
        peer.call(1, methods.DtxCoordinationForget(xid=other.octets()))
    life.kill()
    with start().connect() as peer:
        assert in_doubt(peer) == {}


def test_the_queue_of_a_locked_message_is_deleted(wired: Any, start: Any, drain: Drain) -> None:
    peer = wired.connect()
    work(peer, [b"one"])
    call(peer, prepare())
    peer.call(1, methods.QueueDelete(queue="from"))
    wired.kill()
    with start().connect() as peer:
        call(peer, rollback(), channel=1)
        peer.call(1, methods.QueueDeclare(queue="from", durable=True))
        assert drain(peer, "from") == []
