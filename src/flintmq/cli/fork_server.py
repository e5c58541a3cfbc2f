"""Brokers forked from one process that has loaded everything: each of them listens within milliseconds.

    parent                          nursery                          broker
      | start [options], its stderr   |                                |
      |------------------------------>|-- fork ----------------------->|  its input is a pipe, whose
      |     pid, "... listening on"   |<- "... listening on" ----------|  other end the nursery holds
      |<------------------------------|                                |
      | stop pid                      |-- closes the pipe ------------>|
      |                   status      |<- ends ------------------------x
      |<------------------------------|

The nursery ends when its parent does, however that ends, and the brokers end when the nursery does. Messages
are lines of JSON over a pair of sockets, which carries the descriptor of the parent's standard error along.
For systems that can fork.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import traceback
from typing import Any, NoReturn

REQUEST_BYTES_MAX = 1 << 20
# The parent's end is seen at once by the end of its socket, and by this where a child of the parent,
# which it forked, has that socket too.
PARENT_CHECK_S = 1.0
STOP_TIMEOUT_S = 10.0


class Born:
    """A broker of the nursery."""

    def __init__(self, process: int, lifeline: int, said: int) -> None:
        self.process = process
        self.lifeline = lifeline
        self.said = said  # what it says on standard output; held open, as the broker is not to mind

    def forget(self) -> None:
        os.close(self.lifeline)
        os.close(self.said)


class Nursery:
    def __init__(self, parent: socket.socket) -> None:
        self.parent = parent
        self.parent_process = os.getppid()
        self.born: dict[int, Born] = {}

    def serve(self) -> None:
        """Until the parent is gone."""
        while True:
            ready, _, _ = select.select([self.parent], [], [], PARENT_CHECK_S)
            if os.getppid() != self.parent_process:
                return
            if not ready:
                continue
            octets, descriptors, _, _ = socket.recv_fds(self.parent, REQUEST_BYTES_MAX, 1)
            if not octets:
                return
            while not octets.endswith(b"\n"):
                more = self.parent.recv(REQUEST_BYTES_MAX)
                if not more:
                    return
                octets += more
            request = json.loads(octets)
            if "stop" in request:
                answer = self.stop(request["stop"])
            else:
                answer = self.start(request, descriptors[0])
                os.close(descriptors[0])
            self.parent.sendall(json.dumps(answer).encode() + b"\n")

    def start(self, request: dict[str, Any], errors: int) -> dict[str, Any]:
        """The process and the line that says where it listens, or its status if it has ended instead."""
        lifeline_end, lifeline = os.pipe()
        said, said_end = os.pipe()
        process = os.fork()
        if process == 0:
            self.become_broker(request, lifeline_end, said_end, errors, [lifeline, said])
        os.close(lifeline_end)
        os.close(said_end)
        line = b""
        while not line.endswith(b"\n"):
            octets = os.read(said, 4096)
            if not octets:
                break
            line += octets
        broker = Born(process, lifeline, said)
        if not line:
            broker.forget()
            return {"status": os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])}
        self.born[process] = broker
        return {"process": process, "line": line.decode().split("\n")[0]}

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
        watch = os.pidfd_open(process) if hasattr(os, "pidfd_open") else None
        if watch is None:
            ended = wait_by_output(broker.said)
        else:
            ended = bool(select.select([watch], [], [], STOP_TIMEOUT_S)[0])
            os.close(watch)
        if not ended:
            os.kill(process, signal.SIGKILL)
        _, status = os.waitpid(process, 0)
        os.close(broker.said)
        return {"status": os.waitstatus_to_exitcode(status), "in_time": ended}


def wait_by_output(said: int) -> bool:
    """Whether the process has closed its standard output in time, as it does when it ends."""
    while select.select([said], [], [], STOP_TIMEOUT_S)[0]:
        if not os.read(said, 4096):
            return True
    return False


def load() -> None:
    """What every broker needs, so that none has to load it."""
    import gc
    from importlib.metadata import entry_points

    import flintmq.cli.serve
    import flintmq.server  # noqa: F401
    from flintmq.broker.exchanges.exchange_plugins import GROUP
    from flintmq.build import build, event_loop
    from flintmq.cli import parser

    build()
    parser()
    entry_points(group=GROUP)
    if event_loop() == "uvloop":
        import uvloop  # noqa: F401
    gc.collect()
    gc.freeze()


def main() -> None:
    """`python -m flintmq.cli.fork_server DESCRIPTOR`, of the socket to the parent."""
    with socket.socket(fileno=int(sys.argv[1])) as parent:
        os.set_inheritable(parent.fileno(), False)
        load()
        Nursery(parent).serve()


if __name__ == "__main__":
    main()
