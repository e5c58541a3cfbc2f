"""A queue by itself: what it counts, and when it asks publishers to pause."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playbook.dialogue import Playbook
from playbook.paged import PagedPlaybook

from flintmq.wire.methods import (
    BasicAck,
    BasicCancel,
    BasicConsume,
    BasicGet,
    BasicNack,
    QueueDeclare,
    QueuePurge,
)

# As in queue.py, whose numbers are C's own in the compiled build.
CONGESTED_MESSAGES = 16_384
CONGESTED_BYTES = 4_194_304
# As in pass_work.py.
EARLY_MAX = 8192


def test_its_counts_follow_the_messages() -> None:
    playbook = Playbook()
    client = playbook.client()
    client.declares("q")
    queue = playbook.broker.virtual_hosts["/"].queues["q"]

    def counts() -> tuple[int, int, int]:
        return queue.message_count(), queue.unacked, len(queue.returned)

    client.publishes("q", b"1", b"2", b"3")
    assert counts() == (3, 0, 0)
    assert queue.ready_bytes == 3 * 15  # a header of 14 octets and a body of one
    for _ in range(2):
        client >> BasicGet(queue="q")
        client.next(1)
    assert counts() == (1, 2, 0)
    client >> BasicNack(delivery_tag=0, multiple=True, requeue=True)
    assert counts() == (3, 0, 2)
    client >> BasicGet(queue="q")
    client.next(1)
    client >> BasicAck(delivery_tag=3)
    assert counts() == (2, 0, 1)
    client >> QueuePurge(queue="q", no_wait=True)
    assert counts() == (0, 0, 0)
    assert queue.ready_bytes == 0


def test_what_many_consumers_had_in_turn_comes_back_in_order() -> None:
    """Each gives back many that belong between those of the others."""
    playbook = Playbook()
    readers = [playbook.client() for _ in range(20)]
    readers[0].declares("q")
    for reader in readers:
        reader.consumes("q")
    bodies = [b"%d" % number for number in range(2000)]
    readers[0].publishes("q", *bodies)
    for reader in readers:
        reader >> BasicCancel(consumer_tag="c", no_wait=True)
    for reader in readers:
        reader >> BasicNack(delivery_tag=0, multiple=True, requeue=True)
    queue = playbook.broker.virtual_hosts["/"].queues["q"]
    assert [delivery.position for delivery in reversed(queue.returned)] == list(range(2000))


def test_who_counts_a_long_queue_waits_for_a_part_of_it_to_be_handed_out() -> None:
    """A hundred consumers might come in one read, and each of them could take thousands of messages."""
    playbook = Playbook()
    client, *readers = [playbook.client() for _ in range(4)]
    client.declares("q")
    client.publishes("q", *[b"x"] * 12_000)
    queue = playbook.broker.virtual_hosts["/"].queues["q"]
    with playbook.one_pass():
        for reader in readers:
            reader >> BasicConsume(queue="q", consumer_tag="c", no_ack=True, no_wait=True)
        for _ in range(3):
            client >> QueueDeclare(queue="q", passive=True)
            assert queue.message_count() == 12_000 - EARLY_MAX, "the rest is for the pass"
    playbook.finish_pass()
    assert queue.message_count() < 12_000 - EARLY_MAX


def pressed_after(bodies: int, size: int) -> bool:
    """Whether one more publish asks for a pause, with a consumer that does not keep up."""
    playbook = Playbook()
    client, reader = playbook.client(), playbook.client()
    client.declares("q")
    reader.consumes("q", no_ack=True)
    pass_work = playbook.broker.pass_work
    with playbook.one_pass():
        client.publishes("q", *(b"x" * size,) * bodies)
    assert not pass_work.pressed
    client.publishes("q", b"x")
    pressed, pass_work.pressed = pass_work.pressed, False
    client.publishes("q", b"x")
    assert not pass_work.pressed, "once for each time that something was handed out"
    return pressed


def test_a_long_queue_that_is_drained_presses_its_publishers() -> None:
    assert pressed_after(CONGESTED_MESSAGES + 8000, 10)
    assert pressed_after(CONGESTED_BYTES // 100_000 + 10, 100_000)
    assert not pressed_after(CONGESTED_BYTES // 100_000 - 10, 100_000)


def test_a_queue_that_nobody_drains_presses_nobody() -> None:
    playbook = Playbook()
    client = playbook.client()
    client.declares("q")
    client.publishes("q", *(b"x" * 100_000,) * (CONGESTED_BYTES // 100_000 + 10))
    client.publishes("q", b"x")
    assert not playbook.broker.pass_work.pressed


@pytest.mark.parametrize("arguments", [{}, {"x-max-length": 1_000_000}, {"x-max-priority": 3}])
def test_a_queue_that_is_drained_from_disk_has_its_publishers_pause(tmp_path: Path, arguments: Any) -> None:
    playbook = PagedPlaybook(tmp_path, sync="never")
    client, reader = playbook.client(), playbook.client()
    client.declares("q", arguments=arguments)
    client.publishes("q", *(b"x",) * 3000)
    pass_work = playbook.broker.pass_work
    assert not pass_work.drained, "nobody drains it"
    with playbook.one_pass():
        reader.consumes("q", no_ack=True)
        playbook.broker.finish_pass()
        client.publishes("q", b"x")
        drained, pass_work.drained = pass_work.drained, False
        client.publishes("q", b"x")
    assert playbook.queue("q").message_count() == 0
    assert drained
    assert not pass_work.drained, "once for each time that something was handed out"
    client.publishes("q", b"x")
    assert not pass_work.drained, "nothing of it is on disk"
    assert len(reader.bodies()) == 3003
    playbook.close()
