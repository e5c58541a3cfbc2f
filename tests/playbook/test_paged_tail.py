"""Messages that lie on disk only: what is still known of them, and how they are looked at."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playbook.dialogue import Carried, Client
from playbook.paged import KEPT_MESSAGES, LOADED_MESSAGES, PagedPlaybook
from playbook.test_services import ask, reply_queue

from flintmq.broker.scheduling.pass_work import HANDED_OUT_MAX
from flintmq.wire.methods import BasicConsume, BasicConsumeOk, BasicGet, BasicNack, ChannelClose


@pytest.fixture
def playbook(tmp_path: Path) -> Iterator[PagedPlaybook]:
    playbook = PagedPlaybook(tmp_path)
    yield playbook
    playbook.end()
    playbook.close()


def age(client: Client, queue: str) -> object:
    return ask(client, "queue.info", queue=queue).get("oldest-age-ms")


@pytest.mark.parametrize("mode", [1, 2])
def test_the_age_of_the_oldest_message(playbook: PagedPlaybook, client: Client, mode: int) -> None:
    reply_queue(client)
    client.declares("q", durable=True)
    assert age(client, "q") is None, "there is none"
    for number in range(12):
        client.publishes("q", b"%d" % number, delivery_mode=mode)
        playbook.passes(1000)
    assert playbook.queue("q").tail.count == 8
    for number in range(12):
        assert age(client, "q") == 12_000 - number * 1000
        assert client.gets("q") == b"%d" % number
    assert age(client, "q") is None


def test_the_age_after_a_restart_is_that_of_before(playbook: PagedPlaybook, client: Client) -> None:
    client.declares("q", durable=True)
    client.publishes("q", b"kept", delivery_mode=2)
    playbook.passes(7000)
    playbook.restart()
    playbook.passes(1000)
    other = playbook.client()
    reply_queue(other)
    assert age(other, "q") == 8000
    assert playbook.queue("q").tail.count == 1, "it was looked at and stayed where it was"


def test_the_oldest_of_all_priorities_counts(playbook: PagedPlaybook, client: Client) -> None:
    reply_queue(client)
    client.declares("q", arguments={"x-max-priority": 5})
    client.publishes("q", b"low", priority=1)
    playbook.passes(3000)
    client.publishes("q", b"high", priority=5)
    playbook.passes(1000)
    assert age(client, "q") == 4000
    assert client.gets("q") == b"high"
    assert age(client, "q") == 4000


def test_how_long_the_oldest_message_lives(playbook: PagedPlaybook, client: Client) -> None:
    """By the expiration that it carries; the time to live of all messages of a queue is told beside it."""

    def told(queue: str) -> tuple[object, object]:
        found = ask(client, "queue.info", queue=queue)
        return found.get("oldest-lifetime-ms"), found.get("message-ttl-ms")

    reply_queue(client)
    client.declares("q", durable=True)
    client.declares("delay", durable=True, arguments={"x-message-ttl": 60_000})
    client.publishes("q", *[b"plain"] * KEPT_MESSAGES, delivery_mode=2)
    client.publishes("q", b"mortal", delivery_mode=2, expiration="5000")
    assert playbook.queue("q").tail.count
    assert told("q") == (None, None)
    assert told("delay") == (None, 60_000)
    for _ in range(KEPT_MESSAGES):
        assert client.gets("q") == b"plain"
    assert told("q") == (5000, None)


def test_a_message_that_came_back_keeps_its_age(playbook: PagedPlaybook, client: Client) -> None:
    reply_queue(client)
    client.declares("q")
    other = playbook.client()
    client.publishes("q", b"m")
    playbook.passes(2000)
    other >> BasicConsume(queue="q", consumer_tag="c")
    other << BasicConsumeOk(consumer_tag="c")
    other.next(1)
    assert age(client, "q") is None, "it is handed out"
    playbook.passes(2000)
    other.session.release()
    assert age(client, "q") == 4000


@pytest.mark.parametrize("mode", [1, 2])
def test_no_local_holds_for_what_was_on_disk(playbook: PagedPlaybook, client: Client, mode: int) -> None:
    other = playbook.client()
    client.declares("q", durable=True)
    for number in range(20):
        (client if number % 2 else other).publishes("q", b"%d" % number, delivery_mode=mode)
    assert playbook.queue("q").tail.count == 16
    client.consumes("q", "mine", no_ack=True, no_local=True)
    assert [found.body for _, found in client.heard()] == [b"%d" % number for number in range(0, 20, 2)]  # type: ignore[attr-defined]
    client.inbox.clear()
    other.consumes("q", "theirs", no_ack=True)
    assert len(other.heard()) == 10
    other.inbox.clear()


def test_after_a_restart_nobody_is_local(playbook: PagedPlaybook, client: Client) -> None:
    client.declares("q", durable=True)
    client.publishes("q", b"of an earlier life", delivery_mode=2)
    playbook.restart()
    other = playbook.client()
    assert other.session.number == 1, "the number that the publisher had"
    other.consumes("q", "c", no_ack=True, no_local=True)
    assert [found.body for _, found in other.heard()] == [b"of an earlier life"]  # type: ignore[attr-defined]
    other.inbox.clear()


def test_a_search_reads_the_paged_tail_and_leaves_it(playbook: PagedPlaybook, client: Client) -> None:
    reply_queue(client)
    client.declares("q")
    for number in range(3000):
        client.publishes("q", b"%d" % number, headers={"n": number})
    paged = playbook.queue("q").tail.count
    found = ask(client, "queue.peek", queue="q", selector="n = 2999")
    assert (found["count"], found["looked-at"], found["more"]) == (0, 2048, True)
    found = ask(client, "queue.peek", queue="q", selector="n = 2999", after=found["last"])
    assert (found["count"], found["looked-at"], found["more"]) == (1, 952, False)
    assert playbook.queue("q").tail.count == paged


def test_a_search_sees_every_priority(playbook: PagedPlaybook, client: Client) -> None:
    reply_queue(client)
    client.declares("q", arguments={"x-max-priority": 3})
    for number in range(30):
        client.publishes("q", b"%d" % number, priority=number % 4, headers={"n": number})
    found = ask(client, "queue.peek", queue="q", selector="n >= 10", limit=8)
    assert (found["count"], found["more"]) == (8, True)
    found = ask(client, "queue.peek", queue="q", selector="n >= 10", after=found["last"])
    assert (found["count"], found["more"]) == (12, False)


@pytest.mark.parametrize("mode", [1, 2])
def test_blind_copies_are_known_of_what_was_on_disk(
    playbook: PagedPlaybook, client: Client, mode: int
) -> None:
    reply_queue(client)
    client.declares("blind", durable=True)
    client.declares("q", durable=True, arguments={"x-dead-letter-exchange": "", "x-max-length": 20})
    for number in range(20):
        client.publishes("q", b"%d" % number, headers={"BCC": ["blind"]}, delivery_mode=mode)
    client.gets_all("blind")
    assert playbook.queue("q").tail.count == 16
    assert ask(client, "queue.peek", queue="q", selector="routing_key = 'q'")["count"] == 20
    other = playbook.client()
    other.consumes("q", "c", no_ack=False)
    deliveries: list[Any] = [found for _, found in other.heard()]
    other.inbox.clear()
    assert {found.method.routing_key for found in deliveries} == {"q"}
    assert [found.body for found in deliveries] == [b"%d" % number for number in range(20)]
    other >> BasicNack(delivery_tag=0, multiple=True, requeue=False)
    assert client.gets_all("blind") == [b"%d" % number for number in range(20)]
    assert len(other.heard()) == 20, "by the routing key they come back to the queue"
    other.inbox.clear()


@pytest.mark.parametrize("mode", [1, 2])
def test_one_that_lives_for_a_moment_is_handed_out_from_the_paged_tail(
    playbook: PagedPlaybook, client: Client, mode: int
) -> None:
    client.declares("q", durable=True)
    backlog = [b"%d" % number for number in range(KEPT_MESSAGES + 2)]
    client.publishes("q", *backlog[:2], delivery_mode=mode)
    client.publishes("q", b"old", delivery_mode=mode, expiration="100")
    client.publishes("q", *backlog[2:], delivery_mode=mode)
    playbook.passes(200)
    assert playbook.queue("q").tail.count
    other = playbook.client()
    with playbook.one_pass():
        other >> BasicConsume(queue="q", consumer_tag="c", no_ack=True)
        client.publishes("q", b"new", delivery_mode=mode, expiration="0")
    other << BasicConsumeOk(consumer_tag="c")
    assert other.bodies() == [*backlog, b"new"]


def test_a_pass_loads_a_portion_of_a_backlog_on_disk(playbook: PagedPlaybook, client: Client) -> None:
    """What lies on disk costs many times as much as what is in memory."""
    count = 2000
    client.declares("q")
    client.publishes("q", *[b"%d" % number for number in range(count)])
    assert playbook.queue("q").tail.count == count - KEPT_MESSAGES
    playbook.broker.finish_pass()
    with playbook.one_pass():
        client >> BasicConsume(queue="q", consumer_tag="c", no_wait=True)
        playbook.broker.finish_pass()
        in_one_pass = len(client.deliveries())
    assert LOADED_MESSAGES < in_one_pass <= HANDED_OUT_MAX // 8
    assert in_one_pass + len(client.deliveries()) == count


@pytest.mark.parametrize("mode", [1, 2])
def test_large_messages_behind_small_ones_are_loaded_in_small_portions(
    playbook: PagedPlaybook, client: Client, mode: int
) -> None:
    """However many messages the size of those before would let in."""
    store = playbook.broker.store
    assert store is not None
    store.loaded_messages = 128
    client.declares("q", durable=True)
    client.publishes("q", *[b"small"] * (KEPT_MESSAGES + 20), *[bytes(300_000)] * 30, delivery_mode=mode)
    for _ in range(KEPT_MESSAGES + 20):
        assert client.gets("q") == b"small"
        assert playbook.queue("q").ready_bytes <= store.kept_bytes_lean
    assert [len(client.gets("q") or b"") for _ in range(30)] == [300_000] * 30


@pytest.mark.parametrize(
    "more", [{"x-max-priority": 5}, {"x-delayed-retry-type": "all", "x-delayed-retry-min": 9000}]
)
def test_values_of_duplicates_are_known_after_a_restart(
    playbook: PagedPlaybook, client: Client, more: dict[str, Any]
) -> None:
    client.declares("q", durable=True, arguments={"x-message-deduplication": True, **more})
    headers = {"x-deduplication-header": "a"}
    client.publishes("q", b"a", headers=headers, delivery_mode=2, priority=3)
    if "x-delayed-retry-type" in more:
        client >> BasicGet(queue="q")
        assert isinstance(client.next(1), Carried)
        client >> BasicNack(delivery_tag=1, requeue=True)
    playbook.restart()
    client = playbook.client()
    client.publishes("q", b"a again", headers=headers, delivery_mode=2, priority=3)
    playbook.passes(10_000)
    playbook.broker.timetable.run()
    assert client.gets_all("q") == [b"a"]


def test_a_file_that_is_away_makes_its_queue_wait_and_nobody_else(
    playbook: PagedPlaybook, client: Client, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    client.declares("q", durable=True)
    sent = [b"%d" % number for number in range(12)]
    client.publishes("q", *sent, delivery_mode=2)
    playbook.restart()
    assert playbook.broker.store is not None
    playbook.broker.store.journal.reader.close()
    files = list(tmp_path.glob("*.segment"))
    for file in files:
        file.rename(file.with_suffix(".away"))
    consuming, asking = playbook.client(), playbook.client()
    consuming >> BasicConsume(queue="q", consumer_tag="c", no_ack=True)
    consuming << BasicConsumeOk(consumer_tag="c")
    for _ in range(5):
        playbook.passes(1000)
        playbook.broker.timetable.run()
        playbook.finish_pass()
    assert not consuming.heard()
    reply_queue(asking)
    assert ask(asking, "queue.info", queue="q")["messages-ready"] == 12
    asking >> BasicGet(queue="q")
    refused = asking.next(1)
    assert isinstance(refused, ChannelClose)
    assert refused.reply_code == 506
    assert "No such file" in refused.reply_text
    for file in files:
        file.with_suffix(".away").rename(file)
    playbook.passes(5000)
    playbook.broker.store.tick()
    for _ in range(3):
        playbook.passes(1000)
        playbook.broker.timetable.run()
        playbook.finish_pass()
    assert [each.body for _, each in consuming.heard() if isinstance(each, Carried)] == sent
    assert [record.levelname for record in caplog.records].count("ERROR") == 1
    consuming.inbox.clear()
