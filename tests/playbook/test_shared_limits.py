"""Consumers that share a limit, or a read with other requests: who comes first."""

from __future__ import annotations

import pytest
from playbook.dialogue import Client, Playbook, carrying

from flintmq.wire.methods import (
    BasicAck,
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicConsumeOk,
    BasicGet,
    BasicGetEmpty,
    BasicGetOk,
    BasicPublish,
    BasicQos,
    BasicQosOk,
    Method,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    QueuePurgeOk,
)


def limited(playbook: Playbook, count: int = 0, size: int = 0) -> Client:
    client = playbook.client()
    client >> BasicQos(prefetch_count=count, prefetch_size=size, global_=True)
    client << BasicQosOk()
    return client


def served(client: Client, rounds: int) -> list[str]:
    """The consumers that got a message, one by one, each acked before the next."""
    tags = []
    for _ in range(rounds):
        ((consumer, tag, _),) = client.deliveries()
        tags.append(consumer)
        client >> BasicAck(delivery_tag=tag)
    client.deliveries()
    return tags


def test_queues_whose_consumers_share_a_limit_take_turns() -> None:
    client = limited(Playbook(), count=1)
    for name in ("a", "b", "c"):
        client.declares(name)
        client.consumes(name, tag=name)
    with client.playbook.one_pass():
        for name in ("a", "b", "c"):
            client.publishes(name, *[b"m"] * 6)
    assert served(client, 6) == ["a", "b", "c", "a", "b", "c"]


def test_consumers_of_a_queue_that_share_a_limit_take_turns() -> None:
    client = limited(Playbook(), count=1)
    client.declares("q")
    client.consumes("q", tag="a")
    client.consumes("q", tag="b")
    client.publishes("q", *[b"m"] * 8)
    assert served(client, 6) == ["a", "b", "a", "b", "a", "b"]


@pytest.mark.parametrize("limit", [{"count": 1}, {"size": 4}])
def test_no_limit_counts_what_basic_get_took(limit: dict[str, int]) -> None:
    client = limited(Playbook(), **limit)
    client.declares("q")
    client.publishes("q", b"long ago", b"1", b"2 is long", b"3")
    client >> BasicGet(queue="q")
    client << carrying(
        BasicGetOk(delivery_tag=1, redelivered=False, exchange="", routing_key="q", message_count=3),
        b"long ago",
    )
    client.consumes("q")
    assert client.bodies() == [b"1"]
    client >> BasicAck(delivery_tag=2)
    assert client.bodies() == [b"2 is long"]
    client >> BasicAck(delivery_tag=1)
    client.hears_nothing()
    client >> BasicAck(delivery_tag=3)
    assert client.bodies() == [b"3"]


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (BasicGet(queue="q", no_ack=True), BasicGetEmpty()),
        (QueueDeclare(queue="q", passive=True), QueueDeclareOk(queue="q", message_count=0, consumer_count=1)),
        (QueuePurge(queue="q"), QueuePurgeOk(message_count=0)),
        (QueueDelete(queue="q", if_empty=True), QueueDeleteOk(message_count=0)),
        (QueueDelete(queue="q"), QueueDeleteOk(message_count=0)),
        (BasicCancel(consumer_tag="c"), BasicCancelOk(consumer_tag="c")),
        (
            BasicConsume(queue="q", consumer_tag="d", arguments={"x-priority": 1}),
            BasicConsumeOk(consumer_tag="d"),
        ),
        (BasicQos(prefetch_count=1, global_=True), BasicQosOk()),
    ],
    ids=lambda each: each.NAME if isinstance(each, Method) else "",
)
def test_a_consumer_that_waits_comes_before_what_is_asked_later(asked: Method, answer: Method) -> None:
    client = Playbook().client()
    client.declares("q")
    client.consumes("q", no_ack=True)
    with client.playbook.one_pass():
        client >> carrying(BasicPublish(routing_key="q"), b"m")
        client >> asked
    delivered = client.next(1)
    assert getattr(delivered, "body", None) == b"m", delivered
    client << answer
    client.heard()
    client.inbox.clear()
