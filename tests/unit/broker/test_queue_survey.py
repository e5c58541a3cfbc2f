"""A look at many queues: their sums, and each change of a row by a mark."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playbook.dialogue import Playbook
from playbook.hourglass import TimedPlaybook
from playbook.paged import PagedPlaybook

from flintmq.broker.channels import direct_reply
from flintmq.broker.queues.queue import Queue
from flintmq.broker.queues.queue_survey import QueueMarks, QueueSums, oldest_ms_of, shown_queues
from flintmq.broker.services.management_services import mark_of_other, queue_row
from flintmq.snapshot_rows import QueueRow
from flintmq.wire.methods import BasicAck, BasicCancel, BasicConsume, BasicGet, BasicNack, QueuePurge

KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "limited": {"x-max-length": 6, "x-message-ttl": 80},
    "priorities": {"x-max-priority": 3},
    "retries": {"x-delayed-retry-type": "all", "x-delayed-retry-min": 60},
}


class Client:
    """Does something at random to one queue; now and then it does nothing."""

    def __init__(self, playbook: TimedPlaybook | PagedPlaybook, chance: random.Random) -> None:
        self.playbook = playbook
        self.client = playbook.client()
        self.chance = chance
        self.consumes = False
        self.ways: list[Callable[[], None]] = [
            *(self.publish, self.publish, self.get, self.get, self.settle, self.settle),
            *(self.purge, self.publish_and_purge, self.consume, self.wait, self.rest),
        ]

    def act(self) -> None:
        self.chance.choice(self.ways)()

    def publish(self) -> None:
        for _ in range(self.chance.randint(1, 4)):
            body, priority = b"x" * self.chance.randint(1, 30), self.chance.randint(0, 3)
            self.client.publishes("q", body, priority=priority, delivery_mode=2)

    def get(self) -> None:
        self.client >> BasicGet(queue="q", no_ack=self.chance.random() < 0.3)

    def settle(self) -> None:
        """All that is unacked."""
        is_acked, is_requeued = self.chance.random() < 0.4, self.chance.random() < 0.5
        if is_acked:
            self.client >> BasicAck(delivery_tag=0, multiple=True)
        else:
            self.client >> BasicNack(delivery_tag=0, multiple=True, requeue=is_requeued)

    def purge(self) -> None:
        self.client >> QueuePurge(queue="q", no_wait=True)

    def publish_and_purge(self) -> None:
        self.publish()
        self.purge()

    def consume(self) -> None:
        if self.consumes:
            self.client >> BasicCancel(consumer_tag="c", no_wait=True)
        else:
            self.client >> BasicConsume(queue="q", consumer_tag="c", no_wait=True)
        self.consumes = not self.consumes

    def wait(self) -> None:
        self.playbook.passes(50)

    def rest(self) -> None:
        pass


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_each_change_of_a_row_is_found_and_nothing_else(kind: str, seed: int) -> None:
    follow(TimedPlaybook(), random.Random(seed), KINDS[kind])


@pytest.mark.parametrize("kind", KINDS)
def test_each_change_is_found_of_a_queue_that_goes_to_disk(kind: str, tmp_path: Path) -> None:
    playbook = PagedPlaybook(tmp_path, sync="never")
    follow(playbook, random.Random(1), KINDS[kind])
    playbook.close()


def follow(playbook: TimedPlaybook | PagedPlaybook, chance: random.Random, arguments: dict[str, Any]) -> None:
    client = Client(playbook, chance)
    client.client.declares("q", durable=True, arguments=arguments)
    queue = playbook.queue("q")
    marks = QueueMarks()
    row: tuple[Any, ...] = ()
    told = 0
    for now in range(1, 300):
        client.act()
        found = marks.changed([queue], now, now, mark_of_other)
        was, row = row, queue_row(queue)
        if was != row:
            assert found == [queue], (was, row)
        told += len(found)
        assert marks.changed([queue], now + 1, now + 1, mark_of_other) == []
        assert marks.changed([queue], now, now + 1, mark_of_other) == found
    assert 100 < told < 299


def test_sums_are_those_of_the_rows() -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    host = playbook.broker.virtual_hosts["/"]
    for name, arguments in KINDS.items():
        client.declares(name, arguments=arguments)
    for name in KINDS:
        client.publishes(name, b"1", b"22", b"333", priority=2)
        playbook.passes(10)
        client.publishes(name, b"4", priority=1)
        client >> BasicGet(queue=name)
        client.next(1)
    client >> BasicNack(delivery_tag=0, multiple=True, requeue=True)
    client >> BasicGet(queue="plain")
    client.next(1)
    client.consumes(direct_reply.NAME, tag="r", no_ack=True)
    assert len(host.queues) == len(KINDS) + 1
    sums = QueueSums(direct_reply.NAME)
    names = list(host.queue_names)
    sums.add(host.queues, names[:2])
    sums.add(host.queues, names[2:])
    shown = [host.queues[name] for name in KINDS]
    assert sums.queues == len(shown)
    assert sums.ready == sum(queue.message_count() for queue in shown) == 14
    assert sums.delayed == sum(queue.waiting_count() for queue in shown) == 1
    assert (sums.unacked, sums.consumers) == (1, 0)
    assert sums.oldest_ms == min(oldest_ms_of(queue) for queue in shown) > 0
    contents = sum(lane.ready_bytes for queue in shown for lane in queue.parts())
    held = sum(lane.ready.count + len(lane.returned) for queue in shown for lane in queue.parts())
    assert sums.ready_bytes == contents + 160 * held > 0


@pytest.mark.parametrize("arguments", [{}, {"x-max-priority": 3}])
def test_messages_that_wait_for_a_retry_are_counted_with_their_returns(arguments: dict[str, int]) -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    client.declares("q", arguments={**arguments, "x-delayed-retry-type": "all", "x-delayed-retry-min": 100})
    client.publishes("q", b"1", b"2", priority=1)
    queue = playbook.queue("q")

    def give_back(most: int) -> tuple[int, int]:
        for _ in range(most):
            client >> BasicGet(queue="q")
            client.next(1)
        client >> BasicNack(delivery_tag=0, multiple=True, requeue=True)
        row = QueueRow._make(queue_row(queue))
        return row.delayed, row.delayed_returns

    assert give_back(2) == (2, 2)
    playbook.passes(100)
    assert (queue.waiting_count(), queue.waiting_returns()) == (0, 0)
    assert give_back(1) == (1, 2)
    assert give_back(1) == (2, 4)
    client >> QueuePurge(queue="q", no_wait=True)
    assert (queue.waiting_count(), queue.waiting_returns()) == (0, 0)


def test_a_purge_of_messages_that_all_wait_is_found() -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    client.declares("q", arguments={"x-delayed-retry-type": "all", "x-delayed-retry-min": 100})
    client.publishes("q", b"1")
    client >> BasicGet(queue="q")
    client.next(1)
    client >> BasicNack(delivery_tag=0, multiple=True, requeue=True)
    marks, queue = QueueMarks(), playbook.queue("q")
    marks.changed([queue], 1, 1, mark_of_other)
    client >> QueuePurge(queue="q", no_wait=True)
    assert marks.changed([queue], 2, 2, mark_of_other) == [queue]


def test_queues_that_are_hidden_or_going_are_not_shown() -> None:
    playbook = Playbook()
    client, other = playbook.client(), playbook.client()
    host = playbook.broker.virtual_hosts["/"]
    client.declares("a")
    client.declares("b", exclusive=True)
    other.declares("c", exclusive=True)
    client.consumes(direct_reply.NAME, tag="r", no_ack=True)
    names = list(host.queue_names)

    def shown(departed: set[int]) -> list[Queue]:
        return shown_queues(host.queues, names, direct_reply.NAME, departed)

    queues = host.queues
    assert shown(set()) == [queues["a"], queues["b"], queues["c"]]
    assert shown({queues["b"].owner}) == [queues["a"], queues["c"]]
    queues["a"].deleted = True
    assert shown({queues["b"].owner}) == [queues["c"]]
