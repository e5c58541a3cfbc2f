"""`flintmq audit`: what is shown of a log, and of one that is damaged or missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line.conftest import run


def event(number: int, **changed: str) -> str:
    plain = {"time": f"2026-01-31T12:00:{number:02}.000+00:00", "event": "login", "outcome": "allowed"}
    return json.dumps({**plain, "user": "shop", "address": "10.0.0.7", **changed}) + "\n"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Three files: the newest, and two that were set aside."""
    path = tmp_path / "audit.log"
    Path(f"{path}.10").write_text(event(1))
    Path(f"{path}.2").write_text(event(2, event="user.add", user="root"))
    Path(f"{path}.gz").write_text("something else")
    path.write_text(
        event(3, outcome="refused", reason="wrong password") + event(4, event="user.delete", user="root")
    )
    return path


def seconds(line: str) -> list[int]:
    said = run(f"audit {line} --json")
    assert (said.status, said.err) == (0, "")
    return [int(row["time"][17:19]) for row in said.document]


def test_the_oldest_comes_first(log: Path) -> None:
    assert seconds(str(log)) == [1, 2, 3, 4]
    assert seconds(f"{log} --limit 2") == [3, 4]


def test_what_is_asked_for(log: Path) -> None:
    assert seconds(f"{log} --user root") == [2, 4]
    assert seconds(f"{log} --refused") == [3]
    assert seconds(f"{log} --event 'user.*'") == [2, 4]
    assert seconds(f"{log} --address 10.0.0.8") == []
    said = run(f"audit {log} --refused --columns event,outcome,reason")
    assert said.lines == ["event  outcome  reason", "login  refused  wrong password"]


def test_details_tell_what_was_changed_why_it_was_refused_and_how_often(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    changed = {"user": "shop", "name": "max-connections", "value": 5, "force": False}
    lines = [
        {"event": "limit.set", "outcome": "allowed", "arguments": changed},
        {"event": "login", "outcome": "refused", "reason": "no user 'x'", "count": 1, "repeated": True},
        {"event": "login", "outcome": "refused", "reason": "no user 'x'", "count": 1200, "repeated": True},
        {"event": "audit.lost", "outcome": "lost", "count": 7},
        {"event": "settings", "outcome": "allowed", "arguments": {"now": [], "later": ["tls"]}},
    ]
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert run(f"audit {log} --columns event,details --no-headers").lines == [
        "limit.set   user=shop  name=max-connections  value=5",
        "login       no user 'x'  the same once more",
        "login       no user 'x'  the same 1,200 times more",
        "audit.lost  7 times more",
        "settings    now=-  later=tls",
    ]
    assert run(f"audit {log}").lines[0].split() == (
        ["time", "event", "outcome", "user", "address", "virtual", "host", "subject", "details"]
    )
    assert "details" not in run(f"audit {log} --json").out


def test_lines_that_are_no_events(log: Path) -> None:
    with log.open("a") as file:
        file.write('torn {"event"\n[]\n' + "[" * 100_000 + "\n")
    said = run(f"audit {log} --no-headers --columns event")
    assert said.lines == ["login", "user.add", "login", "user.delete"]
    assert said.err == "flintmq: 3 lines are no events and were left out\n"


def test_there_is_no_log(tmp_path: Path) -> None:
    said = run(f"audit {tmp_path / 'none'}")
    assert said.status == 5
    assert "there is no such file; [audit] of the settings names it" in said.err
