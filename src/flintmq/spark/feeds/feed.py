"""One queue as the driver sees it, whatever its kind: how far it goes, and what a batch of it is.

    StreamFeed    a stream of FlintMQ: offsets, read by anyone, any number of times
    LeaseFeed     a queue of FlintMQ: numbers of a lease, the same messages until they are acked
    UnackedFeed      a queue of another broker: deliveries that the driver holds unacked
    ReplayFeed    a stream of another broker: read from an offset by consuming

A Task is what travels to an executor: plain values, read there over a connection of that process.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from flintmq.spark.errors import DataLost
from flintmq.spark.feeds.batch_shares import Span
from flintmq.spark.options import ReadOptions

log = logging.getLogger("flintmq.spark")

# What may have happened to a queue that has another identity.
MADE_AGAIN = "it was deleted and made again, or the broker's disk was lost"


class Task(InputPartition):  # type: ignore[misc]
    """Some messages of one queue, to be read by one task of Spark."""

    def __init__(self, queue: str, start: int, end: int) -> None:
        super().__init__(None)
        self.queue = queue
        self.start = start
        self.end = end

    def read(self, schema: StructType, options: ReadOptions) -> Iterator[Any]:
        """Record batches of the schema."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.queue!r} {self.start}..{self.end}>"


class Feed(ABC):
    """One queue. A `number` is what the offset of the query has for it."""

    def __init__(self, queue: str, options: ReadOptions) -> None:
        self.queue = queue
        self.options = options
        # The creation id of the queue, as far as the broker tells it: which life of it the numbers are of.
        self.identity = ""
        # For the query's progress: octets that were taken, where the feed knows, and rows that it holds now.
        self.octets = 0
        self.held = 0

    @abstractmethod
    def begin(self, wanted: str | int, time_ms: int | None) -> int:
        """The number where a query begins that has no offset for this queue."""

    @abstractmethod
    def check(self, start: int, identity: str) -> int:
        """Where a batch that follows `start` really begins; DataLost if that is not where it should.

        `identity`: of the queue that `start` was a number of, empty if that is not known. MadeAgain where
        this is not the feed for the queue any more.
        """

    @abstractmethod
    def tail(self, start: int, wait_s: float) -> int:
        """How far it goes at the moment; waits a little for something to come after `start`."""

    @abstractmethod
    def take(self, start: int, end: int, bytes_max: int | None) -> int:
        """Takes a batch from `start` to at most `end`; where it really ends."""

    @abstractmethod
    def tasks(self, spans: list[Span], identity: str) -> list[Task]:
        """The tasks that read these spans of a batch, planned for the queue of this identity."""

    # Whether bytes_of can tell; else `take` is told how many octets it may take.
    is_measured = False

    def bytes_of(self, start: int, end: int) -> int:
        """About how many octets there are."""
        raise NotImplementedError

    @abstractmethod
    def done(self, through: int, identity: str) -> None:
        """Everything up to this number, of the queue of this identity, is safe in the sink."""

    def lost(self, what: str, advice: str, going_on: str) -> None:
        """Something that the query still wants is gone: ends it, or says so, as failOnDataLoss has it."""
        if self.options.fail_on_data_loss:
            raise DataLost(f"{what}; {advice}.")
        log.warning("%s; failOnDataLoss is false: %s", what, going_on)

    @abstractmethod
    def close(self) -> None:
        """The query is over."""
