"""The lake as Spark asks for it: a streaming data source whose offsets are times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from flintmq.pipelines.queries import lake


class LakeSource(DataSource):  # type: ignore[misc]
    """spark.readStream.format("flintmq_lake")"""

    @classmethod
    def name(cls) -> str:
        return "flintmq_lake"

    def schema(self) -> str:
        return lake.ddl_of(self.options["path"])

    def streamReader(self, schema: StructType) -> LakeReader:
        return LakeReader(dict(self.options))


class Slice(InputPartition):  # type: ignore[misc]
    """The rows of one batch; one task reads them, so that they stay in order."""

    def __init__(self, start_us: int, end_us: int) -> None:
        self.start_us = start_us
        self.end_us = end_us


class LakeReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Opens the lake when it is first asked; travels to executors as its options alone."""

    def __init__(self, options: dict[str, str]) -> None:
        self.options = options
        self._schedule: lake.Schedule | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"options": self.options, "_schedule": None}

    @property
    def schedule(self) -> lake.Schedule:
        if self._schedule is None:
            self._schedule = lake.Schedule(self.options)
        return self._schedule

    def initialOffset(self) -> dict[str, Any]:
        return self.schedule.first()

    def prepareForTriggerAvailableNow(self) -> None:
        self.schedule.without_pace()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        return self.schedule.next(start)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [Slice(start["at"], end["at"])]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, Slice)
        held = lake.opened(self.options["path"], self.options["time"])
        return lake.batches(held, partition.start_us, partition.end_us)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to give back: a lake keeps its rows."""

    def stop(self) -> None:
        self._schedule = None
