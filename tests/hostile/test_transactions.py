"""Transactions that meet with deletions, malformed messages and closing channels."""

from __future__ import annotations

import pytest
from conversation import House, Peer, frame, header_payload, method_frame, publish

from flintmq.wire import amqp, methods


@pytest.fixture
def peer(house: House) -> Peer:
    peer = Peer(house).login(1, 2)
    peer.say(
        (1, methods.QueueDeclare(queue="q")),
        (1, methods.QueueBind(queue="q", exchange="amq.headers", arguments={"k": "v"})),
        (1, methods.TxSelect()),
    )
    return peer


def count(house: House) -> int:
    return house.broker.virtual_hosts["/"].queues["q"].message_count()


def test_malformed_headers_leave_nothing_of_the_transaction(house: House, peer: Peer) -> None:
    """The lengths fit, so it is only found when an exchange reads the headers."""
    peer.send(publish(1, "", "q", b"good"))
    properties = b"\x20\x00" + b"\x00\x00\x00\x03" + b"\x01k?"
    peer.send(
        method_frame(91, 1, methods.BasicPublish(exchange="amq.headers"))
        + frame(amqp.FRAME_HEADER, 1, header_payload(0, properties))
    )
    answer = peer.ask(1, methods.TxCommit())
    assert isinstance(answer, methods.ConnectionClose)
    assert answer.reply_code == amqp.SYNTAX_ERROR
    assert count(house) == 0


def test_a_deleted_exchange_takes_its_messages_along(house: House, peer: Peer) -> None:
    peer.say(
        (2, methods.ExchangeDeclare(exchange="x", type="fanout")),
        (2, methods.QueueBind(queue="q", exchange="x")),
    )
    peer.send(publish(1, "x", "", b"lost") + publish(1, "", "q", b"kept"))
    peer.say((2, methods.ExchangeDelete(exchange="x")))
    assert isinstance(peer.ask(1, methods.TxCommit()), methods.TxCommitOk)
    assert count(house) == 1


def test_acks_of_a_transaction_that_is_not_committed_are_undone_by_closing(house: House, peer: Peer) -> None:
    peer.send(publish(2, "", "q", b"one") + publish(2, "", "q", b"two"))
    peer.say((1, methods.BasicGet(queue="q")), (1, methods.BasicGet(queue="q")))
    peer.say((1, methods.BasicAck(delivery_tag=2, multiple=True)), (1, methods.ChannelClose()))
    assert count(house) == 2


@pytest.mark.parametrize("settle", [methods.BasicAck, methods.BasicNack, methods.BasicReject])
def test_a_delivery_is_settled_once_in_a_transaction(
    house: House, peer: Peer, settle: type[methods.Method]
) -> None:
    peer.send(publish(2, "", "q", b"one"))
    peer.say((1, methods.BasicGet(queue="q")), (1, methods.BasicAck(delivery_tag=1)))
    method = settle()
    method.delivery_tag = 1  # type: ignore[attr-defined]
    answer = peer.ask(1, method)
    assert isinstance(answer, methods.ChannelClose)
    assert answer.reply_code == amqp.PRECONDITION_FAILED
    assert count(house) == 1


def test_recover_leaves_alone_what_the_transaction_has_settled(house: House, peer: Peer) -> None:
    peer.send(publish(2, "", "q", b"one") + publish(2, "", "q", b"two"))
    peer.say((1, methods.BasicGet(queue="q")), (1, methods.BasicGet(queue="q")))
    peer.say((1, methods.BasicAck(delivery_tag=1)), (1, methods.BasicRecover(requeue=True)))
    assert count(house) == 1
    peer.say((1, methods.TxCommit()))
    assert count(house) == 1
    assert house.broker.virtual_hosts["/"].queues["q"].unacked == 0


def test_a_rollback_leaves_deliveries_to_be_settled_again(house: House, peer: Peer) -> None:
    peer.send(publish(2, "", "q", b"one"))
    peer.say((1, methods.BasicGet(queue="q")), (1, methods.BasicAck(delivery_tag=1)))
    peer.say((1, methods.TxRollback()), (1, methods.BasicReject(delivery_tag=1, requeue=True)))
    assert count(house) == 0
    peer.say((1, methods.TxCommit()))
    assert count(house) == 1
