"""The Spark connector in rows per CPU-second, beside the plain way of doing it with pika.

    python benchmarks/spark.py                       source and sink, 2,000,000 rows of 100 octets
    python benchmarks/spark.py --rows 500000 --only source,plain-source
    python benchmarks/spark.py --markdown            the table of docs/performance.md

A row per CPU-second counts all processor time of Spark, its JVM and its Python workers, on one core
(`local[1]`); the broker's own time is told beside it. Every figure is the median of the rounds, after a
round that is thrown away: the JVM compiles itself in that one.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from brokers import Broker, flintmq

from flintmq.client import connect
from flintmq.spark import session

TICKS = os.sysconf("SC_CLK_TCK")
BODY_OCTETS = 100
# What pika does in the same time.
PLAIN_SHARE = 20


def cpu_s(root: int) -> float:
    """Processor time of a process and all below it, ended ones included."""
    parents: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for stat_file in Path("/proc").glob("[0-9]*/stat"):
        try:
            stat = stat_file.read_text()
        except OSError:  # it ended while we looked
            continue
        fields = stat[stat.rindex(")") + 2 :].split()
        pid = int(stat_file.parent.name)
        parents.setdefault(int(fields[1]), []).append(pid)
        ticks[pid] = sum(map(int, fields[11:15]))
    total, waiting = 0, [root]
    while waiting:
        pid = waiting.pop()
        total += ticks.get(pid, 0)
        waiting += parents.get(pid, [])
    return total / TICKS


@dataclass
class Measured:
    name: str
    rows: int
    seconds: float
    spark_s: float
    broker_s: float

    @property
    def rows_per_cpu_s(self) -> float:
        return self.rows / max(self.spark_s, 1 / TICKS)


class Bench:
    def __init__(self, spark: Any, broker: Broker, rows: int, rounds: int) -> None:
        self.spark = spark
        self.broker = broker
        self.rows = rows
        self.rounds = rounds
        self.uri = f"amqp://127.0.0.1:{broker.port}"
        self.jvm = int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())

    def measure(
        self, name: str, rows: int, work: Callable[[], None], before: Callable[[], None] | None = None
    ) -> Measured:
        found = []
        for _ in range(self.rounds + 1):
            if before is not None:
                before()
            spark_s, broker_s, began_s = self.spark_cpu_s(), cpu_s(self.broker.pid), time.monotonic()
            work()
            seconds = time.monotonic() - began_s
            found.append(
                Measured(name, rows, seconds, self.spark_cpu_s() - spark_s, cpu_s(self.broker.pid) - broker_s)
            )
        found = sorted(found[1:], key=lambda each: each.rows_per_cpu_s)
        return found[(len(found) - 1) // 2]

    def spark_cpu_s(self) -> float:
        """The JVM with its workers, and this process, in which the plain way has its loop."""
        return cpu_s(self.jvm) + time.process_time()

    def reset(self, queue: str, kind: str | None = None) -> None:
        with connect(self.uri) as connection, connection.channel() as channel:
            arguments = {"x-queue-type": kind} if kind else None
            channel.queue(queue, durable=True, arguments=arguments).delete()
            channel.queue(queue, durable=True, arguments=arguments)

    def fill(self, queue: str, rows: int) -> None:
        body = b"x" * BODY_OCTETS
        with connect(self.uri) as connection, connection.channel(confirm=True) as channel:
            for first in range(0, rows, 50_000):
                count = min(50_000, rows - first)
                channel.publish_many([body] * count, routing_key=queue, persistent=True, timeout_s=300)

    # Ours

    def source(self) -> Iterator[Measured]:
        self.reset("bench-stream", "stream")
        self.fill("bench-stream", self.rows)
        for name, columns in (
            ("source, value", "value"),
            ("source, value and routing key", "value,routing_key"),
            ("source, all columns", ""),
        ):
            options = {"uri": self.uri, "queue": "bench-stream", **({"columns": columns} if columns else {})}
            frame = self.spark.read.format("amqp").options(**options).load()
            self.expect(frame.count())

            def work(frame: Any = frame) -> None:
                frame.write.format("noop").mode("overwrite").save()

            yield self.measure(name, self.rows, work)

    def sink(self) -> Iterator[Measured]:
        frame = self.frame(self.rows)
        for mode in ("confirm", "transactional"):
            writer = (
                frame.write.format("amqp").options(uri=self.uri, queue="bench-out", mode=mode).mode("append")
            )
            self.reset("bench-out")
            yield self.measure(f"sink, {mode}", self.rows, writer.save, self.before_sink)
            self.expect(self.waiting("bench-out"))
        noop = frame.write.format("noop").mode("overwrite")
        yield self.measure("(making the sink's rows alone)", self.rows, noop.save)

    def before_sink(self) -> None:
        """What is still on its way would else come into the new queue."""
        self.waiting("bench-out")
        self.reset("bench-out")

    def waiting(self, queue: str) -> int:
        """Messages in a queue, once it does not grow any more: those of a commit come bit by bit."""
        with connect(self.uri) as connection, connection.channel() as channel:
            found, before = channel.queue(queue, passive=True).message_count, -1
            while found != before and found != self.rows:
                time.sleep(5)
                found, before = channel.queue(queue, passive=True).message_count, found
            return found

    def expect(self, found: int) -> None:
        """A figure of something that loses rows is worth nothing."""
        if found != self.rows:
            raise SystemExit(f"{found:,} rows came of {self.rows:,}")

    def frame(self, rows: int) -> Any:
        made = self.spark.range(0, rows, 1, 1)
        return made.selectExpr(f"CAST(lpad(CAST(id AS STRING), {BODY_OCTETS}, 'x') AS BINARY) AS value")

    # The plain way

    def plain_source(self) -> Iterator[Measured]:
        """A loop in the driver: pika gets messages, Spark is handed a list of them."""
        import pika

        rows = self.rows // PLAIN_SHARE

        def work() -> None:
            connection = pika.BlockingConnection(pika.URLParameters(self.uri))
            channel = connection.channel()
            channel.basic_qos(prefetch_count=5000)
            found = []
            for method, _, body in channel.consume("bench-plain", inactivity_timeout=30):
                found.append((body,))
                if len(found) % 5000 == 0 or len(found) == rows:
                    channel.basic_ack(method.delivery_tag, multiple=True)
                if len(found) == rows:
                    break
            self.spark.createDataFrame(found, "value BINARY").write.format("noop").mode("overwrite").save()
            connection.close()

        def before() -> None:
            self.reset("bench-plain")
            self.fill("bench-plain", rows)

        yield self.measure("plain source: a pika loop in the driver", rows, work, before)

    def plain_sink(self) -> Iterator[Measured]:
        """What foreachBatch does: every partition publishes with pika, confirmed."""
        rows = self.rows // PLAIN_SHARE
        frame = self.frame(rows)
        uri = self.uri

        def publish(found: Any) -> None:
            import pika

            connection = pika.BlockingConnection(pika.URLParameters(uri))
            channel = connection.channel()
            channel.confirm_delivery()
            properties = pika.BasicProperties(delivery_mode=2)
            for row in found:
                channel.basic_publish("", "bench-plain", bytes(row.value), properties)
            connection.close()

        yield self.measure(
            "plain sink: pika in foreachPartition",
            rows,
            lambda: frame.foreachPartition(publish),
            lambda: self.reset("bench-plain"),
        )


@contextmanager
def a_broker(command: str) -> Iterator[Broker]:
    with tempfile.TemporaryDirectory() as directory, flintmq(command, Path(directory) / "broker") as broker:
        yield broker


def report(found: list[Measured], markdown: bool) -> None:
    head = ("what", "rows", "rows per CPU-second", "rows/s", "Spark CPU s", "broker CPU s")
    lines = [
        (
            each.name,
            f"{each.rows:,}",
            f"{each.rows_per_cpu_s:,.0f}",
            f"{each.rows / each.seconds:,.0f}",
            f"{each.spark_s:.2f}",
            f"{each.broker_s:.2f}",
        )
        for each in found
    ]
    if markdown:
        print("| " + " | ".join(head) + " |")
        print("|---|" + "---:|" * (len(head) - 1))
        for line in lines:
            print("| " + " | ".join(line) + " |")
        return
    widths = [max(len(line[index]) for line in (head, *lines)) for index in range(len(head))]
    for line in (head, *lines):
        print(
            "  ".join(
                text.rjust(width) if index else text.ljust(width)
                for index, (text, width) in enumerate(zip(line, widths, strict=True))
            )
        )


def main() -> int:
    parser = argparse.ArgumentParser(description="Rows per CPU-second of the Spark connector.")
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="source,sink,plain-source,plain-sink")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument(
        "--broker-command", default="{python} -m flintmq serve --port {port} --data {directory}"
    )
    arguments = parser.parse_args()
    settings = {
        "spark.driver.memory": "2g",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    with a_broker(arguments.broker_command) as broker:
        spark = session("local[1]", "flintmq benchmark", settings=settings)
        spark.sparkContext.setLogLevel("ERROR")
        bench = Bench(spark, broker, arguments.rows, arguments.rounds)
        found: list[Measured] = []
        for name in arguments.only.split(","):
            for measured in getattr(bench, name.strip().replace("-", "_"))():
                found.append(measured)
                print(f"{measured.name}: {measured.rows_per_cpu_s:,.0f}", file=sys.stderr)
        spark.stop()
    report(found, arguments.markdown)
    built = subprocess.run(
        [sys.executable, "-m", "flintmq", "info"], capture_output=True, text=True, check=True
    )
    print("\n" + built.stdout.strip())
    print(
        f"Command: {' '.join(sys.argv)}; rounds {arguments.rounds}, median, Python {sys.version.split()[0]}"
    )
    print(f"Spread is that of the machine: {statistics.fmean(os.getloadavg()):.1f} was its load at the end.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
