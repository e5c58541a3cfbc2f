"""The format `amqp` with a hole in it: at one step, once, a process is killed as kill -9 does it, or the
network fails.

The option `faults` names a directory. A file there called after a step is the order to die at it: whoever
gets there first takes the file away, kills the processes that are listed in it, and itself. It writes down
whom it kills, in a file called after the step and ending in `.killed`. In the list

    1234           is a process
    java           is the Java process above: an executor of a cluster, the driver where all is in one
    child-of=1234  is a child of that process: an executor of a worker; one that is not there yet is awaited
    spare          before others lets the one that got there live
    network        kills nobody, and waits until the network has been made to fail: a file called after the
                   step and ending in `.waits` asks for that, and one ending in `.struck` says that it is done
    skip=1         at the very beginning lets the first one pass

A micro-batch of Spark goes through these steps; each name below is a moment between two of them:

    latestOffset | offsets/N written | source commit(N-1) | partitions | read, write | sink commit | commits/N
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flintmq.spark.read.stream_reader import AmqpStreamReader
from flintmq.spark.source import AmqpDataSource
from flintmq.spark.write import transactional
from flintmq.spark.write.transactional import TransactionalStreamWriter
from flintmq.spark.write.writers import ConfirmStreamWriter, stream_writer

READER_STEPS = (
    "before-latest",
    "after-latest",
    "before-partitions",
    "after-partitions",
    "before-source-commit",
    "after-source-commit",
)
TASK_STEPS = ("before-read", "amid-read", "before-write", "amid-write", "after-write")
SINK_STEPS = ("before-commit", "amid-commit", "after-commit")
STEPS = (*READER_STEPS, *TASK_STEPS, *SINK_STEPS)
# Between what and what each of them is.
MOMENTS = {
    "before-latest": "commits/N-1 written, latestOffset",
    "after-latest": "latestOffset, offsets/N written",
    "before-source-commit": "offsets/N written, source commit(N-1)",
    "after-source-commit": "source commit(N-1), partitions",
    "before-partitions": "source commit(N-1), partitions",
    "after-partitions": "partitions, first task",
    "before-read": "task begun, read",
    "amid-read": "first rows read, last rows read",
    "before-write": "task begun, write",
    "amid-write": "first rows published, last rows published",
    "after-write": "rows prepared or confirmed, task ended",
    "before-commit": "last task ended, sink commit",
    "amid-commit": "branches committed, losers rolled back",
    "after-commit": "sink commit, commits/N written",
}

# An executor that a round before has killed is started again meanwhile.
EXECUTOR_S_MAX = 60.0
STRUCK_S_MAX = 30.0
LOOK_S = 0.1


class Faults:
    """The orders to die."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def reach(self, step: str) -> None:
        order = Path(self.directory) / step
        if not order.exists():
            return
        taken = order.with_suffix(f".{os.getpid()}.taken")
        try:
            os.rename(order, taken)
        except FileNotFoundError:
            return  # another process was quicker
        words = taken.read_text().split()
        if words and words[0].startswith("skip="):
            left = int(words[0][5:]) - 1
            words[0] = f"skip={left}" if left else ""
            taken.write_text(" ".join(words))
            os.rename(taken, order)
            return
        if "network" in words:
            self._await_strike(order)
            return
        doomed = [named(word) for word in words if word != "spare"]
        if "spare" not in words:
            doomed.append(os.getpid())  # the last, as nobody kills after it
        record = [{"pid": pid, "start": started(pid), "command": command_of(pid)} for pid in doomed]
        order.with_suffix(".killed").write_text(json.dumps(record))
        for pid in doomed:
            os.kill(pid, signal.SIGKILL)

    def _await_strike(self, order: Path) -> None:
        order.with_suffix(".waits").touch()
        struck = order.with_suffix(".struck")
        deadline_s = time.monotonic() + STRUCK_S_MAX
        while not struck.exists():
            if time.monotonic() > deadline_s:
                raise TimeoutError("nobody made the network fail")
            time.sleep(LOOK_S / 10)


def named(word: str) -> int:
    """The process that a word of an order means."""
    if word == "java":
        return java_above()
    if word.startswith("child-of="):
        return child_of(int(word[9:]))
    return int(word)


def stat_of(pid: int) -> tuple[str, list[str]]:
    """The name of a process, and what the system says of it after that: state, parent, ..."""
    stat = Path(f"/proc/{pid}/stat").read_text()
    return stat[stat.index("(") + 1 : stat.rindex(")")], stat[stat.rindex(")") + 2 :].split()


def parent_of(pid: int) -> tuple[str, int]:
    """The name of a process, and the process above it."""
    name, fields = stat_of(pid)
    return name, int(fields[1])


def started(pid: int) -> int | None:
    """When a process was started, in ticks of the system: with its number, who it is. None if it is dead."""
    try:
        _, fields = stat_of(pid)
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] == "Z" else int(fields[19])


def session_of(leader: int) -> list[int]:
    """The processes of a session that live."""
    found: list[int] = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            _, fields = stat_of(int(place.name))
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended while we looked
        if int(fields[3]) == leader and fields[0] != "Z":
            found.append(int(place.name))
    return found


def command_of(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return b" ".join(words).decode(errors="replace").strip()


def java_above() -> int:
    pid = os.getpid()
    while pid > 1:
        name, parent = parent_of(pid)
        if name == "java":
            return pid
        pid = parent
    raise ProcessLookupError("no Java above")


def child_of(worker: int) -> int:
    deadline_s = time.monotonic() + EXECUTOR_S_MAX
    while time.monotonic() < deadline_s:
        for place in Path("/proc").glob("[0-9]*"):
            pid = int(place.name)
            try:
                if parent_of(pid) == ("java", worker) and started(pid) is not None:
                    return pid
            except (FileNotFoundError, ProcessLookupError):
                continue  # it ended while we looked
        time.sleep(LOOK_S)
    raise ProcessLookupError("no executor there")


class FaultyReader(AmqpStreamReader):
    def __init__(self, schema: Any, options: Any, faults: Faults) -> None:
        super().__init__(schema, options)
        self.faults = faults

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "faults": self.faults}

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        self.faults.reach("before-latest")
        found = super().latestOffset(start, limit)
        if found != start:
            self.faults.reach("after-latest")
        return found

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Any:
        self.faults.reach("before-partitions")
        found = super().partitions(start, end)
        self.faults.reach("after-partitions")
        return found

    def read(self, partition: Any) -> Iterator[Any]:
        self.faults.reach("before-read")
        for batch in super().read(partition):
            yield batch
            self.faults.reach("amid-read")

    def commit(self, end: dict[str, Any]) -> None:
        self.faults.reach("before-source-commit")
        super().commit(end)
        self.faults.reach("after-source-commit")


class FaultyWriting:
    """Laid over a writer of either mode."""

    faults: Faults

    def write(self, iterator: Iterator[Any]) -> Any:
        self.faults.reach("before-write")
        written = super().write(self.passed(iterator))  # type: ignore[misc]
        self.faults.reach("after-write")
        return written

    def passed(self, iterator: Iterator[Any]) -> Iterator[Any]:
        for batch in iterator:
            yield batch
            self.faults.reach("amid-write")

    def commit(self, messages: Any, batchId: int) -> None:
        self.faults.reach("before-commit")
        found = transactional.losers

        def losers(*given: Any) -> Any:
            self.faults.reach("amid-commit")
            return found(*given)

        transactional.losers = losers  # type: ignore[assignment]
        try:
            super().commit(messages, batchId)  # type: ignore[misc]
        finally:
            transactional.losers = found
        self.faults.reach("after-commit")


class FaultyConfirmWriter(FaultyWriting, ConfirmStreamWriter):
    def __init__(self, options: Any, faults: Faults) -> None:
        super().__init__(options)
        self.faults = faults


class FaultyTransactionalWriter(FaultyWriting, TransactionalStreamWriter):
    def __init__(self, options: Any, faults: Faults) -> None:
        super().__init__(options)
        self.faults = faults


class FaultyDataSource(AmqpDataSource):
    """Format `amqp-faulty`."""

    def __init__(self, options: Any) -> None:
        super().__init__({name: text for name, text in options.items() if name.lower() != "faults"})
        self.faults = Faults(options["faults"])

    @classmethod
    def name(cls) -> str:
        return "amqp-faulty"

    def streamReader(self, schema: Any) -> Any:
        made = super().streamReader(schema)
        return FaultyReader(made.schema, made.options, self.faults)

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        made = stream_writer(schema, self.options)
        kind = FaultyTransactionalWriter if made.options.transactional else FaultyConfirmWriter
        return kind(made.options, self.faults)
