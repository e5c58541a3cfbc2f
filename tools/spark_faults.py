"""Kills processes with kill -9 under a running Spark query, at every moment of a batch, and counts the rows.

    python tools/spark_faults.py                                  one machine: every point, every victim
    python tools/spark_faults.py --cluster                        a standalone cluster of two workers
    python tools/spark_faults.py --source queue --mode confirm    at least once
    python tools/spark_faults.py --points after-commit --victims broker,driver
    python tools/spark_faults.py --network                        the network fails, and nobody is killed

A point is a moment between two steps of a micro-batch; tests/spark/faulty_source.py names and places them. A
victim is what is killed when a process of the query comes there:

    driver       the Java and the Python of the application
    executor     on a cluster, the executor that runs the task, or one of them
    broker       flintmq; it is started again at once
    process      the connector's own process that is there: the reader of the source, the worker of a task,
                 the coordinator of the sink

With --network the query reaches the broker through tests/network_proxy.py, and the victim is the network:
the connections that are there and the next two fail, each within some frames of the point.

    cut, reset   the connections end, in an orderly way or by a reset
    half         the query is cut off, and the broker does not hear of it
    hole         both ways everything is swallowed
    stop         nothing is taken any more, so that sends block
    delay        one direction stands still for longer than heartbeats allow

A round publishes rows, has the query read them, kills one victim at one point, runs the query until it ends
by itself, and looks at what came out. Rounds use the same stream, checkpoint, broker and driver, as long as
those live. The seed, which is printed, is the order of the rounds. The table at the end has a line for each
point; what was killed is counted below it, by what the killed processes were run as.
Exit status 1 if a row is lost, or came twice where it must not, or a branch or a lease was left behind, and
if a round was none: nobody came to its point, or who was to die there is not who died.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
for place in (ROOT / "tests", ROOT / "tests" / "spark"):
    sys.path.insert(0, str(place))

from broker_process import BrokerProcess  # noqa: E402 - found by the path above
from network_proxy import (  # noqa: E402
    DIRECTIONS,
    EDGES,
    Action,
    Cut,
    Delay,
    Fault,
    NetworkProxy,
    StopReading,
    Swallow,
)
from standalone_cluster import SHORT_LIVED, Cluster, standalone_cluster  # noqa: E402

STREAM, OUT, DRAINED = "faults-in", "faults-out", "faults-drained"
ROWS = 120
ROWS_A_BATCH = 40
ATTEMPTS_MAX = 8
ROUND_S_MAX = 600.0
# An interpreter that shares two cores with a cluster takes its time.
BROKER_START_S_MAX = 180.0
# Below those that the system gives to clients: while the broker is dead, one of them could get its port.
PORTS = range(20000, 32000)
LOOK_S = 0.1
VICTIMS = ("driver", "executor", "broker", "process")
# How the network fails.
HEARTBEAT_S = 2
NETWORK: dict[str, Action] = {
    "cut": Cut("fin"),
    "reset": Cut("rst"),
    "half": Cut("fin", keep="broker"),
    "hole": Swallow(),
    "stop": StopReading(),
    "delay": Delay(3.0 * HEARTBEAT_S),
}
# A connection that is there fails within so many frames; a new one within those of a login and some more.
FRAMES, FRAMES_ANEW, ANEW = 8, 24, 2
STRIKE_LOOK_S = 0.01
# Until then the broker has noticed that a connection is gone whose end it has not heard, and let go of its
# branches.
HELD_S_MAX = 5.0 * HEARTBEAT_S
# What the command of a process has in it, that is killed as a victim. A process has three kinds.
COMMANDS = {
    "driver": ("org.apache.spark.deploy.SparkSubmit", "--drive"),
    "executor": ("org.apache.spark.executor.CoarseGrainedExecutorBackend",),
    "broker": ("flintmq serve",),
    "source's reader": ("python_streaming_source_runner",),
    "task's worker": ("pyspark.daemon pyspark.worker",),
    "sink's coordinator": ("python_streaming_sink_runner",),
}


def free_port() -> int:
    chance = random.SystemRandom()
    while True:
        port = chance.choice(PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class Broker:
    """A broker that is started again when it was killed, on the same port and the same directory."""

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        self.directory = directory
        self.process = self.start()
        self.uri = f"amqp://127.0.0.1:{self.port}"

    def start(self) -> BrokerProcess:
        options = ("--data", str(self.directory), "--port", str(self.port))
        return BrokerProcess(*options, start_timeout_s=BROKER_START_S_MAX)

    def revive(self) -> None:
        if self.process.process.poll() is not None:
            self.process = self.start()

    def kill(self) -> None:
        self.process.process.kill()
        self.process.process.wait()


class Network:
    """The way from the query to the broker. It fails when a process of the query has come to its point."""

    def __init__(self, broker: Broker, directory: Path, seed: int) -> None:
        self.proxy = NetworkProxy(broker.port)
        self.uri = f"amqp://127.0.0.1:{self.proxy.port}?heartbeat={HEARTBEAT_S}&timeout=15"
        self.directory = directory
        self.chance = random.Random(seed)
        self.kind = ""
        self.struck_before = 0
        self.is_over = threading.Event()
        self.watcher = threading.Thread(target=self._watch, daemon=True)
        self.watcher.start()

    def order(self, kind: str) -> None:
        """How it fails in this round."""
        for word in (".waits", ".struck"):
            for path in self.directory.glob(f"*{word}"):
                path.unlink()
        self.struck_before = len(self.proxy.faults)
        self.kind = kind

    def has_failed(self) -> bool:
        self.proxy.heal()
        return len(self.proxy.faults) > self.struck_before

    def _watch(self) -> None:
        while not self.is_over.wait(STRIKE_LOOK_S):
            for path in self.directory.glob("*.waits"):
                path.unlink()
                self._strike()
                path.with_suffix(".struck").touch()

    def _strike(self) -> None:
        self.proxy.strike(self._fault(FRAMES))
        for _ in range(ANEW):
            self.proxy.plan(self._fault(FRAMES_ANEW))

    def _fault(self, frames: int) -> Fault:
        direction, edge = self.chance.choice(DIRECTIONS), self.chance.choice(EDGES)
        return Fault(direction, NETWORK[self.kind], frame=self.chance.randint(1, frames), edge=edge)

    def close(self) -> None:
        self.is_over.set()
        self.watcher.join()
        self.proxy.close()


# The driver: a process of its own, told on its standard input what to do.


def drive(arguments: argparse.Namespace) -> int:
    """Runs the query to its end for each line of the input; tells how often it had to be started."""
    import faulty_source
    from pyspark import cloudpickle

    from flintmq.spark import session

    settings = {
        "spark.driver.extraJavaOptions": SHORT_LIVED,
        "spark.sql.codegen.wholeStage": "false",
        "spark.driver.memory": "600m",
        "spark.executor.memory": "500m",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    }
    spark = session(arguments.master, "flintmq faults", settings=settings)
    spark.sparkContext.setLogLevel("ERROR")
    cloudpickle.register_pickle_by_value(faulty_source)
    spark.dataSource.register(faulty_source.FaultyDataSource)
    java = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    # In the order of their deaths: a Python that outlives its Java, if by a moment, tries all it may in vain.
    print(json.dumps({"processes": [os.getpid(), java]}), flush=True)
    for _ in sys.stdin:
        lives, is_done = 0, False
        while lives < ATTEMPTS_MAX and not is_done:
            lives += 1
            try:
                relay(spark, arguments)
                is_done = True
            except Exception as failure:  # whatever a killed process shows as
                # On a busy machine an interpreter does not start in the 10 s that Spark gives it: no fault.
                lives -= "failed to connect back" in str(failure)
                print(failure, file=sys.stderr, flush=True)
        print(json.dumps({"lives": lives, "is_done": is_done}), flush=True)
    spark.stop()
    return 0


def relay(spark: Any, arguments: argparse.Namespace) -> None:
    faults = {"uri": arguments.uri, "faults": str(arguments.directory)}
    reader = spark.readStream.format("amqp-faulty").options(
        queue=STREAM, startingOffsets="earliest", maxOffsetsPerTrigger=str(ROWS_A_BATCH), **faults
    )
    frame = reader.options(minPartitions="2", leaseTimeout="20s").load()
    writer = frame.select("value").writeStream.format("amqp-faulty")
    writer = writer.options(queue=OUT, mode=arguments.mode, **faults)
    writer = writer.option("checkpointLocation", str(arguments.directory / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()


class Driver:
    """One life of the driver, as the tool sees it."""

    def __init__(self, words: Sequence[str], log: Path) -> None:
        command = [sys.executable, __file__, "--drive", *words]
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                start_new_session=True,
            )
        try:
            told = self.answer(None)
        except BaseException:
            self.end()
            raise
        if told is None:
            raise RuntimeError(f"the driver did not start; see {log}")
        self.processes: list[int] = told["processes"]

    def answer(self, broker: Broker | None) -> dict[str, Any] | None:
        """The next line that it says, while the broker is kept alive; None if it has died."""
        assert self.process.stdout is not None
        deadline_s = time.monotonic() + ROUND_S_MAX
        while time.monotonic() < deadline_s:
            ready, _, _ = select.select([self.process.stdout], [], [], LOOK_S)
            if ready:
                line = self.process.stdout.readline()
                return json.loads(line) if line else None
            if broker is not None:
                broker.revive()
        raise TimeoutError(f"the driver said nothing for {ROUND_S_MAX:g} s")

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def end(self) -> None:
        """A killed driver leaves its Python workers behind: in groups of their own, but of its session."""
        from faulty_source import session_of

        for pid in session_of(self.process.pid):
            with suppress(ProcessLookupError):  # gone by itself
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


def role_of(victim: str, point: str) -> str:
    """Who it is that dies, of COMMANDS."""
    from faulty_source import READER_STEPS, TASK_STEPS

    if victim != "process":
        return victim
    if point in READER_STEPS:
        return "source's reader"
    return "task's worker" if point in TASK_STEPS else "sink's coordinator"


def is_killed(role: str, record: Path) -> bool:
    """Whether those died that were to die; the one who got to the point has written down whom it kills."""
    from faulty_source import started

    if not record.exists():
        return False
    killed = json.loads(record.read_text())
    is_dead = all(each["start"] is not None and started(each["pid"]) != each["start"] for each in killed)
    return is_dead and all(any(words in each["command"] for each in killed) for words in COMMANDS[role])


@dataclass(frozen=True)
class Outcome:
    point: str
    victim: str
    is_reached: bool
    is_killed: bool
    is_done: bool
    lives: int
    lost: int
    twice: int
    left: int  # branches or leases that nobody ended
    is_exact: bool
    seconds: float

    @property
    def is_good(self) -> bool:
        return (
            self.is_reached
            and self.is_killed
            and self.is_done
            and not (self.lost or self.left or (self.is_exact and self.twice))
        )

    def __str__(self) -> str:
        if not self.is_reached:
            return "NOT REACHED"
        if not self.is_killed:
            return "NOT KILLED"
        if not self.is_done:
            return f"NOT DONE after {self.lives} starts"
        said = [f"{self.lost} LOST"] if self.lost else []
        said += [f"{self.left} LEFT"] if self.left else []
        if self.twice:
            said.append(f"{self.twice} {'TWICE' if self.is_exact else 'twice'}")
        return f"{', '.join(said) or 'each once'}; {self.lives} starts, {self.seconds:.0f} s"


class Run:
    def __init__(self, arguments: argparse.Namespace, directory: Path, cluster: Cluster | None) -> None:
        self.arguments = arguments
        self.directory = directory
        self.cluster = cluster
        self.is_exact = arguments.mode == "transactional" and arguments.source == "stream"
        self.broker = Broker(directory / "broker")
        self.network = Network(self.broker, directory, arguments.seed) if arguments.network else None
        self.driver: Driver | None = None
        self.published = 0
        self.came: Counter[int] = Counter()

    def connect(self) -> Any:
        from flintmq.client import connect

        return connect(self.broker.uri)

    def declare(self) -> None:
        kind: Any = {"x-queue-type": "stream"} if self.arguments.source == "stream" else None
        with self.connect() as connection, connection.channel() as channel:
            channel.queue(STREAM, durable=True, arguments=kind)
            channel.queue(OUT, durable=True)
            channel.queue(DRAINED, durable=True, arguments={"x-max-length": 1})

    def publish(self) -> range:
        rows = range(self.published, self.published + ROWS)
        with self.connect() as connection, connection.channel(confirm=True) as channel:
            channel.publish_many([b"%d" % row for row in rows], routing_key=STREAM, persistent=True)
        self.published += ROWS
        return rows

    def living_driver(self) -> Driver:
        if self.driver is None:
            master = "local[2,4]" if self.cluster is None else self.cluster.url
            words = ["--directory", str(self.directory), "--master", master]
            uri = self.broker.uri if self.network is None else self.network.uri
            words += ["--uri", uri, "--mode", self.arguments.mode]
            self.driver = Driver(words, self.directory / "driver.log")
        return self.driver

    def order(self, point: str, victim: str) -> Path:
        """Tells whoever gets to the point what to kill there."""
        from faulty_source import TASK_STEPS

        words = ""
        if self.network is not None:
            self.network.order(victim)
            words = "network"
        elif victim == "driver":
            words = " ".join(map(str, self.living_driver().processes))
        elif victim == "broker":
            words = f"spare {self.broker.process.process.pid}"
        elif victim == "executor" and point in TASK_STEPS:
            words = "java"
        elif victim == "executor" and self.cluster is not None:
            words = f"spare child-of={self.cluster.workers[0]}"
        if self.arguments.source == "queue":
            words = f"skip=1 {words}"  # the first batch only notes the name of the consumer
        path = self.directory / point
        path.with_suffix(".killed").unlink(missing_ok=True)
        path.write_text(words)
        return path

    def round(self, point: str, victim: str) -> Outcome:
        began_s = time.monotonic()
        rows = self.publish()
        self.living_driver()
        order = self.order(point, victim)
        starts, is_done = 0, False
        for _ in range(ATTEMPTS_MAX):
            driver = self.living_driver()
            driver.go()
            try:
                answer = driver.answer(self.broker)
            except TimeoutError as silence:
                print(silence, file=sys.stderr, flush=True)
                driver.end()
                self.driver = None
                break
            starts += 1 if answer is None else answer["lives"]
            if answer is not None:
                is_done = answer["is_done"]
                break
            driver.end()
            self.driver = None
        is_reached = not order.exists()
        order.unlink(missing_ok=True)
        found, left = self.found()
        self.came += found
        lost = sum(row not in self.came for row in rows)
        twice = sum(self.came[row] > 1 for row in found)
        seconds = time.monotonic() - began_s
        counts = (starts, lost, twice, left)
        if self.network is not None:
            is_dead = self.network.has_failed()
        else:
            is_dead = is_killed(role_of(victim, point), order.with_suffix(".killed"))
        return Outcome(point, victim, is_reached, is_dead, is_done, *counts, self.is_exact, seconds)

    def found(self) -> tuple[Counter[int], int]:
        """The rows that came, and what was left behind that should not be."""
        self.broker.revive()
        found: Counter[int] = Counter()
        with self.connect() as connection, connection.channel(confirm=True) as channel:
            while (message := channel.get(OUT, no_ack=True)) is not None:
                found[int(message.body)] += 1
            # When this is safe, what was written before it is: a broker that is killed next does not show
            # again what was taken here.
            channel.publish_many([b"%d" % self.published], routing_key=DRAINED, persistent=True)
            left = self.left(connection)
            deadline_s = time.monotonic() + (0.0 if self.network is None else HELD_S_MAX)
            while left and time.monotonic() < deadline_s:
                time.sleep(LOOK_S)
                left = self.left(connection)
        return found, left

    def left(self, connection: Any) -> int:
        """Branches, and rows of the source, that nobody has ended."""
        left = len(connection.request("dtx.list").results["rows"])
        if self.arguments.source == "queue":
            about = connection.request("queue.info", {"queue": STREAM}).results
            left += about["messages-ready"] + about["messages-unacked"]
        return left

    def end(self) -> None:
        with ExitStack() as ends:
            ends.callback(self.broker.kill)
            if self.network is not None:
                ends.callback(self.network.close)
            if self.driver is not None:
                self.driver.end()


def chosen(arguments: argparse.Namespace) -> list[tuple[str, str]]:
    """Every point with every victim, in the order of the seed; one driver for as many as possible."""
    from faulty_source import STEPS

    points = arguments.points.split(",") if arguments.points else list(STEPS)
    there = list(NETWORK) if arguments.network else list(VICTIMS)
    victims = arguments.victims.split(",") if arguments.victims else there
    if unknown := [name for name in points if name not in STEPS] + [
        name for name in victims if name not in there
    ]:
        raise SystemExit(f"there is no {unknown[0]!r}; points are {', '.join(STEPS)}")
    if not arguments.cluster:
        victims = [victim for victim in victims if victim != "executor"]  # it is the driver
    if arguments.mode == "confirm":
        points = [point for point in points if point != "amid-commit"]
    rounds = [(point, victim) for point in points for victim in victims]
    random.Random(arguments.seed).shuffle(rounds)
    return rounds[: arguments.rounds] if arguments.rounds else rounds


def table(outcomes: Sequence[Outcome]) -> str:
    from faulty_source import MOMENTS

    victims = [name for name in (*VICTIMS, *NETWORK) if any(each.victim == name for each in outcomes)]
    lines = [f"| point | between | {' | '.join(victims)} |", f"|---|---|{'---|' * len(victims)}"]
    for point, between in MOMENTS.items():
        here = {each.victim: str(each) for each in outcomes if each.point == point}
        if here:
            cells = " | ".join(here.get(victim, "") for victim in victims)
            lines.append(f"| {point} | {between} | {cells} |")
    return "\n".join(lines)


def walk(run: Run) -> int:
    outcomes: list[Outcome] = []
    try:
        run.declare()
        for number, (point, victim) in enumerate(chosen(run.arguments)):
            outcomes.append(run.round(point, victim))
            print(f"round {number}: {victim} at {point}: {outcomes[-1]}", flush=True)
    finally:
        run.end()
        if outcomes:
            print(table(outcomes))
    good = sum(outcome.is_good for outcome in outcomes)
    killed = Counter(
        each.victim if each.victim in NETWORK else role_of(each.victim, each.point)
        for each in outcomes
        if each.is_killed
    )
    lost = sum(row not in run.came for row in range(run.published))
    twice = sum(count > 1 for count in run.came.values())
    print(f"killed: {', '.join(f'{role} {killed[role]}' for role in (*COMMANDS, *NETWORK) if killed[role])}")
    print(f"{good} of {len(outcomes)} rounds good; {run.published} rows, {lost} lost, {twice} twice")
    return 0 if good == len(outcomes) else 1


def main() -> int:
    parser = argparse.ArgumentParser(description="Kills what a Spark query needs, at any moment.")
    parser.add_argument("--rounds", type=int, default=0, help="at most so many (0: all)")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--points", default="", help="only these, with commas")
    names = ", ".join(VICTIMS)
    parser.add_argument(
        "--victims", default="", help=f"only these, of {names}; with --network, of {', '.join(NETWORK)}"
    )
    parser.add_argument("--network", action="store_true", help="the network fails, and nobody is killed")
    parser.add_argument("--cluster", action="store_true", help="a standalone cluster of two workers")
    parser.add_argument("--source", choices=["stream", "queue"], default="stream")
    parser.add_argument("--mode", choices=["transactional", "confirm"], default="transactional")
    parser.add_argument("--drive", action="store_true", help=argparse.SUPPRESS)
    for name in ("--master", "--uri"):
        parser.add_argument(name, default="", help=argparse.SUPPRESS)
    parser.add_argument("--directory", type=Path, default=None, help="where logs and data stay")
    arguments = parser.parse_args()
    if arguments.drive:
        return drive(arguments)
    if arguments.seed is None:
        arguments.seed = random.SystemRandom().getrandbits(32)
    print(f"seed {arguments.seed}", flush=True)
    with tempfile.TemporaryDirectory() as place:
        directory = arguments.directory or Path(place)
        directory.mkdir(parents=True, exist_ok=True)
        if not arguments.cluster:
            return walk(Run(arguments, directory, None))
        with standalone_cluster(directory) as cluster:
            return walk(Run(arguments, directory, cluster))


if __name__ == "__main__":
    sys.exit(main())
