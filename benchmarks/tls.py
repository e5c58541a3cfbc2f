"""What TLS costs, beside RabbitMQ's: python benchmarks/tls.py [--rounds 5] [--rows 200000] [--size 1024]

Both brokers have a plain and a TLS listener with the same certificate. FlintMQ's client publishes transient
rows from one process and reads them without acks in another one. The four ways take turns in random order.
Prints the median of rows per second and of the broker's processor time for a row, and ratios of these.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path

import brokers

from flintmq.build import build
from flintmq.client import connect

CHUNK = 5000
WAIT_S = 120.0
SETTINGS = """
[listen]
hosts = ["127.0.0.1"]
port = {plain}
[tls]
port = {secure}
certificate = "{certificates}/server.pem"
key = "{certificates}/server.key"
"""
RABBITMQ_SETTINGS = """
listeners.ssl.1 = 127.0.0.1:{secure}
ssl_options.certfile = {certificates}/server.pem
ssl_options.keyfile = {certificates}/server.key
ssl_options.cacertfile = {certificates}/ca.pem
ssl_options.verify = verify_none
"""


def address(port: int, authority: Path | None) -> tuple[str, ssl.SSLContext | None]:
    if authority is None:
        return f"amqp://guest:guest@127.0.0.1:{port}", None
    return f"amqps://guest:guest@localhost:{port}", ssl.create_default_context(cafile=str(authority))


def consume(port: int, authority: Path | None, queue: str, rows: int, ready: Event) -> None:
    uri, context = address(port, authority)
    with (
        connect(uri, ssl_context=context) as connection,
        connection.channel() as channel,
        channel.queue(queue).consume(no_ack=True) as consumer,
    ):
        ready.set()
        read = 0
        while read < rows:
            read += len(consumer.take(CHUNK, timeout_s=WAIT_S))


def measure(
    broker: brokers.Broker, port: int, authority: Path | None, rows: int, size: int
) -> tuple[float, float]:
    """Rows per second, and microseconds of the broker for each."""
    queue = f"rows-{random.getrandbits(32)}"
    uri, context = address(port, authority)
    with connect(uri, ssl_context=context) as connection, connection.channel(confirm=False) as channel:
        channel.queue(queue)
        ready = multiprocessing.Event()
        reader = multiprocessing.Process(target=consume, args=(port, authority, queue, rows, ready))
        reader.start()
        if not ready.wait(WAIT_S):
            raise SystemExit("the consumer does not start")
        broker.settle()
        began_s, cpu_s = time.perf_counter(), broker.cpu_seconds()
        bodies = [bytes(size)] * CHUNK
        for _ in range(rows // CHUNK):
            channel.publish_many(bodies, routing_key=queue)
        reader.join(WAIT_S)
        took_s, worked_s = time.perf_counter() - began_s, broker.cpu_seconds() - cpu_s
        if reader.exitcode != 0:
            raise SystemExit(f"{broker.name}: the consumer ended with status {reader.exitcode}")
        channel.delete_queue(queue)
    return rows / took_s, 1e6 * worked_s / rows


@contextmanager
def certificates() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="flintmq-tls-") as directory:
        command = [sys.executable, "-m", "flintmq", "tls", "dev-cert", directory, "--host", "localhost"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        for key in Path(directory).glob("*.key"):
            key.chmod(0o644)  # RabbitMQ may run as a user of its own
        Path(directory).chmod(0o755)
        yield Path(directory)


def started(stack: ExitStack, folder: Path) -> list[tuple[brokers.Broker, int]]:
    """The brokers, each with its port for TLS."""
    found = []
    plain, secure = brokers.free_port(), brokers.free_port()
    settings = folder / "flintmq.toml"
    settings.write_text(SETTINGS.format(plain=plain, secure=secure, certificates=folder))
    command = f"{{python}} -m flintmq serve --config {settings} --port {{port}} --log-level warning"
    found.append((stack.enter_context(brokers.flintmq(command, folder / "flintmq")), secure))
    if brokers.RABBITMQ_SERVER.exists():
        secure = brokers.free_port()
        text = RABBITMQ_SETTINGS.format(secure=secure, certificates=folder)
        found.append((stack.enter_context(brokers.rabbitmq(folder / "rabbitmq", text)), secure))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--size", type=int, default=1024)
    given = parser.parse_args()
    rows = max(1, given.rows // CHUNK) * CHUNK
    print(f"{build()} build, {rows:,} rows of {given.size} octets, {given.rounds} rounds")
    with certificates() as folder, ExitStack() as stack:
        ways = {}
        for broker, secure in started(stack, folder):
            ways[broker.name, "plain"] = (broker, broker.port, None)
            ways[broker.name, "TLS"] = (broker, secure, folder / "ca.pem")
        found: dict[tuple[str, str], list[tuple[float, float]]] = {way: [] for way in ways}
        for _ in range(given.rounds):
            for way in random.sample(list(ways), len(ways)):
                found[way].append(measure(*ways[way], rows, given.size))
    for way, values in found.items():
        rate, cost = (statistics.median(column) for column in zip(*values, strict=True))
        print(f"{way[0]:<10} {way[1]:<6} {rate:>12,.0f} rows/s {cost:>8.2f} us of the broker a row")


if __name__ == "__main__":
    main()
