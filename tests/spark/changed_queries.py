"""What may change under a query between two of its runs, and what must come of it.

A round reads rows from a stream or a queue and writes them to a queue. Between two runs something changes,
and more rows come. Then every row is in the sink once, or the query stops and says why and how to go on; it
goes on as it said, and no row is missing that could be there. Nothing is silent.

    Round.begin       declares, publishes, runs the query to its end
    a change          of CHANGES: what it does, what stops the query, and how it goes on then
    Round.finish      publishes more, runs the query, goes on if it stopped, counts
"""

from __future__ import annotations

import re
import shutil
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from broker_process import BrokerProcess
from spark_queries import run_to_end

from flintmq.client import Connection, connect

ROWS = 60
ROWS_A_BATCH = 20
SOURCES = ("stream", "queue")
MODES = ("transactional", "confirm")


class Broker:
    """A broker that can lose its data or its disk's room, on one port."""

    def __init__(self, directory: Path, port: int = 0) -> None:
        self.directory = directory
        self.data = directory / "data"
        self.settings = directory / "flintmq.toml"
        self.process: BrokerProcess | None = None
        self.port = port
        self.start()

    def start(self, settings: str = "") -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self.settings.write_text(settings)
        options = ("--data", str(self.data), "--config", str(self.settings), "--port", str(self.port))
        self.process = BrokerProcess(*options, start_timeout_s=180)
        self.port = self.process.port

    def stop(self) -> None:
        if self.process is not None:
            self.process.stop()
            self.process = None

    def restart(self, settings: str = "", is_wiped: bool = False) -> None:
        self.stop()
        if is_wiped:
            shutil.rmtree(self.data)
        self.start(settings)

    @property
    def uri(self) -> str:
        return f"amqp://127.0.0.1:{self.port}"


class Round:
    """One query, one change."""

    def __init__(
        self, spark: Any, broker: Broker, directory: Path, name: str, source: str, mode: str
    ) -> None:
        self.spark = spark
        self.broker = broker
        self.directory = directory
        self.checkpoint = directory / "checkpoint"
        self.source, self.out = f"{name}-in", f"{name}-out"
        self.is_stream = source == "stream"
        self.mode = mode
        self.reading: dict[str, str] = {}
        self.writing: dict[str, str] = {}
        self.published = 0
        self.gone: set[int] = set()  # rows that a change has taken from the source before they were read
        self.came: Counter[int] = Counter()
        self.told = ""

    def connect(self) -> Connection:
        return connect(self.broker.uri)

    def declare(self, name: str, is_stream: bool = False, rules: dict[str, Any] | None = None) -> None:
        arguments: Any = dict(rules or {})
        if is_stream:
            arguments["x-queue-type"] = "stream"
        with self.connect() as connection, connection.channel() as channel:
            channel.queue(name, durable=True, arguments=arguments or None)

    def delete(self, name: str) -> None:
        with self.connect() as connection, connection.channel() as channel:
            channel.queue(name, passive=True).delete()

    def publish(self, count: int = ROWS) -> range:
        rows = range(self.published, self.published + count)
        with self.connect() as connection, connection.channel(confirm=True) as channel:
            channel.publish_many([b"%d" % row for row in rows], routing_key=self.source, persistent=True)
        self.published += count
        return rows

    def begin(self) -> None:
        self.declare(self.source, self.is_stream)
        self.declare(self.out)
        self.publish()
        self.run()
        self.drain()
        assert self.came == Counter(range(self.published)), "before anything changed"

    def run(self) -> None:
        """Runs the query until all is read; raises what it stopped by."""
        frame = (
            self.spark.readStream.format("amqp")
            .options(uri=self.broker.uri, queue=self.source, startingOffsets="earliest", retryTimeout="30s")
            .options(maxOffsetsPerTrigger=str(ROWS_A_BATCH))
            .options(**self.reading)
            .load()
            .select("value")
        )
        writer = frame.writeStream.format("amqp").options(
            uri=self.broker.uri, queue=self.out, mode=self.mode, retryTimeout="30s", **self.writing
        )
        run_to_end(writer.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True))

    def stopped(self) -> str:
        """Runs the query; the sentence that it stopped by, empty if it came to its end."""
        try:
            self.run()
        except Exception as failure:  # whatever Spark wraps it in
            found = re.findall(r"^flintmq\.spark\.errors\.\w+: (.+)$", str(failure), re.MULTILINE)
            if not found:
                raise
            return str(found[-1])
        return ""

    def drain(self) -> None:
        with self.connect() as connection, connection.channel() as channel:
            while (message := channel.get(self.out, no_ack=True)) is not None:
                self.came[int(message.body)] += 1

    def left(self) -> int:
        """Branches and leased messages that nobody ends."""
        with self.connect() as connection:
            rows = connection.request("dtx.list").results["rows"]
            unacked = connection.request("queue.info", {"queue": self.source}).results["messages-unacked"]
        assert isinstance(rows, list)
        assert isinstance(unacked, int)
        return len(rows) + unacked


@dataclass(frozen=True)
class Outcome:
    change: str
    source: str
    mode: str
    told: str  # why the query stopped, empty if it did not
    lost: int
    twice: int
    left: int
    may_repeat: bool
    seconds: float = 0.0

    @property
    def is_good(self) -> bool:
        return not self.lost and not self.left and (self.may_repeat or not self.twice)

    def __str__(self) -> str:
        said = [f"{self.lost} LOST"] if self.lost else []
        said += [f"{self.left} LEFT"] if self.left else []
        if self.twice:
            said.append(f"{self.twice} {'twice' if self.may_repeat else 'TWICE'}")
        return f"{'stopped and went on' if self.told else 'went on'}: {', '.join(said) or 'each once'}"


@dataclass(frozen=True)
class Change:
    """`does` changes something; `says` is in the sentence by which the query stops, if it stops; `goes_on`
    does what the sentence advises. `stops`: by source and mode, whether the query has to stop."""

    name: str
    does: Callable[[Round], None]
    says: str
    goes_on: Callable[[Round], None]
    stops: Callable[[Round], bool] = lambda _: True
    # Where going on brings rows again that were there: after knownBatches=write, or at least once.
    repeats: Callable[[Round], bool] = lambda _: False


def is_any(round_: Round) -> bool:
    return True


def is_transactional(round_: Round) -> bool:
    return round_.mode == "transactional"


def write_known(round_: Round) -> None:
    round_.writing["knownBatches"] = "write"


def begin_anew(round_: Round) -> None:
    round_.checkpoint = round_.directory / "new-checkpoint"


def accept_loss(round_: Round) -> None:
    round_.reading["failOnDataLoss"] = "false"


def more_batches(round_: Round) -> None:
    round_.publish()
    round_.run()
    round_.drain()


def restore_checkpoint(round_: Round) -> None:
    """From a backup of before some batches."""
    backup = round_.directory / "backup"
    shutil.copytree(round_.checkpoint, backup)
    more_batches(round_)
    shutil.rmtree(round_.checkpoint)
    shutil.copytree(backup, round_.checkpoint)


def cut_otherwise(round_: Round) -> None:
    """The same, and the query now makes other batches of the same rows."""
    restore_checkpoint(round_)
    round_.reading["maxOffsetsPerTrigger"] = str(ROWS_A_BATCH + 13)


def copy_checkpoint(round_: Round) -> None:
    """The query of the copy runs first, then that of the original."""
    copy = round_.directory / "copy"
    shutil.copytree(round_.checkpoint, copy)
    original, round_.checkpoint = round_.checkpoint, copy
    more_batches(round_)
    round_.checkpoint = original


def rewind_checkpoint(round_: Round) -> None:
    """What Spark has noted of its last batches is deleted by hand."""
    for place in ("offsets", "commits"):
        numbers = sorted(
            int(path.name) for path in (round_.checkpoint / place).iterdir() if path.name.isdigit()
        )
        for number in numbers[-2:]:
            for name in (f"{number}", f".{number}.crc"):
                (round_.checkpoint / place / name).unlink(missing_ok=True)


def empty_checkpoint(round_: Round) -> None:
    for place in ("offsets", "commits"):
        shutil.rmtree(round_.checkpoint / place)


def lose_checkpoint(round_: Round) -> None:
    shutil.rmtree(round_.checkpoint)


def make_again(rows: int, is_other_kind: bool = False) -> Callable[[Round], None]:
    def change(round_: Round) -> None:
        round_.delete(round_.source)
        round_.declare(round_.source, round_.is_stream != is_other_kind)
        if rows:
            round_.publish(rows)

    return change


def lose_data(round_: Round) -> None:
    round_.broker.restart(is_wiped=True)
    round_.declare(round_.source, round_.is_stream)
    round_.declare(round_.out)


def fill_target(round_: Round) -> None:
    round_.delete(round_.out)
    round_.declare(round_.out, rules={"x-max-length": 5, "x-overflow": "reject-publish"})


def widen_target(round_: Round) -> None:
    round_.drain()
    round_.delete(round_.out)
    round_.declare(round_.out)


def delete_target(round_: Round) -> None:
    round_.delete(round_.out)


def declare_target(round_: Round) -> None:
    round_.declare(round_.out)


RIGHTS = """
[users.guest]
password = "guest"
permissions."/" = {configure = ".*", write = "^(system|amq.*)?$", read = "^$"}
"""


def take_rights(round_: Round) -> None:
    round_.publish()
    round_.broker.restart(RIGHTS)


def give_rights(round_: Round) -> None:
    round_.broker.restart()


def with_alarm(seconds: float) -> Callable[[Round], None]:
    """The disk has no room for so long; the query is started meanwhile."""

    def change(round_: Round) -> None:
        import threading

        round_.publish()
        round_.broker.restart("[limits]\ndisk_free_bytes_min = 1152921504606846976\n")

        def clear() -> None:
            time.sleep(seconds)
            round_.broker.restart()

        thread = threading.Thread(target=clear)
        thread.start()
        round_.stopped()
        thread.join()

    return change


def keep(round_: Round) -> None:
    """Nothing has to be done."""


def alarm_of(seconds: float) -> Change:
    return Change(f"alarm of {seconds:g} s", with_alarm(seconds), "", keep, lambda _: False)


def is_counted_anew(round_: Round) -> bool:
    """The numbers of batches come again: for the same rows, which are known, if a stream is the source."""
    return is_transactional(round_) and not round_.is_stream


def is_written_again(round_: Round) -> bool:
    return not (is_transactional(round_) and round_.is_stream)


CHANGES = (
    Change(
        "checkpoint restored",
        restore_checkpoint,
        "knownBatches",
        write_known,
        is_counted_anew,
        is_written_again,
    ),
    Change(
        "checkpoint restored, other cuts",
        cut_otherwise,
        "knownBatches",
        write_known,
        is_transactional,
        is_any,
    ),
    Change(
        "checkpoint copied", copy_checkpoint, "knownBatches", write_known, is_counted_anew, is_written_again
    ),
    Change(
        "checkpoint rewound",
        rewind_checkpoint,
        "knownBatches",
        write_known,
        is_counted_anew,
        is_written_again,
    ),
    Change(
        "checkpoint emptied", empty_checkpoint, "knownBatches", write_known, is_counted_anew, is_written_again
    ),
    Change("checkpoint lost", lose_checkpoint, "", keep, lambda _: False, lambda round_: round_.is_stream),
    Change("source made again, longer", make_again(2 * ROWS), "failOnDataLoss", accept_loss),
    Change("source made again, shorter", make_again(ROWS // 3), "failOnDataLoss", accept_loss),
    Change("source of another kind", make_again(2 * ROWS, is_other_kind=True), "failOnDataLoss", accept_loss),
    Change("broker's data lost", lose_data, "failOnDataLoss", accept_loss),
    Change(
        "target full",
        fill_target,
        "room",
        widen_target,
        lambda _: True,
        lambda round_: not is_transactional(round_),
    ),
    Change("target deleted", delete_target, "declare", declare_target),
    Change("user's rights gone", take_rights, "permission", give_rights),
    alarm_of(5),
)


def walk(round_: Round, change: Change, source: str) -> Outcome:
    """One round, from the first row to the last."""
    began_s = time.monotonic()
    round_.begin()
    change.does(round_)
    if change.name not in ("user's rights gone",):
        round_.publish()
    told = round_.stopped()
    if told:
        change.goes_on(round_)
        again = round_.stopped()
        assert not again, f"it went on as it was told to ({told}), and stopped: {again}"
    round_.drain()
    lost = sum(row not in round_.came for row in range(round_.published))
    twice = sum(count > 1 for count in round_.came.values())
    may_repeat = change.repeats(round_) or not (round_.is_stream and is_transactional(round_))
    seconds = time.monotonic() - began_s
    return Outcome(change.name, source, round_.mode, told, lost, twice, round_.left(), may_repeat, seconds)
