"""A client that asks for little, again and again, while others burden the broker: how long does it wait?

Run as a process of its own, so that nothing of the test holds it up. On a busy machine most of a wait is
for a processor. The kernel counts for each thread how long it ran and how long it was ready and did not run,
so the wait is told apart: what the broker's main thread ran meanwhile is the broker's own, however busy the
machine is. Of the rest the machine's part is taken off, which is what this process, the main thread and the
other threads of the broker waited for a processor (a writer thread that is not given one may hold the lock of
the interpreter meanwhile); what is left then is where the broker slept, on a lock or on the disk.

    python bystander.py PORT PID    says "ready" and what the broker works for an answer in peace;
                                    when its input ends, of each wait what the broker ran and what it slept
"""

from __future__ import annotations

import json
import os
import select
import statistics
import sys
import time
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from peer import Peer, encode_frame

from flintmq.wire import amqp, methods
from flintmq.wire.methods import encode_method

PAUSE_S = 0.004
QUIET_ANSWERS = 200


class Threads:
    """What the kernel has counted for the threads of a process."""

    def __init__(self, pid: int) -> None:
        self.main = Path(f"/proc/{pid}/task/{pid}/schedstat")
        self.folder = Path(f"/proc/{pid}/task")

    def ran_s(self) -> float:
        """How long the main thread has run so far."""
        return int(self.main.read_text().split()[0]) / 1e9

    def queued_s(self) -> float:
        """How long all threads together have waited for a processor so far."""
        total = 0
        for thread in self.folder.iterdir():
            with suppress(OSError):  # a thread may end meanwhile
                total += int((thread / "schedstat").read_text().split()[1])
        return total / 1e9


def tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    broker = Threads(int(sys.argv[2]))
    own = Threads(os.getpid())
    peer = Peer.connect(int(sys.argv[1]))
    peer.socket.settimeout(120.0)
    peer.open(1)
    peer.call(1, methods.QueueDeclare(queue="bystander", exclusive=True))
    question = encode_frame(
        amqp.FRAME_METHOD, 1, encode_method(amqp.VERSION_0_9_1, methods.BasicGet(queue="bystander"))
    )

    def ask() -> tuple[float, float]:
        queued_before_s = broker.queued_s() + own.queued_s()
        ran_before_s = broker.ran_s()
        began_s = time.monotonic()
        peer.raw(question)
        peer.expect(1, methods.BasicGetEmpty)
        waited_s = time.monotonic() - began_s
        ran_s = min(waited_s, broker.ran_s() - ran_before_s)
        queued_s = broker.queued_s() + own.queued_s() - queued_before_s
        return ran_s, max(0.0, waited_s - ran_s - queued_s)

    tell(f"ready {statistics.median([ask()[0] for _ in range(QUIET_ANSWERS)])}")
    waits: list[tuple[float, float]] = []
    while not select.select([sys.stdin], [], [], PAUSE_S)[0]:
        waits.append(ask())
    tell(json.dumps(waits))


if __name__ == "__main__":
    main()
