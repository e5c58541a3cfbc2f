"""Streams of FlintMQ: offsets in the log, so a replay reads the same rows."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from pyspark.sql.types import StructType

from flintmq.client import Connection
from flintmq.client.core.errors import ServiceError
from flintmq.client.core.services import Offsets
from flintmq.spark.connections import pooled, told_plainly
from flintmq.spark.errors import AmqpError, DataLost, MadeAgain
from flintmq.spark.feeds.batch_shares import Span
from flintmq.spark.feeds.feed import MADE_AGAIN, Feed, Task
from flintmq.spark.feeds.record_batches import BatchMaker
from flintmq.spark.options import EARLIEST, LATEST, ReadOptions
from flintmq.spark.schema import wanted_columns
from flintmq.wire import amqp

log = logging.getLogger("flintmq.spark")

ANEW = (
    "begin with a new checkpoint, or set failOnDataLoss to false to go on with what is in it now, from its "
    "beginning"
)
ADVICE = (
    "keep more of the stream, read it sooner, or set failOnDataLoss to false to go on without these messages"
)


class StreamTask(Task):
    """Offsets start..end-1 of a stream."""

    def __init__(self, queue: str, start: int, end: int, identity: str) -> None:
        super().__init__(queue, start, end)
        self.identity = identity

    def read(self, schema: StructType, options: ReadOptions) -> Iterator[Any]:
        with told_plainly(f"Reading stream {self.queue!r}", options.settings):
            stream = pooled(options.settings, options.retry_timeout_s).stream(self.queue)
            maker = BatchMaker(schema, self.queue)
            columns = tuple(name for name in wanted_columns(schema) if name != "redelivered")
            at = self.start
            while at < self.end:
                try:
                    found = stream.fetch(
                        at,
                        self.end,
                        bytes_max=options.fetch_bytes,
                        columns=columns,
                        creation_id=self.identity,
                    )
                except ServiceError as error:
                    if not is_another(error):
                        raise
                    self.gone(at, self.end, self.end - at, MADE_AGAIN, options)
                    return
                after = min(found.next_offset, self.end)
                if len(found) != after - at:
                    self.gone(at, after, after - at - len(found), "they have expired", options)
                if after <= at:
                    self.gone(at, self.end, self.end - at, MADE_AGAIN, options)
                    return
                at = after
                if len(found):
                    yield maker.make(found)

    def gone(self, start: int, end: int, lost: int, why: str, options: ReadOptions) -> None:
        what = f"Stream {self.queue!r}: {lost} messages of offsets {start} to {end - 1} are gone: {why}"
        if options.fail_on_data_loss:
            raise DataLost(f"{what}; {ADVICE}.")
        log.warning("%s; failOnDataLoss is false: they are left out", what)


def is_another(error: ServiceError) -> bool:
    """Whether the broker says that the queue was made again, be it as one of another kind."""
    return error.code in (amqp.PRECONDITION_FAILED, amqp.NOT_IMPLEMENTED) and any(
        words in error.text for words in ("was made again", "is not a stream", "is a stream")
    )


class StreamFeed(Feed):
    def __init__(self, queue: str, options: ReadOptions, connection: Connection) -> None:
        super().__init__(queue, options)
        self.stream = connection.stream(queue)

    def _offsets(self) -> Offsets:
        try:
            offsets = self.stream.offsets()
        except ServiceError as error:
            raise (MadeAgain(self.queue) if is_another(error) else error) from None
        self.identity = offsets.creation_id
        return offsets

    def begin(self, wanted: str | int, time_ms: int | None) -> int:
        offsets = self._offsets()
        if time_ms is not None:
            return self.stream.offset_for_time(time_ms)
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

    def check(self, start: int, identity: str) -> int:
        offsets = self._offsets()
        if identity and identity != self.identity:
            if not start:  # nothing of it was read: nothing of what was read is missing
                log.warning("stream %r is another one than at the last start: %s", self.queue, MADE_AGAIN)
                return offsets.first
            what = f"Stream {self.queue!r} is not the one that the query has read up to offset {start}"
            self.lost(f"{what}: {MADE_AGAIN}", ANEW, "reading it from its beginning")
            return offsets.first
        if start > offsets.end:
            what = f"Stream {self.queue!r} ends before offset {offsets.end}, but {start} were read of it"
            self.lost(f"{what}: {MADE_AGAIN}", ANEW, "reading it from its beginning")
            return offsets.first
        return self._kept(start, offsets.first)

    def _kept(self, number: int, first: int) -> int:
        if number >= first:
            return number
        what = f"Stream {self.queue!r}: offsets {number} to {first - 1} have expired before they were read"
        self.lost(what, ADVICE, "they are left out")
        return first

    def tail(self, start: int, wait_s: float) -> int:
        if wait_s > 0:
            return self.stream.offsets(beyond=start, wait_s=wait_s).end
        return self.stream.offsets().end

    def take(self, start: int, end: int, bytes_max: int | None) -> int:
        if end > start:
            self.octets += self.stream.bytes(start, end)
        return end

    is_measured = True

    def bytes_of(self, start: int, end: int) -> int:
        return self.stream.bytes(start, end)

    def done(self, through: int, identity: str) -> None:
        """Nothing to do: who has read what is nothing to a stream."""

    def close(self) -> None:
        """It holds nothing of its own."""

    def tasks(self, spans: list[Span], identity: str) -> list[Task]:
        """None where the stream that the batch was planned for is gone: the next one begins anew."""
        offsets = self._offsets()
        end = max(span.end for span in spans)
        if (identity and identity != self.identity) or end > offsets.end:
            what = f"Stream {self.queue!r}: a batch was planned up to offset {end - 1}, and its rows are gone"
            self.lost(f"{what}: {MADE_AGAIN}", ANEW, "the batch goes on without them")
            return []
        return [StreamTask(self.queue, span.start, span.end, self.identity) for span in spans]
