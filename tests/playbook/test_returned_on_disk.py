"""What came back, waits for a retry or is leased lies on disk when memory is short, and is as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playbook.dialogue import Carried, Client
from playbook.paged import PagedPlaybook
from playbook.test_services import ask, reply_queue

from flintmq.broker.queues import leases
from flintmq.broker.queues.delivery import Delivery
from flintmq.broker.queues.leases import lease_of
from flintmq.broker.queues.paged_tail import READ_BYTES
from flintmq.broker.queues.queue import Queue
from flintmq.errors import ServiceFault
from flintmq.wire.methods import (
    BasicCancel,
    BasicCancelOk,
    BasicGet,
    BasicNack,
    BasicQos,
    BasicQosOk,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    QueuePurgeOk,
)

BODIES = [b"%d" % number * 1000 for number in range(10)]
RETRY = {"x-delayed-retry-type": "all", "x-delayed-retry-min": 1000, "x-delayed-retry-max": 1000}
EVERYTHING = 1 << 40
# Of what has to be written before it waits, so much is put back at a time (queue.py).
PORTION_BYTES = 1_048_576


@pytest.fixture
def playbook(tmp_path: Path) -> Iterator[PagedPlaybook]:
    playbook = PagedPlaybook(tmp_path)
    yield lean(playbook)
    playbook.end()
    playbook.close()


@pytest.fixture
def client(playbook: PagedPlaybook) -> Client:
    return playbook.client()


def lean(playbook: PagedPlaybook) -> PagedPlaybook:
    """What is in memory goes to disk when it is shed, and not before."""
    assert playbook.broker.store is not None
    playbook.broker.store.kept_messages = 1000
    playbook.broker.store.kept_messages_lean = 0
    playbook.broker.store.kept_bytes_lean = 0
    return playbook


def take_all(client: Client, queue: str) -> None:
    """All are with the client, unacked."""
    client >> BasicQos(prefetch_count=0)
    client << BasicQosOk()
    client.consumes(queue, "holder")
    client.deliveries()


def come_back(client: Client, queue: str, bodies: list[bytes] = BODIES, mode: int = 2, **more: Any) -> None:
    """Messages were handed out, and their consumer went."""
    client.publishes(queue, *bodies, delivery_mode=mode, **more)
    holder = client.playbook.client()
    take_all(holder, queue)
    holder >> BasicCancel(consumer_tag="holder")
    holder << BasicCancelOk(consumer_tag="holder")
    holder >> BasicNack(delivery_tag=0, multiple=True, requeue=True)


def on_disk(playbook: PagedPlaybook, queue: str) -> int:
    """How many of what came back lie on disk only."""
    parts = playbook.queue(queue).parts()
    return sum(delivery.paged is not None for part in parts for delivery in part.returned)


@contextmanager
def away(playbook: PagedPlaybook, directory: Path) -> Iterator[None]:
    """The files of the journal cannot be read."""
    assert playbook.broker.store is not None
    journal = playbook.broker.store.journal
    journal.reader.close()
    files = list(directory.glob("*.segment"))
    for file in files:
        file.rename(file.with_suffix(".away"))
    yield
    for file in files:
        file.with_suffix(".away").rename(file)
    playbook.passes(15_000)
    journal.tick()


def later(playbook: PagedPlaybook, milliseconds: int) -> None:
    playbook.passes(milliseconds)
    playbook.broker.timetable.run()
    playbook.finish_pass()


def seen(client: Client) -> list[tuple[bytes, bool]]:
    found = [each for _, each in client.heard() if isinstance(each, Carried)]
    client.inbox.clear()
    return [(each.body, each.method.redelivered) for each in found]  # type: ignore[attr-defined]


@pytest.mark.parametrize("mode", [1, 2])
@pytest.mark.parametrize("arguments", [{}, {"x-max-priority": 5}, {"x-max-length-bytes": 100_000}])
def test_they_are_handed_out_in_their_order(
    playbook: PagedPlaybook, client: Client, mode: int, arguments: dict[str, Any]
) -> None:
    client.declares("q", durable=True, arguments=arguments)
    come_back(client, "q", mode=mode, priority=3)
    client.publishes("q", b"new", delivery_mode=mode, priority=3)
    assert playbook.queue("q").shed(EVERYTHING) > 10_000
    assert on_disk(playbook, "q") == 10
    assert playbook.queue("q").message_count() == 11
    assert playbook.queue("q").body_bytes() == 10_003
    other = playbook.client()
    other.consumes("q", no_ack=True)
    assert seen(other) == [*((body, True) for body in BODIES), (b"new", False)]
    assert playbook.queue("q").message_count() == 0


def test_an_offer_leaves_what_is_refused_on_disk(playbook: PagedPlaybook, client: Client) -> None:
    client.declares("q", durable=True)
    client.publishes("q", b"even", delivery_mode=2, headers={"kind": "even"})
    come_back(client, "q", [b"odd", b"odd too"], headers={"kind": "odd"})
    playbook.queue("q").shed(EVERYTHING)
    choosy = playbook.client()
    choosy.consumes("q", no_ack=True, arguments={"x-selector": "kind = 'even'"})
    assert seen(choosy) == [(b"even", True)]
    assert (playbook.queue("q").message_count(), on_disk(playbook, "q")) == (2, 2)
    assert client.gets_all("q") == [b"odd", b"odd too"]


def test_they_are_looked_at_where_they_are(playbook: PagedPlaybook, client: Client) -> None:
    client.declares("q", durable=True)
    reply_queue(client)
    come_back(client, "q", headers={"kind": "odd"})
    playbook.passes(5000)
    in_memory = ask(client, "queue.info", queue="q")
    playbook.queue("q").shed(EVERYTHING)
    told = ask(client, "queue.info", queue="q")
    assert told["oldest-age-ms"] == in_memory["oldest-age-ms"] == 5000
    assert ask(client, "queue.peek", queue="q")["count"] == 10
    found = ask(client, "queue.peek", queue="q", selector="kind = 'odd'")
    assert found["count"] == 10
    assert on_disk(playbook, "q") == 10


@pytest.mark.parametrize("arguments", [{}, {"x-max-priority": 5}, {"x-message-deduplication": True}])
def test_a_purge_lets_go_of_them(
    playbook: PagedPlaybook, client: Client, arguments: dict[str, Any], tmp_path: Path
) -> None:
    client.declares("q", durable=True, arguments=arguments)
    headers = {"x-deduplication-header": "a"}
    come_back(client, "q", BODIES[:1], headers=headers)
    playbook.queue("q").shed(EVERYTHING)
    client >> QueuePurge(queue="q")
    client << QueuePurgeOk(message_count=1)
    client.publishes("q", b"again", delivery_mode=2, headers=headers)
    assert playbook.queue("q").message_count() == 1
    playbook.finish_pass()
    playbook.restart()
    assert playbook.client().gets_all("q") == [b"again"]


def test_a_queue_that_goes_lets_go_of_them(playbook: PagedPlaybook, client: Client) -> None:
    client.declares("q", durable=True)
    come_back(client, "q")
    playbook.queue("q").shed(EVERYTHING)
    client >> QueueDelete(queue="q")
    client << QueueDeleteOk(message_count=10)
    playbook.finish_pass()
    assert playbook.broker.store is not None
    assert not playbook.broker.store.journal.index.entries


def test_expired_ones_die_from_there(playbook: PagedPlaybook, client: Client) -> None:
    client.declares("graves")
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "graves", "x-message-ttl": 1000}
    client.declares("q", durable=True, arguments=dead)
    come_back(client, "q")
    playbook.queue("q").shed(EVERYTHING)
    later(playbook, 1001)
    assert client.gets_all("graves") == BODIES


def test_one_that_the_disk_has_lost_is_counted_and_skipped(
    playbook: PagedPlaybook, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.declares("q", durable=True, arguments={"x-max-length-bytes": 100_000})
    come_back(client, "q")
    queue = playbook.queue("q")
    queue.shed(EVERYTHING)
    lost: Delivery = queue.returned[-3]
    assert lost.paged is not None
    assert playbook.broker.store is not None
    playbook.broker.store.journal.append_settle(queue.number, lost.paged.entry // 2)
    assert client.gets_all("q") == BODIES[:2] + BODIES[3:]
    assert queue.tally is not None
    assert queue.tally.lost == 1
    assert queue.rules is not None
    assert queue.rules.limits is not None
    assert queue.rules.limits.body_bytes == 0


@pytest.mark.parametrize("mode", [1, 2])
@pytest.mark.parametrize("more", [{}, {"x-max-priority": 5}])
def test_what_waits_for_a_retry_lies_on_disk(
    playbook: PagedPlaybook, client: Client, mode: int, more: dict[str, Any]
) -> None:
    client.declares("q", durable=True, arguments={**RETRY, **more})
    come_back(client, "q", mode=mode, priority=3)
    rules = playbook.queue("q").rules
    assert rules is not None
    assert rules.retries is not None
    assert [delivery.message for _, _, delivery in rules.retries.waiting] == [None] * 10
    later(playbook, 1000)
    assert playbook.queue("q").message_count() == 10
    assert on_disk(playbook, "q") == 10
    client.consumes("q", no_ack=True)
    assert seen(client) == [(body, True) for body in BODIES]


def test_it_lies_there_after_a_restart(playbook: PagedPlaybook, client: Client) -> None:
    client.declares("q", durable=True, arguments={**RETRY, "x-max-length-bytes": 100_000})
    come_back(client, "q")
    playbook.restart()
    rules = playbook.queue("q").rules
    assert rules is not None
    assert rules.retries is not None
    assert [delivery.message for _, _, delivery in rules.retries.waiting] == [None] * 10
    later(playbook, 1000)
    client = playbook.client()
    assert client.gets_all("q") == BODIES
    assert rules.limits is not None
    assert rules.limits.body_bytes == 0


def test_many_become_ready_in_portions(playbook: PagedPlaybook, client: Client) -> None:
    client.declares("q", durable=True, arguments=RETRY)
    come_back(client, "q", [b"%d" % number for number in range(5000)], mode=1)
    counts = []
    playbook.clock.now_s += 1
    for _ in range(3):
        later(playbook, 2)
        counts.append(playbook.queue("q").message_count())
    assert counts == [2048, 4096, 5000]


def test_consumers_get_no_more_while_memory_is_short_and_very_many_wait(
    playbook: PagedPlaybook, client: Client
) -> None:
    client.declares(
        "q", durable=True, arguments={**RETRY, "x-delayed-retry-min": 9000, "x-delayed-retry-max": 9000}
    )
    bodies = [b"%d" % number for number in range(20_000)]
    come_back(client, "q", bodies, mode=1)
    client.publishes("q", b"new")
    playbook.broker.pass_work.is_short = True
    client.consumes("q", no_ack=True)
    client.hears_nothing()
    playbook.broker.pass_work.is_short = False
    later(playbook, 999)
    client.hears_nothing()
    later(playbook, 1)
    assert seen(client)[0] == (b"new", False)


def lease(client: Client, **more: Any) -> dict[str, Any]:
    return dict(ask(client, "queue.lease", queue="q", consumer="me", claim=True, **more))


@pytest.mark.parametrize(("durable", "mode", "portions"), [(True, 1, 6), (False, 2, 6), (True, 2, 1)])
def test_what_has_to_be_written_first_waits_in_portions(
    playbook: PagedPlaybook, client: Client, durable: bool, mode: int, portions: int
) -> None:
    """A client may hold a gigabyte, and everybody would wait until all of it is copied."""
    client.declares("q", durable=durable, arguments=RETRY)
    queue = playbook.queue("q")
    bodies = [bytes([number]) * PORTION_BYTES for number in range(6)]
    for body in bodies:
        client.publishes("q", body, delivery_mode=mode)
    deliveries = [delivery for _ in bodies if (delivery := queue.take()) is not None]
    queue.take_out(6)
    ends = [0]
    while ends[-1] < len(deliveries):
        ends.append(queue.returned_together(deliveries, ends[-1]))
    assert len(ends) - 1 == portions
    queue.requeue(deliveries)
    playbook.finish_pass()
    assert (queue.waiting_count(), queue.unacked) == (6, 0)
    later(playbook, 1001)
    assert client.gets_all("q") == bodies


@pytest.mark.parametrize("mode", [1, 2])
@pytest.mark.parametrize("arguments", [{}, {"x-max-priority": 5}, {"x-message-deduplication": True}])
def test_what_is_leased_is_read_from_disk(
    playbook: PagedPlaybook, client: Client, mode: int, arguments: dict[str, Any]
) -> None:
    client.declares("q", durable=True, arguments=arguments)
    reply_queue(client)
    for number, body in enumerate(BODIES):
        headers = {"x-deduplication-header": str(number)}
        client.publishes("q", body, delivery_mode=mode, priority=3, headers=headers)
    granted = lease(client)
    queue = playbook.queue("q")
    assert queue.shed(EVERYTHING) >= granted["octets"]
    assert queue.leases is not None
    leased = queue.leases["me"]
    assert (leased.kept_bytes, leased.held_bytes) == (0, granted["octets"])
    assert all(delivery.message is None for delivery in leased.deliveries)
    again = lease(client)
    assert again["octets"] == granted["octets"]
    held = {"queue": "q", "consumer": "me", "epoch": again["epoch"]}
    assert ask(client, "lease.read", **held)["count"] == 10
    part = ask(client, "lease.content", number=3, **held)
    assert part["size"] == len(BODIES[2])
    assert ask(client, "lease.ack", through=4, **held)["acked"] == 4
    assert leased.held_bytes == granted["octets"] * 6 // 10
    assert ask(client, "lease.release", **held)["returned"] == 6
    assert (leased.held_bytes, leased.kept_bytes) == (0, 0)
    assert client.gets_all("q") == BODIES[4:]
    assert queue.unacked == 0


def test_a_large_lease_is_taken_to_disk(playbook: PagedPlaybook, client: Client) -> None:
    client.declares("q", durable=True)
    reply_queue(client)
    client.publishes("q", *BODIES, delivery_mode=2)
    assert playbook.broker.store is not None
    playbook.broker.store.kept_bytes = 5000
    lease(client)
    leases = playbook.queue("q").leases
    assert leases is not None
    assert leases["me"].kept_bytes <= 5000
    assert leases["me"].held_bytes > 10_000


@pytest.mark.parametrize("arguments", [{}, {"x-max-priority": 5}])
def test_a_start_leaves_what_is_leased_on_disk(
    playbook: PagedPlaybook, client: Client, arguments: dict[str, Any]
) -> None:
    client.declares("q", durable=True, arguments=arguments)
    reply_queue(client)
    client.publishes("q", b"held", delivery_mode=2, priority=1)
    holder = playbook.client()
    holder >> BasicGet(queue="q")
    assert isinstance(holder.next(1), Carried)
    client.publishes("q", *BODIES[:3], delivery_mode=2, priority=1)
    lease(client, timeout_ms=60_000)
    client.publishes("q", b"behind", delivery_mode=2, priority=1)
    client.publishes("q", *[b"first"] * 3, delivery_mode=2, priority=5)
    holder >> BasicNack(delivery_tag=1, requeue=True)
    playbook.restart()
    queue = playbook.queue("q")
    assert queue.leases is not None
    leased = queue.leases["me"]
    assert [delivery.message for delivery in leased.deliveries] == [None] * 3
    assert sum(part.ready.count + len(part.returned) for part in queue.parts()) == 0, "nothing was loaded"
    assert (queue.message_count(), queue.unacked) == (5, 3)
    client = playbook.client()
    reply_queue(client)
    held = lease(client)
    assert (held["first"], held["last"]) == (1, 3)
    ask(client, "lease.release", queue="q", consumer="me", epoch=held["epoch"])
    ranked = [b"first"] * 3
    plain = [b"held", *BODIES[:3], b"behind"]
    assert client.gets_all("q") == (ranked + plain if arguments else plain + ranked)


def test_a_message_that_came_back_too_often_and_cannot_be_read_stays(
    playbook: PagedPlaybook, client: Client, tmp_path: Path
) -> None:
    """It dies when it comes back the next time."""
    client.declares("graves", durable=True)
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "graves", "x-delivery-limit": 0}
    client.declares("q", durable=True, arguments=dead)
    reply_queue(client)
    client.publishes("q", *BODIES, delivery_mode=2)
    lease(client)
    playbook.restart()
    queue = playbook.queue("q")
    client = playbook.client()
    reply_queue(client)
    held = lease(client)
    with away(playbook, tmp_path):
        ask(client, "lease.release", queue="q", consumer="me", epoch=held["epoch"])
        assert queue.message_count() == 10
    again = lease(client)
    ask(client, "lease.release", queue="q", consumer="me", epoch=again["epoch"])
    playbook.finish_pass()
    assert client.gets_all("graves") == BODIES


def test_a_queue_goes_though_what_is_leased_of_it_cannot_be_read(
    playbook: PagedPlaybook, client: Client, tmp_path: Path
) -> None:
    client.declares("q", durable=True, arguments={"x-message-deduplication": True})
    client.binds("q", "amq.topic", "a.*")
    reply_queue(client)
    client.publishes("q", *BODIES, delivery_mode=2)
    lease(client)
    playbook.restart()
    client = playbook.client()
    with away(playbook, tmp_path):
        client >> QueueDelete(queue="q")
        client << QueueDeleteOk(message_count=0)
        playbook.finish_pass()
    host = playbook.broker.virtual_hosts["/"]
    assert (host.falling.count, host.binding_count) == (0, 0)
    assert playbook.broker.store is not None
    assert not playbook.broker.store.journal.index.entries


def lose(playbook: PagedPlaybook, deliveries: list[Delivery]) -> None:
    """The disk has these no longer."""
    assert playbook.broker.store is not None
    for delivery in deliveries:
        playbook.broker.store.journal.append_settle(delivery.queue.number, delivery.entry() // 2)


def test_very_many_that_are_lost_are_skipped(playbook: PagedPlaybook, client: Client) -> None:
    client.declares("q", durable=True, arguments={"x-max-in-memory-length": 1})
    come_back(client, "q", [b"%d" % number for number in range(1500)])
    queue = playbook.queue("q")
    queue.shed(EVERYTHING)
    lose(playbook, queue.returned[1:])
    assert client.gets_all("q") == [b"1499"]


def test_a_reader_gets_past_what_is_lost(playbook: PagedPlaybook, client: Client) -> None:
    client.declares("q", durable=True)
    reply_queue(client)
    client.publishes("q", *BODIES, delivery_mode=2)
    held = lease(client)
    queue = playbook.queue("q")
    queue.shed(EVERYTHING)
    assert queue.leases is not None
    lose(playbook, list(queue.leases["me"].deliveries)[8:])
    found = ask(client, "lease.read", queue="q", consumer="me", epoch=held["epoch"])
    assert (found["count"], found["last"]) == (8, 10)


def test_what_a_reader_did_not_get_has_not_come_back(
    playbook: PagedPlaybook, client: Client, tmp_path: Path
) -> None:
    """A reader that asks again and again while the disk does not answer kills no message."""
    assert playbook.broker.store is not None
    playbook.broker.store.kept_messages = 4
    client.declares("q", durable=True, arguments={"x-delivery-limit": 1})
    reply_queue(client)
    client.publishes("q", *BODIES, delivery_mode=2)
    playbook.broker.store.journal.commit_now()
    epochs = []
    with away(playbook, tmp_path):
        for _ in range(5):
            granted = lease(client)
            epochs.append(granted["epoch"])
            assert (granted["first"], granted["last"]) == (1, 4)
        assert playbook.queue("q").message_count() == 6
    held = lease(client, start=4)
    assert (held["first"], held["last"]) == (5, 10)
    assert ask(client, "lease.release", queue="q", consumer="me", epoch=held["epoch"])["returned"] == 10
    assert client.gets_all("q") == BODIES


def test_what_was_taken_for_a_reader_that_has_lost_its_lease_has_not_come_back(
    playbook: PagedPlaybook, client: Client
) -> None:
    bodies = [b"%d" % number for number in range(5000)]
    client.declares("q", durable=True, arguments={"x-delivery-limit": 0})
    client.publishes("q", *bodies, delivery_mode=2)
    queue = playbook.queue("q")
    leased = lease_of(queue, "me", 1000)
    taking = leased.grant(0, len(bodies), EVERYTHING)
    for _ in range(3):
        next(taking)
    leased.claim()
    with pytest.raises(ServiceFault):
        next(taking)
    playbook.finish_pass()
    assert (queue.message_count(), queue.unacked) == (5000, 0)
    assert client.gets_all("q") == bodies


def test_what_is_on_disk_already_is_not_looked_at_again(
    playbook: PagedPlaybook, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lease may have millions of messages, and each step of shedding finds those in memory at once."""
    client.declares("q", durable=True)
    client.publishes("q", *[b"%d" % number for number in range(3000)], delivery_mode=2)
    assert playbook.broker.store is not None
    playbook.broker.store.kept_messages = 10_000
    leased = lease_of(playbook.queue("q"), "me", 1000)
    for grant in range(2):
        playbook.broker.store.kept_bytes = 0 if grant else EVERYTHING
        for _ in leased.grant(leased.last, 1500, EVERYTHING):
            pass
    assert [len(leased.kept), len(leased.deliveries)] == [1500, 3000]
    looked_at: list[Delivery] = []
    page_out = leases.page_out

    def counted(queue: Queue, deliveries: list[Delivery]) -> int:
        looked_at.extend(deliveries)
        return page_out(queue, deliveries)

    monkeypatch.setattr(leases, "page_out", counted)
    for _ in leased.ack(500):
        pass
    while leased.shed(0, 1000):
        pass
    assert len(looked_at) == 1000
    assert (leased.kept_bytes, len(leased.kept)) == (0, 0)
    assert all(delivery.message is None for delivery in leased.deliveries)


def test_an_ack_reads_little_from_disk_at_a_time(playbook: PagedPlaybook, client: Client) -> None:
    """Of a queue without duplicates, whose values are in the messages."""
    client.declares("q", durable=True, arguments={"x-message-deduplication": True})
    reply_queue(client)
    body = bytes(READ_BYTES // 2)
    for number in range(6):
        client.publishes("q", body, delivery_mode=2, headers={"x-deduplication-header": str(number)})
    queue = playbook.queue("q")
    lease(client)
    queue.shed(EVERYTHING)
    assert queue.leases is not None
    leased = queue.leases["me"]
    steps = [len(leased.deliveries) for _ in leased.ack(6)]
    assert steps == [5, 4, 3, 2, 1]
    assert (leased.held_bytes, queue.unacked) == (0, 0)
    client.publishes("q", b"again", delivery_mode=2, headers={"x-deduplication-header": "3"})
    assert client.gets_all("q") == [b"again"]
