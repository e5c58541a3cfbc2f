"""spark.read.format("amqp"): streams by range of offsets, queues by looking without taking."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from flintmq.client import Connection
from flintmq.spark.connections import close_quietly, open_connection, pooled, told_plainly
from flintmq.spark.errors import AmqpError, BadOption
from flintmq.spark.feeds.batch_shares import Span, split
from flintmq.spark.feeds.feed import Feed, Task
from flintmq.spark.feeds.feed_types import feed_of
from flintmq.spark.feeds.lease_feed import LeaseFeed
from flintmq.spark.feeds.record_batches import BatchMaker
from flintmq.spark.feeds.unacked_feed import UnackedFeed
from flintmq.spark.options import EARLIEST, LATEST, ReadOptions
from flintmq.spark.read.stream_planner import matching
from flintmq.spark.schema import wanted_columns
from flintmq.wire.columns import Columns
from flintmq.wire.tables import FieldTable, FieldValue

PEEK_ROWS = 100_000


class PeekTask(Task):
    """The first messages that wait in a queue: `end` of them at most, which stay where they are."""

    def read(self, schema: StructType, options: ReadOptions) -> Iterator[Any]:
        maker = BatchMaker(schema, self.queue)
        chosen: list[FieldValue] = [
            name for name in wanted_columns(schema) if name in ("headers", "properties")
        ]
        after: int | None = None
        left = self.end
        with told_plainly(f"Looking into queue {self.queue!r}", options.settings):
            connection = pooled(options.settings, options.retry_timeout_s)
            while left > 0:
                arguments: FieldTable = {
                    "queue": self.queue,
                    "limit": min(left, PEEK_ROWS),
                    "max-bytes": options.fetch_bytes,
                    "columns": chosen,
                }
                if after is not None:
                    arguments["after"] = after
                found = Columns(connection.request("queue.peek", arguments).body)
                if not len(found):
                    return
                after = found.next_offset - 1
                left -= len(found)
                yield maker.make(found)


class AmqpBatchReader(DataSourceReader):  # type: ignore[misc]
    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        self.schema = schema
        self.options = options

    def partitions(self) -> Sequence[InputPartition]:
        options = self.options
        what = f"Reading {', '.join(map(repr, options.queues or (options.pattern or '',)))}"
        with told_plainly(what, options.settings):
            connection = open_connection(options.settings, 0.0)
            try:
                queues = options.queues or matching(connection, options.pattern or "")
                return [task for queue in queues for task in self._tasks(connection, queue, len(queues))]
            finally:
                close_quietly(connection)

    def _tasks(self, connection: Connection, queue: str, queues: int) -> list[Task]:
        feed = feed_of(connection, queue, self.options, consumer="")
        if isinstance(feed, LeaseFeed):
            ready = connection.request("queue.info", {"queue": queue}).results["messages-ready"]
            self._takes_no_place(queue)
            return [PeekTask(queue, 0, ready)] if isinstance(ready, int) and ready else []
        if isinstance(feed, UnackedFeed):
            raise AmqpError(
                f"Queue {queue!r} cannot be looked into without taking its messages on this broker; use "
                "spark.readStream with trigger(availableNow=True), or a stream."
            )
        try:
            start, end = self._range(feed)
            count = -(-(self.options.partitions_min or 1) // queues)
            spans = split([Span(queue, start, max(start, end))], count)
            return feed.tasks(spans, feed.identity) if spans else []
        finally:
            feed.close()

    def _takes_no_place(self, queue: str) -> None:
        options = self.options
        named = [given for given in (options.starting, options.ending) if isinstance(given, dict)]
        if (
            any(isinstance(given.get(queue), int) for given in named)
            or options.starting_ms
            or options.ending_ms
        ):
            raise BadOption(
                f"Queue {queue!r} is no stream: it is read whole, so leave offsets and timestamps out."
            )

    def _range(self, feed: Feed) -> tuple[int, int]:
        options = self.options
        starting, ending = options.starting, options.ending
        first = starting.get(feed.queue, EARLIEST) if isinstance(starting, dict) else starting
        last = ending.get(feed.queue, LATEST) if isinstance(ending, dict) else ending
        start = feed.begin(first, options.starting_ms)
        if options.ending_ms is not None:
            return start, feed.begin(LATEST, options.ending_ms)
        tail = feed.tail(start, 0.0)
        if isinstance(last, int) and last > tail:
            raise BadOption(
                f"Stream {feed.queue!r} has no offset {last} yet: it ends before {tail}; correct the option "
                "'endingOffsets'."
            )
        return start, last if isinstance(last, int) else tail

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if not isinstance(partition, Task):
            return iter(())  # where there is nothing to read, Spark runs one task all the same
        return partition.read(self.schema, self.options)
