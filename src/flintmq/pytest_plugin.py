"""Fixtures for pytest: brokers in processes of their own, in memory, on ports that were free.

    flintmq            one for a test alone
    flintmq_session    one for all tests of a run, which then share its queues
    flintmq_options    what else their command lines say, for a conftest.py to override

pytest finds them by itself where the package is installed. The brokers end with the tests, and with pytest,
however that ends.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, urlsplit

import pytest

STOP_TIMEOUT_S = 10.0
OPTIONS = ("--host", "127.0.0.1", "--port", "0")


class Source(Protocol):
    """Where brokers come from."""

    def start(self, options: Sequence[str]) -> tuple[int, str]:
        """The process, and the line that says where it listens."""

    def stop(self, process: int) -> None: ...

    def close(self) -> None: ...


SOURCE = pytest.StashKey[Source]()
NAMES = frozenset(("flintmq", "flintmq_session"))


class ForkingSource:
    """Brokers of a nursery (cli/fork_server.py), which is there from the first of them on."""

    def __init__(self) -> None:
        self.socket, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "flintmq.cli.fork_server", str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                # Control-C is for pytest, which then stops the brokers.
                start_new_session=True,
            )

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        octets = json.dumps(request).encode() + b"\n"
        sent = socket.send_fds(self.socket, [octets], [2])
        self.socket.sendall(octets[sent:])
        answer = b""
        while not answer.endswith(b"\n"):
            more = self.socket.recv(65_536)
            if not more:
                raise RuntimeError(f"the process that starts brokers has ended with {self.process.wait()}")
            answer += more
        found: dict[str, Any] = json.loads(answer)
        return found

    def start(self, options: Sequence[str]) -> tuple[int, str]:
        answer = self.ask({"start": options, "directory": os.getcwd(), "environment": dict(os.environ)})
        if "line" not in answer:
            raise failed(options, answer["status"])
        return answer["process"], answer["line"]

    def stop(self, process: int) -> None:
        answer = self.ask({"stop": process})
        if not answer["in_time"]:
            raise RuntimeError(f"the broker did not end within {STOP_TIMEOUT_S:.0f} s and was killed")
        if answer["status"] > 0:  # a test may have killed it by a signal
            raise RuntimeError(f"the broker ended with status {answer['status']}; it has said why")

    def close(self) -> None:
        self.socket.close()
        self.process.wait(STOP_TIMEOUT_S)


class SpawningSource:
    """Brokers one by one, where a process cannot fork."""

    def __init__(self) -> None:
        self.processes: dict[int, subprocess.Popen[str]] = {}

    def start(self, options: Sequence[str]) -> tuple[int, str]:
        command = [sys.executable, "-m", "flintmq", "serve", "--until-input-ends", *options]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        line = "" if process.stdout is None else process.stdout.readline()
        if not line:
            process.communicate()
            raise failed(options, process.returncode)
        self.processes[process.pid] = process
        return process.pid, line

    def stop(self, process: int) -> None:
        running = self.processes.pop(process)
        try:
            running.communicate(timeout=STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            running.kill()
            running.communicate()
            raise

    def close(self) -> None:
        """They have all been stopped."""


def failed(options: Sequence[str], status: int) -> RuntimeError:
    return RuntimeError(f"flintmq serve {' '.join(options)} ended with status {status}; it has said why")


class ServedBroker:
    """A running broker."""

    def __init__(self, source: Source, options: Sequence[str]) -> None:
        self.source = source
        self.process, line = source.start([*OPTIONS, *options])
        self.port: int = urlsplit(line.split()[-1]).port or 0
        # As a client needs it: users of the settings, or guest.
        user, virtual_host = login(options)
        self.uri = f"amqp://{user}127.0.0.1:{self.port}{virtual_host}"

    def stop(self) -> None:
        """Closes all connections and waits for the end."""
        self.source.stop(self.process)


def login(options: Sequence[str]) -> tuple[str, str]:
    """User and password before a URI's host, and the virtual host behind its port, by the options' settings.

    guest, or else the first user with a password in plain; of a hash there is nothing to be told.
    """
    from flintmq import cli, config

    given = cli.parser().parse_args(["serve", *options]).config
    settings = config.load(None if given is None else Path(given))
    plain = {name: user for name, user in settings.users.items() if user.password is not None}
    if not plain:
        return "", ""
    name = "guest" if "guest" in plain else next(iter(plain))
    hosts = plain[name].permissions
    host = "" if "/" in hosts or not hosts else "/" + quote(next(iter(hosts)), safe="")
    return f"{quote(name, safe='')}:{quote(plain[name].password or '', safe='')}@", host


@pytest.fixture(scope="session")
def flintmq_options() -> tuple[str, ...]:
    """Further options of `flintmq serve`."""
    return ()


def source_of(config: pytest.Config) -> Source:
    """One for the whole run, made when it is first needed."""
    source = config.stash.get(SOURCE, None)
    if source is None:
        source = config.stash[SOURCE] = ForkingSource() if hasattr(os, "fork") else SpawningSource()
    return source


def pytest_collection_finish(session: pytest.Session) -> None:
    """The nursery loads while other tests run, if any test will need it."""
    if session.config.option.collectonly:
        return
    for item in session.items:
        if not NAMES.isdisjoint(getattr(item, "fixturenames", ())):
            source_of(session.config)
            return


def pytest_unconfigure(config: pytest.Config) -> None:
    source = config.stash.get(SOURCE, None)
    if source is not None:
        source.close()


@pytest.fixture(scope="session")
def _flintmq_source(pytestconfig: pytest.Config) -> Source:
    return source_of(pytestconfig)


def served(source: Source, options: Sequence[str]) -> Iterator[ServedBroker]:
    broker = ServedBroker(source, options)
    try:
        yield broker
    finally:
        broker.stop()


@pytest.fixture
def flintmq(_flintmq_source: Source, flintmq_options: Sequence[str]) -> Iterator[ServedBroker]:
    """A broker for this test: `flintmq.uri`, `flintmq.port`."""
    yield from served(_flintmq_source, flintmq_options)


@pytest.fixture(scope="session")
def flintmq_session(_flintmq_source: Source, flintmq_options: Sequence[str]) -> Iterator[ServedBroker]:
    """A broker for all tests of the run: `flintmq_session.uri`, `flintmq_session.port`."""
    yield from served(_flintmq_source, flintmq_options)
