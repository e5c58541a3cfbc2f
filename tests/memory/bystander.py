"""A client that asks for little, again and again, while others burden the broker: how long does it wait?

Run as a process of its own, so that nothing of the test holds it up. On a busy machine most of a wait is
for a processor: what the broker's thread and this one have spent ready to run and not running, which the
kernel counts, is the machine's part of the wait and is taken off.

    python bystander.py PORT PID < a pipe; when that ends, a line with the waits comes out
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from peer import Peer, encode_frame

from flintmq.wire import amqp, methods
from flintmq.wire.methods import encode_method

PAUSE_S = 0.004


def queued_s(pid: int) -> float:
    """How long the first thread of a process has waited for a processor so far."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[1]) / 1e9


def tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    broker = int(sys.argv[2])
    own = os.getpid()
    peer = Peer.connect(int(sys.argv[1]))
    peer.socket.settimeout(120.0)
    peer.open(1)
    peer.call(1, methods.QueueDeclare(queue="bystander", exclusive=True))
    question = encode_frame(
        amqp.FRAME_METHOD, 1, encode_method(amqp.VERSION_0_9_1, methods.BasicGet(queue="bystander"))
    )
    tell("ready")
    waits: list[tuple[float, float]] = []
    while not select.select([sys.stdin], [], [], PAUSE_S)[0]:
        queued_before_s = queued_s(broker) + queued_s(own)
        began_s = time.monotonic()
        peer.raw(question)
        peer.expect(1, methods.BasicGetEmpty)
        waited_s = time.monotonic() - began_s
        waits.append((waited_s, queued_s(broker) + queued_s(own) - queued_before_s))
    tell(json.dumps(waits))


if __name__ == "__main__":
    main()
