"""A real broker in a process of its own, on a port of its own, for tests that talk to it over a socket."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import IO

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 15.0
# What the broker logs, with a traceback, when its own code failed.
BUG = "a bug "
LEFT_OPEN = "was left open"

_LISTENING = re.compile(r"listening on amqp://127\.0\.0\.1:(\d+)")


class BrokerProcess:
    """`flintmq serve` from its first line to its exit status. What it logs can be waited for."""

    command: tuple[str, ...] = (sys.executable, "-m", "flintmq")

    def __init__(self, *options: str, start_timeout_s: float = START_TIMEOUT_S) -> None:
        command = [*self.command, "serve", "--port", "0", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.lines: list[str] = []
        self.said = threading.Condition()
        self.readers = [self._follow(self.process.stdout), self._follow(self.process.stderr)]
        self.port = int(self.wait_for(_LISTENING, start_timeout_s)[1])

    def _follow(self, stream: IO[str] | None) -> threading.Thread:
        assert stream is not None

        def read() -> None:
            for line in stream:
                with self.said:
                    self.lines.append(line.rstrip("\n"))
                    self.said.notify_all()

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        return reader

    def wait_for(self, pattern: re.Pattern[str], timeout_s: float = 10.0, start: int = 0) -> re.Match[str]:
        """The first line, from the one numbered `start`, in which the pattern is found."""

        def found() -> re.Match[str] | None:
            return next(filter(None, map(pattern.search, self.lines[start:])), None)

        with self.said:
            match = self.said.wait_for(found, timeout_s)
            assert match, f"no line with {pattern.pattern!r}:\n" + "\n".join(self.lines[start:])
            return match

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """The process stands still meanwhile, so that all that happens to its sockets is there at once."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def stop(self, expected: int = 0) -> None:
        """An orderly end: SIGTERM, and this exit status, with no bug met on the way."""
        self.process.terminate()
        try:
            status = self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            for reader in self.readers:
                reader.join()
        assert status == expected, f"exit status {status}:\n" + "\n".join(self.lines[-20:])
        bugs = [line for line in self.lines if BUG in line or LEFT_OPEN in line]
        assert not bugs, "\n".join(bugs)

    def __enter__(self) -> BrokerProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
