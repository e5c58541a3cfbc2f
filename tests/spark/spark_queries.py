"""Streaming queries that tests run to their end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

STARTS_MAX = 10


def run_to_end(writer: Any) -> Any:
    """Starts a query and waits for its end; raises what it failed by.

    Spark gives the interpreter of a streaming source 10 seconds to start, which cannot be changed and is not
    enough on a machine that is busy: nothing has happened then, and it is started again.
    """
    for _ in range(STARTS_MAX):
        query = writer.start()
        try:
            query.awaitTermination()
        except Exception as error:
            if "failed to connect back" not in str(error):
                raise
        else:
            return query
    raise AssertionError(f"{STARTS_MAX} times an interpreter did not start in time")


class Query:
    """A streaming query with a checkpoint, run to the end of what is there, again and again."""

    def __init__(self, spark: Any, checkpoint: Path, options: dict[str, str]) -> None:
        self.spark = spark
        self.checkpoint = checkpoint
        self.options = options
        self.batches: dict[int, list[int]] = {}
        self.rows: list[int] = []
        self.fail_at: int | None = None
        self.last: Any = None

    def frame(self) -> Any:
        return self.spark.readStream.format("amqp").options(**self.options).load()

    def run(self, **changes: str) -> list[int]:
        """Runs until all is read; the numbers that came, in order."""
        self.options.update(changes)
        before = len(self.rows)
        self.last = run_to_end(self.writer({"availableNow": True}))
        return self.rows[before:]

    def writer(self, trigger: dict[str, Any]) -> Any:
        def take(frame: Any, batch: int) -> None:
            found = [int(bytes(row.value)) for row in frame.select("value").collect()]
            if self.fail_at == batch:
                raise RuntimeError("told to fail")
            self.batches[batch] = found
            self.rows += found

        writer = self.frame().writeStream.foreachBatch(take)
        return writer.option("checkpointLocation", str(self.checkpoint)).trigger(**trigger)
