"""What every interop test shares: where the live broker is, and how to wait for what it does.

Owns the address of the broker under test, the waiting, and the running of clients that are processes
of their own. Must never know how the broker was started: that is conftest.py.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
# A test ends well under 30 s; a client process that needs longer than this hangs.
CLIENT_S_MAX = 25.0
POLL_S = 0.02

StartBroker = Callable[[int], Any]  # answers a conftest.BrokerProcess


@dataclass(frozen=True)
class Broker:
    """The broker under test, as its clients see it."""

    host: str
    port: int
    product: str = ""

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@{self.host}:{self.port}/"

    @property
    def is_rabbitmq(self) -> bool:
        return self.product == "RabbitMQ"


def eventually(condition: Callable[[], bool], what: str, seconds_max: float = 10.0) -> None:
    """Wait until `condition` holds; fail with `what` when it never does."""
    deadline = time.monotonic() + seconds_max
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"not within {seconds_max:g} s: {what}")
        time.sleep(POLL_S)


def missing(tool: str, hint: str) -> None:
    """A tool that is not there fails the CI and skips elsewhere."""
    text = f"{tool} is missing: {hint}"
    if os.environ.get("CI") == "true":
        pytest.fail(text)
    pytest.skip(text)


def require_program(name: str, hint: str) -> str:
    found = shutil.which(name)
    if found is None:
        missing(name, hint)
    assert found is not None
    return found


def run_client(
    command: Sequence[str],
    *,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    status: int | None = 0,
) -> subprocess.CompletedProcess[bytes]:
    """Run a client to its end; `status` is the exit status it must have (None: any)."""
    done = subprocess.run(
        command,
        input=stdin,
        capture_output=True,
        timeout=CLIENT_S_MAX,
        check=False,
        env=None if env is None else {**os.environ, **env},
    )
    if status is not None and done.returncode != status:
        said = (done.stdout + done.stderr).decode(errors="replace")[-3000:]
        pytest.fail(f"{Path(command[0]).name} ended with {done.returncode}, not {status}:\n{said}")
    return done
