"""Transactions: nothing shows before commit, all of it after, and nothing of it after rollback."""

from __future__ import annotations

from typing import Any

import pytest
from playbook.dialogue import Carried, Client, Playbook, carrying, frame

from flintmq.config import parse
from flintmq.wire import amqp
from flintmq.wire.methods import (
    BasicAck,
    BasicGet,
    BasicNack,
    BasicPublish,
    BasicRecover,
    BasicRecoverOk,
    BasicReject,
    ChannelClose,
    ChannelCloseOk,
    ChannelOpen,
    ChannelOpenOk,
    ConnectionClose,
    ExchangeDeclare,
    ExchangeDeclareOk,
    ExchangeDelete,
    ExchangeDeleteOk,
    Method,
    TxCommit,
    TxCommitOk,
    TxRollback,
    TxRollbackOk,
    TxSelect,
    TxSelectOk,
    encode_method,
)


@pytest.fixture
def dealer(playbook: Playbook) -> Client:
    """A client in transaction mode, with a queue "q"."""
    client = playbook.client()
    client.declares("q")
    client >> TxSelect()
    client << TxSelectOk()
    return client


@pytest.fixture
def witness(playbook: Playbook) -> Client:
    return playbook.client()


def commit(client: Client) -> None:
    client >> TxCommit()
    client << TxCommitOk()


def rollback(client: Client) -> None:
    client >> TxRollback()
    client << TxRollbackOk()


def depth(client: Client) -> tuple[int, int]:
    """Ready and unacked messages of q."""
    queue = client.playbook.broker.virtual_hosts["/"].queues["q"]
    return queue.message_count(), queue.unacked


def takes(client: Client, count: int) -> None:
    for _ in range(count):
        client >> BasicGet(queue="q")
        assert isinstance(client.next(1), Carried)


def test_publishes_show_at_commit(dealer: Client, witness: Client) -> None:
    dealer.publishes("q", b"1", b"2")
    assert witness.gets("q") is None
    commit(dealer)
    assert witness.gets_all("q") == [b"1", b"2"]
    commit(dealer)
    assert witness.gets("q") is None


def test_publishes_are_gone_after_rollback(dealer: Client, witness: Client) -> None:
    dealer.publishes("q", b"1")
    rollback(dealer)
    dealer.publishes("q", b"2")
    commit(dealer)
    assert witness.gets_all("q") == [b"2"]


def test_select_again_changes_nothing(dealer: Client, witness: Client) -> None:
    dealer.publishes("q", b"1")
    dealer >> TxSelect()
    dealer << TxSelectOk()
    commit(dealer)
    assert witness.gets_all("q") == [b"1"]


@pytest.mark.parametrize("method", [TxCommit(), TxRollback()])
def test_without_select(client: Client, method: Method) -> None:
    client >> method
    text = "PRECONDITION_FAILED - channel is not transactional"
    client << ChannelClose(reply_code=406, reply_text=text, class_id=90, method_id=method.METHOD_ID)


@pytest.mark.parametrize(
    ("settle", "after"),
    [
        (BasicAck(delivery_tag=2, multiple=True), (0, 1)),
        (BasicAck(delivery_tag=2), (0, 2)),
        (BasicReject(delivery_tag=2), (0, 2)),
        (BasicNack(delivery_tag=0, multiple=True), (0, 0)),
        (BasicNack(delivery_tag=2, multiple=True, requeue=True), (2, 1)),
    ],
)
def test_settling_shows_at_commit(dealer: Client, settle: Any, after: tuple[int, int]) -> None:
    dealer.publishes("q", b"1", b"2", b"3")
    commit(dealer)
    takes(dealer, 3)
    dealer >> settle
    assert depth(dealer) == (0, 3)
    commit(dealer)
    assert depth(dealer) == after


def test_after_rollback_deliveries_may_be_settled_again(dealer: Client) -> None:
    dealer.publishes("q", b"1", b"2")
    commit(dealer)
    takes(dealer, 2)
    dealer >> BasicAck(delivery_tag=1) >> BasicNack(delivery_tag=2)
    rollback(dealer)
    assert depth(dealer) == (0, 2)
    dealer >> BasicAck(delivery_tag=2, multiple=True)
    commit(dealer)
    assert depth(dealer) == (0, 0)


@pytest.mark.parametrize(
    "again", [BasicAck(delivery_tag=1), BasicReject(delivery_tag=1), BasicNack(delivery_tag=1)]
)
def test_a_tag_is_settled_once_in_a_transaction(dealer: Client, again: Any) -> None:
    dealer.publishes("q", b"1")
    commit(dealer)
    takes(dealer, 1)
    dealer >> BasicAck(delivery_tag=1) >> again
    close = dealer.hears(ChannelClose)
    assert (close.reply_code, close.class_id, close.method_id) == (406, 60, again.METHOD_ID)
    assert depth(dealer) == (1, 0)


def test_acks_that_look_at_many_deliveries_give_others_their_turn(dealer: Client) -> None:
    """Each of them looks at all deliveries up to its tag, be they settled in the transaction or not."""
    count = 100
    dealer.publishes("q", *[b"m"] * count)
    commit(dealer)
    takes(dealer, count)
    pass_work, connection = dealer.playbook.broker.pass_work, dealer.session.connection
    dealer >> BasicAck(delivery_tag=count - 1, multiple=True)
    assert pass_work.copies >= count - 1
    ack = encode_method(amqp.VERSION_0_9_1, BasicAck(delivery_tag=count, multiple=True))
    one = frame(amqp.FRAME_METHOD, 1, ack)
    pass_work.copies = 0
    pass_work.load()  # as much as one read may bring has been brought
    assert connection.receive(bytearray(one + one), 2 * len(one)) == len(one)
    assert connection.paused


def test_recover_leaves_what_the_transaction_has_settled(dealer: Client, witness: Client) -> None:
    dealer.publishes("q", b"1", b"2")
    commit(dealer)
    takes(dealer, 2)
    dealer >> BasicAck(delivery_tag=1)
    dealer >> BasicRecover(requeue=True)
    dealer << BasicRecoverOk()
    assert depth(dealer) == (1, 1)
    commit(dealer)
    assert witness.gets_all("q") == [b"2"]


def test_credit_comes_back_at_commit(dealer: Client, playbook: Playbook) -> None:
    channel: Any = dealer.session.connection.channels[1].owner  # type: ignore[union-attr]
    channel.prefetch_count = 1
    dealer.consumes("q")
    dealer.publishes("q", b"1", b"2")
    commit(dealer)
    assert dealer.bodies() == [b"1"]
    dealer >> BasicAck(delivery_tag=1)
    dealer.hears_nothing()
    with playbook.one_pass():
        dealer >> TxCommit()
    dealer << TxCommitOk()
    assert dealer.bodies() == [b"2"]


def test_mandatory_is_returned_before_commit_ok(dealer: Client) -> None:
    dealer >> carrying(BasicPublish(routing_key="none", mandatory=True), b"x")
    dealer.hears_nothing()
    dealer >> TxCommit()
    found = dealer.next(1)
    assert isinstance(found, Carried)
    assert found.method.NAME == "basic.return"
    dealer << TxCommitOk()


def test_an_exchange_that_is_gone_at_commit(dealer: Client, witness: Client) -> None:
    witness >> ExchangeDeclare(exchange="x", type="fanout")
    witness << ExchangeDeclareOk()
    dealer.binds("q", "x")
    dealer.publishes("", b"to x", exchange="x")
    dealer.publishes("q", b"to q")
    witness >> ExchangeDelete(exchange="x")
    witness << ExchangeDeleteOk()
    commit(dealer)
    assert witness.gets_all("q") == [b"to q"]


def test_what_is_wrong_at_publish_is_told_at_publish(dealer: Client, witness: Client) -> None:
    dealer.publishes("q", b"1")
    dealer.publishes("", b"2", exchange="no")
    assert dealer.hears(ChannelClose).reply_code == 404
    assert witness.gets_all("q") == []


def test_a_transaction_settles_as_many_as_the_settings_say() -> None:
    playbook = Playbook(parse("[limits]\nsettlements_per_transaction_max = 65"))
    client = playbook.client()
    client.declares("q")
    client.publishes("q", *[b"%d" % number for number in range(37)])
    client >> TxSelect()
    client << TxSelectOk()
    for _ in range(36):
        client >> BasicGet(queue="q")
        client.next(1)
    client >> BasicAck(delivery_tag=33, multiple=True)
    commit(client)
    client >> BasicNack(delivery_tag=34, requeue=False)
    client >> BasicAck(delivery_tag=35)
    commit(client)
    client >> BasicNack(delivery_tag=36, requeue=True)
    commit(client)
    for _ in range(2):
        client >> BasicGet(queue="q")
        client.next(1)
    client >> BasicNack(delivery_tag=37, requeue=False)
    client >> BasicNack(delivery_tag=38, requeue=True)
    client >> BasicNack(delivery_tag=38, requeue=False)
    closed = client.hears(ChannelClose)
    assert closed.reply_code == 406, "38 is settled"
    client >> ChannelCloseOk()
    client >> ChannelOpen()
    client << ChannelOpenOk()
    client >> TxSelect()
    client << TxSelectOk()
    for _ in range(2):
        client >> BasicGet(queue="q")
        client.next(1)
    client >> BasicNack(delivery_tag=2, multiple=True, requeue=False)
    closed = client.hears(ChannelClose)
    assert closed.reply_code == 506
    assert "over 65 settlements" in closed.reply_text
    client >> ChannelCloseOk()
    client >> ChannelOpen()
    client << ChannelOpenOk()
    assert client.gets_all("q") == [b"35", b"36"]


def test_a_commit_that_fails_shows_nothing(dealer: Client, witness: Client) -> None:
    dealer.binds("q", "amq.headers", a=1)
    dealer.publishes("q", b"1")
    dealer.publishes("", b"2", exchange="amq.headers", headers={"a": 1})
    method = encode_method(amqp.VERSION_0_9_1, BasicPublish(exchange="amq.headers"))
    header = b"\x00\x3c\x00\x00" + bytes(8) + b"\x20\x00\x00\x00\x00\x03\x01a?"
    dealer >> frame(1, 1, method) + frame(2, 1, header)
    dealer >> TxCommit()
    assert dealer.hears(ConnectionClose).reply_code == 502
    assert witness.gets_all("q") == []


@pytest.mark.parametrize("how", ["close", "loss"])
def test_a_transaction_ends_with_its_channel(dealer: Client, witness: Client, how: str) -> None:
    dealer.publishes("q", b"1")
    commit(dealer)
    takes(dealer, 1)
    dealer >> BasicAck(delivery_tag=1)
    dealer.publishes("q", b"2")
    if how == "close":
        dealer >> ChannelClose(reply_code=200)
        dealer << ChannelCloseOk()
    else:
        dealer.session.release()
    assert witness.gets_all("q") == [b"1"]
