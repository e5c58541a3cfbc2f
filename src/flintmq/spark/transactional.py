"""The mode `transactional`: every row once, by the distributed transactions of the broker.

    executor   dtx start, publish ..., dtx end, prepare      a branch or more for each task: safe, not visible
    driver     dtx.commit, all branches at once, with a marker: (query, batch)
    driver     dtx.rollback of branches that lost: of attempts that Spark gave up, of drivers that died

The commit and the marker are one record of the journal. So when Spark runs a batch again, because the
driver died before it noted that the batch is done, the marker says that it was, and nothing is published.

    branch     format | global id: query 16 octets, batch 8 | branch id: partition 4, attempt 4, chance 8
"""

from __future__ import annotations

import logging
import struct
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from flintmq.client import Channel, Connection
from flintmq.client.dtx import Xid
from flintmq.client.errors import ClientError, ServiceError
from flintmq.client.sync_dtx import Branches
from flintmq.clock import Clock
from flintmq.spark.connections import close_quietly, fault, open_connection, pooled
from flintmq.spark.errors import AmqpError
from flintmq.spark.options import WriteOptions
from flintmq.spark.rows import RowReader, Run, publish
from flintmq.wire.tables import FieldTable, FieldValue

log = logging.getLogger("flintmq.spark")

# "FMQS", so that our branches are known among others in dtx.list.
FORMAT = 0x464D5153
_BATCH = struct.Struct(">Q")
_TASK = struct.Struct(">IIQ")
# The xids of a commit travel in one frame of 131,072 octets, each as some 100 of them.
BRANCHES_MAX = 1000
# A broker lets a branch have a million messages and a gigabyte, unless its settings say otherwise.
BRANCH_ROWS_MAX = 500_000
BRANCH_OCTETS_MAX = 268_435_456
ANSWER_S = 120.0


@dataclass
class Staged(WriterCommitMessage):  # type: ignore[misc]
    """What a task has prepared: its branches, none if there was nothing to write."""

    query: str
    rows: int
    xids: list[str]


class Branch:
    """One branch, on a channel and a connection of its own: a lost connection must not be opened again, as
    what is published after it would be outside of the branch."""

    def __init__(self, options: WriteOptions, xid: Xid) -> None:
        self.options = options
        self.xid = xid
        settings = replace(options.settings, recovery=None)
        self.connection: Connection = open_connection(settings, options.retry_timeout_s)
        self.channel: Channel = self.connection.channel()
        self.branches = Branches(self.channel)

    def begin(self) -> None:
        announced = self.connection.server_properties.get("capabilities")
        if not isinstance(announced, dict) or not announced.get("flintmq.dtx"):
            raise AmqpError(
                "The mode 'transactional' needs a FlintMQ broker, which has distributed transactions; with "
                "this one use the mode 'confirm', at least once."
            )
        if self.options.queue is not None:
            # Messages of a branch are routed when it is committed, and nobody hears then of one that is lost.
            with self.connection.channel() as other:
                other.queue(self.options.queue, passive=True)
        self.branches.start(self.xid)

    def prepare(self) -> None:
        self.branches.end(self.xid)
        self.branches.prepare(self.xid)

    def close(self) -> None:
        close_quietly(self.connection)


class Stage:
    """The branches of one task: one, or as many as its rows need."""

    def __init__(self, options: WriteOptions, global_id: bytes, partition: int, attempt: int) -> None:
        self.options = options
        self.global_id = global_id
        self.partition = partition
        self.attempt = attempt
        self.branch: Branch | None = None
        self.rows = 0
        self.octets = 0
        self.xids: list[str] = []

    def publish(self, run: Run) -> int:
        if self.branch is None:
            chance = Clock().random.getrandbits(64)
            branch_id = _TASK.pack(self.partition, self.attempt, chance)
            self.branch = Branch(self.options, Xid(self.global_id, branch_id, FORMAT))
            self.branch.begin()
        published = publish(self.branch.channel, run, self.options, wait=False)
        self.rows += published
        self.octets += sum(map(len, run.bodies))
        if self.rows >= BRANCH_ROWS_MAX or self.octets >= BRANCH_OCTETS_MAX:
            self.prepare()
        return published

    def prepare(self) -> None:
        if self.branch is not None:
            self.branch.prepare()
            self.xids.append(str(self.branch.xid))
            self.close()

    def close(self) -> None:
        if self.branch is not None:
            self.branch.close()
        self.branch, self.rows, self.octets = None, 0, 0


def stage(
    options: WriteOptions, batches: Iterable[Any], query: str, global_id: bytes, partition: int, attempt: int
) -> Staged:
    """Publishes the rows of a task in branches, and prepares them."""
    reader = RowReader(options)
    staged = Stage(options, global_id, partition, attempt)
    rows = 0
    try:
        for batch in batches:
            rows += sum(staged.publish(run) for run in reader.runs(batch) if run.bodies)
        staged.prepare()
        return Staged(query, rows, staged.xids)
    except ClientError as error:
        raise fault("Publishing in a transaction", options.settings, error) from None
    finally:
        staged.close()


def request(options: WriteOptions, service: str, arguments: FieldTable) -> FieldTable:
    """Asks, and asks again on a new connection: these services may be asked twice."""
    try:
        connection = pooled(options.settings, options.retry_timeout_s)
        return connection.request(service, arguments, timeout_s=ANSWER_S).results
    except ClientError as error:
        raise fault(f"Ending a transaction ({service})", options.settings, error) from None


def staged_of(messages: Iterable[WriterCommitMessage | None]) -> list[Staged]:
    return [message for message in messages if isinstance(message, Staged)]


def xids_of(messages: Iterable[Staged]) -> list[FieldValue]:
    found: list[FieldValue] = [xid for message in messages for xid in message.xids]
    if len(found) > BRANCHES_MAX:
        raise AmqpError(
            f"The rows were staged in {len(found)} branches, and a transaction has at most {BRANCHES_MAX}; "
            "coalesce the data frame to fewer partitions, or write less at a time."
        )
    return found


def roll_back(options: WriteOptions, xids: list[FieldValue]) -> None:
    """Those that lost. Not worth failing for: they are found again after the next batch."""
    if not xids:
        return
    try:
        request(options, "dtx.rollback", {"xids": xids})
    except AmqpError as error:
        log.warning("branches are left behind, and rolled back later: %s", error)


def losers(options: WriteOptions, prefix: str, batch_max: int) -> list[FieldValue]:
    """Prepared branches of a query, of batches up to this one: what is left after a commit has lost."""
    found: list[FieldValue] = []
    try:
        rows = request(options, "dtx.list", {"prefix": prefix, "limit": BRANCHES_MAX})["rows"]
    except (AmqpError, ServiceError) as error:
        log.warning("branches are not listed: %s", error)
        return found
    for row in rows if isinstance(rows, list) else []:
        xid = row.get("xid") if isinstance(row, dict) else None
        if isinstance(xid, str) and isinstance(row, dict) and row.get("state") == "prepared":
            batch = int(xid.split(":")[1][32:] or "0", 16)
            if batch <= batch_max:
                found.append(xid)
    return found


class TransactionalStreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    def __init__(self, options: WriteOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty("sql.streaming.queryId")
        batch = None if context is None else context.getLocalProperty("streaming.sql.batchId")
        if context is None or query is None or batch is None:
            raise AmqpError("The mode 'transactional' does not know its query here; write with writeStream.")
        if done_up_to(self.options, query) >= int(batch):
            for _ in iterator:
                pass  # it was committed by a driver that died before it could say so
            return Staged(query, 0, [])
        global_id = uuid.UUID(query).bytes + _BATCH.pack(int(batch))
        return stage(
            self.options,
            iterator,
            query,
            global_id,
            context.partitionId(),
            context.taskAttemptId() & 0xFFFFFFFF,
        )

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        staged = staged_of(messages)
        if not staged:
            return
        query = staged[0].query
        arguments: FieldTable = {"xids": xids_of(staged), "marker": query, "marker-number": batchId}
        request(self.options, "dtx.commit", arguments)
        prefix = f"{FORMAT}:{uuid.UUID(query).hex}"
        roll_back(self.options, losers(self.options, prefix, batchId))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        roll_back(self.options, xids_of(staged_of(messages)))


def done_up_to(options: WriteOptions, query: str) -> int:
    """The last batch of the query that is committed; -1 if there is none."""
    number = request(options, "dtx.marker", {"marker": query}).get("marker-number")
    return number if isinstance(number, int) else -1


class TransactionalBatchWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """A batch write: all rows of the job, or none."""

    def __init__(self, options: WriteOptions) -> None:
        self.options = options
        self.job = uuid.UUID(int=Clock().random.getrandbits(128))

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        attempt = 0 if context is None else context.taskAttemptId() & 0xFFFFFFFF
        return stage(self.options, iterator, str(self.job), self.job.bytes, partition, attempt)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        xids = xids_of(staged_of(messages))
        if xids:
            marker: FieldTable = {"marker": str(self.job), "marker-number": 0}
            request(self.options, "dtx.commit", {"xids": xids, **marker})
            roll_back(self.options, losers(self.options, f"{FORMAT}:{self.job.hex}", 0))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        roll_back(self.options, xids_of(staged_of(messages)))
