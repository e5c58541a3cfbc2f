"""Rules on what becomes of deliveries: ack, reject, nack, recover; confirms and transactions."""

from __future__ import annotations

from typing import Any

import pytest
from conformance.conftest import Connect
from conformance.rule import rule
from peer import Peer

from flintmq.wire import amqp, methods
from flintmq.wire.methods import Method


def filled(peer: Peer, *bodies: bytes) -> str:
    """A new queue with these messages."""
    queue: str = peer.call(1, methods.QueueDeclare(exclusive=True)).queue
    for body in bodies:
        peer.publish(1, body, key=queue)
    return queue


def taken(peer: Peer, channel: int, queue: str) -> int:
    """Gets one message; its tag."""
    got = peer.get(channel, queue)
    assert got is not None
    return got[0].delivery_tag


def depth(peer: Peer, channel: int, queue: str) -> int:
    count: int = peer.call(channel, methods.QueueDeclare(queue=queue, passive=True)).message_count
    return count


@rule("0-9,0-9-1/delivery-tag/channel-local")
def test_a_delivery_tag_is_its_channels_own(peer: Peer) -> None:
    queue = filled(peer, b"one")
    peer.open(2)
    tag = taken(peer, 1, queue)
    peer.send(2, methods.BasicAck(delivery_tag=tag))
    peer.expect_channel_close(2, amqp.PRECONDITION_FAILED)
    # Nothing happened to the delivery: its own channel can still give it back.
    peer.send(1, methods.BasicReject(delivery_tag=tag, requeue=True))
    assert depth(peer, 1, queue) == 1


@rule("0-9,0-9-1/delivery-tag/non-zero")
def test_tags_begin_above_0_which_stands_for_all(peer: Peer) -> None:
    queue = filled(peer, b"one", b"two", b"three")
    peer.open(2)
    assert all(taken(peer, 2, queue) > 0 for _ in range(3))
    peer.send(2, methods.BasicAck(delivery_tag=0, multiple=True))
    peer.call(2, methods.ChannelClose(reply_code=200))
    assert depth(peer, 1, queue) == 0


@pytest.mark.parametrize("multiple", [False, True])
@pytest.mark.parametrize("transacted", [False, True])
@rule("0-9/basic.ack/multiple/01", "0-9-1/basic.ack/multiple/exists")
def test_a_tag_can_be_acked_once(peer: Peer, multiple: bool, transacted: bool) -> None:
    queue = filled(peer, b"one", b"two")
    if transacted:
        peer.call(1, methods.TxSelect())
    tag = taken(peer, 1, queue)
    peer.send(1, *[methods.BasicAck(delivery_tag=tag, multiple=multiple)] * 2)
    peer.expect_channel_close(1, amqp.PRECONDITION_FAILED)


@pytest.mark.parametrize("multiple", [False, True])
@pytest.mark.parametrize("transacted", [False, True])
@rule("0-9/basic.ack/multiple/01", "0-9-1/basic.ack/multiple/exists")
def test_a_tag_that_was_never_given_cannot_be_acked(peer: Peer, multiple: bool, transacted: bool) -> None:
    queue = filled(peer, b"one")
    peer.open(2)
    if transacted:
        peer.call(2, methods.TxSelect())
    tag = taken(peer, 2, queue)
    peer.send(2, methods.BasicAck(delivery_tag=tag + 1, multiple=multiple))
    peer.expect_channel_close(2, amqp.PRECONDITION_FAILED)
    assert depth(peer, 1, queue) == 1


@pytest.mark.parametrize("multiple", [False, True])
@rule("extensions/basic.nack/multiple/exists")
def test_a_tag_can_be_nacked_once(peer: Peer, multiple: bool) -> None:
    queue = filled(peer, b"one", b"two")
    tag = taken(peer, 1, queue)
    peer.send(1, *[methods.BasicNack(delivery_tag=tag, multiple=multiple, requeue=False)] * 2)
    peer.expect_channel_close(1, amqp.PRECONDITION_FAILED)
    peer.open(1)
    tag = taken(peer, 1, queue)
    peer.send(1, methods.BasicNack(delivery_tag=tag + 1, multiple=multiple, requeue=False))
    peer.expect_channel_close(1, amqp.PRECONDITION_FAILED)
    peer.open(1)
    assert depth(peer, 1, queue) == 1


def refuse(peer: Peer, kind: type[Any]) -> None:
    """Two consumers: what one refuses, the other gets. Alone, the one gets it again."""
    queue = filled(peer)
    peer.open(2)
    for channel in (1, 2):
        peer.call(channel, methods.BasicConsume(queue=queue))
    peer.publish(1, b"hot", key=queue)
    deliver, _ = peer.delivery(1)
    assert peer.is_quiet(2)
    peer.send(1, kind(delivery_tag=deliver.delivery_tag, requeue=True))
    deliver, content = peer.delivery(2)
    assert (content.body, deliver.redelivered) == (b"hot", True)
    assert peer.is_quiet(1)
    peer.call(1, methods.ChannelClose(reply_code=200))
    peer.send(2, kind(delivery_tag=deliver.delivery_tag, requeue=True))
    deliver, content = peer.delivery(2)
    assert (content.body, deliver.redelivered) == (b"hot", True)


@rule("0-9,0-9-1/basic.reject/requeue/01")
def test_what_a_consumer_rejects_is_for_the_next_in_turn(peer: Peer) -> None:
    refuse(peer, methods.BasicReject)


@rule("extensions/basic.nack/requeue/01")
def test_what_a_consumer_nacks_is_for_the_next_in_turn(peer: Peer) -> None:
    refuse(peer, methods.BasicNack)


def recover(peer: Peer, method: Method) -> None:
    """What is unacked comes again, with the flag set; what comes for the first time has it not."""
    queue = filled(peer, b"one", b"two")
    peer.call(1, methods.BasicConsume(queue=queue))
    assert [peer.delivery(1)[0].redelivered for _ in range(2)] == [False, False]
    peer.send(1, method)
    if method.REPLIES:
        # With requeue off the deliveries go out at once, before the answer.
        again = [] if method.requeue else [peer.delivery(1) for _ in range(2)]  # type: ignore[attr-defined]
        peer.expect(1, methods.BasicRecoverOk)
        again += [peer.delivery(1) for _ in range(2 - len(again))]
    else:
        again = [peer.delivery(1) for _ in range(2)]
    peer.publish(1, b"three", key=queue)
    again.append(peer.delivery(1))
    assert [(content.body, deliver.redelivered) for deliver, content in again] == [
        (b"one", True),
        (b"two", True),
        (b"three", False),
    ]


@pytest.mark.parametrize("requeue", [False, True])
@rule("0-9/basic.recover/01", "0-9-1/basic.recover-async/01")
def test_what_is_recovered_says_that_it_is_redelivered(peer: Peer, requeue: bool) -> None:
    recover(peer, methods.BasicRecoverAsync(requeue=requeue))


@pytest.mark.parametrize("requeue", [False, True])
@rule("0-9-1/basic.recover/01")
def test_what_is_recovered_with_an_answer_says_that_it_is_redelivered(peer: Peer, requeue: bool) -> None:
    recover(peer, methods.BasicRecover(requeue=requeue))


@rule("0-9/basic.recover/02")
def test_recover_is_allowed_on_a_transacted_channel(peer: Peer) -> None:
    queue = filled(peer, b"one")
    peer.call(1, methods.TxSelect())
    taken(peer, 1, queue)
    peer.send(1, methods.BasicRecoverAsync(requeue=True))
    got = peer.get(1, queue)
    assert got is not None
    assert got[0].redelivered


@rule("extensions/confirm/all-messages-acknowledged")
def test_every_message_is_confirmed_once(peer: Peer, name: str) -> None:
    count = 200
    queue = filled(peer, b"before select")
    peer.call(1, methods.ConfirmSelect())
    for number in range(count):
        # Some have no queue: those are confirmed as well.
        peer.publish(1, b"", key=queue if number % 3 else name)
    confirmed: list[int] = []
    while len(confirmed) < count:
        ack = peer.expect(1, methods.BasicAck)
        first = (confirmed[-1] if confirmed else 0) + 1 if ack.multiple else ack.delivery_tag
        confirmed += range(first, ack.delivery_tag + 1)
    assert confirmed == list(range(1, count + 1))
    assert peer.is_quiet(1)


@rule("extensions/confirm/all-queues")
def test_a_confirmed_message_is_in_all_its_queues(peer: Peer, connect: Connect, name: str) -> None:
    other = connect()
    names = [f"{name}-{number}" for number in range(4)]
    peer.call(1, methods.ExchangeDeclare(exchange=name, type="fanout"))
    for queue in names:
        peer.call(1, methods.QueueDeclare(queue=queue, durable=True))
        peer.call(1, methods.QueueBind(queue=queue, exchange=name))
    peer.call(1, methods.ConfirmSelect())
    peer.publish(1, b"everywhere", exchange=name, delivery_mode=2)
    assert peer.expect(1, methods.BasicAck).delivery_tag == 1
    assert [depth(other, 1, queue) for queue in names] == [1] * len(names)
    for queue in names:
        peer.call(1, methods.QueueDelete(queue=queue))
    peer.call(1, methods.ExchangeDelete(exchange=name))


@rule("extensions/confirm/unroutable-messages")
def test_a_message_comes_back_before_it_is_confirmed(peer: Peer, name: str) -> None:
    peer.call(1, methods.ConfirmSelect())
    peer.publish(1, b"back", key=name, mandatory=True)
    assert peer.expect(1, methods.BasicReturn).reply_code == amqp.NO_ROUTE
    assert peer.content(1).body == b"back"
    assert peer.expect(1, methods.BasicAck).delivery_tag == 1


@rule("0-9-1/tx.commit/transacted")
def test_without_select_there_is_nothing_to_commit(peer: Peer) -> None:
    peer.send(1, methods.TxCommit())
    peer.expect_channel_close(1, amqp.PRECONDITION_FAILED)


@rule("0-9-1/tx.rollback/transacted")
def test_without_select_there_is_nothing_to_roll_back(peer: Peer) -> None:
    peer.send(1, methods.TxRollback())
    peer.expect_channel_close(1, amqp.PRECONDITION_FAILED)
