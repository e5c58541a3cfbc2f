"""Where the brokers of tests come from: forked by a process that has loaded everything, or started anew.

A broker ends with its source, and a source with the process that made it, however that ends.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any, Protocol

STOP_TIMEOUT_S = 10.0
# For a broker to say where it listens: a tenth of a second, and more where it has much to recover.
START_TIMEOUT_S = 60.0
# For whoever starts brokers to answer, beyond the time that the broker itself has.
ANSWER_TIMEOUT_S = 30.0
# For a broker to do what it is told: milliseconds, and more for a million messages that are due at once.
TELL_TIMEOUT_S = 60.0
# Without -m, for which Python would load more, and without a look for garbage, as what is loaded stays: that
# would cost a tenth of the time. Brokers change their directory, and look for modules in none.
NURSERY = (
    "import gc, sys; gc.disable(); sys.path[:] = [each for each in sys.path if each]; "
    "from flintmq.cli.fork_server import main; main()"
)
# How a line begins that answers a command, see server/process/rehearsal.py.
ANSWER = "answer "


class BrokerGone(RuntimeError):
    """The broker has ended, by itself or because the test killed it."""


class Source(Protocol):
    """Where brokers come from."""

    def start(self, options: Sequence[str]) -> tuple[int, str]:
        """The process, and the line that says where it listens."""

    def tell(self, process: int, command: str) -> str:
        """The answer of a broker to a command of server/process/rehearsal.py; raises BrokerGone."""

    def kill(self, process: int) -> None:
        """kill -9, and the process is gone when it returns."""

    def stop(self, process: int) -> None: ...

    def close(self) -> None: ...


class ForkingSource:
    """Brokers of a nursery (cli/fork_server.py), which begins to load when the source is made."""

    def __init__(
        self, start_timeout_s: float = START_TIMEOUT_S, answer_timeout_s: float = ANSWER_TIMEOUT_S
    ) -> None:
        self.start_timeout_s = start_timeout_s
        self.answer_timeout_s = answer_timeout_s
        self.lock = threading.Lock()  # a test may have threads, and an answer is for whoever has asked
        self.socket, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-c", NURSERY, str(theirs.fileno()), str(os.getpid())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                # Control-C is for the tests, which then stop the brokers.
                start_new_session=True,
            )

    def ask(self, request: dict[str, Any], within_s: float = 0.0) -> dict[str, Any]:
        """The answer of the nursery, which has within_s for what it is asked to do."""
        octets = json.dumps(request).encode() + b"\n"
        answer: list[bytes] = []
        with self.lock:
            self.socket.settimeout(within_s + self.answer_timeout_s)
            try:
                sent = socket.send_fds(self.socket, [octets], [2])
                self.socket.sendall(octets[sent:])
                while not answer or not answer[-1].endswith(b"\n"):
                    more = self.socket.recv(1_048_576)
                    if not more:
                        raise ConnectionError
                    answer.append(more)
            except TimeoutError:
                self.process.kill()  # its late answer would be taken for that of the next request
                raise RuntimeError(
                    "the process that starts brokers does not answer and was killed: "
                    f"process {self.process.pid}"
                ) from None
            except ConnectionError:
                raise RuntimeError(
                    f"the process that starts brokers has ended with {self.process.wait(STOP_TIMEOUT_S)}"
                ) from None
        found: dict[str, Any] = json.loads(b"".join(answer))
        return found

    def start(self, options: Sequence[str]) -> tuple[int, str]:
        place = {"directory": os.getcwd(), "environment": dict(os.environ)}
        request = {"start": options, "within_s": self.start_timeout_s, **place}
        answer = self.ask(request, self.start_timeout_s)
        if "line" not in answer:
            raise failed(options, answer["status"], self.start_timeout_s)
        return answer["process"], answer["line"]

    def tell(self, process: int, command: str) -> str:
        request = {"tell": process, "command": command, "within_s": TELL_TIMEOUT_S}
        answer = self.ask(request, TELL_TIMEOUT_S)
        if "answer" not in answer:
            raise gone(process)
        return str(answer["answer"])

    def kill(self, process: int) -> None:
        self.ask({"kill": process})

    def stop(self, process: int) -> None:
        answer = self.ask({"stop": process}, STOP_TIMEOUT_S)
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
        self.lock = threading.Lock()
        self.processes: dict[int, subprocess.Popen[str]] = {}

    def start(self, options: Sequence[str]) -> tuple[int, str]:
        command = [sys.executable, "-m", "flintmq", "serve", "--until-input-ends", *options]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        line, is_late = next_line(process, self.start_timeout_s)
        if not line:
            process.communicate()
            raise failed(options, None if is_late else process.returncode, self.start_timeout_s)
        self.processes[process.pid] = process
        return process.pid, line

    def tell(self, process: int, command: str) -> str:
        running = self.processes.get(process)
        if running is None or running.stdin is None:
            raise gone(process)
        with self.lock:
            try:
                running.stdin.write(command + "\n")
                running.stdin.flush()
            except BrokenPipeError:
                raise gone(process) from None
            while line := next_line(running, TELL_TIMEOUT_S)[0]:
                if line.startswith(ANSWER):
                    return line.removeprefix(ANSWER)
        raise gone(process)

    def kill(self, process: int) -> None:
        running = self.processes.pop(process)
        running.kill()
        running.communicate()

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


def next_line(process: subprocess.Popen[str], timeout_s: float) -> tuple[str, bool]:
    """The next line that a process says, and whether none came in time: then the process is killed."""
    assert process.stdout is not None
    is_late = threading.Event()

    def give_up() -> None:
        is_late.set()
        process.kill()

    watchdog = threading.Timer(timeout_s, give_up)
    watchdog.start()
    try:
        return process.stdout.readline(), is_late.is_set()
    finally:
        watchdog.cancel()


def failed(options: Sequence[str], status: int | None, within_s: float) -> RuntimeError:
    command = f"flintmq serve {' '.join(options)}"
    if status is None:
        return RuntimeError(f"{command} said nothing within {within_s:g} s and was killed")
    return RuntimeError(f"{command} ended with status {status}; it has said why")


def gone(process: int) -> BrokerGone:
    return BrokerGone(f"the broker, process {process}, has ended or does not answer: start() starts it again")


def new_source() -> Source:
    return ForkingSource() if hasattr(os, "fork") else SpawningSource()
