"""The format `amqp` with a hole in it: at one step, once, a process is killed as kill -9 does it.

The option `faults` names a directory. A file there called after a step is the order to die at it: whoever
gets there first takes the file away, kills the processes that are listed in it, and itself. `java` in that
list is the Java process above it: an executor of a cluster, the driver where all is in one. `skip=1` before
the list lets the first one pass.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flintmq.spark.source import AmqpDataSource
from flintmq.spark.stream_reader import AmqpStreamReader
from flintmq.spark.transactional import TransactionalStreamWriter
from flintmq.spark.writers import ConfirmStreamWriter, stream_writer

READER_STEPS = (
    "before-latest",
    "after-latest",
    "before-partitions",
    "after-partitions",
    "before-source-commit",
    "after-source-commit",
)
TASK_STEPS = ("before-read", "amid-read", "before-write", "amid-write", "after-write")
SINK_STEPS = ("before-commit", "after-commit")
STEPS = (*READER_STEPS, *TASK_STEPS, *SINK_STEPS)


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
        for word in words:
            try:
                os.kill(java_above() if word == "java" else int(word), signal.SIGKILL)
            except ProcessLookupError:
                continue  # it is gone already
        os.kill(os.getpid(), signal.SIGKILL)


def java_above() -> int:
    pid = os.getpid()
    while pid > 1:
        stat = Path(f"/proc/{pid}/stat").read_text()
        if stat[stat.index("(") + 1 : stat.rindex(")")] == "java":
            return pid
        pid = int(stat[stat.rindex(")") + 2 :].split()[1])
    raise ProcessLookupError("no Java above")


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
        super().commit(messages, batchId)  # type: ignore[misc]
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
