"""Consumers that select from a long backlog on disk: what they get, and that little of it comes to memory."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playbook.dialogue import Carried, Client, Playbook
from playbook.paged import PagedPlaybook

from flintmq.broker.queues.paged_tail import RUN_ENTRIES, PagedTail
from flintmq.wire.methods import (
    BasicAck,
    BasicCancel,
    BasicCancelOk,
    BasicGet,
    BasicNack,
    BasicQos,
    BasicQosOk,
    QueuePurge,
    QueuePurgeOk,
)

RARE = {"x-selector": "n >= 2990"}


@pytest.fixture
def playbook(tmp_path: Path) -> Iterator[PagedPlaybook]:
    playbook = PagedPlaybook(tmp_path)
    yield playbook
    playbook.end()
    playbook.close()


def fill(client: Client, count: int, mode: int = 1, **arguments: Any) -> None:
    client.declares("q", durable=True, arguments=arguments)
    for number in range(count):
        client.publishes("q", b"%d" % number, delivery_mode=mode, headers={"n": number}, priority=number % 3)


def deliveries(client: Client) -> list[tuple[int, bytes, bool]]:
    found: list[Any] = [found for _, found in client.heard()]
    client.inbox.clear()
    return [(each.method.delivery_tag, each.body, each.method.redelivered) for each in found]


def bodies(*numbers: int) -> list[bytes]:
    return [b"%d" % number for number in numbers]


@pytest.mark.parametrize("mode", [1, 2])
def test_what_nobody_takes_stays_on_disk(playbook: PagedPlaybook, client: Client, mode: int) -> None:
    fill(client, 3000, mode)
    queue = playbook.queue("q")
    other = playbook.client()
    with playbook.one_pass():
        other.consumes("q", "c", arguments=RARE)
        playbook.broker.finish_pass()
        assert other.heard() == [], "a pass looks at a part of it"
    assert [body for _, body, _ in deliveries(other)] == bodies(*range(2990, 3000))
    assert queue.ready.count + len(queue.returned) < 20
    assert (queue.message_count(), queue.unacked) == (2990, 10)
    client.publishes("q", b"next", delivery_mode=mode, headers={"n": 3000})
    assert [body for _, body, _ in deliveries(other)] == [b"next"]
    other >> BasicAck(delivery_tag=11, multiple=True)
    assert client.gets_all("q") == bodies(*range(2990))
    assert (queue.message_count(), queue.unacked, queue.tail.octets) == (0, 0, 0)


def test_what_comes_back_lies_in_its_old_place(playbook: PagedPlaybook, client: Client) -> None:
    fill(client, 100, 2)
    other = playbook.client()
    other.consumes("q", "c", arguments={"x-selector": "n IN (50, 60, 99)"})
    assert [body for _, body, _ in deliveries(other)] == bodies(50, 60, 99)
    other >> BasicCancel(consumer_tag="c")
    other << BasicCancelOk(consumer_tag="c")
    other >> BasicAck(delivery_tag=2)
    other >> BasicNack(delivery_tag=0, multiple=True, requeue=True)
    queue = playbook.queue("q")
    assert queue.message_count() == 99
    assert queue.ready.count < 20
    client.consumes("q", "all")
    found = deliveries(client)
    assert [body for _, body, _ in found] == bodies(*[n for n in range(100) if n != 60])
    assert [body for _, body, again in found if again] == bodies(50, 99)
    client >> BasicAck(delivery_tag=0, multiple=True)
    assert queue.message_count() == queue.unacked == 0


def test_one_that_is_refused_again_and_again_goes_round(playbook: PagedPlaybook, client: Client) -> None:
    fill(client, 50, 1)
    client >> BasicQos(prefetch_count=1)
    client << BasicQosOk()
    client.consumes("q", "c", arguments={"x-selector": "n >= 48"})
    for round_number in range(3):
        [(tag, body, again)] = deliveries(client)
        assert (body, again) == (b"48", round_number > 0)
        client >> BasicNack(delivery_tag=tag, requeue=True)
    [(tag, body, _)] = deliveries(client)
    client >> BasicAck(delivery_tag=tag)
    [(tag, body, again)] = deliveries(client)
    assert (body, again) == (b"49", False)
    client >> BasicAck(delivery_tag=tag)


def test_after_a_restart_the_rest_is_there(playbook: PagedPlaybook, client: Client) -> None:
    fill(client, 60, 2)
    client.consumes("q", "c", arguments={"x-selector": "n IN (30, 40)"})
    [(first, _, _), _] = deliveries(client)
    client >> BasicAck(delivery_tag=first)
    playbook.restart()
    other = playbook.client()
    assert other.gets_all("q") == bodies(*[n for n in range(60) if n != 30])


def test_a_purge_takes_what_is_between_the_holes(playbook: PagedPlaybook, client: Client) -> None:
    fill(client, 60)
    client.consumes("q", "c", arguments={"x-selector": "n IN (30, 40)"})
    [(tag, _, _), _] = deliveries(client)
    client >> QueuePurge(queue="q")
    client << QueuePurgeOk(message_count=58)
    client >> BasicNack(delivery_tag=tag, requeue=True)
    assert [body for _, body, _ in deliveries(client)] == [b"30"]
    client.publishes("q", b"new", headers={"n": 30})
    assert [body for _, body, _ in deliveries(client)] == [b"new"]


@pytest.mark.parametrize("arguments", [{}, {"x-max-priority": 2}], ids=["plain", "priorities"])
@pytest.mark.parametrize("seed", range(6))
def test_it_is_as_if_all_were_in_memory(tmp_path: Path, seed: int, arguments: dict[str, Any]) -> None:
    """The same history with a disk and without gives every client the same."""
    paged = PagedPlaybook(tmp_path)
    assert history(paged, seed, arguments) == history(Playbook(), seed, arguments)
    paged.close()


def history(playbook: Playbook, seed: int, arguments: dict[str, Any]) -> list[Any]:
    chance = random.Random(seed)
    client, reader = playbook.client(), playbook.client()
    fill(client, 40, 2, **arguments)
    reader >> BasicQos(prefetch_count=4)
    reader << BasicQosOk()
    told: list[Any] = []
    held: list[int] = []
    consuming: set[str] = set()
    for step in range(250):
        act = chance.choice(("publish", "publish", "ack", "ack", "nack", "consume", "cancel", "get", "count"))
        if act == "publish":
            number = chance.randrange(40)
            properties = {"delivery_mode": chance.choice((1, 2)), "priority": chance.randrange(3)}
            client.publishes("q", b"new %d" % step, headers={"n": number}, **properties)
        elif act in ("ack", "nack") and held:
            tag = held.pop(chance.randrange(len(held)))
            settled = (
                BasicAck(delivery_tag=tag) if act == "ack" else BasicNack(delivery_tag=tag, requeue=True)
            )
            reader >> settled
        elif act == "consume" and len(consuming) < 3:
            tag_name = f"c{step}"
            reader.consumes("q", tag_name, arguments={"x-selector": f"n >= {chance.randrange(10, 40)}"})
            consuming.add(tag_name)
        elif act == "cancel" and consuming:
            tag_name = sorted(consuming)[chance.randrange(len(consuming))]
            consuming.remove(tag_name)
            reader >> BasicCancel(consumer_tag=tag_name)
            reader << BasicCancelOk(consumer_tag=tag_name)
        elif act == "get":
            client >> BasicGet(queue="q", no_ack=True)
            found: Any = client.next(1)
            told.append((found.body, found.method.redelivered) if isinstance(found, Carried) else None)
        elif act == "count":
            told.append(playbook.broker.virtual_hosts["/"].queues["q"].message_count())
        new = deliveries(reader)
        held += [tag for tag, _, _ in new]
        told += new
    return told


def test_a_paged_tail_with_holes() -> None:
    tail = PagedTail()
    for entry in range(1, 3 * RUN_ENTRIES + 1):
        tail.push(entry)
    assert tail.take(10) == list(range(1, 11))
    for index in range(RUN_ENTRIES - 10, 2 * RUN_ENTRIES - 10):
        tail.punch(index)
    assert (tail.count, tail.holes) == (2 * RUN_ENTRIES - 10, RUN_ENTRIES)
    assert tail.window(RUN_ENTRIES - 11, 3) == [RUN_ENTRIES, 0, 0]
    assert list(tail) == [*range(11, RUN_ENTRIES + 1), *range(2 * RUN_ENTRIES + 1, 3 * RUN_ENTRIES + 1)]
    assert tail.fill(RUN_ENTRIES - 9, 7)
    assert not tail.fill(RUN_ENTRIES - 9, 8), "it is full again"
    assert not tail.fill(3 * RUN_ENTRIES, 8), "there is no such place"
    assert tail.window(RUN_ENTRIES - 11, 3) == [RUN_ENTRIES, 0, 7]
    tail.put_back([9, 10])
    assert tail.window(RUN_ENTRIES - 9, 3) == [RUN_ENTRIES, 0, 7]
    other = PagedTail()
    for entry in range(1, RUN_ENTRIES + 1):
        other.push(entry)
    for index in range(RUN_ENTRIES):
        other.punch(index)
    assert other.take(2) == [0, 0], "the run of holes that all share was not changed"
    assert (other.count, other.holes) == (0, RUN_ENTRIES - 2)
