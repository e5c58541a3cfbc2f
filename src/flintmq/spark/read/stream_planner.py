"""The driver's half of a streaming read: one long-lived process that Spark asks for offsets and tasks.

    latestOffset(start)   acks what `start` covers, then sees how far a batch may go
    partitions            the tasks of a batch, of this process or of one before it
    commit(end)           acks

Spark calls latestOffset(start) only when the batch that ended at `start` is committed. So acking there is
safe, and is the only way to ack the last batch of a query that has nothing more to read: its commit(end)
comes with the batch after it, or never.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from itertools import groupby

from flintmq.client import Connection
from flintmq.client.core.errors import ServiceError
from flintmq.clock import Clock
from flintmq.spark.connections import open_connection, retries
from flintmq.spark.errors import AmqpError, BadOption, MadeAgain
from flintmq.spark.feeds.batch_shares import Span, share_bytes, share_rows, split
from flintmq.spark.feeds.feed import Feed, Task
from flintmq.spark.feeds.feed_types import feed_of, has_services
from flintmq.spark.feeds.lease_feed import LeaseFeed
from flintmq.spark.feeds.offsets import Progress, Report
from flintmq.spark.options import EARLIEST, ReadOptions
from flintmq.wire.tables import FieldTable

log = logging.getLogger("flintmq.spark")

# Spark asks again some 13 ms after an answer without news: the broker may as well wait for some.
POLL_S = 0.15
# A broker that was never there: more likely a wrong address than a restart.
FIRST_CONTACT_S = 5.0
# How long a pattern may not see a queue that is new.
LIST_S = 10.0


class StreamPlanner:
    """What the driver knows of the queues of one query."""

    def __init__(self, options: ReadOptions, clock: Clock | None = None) -> None:
        self.options = options
        self.clock = clock or Clock()
        self.feeds: dict[str, Feed] = {}
        self.consumer = options.consumer
        self.available_now = False
        self.caps: dict[str, int] = {}  # with AvailableNow, how far each queue is read
        self.begins: dict[str, int] = {}  # resolved in this process, not in a checkpoint yet
        self.tails: dict[str, int] = {}
        # Offsets in the checkpoint whose numbers are not those of the queue any more: they are never acked.
        self.disowned: dict[str, Progress] = {}
        self.rows = self.batches = 0  # planned by this process
        self._connection: Connection | None = None
        self._names: tuple[str, ...] = options.queues
        self._listed_s: float | None = None

    @property
    def connection(self) -> Connection:
        if self._connection is None:
            patience_s = min(FIRST_CONTACT_S, self.options.retry_timeout_s)
            self._connection = open_connection(
                self.options.settings, patience_s, self.options.retry_timeout_s
            )
        return self._connection

    def feed(self, queue: str) -> Feed:
        feed = self.feeds.get(queue)
        if feed is None:
            if self.consumer is None:
                self.consumer = f"spark-{self.clock.random.getrandbits(64):016x}"
            feed = self.feeds[queue] = feed_of(self.connection, queue, self.options, self.consumer)
        return feed

    # Offsets

    def latest(self, start: Progress, rows_max: int | None, bytes_max: int | None) -> Progress:
        """The end of the next batch; the start itself if there is nothing to read."""
        self.acknowledge(start)
        begins = self._begins(start)
        ids = {queue: self.feed(queue).identity for queue in begins if self.feed(queue).identity}
        spans = self._available(begins, wait=start.initial is None and not self.available_now)
        leases = any(isinstance(feed, LeaseFeed) for feed in self.feeds.values())
        if leases and start.initial is not None and self.options.consumer is None:
            # The name that leases are taken under has to be in the checkpoint before the first one is taken,
            # else a driver that dies between the two leaves messages leased to nobody.
            return start.follow(begins, begins, self.consumer, ids)
        ends = self._take(spans, rows_max, bytes_max)
        rows = sum(ends[queue] - begins[queue] for queue in ends)
        self.rows += rows
        self.batches += rows > 0
        moved = {
            queue: begin
            for queue, begin in begins.items()
            if begin != start.queues.get(queue) or start.ids.get(queue, ids.get(queue)) != ids.get(queue)
        }
        if start.initial is None and not moved and all(ends[queue] == begins[queue] for queue in ends):
            return start
        return start.follow(ends, moved, self.consumer if leases else None, ids)

    def _adopt(self, progress: Progress) -> None:
        """Leases are found again by the name they were taken under."""
        if progress.consumer is not None and not self.feeds:
            self.consumer = progress.consumer

    def _begins(self, start: Progress) -> dict[str, int]:
        """Where the next batch begins in each queue."""
        begins: dict[str, int] = {}
        for queue in self._queues(start):
            if queue in start.queues:
                begins[queue] = self._checked(queue, start)
                continue
            feed = self.feed(queue)
            if queue not in self.begins:
                wanted, time_ms = self._wanted(queue, is_new=start.initial is None)
                self.begins[queue] = feed.begin(wanted, time_ms)
            begins[queue] = self.begins[queue]
        return begins

    def _checked(self, queue: str, start: Progress) -> int:
        number, identity = start.queues[queue], start.ids.get(queue, "")
        try:
            begin = self.feed(queue).check(number, identity)
        except MadeAgain:
            self.feeds.pop(queue).close()  # it may be of another kind now
            begin = self.feed(queue).check(number, identity)
        if begin < number or identity not in ("", self.feed(queue).identity):
            # Spark has this start committed once more when the next batch is planned: it must not be acked.
            self.disowned[queue] = start
            self.caps.pop(queue, None)
        return begin

    def _wanted(self, queue: str, is_new: bool) -> tuple[str | int, int | None]:
        """What the options say of the beginning; a queue found later is read from its beginning."""
        starting = self.options.starting
        if isinstance(starting, dict):
            return starting.get(queue, EARLIEST), None
        if is_new:
            return EARLIEST, None
        return starting, self.options.starting_ms

    def _queues(self, start: Progress) -> Iterable[str]:
        if self.options.pattern is None:
            return self._names
        now_s = self.clock.monotonic_s()
        if self._listed_s is None or now_s - self._listed_s >= LIST_S:
            self._names = matching(self.connection, self.options.pattern)
            self._listed_s = now_s
            if start.initial is not None:
                self._check_names()
                if not self._names:
                    log.warning(
                        "queuePattern %r matches the whole name of no queue yet", self.options.pattern
                    )
            for queue in start.queues:
                if queue not in self._names:
                    log.warning("queue %r does not exist any more, and is not read", queue)
        return self._names

    def _check_names(self) -> None:
        """A place that is given for a queue that does not exist is a slip, not a wish."""
        starting = self.options.starting
        missing = [name for name in starting if name not in self._names] if isinstance(starting, dict) else []
        if missing:
            raise BadOption(
                f"Option 'startingOffsets' names {missing[0]!r}, and there is no such queue; correct the "
                "name, or leave it out."
            )

    def _available(self, begins: dict[str, int], wait: bool) -> list[Span]:
        """What could be read; if that is nothing, waits for a moment."""
        self.tails = {queue: self._tail(queue, begin, 0.0) for queue, begin in begins.items()}
        if wait and begins and all(self.tails[queue] <= begin for queue, begin in begins.items()):
            share_s = POLL_S / len(begins)
            for queue, begin in begins.items():
                self.tails[queue] = self._tail(queue, begin, share_s)
                if self.tails[queue] > begin:
                    break
        return [Span(queue, begin, max(begin, self.tails[queue])) for queue, begin in sorted(begins.items())]

    def _tail(self, queue: str, begin: int, wait_s: float) -> int:
        tail = self.feed(queue).tail(begin, wait_s)
        if not self.available_now:
            return tail
        return min(tail, self.caps.setdefault(queue, tail))

    def _take(self, spans: list[Span], rows_max: int | None, bytes_max: int | None) -> dict[str, int]:
        if rows_max is not None:
            spans = share_rows(spans, rows_max)
        shares: dict[str, int | None] = {span.queue: None for span in spans}
        if bytes_max is not None:
            measured = [span for span in spans if self.feed(span.queue).is_measured]
            others = [span for span in spans if span not in measured]
            rows = max(1, sum(span.rows for span in spans))
            for span in others:
                shares[span.queue] = max(1, bytes_max * span.rows // rows)
            left = bytes_max - sum(share or 0 for share in shares.values())
            spans = share_bytes(measured, max(1, left), self._bytes_of) + others
        return {
            span.queue: self.feed(span.queue).take(span.start, span.end, shares[span.queue]) for span in spans
        }

    def _bytes_of(self, queue: str, start: int, end: int) -> int:
        return self.feed(queue).bytes_of(start, end)

    # Batches

    def plan(self, start: Progress, end: Progress) -> list[Task]:
        """The tasks of a batch."""
        self._adopt(end)
        spans = [Span(queue, start.begin_of(queue, end), number) for queue, number in end.queues.items()]
        pieces = split([span for span in spans if span.rows > 0], self.options.partitions_min)
        tasks: list[Task] = []
        for queue, found in groupby(pieces, key=lambda piece: piece.queue):
            planned = list(found)
            identity = end.ids.get(queue, "")
            try:
                tasks += self.feed(queue).tasks(planned, identity)
            except MadeAgain:
                self.feeds.pop(queue).close()
                tasks += self.feed(queue).tasks(planned, identity)
        return tasks

    def acknowledge(self, progress: Progress) -> None:
        """All of it is safe in the sink."""
        self._adopt(progress)
        there = set(self._queues(progress)) if progress.queues else set()
        for queue, number in progress.queues.items():
            if queue in there and self.disowned.get(queue) != progress:
                self.feed(queue).done(number, progress.ids.get(queue, ""))

    def report(self) -> Report | None:
        """How far the queues go, for the query's progress, and what was done so far."""
        if not self.tails:
            return None
        counts = {"batches": self.batches, "rows": self.rows, "retries": retries()}
        counts["octets"] = sum(feed.octets for feed in self.feeds.values())
        counts["leased"] = sum(feed.held for feed in self.feeds.values())
        return Report(dict(self.tails), counts)

    def close(self) -> None:
        for feed in self.feeds.values():
            feed.close()
        if self._connection is not None:
            self._connection.close()


def matching(connection: Connection, pattern: str) -> tuple[str, ...]:
    """The queues whose whole name the pattern matches."""
    if not has_services(connection):
        raise AmqpError(
            "Option 'queuePattern' needs a broker that lists its queues over AMQP; name them in 'queues'."
        )
    wanted = re.compile(pattern)
    names: list[str] = []
    arguments: FieldTable = {}
    while True:
        results = connection.request("queue.list", arguments).results
        rows = results["rows"]
        if not isinstance(rows, list):
            raise ServiceError("queue.list", 0, "an answer without rows")
        for row in rows:
            name = row["name"] if isinstance(row, dict) else None
            if isinstance(name, str) and isinstance(row, dict) and not row.get("exclusive"):
                names += [name] if wanted.fullmatch(name) else []
        if "next" not in results:
            return tuple(names)
        arguments = {"after": results["next"]}
