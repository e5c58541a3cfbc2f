"""One who has nothing to do with it: sends itself a small message, waits for it, and begins again.

    python bystander.py PORT PID        a line on stdin: forget, and tell of what follows
                                        the next line:   prints the longest wait, the 99th percentile of waits
                                                         and of the time by the clock, in ms, and how many

The wait is the time by the clock, but for what the machine takes from both where Linux tells: at most what
the broker has worked meanwhile, and without the time that the bystander or the broker's main thread stood
in line for a processor (schedstat, in nanoseconds). What is left is a stall: the broker works on something
else and does not come to the bystander.
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
        self.p99_ms = 0.0
        self.clock_p99_ms = 0.0
        self.round_trips = 0
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
        """`longest_ms` is the longest wait of what happens inside, one in a hundred is above `p99_ms`."""
        self.say()
        assert self.said() == "watching"
        yield
        self.say()
        *waits_ms, count = self.said().split()
        self.round_trips = int(count)
        assert self.round_trips > 0
        self.longest_ms, self.p99_ms, self.clock_p99_ms = map(float, waits_ms)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def moment(pid: str) -> tuple[float, float]:
    """What the broker has worked so far, and the time without that in which one of both stood in line."""
    now_s = time.monotonic()
    try:
        # The clock of another process: schedstat counts what a thread works by ticks of some milliseconds.
        worked_s = time.clock_gettime((~int(pid) << 3) | 2)
        in_line = int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_bytes().split()[1])
        in_line += int(Path("/proc/self/schedstat").read_bytes().split()[1])
    except (AttributeError, OSError, IndexError):
        return now_s, now_s
    return worked_s, now_s - in_line / 1e9


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def percentile(waits_s: list[float]) -> float:
    """What one in a hundred is above."""
    return sorted(waits_s)[len(waits_s) * 99 // 100] if waits_s else 0.0


def main(port: str, pid: str) -> None:
    from peer import Peer

    from flintmq.wire import methods

    with Peer.connect(int(port)) as peer:
        peer.socket.settimeout(60)
        peer.open(1)
        queue = peer.call(1, methods.QueueDeclare(exclusive=True)).queue
        peer.call(1, methods.BasicConsume(queue=queue, no_ack=True))
        say("ready")
        waits_s: list[float] = []
        clock_s: list[float] = []
        is_watching = False
        while True:
            if select.select([sys.stdin], [], [], PAUSE_S)[0]:
                if not sys.stdin.readline():
                    return
                is_watching = not is_watching
                if is_watching:
                    say("watching")
                else:
                    told = max(waits_s, default=0.0), percentile(waits_s), percentile(clock_s)
                    say(" ".join(f"{each * 1000:.3f}" for each in told) + f" {len(waits_s)}")
                waits_s.clear()
                clock_s.clear()
            before, began_s = moment(pid), time.monotonic()
            peer.publish(1, b"x", key=queue)
            peer.delivery(1)
            clock_s.append(time.monotonic() - began_s)
            after = moment(pid)
            waits_s.append(min(after[0] - before[0], after[1] - before[1]))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))
    main(*sys.argv[1:])
