"""Queues of FlintMQ by batch leases: at least once, and a replay reads the same rows while the lease holds.

    latestOffset   queue.lease     the messages after `start`, the same ones if it is asked again
    partitions     (nothing)       tasks know the numbers
    read           lease.read      by the executors, under the driver's epoch
    latestOffset   lease.ack       up to `start`, as Spark asks from there only when the batch is committed

A lease ends if it is not renewed in time: then its messages go back to the queue. A thread renews it, as
Spark asks the driver nothing while a batch runs.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

from pyspark.sql.types import StructType

from flintmq.client import Connection
from flintmq.client.core.errors import ClientError, RequestUnknown, ServiceError
from flintmq.spark.connections import close_quietly, open_connection, pooled, told_plainly
from flintmq.spark.errors import AmqpError, DataLost, MadeAgain, TakenOver
from flintmq.spark.feeds.batch_shares import Span
from flintmq.spark.feeds.feed import MADE_AGAIN, Feed, Task
from flintmq.spark.feeds.record_batches import BatchMaker
from flintmq.spark.feeds.stream_feed import is_another
from flintmq.spark.options import LATEST, ReadOptions
from flintmq.spark.schema import wanted_columns
from flintmq.wire import amqp
from flintmq.wire.columns import Columns
from flintmq.wire.tables import FieldTable, FieldValue

log = logging.getLogger("flintmq.spark")

# What the broker gives in one lease, however much is asked for.
LEASE_ROWS_MAX = 1_000_000
LEASE_BYTES_MAX = 268_435_456
ANSWER_S = 30.0
# When a renewal that failed is tried again.
AGAIN_S = 1.0
# A broker that was killed does not remember what it was asked. Numbers of a lease belong to its epoch and to
# one life of its queue, so asking again leases and acks the same messages. Each attempt outlives one kill.
ASKED_MAX = 5
# How the broker tells what has ended a lease. After a restart it names both.
CLAIMED, EXPIRED = "has claimed it", "has expired"
ANEW = "begin with a new checkpoint, or set failOnDataLoss to false to go on with what is in it now"


class LeaseTask(Task):
    """Numbers after start, up to and with end, of a lease."""

    def __init__(self, queue: str, start: int, end: int, consumer: str, epoch: int, identity: str) -> None:
        super().__init__(queue, start, end)
        self.consumer = consumer
        self.epoch = epoch
        self.identity = identity

    def read(self, schema: StructType, options: ReadOptions) -> Iterator[Any]:
        maker = BatchMaker(schema, self.queue)
        chosen: list[FieldValue] = [
            name for name in wanted_columns(schema) if name in ("headers", "properties")
        ]
        at = self.start
        while at < self.end:
            arguments: FieldTable = {
                "queue": self.queue,
                "consumer": self.consumer,
                "epoch": self.epoch,
                "creation-id": self.identity,
                "from": at,
                "to": self.end,
                "max-bytes": options.fetch_bytes,
                "columns": chosen,
            }
            with told_plainly(f"Reading queue {self.queue!r}", options.settings):
                connection = pooled(options.settings, options.retry_timeout_s)
                try:
                    found = Columns(connection.request("lease.read", arguments, timeout_s=ANSWER_S).body)
                except ServiceError as error:
                    if not is_another(error):
                        raise fenced(error, self.queue, self.consumer) from None
                    self.gone(at, options)
                    return
            after = found.next_offset - 1
            if after <= at or len(found) != after - at:
                raise AmqpError(
                    f"Queue {self.queue!r} gave {len(found)} of the messages {at + 1} to {self.end} of its "
                    "lease; they will be read again when the query is started again."
                )
            at = after
            yield maker.make(found)

    def gone(self, at: int, options: ReadOptions) -> None:
        what = f"Queue {self.queue!r}: {self.end - at} messages of the batch are gone: {MADE_AGAIN}"
        if options.fail_on_data_loss:
            raise DataLost(f"{what}; {ANEW}.")
        log.warning("%s; failOnDataLoss is false: they are left out", what)


def fenced(error: ServiceError, queue: str, consumer: str) -> Exception:
    """403 means that somebody else has the lease now, or nobody."""
    if error.code not in (amqp.ACCESS_REFUSED, amqp.PRECONDITION_FAILED) or "epoch" not in error.text:
        return error
    if CLAIMED in error.text and EXPIRED not in error.text:
        return TakenOver(
            f"Queue {queue!r} is not leased to this query any more: another one reads it as consumer "
            f"{consumer!r}, and what this query has not committed too; give each query a 'consumerName' of "
            "its own, and start this one again."
        )
    return AmqpError(
        f"Queue {queue!r} is not leased to this query any more: another one reads it as consumer "
        f"{consumer!r}, or this one was not heard of for the time of 'leaseTimeout'. What this query has not "
        "committed is read by the other one, or is in the queue again; give each query a 'consumerName' of "
        "its own, and start this one again."
    )


class Renewer:
    """A thread that keeps a lease alive while a batch runs.

    A connection that swallows what is sent, as behind a firewall that has forgotten it, must not cost the
    lease: a third of its time passes before it is renewed, an answer is waited for as long at the most, and
    the next try, on a new connection, follows soon.
    """

    def __init__(self, options: ReadOptions, arguments: FieldTable) -> None:
        self.options = options
        self.arguments = arguments
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._run, name="flintmq-lease", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        interval_s = wait_s = self.options.lease_timeout_s / 3
        answer_s = min(ANSWER_S, interval_s)
        connection: Connection | None = None
        while not self.over.wait(wait_s):
            wait_s = interval_s
            try:
                if connection is None or connection.is_closed:
                    connection = open_connection(self.options.settings, answer_s)
                connection.request("lease.renew", self.arguments, timeout_s=answer_s)
            except ServiceError as error:
                log.warning("a lease cannot be renewed: %s", error)  # the next call of the reader fails
                break
            except ClientError as error:
                log.warning("renewing a lease: %s", error)
                wait_s = min(AGAIN_S, interval_s / 4)
                connection = None
        if connection is not None:
            close_quietly(connection)

    def stop(self) -> None:
        self.over.set()


class LeaseFeed(Feed):
    def __init__(self, queue: str, options: ReadOptions, connection: Connection, consumer: str) -> None:
        super().__init__(queue, options)
        self.connection = connection
        self.consumer = consumer
        self.timeout_ms = int(options.lease_timeout_s * 1000)
        self.epoch: int | None = None
        self.acked = 0
        self.last = 0
        self.renewer: Renewer | None = None
        self.ready: int | None = None  # messages that wait in the queue, as of a moment ago

    def _ask(self, service: str, **arguments: FieldValue) -> FieldTable:
        given: FieldTable = {"queue": self.queue, "consumer": self.consumer}
        if self.epoch is not None:
            given.update({"epoch": self.epoch, "creation-id": self.identity})
        given.update({name.replace("_", "-"): value for name, value in arguments.items()})
        asked = 0
        while True:
            asked += 1
            try:
                return self.connection.request(service, given, timeout_s=ANSWER_S).results
            except ServiceError as error:
                if is_another(error):
                    raise MadeAgain(self.queue) from None
                raise fenced(error, self.queue, self.consumer) from None
            except RequestUnknown as error:
                if asked == ASKED_MAX:
                    raise
                log.warning("queue %r: asking for %s again: %s", self.queue, service, error.reason)

    def attach(self) -> None:
        """Claims the lease: a reader of the same name that was before is refused from now on."""
        if self.epoch is not None:
            return
        found = self._ask("queue.lease", claim=True, max_rows=0, timeout_ms=self.timeout_ms)
        self.identity = str(found.get("creation-id", ""))
        self.epoch = _number(found, "epoch")
        self._renew()
        arguments: FieldTable = {
            "queue": self.queue,
            "consumer": self.consumer,
            "epoch": self.epoch,
            "creation-id": self.identity,
            "timeout-ms": self.timeout_ms,
        }
        self.renewer = Renewer(self.options, arguments)

    def _renew(self, wait_s: float = 0.0) -> int:
        """Keeps the lease, and sees that it still is this query's; how many messages wait in the queue.

        Where none does, the broker answers when one has come, or when the time is up.
        """
        found = self._ask("lease.renew", timeout_ms=self.timeout_ms, wait_ms=int(wait_s * 1000))
        self.acked, self.last = _number(found, "acked"), _number(found, "last")
        return _number(found, "messages-ready")

    def begin(self, wanted: str | int, time_ms: int | None) -> int:
        if isinstance(wanted, int) or time_ms is not None:
            raise AmqpError(
                f"Queue {self.queue!r} is no stream: it is read from its head, so 'startingOffsets' cannot "
                f"name a place in it; leave the option out, or say {LATEST!r}."
            )
        self.attach()
        return self.acked

    def check(self, start: int, identity: str) -> int:
        self.attach()
        self.ready = self._renew()
        if identity and identity != self.identity:
            what = f"Queue {self.queue!r} is not the one that the query has read up to message {start}"
            self.lost(f"{what}: {MADE_AGAIN}", ANEW, "going on with what is in it now")
            return self.acked
        if start > self.last:
            what = (
                f"Queue {self.queue!r} knows consumer {self.consumer!r} up to message {self.last}, but the "
                f"query has read up to {start}"
            )
            self.lost(f"{what}: {MADE_AGAIN}", ANEW, "going on with what is in it now")
            return self.acked
        # Numbers of a lease that has expired are skipped: its messages are in the queue again.
        return max(start, self.acked)

    def tail(self, start: int, wait_s: float) -> int:
        """A renewal waits, not a lease, which would take the first message that comes, alone."""
        ready, self.ready = self.ready, None
        if ready is None or (wait_s > 0 and self.last + ready <= start):
            ready = self._renew(wait_s)
        return self.last + ready

    def take(self, start: int, end: int, bytes_max: int | None) -> int:
        rows_max = min(end - start, LEASE_ROWS_MAX)
        if rows_max <= 0:
            return start
        return self._lease(start, rows_max, min(bytes_max or LEASE_BYTES_MAX, LEASE_BYTES_MAX))

    def _lease(self, start: int, rows_max: int, bytes_max: int) -> int:
        found = self._ask(
            "queue.lease", start=start, max_rows=rows_max, max_bytes=bytes_max, timeout_ms=self.timeout_ms
        )
        self.last = max(self.last, _number(found, "last"))
        self.octets += _number(found, "octets")
        self.held = self.last - self.acked
        return max(start, _number(found, "last"))

    def done(self, through: int, identity: str) -> None:
        """Only numbers of this life of the queue: those of another would ack what nobody has read."""
        try:
            self.attach()
            if (not identity or identity == self.identity) and self.acked < through <= self.last:
                self._ask("lease.ack", through=through)
                self.acked = through
                self.held = self.last - self.acked
        except MadeAgain as error:
            log.warning("what was read needs no ack any more: %s", error)

    def tasks(self, spans: list[Span], identity: str) -> list[Task]:
        """Without numbers that are not held any more: a lease of an earlier process may have expired."""
        self.attach()
        assert self.epoch is not None
        if identity and identity != self.identity:
            rows = sum(span.rows for span in spans)
            what = f"Queue {self.queue!r}: a batch of {rows} messages was planned, and they are gone"
            self.lost(f"{what}: {MADE_AGAIN}", ANEW, "the batch goes on without them")
            return []
        held = [(max(span.start, self.acked), min(span.end, self.last)) for span in spans]
        return [
            LeaseTask(self.queue, start, end, self.consumer, self.epoch, self.identity)
            for start, end in held
            if start < end
        ]

    def close(self) -> None:
        if self.renewer is not None:
            self.renewer.stop()


def _number(results: FieldTable, name: str) -> int:
    value = results.get(name)
    if not isinstance(value, int):
        raise AmqpError(f"The broker's answer has no number {name!r}: is it of another version?")
    return value
