"""The brokers of the pytest fixtures: there at once, gone with their tests and with pytest itself."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flintmq.client import connect
from flintmq.pytest_plugin import ForkingSource, ServedBroker, Source, SpawningSource
from flintmq.server.server import STOP_TIMEOUT_S

SOURCES: list[Callable[[], Source]] = [ForkingSource, SpawningSource]
# Long enough for a machine that is busy, and a third of what a client that does not answer once cost.
SOON_S = STOP_TIMEOUT_S / 3
SETUP_S_MAX = 0.1
SETTINGS = """
virtual_hosts = ["orders/eu"]
[users.hashed]
password_hash = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
[users."o:k"]
password = "s@cret/"
permissions."orders/eu" = {configure = ".*", write = ".*", read = ".*"}
"""
# Tells where its broker is and waits to be killed; a child of its own has all that it has open.
THEIR_TEST = """
import os, pathlib, time

def test_that_never_ends(flintmq):
    child = os.fork()
    if child:
        pathlib.Path("told.new").write_text(f"{flintmq.port} {child}")
        os.rename("told.new", "told")
    time.sleep(3600)
"""


@pytest.fixture(params=SOURCES)
def source(request: pytest.FixtureRequest) -> Iterator[Source]:
    made: Source = request.param()
    try:
        yield made
    finally:
        made.close()


def is_listening(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except ConnectionRefusedError:
        return False
    return True


def wait_until(condition: Callable[[], bool], timeout_s: float = 30.0) -> None:
    end_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.01)


def test_a_pytest_that_is_killed_leaves_no_broker_behind(tmp_path: Path) -> None:
    (tmp_path / "test_theirs.py").write_text(THEIR_TEST)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "flintmq.pytest_plugin", "-p", "no:cacheprovider"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    with subprocess.Popen([*command, "."], cwd=tmp_path, env=environment) as theirs:
        try:
            wait_until((tmp_path / "told").exists, 60)
            port, child = map(int, (tmp_path / "told").read_text().split())
            assert is_listening(port)
        finally:
            theirs.kill()
    try:
        wait_until(lambda: not is_listening(port))
    finally:
        os.kill(child, signal.SIGKILL)


def test_an_open_connection_does_not_hold_up_the_end(source: Source) -> None:
    broker = ServedBroker(source, ())
    with socket.create_connection(("127.0.0.1", broker.port), timeout=30) as silent:
        silent.sendall(b"AMQP\x00\x00\x09\x01")
        assert silent.recv(1) == b"\x01"
        began_s = time.monotonic()
        broker.stop()
        assert time.monotonic() - began_s < SOON_S
    assert not is_listening(broker.port)


def test_a_broker_of_the_nursery_is_there_at_once() -> None:
    source = ForkingSource()
    try:
        taken_s = []
        for _ in range(10):
            began_s = time.monotonic()
            broker = ServedBroker(source, ())
            taken_s.append(time.monotonic() - began_s)
            broker.stop()
        assert min(taken_s[1:]) < SETUP_S_MAX, taken_s
    finally:
        source.close()


def test_brokers_beside_each_other(source: Source) -> None:
    brokers = [ServedBroker(source, ()) for _ in range(3)]
    for broker in brokers:
        with connect(broker.uri) as connection, connection.channel() as channel:
            channel.queue("q")
    brokers[1].stop()
    assert [is_listening(broker.port) for broker in brokers] == [True, False, True]
    brokers[0].stop()
    brokers[2].stop()


def test_the_uri_is_that_of_a_user_of_the_settings(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "flintmq.toml").write_text(SETTINGS)
    monkeypatch.chdir(tmp_path)
    broker = ServedBroker(source, ("--config", "flintmq.toml"))
    assert broker.uri == f"amqp://o%3Ak:s%40cret%2F@127.0.0.1:{broker.port}/orders%2Feu"
    with connect(broker.uri) as connection, connection.channel() as channel:
        channel.queue("q")
    broker.stop()


@pytest.mark.parametrize("options", [("--config", "none.toml"), ("--no-such-option",)])
def test_a_broker_that_does_not_start_says_why(
    source: Source, options: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(RuntimeError, match="ended with status 2"):
        ServedBroker(source, options)
    assert options[-1] in capfd.readouterr().err
    ServedBroker(source, ()).stop()


def test_brokers_that_are_left_end_with_their_nursery() -> None:
    source = ForkingSource()
    ports = [ServedBroker(source, ()).port for _ in range(2)]
    source.process.kill()
    source.close()
    wait_until(lambda: not any(map(is_listening, ports)))


def test_a_test_may_kill_its_broker(source: Source) -> None:
    broker = ServedBroker(source, ())
    os.kill(broker.process, signal.SIGKILL)
    wait_until(lambda: not is_listening(broker.port))
    broker.stop()
    ServedBroker(source, ()).stop()
