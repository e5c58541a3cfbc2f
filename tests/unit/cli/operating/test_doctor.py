"""Checks of the doctor whose troubles cannot be staged in a moment: from what the broker would say."""

from __future__ import annotations

from typing import Any

from flintmq.cli.operating import doctor
from flintmq.cli.operating.doctor import Evidence, Finding, Look

INFO: dict[str, Any] = {"now-ms": 0, "memory-bytes": 1, "memory-bytes-high": 2, "disk-bytes": 5}


def evidence(first: Look, last: Look) -> Evidence:
    nobody: Any = None
    return Evidence(nobody, first, last, 2.0, guest_gets_in=False)


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
