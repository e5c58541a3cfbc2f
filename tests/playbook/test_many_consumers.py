"""Thousands of consumers of one queue come, go and wait without a look at all of them for each."""

from __future__ import annotations

from typing import Any

import pytest
from playbook.dialogue import Client, Playbook

from flintmq.broker.queues import consumer, consumer_choice
from flintmq.broker.queues.queue import Queue
from flintmq.broker.virtual_host import VirtualHost
from flintmq.build import build
from flintmq.wire.methods import (
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicQos,
    BasicQosOk,
    ChannelFlow,
    ChannelFlowOk,
    QueueDelete,
)

COUNT = 2000
SINGLE = {"x-single-active-consumer": True}
YIELDING = {**SINGLE, "x-queue-type": "quorum"}


class CountedPriority(int):
    """A priority that counts how often it is held against another one."""

    compared = 0

    def __ge__(self, other: int) -> bool:
        CountedPriority.compared += 1
        return int(self) >= int(other)

    def __gt__(self, other: int) -> bool:
        CountedPriority.compared += 1
        return int(self) > int(other)


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> type[CountedPriority]:
    if not consumer_choice.__file__.endswith(".py"):
        pytest.skip("comparisons are counted on the pure build")
    priority_of = consumer.priority_of
    monkeypatch.setattr(consumer, "priority_of", lambda arguments: CountedPriority(priority_of(arguments)))
    CountedPriority.compared = 0
    return CountedPriority


def queue_of(playbook: Playbook) -> Queue:
    return playbook.broker.virtual_hosts["/"].queues["q"]


def consume(client: Client, first: int, count: int, **arguments: Any) -> None:
    """So many consumers, of priorities 0 to 999."""
    for number in range(first, first + count):
        client >> BasicConsume(
            queue="q",
            consumer_tag=f"c{number}",
            no_wait=True,
            arguments={"x-priority": number % 1000},
            **arguments,
        )


def takers(client: Client) -> list[str]:
    return [tag for tag, _, _ in client.deliveries()]


@pytest.mark.parametrize("arguments", [{}, SINGLE, YIELDING], ids=["ranked", "single", "yielding"])
def test_consumers_with_priorities_find_their_places(
    compared: type[CountedPriority], arguments: dict[str, Any]
) -> None:
    playbook = Playbook()
    client = playbook.client()
    client.declares("q", durable=True, arguments=arguments)
    consume(client, 0, COUNT)
    assert len(queue_of(playbook).consumers) == COUNT
    assert compared.compared <= COUNT * 12, "more than a search by halves"
    client.publishes("q", b"1")
    assert takers(client) == [{0: "c999", 1: "c0", 2: "c999"}[len(arguments)]]


@pytest.mark.skipif(build() == "compiled", reason="compiled classes cannot be changed")
@pytest.mark.parametrize(
    "arguments", [{}, SINGLE, YIELDING, {"x-max-priority": 3}], ids=["ranked", "single", "yielding", "lanes"]
)
def test_those_of_a_connection_leave_together(
    monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any]
) -> None:
    cancelled = 0
    cancel = VirtualHost.cancel

    def counted(host: VirtualHost, each: consumer.Consumer) -> None:
        nonlocal cancelled
        cancelled += 1
        cancel(host, each)

    monkeypatch.setattr(VirtualHost, "cancel", counted)
    playbook = Playbook()
    client, other = playbook.client(), playbook.client()
    client.declares("q", durable=True, arguments=arguments)
    consume(other, 0, COUNT // 2)
    consume(client, 700, 2)
    consume(other, COUNT // 2, COUNT // 2)
    other.session.release()
    playbook.broker.finish_pass()
    queue = queue_of(playbook)
    assert not cancelled, "each was searched for by itself"
    assert [each.tag for each in queue.consumers] == ["c700", "c701"]
    assert queue.rules is not None
    assert queue.rules.choice is not None
    assert queue.rules.choice.ranked == 2
    client.publishes("q", b"1")
    assert takers(client) == ["c701"]
    playbook.clients.remove(other)


def test_those_who_wait_to_be_the_active_one_come_and_go() -> None:
    """Whoever has left is not chosen, and not kept either."""
    playbook = Playbook()
    client = playbook.client()
    client.declares("q", durable=True, arguments=SINGLE)
    for tag in "ab":
        client.consumes("q", tag=tag, no_ack=True)
    for number in range(100):
        client.consumes("q", tag=f"t{number}", no_ack=True)
        client >> BasicCancel(consumer_tag=f"t{number}")
        client << BasicCancelOk(consumer_tag=f"t{number}")
    rules = queue_of(playbook).rules
    assert rules is not None
    assert rules.choice is not None
    assert len(rules.choice.successors) <= 4
    client >> BasicCancel(consumer_tag="a")
    client << BasicCancelOk(consumer_tag="a")
    client.publishes("q", b"1")
    assert takers(client) == ["b"]
    client >> BasicCancel(consumer_tag="b")
    client << BasicCancelOk(consumer_tag="b")
    assert not rules.choice.successors


def test_the_round_goes_on_when_many_leave() -> None:
    """The one whose turn it was is the next, as where one leaves."""
    playbook = Playbook()
    client, other = playbook.client(), playbook.client()
    client.declares("q")
    for tag in "ab":
        client.consumes("q", tag=tag, no_ack=True)
    for number in range(100):
        other.consumes("q", tag=f"o{number}", no_ack=True)
    client.consumes("q", tag="c", no_ack=True)
    client.publishes("q", *[b"x"] * 50)
    assert takers(client) == ["a", "b"]
    other.deliveries()
    other.session.release()
    playbook.broker.finish_pass()
    client.publishes("q", b"1", b"2", b"3")
    assert takers(client) == ["c", "a", "b"]
    playbook.clients.remove(other)


def test_a_deleted_queue_takes_nobody_back() -> None:
    """What wakes those who waited for credit may come before they hear of the end."""
    playbook = Playbook()
    client, other = playbook.client(), playbook.client()
    other.declares("q")
    for number in range(COUNT * 2):
        client >> BasicConsume(queue="q", consumer_tag=f"c{number}", no_wait=True)
    queue = queue_of(playbook)
    with playbook.one_pass():
        other >> QueueDelete(queue="q")
        assert queue.consumers, "the queue is gone before it is taken apart"
        for each in queue.consumers:
            queue.rejoin(each)
        assert not queue.active
    assert not queue.consumers


@pytest.mark.parametrize("arguments", [{}, {"x-max-length": 100_000}], ids=["plain", "ruled"])
def test_those_who_can_take_nothing_leave_the_round_in_portions(arguments: dict[str, Any]) -> None:
    playbook = Playbook()
    publisher = playbook.client()
    publisher.declares("q", arguments=arguments)
    clients = [playbook.client() for _ in range(3)]
    for client in clients:
        for number in range(8192):
            client >> BasicConsume(queue="q", consumer_tag=f"c{number}", no_wait=True)
        client >> ChannelFlow(active=False)
        client << ChannelFlowOk(active=False)
    queue = queue_of(playbook)
    with playbook.one_pass():
        publisher.publishes("q", b"1")
        playbook.broker.pass_work.keep_waiting(True)
        playbook.broker.finish_pass()
        assert 1 < len(queue.active) < 3 * 8192
    assert not queue.active
    clients[2] >> ChannelFlow(active=True)
    clients[2] << ChannelFlowOk(active=True)
    assert takers(clients[2]) == ["c0"]


def test_a_limit_of_the_channel_counts_each_consumer_as_work(playbook: Playbook, client: Client) -> None:
    """Others have their turn between two of them where a channel has very many consumers."""
    client.declares("q")
    counts = []
    for consumers in (0, 100):
        consume(client, 0, consumers)
        with playbook.one_pass():
            client >> BasicQos(prefetch_count=10, global_=True)
            counts.append(playbook.broker.pass_work.copies)
        client << BasicQosOk()
    assert counts[1] - counts[0] >= 100
