"""The management process beside its broker: started again, ended with it, and never in its way."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from broker_process import BrokerProcess
from live.certificates import Authority
from management_http import Http

from flintmq.client import connect
from flintmq.config import load, parse
from flintmq.errors import ConfigFault

MANAGEMENT = re.compile(r"management on http://127\.0\.0\.1:(\d+)")


def child_of(pid: int) -> int:
    """The process id of the only child."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    assert len(children) == 1
    return int(children[0])


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_it_is_started_again_and_ends_with_the_broker() -> None:
    with BrokerProcess("--management-port", "0") as broker:
        http_api = Http(int(broker.wait_for(MANAGEMENT)[1]), broker.port)
        with connect(f"amqp://guest:guest@127.0.0.1:{broker.port}") as connection:
            assert http_api.get("whoami")["name"] == "guest"
            first = child_of(broker.process.pid)
            os.kill(first, signal.SIGKILL)
            broker.wait_for(
                re.compile("the management process has ended with status -9: it is started again")
            )
            # The socket is the broker's: who comes meanwhile waits.
            assert http_api.get("whoami")["name"] == "guest"
            second = child_of(broker.process.pid)
            assert second != first
            assert connection.is_open
    assert not is_there(second)
    assert [line for line in broker.lines if "@management" in line and "shutting down" in line] == []
    assert [line for line in broker.lines if "@management" in line and "close-ok" in line] == []


def test_it_ends_when_the_broker_is_killed() -> None:
    broker = BrokerProcess("--management-port", "0")
    http_api = Http(int(broker.wait_for(MANAGEMENT)[1]), broker.port)
    http_api.get("whoami")
    child = child_of(broker.process.pid)
    broker.process.kill()
    broker.process.wait()
    until_s = time.monotonic() + 20
    while is_there(child):
        assert time.monotonic() < until_s
        time.sleep(0.02)


def gone(child: int) -> bool:
    """Whether a process has ended; one that nobody waits for yet counts as ended."""
    try:
        return Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.skipif(sys.platform != "linux", reason="the system tells no process of its parent's death")
def test_one_that_stands_still_ends_when_the_broker_is_killed() -> None:
    broker = BrokerProcess("--management-port", "0")
    Http(int(broker.wait_for(MANAGEMENT)[1]), broker.port).get("whoami")
    child = child_of(broker.process.pid)
    os.kill(child, signal.SIGSTOP)
    broker.process.kill()
    broker.process.wait()
    until_s = time.monotonic() + 20
    try:
        while not gone(child):
            assert time.monotonic() < until_s
            time.sleep(0.02)
    finally:
        if not gone(child):
            os.kill(child, signal.SIGKILL)


@pytest.mark.skipif(sys.platform != "linux", reason="the system tells no process of its parent's death")
def test_the_port_is_free_after_a_kill_soon_after_the_start() -> None:
    """The management process is still at its imports then."""
    port = "0"
    for _ in range(3):
        broker = BrokerProcess("--management-port", port)
        port = broker.wait_for(MANAGEMENT)[1]
        broker.process.kill()
        broker.process.wait()


def test_without_the_extra() -> None:
    """The setting without the packages is a fault that says what to install."""
    hide = (
        "import sys; sys.modules['orjson'] = None; from flintmq.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", hide, "serve", "--port", "0", "--management-port", "0"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ran.returncode != 0
    assert "pip install 'flintmq[management]'" in ran.stderr


def test_settings(tmp_path: Path) -> None:
    assert load().management is None
    chosen = parse('[management]\nport = 1\nhosts = ["::1"]').management
    assert chosen is not None
    assert (chosen.port, chosen.hosts) == (1, ("::1",))
    overridden = load(management_port=0).management
    assert overridden is not None
    assert overridden.port == 0
    with pytest.raises(ConfigFault, match=r"management\.key is missing"):
        parse(f'[management]\ncertificate = "{tmp_path}/c.pem"')


def test_a_certificate_that_ends_soon_is_told_by_its_health_check(tmp_path: Path) -> None:
    files = Authority(tmp_path, "authority").sign("broker", hosts=("localhost",), days=20)
    settings = tmp_path / "flintmq.toml"
    settings.write_text(f'[tls]\nport = 0\ncertificate = "{files.certificate}"\nkey = "{files.key}"\n')
    with BrokerProcess("--management-port", "0", "--config", str(settings)) as broker:
        http_api = Http(int(broker.wait_for(MANAGEMENT)[1]), broker.port)
        checks = "/api/health/checks/certificate-expiration"
        assert http_api("GET", f"{checks}/2/weeks").json() == {"status": "ok"}
        told = http_api("GET", f"{checks}/1/months")
        assert told.status == 503
        assert "expire within 1 months" in told.json()["reason"]
        assert str(files.certificate) in told.json()["reason"]
