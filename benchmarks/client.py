"""What FlintMQ's own client costs: messages for each second of the client's processor time, and in real time.

    python benchmarks/client.py [--rows 500000] [--size 100]

Starts a broker of the same build with a journal, publishes persistent rows with confirms, and consumes them
in batches with multiple acks, and one by one with an ack each.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from flintmq.build import build
from flintmq.client import Channel, Queue, connect


class Timed:
    """Prints what a stretch of work took."""

    def __init__(self, what: str, rows: int) -> None:
        self.what = what
        self.rows = rows

    def __enter__(self) -> None:
        self.cpu, self.wall = time.process_time(), time.perf_counter()

    def __exit__(self, *_: object) -> None:
        cpu, wall = time.process_time() - self.cpu, time.perf_counter() - self.wall
        print(
            f"{self.what:<28} {self.rows / cpu:>12,.0f} rows per CPU-second {self.rows / wall:>12,.0f} rows/s"
        )


@contextlib.contextmanager
def broker() -> Iterator[int]:
    with tempfile.TemporaryDirectory() as data:
        command = [sys.executable, "-m", "flintmq", "serve", "--port", "0", "--data", data]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            found = re.search(r":(\d+)$", process.stdout.readline().strip())
            assert found is not None, "the broker did not start"
            yield int(found[1])
        finally:
            process.terminate()
            process.wait()


def consume_batches(queue: Queue, rows: int) -> None:
    with queue.consume() as consumer:
        read = 0
        while read < rows:
            batch = consumer.take(2000, timeout_s=30)
            batch[-1].ack(multiple=True)
            read += len(batch)


def consume_each(queue: Queue, rows: int) -> None:
    with queue.consume(timeout_s=30) as consumer:
        for _, message in zip(range(rows), consumer, strict=False):
            message.ack()


def measure(channel: Channel, rows: int, size: int) -> None:
    queue = channel.queue("rows", durable=True)
    bodies = [bytes(size)] * rows
    with Timed("publish_many, confirmed", rows):
        channel.publish_many(bodies, routing_key="rows", persistent=True)
    with Timed("take, ack of each batch", rows):
        consume_batches(queue, rows)
    few = rows // 10
    channel.publish_many(bodies[:few], routing_key="rows", persistent=True)
    with Timed("iterate, ack of each", few):
        consume_each(queue, few)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--size", type=int, default=100)
    given = parser.parse_args()
    print(f"{build()} build, {given.rows:,} rows of {given.size} octets")
    with (
        broker() as port,
        connect(f"amqp://guest:guest@127.0.0.1:{port}", prefetch=10_000) as connection,
        connection.channel(confirm=True) as channel,
    ):
        measure(channel, given.rows, given.size)


if __name__ == "__main__":
    main()
