"""What the suites of client libraries have rabbitmqctl do, through a shell, with `flintmq ctl` in its place.

The lines are those of bunny's set-up script and of the Java client's tests.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from broker_process import BrokerProcess
from command_line.conftest import closed_with

from flintmq.cli import main
from flintmq.client import connect

BUNNY = """set -e
$ctl await_startup --timeout 15
$ctl add_user bunny_gem bunny_password
$ctl add_user bunny_reader reader_password
$ctl add_vhost bunny_testbed
$ctl set_permissions -p / guest '.*' '.*' '.*'
$ctl set_permissions -p bunny_testbed bunny_gem '.*' '.*' '.*'
$ctl set_permissions -p bunny_testbed guest '.*' '.*' '.*'
$ctl set_permissions -p bunny_testbed bunny_reader '^---$' '^---$' '.*'
"""
JAVA = """set -e
$ctl -n 'node' add_user test test
$ctl -n 'node' add_vhost /test
$ctl -n 'node' set_permissions -p /test test "" "" ""
$ctl -n 'node' set_permissions -p /test test configure write read
$ctl -n 'node' set_user_tags guest administrator impersonator
$ctl -n 'node' set_topic_permissions -p / guest protected "^{username}" "^{username}"
$ctl -n 'node' clear_topic_permissions -p / guest
$ctl -n 'node' set_policy HA '.*' '{"ha-mode":"all"}'
$ctl -n 'node' set_policy --priority 1 short '^short' '{"max-length":1}'
$ctl -n 'node' clear_policy short
$ctl -n 'node' clear_policy HA
$ctl -n 'node' delete_user test
"""
LINES = [line for script in (BUNNY, JAVA) for line in script.splitlines()[1:]]


@pytest.fixture
def shell(broker: BrokerProcess, tmp_path: Path) -> dict[str, str]:
    """The environment of a script that calls rabbitmqctl."""
    script = tmp_path / "rabbitmqctl"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m flintmq ctl "$@"\n')
    script.chmod(0o755)
    url = f"amqp://localhost:{broker.port}"
    return {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "FLINTMQ_URL": url, "ctl": str(script)}


def done(line: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", line], env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def test_set_up_scripts(shell: dict[str, str], broker: BrokerProcess) -> None:
    """The first lines go through the shell, and all others into main(): a process for each takes long."""
    first = done("$ctl await_startup --timeout 15 && $ctl -n 'node' add_user early test", shell)
    assert (first.returncode, first.stderr) == (0, "")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("FLINTMQ_URL", shell["FLINTMQ_URL"])
        for line in LINES:
            assert main(["ctl", *shlex.split(line)[1:]]) == 0, line
    url = f"amqp://localhost:{broker.port}/bunny_testbed"
    with connect(url, user="bunny_gem", password="bunny_password") as connection:
        assert connection.is_open


def test_a_connection_is_closed_by_its_port(shell: dict[str, str], broker: BrokerProcess) -> None:
    """The Java client's suite kills connections so, to see them recover."""
    with connect(f"amqp://guest:guest@127.0.0.1:{broker.port}", recovery=None) as connection:
        listed = done("$ctl -n 'node' list_connections -q pid peer_port", shell).stdout
        found = {port: pid for pid, port in (line.split("\t") for line in listed.splitlines())}
        port = connection._socket.getsockname()[1]  # type: ignore[union-attr]
        closed = done(f"$ctl -n 'node' close_connection '{found[str(port)]}' 'Closed via rabbitmqctl'", shell)
        assert closed.returncode == 0
        closed_with(connection, "Closed via rabbitmqctl")


def test_the_commands_there_are(shell: dict[str, str]) -> None:
    """The Java client's suite looks for a command in what is said to no command at all."""
    said = done("$ctl -n 'node' ", shell)
    assert said.returncode == 64
    assert "set_topic_permissions" in said.stderr
