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
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote, urlsplit

import pytest

if TYPE_CHECKING:
    from flintmq.config import UserSettings

STOP_TIMEOUT_S = 10.0
# For a broker to say where it listens: a tenth of a second, and more where it has much to recover.
START_TIMEOUT_S = 60.0
# For whoever starts brokers to answer, beyond the time that the broker itself has.
ANSWER_TIMEOUT_S = 30.0
OPTIONS = ("--host", "127.0.0.1", "--port", "0")


class Source(Protocol):
    """Where brokers come from."""

    def start(self, options: Sequence[str]) -> tuple[int, str]:
        """The process, and the line that says where it listens."""

    def stop(self, process: int) -> None: ...

    def close(self) -> None: ...


SOURCE = pytest.StashKey[Source]()
NAMES = frozenset(("flintmq", "flintmq_session"))
# A function that takes one of them: of a test, or of a fixture that stands on it.
NAMED = re.compile(rb"\bdef \w+\([^)]*\bflintmq(_session)?\s*[,:)]")


class ForkingSource:
    """Brokers of a nursery (cli/fork_server.py), which is there from the first of them on."""

    def __init__(
        self, start_timeout_s: float = START_TIMEOUT_S, answer_timeout_s: float = ANSWER_TIMEOUT_S
    ) -> None:
        self.start_timeout_s = start_timeout_s
        self.socket, theirs = socket.socketpair()
        self.socket.settimeout(max(start_timeout_s, STOP_TIMEOUT_S) + answer_timeout_s)
        with theirs:
            command = [sys.executable, "-m", "flintmq.cli.fork_server", str(theirs.fileno())]
            self.process = subprocess.Popen(
                [*command, str(os.getpid())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                # Control-C is for pytest, which then stops the brokers.
                start_new_session=True,
            )

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        octets = json.dumps(request).encode() + b"\n"
        answer = b""
        try:
            sent = socket.send_fds(self.socket, [octets], [2])
            self.socket.sendall(octets[sent:])
            while not answer.endswith(b"\n"):
                more = self.socket.recv(65_536)
                if not more:
                    raise ConnectionError
                answer += more
        except TimeoutError:
            raise RuntimeError(
                f"the process that starts brokers does not answer: process {self.process.pid}"
            ) from None
        except ConnectionError:
            raise RuntimeError(
                f"the process that starts brokers has ended with {self.process.wait(STOP_TIMEOUT_S)}"
            ) from None
        found: dict[str, Any] = json.loads(answer)
        return found

    def start(self, options: Sequence[str]) -> tuple[int, str]:
        place = {"directory": os.getcwd(), "environment": dict(os.environ)}
        answer = self.ask({"start": options, "within_s": self.start_timeout_s, **place})
        if "line" not in answer:
            raise failed(options, answer["status"], self.start_timeout_s)
        return answer["process"], answer["line"]

    def stop(self, process: int) -> None:
        answer = self.ask({"stop": process})
        if not answer["in_time"]:
            raise RuntimeError(f"the broker did not end within {STOP_TIMEOUT_S:.0f} s and was killed")
        if answer["status"] > 0:  # a test may have killed it by a signal
            raise RuntimeError(f"the broker ended with status {answer['status']}; it has said why")

    def close(self) -> None:
        """All brokers that are left end too."""
        self.socket.close()
        try:
            self.process.wait(2 * STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class SpawningSource:
    """Brokers one by one, where a process cannot fork."""

    def __init__(self, start_timeout_s: float = START_TIMEOUT_S) -> None:
        self.start_timeout_s = start_timeout_s
        self.processes: dict[int, subprocess.Popen[str]] = {}

    def start(self, options: Sequence[str]) -> tuple[int, str]:
        command = [sys.executable, "-m", "flintmq", "serve", "--until-input-ends", *options]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        is_late = threading.Event()

        def give_up() -> None:
            is_late.set()
            process.kill()

        watchdog = threading.Timer(self.start_timeout_s, give_up)
        watchdog.start()
        try:
            line = process.stdout.readline()
        finally:
            watchdog.cancel()
        if not line:
            process.communicate()
            raise failed(options, None if is_late.is_set() else process.returncode, self.start_timeout_s)
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


def failed(options: Sequence[str], status: int | None, within_s: float) -> RuntimeError:
    command = f"flintmq serve {' '.join(options)}"
    if status is None:
        return RuntimeError(f"{command} said nothing within {within_s:g} s and was killed")
    return RuntimeError(f"{command} ended with status {status}; it has said why")


class ServedBroker:
    """A running broker."""

    def __init__(self, source: Source, options: Sequence[str]) -> None:
        self.source = source
        self.options = list(options)
        self.process, line = source.start([*OPTIONS, *options])
        self.port: int = urlsplit(line.split()[-1]).port or 0
        self._users: Mapping[str, UserSettings] | None = None

    @property
    def users(self) -> Mapping[str, UserSettings]:
        """Those of the settings, or guest."""
        if self._users is None:
            from flintmq import cli, config

            given = cli.parser().parse_args(["serve", *self.options]).config
            self._users = config.load(None if given is None else Path(given)).users
        return self._users

    @property
    def uri(self) -> str:
        """An address for guest, or else for the first user with a password in plain who may do anything."""
        users = self.users
        plain = [name for name, user in users.items() if user.password is not None]
        able = [name for name in plain if users[name].permissions]
        return self.uri_of("guest" if "guest" in plain else (able or plain or list(users))[0])

    def uri_of(self, user: str, *, password: str | None = None, virtual_host: str | None = None) -> str:
        """An address for a user of the settings, in "/" or else the first virtual host that is permitted."""
        known = self.users.get(user)
        if known is None:
            raise ValueError(f"no user {user!r} in the settings; there are {', '.join(self.users)}")
        if password is None:
            password = known.password
        if password is None:
            raise ValueError(f"user {user!r} has a password_hash: give its password to uri_of")
        if virtual_host is None:
            virtual_host = "/" if "/" in known.permissions else next(iter(known.permissions), "/")
        host = "" if virtual_host == "/" else "/" + quote(virtual_host, safe="")
        return f"amqp://{quote(user, safe='')}:{quote(password, safe='')}@127.0.0.1:{self.port}{host}"

    def stop(self) -> None:
        """Closes all connections and waits for the end."""
        self.source.stop(self.process)


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


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> None:
    """The nursery loads while the tests are, from the first file on that has a test of a broker."""
    config = parent.config
    if config.option.collectonly or SOURCE in config.stash or file_path.suffix != ".py":
        return
    try:
        names_broker = bool(NAMED.search(file_path.read_bytes()))
    except OSError:  # pytest says what is wrong with it
        return
    if names_broker:
        source_of(config)


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
