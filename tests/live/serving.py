"""A broker as its users run it: the `flintmq serve` process, from its first line to its exit status."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 30


class Serving:
    """A running `flintmq serve`; its standard error is gathered while it runs."""

    def __init__(self, *options: str, schemes: tuple[str, ...] = ("amqp",)) -> None:
        command = [sys.executable, "-m", "flintmq", "serve", "--host", "127.0.0.1", "--port", "0", *options]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ}
        )
        self.errors: list[str] = []
        self.reader = threading.Thread(target=self._gather)
        self.reader.start()
        watchdog = threading.Timer(START_TIMEOUT_S, self.process.kill)
        watchdog.start()
        try:
            self.lines = [self._line() for _ in schemes]
        except AssertionError:
            self.kill()
            raise
        finally:
            watchdog.cancel()
        urls = [line.rsplit(" ", 1)[1] for line in self.lines]
        assert tuple(urlsplit(url).scheme for url in urls) == schemes
        self.ports = {urlsplit(url).scheme: urlsplit(url).port or 0 for url in urls}

    def _gather(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.errors.append(line)

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().rstrip("\n")
        assert "listening on" in line, f"{line!r} {self.errors}"
        return line

    @property
    def port(self) -> int:
        return self.ports["amqp"]

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Sends the signal, waits for the end; the exit status."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        try:
            status = self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        self._finish()
        return status

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._finish()

    def _finish(self) -> None:
        self.reader.join()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


@contextlib.contextmanager
def serving(*options: str, schemes: tuple[str, ...] = ("amqp",)) -> Iterator[Serving]:
    """A broker for the length of a test, which must end as asked and without a bug in its log."""
    server = Serving(*options, schemes=schemes)
    try:
        yield server
        if server.process.poll() is None:
            assert server.stop() == 0, server.errors
        assert not [line for line in server.errors if "Traceback" in line or " bug " in line], server.errors
    finally:
        server.kill()


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path
