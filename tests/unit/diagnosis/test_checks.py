"""Checks of the doctor whose troubles cannot be staged in a moment: from what the broker would say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from flintmq.cli.operating.doctor import (
    TOLD_MAX,
    ChannelSeen,
    ConnectionSeen,
    ConsumerSeen,
    QueueSeen,
    told,
)
from flintmq.diagnosis import checks
from flintmq.diagnosis.checks import Finding
from flintmq.diagnosis.evidence import Evidence, Head, Look

HOUR_MS = 3_600_000
NOW_MS = 100 * HOUR_MS
INFO: dict[str, Any] = {"now-ms": NOW_MS, "memory-bytes": 1, "memory-bytes-high": 2, "disk-bytes": 5}
QUEUE = QueueSeen("q", False, False, 0, 0, 0, 0, 0, 0, 0, 0)
# A row of queue.list.
TOLD: dict[str, Any] = {"name": "q", "durable": True, "type": "classic", "consumers": 0} | dict.fromkeys(
    ("messages-ready", "messages-unacked", "messages-entered"), 0
)
CHANNEL = ChannelSeen(7, 1, 1, 0, True, 0, 0, 0, "")


def evidence(first: Look, last: Look, **more: Any) -> Evidence:
    return Evidence("/", first, last, 2.0, **more)


def queues(**changed: Any) -> Look:
    return Look(INFO, 0, {"q": QUEUE._replace(**changed)})


def died_in(name: str) -> Head:
    return Head(0, {"queue": name, "reason": "rejected", "count": 1}, has_lifetime=False)


def only(found: list[Finding]) -> Finding:
    (finding,) = found
    return finding


def test_a_journal_that_cannot_write() -> None:
    look = Look(
        {**INFO, "alarms": [{"resource": "disk", "reason": "the journal failed: Input/output error"}]}, 0
    )
    finding = only(list(checks.disk(evidence(look, look))))
    assert finding.kind == "journal trouble"
    assert "Input/output error" in finding.seen
    assert "flintmq journal check" in finding.next_step
    assert finding.is_urgent


def test_a_log_that_is_not_in_its_file() -> None:
    why = "the log file cannot be opened again: No such file or directory"
    assert list(checks.log_file(evidence(queues(), queues()))) == []
    look = Look({**INFO, "log-fault": why}, 0)
    finding = only(list(checks.log_file(evidence(look, look))))
    assert (finding.seen, finding.is_urgent) == (why, True)


def test_a_disk_without_room_for_the_journal() -> None:
    reason = "cannot prepare a segment in /data: No space left on device"
    look = Look({**INFO, "alarms": [{"resource": "disk", "reason": reason}]}, 0)
    finding = only(list(checks.disk(evidence(look, look))))
    assert finding.kind == "disk full"
    assert finding.next_step.startswith("make room on the disk")
    assert finding.next_step.endswith("a lower disk_free_bytes_min does not help")
    reason = "/data has 9 octets free, less than the 10 of disk_free_bytes_min"
    look = Look({**INFO, "alarms": [{"resource": "disk", "reason": reason}]}, 0)
    next_step = only(list(checks.disk(evidence(look, look)))).next_step
    assert "flintmq ctl set_disk_free_limit SIZE until the next restart" in next_step
    assert "disk_free_bytes_min in [limits]" in next_step


def test_a_broker_that_uses_too_much_memory() -> None:
    look = queues(ready=1200)
    look.info = {**INFO, "alarms": [{"resource": "memory", "reason": "too much"}]}
    finding = only(list(checks.memory(evidence(look, look))))
    assert finding.next_step.startswith("drain the longest queues: q (1,200); or raise the limit: ")
    assert (
        "flintmq ctl set_vm_memory_high_watermark absolute SIZE until the next restart" in finding.next_step
    )
    assert "memory_high_bytes in [limits]" in finding.next_step
    empty = queues(ready=0)
    empty.info = look.info
    assert only(list(checks.memory(evidence(empty, empty)))).next_step.startswith("raise the limit: ")


def test_a_disk_with_room() -> None:
    look = Look({**INFO, "alarms": [], "disk-bytes-free": 1000, "disk-bytes-free-min": 250}, 0)
    assert list(checks.disk(evidence(look, look))) == []
    look = Look({**INFO, "alarms": [], "disk-bytes-free": 999, "disk-bytes-free-min": 250}, 0)
    assert only(list(checks.disk(evidence(look, look)))).kind == "disk almost full"


def test_consumers_that_take_less_than_comes() -> None:
    def looks(entered: int, ready: int) -> Evidence:
        return evidence(
            queues(consumers=2, entered=100, ready=50), queues(consumers=2, entered=entered, ready=ready)
        )

    # 100 came, and 10 went: 140 wait instead of 50.
    finding = only(list(checks.slow_consumers(looks(200, 140))))
    assert finding.kind == "consumers are too slow"
    assert finding.cause == "100 came in 2.0 s, and 2 consumer(s) took 10"
    assert (finding.object_type, finding.object_name) == ("queue", "q")
    assert list(checks.slow_consumers(looks(200, 60))) == []  # 90 went
    assert list(checks.growth(looks(200, 140))) == []  # there are consumers


def test_a_queue_that_came_between_the_looks_does_not_grow() -> None:
    assert list(checks.growth(evidence(Look(INFO, 0), queues(entered=9, ready=9)))) == []


def test_a_queue_that_was_declared_anew_between_the_looks_counts_from_0() -> None:
    looks = evidence(queues(entered=1000, ready=0), queues(entered=5, ready=3))
    assert (looks.came("q"), looks.went("q")) == (0, 0)
    assert list(checks.growth(looks)) == []
    # 1000 messages waited in the queue before, and none of them has gone.
    looks = evidence(queues(entered=1000, ready=1000), queues(entered=5, ready=3, consumers=1))
    assert (looks.came("q"), looks.went("q")) == (0, 0)
    assert list(checks.slow_consumers(looks)) == []
    # Nobody knows whether its consumer works.
    held = {(7, 1, "tag"): ConsumerSeen(7, 1, "tag", "q", 10, 2)}
    looks.first.consumers = looks.last.consumers = held
    assert list(checks.unacked(looks)) == []


def test_messages_that_wait_for_a_retry_have_not_gone() -> None:
    """A consumer that rejects all it gets has done no work, and is not stuck either."""
    first = queues(consumers=1, entered=100, ready=60, unacked=5, delayed=35, delayed_returns=35)
    last = queues(consumers=1, entered=300, ready=255, unacked=5, delayed=40, delayed_returns=40)
    first.consumers = last.consumers = {(7, 1, "tag"): ConsumerSeen(7, 1, "tag", "q", 10, 5)}
    looks = evidence(first, last)
    assert (looks.came("q"), looks.went("q")) == (200, 0)
    assert list(checks.slow_consumers(looks)) == []
    assert list(checks.unacked(looks)) == []
    assert list(checks.retrying(looks)) == []  # each has failed once
    # While none of them is tried again, the consumer may well hang.
    assert only(list(checks.unacked(evidence(first, first)))).kind == "messages stuck unacked"
    # An older broker tells nothing of them.
    assert QueueSeen.of({**TOLD, "messages-delayed": 3, "messages-delayed-returns": 7}).delayed_returns == 7
    assert QueueSeen.of(TOLD).delayed == 0


def test_messages_that_fail_each_retry() -> None:
    look = queues(consumers=1, entered=50, delayed=40, delayed_returns=180)
    finding = only(list(checks.retrying(evidence(look, look))))
    assert finding.kind == "messages fail each retry"
    assert finding.seen == "40 messages of queue 'q' wait for a retry"
    assert finding.cause.startswith("on the average each has come back 4.5 times")
    assert '"delivery-limit": 20' in finding.next_step
    assert (finding.object_type, finding.object_name) == ("queue", "q")
    few = queues(consumers=1, entered=50, delayed=checks.RETRYING - 1, delayed_returns=1000)
    assert list(checks.retrying(evidence(few, few))) == []


def test_messages_fetched_and_never_acked() -> None:
    fetching = CHANNEL._replace(consumers=0, unacked=1)
    first = Look(INFO, 0, channels={(7, 1): fetching})
    finding = only(list(checks.unacked(evidence(first, first))))
    assert finding.seen == "1 messages are held unacked by channel 1 of connection 7"
    told_by_queue = Look(INFO, 0, channels={(7, 1): fetching._replace(oldest_unacked_queue="reports")})
    finding = only(list(checks.unacked(evidence(first, told_by_queue))))
    assert finding.seen.startswith("1 messages, the oldest of queue 'reports', are held unacked by channel 1")
    # One that works holds another message at each look.
    last = Look(INFO, 0, channels={(7, 1): fetching._replace(acks=50)})
    assert list(checks.unacked(evidence(first, last))) == []


def test_a_consumer_whose_channel_acks_is_not_stuck_while_rows_of_queues_are_old() -> None:
    consumer = ConsumerSeen(7, 1, "worker", "q", 10, 10)
    first = replace(
        queues(entered=100, ready=90, unacked=10, consumers=1),
        channels={(7, 1): CHANNEL},
        consumers={(7, 1, "worker"): consumer},
    )
    last = replace(first, channels={(7, 1): CHANNEL._replace(acks=10)})
    assert list(checks.unacked(evidence(first, last))) == []
    # The acks may be those of another consumer: the queue tells.
    last = replace(first, channels={(7, 1): CHANNEL._replace(acks=10, consumers=2)})
    assert only(list(checks.unacked(evidence(first, last)))).kind == "consumer takes nothing"


def test_acks_of_a_connection_that_is_not_read_from_are_not_missed() -> None:
    look = replace(
        queues(entered=100, ready=90, unacked=10, consumers=1),
        channels={(7, 1): CHANNEL._replace(unacked=12)},
        consumers={(7, 1, "worker"): ConsumerSeen(7, 1, "worker", "q", 10, 10)},
        connections={7: ConnectionSeen(7, "program", "shop", "::1", "")},
    )
    kinds = [finding.kind for finding in checks.unacked(evidence(look, look))]
    assert kinds == ["consumer takes nothing", "messages stuck unacked"]
    look.connections = {7: ConnectionSeen(7, "program", "shop", "::1", "low on memory")}
    assert list(checks.unacked(evidence(look, look))) == []


def test_a_stream_keeps_what_comes_and_does_not_grow() -> None:
    def looks(is_stream: bool) -> Evidence:
        return evidence(
            queues(entered=5, ready=5, is_stream=is_stream), queues(entered=9, ready=9, is_stream=is_stream)
        )

    assert only(list(checks.growth(looks(False)))).kind == "queue grows without a consumer"
    assert list(checks.growth(looks(True))) == []


def test_a_reader_of_a_stream_that_acks_is_not_stuck() -> None:
    """Nothing leaves a stream: that its channel acks says that it works."""
    consumer = ConsumerSeen(7, 1, "reader", "q", 10, 10)
    stream = queues(entered=100, ready=100, is_stream=True, consumers=1)
    first = replace(stream, channels={(7, 1): CHANNEL}, consumers={(7, 1, "reader"): consumer})
    assert only(list(checks.unacked(evidence(first, first)))).kind == "consumer takes nothing"
    last = replace(first, channels={(7, 1): CHANNEL._replace(acks=10)})
    assert list(checks.unacked(evidence(first, last))) == []


def waiting(
    head: Head | None = None, letters: str | None = None, timed: bool = False, **changed: Any
) -> Evidence:
    """Of queue q, with 7 messages of which the first has waited an hour."""
    old = {"entered": 7, "ready": 7, "oldest_ms": NOW_MS - HOUR_MS}
    return evidence(
        queues(**old),
        queues(**{**old, **changed}),
        heads={} if head is None else {"q": head},
        letter_exchanges={} if letters is None else {"q": letters},
        timed={"q"} if timed else set(),
    )


def test_messages_that_nobody_has_come_for_in_an_hour() -> None:
    looks = waiting
    finding = only(list(checks.abandoned(looks())))
    assert finding.kind == "messages wait for nobody"
    assert finding.seen == "7 messages wait in queue 'q', the first for 1 h 0 min"
    assert finding.since_ms == NOW_MS - HOUR_MS
    assert "start its consumer" in finding.next_step
    assert "flintmq peek 'q'" in finding.next_step
    assert "purge" not in finding.next_step  # nobody can tell from here whether the messages are needed
    assert list(checks.abandoned(looks(oldest_ms=NOW_MS - HOUR_MS + 1))) == []
    assert list(checks.abandoned(looks(oldest_ms=0))) == []  # nobody knows
    head = Head(NOW_MS - HOUR_MS, None, has_lifetime=False)
    only(list(checks.abandoned(looks(head, oldest_ms=0))))  # a closer look has told
    assert list(checks.abandoned(looks(consumers=1))) == []
    assert list(checks.abandoned(looks(ready=6))) == []  # somebody takes them
    assert list(checks.abandoned(looks(entered=8, ready=8))) == []  # it grows
    assert list(checks.abandoned(looks(is_stream=True))) == []
    assert list(checks.abandoned(looks(leases=1))) == []  # read in batches, by a pipeline perhaps


def test_messages_of_a_queue_that_delays_them_wait_for_their_time() -> None:
    with_end = Head(0, None, has_lifetime=True)
    assert list(checks.abandoned(waiting(letters="", timed=True))) == []
    assert list(checks.abandoned(waiting(with_end, letters="work"))) == []
    # Here they are lost when their time is over, or never leave.
    only(list(checks.abandoned(waiting(timed=True))))
    only(list(checks.abandoned(waiting(with_end))))
    only(list(checks.abandoned(waiting(letters="work"))))


def test_dead_letters_that_wait_are_told_once() -> None:
    looks = waiting(died_in("jobs"))
    assert list(checks.abandoned(looks)) == []
    assert only(list(checks.dead_letters(looks))).kind == "dead letters pile up"
    looks = waiting(died_in("q"))  # sent back to where it died
    assert only(list(checks.abandoned(looks))).kind == "messages wait for nobody"
    assert list(checks.dead_letters(looks)) == []


def test_dead_letters_that_are_tried_again_later_do_not_pile_up() -> None:
    looks = waiting(died_in("jobs"), letters="work", timed=True)
    assert list(checks.dead_letters(looks)) == []
    assert list(checks.abandoned(looks)) == []


def test_queues_are_looked_into_by_their_length() -> None:
    look = Look(
        INFO,
        0,
        {
            "empty": QUEUE._replace(name="empty"),
            "short": QUEUE._replace(name="short", ready=1),
            "long": QUEUE._replace(name="long", ready=2),
            "read": QUEUE._replace(name="read", ready=1, consumers=1),
            "stream": QUEUE._replace(name="stream", ready=9, is_stream=True),
        },
    )
    assert evidence(look, look).to_peek() == ["read", "long", "short"]
    assert evidence(look, look).to_peek(1) == ["read", "long"]


def test_durable_queues_without_a_disk() -> None:
    look = Look({"alarms": []}, 0, {"q": QUEUE._replace(durable=True), "p": QUEUE})
    finding = only(list(checks.memory_only(evidence(look, look))))
    assert finding.seen.startswith("1 durable queues, such as 'q'")
    assert list(checks.memory_only(evidence(look, Look(INFO, 0, look.queues)))) == []


def test_a_consumer_that_has_stopped_the_flow() -> None:
    stopped = CHANNEL._replace(flowing=False)
    look = Look(INFO, 0, channels={(7, 1): stopped, (7, 2): CHANNEL})
    finding = only(list(checks.stopped_flow(evidence(look, look))))
    assert finding.seen == "channel 1 of connection 7 gets no deliveries"
    assert finding.next_step.endswith("flintmq close 7")
    assert (finding.object_type, finding.object_name) == ("connection", "7")


def test_many_of_a_kind_are_counted() -> None:
    findings = [Finding("blocked publisher", f"connection {n}", "why", "what") for n in range(25)]
    lines = list(told(findings, coloured=False))
    assert len(lines) == 3 * TOLD_MAX + 1
    assert lines[-1] == "and 15 more of blocked publisher; --json has them all"
