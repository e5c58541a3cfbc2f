"""Streams of another broker (RabbitMQ), over AMQP 0-9-1: consumed from an offset, by driver and executors.

Each message says its offset in the header x-stream-offset. The driver learns how far the stream goes by
consuming its end; tasks consume their own range, so a replay reads the same rows.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.types import StructType

from flintmq.client import Channel, Connection, Consumer, Message
from flintmq.clock import Clock
from flintmq.spark.connections import close_quietly, open_connection, told_plainly
from flintmq.spark.errors import AmqpError, DataLost
from flintmq.spark.feeds.batch_shares import Span
from flintmq.spark.feeds.feed import Feed, Task
from flintmq.spark.feeds.record_batches import BatchMaker
from flintmq.spark.feeds.stream_feed import ADVICE
from flintmq.spark.feeds.unacked_feed import laid_out
from flintmq.spark.options import EARLIEST, LATEST, ReadOptions
from flintmq.wire.columns import Columns
from flintmq.wire.tables import FieldValue

log = logging.getLogger("flintmq.spark")

PREFETCH = 5_000
ROWS_MAX = 20_000
# No delivery for so long: the end of the stream, for now.
IDLE_S = 0.3
# The driver looks for the end of a stream that grows meanwhile: after so many reads it is content with how
# far it has come. 100 reads are 2 million messages, or two seconds of a trickle.
READS_MAX = 100
REST_S = 0.02
# A message that is known to be there and does not come.
ANSWER_S = 30.0


def consume(connection: Connection, queue: str, offset: FieldValue) -> tuple[Channel, Consumer]:
    channel = connection.channel(prefetch=PREFETCH)
    return channel, channel.consume(queue, arguments={"x-stream-offset": offset})


def offset_of(message: Message) -> int:
    offset = message.headers.get("x-stream-offset")
    if not isinstance(offset, int):
        raise AmqpError("A message has no x-stream-offset; say queueType=classic if this is no stream.")
    return offset


class ReplayTask(Task):
    """Offsets start..end-1 of a stream."""

    def read(self, schema: StructType, options: ReadOptions) -> Iterator[Any]:
        clock = Clock()
        maker = BatchMaker(schema, self.queue)
        with told_plainly(f"Reading stream {self.queue!r}", options.settings):
            connection = open_connection(options.settings, options.retry_timeout_s)
            try:
                _, consumer = consume(connection, self.queue, self.start)
                at = self.start
                while at < self.end:
                    rows: list[tuple[int, Message]] = []
                    found = consumer.take(ROWS_MAX, timeout_s=ANSWER_S)
                    if not found:
                        self.lost(f"Stream {self.queue!r} gave nothing from offset {at} on", options)
                        return
                    found[-1].ack(multiple=True)
                    for message in found:
                        offset = offset_of(message)
                        if at <= offset < self.end:
                            self.follows(at, offset, options)
                            rows.append((offset, message))
                            at = offset + 1
                        elif offset >= self.end:
                            at = self.end
                    if rows:
                        yield maker.make(Columns(laid_out(rows, clock.wall_ms())))
            finally:
                close_quietly(connection)

    def follows(self, at: int, offset: int, options: ReadOptions) -> None:
        """Offsets are consecutive, unless retention has taken the first ones."""
        if offset == at:
            return
        self.lost(
            f"Stream {self.queue!r}: offsets {at} to {offset - 1} have expired before they were read", options
        )

    def lost(self, what: str, options: ReadOptions) -> None:
        if options.fail_on_data_loss:
            raise DataLost(f"{what}; {ADVICE}.")
        log.warning("%s, and are left out", what)


class ReplayFeed(Feed):
    def __init__(self, queue: str, options: ReadOptions, connection: Connection) -> None:
        super().__init__(queue, options)
        self.connection = connection
        self.watcher: Connection | None = None
        self.consumer: Consumer | None = None
        self.end = 0

    def begin(self, wanted: str | int, time_ms: int | None) -> int:
        if time_ms is not None:
            return self._first(datetime.fromtimestamp(time_ms / 1000, UTC))
        if wanted == LATEST:
            return self.tail(0, 0.0)
        if wanted == EARLIEST:
            return self._first("first")
        return int(wanted)

    def _first(self, offset: FieldValue) -> int:
        """The offset of the first message from there on; the end of the stream if there is none."""
        channel, consumer = consume(self.connection, self.queue, offset)
        found = consumer.take(1, timeout_s=2 * IDLE_S)
        channel.close()
        return offset_of(found[0]) if found else self.tail(0, 0.0)

    def check(self, start: int, identity: str) -> int:
        return start  # what has expired is seen by the task that looks for it

    def tail(self, start: int, wait_s: float) -> int:
        if self.consumer is None:
            self.watcher = open_connection(self.options.settings, self.options.retry_timeout_s)
            _, self.consumer = consume(self.watcher, self.queue, "last")
            wait_s = max(wait_s, 2 * IDLE_S)
        wait_s = wait_s or IDLE_S
        for _ in range(READS_MAX):
            found = self.consumer.take(ROWS_MAX, timeout_s=wait_s)
            if not found:
                break
            found[-1].ack(multiple=True)
            self.end = max(self.end, offset_of(found[-1]) + 1)
            wait_s = REST_S
        return self.end

    def take(self, start: int, end: int, bytes_max: int | None) -> int:
        return end

    def done(self, through: int, identity: str) -> None:
        """Nothing to do: who has read what is nothing to a stream."""

    def tasks(self, spans: list[Span], identity: str) -> list[Task]:
        return [ReplayTask(self.queue, span.start, span.end) for span in spans]

    def close(self) -> None:
        if self.watcher is not None:
            close_quietly(self.watcher)
