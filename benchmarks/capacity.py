"""What each thing costs that a broker holds: octets of its resident memory, and of its data directory.

    python benchmarks/capacity.py [--count 5000] [--markdown]

Each group of lines has a broker of its own, of the same build, with a journal. Memory is read before and
after as many of one thing as `--count` says, or a multiple or a part of it, and the difference is divided by
their number. It needs no quiet machine: nothing is timed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from brokers import Broker, flintmq, raise_descriptor_limit

from flintmq.build import build
from flintmq.client import Channel, aio, connect

COMMAND = "{python} -m flintmq serve --port 0 --data {directory} --log-level warning"
# Messages of one queue that stay in memory: those behind them are on disk alone.
IN_MEMORY_MAX = 131_072
# Messages are published in so many portions.
PORTIONS = 50
# The directory is read when it has been the same for so long.
QUIET_S = 1.0


class Held:
    """A broker, and what it holds at the moment."""

    def __init__(self, broker: Broker, directory: Path) -> None:
        self.broker = broker
        self.directory = directory
        self.url = f"amqp://guest:guest@127.0.0.1:{broker.port}"

    def memory(self) -> int:
        self.broker.settle()
        status = Path(f"/proc/{self.broker.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) << 10

    def journal(self) -> int:
        """Octets of records; files are prepared ahead, and so are larger."""
        with connect(self.url) as connection:
            octets = connection.request("broker.info").results["disk-bytes"]
        assert isinstance(octets, int)
        return octets

    @contextlib.contextmanager
    def channel(self) -> Iterator[Channel]:
        with connect(self.url) as connection, connection.channel(confirm=True, prefetch=0) as channel:
            yield channel


Costs = Iterator[tuple[str, float]]


def connections(held: Held, count: int) -> Costs:
    async def measure() -> list[tuple[str, float]]:
        before = held.memory()
        opened = [await aio.connect(held.url) for _ in range(count // 5)]
        after = held.memory()
        channels = [await connection.channel() for connection in opened for _ in range(5)]
        last = held.memory()
        for connection in opened:
            await connection.close()
        return [
            ("connection", (after - before) / len(opened)),
            ("channel", (last - after) / len(channels)),
        ]

    yield from asyncio.run(measure())


def queues(held: Held, count: int) -> Costs:
    with held.channel() as channel:
        before = held.memory()
        for number in range(count):
            channel.queue(f"transient.{number}", auto_delete=True)
        after = held.memory()
        yield "queue, transient", (after - before) / count
        few = count // 5  # each waits for the disk
        for number in range(few):
            channel.queue(f"durable.{number}", durable=True)
        yield "queue, durable", (held.memory() - after) / few


def bindings(held: Held, count: int) -> Costs:
    with held.channel() as channel:
        queue = channel.queue("bound")
        for exchange in ("amq.direct", "amq.topic"):
            before = held.memory()
            for number in range(count):
                queue.bind(exchange, f"orders.{number % 100}.{number}")
            yield f"binding to {exchange}", (held.memory() - before) / count


def consumers(held: Held, count: int) -> Costs:
    with held.channel() as channel:
        queue = channel.queue("consumed", durable=True)
        before = held.memory()
        opened = [queue.consume() for _ in range(count // 2)]
        yield "consumer", (held.memory() - before) / len(opened)


def waiting(size: int, persistent: bool) -> Callable[[Held, int], Costs]:
    kind = "persistent" if persistent else "transient"

    def measure(held: Held, count: int) -> Costs:
        count = min(20 * count, IN_MEMORY_MAX * 3 // 4, (48 << 20) // size)
        with held.channel() as channel:
            queue = channel.queue("long", durable=True)

            def publish() -> None:
                bodies = [bytes(size)] * (count // PORTIONS)
                channel.publish_many(bodies, routing_key="long", persistent=persistent)

            # What a portion takes on its way stays for the next one: it is not what messages cost.
            publish()
            queue.purge()
            before = held.memory()
            for _ in range(PORTIONS):
                publish()
            after = held.memory()
            yield f"message of {size} B that waits in memory, {kind}", (after - before) / count
            with queue.consume() as consumer:
                got = 0
                while got < count // PORTIONS * PORTIONS:
                    got += len(consumer.take(10_000, timeout_s=30))
                yield f"message of {size} B that is unacked, {kind}", (held.memory() - before) / count

    return measure


def on_disk(held: Held, count: int) -> Costs:
    count, size = 100 * count, 100
    with held.channel() as channel:
        channel.queue("long", durable=True)
        channel.publish_many([bytes(size)] * 2 * IN_MEMORY_MAX, routing_key="long", persistent=True)
        before, written = held.memory(), settled(held)
        for _ in range(10):
            channel.publish_many([bytes(size)] * (count // 10), routing_key="long", persistent=True)
        yield "message of 100 B behind 131,072 others: memory", (held.memory() - before) / count
        yield "message of 100 B, persistent: disk", (settled(held) - written) / count


def settled(held: Held) -> int:
    """The octets of the journal when they change no more."""
    found = held.journal()
    while True:
        time.sleep(QUIET_S)
        again = held.journal()
        if again == found:
            return found
        found = again


MEASURED = (
    connections,
    queues,
    bindings,
    consumers,
    waiting(100, True),
    waiting(100, False),
    waiting(1024, True),
    on_disk,
)


def idle(held: Held, _: int) -> Costs:
    yield "broker that holds nothing", float(held.memory())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=5000, help="about how many of each (5000)")
    parser.add_argument("--markdown", action="store_true", help="a table for the documentation")
    options = parser.parse_args()
    raise_descriptor_limit()
    line = "| {} | {:,.0f} |" if options.markdown else "{:<52} {:>12,.0f} octets"
    print(f"build {build()}, {options.count} of each")
    for measure in (idle, *MEASURED):
        with tempfile.TemporaryDirectory() as folder, flintmq(COMMAND, Path(folder) / "run") as broker:
            for what, octets in measure(Held(broker, Path(folder)), options.count):
                print(line.format(what, octets), flush=True)


if __name__ == "__main__":
    main()
