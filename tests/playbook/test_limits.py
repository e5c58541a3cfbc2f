"""Queues that are full, queues with priorities, and what consumers have to do with it."""

from __future__ import annotations

from typing import Any

import pytest
from playbook.dialogue import Carried, carrying
from playbook.hourglass import TimedPlaybook, letter, with_morgue
from playbook.test_services import ask, reply_queue

from flintmq.broker.queues.consumer_timeout import TAKEN_BACK_MAX
from flintmq.wire.methods import (
    BasicAck,
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicGet,
    BasicNack,
    BasicPublish,
    BasicQos,
    BasicQosOk,
    BasicReject,
    ChannelClose,
    ChannelFlow,
    ChannelFlowOk,
    ConfirmSelect,
    ConfirmSelectOk,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
    QueuePurgeOk,
    TxCommit,
    TxSelect,
    TxSelectOk,
)


def test_what_a_consumer_takes_at_once_is_not_over_the_limit() -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    client.declares("q", arguments={"x-max-length": 0})
    client.consumes("q", no_ack=True)
    with playbook.one_pass():
        client.publishes("q", b"1", b"2", b"3")
    assert client.bodies() == [b"1", b"2", b"3"]


def test_what_comes_back_to_a_full_queue_makes_it_drop_its_oldest() -> None:
    client = TimedPlaybook().client()
    client.declares("q", arguments={"x-max-length": 2})
    client.publishes("q", b"1", b"2")
    client >> BasicGet(queue="q")
    client.next(1)
    client.publishes("q", b"3")
    client >> BasicNack(delivery_tag=1, requeue=True)
    assert client.gets_all("q") == [b"2", b"3"]


@pytest.mark.parametrize("arguments", [{"x-max-length": 1}, {"x-max-length-bytes": 1}])
@pytest.mark.parametrize("overflow", ["reject-publish", "reject-publish-dlx"])
def test_a_full_queue_refuses(arguments: dict[str, Any], overflow: str) -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    client.declares("morgue")
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "morgue"}
    client.declares("q", arguments={**arguments, **dead, "x-overflow": overflow})
    client.declares("other")
    for queue in ("q", "other"):
        client.binds(queue, "amq.fanout")
    client >> ConfirmSelect()
    client << ConfirmSelectOk()
    with playbook.one_pass():
        client.publishes("", b"1", b"2", exchange="amq.fanout")
    client << BasicAck(delivery_tag=1)
    client << BasicNack(delivery_tag=2, requeue=False)
    assert client.gets_all("q") == [b"1"]
    assert client.gets_all("other") == [b"1", b"2"], "the other queue takes what this one refuses"
    assert client.gets_all("morgue") == ([b"2"] if overflow == "reject-publish-dlx" else [])


def test_a_full_queue_refuses_a_transaction_as_a_whole() -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    client.declares("q", arguments={"x-max-length": 2, "x-overflow": "reject-publish"})
    client.declares("other")
    client >> TxSelect()
    client << TxSelectOk()
    client.publishes("other", b"0")
    client.publishes("q", b"1", b"2", b"3")
    client >> TxCommit()
    close = client.hears(ChannelClose)
    assert close.reply_code == 406
    assert (playbook.depth("q"), playbook.depth("other")) == (0, 0)


def test_octets_are_counted_wherever_messages_are() -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    client.declares("q", arguments={"x-max-length-bytes": 10})
    client.publishes("q", b"aaaa", b"bbbb")
    client >> BasicGet(queue="q")
    client.next(1)
    client.publishes("q", b"cccc")
    assert playbook.depth("q") == 2
    client >> BasicNack(delivery_tag=1, requeue=True)
    assert client.gets_all("q") == [b"bbbb", b"cccc"]
    rules = playbook.queue("q").rules
    assert rules is not None
    assert rules.limits is not None
    assert rules.limits.body_bytes == 0
    client.publishes("q", b"dddd", b"eeee", b"ffff")
    client >> QueuePurge(queue="q")
    client << QueuePurgeOk(message_count=2)
    assert rules.limits.body_bytes == 0


# -- priorities ------------------------------------------------------------------------------------


def test_priorities() -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    client.declares("q", arguments={"x-max-priority": 5})
    for number, priority in enumerate((None, 3, 9, 0, 3, 5)):
        client.publishes("q", b"%d" % number, priority=priority)
    assert client.gets_all("q") == [b"2", b"5", b"1", b"4", b"0", b"3"]
    assert not playbook.queue("q").lanes, "an empty lane is let go"  # type: ignore[attr-defined]


def test_what_comes_back_has_its_place_in_its_lane() -> None:
    client = TimedPlaybook().client()
    client.declares("q", arguments={"x-max-priority": 3})
    for number, priority in enumerate((1, 1, 2, 2)):
        client.publishes("q", b"%d" % number, priority=priority)
    for _ in range(4):
        client >> BasicGet(queue="q")
        client.next(1)
    client.publishes("q", b"4", priority=2)
    client >> BasicNack(delivery_tag=4, multiple=True, requeue=True)
    assert client.gets_all("q") == [b"2", b"3", b"4", b"0", b"1"]


def test_priorities_for_a_consumer_that_may_refuse() -> None:
    playbook = TimedPlaybook()
    client, reader = playbook.client(), playbook.client()
    client.declares("q", arguments={"x-max-priority": 9})
    reader >> BasicQos(prefetch_count=1)
    reader << BasicQosOk()
    client.publishes("q", b"low", priority=1)
    reader.consumes("q", no_local=True)
    assert reader.bodies() == [b"low"]
    client.publishes("q", b"middle", priority=3)
    client.publishes("q", b"high", priority=7)
    for tag, body in ((1, b"high"), (2, b"middle")):
        reader >> BasicAck(delivery_tag=tag)
        assert reader.bodies() == [body]
    reader.publishes("q", b"own", priority=9)
    client.publishes("q", b"last", priority=0)
    reader >> BasicAck(delivery_tag=3)
    assert reader.bodies() == [b"last"]
    assert client.gets_all("q") == [b"own"]


def test_purge_of_all_lanes() -> None:
    client = TimedPlaybook().client()
    client.declares("q", arguments={"x-max-priority": 9})
    for priority in (1, 5, 5):
        client.publishes("q", b"x", priority=priority)
    client >> QueuePurge(queue="q")
    client << QueuePurgeOk(message_count=3)
    assert client.gets("q") is None


def test_priorities_with_time_and_limits() -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    with_morgue(client, max_priority=9, message_ttl=1000, max_length=2)
    client.publishes("q", b"1", priority=1)
    playbook.passes(500)
    client.publishes("q", b"5", priority=5)
    playbook.passes(500)
    assert playbook.depth("q") == 2, "the older one is behind the head"
    client.publishes("q", b"0", priority=0)
    assert letter(client, "morgue").body == b"5", "the head goes, whatever its priority"
    playbook.passes(1)
    assert letter(client, "morgue").body == b"1"
    playbook.passes(1000)
    assert letter(client, "morgue").body == b"0"


# -- consumers -------------------------------------------------------------------------------------


def consume(client: Any, tag: str, **settings: Any) -> None:
    client >> BasicConsume(queue="q", consumer_tag=tag, **settings)
    client << BasicConsumeOk(consumer_tag=tag)


def test_consumers_of_a_higher_priority_come_first() -> None:
    client = TimedPlaybook().client()
    client.declares("q")
    client >> BasicQos(prefetch_count=2)
    client << BasicQosOk()
    for tag, priority in (("low", -1), ("none", 0), ("high", 5), ("high2", 5)):
        consume(client, tag, arguments={"x-priority": priority} if priority else {})
    client.publishes("q", *(b"%d" % number for number in range(8)))
    got = [tag for tag, _, _ in client.deliveries()]
    assert sorted(got[:4]) == ["high", "high", "high2", "high2"]
    assert got[4:] == ["none", "none", "low", "low"]
    client.publishes("q", b"8")
    client >> BasicAck(delivery_tag=1)
    assert [tag for tag, _, _ in client.deliveries()] == [got[0]]


def test_a_bad_consumer_priority() -> None:
    client = TimedPlaybook().client()
    client.declares("q")
    client >> BasicConsume(queue="q", arguments={"x-priority": "high"})
    assert client.hears(ChannelClose).reply_code == 406


def test_one_consumer_is_active_at_a_time() -> None:
    playbook = TimedPlaybook()
    client, other = playbook.client(), playbook.client()
    client.declares("q", arguments={"x-single-active-consumer": True})
    for tag in ("first", "second", "third"):
        consume(client, tag, no_ack=True)
    consume(other, "best", arguments={"x-priority": 1})
    client.publishes("q", b"1", b"2")
    assert [tag for tag, _, _ in client.deliveries()] == ["first", "first"]
    client >> BasicCancel(consumer_tag="first")
    client << BasicCancelOk(consumer_tag="first")
    client.publishes("q", b"3")
    assert [tag for tag, _, _ in other.deliveries()] == ["best"]
    other.session.release()
    playbook.finish_pass()
    assert [(tag, body) for tag, _, body in client.deliveries()] == [("second", b"3")]
    playbook.clients.remove(other)


QUORUM = {"x-single-active-consumer": True, "x-queue-type": "quorum"}


def tags(client: Any) -> list[str]:
    return [tag for tag, _, _ in client.deliveries()]


def test_the_active_one_of_a_quorum_queue_makes_way_when_it_holds_nothing() -> None:
    playbook = TimedPlaybook()
    client, other = playbook.client(), playbook.client()
    client.declares("q", durable=True, arguments=QUORUM)
    consume(client, "low")
    client.publishes("q", b"1", b"2")
    assert tags(client) == ["low", "low"]
    consume(other, "high", arguments={"x-priority": 5})
    client.publishes("q", b"3")
    client.hears_nothing()
    other.hears_nothing()
    client >> BasicAck(delivery_tag=1)
    other.hears_nothing()
    client >> BasicNack(delivery_tag=2, requeue=True)
    assert [(tag, body) for tag, _, body in other.deliveries()] == [("high", b"2"), ("high", b"3")]
    consume(client, "lower", arguments={"x-priority": 4})
    consume(client, "higher", arguments={"x-priority": 6})
    other >> BasicAck(delivery_tag=2, multiple=True)
    client.publishes("q", b"4")
    assert tags(client) == ["higher"]
    client >> BasicCancel(consumer_tag="higher")
    client << BasicCancelOk(consumer_tag="higher")
    client.publishes("q", b"5")
    assert tags(other) == ["high"], "the next in rank is active again"


def test_without_acks_there_is_nothing_to_wait_for() -> None:
    client = TimedPlaybook().client()
    client.declares("q", durable=True, arguments=QUORUM)
    consume(client, "low", no_ack=True)
    client.publishes("q", b"1")
    assert tags(client) == ["low"]
    consume(client, "high", no_ack=True, arguments={"x-priority": 1})
    consume(client, "as high", no_ack=True, arguments={"x-priority": 1})
    client.publishes("q", b"2")
    assert tags(client) == ["high"]


def test_who_makes_way_may_leave_before() -> None:
    playbook = TimedPlaybook()
    client, other = playbook.client(), playbook.client()
    client.declares("q", durable=True, arguments=QUORUM)
    consume(client, "low")
    client.publishes("q", b"1")
    assert tags(client) == ["low"]
    consume(other, "high", arguments={"x-priority": 5})
    client >> BasicCancel(consumer_tag="low")
    client << BasicCancelOk(consumer_tag="low")
    client.publishes("q", b"2")
    assert tags(other) == ["high"]
    client >> BasicAck(delivery_tag=1)
    consume(client, "low again")
    other.session.release()
    playbook.finish_pass()
    assert tags(client) == ["low again"]
    playbook.clients.remove(other)


def test_who_waited_for_credit_makes_way_too() -> None:
    playbook = TimedPlaybook()
    client, other = playbook.client(), playbook.client()
    client.declares("q", durable=True, arguments=QUORUM)
    client >> BasicQos(prefetch_count=1)
    client << BasicQosOk()
    consume(client, "low")
    client.publishes("q", b"1", b"2", b"3")
    assert tags(client) == ["low"]
    consume(other, "high", arguments={"x-priority": 5})
    other.hears_nothing()
    client >> BasicAck(delivery_tag=1)
    assert tags(other) == ["high", "high"]
    client.hears_nothing()


def test_a_waiting_consumer_may_leave() -> None:
    client = TimedPlaybook().client()
    client.declares("q", arguments={"x-single-active-consumer": True})
    consume(client, "first", no_ack=True)
    consume(client, "second", no_ack=True)
    client >> BasicCancel(consumer_tag="second")
    client << BasicCancelOk(consumer_tag="second")
    client.publishes("q", b"1")
    assert [tag for tag, _, _ in client.deliveries()] == ["first"]


def test_none_is_exclusive_where_one_is_active() -> None:
    client = TimedPlaybook().client()
    client.declares("q", arguments={"x-single-active-consumer": True})
    client >> BasicConsume(queue="q", exclusive=True)
    assert client.hears(ChannelClose).reply_code == 403


# -- returns ---------------------------------------------------------------------------------------


def test_a_message_that_comes_back_too_often_dies() -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    with_morgue(client, delivery_limit=2)
    client.publishes("q", b"1", headers={"mine": 1})
    for count in (0, 1, 2):
        client >> BasicGet(queue="q")
        found: Any = client.next(1)
        assert found.properties.headers.get("x-delivery-count") == count
        assert found.properties.headers["mine"] == 1
        client >> BasicNack(delivery_tag=found.method.delivery_tag, requeue=True)
    assert playbook.depth("q") == 0
    found = letter(client, "morgue")
    assert found.properties.headers["x-death"][0]["reason"] == "delivery_limit"
    assert "x-delivery-count" not in found.properties.headers


def test_a_quorum_queue_gives_up_after_twenty_returns() -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    client.declares("q", durable=True, arguments={"x-queue-type": "quorum"})
    client.declares("patient", durable=True, arguments={"x-queue-type": "quorum", "x-delivery-limit": -1})
    for name in ("q", "patient"):
        client.publishes(name, b"1")
        for _ in range(21):
            client >> BasicGet(queue=name)
            found: Any = client.next(1)
            client >> BasicReject(delivery_tag=found.method.delivery_tag, requeue=True)
    assert (playbook.depth("q"), playbook.depth("patient")) == (0, 1)


@pytest.mark.parametrize(
    ("kind", "way", "waits"),
    [
        ("all", "nack", True),
        ("all", "reject", True),
        ("failed", "nack", False),
        ("failed", "reject", True),
        ("returned", "nack", True),
        ("returned", "reject", False),
        ("disabled", "reject", False),
    ],
)
def test_what_comes_back_may_have_to_wait(kind: str, way: str, waits: bool) -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    retry = {"x-delayed-retry-type": kind, "x-delayed-retry-min": 100, "x-delayed-retry-max": 250}
    client.declares("q", arguments=retry)
    client.publishes("q", b"1", b"2")
    for delay in (100, 200, 250, 250):
        client >> BasicGet(queue="q")
        found: Any = client.next(1)
        assert found.body == b"1"
        tag = found.method.delivery_tag
        if way == "nack":
            client >> BasicNack(delivery_tag=tag, requeue=True)
        else:
            client >> BasicReject(delivery_tag=tag, requeue=True)
        assert playbook.depth("q") == (1 if waits else 2)
        playbook.passes(delay - 1)
        assert playbook.depth("q") == (1 if waits else 2)
        playbook.passes(1)
        assert playbook.depth("q") == 2
    client >> QueuePurge(queue="q")
    client << QueuePurgeOk(message_count=2)


def test_purge_takes_what_waits() -> None:
    client = TimedPlaybook().client()
    client.declares("q", arguments={"x-delayed-retry-type": "all", "x-delayed-retry-min": 100})
    client.publishes("q", b"1")
    client >> BasicGet(queue="q")
    client.next(1)
    client >> BasicNack(delivery_tag=1, requeue=True)
    client >> QueuePurge(queue="q")
    client << QueuePurgeOk(message_count=1)


def test_a_queue_whose_messages_wait_is_not_empty() -> None:
    client = TimedPlaybook().client()
    reply_queue(client)
    client.declares("q", arguments={"x-delayed-retry-type": "all", "x-delayed-retry-min": 100})
    client.publishes("q", b"1")
    client >> BasicGet(queue="q")
    client.next(1)
    client >> BasicNack(delivery_tag=1, requeue=True)
    assert ask(client, "queue.info", queue="q")["messages-delayed"] == 1
    client >> QueueDelete(queue="q", if_empty=True)
    assert client.hears(ChannelClose).reply_code == 406


def test_an_overdue_delivery_goes_to_another_consumer() -> None:
    playbook = TimedPlaybook()
    stuck, other = playbook.client(), playbook.client()
    stuck.declares("q", arguments={"x-consumer-timeout": 1000})
    stuck >> BasicQos(prefetch_count=1)
    stuck << BasicQosOk()
    stuck.consumes("q")
    stuck.publishes("q", b"1", b"2")
    assert stuck.bodies() == [b"1"]
    playbook.passes(999)
    stuck.hears_nothing()
    playbook.passes(1)
    stuck.hears_nothing()
    assert playbook.depth("q") == 2
    other.consumes("q", no_ack=True)
    heard = [each for _, each in other.heard() if isinstance(each, Carried)]
    other.inbox.clear()
    assert [(each.body, each.method.redelivered) for each in heard] == [(b"1", True), (b"2", False)]  # type: ignore[attr-defined]
    stuck >> BasicAck(delivery_tag=1)  # too late, and no mistake
    other >> BasicCancel(consumer_tag="c")
    other << BasicCancelOk(consumer_tag="c")
    stuck.publishes("q", b"3")
    assert stuck.bodies() == [b"3"], "it has its credit again"
    stuck >> BasicAck(delivery_tag=2)
    stuck >> BasicAck(delivery_tag=2)
    assert stuck.hears(ChannelClose).reply_code == 406


def test_very_many_overdue_deliveries_go_back_in_portions(caplog: pytest.LogCaptureFixture) -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    count = TAKEN_BACK_MAX * 2 + 10
    client.declares("q", arguments={"x-consumer-timeout": 100})
    client.consumes("q")
    with playbook.one_pass():
        client.publishes("q", *[b"%d" % number for number in range(count)])
    assert len(client.bodies()) == count
    client >> ChannelFlow(active=False)
    client << ChannelFlowOk(active=False)
    playbook.passes(100)
    assert playbook.depth("q") == TAKEN_BACK_MAX
    for _ in range(4):
        playbook.passes(1)
    assert playbook.depth("q") == count
    assert [record.message for record in caplog.records] == [
        f"queue 'q': {count} deliveries are unsettled after 100 ms: requeued; the last is delivery {count} "
        f"on channel 1 of connection {client.session.number}"
    ]


def test_late_acks_of_many() -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    client.declares("q", arguments={"x-consumer-timeout": 100})
    client.publishes("q", b"1", b"2", b"3")
    for _ in range(3):
        client >> BasicGet(queue="q")
        client.next(1)
    client >> BasicAck(delivery_tag=2)
    playbook.passes(100)
    assert playbook.depth("q") == 2
    client >> BasicAck(delivery_tag=3, multiple=True)
    assert playbook.broker.pass_work.copies >= 2, "it has looked at two of them, in place of others"
    client.hears_nothing()
    assert client.gets_all("q") == [b"1", b"3"]


def test_a_redeclaration_says_the_same() -> None:
    client = TimedPlaybook().client()
    client.declares("q", arguments={"x-queue-type": "classic"})
    client.declares("q")
    client >> QueueDeclare(queue="q", arguments={"x-max-length": 1})
    assert client.hears(ChannelClose).reply_code == 406


def test_immediate_and_mandatory_stay_as_they_are() -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    client.declares("q", arguments={"x-max-length": 1})
    client.consumes("q", no_ack=True)
    client >> carrying(BasicPublish(routing_key="q", immediate=True, mandatory=True), b"1")
    found: Any = client.next(1)
    assert isinstance(found.method, BasicDeliver)
