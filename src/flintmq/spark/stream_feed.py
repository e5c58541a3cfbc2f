"""Streams of FlintMQ: offsets in the log, so a replay reads the same rows."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from pyspark.sql.types import StructType

from flintmq.client import Connection
from flintmq.spark.admission import Span
from flintmq.spark.connections import pooled, told_plainly
from flintmq.spark.errors import AmqpError, DataLost
from flintmq.spark.feed import Feed, Task
from flintmq.spark.options import EARLIEST, LATEST, ReadOptions
from flintmq.spark.record_batches import BatchMaker
from flintmq.spark.schema import wanted_columns

log = logging.getLogger("flintmq.spark")

ADVICE = (
    "keep more of the stream, read it sooner, or set failOnDataLoss to false to go on without these messages"
)


class StreamTask(Task):
    """Offsets start..end-1 of a stream."""

    def read(self, schema: StructType, options: ReadOptions) -> Iterator[Any]:
        with told_plainly(f"Reading stream {self.queue!r}", options.settings):
            stream = pooled(options.settings, options.retry_timeout_s).stream(self.queue)
            maker = BatchMaker(schema, self.queue)
            columns = tuple(name for name in wanted_columns(schema) if name != "redelivered")
            at = self.start
            while at < self.end:
                found = stream.fetch(at, self.end, bytes_max=options.fetch_bytes, columns=columns)
                after = min(found.next_offset, self.end)
                if len(found) != after - at:
                    self.missed(at, after, len(found), options)
                if after <= at:
                    raise AmqpError(f"Stream {self.queue!r} gave nothing from offset {at} on.")
                at = after
                if len(found):
                    yield maker.make(found)

    def missed(self, start: int, end: int, found: int, options: ReadOptions) -> None:
        lost = end - start - found
        what = f"Stream {self.queue!r}: {lost} messages of offsets {start} to {end - 1} are gone"
        if options.fail_on_data_loss:
            raise DataLost(f"{what}; {ADVICE}.")
        log.warning("%s, and are left out", what)


class StreamFeed(Feed):
    def __init__(self, queue: str, options: ReadOptions, connection: Connection) -> None:
        super().__init__(queue, options)
        self.stream = connection.stream(queue)

    def begin(self, wanted: str | int, time_ms: int | None) -> int:
        if time_ms is not None:
            return self.stream.offset_for_time(time_ms)
        offsets = self.stream.offsets()
        if wanted == EARLIEST:
            return offsets.first
        if wanted == LATEST:
            return offsets.end
        number = int(wanted)
        if number > offsets.end:
            raise AmqpError(
                f"Stream {self.queue!r} has no offset {number}: it ends before {offsets.end}; "
                "correct the option 'startingOffsets'."
            )
        return self._kept(number, offsets.first)

    def check(self, start: int) -> int:
        offsets = self.stream.offsets()
        if start > offsets.end:
            what = (
                f"Stream {self.queue!r} ends before offset {offsets.end}, but the query has read up to "
                f"{start}: it was deleted and made anew, or its disk was lost"
            )
            if self.options.fail_on_data_loss:
                raise DataLost(
                    f"{what}; begin with a new checkpoint, or set failOnDataLoss to false to read it from "
                    "its beginning."
                )
            log.warning("%s; reading it from its beginning", what)
            return offsets.first
        return self._kept(start, offsets.first)

    def _kept(self, number: int, first: int) -> int:
        if number >= first:
            return number
        what = f"Stream {self.queue!r}: offsets {number} to {first - 1} have expired before they were read"
        if self.options.fail_on_data_loss:
            raise DataLost(f"{what}; {ADVICE}.")
        log.warning("%s, and are left out", what)
        return first

    def tail(self, start: int, wait_s: float) -> int:
        if wait_s > 0:
            return self.stream.offsets(beyond=start, wait_s=wait_s).end
        return self.stream.offsets().end

    def take(self, start: int, end: int, bytes_max: int | None) -> int:
        return end

    is_measured = True

    def bytes_of(self, start: int, end: int) -> int:
        return self.stream.bytes(start, end)

    def done(self, through: int) -> None:
        """Nothing to do: who has read what is nothing to a stream."""

    def close(self) -> None:
        """It holds nothing of its own."""

    def tasks(self, spans: list[Span]) -> list[Task]:
        return [StreamTask(self.queue, span.start, span.end) for span in spans]
