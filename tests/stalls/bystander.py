"""One who has nothing to do with it: sends itself a small message, waits for it, and begins again.

    python bystander.py PORT PID        a line on stdin: forget, and tell of what follows
                                        the next line:   prints the longest wait in milliseconds, and how many

The wait is the time by the clock, but for what the machine takes from both where Linux tells (schedstat: time
on a CPU and time in line for one, in nanoseconds): at most what the broker's thread has worked meanwhile, and
without the time that the bystander itself stood in line. What is left is a stall: the broker works on
something else and does not come to the bystander.
"""

from __future__ import annotations

import contextlib
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

# Between two round trips; what happens meanwhile is seen by the next one.
PAUSE_S = 0.0005


class Bystander:
    """The process, as a test sees it."""

    def __init__(self, port: int, pid: int) -> None:
        command = [sys.executable, __file__, str(port), str(pid)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.longest_ms = 0.0
        assert self.said() == "ready"

    def said(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def say(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """`longest_ms` is the longest wait of what happens inside."""
        self.say()
        assert self.said() == "watching"
        yield
        self.say()
        longest_ms, count = self.said().split()
        assert int(count) > 0
        self.longest_ms = float(longest_ms)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def moment(pid: str) -> tuple[float, float]:
    """What the broker has worked so far, and the time without that in which this process stood in line."""
    now_s = time.monotonic()
    try:
        worked = int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_bytes().split()[0])
        in_line = int(Path("/proc/self/schedstat").read_bytes().split()[1])
    except (OSError, IndexError):
        return now_s, now_s
    return worked / 1e9, now_s - in_line / 1e9


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(port: str, pid: str) -> None:
    from peer import Peer

    from flintmq.wire import methods

    with Peer.connect(int(port)) as peer:
        peer.socket.settimeout(60)
        peer.open(1)
        queue = peer.call(1, methods.QueueDeclare(exclusive=True)).queue
        peer.call(1, methods.BasicConsume(queue=queue, no_ack=True))
        say("ready")
        longest_s, count, is_watching = 0.0, 0, False
        while True:
            if select.select([sys.stdin], [], [], PAUSE_S)[0]:
                if not sys.stdin.readline():
                    return
                is_watching = not is_watching
                say("watching" if is_watching else f"{longest_s * 1000:.1f} {count}")
                longest_s, count = 0.0, 0
            before = moment(pid)
            peer.publish(1, b"x", key=queue)
            peer.delivery(1)
            count += 1
            after = moment(pid)
            longest_s = max(longest_s, min(after[0] - before[0], after[1] - before[1]))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))
    main(*sys.argv[1:])
