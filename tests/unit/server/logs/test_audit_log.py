"""The audit log: what is in its lines, what never is, and what a full disk or a storm does to it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from playbook.dialogue import Client, carrying
from playbook.hourglass import TimedPlaybook
from playbook.test_administration import ask, listening

from flintmq.broker.administration.changes import Change
from flintmq.clock import Clock
from flintmq.config import Audit, parse
from flintmq.errors import ConfigFault
from flintmq.server.logs.audit_log import (
    ACCESS,
    ADMINISTRATION,
    LINES_WAITING_MAX,
    LOGIN,
    SOURCES_MAX,
    WINDOW_LINES,
    WINDOW_S,
    AuditLog,
)
from flintmq.wire.methods import (
    BasicPublish,
    ChannelClose,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    QueuePurgeOk,
)

SECRET = "a-long-pass-word"


class StandingClock(Clock):
    def __init__(self) -> None:
        super().__init__()
        self.now_s = 100.0

    def monotonic_s(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> StandingClock:
    return StandingClock()


@pytest.fixture
def audit(tmp_path: Path, clock: StandingClock) -> Iterator[AuditLog]:
    audit = AuditLog(Audit(file=tmp_path / "audit.log"), clock)
    yield audit
    audit.close()


def lines(audit: AuditLog) -> list[dict[str, Any]]:
    """All that was written, when the writer is done."""
    audit.close()
    return [json.loads(line) for line in audit.file.path.read_text().splitlines()]


def eventually(is_so: Callable[[], bool]) -> None:
    until_s = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < until_s
        time.sleep(0.005)


def test_a_line_says_who_from_where_what_and_whether_it_was_allowed(audit: AuditLog) -> None:
    audit.note(ACCESS, "operation", False, "ann", "10.0.0.1", 7, "shop", reason="may not write")
    (line,) = lines(audit)
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "event": "operation",
        "outcome": "refused",
        "user": "ann",
        "address": "10.0.0.1",
        "connection": 7,
        "virtual_host": "shop",
        "reason": "may not write",
    }
    assert audit.file.path.stat().st_mode & 0o777 == 0o640


def test_events_can_be_chosen(tmp_path: Path, clock: StandingClock) -> None:
    audit = AuditLog(Audit(file=tmp_path / "audit.log", events=("login",)), clock)
    audit.note(ACCESS, "operation", False)
    audit.note(LOGIN, "login", True)
    assert [line["event"] for line in lines(audit)] == ["login"]


def test_the_same_refusal_is_written_once_and_counted(audit: AuditLog, clock: StandingClock) -> None:
    for _ in range(10_000):
        audit.note(ACCESS, "operation", False, "ann", "10.0.0.1", reason="may not write")
    clock.now_s += WINDOW_S
    audit.tick()
    first, counted = lines(audit)
    assert "count" not in first
    assert (counted["count"], counted["repeated"]) == (9999, True)


def test_refusals_that_differ_are_counted_beyond_some(audit: AuditLog, clock: StandingClock) -> None:
    for number in range(10_000):
        audit.note(ADMINISTRATION, "user.add", False, "ann", "10.0.0.1", reason=f"no {number}")
    audit.note(ACCESS, "operation", False, "bob", "10.0.0.1", reason="another source")
    clock.now_s += WINDOW_S
    audit.tick()
    found = lines(audit)
    assert len(found) == WINDOW_LINES + 2
    assert found[-1]["count"] == 10_000 - WINDOW_LINES
    assert found[-2]["user"] == "bob"


def test_sources_without_end_take_little_memory(audit: AuditLog, clock: StandingClock) -> None:
    for number in range(2 * SOURCES_MAX):
        audit.note(LOGIN, "login", False, f"user{number}", reason="no user")
    assert len(audit.windows) == SOURCES_MAX + 1
    clock.now_s += WINDOW_S
    audit.tick()
    assert not audit.windows
    assert lines(audit)[-1]["count"] == SOURCES_MAX - 1


def test_changes_are_all_written(audit: AuditLog) -> None:
    for _ in range(100):
        audit.changed(Change("user.add", "ann", "10.0.0.1", 7, "/", {"user": "bob", "tags": ["a"]}))
    found = lines(audit)
    assert len(found) == 100
    assert found[0]["arguments"] == {"user": "bob", "tags": "['a']"}


def test_a_full_file_is_set_aside(tmp_path: Path, clock: StandingClock) -> None:
    file = tmp_path / "audit.log"
    audit = AuditLog(Audit(file=file, rotate_bytes=1000, rotate_count=2), clock)
    for number in range(40):
        audit.note(ADMINISTRATION, f"change.{number}", True)
    audit.close()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["audit.log", "audit.log.1", "audit.log.2"]
    assert all(each.stat().st_size <= 1000 for each in tmp_path.iterdir())
    assert json.loads(file.read_text().splitlines()[-1])["event"] == "change.39"


def test_a_file_that_was_moved_away_is_opened_again(audit: AuditLog) -> None:
    audit.note(ADMINISTRATION, "before", True)
    path = audit.file.path
    eventually(lambda: "before" in path.read_text())
    moved = path.with_name("moved")
    os.replace(path, moved)
    audit.reopen()
    eventually(path.exists)
    audit.note(ADMINISTRATION, "after", True)
    assert [line["event"] for line in lines(audit)] == ["after"]
    assert "before" in moved.read_text()


def test_a_full_disk_loses_lines_and_says_so(
    audit: AuditLog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(text: str) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(audit.file, "write", full)
        for number in range(3):
            audit.note(ADMINISTRATION, f"lost.{number}", True)
        eventually(lambda: audit.lost == 3)
    assert caplog.text.count("cannot be written") == 1
    audit.note(ADMINISTRATION, "written", True)
    told, written = lines(audit)
    assert (told["event"], told["count"]) == ("audit.lost", 3)
    assert written["event"] == "written"


def test_what_waits_for_a_disk_that_hangs_is_bounded(audit: AuditLog) -> None:
    audit.wake.set = lambda: None  # type: ignore[method-assign]
    for _ in range(LINES_WAITING_MAX + 5):
        audit.note(ADMINISTRATION, "change", True)
    assert len(audit.waiting) == LINES_WAITING_MAX
    assert audit.lost == 5
    del audit.wake.set  # type: ignore[method-assign]


def test_a_file_that_cannot_be_written_is_a_fault_of_the_settings(
    tmp_path: Path, clock: StandingClock
) -> None:
    with pytest.raises(ConfigFault, match=r"audit\.file"):
        AuditLog(Audit(file=tmp_path / "no" / "audit.log"), clock)


TEXTS = st.text(st.characters(exclude_categories=()), max_size=40)


@given(TEXTS, TEXTS, TEXTS, st.dictionaries(TEXTS, TEXTS | st.binary(max_size=9) | st.none(), max_size=3))
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_control_code_gets_into_a_line(
    audit: AuditLog, user: str, subject: str, reason: str, arguments: dict[str, Any]
) -> None:
    audit.waiting.clear()
    audit.wake.set = lambda: None  # type: ignore[method-assign]
    audit.windows.clear()
    audit.note(ACCESS, "operation", False, user, subject, reason=reason, subject=subject)
    audit.changed(Change("policy.set", user, arguments=arguments))
    for text in audit.waiting:
        assert text.endswith("\n")
        assert text[:-1].isprintable()
        assert text.isascii()
        assert json.loads(text)["user"] == user
    assert len(audit.waiting) == 2
    audit.waiting.clear()
    del audit.wake.set  # type: ignore[method-assign]


# What the broker notes


@pytest.fixture
def playbook() -> Iterator[TimedPlaybook]:
    playbook = TimedPlaybook()
    yield playbook
    playbook.end()


@pytest.fixture
def boss(playbook: TimedPlaybook, audit: AuditLog) -> Client:
    broker = playbook.broker
    broker.audit = audit
    broker.administration.changes.observers.append(audit.changed)
    return listening(playbook.client())


def told(audit: AuditLog) -> list[tuple[str, str, str]]:
    return [(line["event"], line["outcome"], line["user"]) for line in lines(audit)]


def test_logins_are_noted(playbook: TimedPlaybook, boss: Client, audit: AuditLog) -> None:
    stranger = playbook.stranger(address="10.1.2.3")
    stranger.greet()
    stranger.log_in(user="ann", password=SECRET)
    found = lines(audit)
    assert [(line["event"], line["outcome"]) for line in found] == [
        ("login", "allowed"),
        ("connection.open", "allowed"),
        ("login", "refused"),
    ]
    assert found[1]["virtual_host"] == "/"
    assert found[2]["address"] == "10.1.2.3"
    assert "'ann'" in found[2]["reason"]
    assert SECRET not in json.dumps(found)


def test_administration_is_noted_without_secrets(boss: Client, audit: AuditLog) -> None:
    ask(boss, "user.add", user="ann", password=SECRET)
    ask(boss, "user.add", user="ann", password=SECRET)
    ask(boss, "parameter.set", component="c", name="n", value={"uri": SECRET}, virtual_host="/")
    ask(boss, "vhost.add", virtual_host="shop")
    found = lines(audit)
    assert [(line["event"], line["outcome"]) for line in found[2:]] == [
        ("user.add", "allowed"),
        ("user.add", "refused"),
        ("parameter.set", "allowed"),
        ("vhost.add", "allowed"),
    ]
    assert found[-1]["arguments"] == {"virtual-host": "shop"}
    assert SECRET not in json.dumps(found)


def test_refusals_and_deletions_are_noted(playbook: TimedPlaybook, boss: Client, audit: AuditLog) -> None:
    ask(boss, "user.add", user="ann", password=SECRET)
    ask(boss, "permission.set", user="ann", virtual_host="/", configure="^a", write="", read="")
    boss.declares("q")
    boss >> QueuePurge(queue="q") << QueuePurgeOk(message_count=0)
    boss >> QueueDelete(queue="q") << QueueDeleteOk(message_count=0)
    ann = playbook.client(user="ann", password=SECRET)
    ann >> carrying(BasicPublish(exchange="amq.topic", routing_key="k"), b"")
    ann.hears(ChannelClose)
    found = told(audit)
    assert ("queue.purge", "allowed", "guest") in found
    assert ("queue.delete", "allowed", "guest") in found
    assert found[-1] == ("operation", "refused", "ann")


def test_settings_of_the_audit_log() -> None:
    config = parse('[audit]\nfile = "a"\nevents = ["login"]\nrotate_bytes = "1MiB"')
    assert config.audit == Audit(file=Path("a"), events=("login",), rotate_bytes=2**20)
    with pytest.raises(ConfigFault, match="events"):
        parse('[audit]\nevents = ["everything"]')
