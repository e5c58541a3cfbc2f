"""Checks of the doctor whose troubles cannot be staged in a moment: from what the broker would say."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from flintmq.cli.operating import doctor
from flintmq.cli.operating.doctor import Evidence, Finding, Look
from flintmq.wire.tables import FieldTable, encode_table

INFO: dict[str, Any] = {"now-ms": 0, "memory-bytes": 1, "memory-bytes-high": 2, "disk-bytes": 5}


class Peeked:
    """A connection that finds a message with the same headers at the head of every queue."""

    def __init__(self, headers: FieldTable) -> None:
        self.row = {"headers": encode_table(headers)}

    def browse(self, name: str) -> Any:
        return self

    def peek(self, limit: int, columns: tuple[str, ...]) -> Any:
        return SimpleNamespace(columns=SimpleNamespace(rows=lambda: [self.row]))


def evidence(first: Look, last: Look, headers: FieldTable | None = None) -> Evidence:
    peeked: Any = Peeked(headers or {})
    return Evidence(peeked, first, last, 2.0, guest_gets_in=False)


def died_in(name: str) -> FieldTable:
    return {"x-death": [{"queue": name, "reason": "rejected", "count": 1}]}


def queue(name: str, **changed: Any) -> dict[str, Any]:
    plain = {"name": name, "durable": False, "consumers": 0, "messages-ready": 0, "messages-unacked": 0}
    return {
        **plain,
        "messages-entered": 0,
        **{key.replace("_", "-"): value for key, value in changed.items()},
    }


def only(found: list[Finding]) -> Finding:
    (finding,) = found
    return finding


def test_a_journal_that_cannot_write() -> None:
    look = Look(
        {**INFO, "alarms": [{"resource": "disk", "reason": "the journal failed: Input/output error"}]}, 0
    )
    finding = only(list(doctor.disk(evidence(look, look))))
    assert finding.kind == "journal trouble"
    assert "Input/output error" in finding.seen
    assert "flintmq journal check" in finding.next_step
    assert finding.is_urgent


def test_a_disk_without_room_for_the_journal() -> None:
    reason = "cannot prepare a segment in /data: No space left on device"
    look = Look({**INFO, "alarms": [{"resource": "disk", "reason": reason}]}, 0)
    finding = only(list(doctor.disk(evidence(look, look))))
    assert finding.kind == "disk full"
    assert finding.next_step.startswith("make room on the disk")
    assert finding.next_step.endswith("a lower disk_free_bytes_min does not help")
    reason = "/data has 9 octets free, less than the 10 of disk_free_bytes_min"
    look = Look({**INFO, "alarms": [{"resource": "disk", "reason": reason}]}, 0)
    assert "or lower disk_free_bytes_min" in only(list(doctor.disk(evidence(look, look)))).next_step


def test_a_disk_with_room() -> None:
    look = Look({**INFO, "alarms": [], "disk-bytes-free": 1000, "disk-bytes-free-min": 250}, 0)
    assert list(doctor.disk(evidence(look, look))) == []
    look = Look({**INFO, "alarms": [], "disk-bytes-free": 999, "disk-bytes-free-min": 250}, 0)
    assert only(list(doctor.disk(evidence(look, look)))).kind == "disk almost full"


def test_consumers_that_take_less_than_comes() -> None:
    def looks(entered: int, ready: int) -> Evidence:
        first = Look(INFO, 0, {"q": queue("q", consumers=2, messages_entered=100, messages_ready=50)})
        last = Look(INFO, 0, {"q": queue("q", consumers=2, messages_entered=entered, messages_ready=ready)})
        return evidence(first, last)

    # 100 came, and 10 went: 140 wait instead of 50.
    finding = only(list(doctor.slow_consumers(looks(200, 140))))
    assert finding.kind == "consumers are too slow"
    assert finding.cause == "100 came in 2.0 s, and 2 consumer(s) took 10"
    assert list(doctor.slow_consumers(looks(200, 60))) == []  # 90 went
    assert list(doctor.growth(looks(200, 140))) == []  # there are consumers


def test_a_queue_that_came_between_the_looks_does_not_grow() -> None:
    first, last = Look(INFO, 0), Look(INFO, 0, {"q": queue("q", messages_entered=9, messages_ready=9)})
    assert list(doctor.growth(evidence(first, last))) == []


def waiting(headers: FieldTable | None = None, **changed: Any) -> Evidence:
    """Of queue q, with 7 messages of which the first has waited an hour."""
    old = {"messages_entered": 7, "messages_ready": 7, "oldest_age_ms": 3_600_000, "type": "classic"}
    first = Look(INFO, 0, {"q": queue("q", **old)})
    return evidence(first, Look(INFO, 0, {"q": queue("q", **{**old, **changed})}), headers)


def test_messages_that_nobody_has_come_for_in_an_hour() -> None:
    looks = waiting
    finding = only(list(doctor.abandoned(looks())))
    assert finding.kind == "messages wait for nobody"
    assert finding.seen == "7 messages wait in queue 'q', the first for 1 h 0 min"
    assert "start its consumer" in finding.next_step
    assert "flintmq peek 'q'" in finding.next_step
    assert "purge" not in finding.next_step  # nobody can tell from here whether the messages are needed
    assert list(doctor.abandoned(looks(oldest_age_ms=3_599_999))) == []
    assert list(doctor.abandoned(looks(consumers=1))) == []
    assert list(doctor.abandoned(looks(messages_ready=6))) == []  # somebody takes them
    assert list(doctor.abandoned(looks(messages_entered=8, messages_ready=8))) == []  # it grows
    assert list(doctor.abandoned(looks(type="stream"))) == []
    assert list(doctor.abandoned(looks(leases=1))) == []  # read in batches, by a pipeline perhaps


def test_messages_of_a_queue_that_delays_them_wait_for_their_time() -> None:
    hours_ms = 4 * 3_600_000
    assert list(doctor.abandoned(waiting(dead_letter_exchange="", message_ttl_ms=hours_ms))) == []
    assert list(doctor.abandoned(waiting(dead_letter_exchange="work", oldest_lifetime_ms=hours_ms))) == []
    # Here they are lost when their time is over, or never leave.
    only(list(doctor.abandoned(waiting(message_ttl_ms=hours_ms))))
    only(list(doctor.abandoned(waiting(oldest_lifetime_ms=hours_ms))))
    only(list(doctor.abandoned(waiting(dead_letter_exchange="work"))))


def test_dead_letters_that_wait_are_told_once() -> None:
    looks = waiting(died_in("jobs"))
    assert list(doctor.abandoned(looks)) == []
    assert only(list(doctor.dead_letters(looks))).kind == "dead letters pile up"
    looks = waiting(died_in("q"))  # sent back to where it died
    assert only(list(doctor.abandoned(looks))).kind == "messages wait for nobody"
    assert list(doctor.dead_letters(looks)) == []


def test_dead_letters_that_are_tried_again_later_do_not_pile_up() -> None:
    looks = waiting(died_in("jobs"), dead_letter_exchange="work", message_ttl_ms=4 * 3_600_000)
    assert list(doctor.dead_letters(looks)) == []
    assert list(doctor.abandoned(looks)) == []


def test_durable_queues_without_a_disk() -> None:
    look = Look({"alarms": []}, 0, {"q": queue("q", durable=True), "p": queue("p")})
    finding = only(list(doctor.memory_only(evidence(look, look))))
    assert finding.seen.startswith("1 durable queues, such as 'q'")
    assert list(doctor.memory_only(evidence(look, Look(INFO, 0, look.queues)))) == []


def test_a_consumer_that_has_stopped_the_flow() -> None:
    channel = {"flow": False, "consumers": 1}
    look = Look(INFO, 0, channels={(7, 1): channel, (7, 2): {**channel, "flow": True}})
    finding = only(list(doctor.stopped_flow(evidence(look, look))))
    assert finding.seen == "channel 1 of connection 7 gets no deliveries"
    assert finding.next_step.endswith("flintmq close 7")


def test_many_of_a_kind_are_counted() -> None:
    findings = [Finding("blocked publisher", f"connection {n}", "why", "what") for n in range(25)]
    lines = list(doctor.told(findings, coloured=False))
    assert len(lines) == 3 * doctor.TOLD_MAX + 1
    assert lines[-1] == "and 15 more of blocked publisher; --json has them all"
