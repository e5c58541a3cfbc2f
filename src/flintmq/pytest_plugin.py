"""Fixtures for pytest: brokers in processes of their own, in memory, on ports that were free.

    flintmq            one for a test alone
    flintmq_session    one for all tests of a run, which then share its queues
    flintmq_options    what else their command lines say, for a conftest.py to override

pytest finds them by itself where the package is installed.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

STOP_TIMEOUT_S = 10.0


class ServedBroker:
    """A running `flintmq serve`."""

    def __init__(self, options: tuple[str, ...]) -> None:
        command = [sys.executable, "-m", "flintmq", "serve", "--host", "127.0.0.1", "--port", "0", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        first_line = "" if self.process.stdout is None else self.process.stdout.readline()
        if "listening on" not in first_line:
            status = self.process.wait(STOP_TIMEOUT_S)
            raise RuntimeError(f"{' '.join(command)} ended with status {status}; it has said why")
        self.port: int = urlsplit(first_line.split()[-1]).port or 0
        self.uri = f"amqp://guest:guest@127.0.0.1:{self.port}"

    def stop(self) -> None:
        """Closes all connections and waits for the end."""
        self.process.terminate()
        try:
            self.process.communicate(timeout=STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            raise


@pytest.fixture(scope="session")
def flintmq_options() -> tuple[str, ...]:
    """Further options of `flintmq serve`."""
    return ()


def served(options: tuple[str, ...]) -> Iterator[ServedBroker]:
    broker = ServedBroker(options)
    try:
        yield broker
    finally:
        broker.stop()


@pytest.fixture
def flintmq(flintmq_options: tuple[str, ...]) -> Iterator[ServedBroker]:
    """A broker for this test: `flintmq.uri`, `flintmq.port`."""
    yield from served(flintmq_options)


@pytest.fixture(scope="session")
def flintmq_session(flintmq_options: tuple[str, ...]) -> Iterator[ServedBroker]:
    """A broker for all tests of the run: `flintmq_session.uri`, `flintmq_session.port`."""
    yield from served(flintmq_options)
