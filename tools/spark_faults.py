"""Kills drivers, executors and brokers under running Spark queries, and counts what came out at the end.

    python tools/spark_faults.py --rounds 20                          one machine, streams into transactions
    python tools/spark_faults.py --rounds 20 --cluster                 a standalone cluster of two workers
    python tools/spark_faults.py --source queue --mode confirm         at least once

Each round publishes some rows, starts the query, kills something at a step that the seed has chosen (kill -9,
at every step of a batch or at any moment), starts it again until it ends by itself, and looks at the rows.
Exit status 1 if a row is lost, or came twice where it must not. The seed is printed, and repeats the run.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
for place in (ROOT / "tests", ROOT / "tests" / "spark"):
    sys.path.insert(0, str(place))

from broker_process import BrokerProcess  # noqa: E402 - found by the path above

STREAM, OUT = "faults-in", "faults-out"
ROWS = 300
ROWS_A_BATCH = 60
ATTEMPTS_MAX = 8
ATTEMPT_S = 600
BROKER_KILL_S_MAX = 12.0


@dataclass(frozen=True)
class Fault:
    victim: str  # driver, executor, worker or broker
    step: str
    after_s: float = 0.0

    def __str__(self) -> str:
        return f"{self.victim} at {self.step}" if self.step else f"{self.victim} after {self.after_s:.1f} s"


def choose(chance: random.Random, cluster: bool) -> Fault:
    from faulty_source import STEPS, TASK_STEPS

    victim = chance.choice(["driver", "driver", "worker", "broker", *(["executor"] if cluster else [])])
    if victim == "broker":
        return Fault(victim, "", chance.uniform(0.0, BROKER_KILL_S_MAX))
    return Fault(victim, chance.choice(STEPS if victim == "driver" else TASK_STEPS))


class Broker:
    """A broker that can be killed and started again, on the same port and the same directory."""

    def __init__(self, directory: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.directory = directory
        self.process = self.start()
        self.uri = f"amqp://127.0.0.1:{self.port}"

    def start(self) -> BrokerProcess:
        return BrokerProcess("--data", str(self.directory), "--port", str(self.port))

    def kill(self) -> None:
        self.process.process.kill()
        self.process.process.wait()
        self.process = self.start()


@contextmanager
def standalone_cluster(directory: Path) -> Iterator[str]:
    """A master and two workers, from the pip package; the master's URL."""
    import pyspark

    from flintmq.spark.sessions import prepare_environment

    prepare_environment()
    home = Path(pyspark.__file__).parent
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"spark://127.0.0.1:{port}"
    environment = {**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
    started: list[subprocess.Popen[bytes]] = []

    def launch(name: str, *words: str) -> None:
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *words]
        log = (directory / f"{name}-{len(started)}.log").open("wb")
        started.append(
            subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
        )

    try:
        launch("master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
        for number in range(2):
            work = directory / f"worker-{number}"
            limits = ("--cores", "1", "--memory", "700m", "--webui-port", "0", "--work-dir", str(work))
            launch("worker.Worker", "--host", "127.0.0.1", *limits, url)
        yield url
    finally:
        for process in reversed(started):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def drive(arguments: argparse.Namespace) -> int:
    """One life of the driver: until the query has read everything, or something is killed."""
    import faulty_source
    from pyspark import cloudpickle

    from flintmq.spark import session

    settings = {
        "spark.driver.memory": "600m",
        "spark.executor.memory": "500m",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", ""),
    }
    spark = session(arguments.master, "flintmq faults", settings=settings)
    spark.sparkContext.setLogLevel("ERROR")
    cloudpickle.register_pickle_by_value(faulty_source)
    spark.dataSource.register(faulty_source.FaultyDataSource)
    jvm = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    victims = {"driver": f"{jvm} {os.getpid()}", "executor": "java", "worker": ""}
    if arguments.step:
        (arguments.directory / arguments.step).write_text(victims[arguments.victim])
    faults = {"uri": arguments.uri, "faults": str(arguments.directory)}
    frame = (
        spark.readStream.format("amqp-faulty")
        .options(queue=STREAM, startingOffsets="earliest", maxOffsetsPerTrigger=str(ROWS_A_BATCH), **faults)
        .options(minPartitions="2", leaseTimeout="20s")
        .load()
    )
    writer = (
        frame.select("value")
        .writeStream.format("amqp-faulty")
        .options(queue=OUT, mode=arguments.mode, **faults)
    )
    checkpoint = arguments.directory / "checkpoint"
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    print("query started", flush=True)
    query.awaitTermination()
    spark.stop()
    return 0


class Run:
    def __init__(self, arguments: argparse.Namespace, directory: Path, master: str) -> None:
        self.arguments = arguments
        self.directory = directory
        self.master = master
        self.chance = random.Random(arguments.seed)
        self.broker = Broker(directory / "broker")
        self.found: Counter[int] = Counter()
        self.published = 0
        self.kills: Counter[str] = Counter()

    def declare(self) -> None:
        from flintmq.client import connect

        kind: Any = {"x-queue-type": "stream"} if self.arguments.source == "stream" else None
        with connect(self.broker.uri) as connection, connection.channel() as channel:
            channel.queue(STREAM, durable=True, arguments=kind)
            channel.queue(OUT, durable=True)

    def publish(self) -> None:
        from flintmq.client import connect

        with connect(self.broker.uri) as connection, connection.channel(confirm=True) as channel:
            bodies = [b"%d" % number for number in range(self.published, self.published + ROWS)]
            channel.publish_many(bodies, routing_key=STREAM, persistent=True)
        self.published += ROWS

    def attempt(self, fault: Fault | None) -> bool:
        """One life of the driver; whether the query came to its end."""
        words = [
            sys.executable,
            __file__,
            "--drive",
            "--directory",
            str(self.directory),
            "--master",
            self.master,
        ]
        words += ["--uri", self.broker.uri, "--mode", self.arguments.mode]
        if fault is not None and fault.step:
            words += ["--victim", fault.victim, "--step", fault.step]
        with (self.directory / "driver.log").open("ab") as log:
            process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, start_new_session=True)
            try:
                assert process.stdout is not None
                process.stdout.readline()
                if fault is not None and fault.victim == "broker":
                    time.sleep(fault.after_s)
                    self.broker.kill()
                status = process.wait(ATTEMPT_S)
            finally:
                self.end_session(process)
        return status == 0

    def end_session(self, process: subprocess.Popen[bytes]) -> None:
        """A killed driver leaves its Python workers behind; they are of its session."""
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return  # all gone
        process.wait()

    def round(self, number: int) -> bool:
        fault = choose(self.chance, self.arguments.cluster)
        self.publish()
        lives = 1
        done = self.attempt(fault)
        while not done and lives < ATTEMPTS_MAX:
            lives += 1
            done = self.attempt(None)
        for order in self.directory.glob("*-*"):
            if order.is_file() and order.name == fault.step:
                order.unlink()  # nobody came to that step in this round
                fault = Fault(fault.victim, f"{fault.step} (not reached)")
        self.kills[fault.victim] += 1
        self.drain()
        lost = [row for row in range(self.published) if row not in self.found]
        twice = [row for row, count in self.found.items() if count > 1]
        print(
            f"round {number}: {fault}; {lives} lives; {len(lost)} lost, {len(twice)} more than once",
            flush=True,
        )
        exact = self.arguments.mode == "transactional" and self.arguments.source == "stream"
        return done and not lost and not (exact and twice)

    def drain(self) -> None:
        from flintmq.client import connect

        with connect(self.broker.uri) as connection, connection.channel() as channel:
            while (message := channel.get(OUT, no_ack=True)) is not None:
                self.found[int(message.body)] += 1


def main() -> int:
    parser = argparse.ArgumentParser(description="Kills drivers, executors and brokers under Spark queries.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--cluster", action="store_true", help="a standalone cluster of two workers")
    parser.add_argument("--source", choices=["stream", "queue"], default="stream")
    parser.add_argument("--mode", choices=["transactional", "confirm"], default="transactional")
    parser.add_argument("--drive", action="store_true", help=argparse.SUPPRESS)
    for name in ("--master", "--uri", "--victim", "--step"):
        parser.add_argument(name, default="", help=argparse.SUPPRESS)
    parser.add_argument("--directory", type=Path, default=None, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.drive:
        return drive(arguments)
    if arguments.seed is None:
        arguments.seed = random.SystemRandom().getrandbits(32)
    print(f"seed {arguments.seed}", flush=True)
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        if not arguments.cluster:
            return rounds(Run(arguments, directory, "local[2,4]"))
        with standalone_cluster(directory) as url:
            return rounds(Run(arguments, directory, url))


def rounds(run: Run) -> int:
    try:
        run.declare()
        good = sum(run.round(number) for number in range(run.arguments.rounds))
    finally:
        run.broker.process.process.kill()
        run.broker.process.process.wait()
    killed = ", ".join(f"{count} {victim}s" for victim, count in sorted(run.kills.items()))
    print(f"{good} of {run.arguments.rounds} rounds good; {run.published} rows; killed: {killed}")
    return 0 if good == run.arguments.rounds else 1


if __name__ == "__main__":
    sys.exit(main())
