"""What a restart costs with much durable topology: `benchmarks/restart.py [QUEUES BINDINGS [DIRECTORY]]`.

Declares queues, binds them to topic exchanges, stops the broker and starts it again. Tells the memory before,
and of the restart the memory, its peak, the time until it listens and the processor time of that.
"""

from __future__ import annotations

import shutil
import socket
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from broker_process import BrokerProcess
from peer import Peer, encode_frame

from flintmq.wire import amqp, methods
from flintmq.wire.methods import encode_method

PORTION = 2000
EXCHANGES = 10


def memory_mb(pid: int) -> tuple[int, int]:
    """Now, and at its peak."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) >> 10, int(fields["VmHWM"].split()[0]) >> 10


def cpu_s(pid: int) -> float:
    stat = Path(f"/proc/{pid}/stat").read_text()
    fields = stat[stat.rindex(")") + 2 :].split()
    return (int(fields[11]) + int(fields[12])) / 100


def declare(port: int, queues: int, bindings: int) -> None:
    """All that is to come back, without an answer for each."""
    peer = Peer.connect(port)
    peer.socket.settimeout(600)
    peer.open(1)
    for exchange in range(EXCHANGES):
        peer.call(1, methods.ExchangeDeclare(exchange=f"events.{exchange}", type="topic", durable=True))
    topology = [
        *[methods.QueueDeclare(queue=f"queue.{n}", durable=True, no_wait=True) for n in range(queues)],
        *[
            methods.QueueBind(
                queue=f"queue.{n % queues}",
                exchange=f"events.{n % EXCHANGES}",
                routing_key=f"orders.{n}.created",
                no_wait=True,
            )
            for n in range(bindings)
        ],
    ]
    for at in range(0, len(topology), PORTION):
        frames = [
            encode_frame(amqp.FRAME_METHOD, 1, encode_method(amqp.VERSION_0_9_1, each))
            for each in topology[at : at + PORTION]
        ]
        peer.socket.sendall(b"".join(frames))
        peer.call(1, methods.QueueDeclare(queue="queue.0", passive=True))
    peer.socket.shutdown(socket.SHUT_RDWR)


def main() -> None:
    queues, bindings = [int(each) for each in (sys.argv[1:3] + ["200000", "1000000"][len(sys.argv) - 1 :])]
    place = sys.argv[3] if len(sys.argv) > 3 else tempfile.mkdtemp(prefix="flintmq-restart-")
    settings = Path(place) / "settings.toml"
    settings.parent.mkdir(exist_ok=True)
    settings.write_text(f"[limits]\nqueues_per_virtual_host_max = {queues + 1}\n")
    options = ("--config", str(settings), "--data", place)
    try:
        if not list(Path(place).glob("*.segment")):
            broker = BrokerProcess(*options)
            try:
                declare(broker.port, queues, bindings)
                time.sleep(1.0)
                print(f"declared: {memory_mb(broker.process.pid)[0]} MB")
            finally:
                broker.process.terminate()
                broker.process.wait()
        started_s = time.monotonic()
        broker = BrokerProcess(*options, start_timeout_s=600)
        took_s = time.monotonic() - started_s
        now, peak = memory_mb(broker.process.pid)
        used_s = cpu_s(broker.process.pid)
        print(f"restarted: {now} MB, peak {peak} MB, {took_s:.1f} s, {used_s:.1f} s of the processor")
        broker.process.terminate()
        broker.process.wait()
    finally:
        if len(sys.argv) <= 3:
            shutil.rmtree(place)


if __name__ == "__main__":
    main()
