"""spark.readStream.format("amqp"): what Spark calls, in the driver and in executors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from flintmq.spark.connections import told_plainly
from flintmq.spark.feeds.feed import Task
from flintmq.spark.feeds.offsets import Progress
from flintmq.spark.options import ReadOptions
from flintmq.spark.read.stream_planner import StreamPlanner


class AmqpStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Opens nothing until it is asked something; travels to executors without what the driver holds."""

    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        self.schema = schema
        self.options = options
        self._driver: StreamPlanner | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"schema": self.schema, "options": self.options, "_driver": None}

    @property
    def driver(self) -> StreamPlanner:
        if self._driver is None:
            self._driver = StreamPlanner(self.options)
        return self._driver

    @property
    def _what(self) -> str:
        chosen = self.options.queues or (self.options.pattern or "",)
        return f"Reading {', '.join(map(repr, chosen))}"

    def initialOffset(self) -> dict[str, Any]:
        starting = self.options.starting
        return Progress(initial=starting if isinstance(starting, str) else "given").json()

    def getDefaultReadLimit(self) -> ReadLimit:
        if self.options.rows_max is not None:
            return ReadMaxRows(self.options.rows_max)
        if self.options.bytes_max is not None:
            return ReadMaxBytes(self.options.bytes_max)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self.driver.available_now = True

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        rows_max = bytes_max = None
        if not isinstance(limit, ReadAllAvailable):
            # Spark passes one limit; where both options are given, both hold.
            rows_max, bytes_max = self.options.rows_max, self.options.bytes_max
        if isinstance(limit, ReadMaxRows):
            rows_max = limit.max_rows
        if isinstance(limit, ReadMaxBytes):
            bytes_max = limit.max_bytes
        with told_plainly(self._what, self.options.settings):
            return self.driver.latest(Progress.of(start), rows_max, bytes_max).json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        report = self.driver.report()
        return None if report is None else report.json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        with told_plainly(self._what, self.options.settings):
            return self.driver.plan(Progress.of(start), Progress.of(end))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, Task)
        return partition.read(self.schema, self.options)

    def commit(self, end: dict[str, Any]) -> None:
        with told_plainly(self._what, self.options.settings):
            self.driver.acknowledge(Progress.of(end))

    def stop(self) -> None:
        if self._driver is not None:
            self._driver.close()
