"""Consumers that share a limit: who comes first, and what counts."""

from __future__ import annotations

import pytest
from playbook.dialogue import Client, Playbook, carrying

from flintmq.wire.methods import (
    BasicAck,
    BasicGet,
    BasicGetOk,
    BasicQos,
    BasicQosOk,
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
