"""Brokers forked from one process that has loaded everything: each of them listens within milliseconds.

    parent                          nursery                          broker
      | start [options], its stderr   |                                |
      |------------------------------>|-- fork ----------------------->|  its input is a pipe, whose
      |     pid, "... listening on"   |<- "... listening on" ----------|  other end the nursery holds
      |<------------------------------|                                |
      | tell pid, a command           |-- the command ---------------->|  server/process/rehearsal.py
      |                   the answer  |<- "answer ..." ----------------|
      |<------------------------------|                                |
      | stop pid, or kill pid         |-- closes the pipe, or kills -->|
      |                   status      |<- ends ------------------------x
      |<------------------------------|

The nursery ends when its parent does, however that ends, and the brokers end when the nursery does: one that
does not in time is killed. So is a broker that does not say in time where it listens. Messages are lines of
JSON over a pair of sockets, which carries the descriptor of the parent's standard error along. For systems
that can fork.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import sys
import traceback
from importlib import import_module
from itertools import chain
from typing import Any, NoReturn

from flintmq.clock import Clock

REQUEST_BYTES_MAX = 1 << 20
# The parent's end is seen at once by the end of its socket, and by this where a child of the parent,
# which it forked, has that socket too.
PARENT_CHECK_S = 1.0
STOP_TIMEOUT_S = 10.0
# For so long after an answer nothing is loaded: a test begins, and its broker needs the processor.
PAUSE_S = 0.01
READ_BYTES = 65_536
# How a line begins that answers a command; others say where the broker listens, and that it stops.
ANSWER = b"answer "
CLOCK = Clock()
# What brokers with a data directory need beside the rest, see server/data_directory.py.
DURABLE = (
    "flintmq.broker.recovery",
    "flintmq.storage.journal.delivered_marks",
    "flintmq.storage.journal.overflow",
    "flintmq.storage.staging_files",
)


class Born:
    """A broker of the nursery."""

    def __init__(self, process: int, lifeline: int, said: int) -> None:
        self.process = process
        self.lifeline = lifeline
        self.said = said  # what it says on standard output; held open, as the broker is not to mind
        self.unread = b""  # of what it said
        self.late = 0  # answers that did not come in time, and come yet

    def ends_within(self, timeout_s: float) -> bool:
        if not hasattr(os, "pidfd_open"):
            return wait_by_output(self.said, timeout_s)
        watch = os.pidfd_open(self.process)
        try:
            return bool(select.select([watch], [], [], timeout_s)[0])
        finally:
            os.close(watch)

    def status(self) -> int:
        """Of a broker that has ended: its exit status, or the signal that ended it, below 0."""
        return os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])

    def kill(self) -> int:
        os.kill(self.process, signal.SIGKILL)
        return self.status()

    def forget(self) -> None:
        os.close(self.lifeline)
        os.close(self.said)


class ParentGone(Exception):
    """There is nobody left to start brokers for."""


class Nursery:
    def __init__(self, parent: socket.socket, parent_process: int) -> None:
        self.parent = parent
        self.parent_process = parent_process  # as it says itself: it may be gone by now
        self.born: dict[int, Born] = {}

    def serve(self) -> None:
        """Until the parent is gone; then all brokers end."""
        try:
            self.load_late()
            gc.enable()
            while self.is_said(self.parent.fileno(), None):
                self.answer_request()
        except ParentGone:
            pass
        finally:
            self.end()

    def load_late(self) -> None:
        """What only some brokers need. A parent that asks meanwhile does not wait for it."""
        from flintmq.server.server import LATE

        pause_s = 0.0
        for name in chain(DURABLE, *LATE):
            while self.is_said(self.parent.fileno(), pause_s):
                self.answer_request()
                pause_s = PAUSE_S
            pause_s = 0.0
            import_module(name)

    def is_said(self, descriptor: int, timeout_s: float | None) -> bool:
        """Whether there is something to read in time; ParentGone if the parent is gone before."""
        until_s = None if timeout_s is None else CLOCK.monotonic_s() + timeout_s
        parent = self.parent.fileno()
        while True:
            left_s = PARENT_CHECK_S if until_s is None else max(0.0, until_s - CLOCK.monotonic_s())
            ready, _, _ = select.select([descriptor, parent], [], [], min(left_s, PARENT_CHECK_S))
            if os.getppid() != self.parent_process:
                raise ParentGone
            if descriptor in ready:
                return True
            if ready:  # the parent says nothing while it waits for an answer: this is its end
                raise ParentGone
            if left_s == 0:
                return False

    def answer_request(self) -> None:
        octets, descriptors, _, _ = socket.recv_fds(self.parent, REQUEST_BYTES_MAX, 1)
        while not octets.endswith(b"\n"):
            more = self.parent.recv(REQUEST_BYTES_MAX) if octets else b""
            if not more:
                raise ParentGone
            octets += more
        request = json.loads(octets)
        if "tell" in request:
            answer = self.tell(request)
        elif "kill" in request:
            answer = self.kill(request["kill"])
        elif "stop" in request:
            answer = self.stop(request["stop"])
        else:
            try:
                answer = self.start(request, descriptors[0])
            finally:
                os.close(descriptors[0])
        self.parent.sendall(json.dumps(answer).encode() + b"\n")

    def start(self, request: dict[str, Any], errors: int) -> dict[str, Any]:
        """The process and the line that says where it listens, or its status if it has ended instead.

        A broker that says nothing in time is killed, and its status is None.
        """
        lifeline_end, lifeline = os.pipe()
        said, said_end = os.pipe()
        gc.freeze()
        process = os.fork()
        if process == 0:
            self.become_broker(request, lifeline_end, said_end, errors, [lifeline, said])
        os.close(lifeline_end)
        os.close(said_end)
        broker = Born(process, lifeline, said)
        try:
            line = self.next_line(broker, CLOCK.monotonic_s() + request["within_s"])
        except ParentGone:
            broker.kill()
            raise
        if line:
            self.born[process] = broker
            return {"process": process, "line": line.decode().rstrip("\n")}
        status = broker.kill() if line is None else broker.status()
        broker.forget()
        return {"status": None if line is None else status}

    def next_line(self, broker: Born, until_s: float) -> bytes | None:
        """What the broker says next; nothing if it has ended instead, None if it has not come in time."""
        parts = [broker.unread]
        while b"\n" not in parts[-1]:
            if not self.is_said(broker.said, max(0.0, until_s - CLOCK.monotonic_s())):
                broker.unread = b"".join(parts)
                return None
            octets = os.read(broker.said, READ_BYTES)
            if not octets:
                return b""
            parts.append(octets)
        line, end, broker.unread = b"".join(parts).partition(b"\n")
        return line + end

    def tell(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer of a broker to a command; empty if the broker has ended, or does not answer in time."""
        broker = self.born.get(request["tell"])
        if broker is None:
            return {}
        until_s = CLOCK.monotonic_s() + request["within_s"]
        try:
            os.write(broker.lifeline, request["command"].encode() + b"\n")
        except BrokenPipeError:
            return {}
        while line := self.next_line(broker, until_s):
            if not line.startswith(ANSWER):
                continue
            if not broker.late:
                return {"answer": line[len(ANSWER) :].decode()}
            broker.late -= 1  # whoever asked for it has given up
        if line is None:
            broker.late += 1
        return {}

    def kill(self, process: int) -> dict[str, Any]:
        """kill -9."""
        broker = self.born.pop(process)
        status = broker.kill()
        broker.forget()
        return {"status": status}

    def become_broker(
        self, request: dict[str, Any], given: int, said: int, errors: int, others: list[int]
    ) -> NoReturn:
        status = 1
        try:
            self.parent.close()
            for each in self.born.values():
                each.forget()
            for number, descriptor in enumerate((given, said, errors)):
                os.dup2(descriptor, number)
            for descriptor in (given, said, errors, *others):
                os.close(descriptor)
            os.chdir(request["directory"])
            os.environ.clear()
            os.environ.update(request["environment"])
            gc.enable()
            from flintmq.cli import main as flintmq

            status = flintmq(["serve", "--until-input-ends", *request["start"]])
        except SystemExit as end:  # options that argparse does not know
            status = end.code if isinstance(end.code, int) else 1
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def stop(self, process: int) -> dict[str, Any]:
        """The exit status, and whether the broker ended in time or had to be killed."""
        broker = self.born.pop(process)
        os.close(broker.lifeline)
        in_time = broker.ends_within(STOP_TIMEOUT_S)
        status = broker.status() if in_time else broker.kill()
        os.close(broker.said)
        return {"status": status, "in_time": in_time}

    def end(self) -> None:
        """All brokers end, in the time of one."""
        for broker in self.born.values():
            os.close(broker.lifeline)
        until_s = CLOCK.monotonic_s() + STOP_TIMEOUT_S
        for broker in self.born.values():
            if not broker.ends_within(max(0.0, until_s - CLOCK.monotonic_s())):
                broker.kill()


def wait_by_output(said: int, timeout_s: float) -> bool:
    """Whether the process has closed its standard output in time, as it does when it ends."""
    while select.select([said], [], [], timeout_s)[0]:
        if not os.read(said, 4096):
            return True
    return False


def load() -> None:
    """What every broker of a test needs, so that none has to load it."""
    import flintmq.cli.local.serve
    import flintmq.server
    import flintmq.server.process.rehearsal  # noqa: F401
    from flintmq import config
    from flintmq.broker.exchanges.exchange_plugins import GROUP
    from flintmq.build import build, event_loop
    from flintmq.cli import parser
    from flintmq.entry_points import installed

    build()
    parser("serve").parse_args(["serve", "--port", "0"])  # argparse compiles its patterns for the first words
    config.load(port=0)
    installed(GROUP)
    if event_loop() == "uvloop":
        import uvloop  # noqa: F401


def main() -> None:
    """The arguments: the descriptor of the socket to the parent, and the parent's process.

    Garbage is collected from the moment on when all is loaded.
    """
    with socket.socket(fileno=int(sys.argv[1])) as parent:
        os.set_inheritable(parent.fileno(), False)
        load()
        Nursery(parent, int(sys.argv[2])).serve()
