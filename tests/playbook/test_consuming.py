"""Consumers: turns, credit, acks, what comes back and where to, and consumers that refuse."""

from __future__ import annotations

from typing import Any

import pytest
from playbook.dialogue import Client, Playbook, carrying

from flintmq.broker.channels.teardown import CONSUMERS
from flintmq.broker.scheduling.pass_work import HANDED_OUT_MAX
from flintmq.wire import amqp
from flintmq.wire.methods import (
    BasicAck,
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicGet,
    BasicGetEmpty,
    BasicGetOk,
    BasicNack,
    BasicPublish,
    BasicQos,
    BasicQosOk,
    BasicRecover,
    BasicRecoverAsync,
    BasicRecoverOk,
    BasicReject,
    ChannelClose,
    ChannelCloseOk,
    ChannelOpen,
    ChannelOpenOk,
    ConnectionClose,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    TxSelect,
    TxSelectOk,
)


def numbered(count: int, first: int = 1) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def qos(client: Client, count: int = 0, size: int = 0, shared: bool = False) -> None:
    client >> BasicQos(prefetch_count=count, prefetch_size=size, global_=shared)
    client << BasicQosOk()


def depth(client: Client, queue: str = "q") -> int:
    client >> QueueDeclare(queue=queue, passive=True)
    return client.hears(QueueDeclareOk).message_count


def filled(client: Client, *bodies: bytes) -> None:
    client.declares("q")
    client.publishes("q", *bodies)


def delivery(tag: int, body: bytes, redelivered: bool = False, consumer: str = "c") -> Any:
    method = BasicDeliver(
        consumer_tag=consumer, delivery_tag=tag, redelivered=redelivered, exchange="", routing_key="q"
    )
    return carrying(method, body)


# -- consume and cancel ----------------------------------------------------------------------------


def test_a_delivery_is_as_it_was_published(client: Client) -> None:
    client.declares("q")
    client.binds("q", "amq.topic", "a.#")
    client >> BasicConsume(queue="q")
    tag = client.hears(BasicConsumeOk).consumer_tag
    assert tag.startswith("amq.ctag-")
    properties: dict[str, Any] = {"content_type": "text/plain", "delivery_mode": 2, "headers": {"n": 1}}
    client.publishes("a.b", b"body", exchange="amq.topic", **properties)
    method = BasicDeliver(consumer_tag=tag, delivery_tag=1, exchange="amq.topic", routing_key="a.b")
    client << carrying(method, b"body", **properties)


def test_bodies_are_cut_to_the_agreed_frames(playbook: Playbook) -> None:
    client = playbook.client(frame_max=4096)
    client.declares("q")
    client.consumes("q", no_ack=True)
    for size in (0, 1, 4087, 4088, 4089, 8176, 100_000):
        client.publishes("q", b"x" * size)
        assert client.bodies() == [b"x" * size]


def test_consume_ok_comes_before_what_was_waiting(client: Client) -> None:
    filled(client, b"1")
    client >> BasicConsume(queue="q", consumer_tag="c")
    client << BasicConsumeOk(consumer_tag="c") << delivery(1, b"1")


def test_nowait(client: Client) -> None:
    filled(client, b"1")
    client >> BasicConsume(queue="q", consumer_tag="c", no_wait=True)
    client << delivery(1, b"1")
    client >> BasicCancel(consumer_tag="c", no_wait=True)
    client.publishes("q", b"2")
    client.hears_nothing()


def test_a_tag_is_used_once(client: Client) -> None:
    client.declares("q")
    client.consumes("q")
    client >> BasicConsume(queue="q", consumer_tag="c")
    client << ConnectionClose(
        reply_code=530,
        reply_text="NOT_ALLOWED - attempt to reuse consumer tag 'c'",
        class_id=60,
        method_id=20,
    )


def test_cancel_keeps_what_is_unacked(client: Client) -> None:
    filled(client, b"1")
    client.consumes("q")
    client << delivery(1, b"1")
    client >> BasicCancel(consumer_tag="c")
    client << BasicCancelOk(consumer_tag="c")
    client.publishes("q", b"2")
    client >> BasicAck(delivery_tag=1)
    assert client.gets_all("q") == [b"2"]


class Faulty:
    """A consumer that cannot be told."""

    def notify_cancel(self) -> None:
        raise RuntimeError("a bug")


def test_a_bug_in_telling_one_consumer_keeps_no_other_from_hearing(
    playbook: Playbook, caplog: pytest.LogCaptureFixture
) -> None:
    client, other = playbook.client(), playbook.client()
    other.declares("q")
    client.consumes("q", tag="c")
    playbook.broker.pass_work.lost_consumers.append(Faulty())
    other >> QueueDelete(queue="q") << QueueDeleteOk(message_count=0)
    assert client.hears(BasicCancel).consumer_tag == "c"
    assert "a bug keeps a consumer from hearing that its queue is gone" in caplog.text


def test_cancel_of_nobody(client: Client) -> None:
    client >> BasicCancel(consumer_tag="nobody")
    client << BasicCancelOk(consumer_tag="nobody")


@pytest.mark.parametrize(("first", "second"), [(True, False), (False, True), (True, True)])
def test_exclusive_consumers(playbook: Playbook, first: bool, second: bool) -> None:
    one, two = playbook.client(), playbook.client()
    one.declares("q")
    one.consumes("q", exclusive=first)
    two >> BasicConsume(queue="q", exclusive=second)
    text = "ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use"
    two << ChannelClose(reply_code=403, reply_text=text, class_id=60, method_id=20)
    one >> BasicCancel(consumer_tag="c")
    one << BasicCancelOk(consumer_tag="c")
    two >> ChannelCloseOk() >> ChannelOpen()
    two << ChannelOpenOk()
    two.consumes("q", exclusive=second)


def test_consumers_take_turns(playbook: Playbook) -> None:
    clients = [playbook.client() for _ in range(3)]
    clients[0].declares("q")
    for client in clients:
        client.consumes("q", no_ack=True)
    with playbook.one_pass():
        clients[0].publishes("q", *numbered(9))
    assert [client.bodies() for client in clients] == [
        [b"1", b"4", b"7"],
        [b"2", b"5", b"8"],
        [b"3", b"6", b"9"],
    ]
    clients[0].publishes("q", b"10")
    clients[0].publishes("q", b"11")
    assert [client.bodies() for client in clients] == [[b"10"], [b"11"], []]


# -- get -------------------------------------------------------------------------------------------


def test_get(client: Client) -> None:
    filled(client, b"1", b"2")
    client >> BasicGet(queue="q")
    client << carrying(BasicGetOk(delivery_tag=1, routing_key="q", message_count=1), b"1")
    client >> BasicGet(queue="q", no_ack=True)
    client << carrying(BasicGetOk(delivery_tag=2, routing_key="q", message_count=0), b"2")
    client >> BasicGet(queue="q")
    client << BasicGetEmpty()
    client >> BasicReject(delivery_tag=1, requeue=True)
    client >> BasicGet(queue="q")
    client << carrying(BasicGetOk(delivery_tag=3, redelivered=True, routing_key="q"), b"1")
    client >> BasicAck(delivery_tag=2)  # was acked when it was taken
    client << ChannelClose(
        reply_code=406, reply_text="PRECONDITION_FAILED - unknown delivery tag 2", class_id=60, method_id=80
    )


# -- settling --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settle", "left"),
    [
        ([BasicAck(delivery_tag=2)], [1, 3, 4]),
        ([BasicAck(delivery_tag=3, multiple=True)], [4]),
        ([BasicAck(delivery_tag=0, multiple=True)], []),
        ([BasicAck(delivery_tag=4), BasicAck(delivery_tag=1), BasicAck(delivery_tag=3, multiple=True)], []),
        ([BasicAck(delivery_tag=1), BasicAck(delivery_tag=2), BasicAck(delivery_tag=4)], [3]),
        ([BasicReject(delivery_tag=2)], [1, 3, 4]),
        ([BasicNack(delivery_tag=2)], [1, 3, 4]),
        ([BasicNack(delivery_tag=2, multiple=True)], [3, 4]),
        ([BasicNack(delivery_tag=0, multiple=True)], []),
        ([BasicNack(delivery_tag=0, multiple=True), BasicNack(delivery_tag=0, multiple=True)], []),
    ],
)
def test_what_is_not_settled_comes_back(playbook: Playbook, settle: list[Any], left: list[int]) -> None:
    client, other = playbook.client(), playbook.client()
    filled(client, *numbered(4))
    client.consumes("q")
    assert client.bodies() == numbered(4)
    for method in settle:
        client >> method
    client.session.release()
    assert other.gets_all("q") == [b"%d" % number for number in left]


@pytest.mark.parametrize(
    "settle",
    [
        BasicAck(delivery_tag=0),
        BasicAck(delivery_tag=2),
        BasicAck(delivery_tag=2, multiple=True),
        BasicAck(delivery_tag=2**64 - 1, multiple=True),
        BasicReject(delivery_tag=2),
        BasicReject(delivery_tag=0),
        BasicNack(delivery_tag=2),
        BasicNack(delivery_tag=0),
    ],
)
def test_tags_that_were_never_given(client: Client, settle: Any) -> None:
    filled(client)
    client.consumes("q")
    client.publishes("q", b"1")
    client << delivery(1, b"1")
    client >> settle
    client << ChannelClose(
        reply_code=406,
        reply_text=f"PRECONDITION_FAILED - unknown delivery tag {settle.delivery_tag}",
        class_id=60,
        method_id=settle.METHOD_ID,
    )


def test_a_tag_is_settled_once(client: Client) -> None:
    filled(client, *numbered(3))
    client.consumes("q")
    client.bodies()
    client >> BasicAck(delivery_tag=2) >> BasicAck(delivery_tag=2)
    assert client.hears(ChannelClose).reply_text == "PRECONDITION_FAILED - unknown delivery tag 2"


def test_tags_belong_to_their_channel(client: Client) -> None:
    filled(client, b"1")
    client.consumes("q")
    client.bodies()
    client[2] >> ChannelOpen()
    client[2] << ChannelOpenOk()
    client[2] >> BasicAck(delivery_tag=1)
    assert client.hears(ChannelClose, 2).reply_code == 406
    client >> BasicAck(delivery_tag=1)
    client.hears_nothing()


def test_many_deliveries_settled_in_any_order(client: Client) -> None:
    """Enough to have the shells of settled ones swept out now and then."""
    count = 1000
    filled(client, *numbered(count))
    client.consumes("q")
    assert len(client.bodies()) == count
    tags = sorted(range(1, count + 1), key=lambda tag: (tag % 7, -tag))
    for tag in tags[:-3]:
        client >> BasicAck(delivery_tag=tag)
    owner = client.session.connection.channels[1].owner  # type: ignore[union-attr]
    assert (owner.unacked.outstanding, owner.unacked.outstanding_bytes) == (
        3,
        sum(len(b"%d" % tag) for tag in tags[-3:]),
    )  # type: ignore[attr-defined]
    assert owner.unacked.ring.count <= 2 * 3 + 64  # type: ignore[attr-defined]
    client >> BasicAck(delivery_tag=0, multiple=True)
    assert (owner.unacked.outstanding, owner.unacked.outstanding_bytes, owner.unacked.ring.count) == (0, 0, 0)  # type: ignore[attr-defined]
    client.publishes("q", b"after")
    client << delivery(count + 1, b"after")
    client >> BasicAck(delivery_tag=count + 1)
    client.hears_nothing()


# -- coming back -----------------------------------------------------------------------------------


def test_what_comes_back_regains_its_place(playbook: Playbook) -> None:
    client = playbook.client()
    filled(client, *numbered(6))
    for _ in range(4):
        client >> BasicGet(queue="q")
        client.next(1)
    for tag in (3, 1, 4):
        client >> BasicNack(delivery_tag=tag, requeue=True)
    client.publishes("q", b"7")
    assert depth(client) == 6
    found = []
    for _ in range(6):
        client >> BasicGet(queue="q")
        got = client.next(1)
        found.append((got.body, got.method.redelivered, got.method.message_count))  # type: ignore[attr-defined]
    assert found == [
        (b"1", True, 5),
        (b"3", True, 4),
        (b"4", True, 3),
        (b"5", False, 2),
        (b"6", False, 1),
        (b"7", False, 0),
    ]


def test_a_rejected_message_goes_out_again(client: Client) -> None:
    filled(client, b"1")
    client.consumes("q")
    client << delivery(1, b"1")
    client >> BasicReject(delivery_tag=1, requeue=True)
    client << delivery(2, b"1", redelivered=True)
    client >> BasicNack(delivery_tag=2, requeue=True)
    client << delivery(3, b"1", redelivered=True)
    client >> BasicReject(delivery_tag=3, requeue=False)
    assert depth(client) == 0


@pytest.mark.parametrize("how", ["channel", "loss"])
def test_a_lost_consumer_s_messages_go_to_others(playbook: Playbook, how: str) -> None:
    lost, other = playbook.client(), playbook.client()
    filled(lost, *numbered(3))
    lost.consumes("q")
    lost.bodies()
    other.consumes("q", "o")
    if how == "channel":
        lost >> ChannelClose(reply_code=200)
        lost << ChannelCloseOk()
    else:
        lost.session.release()
        playbook.finish_pass()
    for tag in (1, 2, 3):
        other << delivery(tag, b"%d" % tag, redelivered=True, consumer="o")


@pytest.mark.parametrize("method", [BasicRecover, BasicRecoverAsync])
def test_recover_with_requeue(playbook: Playbook, method: Any) -> None:
    client, other = playbook.client(), playbook.client()
    filled(client, *numbered(3))
    client.consumes("q")
    client.bodies()
    client >> BasicAck(delivery_tag=2)
    client >> BasicCancel(consumer_tag="c")
    client << BasicCancelOk(consumer_tag="c")
    client >> method(requeue=True)
    if method is BasicRecover:
        client << BasicRecoverOk()
    assert other.gets_all("q") == [b"1", b"3"]


def test_recover_without_requeue_goes_to_the_same_consumers(playbook: Playbook) -> None:
    client, other = playbook.client(), playbook.client()
    filled(client, *numbered(4))
    client >> BasicGet(queue="q")
    client.next(1)
    client.consumes("q", "gone")
    client << delivery(2, b"2", consumer="gone") << delivery(3, b"3", consumer="gone")
    client << delivery(4, b"4", consumer="gone")
    client >> BasicCancel(consumer_tag="gone")
    client << BasicCancelOk(consumer_tag="gone")
    client.publishes("q", b"5")
    client.consumes("q", "stays")
    client << delivery(5, b"5", consumer="stays")
    other.consumes("q", "other")
    with playbook.one_pass():
        client >> BasicRecover(requeue=False)
    client << delivery(6, b"5", redelivered=True, consumer="stays") << BasicRecoverOk()
    # What was got or whose consumer is gone goes back to the queue, to whoever has the turn.
    assert sorted(client.bodies() + other.bodies()) == [b"1", b"2", b"3", b"4"]
    assert playbook.broker.virtual_hosts["/"].queues["q"].unacked == 5


def test_recover_of_nothing(client: Client) -> None:
    for requeue in (False, True):
        client >> BasicRecover(requeue=requeue)
        client << BasicRecoverOk()


def test_0_8_recover_is_not_answered_twice(playbook: Playbook) -> None:
    client = playbook.client(amqp.VERSION_0_8)
    filled(client, b"1")
    client.consumes("q")
    client << delivery(1, b"1")
    client >> BasicRecoverAsync(requeue=False)
    client << delivery(2, b"1", redelivered=True)


# -- credit ----------------------------------------------------------------------------------------


def test_prefetch_count_is_for_each_consumer(client: Client) -> None:
    client.declares("q")
    qos(client, 2)
    client.consumes("q", "one")
    client.consumes("q", "two")
    qos(client, 1)
    client.consumes("q", "three")  # those before keep their limit
    client.publishes("q", *numbered(9))
    taken = [(consumer, tag) for consumer, tag, _ in client.deliveries()]
    assert [consumer for consumer, _ in taken] == ["one", "two", "three", "one", "two"]
    client >> BasicAck(delivery_tag=3)
    assert client.deliveries() == [("three", 6, b"6")]
    client >> BasicAck(delivery_tag=5, multiple=True)
    assert [consumer for consumer, _, _ in client.deliveries()].count("three") == 0
    assert depth(client) == 0


def queues_of_py_amqp(playbook: Playbook, no_wait: bool) -> Client:
    """A client on py-amqp that consumes from two queues of five messages each, and may hold two."""
    client = playbook.client(product="py-amqp")
    for queue in ("a", "b"):
        client.declares(queue)
        client.publishes(queue, *numbered(5))
    qos(client, 2)
    client >> BasicConsume(queue="a", consumer_tag="a", no_wait=no_wait)
    if not no_wait:
        client << BasicConsumeOk(consumer_tag="a")
    return client


def taken_from(client: Client) -> list[str]:
    return sorted(consumer for consumer, _, _ in client.deliveries())


def test_prefetch_of_py_amqp_is_for_each_consumer(playbook: Playbook) -> None:
    """A service that waits in its handlers for replies to another consumer of the channel gets them."""
    client = queues_of_py_amqp(playbook, no_wait=False)
    assert taken_from(client) == ["a", "a"]
    client.consumes("b", "b")
    assert taken_from(client) == ["b", "b"]


def test_prefetch_of_py_amqp_is_shared_by_what_begins_without_waiting(playbook: Playbook) -> None:
    """As a Consumer of kombu with several queues does, and so Celery's worker."""
    client = queues_of_py_amqp(playbook, no_wait=True)
    assert taken_from(client) == ["a", "a"]
    client.consumes("b", "b")
    assert taken_from(client) == []
    qos(client, 3)
    assert len(taken_from(client)) == 1
    client >> BasicAck(delivery_tag=3, multiple=True)
    assert len(taken_from(client)) == 3
    qos(client, 0)
    assert len(taken_from(client)) == 4
    client >> BasicAck(delivery_tag=10, multiple=True)
    qos(client, 1)
    client.publishes("a", b"6", b"7")
    client.publishes("b", b"6", b"7")
    assert len(taken_from(client)) == 1


def test_another_prefetch_of_py_amqp_holds_at_once(playbook: Playbook) -> None:
    """Celery widens it for each task of the future that a worker holds, and narrows it afterwards."""
    client = queues_of_py_amqp(playbook, no_wait=False)
    assert taken_from(client) == ["a", "a"]
    qos(client, 3)
    assert taken_from(client) == ["a"]
    qos(client, 1)
    client >> BasicAck(delivery_tag=2, multiple=True)
    assert taken_from(client) == []
    client >> BasicAck(delivery_tag=3)
    assert taken_from(client) == ["a"]


def test_prefetch_does_not_bind_those_who_never_ack(client: Client) -> None:
    client.declares("q")
    qos(client, 1)
    client.consumes("q", no_ack=True)
    client.publishes("q", *numbered(5))
    assert client.bodies() == numbered(5)


def test_prefetch_size(client: Client) -> None:
    client.declares("q")
    qos(client, size=10)
    client.consumes("q")
    client.publishes("q", b"x" * 25, b"y" * 4, b"z" * 6, b"w")
    assert client.bodies() == [b"x" * 25]  # more than the limit, but alone
    client >> BasicAck(delivery_tag=1)
    assert client.bodies() == [b"y" * 4, b"z" * 6]
    client >> BasicAck(delivery_tag=2)
    assert client.bodies() == [b"w"]


def test_global_count_is_shared_by_the_channel(client: Client) -> None:
    client.declares("q")
    client.declares("r")
    client.consumes("q", "one")
    client.consumes("r", "two")
    qos(client, 3, shared=True)
    client.publishes("q", *numbered(2))
    client.publishes("r", *numbered(2))
    assert [consumer for consumer, _, _ in client.deliveries()] == ["one", "one", "two"]
    client >> BasicAck(delivery_tag=1)
    assert client.deliveries() == [("two", 4, b"2")]
    client.publishes("q", b"3")
    client.hears_nothing()
    with client.playbook.one_pass():
        client >> BasicQos(prefetch_count=4, global_=True)
    client << BasicQosOk()
    assert client.deliveries() == [("one", 5, b"3")]


def test_global_size_is_shared_by_the_channel(client: Client) -> None:
    client.declares("q")
    client.consumes("q", "one")
    client.consumes("q", "two")
    qos(client, size=10, shared=True)
    client.publishes("q", b"x" * 6, b"y" * 4, b"z" * 20)
    assert client.bodies() == [b"x" * 6, b"y" * 4]
    client >> BasicAck(delivery_tag=1)
    client.hears_nothing()
    client >> BasicAck(delivery_tag=2)
    assert client.bodies() == [b"z" * 20]


def test_both_limits_hold(client: Client) -> None:
    client.declares("q")
    qos(client, 2)
    qos(client, 3, shared=True)
    client.consumes("q", "one")
    client.consumes("q", "two")
    client.publishes("q", *numbered(9))
    assert [consumer for consumer, _, _ in client.deliveries()] == ["one", "two", "one"]


def test_a_requeue_gives_credit_back(client: Client) -> None:
    client.declares("q")
    qos(client, 1)
    client.consumes("q")
    client.publishes("q", *numbered(3))
    client << delivery(1, b"1")
    client >> BasicNack(delivery_tag=1, requeue=True)
    client << delivery(2, b"1", redelivered=True)
    client >> BasicReject(delivery_tag=2)
    client << delivery(3, b"2")


def test_a_full_output_stops_deliveries_until_it_is_read(playbook: Playbook) -> None:
    reader, writer = playbook.client(), playbook.client()
    writer.declares("q")
    reader.consumes("q", no_ack=True)
    with playbook.one_pass():
        writer.publishes("q", *(b"%06d" % number + b"x" * 9994 for number in range(100)))
    assert 380_000 < reader.output.pending() < 420_000
    assert depth(writer) > 50
    assert [int(body[:6]) for body in reader.bodies()] == list(range(100))


# -- consumers that refuse -------------------------------------------------------------------------


def test_no_local_takes_what_others_published(playbook: Playbook) -> None:
    choosy, other = playbook.client(), playbook.client()
    choosy.declares("q")
    choosy.consumes("q", no_local=True, no_ack=True)
    choosy.publishes("q", b"own 1")
    other.publishes("q", b"other 1")
    choosy.publishes("q", b"own 2")
    other.publishes("q", b"other 2")
    assert choosy.bodies() == [b"other 1", b"other 2"]
    assert other.gets_all("q") == [b"own 1", b"own 2"]


def test_no_local_leaves_its_own_to_others(playbook: Playbook) -> None:
    choosy, other = playbook.client(), playbook.client()
    choosy.declares("q")
    choosy.consumes("q", no_local=True, no_ack=True)
    other.consumes("q", no_ack=True)
    with playbook.one_pass():
        choosy.publishes("q", *numbered(3))
        other.publishes("q", *numbered(3, 4))
    assert set(choosy.bodies()) <= set(numbered(3, 4))
    assert set(other.bodies()) >= set(numbered(3))


def test_what_a_choosy_consumer_gives_back_regains_its_place(playbook: Playbook) -> None:
    choosy, other = playbook.client(), playbook.client()
    choosy.declares("q")
    choosy.consumes("q", no_local=True)
    choosy.publishes("q", b"1")
    other.publishes("q", b"2")
    choosy.publishes("q", b"3")
    choosy << delivery(1, b"2")
    choosy >> ChannelClose(reply_code=200)
    choosy << ChannelCloseOk()
    assert other.gets_all("q") == [b"1", b"2", b"3"]


def test_nothing_is_stuck_when_a_choosy_consumer_comes_back(playbook: Playbook) -> None:
    """The plain one has looked past the place to which a message returns meanwhile."""
    choosy, plain = playbook.client(), playbook.client()
    choosy.declares("q")
    plain.consumes("q")
    choosy.consumes("q", "choosy", no_local=True)
    choosy.publishes("q", b"1")
    plain << delivery(1, b"1")
    choosy >> BasicCancel(consumer_tag="choosy")
    choosy << BasicCancelOk(consumer_tag="choosy")
    with playbook.one_pass():
        plain >> BasicReject(delivery_tag=1, requeue=True)
        choosy >> BasicConsume(queue="q", no_local=True, no_wait=True)
    plain << delivery(2, b"1", redelivered=True)


def test_a_choosy_consumer_s_credit(playbook: Playbook) -> None:
    choosy, other = playbook.client(), playbook.client()
    choosy.declares("q")
    qos(choosy, 1)
    choosy.consumes("q", no_local=True)
    other.publishes("q", b"1", b"2")
    choosy.publishes("q", b"own")
    choosy << delivery(1, b"1")
    choosy >> BasicNack(delivery_tag=1, requeue=True)
    choosy << delivery(2, b"1", redelivered=True)
    choosy >> BasicAck(delivery_tag=2)
    choosy << delivery(3, b"2")
    choosy >> BasicAck(delivery_tag=3)
    assert other.gets_all("q") == [b"own"]


@pytest.mark.parametrize("again", [BasicAck, BasicNack])
@pytest.mark.parametrize("mode", ["plain", "tx"])
def test_multiple_of_a_tag_that_is_settled_already_is_a_mistake(again: Any, mode: str) -> None:
    """A second ack shows, though deliveries before it are unsettled."""
    client = Playbook().client()
    filled(client, *numbered(3))
    if mode == "tx":
        client >> TxSelect()
        client << TxSelectOk()
    client.consumes("q")
    assert client.bodies() == numbered(3)
    client >> BasicAck(delivery_tag=2)
    client >> again(delivery_tag=2, multiple=True)
    assert client.hears(ChannelClose).reply_code == amqp.PRECONDITION_FAILED


def takers(client: Client) -> str:
    """Who got what was delivered, in order."""
    return "".join(tag for tag, _, _ in client.deliveries())


def test_one_that_comes_new_is_the_last_of_the_round() -> None:
    client = Playbook().client()
    client.declares("q")
    client.consumes("q", tag="a", no_ack=True)
    client.publishes("q", b"1")
    assert takers(client) == "a"
    client.consumes("q", tag="b", no_ack=True)
    client.publishes("q", b"2")
    assert takers(client) == "a"
    client.consumes("q", tag="c", no_ack=True)
    client.publishes("q", b"3", b"4", b"5", b"6")
    assert takers(client) == "bacb"


def test_the_round_goes_on_when_one_leaves() -> None:
    client = Playbook().client()
    client.declares("q")
    for tag in "abc":
        client.consumes("q", tag=tag, no_ack=True)
    client.publishes("q", b"1", b"2")
    assert takers(client) == "ab"
    client >> BasicCancel(consumer_tag="a")
    client << BasicCancelOk(consumer_tag="a")
    client.publishes("q", b"3", b"4", b"5")
    assert takers(client) == "cbc"


@pytest.mark.parametrize("order", ["a crowd b c", "crowd a b c", "a b c crowd"])
def test_the_round_goes_on_when_a_channel_with_many_consumers_closes(order: str) -> None:
    client = Playbook().client()
    client.declares("q")
    client[2] >> ChannelOpen()
    client[2] << ChannelOpenOk()
    crowd = [f"{number}." for number in range(CONSUMERS + 2)]
    tags = [tag for word in order.split() for tag in (crowd if word == "crowd" else [word])]
    for tag in tags:
        voice = client[1 if tag.isalpha() else 2]
        voice >> BasicConsume(queue="q", consumer_tag=tag, no_ack=True)
        voice << BasicConsumeOk(consumer_tag=tag)
    client.publishes("q", *numbered(tags.index("a") + 1))
    assert takers(client).endswith("a")
    client[2] >> ChannelClose()
    client[2] << ChannelCloseOk()
    client.publishes("q", *numbered(5))
    assert takers(client) == "bcabc"
    client >> QueueDeclare(queue="q", passive=True)
    assert client.hears(QueueDeclareOk).consumer_count == 3


def test_those_of_one_priority_take_turns_whoever_comes_or_goes() -> None:
    client = Playbook().client()
    client.declares("q")
    client.consumes("q", tag="z", no_ack=True)
    client.consumes("q", tag="a", no_ack=True, arguments={"x-priority": 1})
    client.publishes("q", b"1")
    assert takers(client) == "a"
    client.consumes("q", tag="b", no_ack=True, arguments={"x-priority": 1})
    client.publishes("q", b"2", b"3", b"4")
    assert takers(client) == "aba"
    for tag in "ab":
        client >> BasicCancel(consumer_tag=tag)
        client << BasicCancelOk(consumer_tag=tag)
    client.publishes("q", b"5")
    assert takers(client) == "z"


def test_a_limit_for_each_consumer_ends_that_of_the_channel() -> None:
    client = Playbook().client()
    filled(client, *numbered(3))
    qos(client, 1, shared=True)
    client.consumes("q")
    assert client.bodies() == numbered(1)
    qos(client, 5)
    assert client.bodies() == numbered(2, 2)


def hear_of_one_pass(playbook: Playbook, *clients: Client) -> list[int]:
    """How many deliveries each has got from a single pass."""
    playbook.holding = True
    try:
        playbook.broker.finish_pass()
        return [len(client.deliveries()) for client in clients]
    finally:
        playbook.holding = False


@pytest.mark.parametrize("arguments", [{}, {"x-max-length": 100_000}], ids=["plain", "ruled"])
def test_a_backlog_leaves_in_portions_and_others_have_theirs(
    playbook: Playbook, client: Client, arguments: dict[str, Any]
) -> None:
    """However much one consumer takes: a pass stays bounded, and nobody waits for the whole of it."""
    count = HANDED_OUT_MAX + 1000
    other = playbook.client()
    other.declares("small")
    other.consumes("small")
    client.declares("hoard", arguments=arguments)
    published = carrying(BasicPublish(routing_key="hoard"), b"x")
    client >> client.frames(1, published) * count
    playbook.broker.finish_pass()
    with playbook.one_pass():
        client >> BasicConsume(queue="hoard", consumer_tag="c", no_wait=True)
        other.publishes("small", b"mine")
        found = hear_of_one_pass(playbook, client, other)
    assert found[1] == 1, "its message waited for those of others"
    assert found[0] <= HANDED_OUT_MAX + 1
    assert found[0] + len(client.deliveries()) == count


def test_what_has_come_since_the_last_pass_leaves_with_it(playbook: Playbook, client: Client) -> None:
    """A publisher that is fast does not leave its messages behind in the queue."""
    count = 3 * HANDED_OUT_MAX
    client.declares("q")
    consumers = [playbook.client() for _ in range(4)]  # each of whose outputs takes a part
    for consumer in consumers:
        consumer.consumes("q", no_ack=True)
    published = client.frames(1, carrying(BasicPublish(routing_key="q"), b"x"))
    with playbook.one_pass():
        client >> published * count
        found = hear_of_one_pass(playbook, *consumers)
    assert sum(found) == count
