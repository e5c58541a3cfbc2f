"""A broker with an audit log and a log of JSON: what it writes, and that SIGHUP opens both again."""

from __future__ import annotations

import json
import re
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from broker_process import BrokerProcess

from flintmq.client import LoginRefused, connect

SETTINGS = """
[log]
file = "{log}"
format = "json"
[audit]
file = "{audit}"
"""


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def wait_for(file: Path, **wanted: Any) -> dict[str, Any]:
    """The first line that has these values."""
    until_s = time.monotonic() + 20
    while time.monotonic() < until_s:
        for line in lines(file):
            if all(line.get(key) == value for key, value in wanted.items()):
                return line
        time.sleep(0.01)
    raise AssertionError(f"no line with {wanted} in {lines(file)}")


def test_what_happens_is_in_the_audit_log(tmp_path: Path) -> None:
    log, audit, settings = tmp_path / "log", tmp_path / "audit", tmp_path / "settings.toml"
    settings.write_text(SETTINGS.format(log=log, audit=audit))
    with BrokerProcess("--config", str(settings)) as broker:
        url = f"amqp://127.0.0.1:{broker.port}"
        with pytest.raises(LoginRefused):
            connect(url, user="guest", password="a wrong one")
        with connect(url) as boss:
            boss.request("user.add", {"user": "ann", "password": "a long one"})
            boss.request("definitions.import", {}, b'{"vhosts": [{"name": "shop"}]}')
        assert wait_for(audit, event="login", outcome="refused")["address"] == "127.0.0.1"
        assert wait_for(audit, event="user.add", outcome="allowed")["arguments"] == {"user": "ann"}
        assert wait_for(audit, event="definitions.import")["user"] == "guest"
        for file in (log, audit):
            file.rename(file.with_suffix(".old"))
        broker.process.send_signal(signal.SIGHUP)
        wait_for(audit, event="settings", outcome="allowed")
        assert "the audit log is opened again" in str(lines(log))
        text = audit.read_text() + audit.with_suffix(".old").read_text() + log.with_suffix(".old").read_text()
        assert "a long one" not in text
        assert "a wrong one" not in text
    assert wait_for(log, message="flintmq is stopping")["level"] == "info"


def test_a_log_whose_folder_is_gone_is_told_where_somebody_sees_it(tmp_path: Path) -> None:
    folder, settings = tmp_path / "logs", tmp_path / "settings.toml"
    folder.mkdir()
    settings.write_text(f'[log]\nfile = "{folder / "log"}"\n')
    with BrokerProcess("--config", str(settings)) as broker:
        url = f"amqp://127.0.0.1:{broker.port}"
        shutil.rmtree(folder)
        broker.process.send_signal(signal.SIGHUP)
        broker.wait_for(
            re.compile("ERROR the log goes on in the file that is open.*No such file or directory")
        )
        with connect(url) as connection:
            fault = connection.request("broker.info").results["log-fault"]
            assert fault == "the log file cannot be opened again: No such file or directory"
            folder.mkdir()
            broker.process.send_signal(signal.SIGHUP)
            until_s = time.monotonic() + 20
            while "log-fault" in connection.request("broker.info").results:
                assert time.monotonic() < until_s
                time.sleep(0.01)
        assert "the log file is open again" in (folder / "log").read_text()
