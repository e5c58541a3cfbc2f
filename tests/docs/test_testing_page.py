"""docs/testing.md and docs/embedding.md, as they stand, in a project of somebody else."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

PAGES = Path(__file__).resolve().parents[2] / "docs"


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (PAGES / page).read_text(), re.DOTALL)


THEIR_TEST, HAPPENED, FAILS, THEIR_OPTIONS, UNITTEST, PLUG_IN, RABBITMQ = blocks("testing.md")
[EMBEDDED] = blocks("embedding.md")
OF_A_RUN = """
def test_first(flintmq_session):
    test_first.port = flintmq_session.port

def test_second(flintmq_session, flintmq):
    assert test_first.port == flintmq_session.port != flintmq.port
"""
LEAVES = """
import pika, pytest

def leave(host):
    connection = pika.BlockingConnection(pika.URLParameters(host.uri))
    channel = connection.channel()
    channel.queue_declare("orders")
    channel.basic_publish("", "orders", b"tea")
    channel.basic_publish("amq.topic", "nowhere", b"tea")
    channel.basic_get("orders")

def test_told(flintmq): leave(flintmq)
def test_of_a_host(flintmq_virtual_host): leave(flintmq_virtual_host)
@pytest.mark.flintmq(leftovers="ignore")
def test_ignored(flintmq): leave(flintmq)
@pytest.mark.flintmq(leftovers="fail")
def test_failed(flintmq): leave(flintmq)
@pytest.mark.flintmq(leftovers="forget")
def test_misspelt(flintmq): leave(flintmq)
@pytest.mark.flintmq(lasting=True)
def test_unknown(flintmq): leave(flintmq)
def test_killed(flintmq):
    leave(flintmq)
    flintmq.kill()
"""
LEFT = (
    "1 published to exchange 'amq.topic' with key 'nowhere' came to no queue",
    "1 of queue 'orders' not acked",
)


def run(project: Path, *options: str) -> subprocess.CompletedProcess[str]:
    # By its name: an entry point is there only where the package is installed.
    command = [sys.executable, "-m", "pytest", "-q", "-p", "flintmq.pytest_plugin", "--rootdir", str(project)]
    return subprocess.run(
        [*command, *options, str(project)],
        capture_output=True,
        text=True,
        timeout=100,
        cwd=project,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        check=False,
    )


def test_tests_have_brokers_also_beside_each_other(tmp_path: Path) -> None:
    (tmp_path / "test_theirs.py").write_text(THEIR_TEST)
    (tmp_path / "test_of_a_run.py").write_text(OF_A_RUN)
    (tmp_path / "test_happened.py").write_text(HAPPENED)
    (tmp_path / "test_fails.py").write_text(FAILS)
    (tmp_path / "test_unittest.py").write_text(UNITTEST)
    done = run(tmp_path, "-p", "xdist", "-n", "2", "--dist", "loadfile")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "10 passed" in done.stdout


def test_options_are_overridden(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "conftest.py").write_text(THEIR_OPTIONS)
    (tmp_path / "test_theirs.py").write_text(THEIR_TEST)
    (tmp_path / "tests" / "flintmq.toml").write_text("[limits]\nconnections_max = 0\n")
    done = run(tmp_path)
    assert done.returncode == 1
    assert "ended with status" in done.stdout
    assert "connections_max" in done.stdout  # what the broker has to say is in the report
    (tmp_path / "tests" / "flintmq.toml").write_text("[limits]\nconnections_max = 5\n")
    done = run(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_tests_leave_behind_is_told(tmp_path: Path) -> None:
    (tmp_path / "test_leaves.py").write_text(LEAVES)
    done = run(tmp_path, "-p", "xdist", "-n", "1")  # the summary is told by another process than the tests
    told = done.stdout.partition("flintmq: messages left behind")[2].splitlines()
    assert [line for line in told if line.startswith("test_leaves.py::")] == [
        f"test_leaves.py::{test}: {line}" for test in ("test_told", "test_of_a_host") for line in LEFT
    ]
    assert f"left behind: {LEFT[0]}; {LEFT[1]}" in done.stdout
    assert "flintmq_leftovers is 'forget': it can be tell, fail, ignore" in done.stdout
    assert "test_unknown: the marker is flintmq(durable=False, leftovers=None)" in done.stdout
    assert "6 passed, 3 errors" in done.stdout


def test_in_the_place_of_pytest_rabbitmq(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(PLUG_IN)
    (tmp_path / "test_theirs.py").write_text(RABBITMQ)
    (tmp_path / "pytest.ini").write_text("[pytest]\nrabbitmq_host = localhost\n")
    done = run(tmp_path, "--rabbitmq-port", "-1", "--rabbitmq-ctl", "/usr/lib/rabbitmq/bin/rabbitmqctl")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout
    done = run(tmp_path, "--rabbitmq-port", "some", "-k", "as_before")
    assert "--rabbitmq-port some: give a number" in done.stdout
    (tmp_path / "pytest_rabbitmq.py").write_text("")
    done = run(tmp_path, "-p", "pytest_rabbitmq")
    assert "add -p no:pytest_rabbitmq" in done.stderr


def test_a_broker_inside_a_program(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(EMBEDDED)
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "tea" in done.stdout
