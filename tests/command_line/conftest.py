"""The `flintmq` command against one broker for each module of tests, in this process: as main() is called."""

from __future__ import annotations

import io
import json
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from broker_process import BrokerProcess

from flintmq.cli import main
from flintmq.client import ClientError, Connection


@dataclass(frozen=True)
class Said:
    """What a command printed, and the status it ended with."""

    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def document(self) -> Any:
        return json.loads(self.out)


Command = Callable[..., Said]


class Octets(io.TextIOWrapper):
    """Standard input or output of a command, in memory."""

    def __init__(self, octets: bytes = b"") -> None:
        super().__init__(io.BytesIO(octets), encoding="utf-8", write_through=True)

        self.at_terminal = False

    def isatty(self) -> bool:
        return self.at_terminal

    def text(self) -> str:
        buffer = self.buffer
        assert isinstance(buffer, io.BytesIO)
        return buffer.getvalue().decode()


def run(line: str, given: str = "", *, at_terminal: bool = False) -> Said:
    """Runs `flintmq LINE` with `given` on its standard input, which is no terminal; its output may be one."""
    before = sys.stdin, sys.stdout, sys.stderr
    out, err = Octets(), Octets()
    out.at_terminal = at_terminal
    sys.stdin, sys.stdout, sys.stderr = Octets(given.encode()), out, err
    try:
        status = main(shlex.split(line))
    except SystemExit as ended:  # of argparse
        status = int(ended.code or 0)
    finally:
        sys.stdin, sys.stdout, sys.stderr = before
    return Said(status, out.text(), err.text())


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess("--data", str(tmp_path_factory.mktemp("broker") / "data")) as process:
        yield process


@pytest.fixture
def flintmq(broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    """The command, for the broker of the module."""
    for name in ("FLINTMQ_USER", "FLINTMQ_PASSWORD", "FLINTMQ_CREDENTIALS", "FLINTMQ_NEW_PASSWORD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("FLINTMQ_URL", f"amqp://localhost:{broker.port}")
    return run


def closed_with(connection: Connection, reason: str) -> None:
    """The broker closes the connection, and says why."""

    def ask_on() -> None:
        for _ in range(1000):  # the close is on its way
            connection.request("broker.info")

    with pytest.raises(ClientError, match=reason):
        ask_on()
