"""What operators look into: journal, log, audit log, and why somebody may do something."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_process import BrokerProcess
from management_http import Http

from flintmq.management.broker_state import log_tail
from flintmq.management.broker_state.log_tail import tail

MANAGEMENT = re.compile(r"management on http://127\.0\.0\.1:(\d+)")
PATHS = ("flintmq/journal", "flintmq/log", "flintmq/audit")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Http]:
    """A broker that keeps a journal, a log and an audit log, with users of each tag."""
    directory = tmp_path_factory.mktemp("kept")
    settings = directory / "flintmq.toml"
    settings.write_text(
        f'[audit]\nfile = "{directory}/audit.log"\n[log]\nfile = "{directory}/broker.log"\n'
        "[limits]\nconnections_max = 500\n"
    )
    options = ("--config", str(settings), "--data", str(directory / "data"), "--management-port", "0")
    with BrokerProcess(*options) as broker:
        # The lines that tests wait for go to standard output; the port of the API is in the log alone.
        end_s = time.monotonic() + 30
        while (found := MANAGEMENT.search((directory / "broker.log").read_text())) is None:
            assert time.monotonic() < end_s
            time.sleep(0.01)
        http = Http(int(found[1]), broker.port)
        for name in ("management", "monitoring", "policymaker"):
            http.ok("PUT", f"users/{name}", {"password": "secret", "tags": name})
            rights = {"configure": "^mine", "write": "^mine", "read": ""}
            http.ok("PUT", f"permissions/%2F/{name}", rights)
        yield http


def test_who_may_look(kept: Http) -> None:
    """Logs are for administrators, the journal for those who monitor, and nothing for strangers."""
    may = {"flintmq/journal": ("monitoring", "guest"), "flintmq/log": ("guest",), "flintmq/audit": ("guest",)}
    stranger = Http(kept.port, 0, user="")
    for path in PATHS:
        for name in ("management", "policymaker", "monitoring"):
            status = kept.as_user(name)("GET", f"/api/{path}").status
            assert status == (200 if name in may[path] else 401), (path, name)
        assert kept("GET", f"/api/{path}").status == 200
        assert stranger("GET", f"/api/{path}").status == 401


def test_the_cluster_has_one_name(kept: Http) -> None:
    (node,) = kept.get("nodes")
    assert kept.get("overview")["cluster_name"] == kept.get("cluster-name")["name"] == node["name"]
    kept.ok("PUT", "cluster-name", {"name": "prod-mq"})
    assert kept.get("overview")["cluster_name"] == kept.get("cluster-name")["name"] == "prod-mq"
    assert 'rabbitmq_cluster="prod-mq"' in kept("GET", "/metrics").octets.decode()


def test_the_node_tells_how_many_may_connect(kept: Http) -> None:
    (node,) = kept.get("nodes")
    assert node["sockets_total"] == 500


def test_limits_are_changed_while_the_broker_runs(kept: Http) -> None:
    before = kept.get("flintmq/limits")
    said = kept("PUT", "/api/flintmq/limits/memory", {"bytes": "3GiB"})
    assert said.status == 200
    found = said.json()
    assert found["memory_bytes_high"] == 3 << 30
    assert kept("PUT", "/api/flintmq/limits/disk", {"bytes": 10**7}).json()["disk_bytes_free_min"] == 10**7
    (node,) = kept.get("nodes")
    assert (node["mem_limit"], node["disk_free_limit"]) == (3 << 30, 10**7)
    assert kept.get("flintmq/limits")["memory_bytes_high"] == 3 << 30
    relative = kept("PUT", "/api/flintmq/limits/disk", {"memory_share": 0.001}).json()
    assert relative["disk_bytes_free_min"] == int(found["machine_bytes"] * 0.001)
    for body in ({}, {"share": 2}, {"share": "much"}, {"bytes": 1}, {"share": 0.5, "bytes": 1}, {"x": 1}):
        refused = kept("PUT", "/api/flintmq/limits/memory", body)
        assert refused.status == 400, body
        assert "expected" in refused.json()["reason"]
    for name in ("management", "policymaker", "monitoring"):
        other = kept.as_user(name)
        assert other("PUT", "/api/flintmq/limits/memory", {"share": 0.5}).status == 401
        assert other("GET", "/api/flintmq/limits").status == (200 if name == "monitoring" else 401)
    (entry, *_) = kept.get("flintmq/audit?event=memory-limit.set")["entries"]
    assert (entry["user"], entry["event"]) == ("guest", "memory-limit.set")
    kept("PUT", "/api/flintmq/limits/memory", {"bytes": before["memory_bytes_high"]})
    kept("PUT", "/api/flintmq/limits/disk", {"bytes": before["disk_bytes_free_min"]})


def test_the_memory_by_use(kept: Http) -> None:
    (node,) = kept.get("nodes")
    found = kept.get(f"nodes/{node['name']}/memory")["memory"]
    assert found.pop("strategy") == "rss"
    assert found.pop("total")["rss"] == sum(found.values())
    assert {"queue_procs", "connection_channels", "connection_writers", "other_system"} <= found.keys()


def test_the_journal(kept: Http) -> None:
    kept.ok("PUT", "queues/%2F/kept", {"durable": True})
    found = kept.get("flintmq/journal")
    assert found["segments"] >= 1
    assert found["bytes"] > 0
    assert (found["alarm"], found["missing"], found["held"]) == ("", "", "")
    assert 0 < found["synced_sequence"] <= found["last_sequence"]


def test_the_audit_log(kept: Http) -> None:
    kept.ok("PUT", "users/noted", {"password": "secret", "tags": ""})
    kept.ok("DELETE", "users/noted")
    found = kept.get("flintmq/audit?event=user.delete&limit=1")
    (entry,) = found["entries"]
    assert (entry["user"], entry["outcome"], entry["arguments"]["user"]) == ("guest", "allowed", "noted")
    assert entry["address"] == "127.0.0.1"
    assert kept.get("flintmq/audit?event=nothing") == {"entries": [], "more": False}
    assert kept("GET", "/api/flintmq/audit?limit=0").status == 400
    assert "secret" not in json.dumps(kept.get("flintmq/audit?limit=1000"))


def test_the_audit_log_tells_who_purges_and_from_where_and_nothing_of_the_process_itself(kept: Http) -> None:
    """Deletions go over a connection of the management process; the address is that of the browser."""
    kept.ok("PUT", "queues/%2F/emptied", {"durable": True})
    kept.ok("DELETE", "queues/%2F/emptied/contents")
    assert kept.as_user("management")("DELETE", "/api/queues/%2F/emptied").status in (401, 403)
    (purge,) = kept.get("flintmq/audit?event=queue.purge&limit=1")["entries"]
    assert (purge["user"], purge["address"], purge["subject"]) == ("guest", "127.0.0.1", "emptied")
    (refused,) = kept.get("flintmq/audit?event=operation&outcome=refused&limit=1")["entries"]
    assert (refused["user"], refused["address"]) == ("management", "127.0.0.1")
    entries = kept.get("flintmq/audit?limit=1000")["entries"]
    assert "http.login" in {entry["event"] for entry in entries}
    assert [entry for entry in entries if entry["event"] in ("login", "connection.open")] == []


def test_the_log(kept: Http) -> None:
    assert any("user.add" in line for line in kept.get("flintmq/log?contains=user.add")["lines"])
    assert not any(" INFO " in line for line in kept.get("flintmq/log?level=warning")["lines"])
    assert kept("GET", "/api/flintmq/log?level=loud").status == 400


def test_the_files_are_told(kept: Http) -> None:
    (node,) = kept.get("nodes")
    (log,) = node["log_files"]
    assert (Path(log).name, Path(node["audit_file"]).name) == ("broker.log", "audit.log")


def test_the_limit_of_the_disk_is_told(kept: Http) -> None:
    (node,) = kept.get("nodes")
    assert node["disk_free_limit"] == 256 << 20


def test_a_traceback_is_told_with_its_line(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("1 INFO one\n2 ERROR two\n    Traceback:\n    KeyError: 'x'\n3 INFO three\n")
    bug = "2 ERROR two\n    Traceback:\n    KeyError: 'x'"
    assert tail(log, 9, lambda line: True).lines == ["3 INFO three", bug, "1 INFO one"]
    assert tail(log, 9, lambda line: "KeyError" in line).lines == [bug]
    log.write_text("1 ERROR one\n" + "    deep\n" * 10_000)
    (line,) = tail(log, 9, lambda line: " ERROR " in line).lines
    assert line.count("\n") == log_tail.CONTINUED_MAX
    log.write_text("    of a line that is gone\n")
    assert tail(log, 9, lambda line: True).lines == []


def test_without_files(http_api: Http) -> None:
    """The answer says which setting is missing."""
    for path, setting in zip(PATHS, ("data directory", "log.file", "audit.file"), strict=True):
        answer = http_api("GET", f"/api/{path}")
        assert answer.status == 404
        assert setting in answer.json()["reason"]


def test_why(kept: Http) -> None:
    """Each step of the check, of the broker's own patterns."""
    asked = "flintmq/why?user=management&vhost=%2F&operation"
    found = kept.get(f"{asked}=declare-queue&name=mine.1")
    assert found["allowed"] is True
    assert [step["allowed"] for step in found["steps"]] == [True, True]
    assert found["steps"][1]["pattern"] == "^mine"
    found = kept.get(f"{asked}=bind&name=mine.1&other=amq.topic")
    assert [step["allowed"] for step in found["steps"]] == [True, True, False]
    assert "The pattern for read is (empty): it does not match." in found["steps"][2]["text"]
    found = kept.get("flintmq/why?user=nobody&operation=publish&name=x")
    assert (found["allowed"], len(found["steps"])) == (False, 1)
    assert "cannot even connect" not in found["steps"][0]["text"]
    assert kept("GET", f"/api/{asked}=fly&name=x").status == 400
    topic = {"exchange": "mine.topic", "write": "^{username}\\.", "read": ""}
    kept.ok("PUT", "topic-permissions/%2F/management", topic)
    for key, allowed in (("management.a", True), ("other.a", False)):
        found = kept.get(f"{asked}=publish&name=mine.topic&other={key}")
        assert found["allowed"] is allowed, found


def test_who_may_ask_why(kept: Http) -> None:
    """About oneself, whoever may log in; about others, administrators."""
    user = kept.as_user("management")
    assert user.get("flintmq/why?operation=consume&name=mine.1")["allowed"] is False
    assert user("GET", "/api/flintmq/why?user=guest&operation=consume&name=x").status == 401
    assert kept.as_user("monitoring")("GET", "/api/flintmq/why?user=guest&name=x").status == 401


def test_a_tail_reads_so_much_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "log"
    (tmp_path / "log.1").write_text("".join(f"old {number}\n" for number in range(50)))
    log.write_text("".join(f"new {number} é\n" for number in range(50)))
    for block in (7, 64, 65_536):
        monkeypatch.setattr(log_tail, "BLOCK_BYTES", block)
        found = tail(log, 60, lambda line: True)
        assert found.lines[:2] == ["new 49 é", "new 48 é"]
        assert found.lines[49:52] == ["new 0 é", "old 49", "old 48"]
        assert (len(found.lines), found.more) == (60, True)
        assert tail(log, 1000, lambda line: "4" in line).more is False
    monkeypatch.setattr(log_tail, "READ_BYTES_MAX", 100)
    found = tail(log, 1000, lambda line: True)
    assert found.more is True
    assert 5 < len(found.lines) < 12
    with pytest.raises(FileNotFoundError):
        tail(tmp_path / "none", 1, lambda line: True)
