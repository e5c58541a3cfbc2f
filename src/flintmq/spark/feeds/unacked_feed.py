"""Queues of a broker without leases: the driver holds deliveries unacked until their batch is safe.

At least once: when the driver is gone the broker delivers them again, in a later batch. The rows travel in
the tasks, so a batch is as large as the prefetch allows and no larger.
"""

from __future__ import annotations

import logging
from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

from pyspark.sql.types import StructType

from flintmq.client import Connection, Consumer, Message
from flintmq.clock import Clock
from flintmq.spark.connections import close_quietly, open_connection
from flintmq.spark.errors import AmqpError
from flintmq.spark.feeds.batch_shares import Span
from flintmq.spark.feeds.feed import Feed, Task
from flintmq.spark.feeds.record_batches import BatchMaker
from flintmq.spark.options import ReadOptions
from flintmq.wire import columns
from flintmq.wire.columns import Column, Columns

log = logging.getLogger("flintmq.spark")

# 65,535 is what the field holds.
PREFETCH_MAX = 65_535
PREFETCH = 20_000
# How long the deliveries that are on their way are waited for before a batch is closed.
SETTLE_S = 0.05


class HeldTask(Task):
    """Rows that are in the task itself."""

    def __init__(self, queue: str, start: int, end: int, body: bytes) -> None:
        super().__init__(queue, start, end)
        self.body = body

    def read(self, schema: StructType, options: ReadOptions) -> Iterator[Any]:
        yield BatchMaker(schema, self.queue).make(Columns(self.body))


class UnackedFeed(Feed):
    def __init__(self, queue: str, options: ReadOptions, clock: Clock | None = None) -> None:
        super().__init__(queue, options)
        self.clock = clock or Clock()
        self.connection: Connection | None = None
        self.consumer: Consumer | None = None
        self.waiting: deque[Message] = deque()  # delivered, not in a batch yet
        self.unacked: deque[tuple[int, Message]] = deque()  # in a batch that is not safe yet
        self.last: int | None = None

    def attach(self) -> Consumer:
        if self.consumer is None:
            wanted = self.options.rows_max
            prefetch = PREFETCH if wanted is None else min(PREFETCH_MAX, 2 * wanted)
            self.connection = open_connection(self.options.settings, self.options.retry_timeout_s)
            self.consumer = self.connection.channel(prefetch=prefetch).consume(self.queue)
        return self.consumer

    def begin(self, wanted: str | int, time_ms: int | None) -> int:
        if isinstance(wanted, int) or time_ms is not None:
            raise AmqpError(
                f"Queue {self.queue!r} is no stream: it is read from its head, so 'startingOffsets' cannot "
                "name a place in it; leave the option out."
            )
        return self.check(0)

    def check(self, start: int, identity: str = "") -> int:
        if self.last is None:
            self.last = start
        return start

    def tail(self, start: int, wait_s: float) -> int:
        consumer = self.attach()
        found = consumer.take(PREFETCH_MAX, timeout_s=max(wait_s, SETTLE_S))
        while found:
            self.waiting.extend(found)
            found = consumer.take(PREFETCH_MAX, timeout_s=SETTLE_S)
        while self.waiting and self.waiting[0].is_lost:
            self.waiting.popleft()  # delivered again by a connection that was lost since
        return (self.last or 0) + len(self.waiting)

    def take(self, start: int, end: int, bytes_max: int | None) -> int:
        last = self.check(start) if self.last is None else self.last
        if last > start:
            return last  # asked again for a batch that was given
        size = 0
        while self.waiting and last < end and (bytes_max is None or size < bytes_max):
            message = self.waiting.popleft()
            last += 1
            size += len(message.body)
            self.unacked.append((last, message))
        self.last = last
        self.octets += size
        self.held = len(self.unacked)
        return last

    def tasks(self, spans: list[Span], identity: str) -> list[Task]:
        now_ms = self.clock.wall_ms()
        tasks: list[Task] = []
        missing = 0
        for span in spans:
            found = [(number, message) for number, message in self.unacked if span.start < number <= span.end]
            missing += span.rows - len(found)
            if found:
                tasks.append(HeldTask(self.queue, span.start, span.end, laid_out(found, now_ms)))
        if missing:
            log.warning(
                "queue %r: %d messages of a batch that was begun before are not here; the broker delivers "
                "them again, in a later batch",
                self.queue,
                missing,
            )
        return tasks

    def done(self, through: int, identity: str) -> None:
        self.check(through)
        settled: Message | None = None
        while self.unacked and self.unacked[0][0] <= through:
            settled = self.unacked.popleft()[1]
        self.held = len(self.unacked)
        if settled is not None and not settled.ack(multiple=True):
            log.warning("queue %r: the connection was lost; what was read comes again", self.queue)

    def close(self) -> None:
        if self.connection is not None:
            close_quietly(self.connection)


def laid_out(rows: Sequence[tuple[int, Message]], now_ms: int) -> bytes:
    """Deliveries in columns, as FlintMQ would send them."""
    routes = [message.route for _, message in rows]
    found = [
        Column(columns.OFFSET, array("q", [number for number, _ in rows]).tobytes()),
        Column(columns.TIMESTAMP, array("q", [1000 * now_ms] * len(rows)).tobytes()),
        of_octets(columns.VALUE, [message.body for _, message in rows]),
        of_octets(columns.ROUTING_KEY, [route[2 + route[0] :] for route in routes]),
        of_octets(columns.EXCHANGE, [route[1 : 1 + route[0]] for route in routes]),
        Column(columns.REDELIVERED, array("q", [message.redelivered for _, message in rows]).tobytes()),
        of_octets(columns.PROPERTIES, [message.property_octets for _, message in rows]),
    ]
    return columns.encode(len(rows), rows[0][0], rows[-1][0] + 1, found)


def of_octets(number: int, values: list[bytes]) -> Column:
    return Column(number, array("i", accumulate(map(len, values), initial=0)).tobytes(), b"".join(values))
