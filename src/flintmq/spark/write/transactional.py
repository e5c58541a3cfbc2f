"""The mode `transactional`: every row once, by the distributed transactions of the broker.

    executor   dtx start, publish ..., dtx end, prepare      a branch or more for each task: safe, not visible
    driver     dtx.commit, all branches at once, with a marker: query, batch, and a note of what the batch is
    driver     dtx.rollback of branches that lost: of attempts that Spark gave up, of drivers that died

The commit and the marker are one record of the journal. So when Spark runs a batch again, because the
driver died before it noted that the batch is done, the marker says that it was, and nothing is published.
The note says whether it is that batch at all (batch_identity.py): where a checkpoint was restored, copied or
cut short, another one may have its number, and then the query ends and says so.

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
from flintmq.client.core.dtx import Xid
from flintmq.client.core.errors import ClientError, ServiceError
from flintmq.client.core.settings import Settings
from flintmq.client.sync.dtx import Branches
from flintmq.clock import Clock
from flintmq.spark.connections import close_quietly, fault, open_connection, pooled
from flintmq.spark.errors import AmqpError, AmqpRefused
from flintmq.spark.options import WriteOptions
from flintmq.spark.write import figures
from flintmq.spark.write.batch_identity import Note, RowDigest, note_of
from flintmq.spark.write.rows import RowReader, Run, in_order, publish
from flintmq.wire import amqp
from flintmq.wire.tables import FieldTable, FieldValue

log = logging.getLogger("flintmq.spark")

# "FMQS", so that our branches are known among others in dtx.list.
FORMAT = 0x464D5153
_BATCH = struct.Struct(">Q")
_TASK = struct.Struct(">IIQ")
# The xids of a commit travel in one frame of 131,072 octets, each as some 100 of them.
BRANCHES_MAX = 1000
# A broker lets a branch have a million messages and a gigabyte, unless its settings say otherwise. A branch
# with less than this takes a run of at most as much again.
BRANCH_ROWS_MAX = 500_000
BRANCH_OCTETS_MAX = 268_435_456
ANSWER_S = 120.0
# For a commit whose rows are waited for: 2 million take some 10 s.
WAIT_S = 3600.0
# A job is over in that time, and whoever asks about it is too.
JOB_KEEP_S = 86_400
# No batch takes as long. One that did would fail to commit, and be run again.
OLD_S = 7 * 86_400
LOOK_S = 3600


@dataclass
class Staged(WriterCommitMessage):  # type: ignore[misc]
    """What a task has prepared: its branches, none if there was nothing to write."""

    query: str
    rows: RowDigest
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

    def __init__(
        self, options: WriteOptions, global_id: bytes, partition: int, attempt: int, is_digested: bool
    ) -> None:
        self.options = options
        self.digest = RowDigest()
        self.is_digested = is_digested
        self.global_id = global_id
        self.partition = partition
        self.attempt = attempt
        self.branch: Branch | None = None
        self.rows = 0
        self.octets = 0
        self.xids: list[str] = []

    def publish(self, run: Run) -> None:
        """The rows of a task that are sorted come as one run, however many they are."""
        for piece in run.pieces(BRANCH_ROWS_MAX, BRANCH_OCTETS_MAX):
            self._publish(piece)

    def _publish(self, run: Run) -> None:
        if self.branch is None:
            chance = Clock().random.getrandbits(64)
            branch_id = _TASK.pack(self.partition, self.attempt, chance)
            self.branch = Branch(self.options, Xid(self.global_id, branch_id, FORMAT))
            self.branch.begin()
        published = publish(self.branch.channel, run, self.options, wait=False)
        self.rows += published
        self.octets += sum(map(len, run.bodies))
        if self.is_digested:
            self.digest.add(run)
        else:
            self.digest.count += published
        if self.rows >= BRANCH_ROWS_MAX or self.octets >= BRANCH_OCTETS_MAX:
            self.prepare()

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
    options: WriteOptions,
    batches: Iterable[Any],
    query: str,
    global_id: bytes,
    partition: int,
    attempt: int,
    is_digested: bool = True,
) -> Staged:
    """Publishes the rows of a task in branches, and prepares them."""
    reader = RowReader(options)
    staged = Stage(options, global_id, partition, attempt, is_digested)
    try:
        for batch in in_order(batches, options):
            for run in reader.runs(batch):
                if run.bodies:
                    staged.publish(run)
        staged.prepare()
        return Staged(query, staged.digest, staged.xids)
    except ClientError as error:
        # The broker is in trouble, or away: what was prepared is found by whoever commits or gives up.
        raise fault("Publishing in a transaction", options.settings, error) from None
    except Exception:
        staged.close()
        roll_back(options, list(staged.xids))
        raise
    finally:
        staged.close()


# What each of the services is asked for, as an error has it.
_DOING = {
    "dtx.commit": "Committing",
    "dtx.rollback": "Rolling back",
    "dtx.marker": "Asking which batch was committed last",
    "dtx.list": "Looking for branches that were left",
}


def request(options: WriteOptions, service: str, arguments: FieldTable) -> FieldTable:
    """Asks, and asks again on a new connection: these services may be asked twice."""
    timeout_s = WAIT_S if arguments.get("wait") else ANSWER_S
    try:
        connection = pooled(options.settings, options.retry_timeout_s)
        return connection.request(service, arguments, timeout_s=timeout_s).results
    except ServiceError as error:
        if error.code not in (amqp.NO_ROUTE, amqp.RESOURCE_ERROR) or service != "dtx.commit":
            raise fault(_DOING[service], options.settings, error) from None
        kind = AmqpRefused if error.code == amqp.NO_ROUTE else AmqpError  # room may be made by whoever reads
        raise kind(f"Committing: {refusal(error)}") from None
    except ClientError as error:
        raise fault(_DOING[service], options.settings, error) from None


def refusal(error: ServiceError) -> str:
    """Why nothing was committed, and what to do about it."""
    why = error.text.partition("dtx.commit: ")[2] or error.text.partition(" - ")[2] or error.text
    if error.code == amqp.NO_ROUTE:
        advice = "declare and bind it, or set mandatory to false to have such rows dropped"
    elif "has no room" in error.text:
        advice = (
            "make room in it, raise its limit, write less at a time, or set mandatory to false to have rows "
            "dropped that it does not take"
        )
    else:
        return f"{why.rstrip('.')}. Nothing of the batch is visible."
    return f"{why}; {advice}. Nothing of the batch is visible: it is written when the query is started again."


def staged_of(messages: Iterable[WriterCommitMessage | None]) -> list[Staged]:
    return [message for message in messages if isinstance(message, Staged)]


def commit_rows(options: WriteOptions, query: str, rows: int, arguments: FieldTable) -> FieldTable:
    """Commits, and tells what is known to have gone nowhere."""
    more: FieldTable = {"mandatory": options.mandatory, "wait": options.wait_for_rows}
    told = request(options, "dtx.commit", {**arguments, **more})
    unrouted, refused = (
        count if isinstance(count, int) else 0 for count in (told.get("unrouted"), told.get("refused"))
    )
    if options.mandatory and (unrouted or refused):
        raise AmqpError(
            f"Committing: rows are committed but for {unrouted} that went to no queue and {refused} that a "
            "full one did not take, though there was room a moment ago; write these again."
        )
    if not told.get("already"):
        figures.note(options, query, rows, unrouted, refused)
    return told


def xids_of(messages: Iterable[Staged]) -> list[FieldValue]:
    found: list[FieldValue] = [xid for message in messages for xid in message.xids]
    if len(found) > BRANCHES_MAX:
        raise AmqpError(
            f"The rows were staged in {len(found)} branches, and a transaction has at most {BRANCHES_MAX}; "
            "coalesce the data frame to fewer partitions, or write less at a time."
        )
    return found


def prepared_by(messages: Iterable[WriterCommitMessage | None]) -> list[FieldValue]:
    """The branches of these tasks, be they more than one commit takes."""
    return [xid for message in staged_of(messages) for xid in message.xids]


def roll_back(options: WriteOptions, xids: list[FieldValue]) -> None:
    """Those that lost. Not worth failing for: they are found again after the next batch."""
    try:
        for first in range(0, len(xids), BRANCHES_MAX):
            request(options, "dtx.rollback", {"xids": xids[first : first + BRANCHES_MAX]})
    except AmqpError as error:
        log.warning("branches are left behind, and rolled back later: %s", error)


def prepared_branches(options: WriteOptions, prefix: str) -> list[tuple[str, int]]:
    """Prepared branches whose xid begins so, and since when they are prepared, in milliseconds of 1970."""
    tables: list[FieldTable] = []
    page: FieldTable = {"prefix": prefix, "limit": BRANCHES_MAX}
    try:
        while page:
            results = request(options, "dtx.list", page)
            rows, after = results["rows"], results.get("next")
            tables += [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
            page = {**page, "after": after} if after else {}
    except AmqpError as error:
        log.warning("branches are not listed: %s", error)
        return []
    prepared = [(row["xid"], row["since-ms"]) for row in tables if row.get("state") == "prepared"]
    return [(xid, ms) for xid, ms in prepared if isinstance(xid, str) and isinstance(ms, int)]


def losers(options: WriteOptions, query: uuid.UUID, batch_max: int) -> list[FieldValue]:
    """Prepared branches of a query, of batches up to this one: what is left after a commit has lost."""
    branches = prepared_branches(options, f"{FORMAT}:{query.hex}")
    return [xid for xid, _ in branches if int(xid.split(":")[1][32:] or "0", 16) <= batch_max]


# When this process has last looked for branches that nobody will ask for.
_looked_s: dict[Settings, float] = {}


def roll_back_old(options: WriteOptions) -> None:
    """Takes back, now and then, what was prepared long ago, by whichever query.

    A branch is of use until its batch is committed or given up. One that is older than any batch is of a task
    that came to its end after its batch was given up, and whose query was not started again.
    """
    clock = Clock()
    looked_s = _looked_s.get(options.settings)
    if looked_s is not None and clock.monotonic_s() - looked_s < LOOK_S:
        return
    _looked_s[options.settings] = clock.monotonic_s()
    before_ms = clock.wall_ms() - 1000 * OLD_S
    old: list[FieldValue] = [
        xid for xid, since_ms in prepared_branches(options, f"{FORMAT}:") if since_ms < before_ms
    ]
    if old:
        log.warning(
            "%d branches were prepared more than %d days ago: rolling back", len(old), OLD_S // 86_400
        )
        roll_back(options, old)


class TransactionalStreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    def __init__(self, options: WriteOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty("sql.streaming.queryId")
        batch = None if context is None else context.getLocalProperty("streaming.sql.batchId")
        if context is None or query is None or batch is None:
            raise AmqpError("The mode 'transactional' does not know its query here; write with writeStream.")
        global_id = uuid.UUID(query).bytes + _BATCH.pack(int(batch))
        attempt = context.taskAttemptId() & 0xFFFFFFFF
        staged = stage(self.options, iterator, query, global_id, context.partitionId(), attempt)
        return without_late(self.options, staged, query, int(batch))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        staged = staged_of(messages)
        if not staged:
            return
        query = staged[0].query
        xids = xids_of(staged)
        rows = RowDigest()
        for each in staged:
            rows.merge(each.rows)
        note = note_of(self.options, query, batchId, rows, len(xids))
        arguments: FieldTable = {"marker": query, "marker-number": batchId, "marker-note": note.text()}
        known = Known.of(request(self.options, "dtx.marker", {"marker": query}))
        if known is not None and batchId <= known.number:
            if self.is_written(known, batchId, note, rows.count):
                roll_back(self.options, xids)
                return
            arguments["marker-reset"] = True
        elif known is not None and known.note is not None:
            arguments["marker-note"] = note.following(known.number, known.note).text()
        told = commit_rows(self.options, query, rows.count, {"xids": xids, **arguments})
        if told.get("already") and told.get("marker-note") != arguments["marker-note"]:
            raise AmqpError(
                f"Committing: batch {batchId} of query {query} was committed by another run of the query at "
                "this very moment; do not run two queries with one checkpoint, or with copies of it."
            )
        log.info(
            "batch %d of query %s: %d rows, %d octets, %d branches",
            batchId,
            query,
            rows.count,
            rows.octets,
            len(xids),
        )
        roll_back(self.options, losers(self.options, uuid.UUID(query), batchId))
        roll_back_old(self.options)

    def is_written(self, known: Known, batch: int, note: Note, count: int) -> bool:
        """Whether the rows of a batch whose number is known are there; raises if that cannot be said."""
        if not count:
            return True
        if known.is_same(batch, note):
            log.warning(
                "batch %d was committed before: its %d rows are there, and are not written again",
                batch,
                count,
            )
            return True
        if self.options.known_batches == "fail":
            raise AmqpRefused(known.conflict(batch, note, count))
        is_skipped = self.options.known_batches == "skip"
        log.warning(
            "batch %d was committed before with other rows; knownBatches is %r: %d rows are %s",
            batch,
            self.options.known_batches,
            count,
            "left out" if is_skipped else "written",
        )
        return is_skipped

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        roll_back(self.options, prepared_by(messages))


@dataclass(frozen=True)
class Known:
    """The last batch of a query that the broker has committed."""

    number: int
    note: Note | None

    @classmethod
    def of(cls, results: FieldTable) -> Known | None:
        number = results.get("marker-number")
        return cls(number, Note.of(str(results.get("marker-note", "")))) if isinstance(number, int) else None

    def is_same(self, batch: int, note: Note) -> bool:
        """Whether this very batch was committed; a marker of an older version has no note: it is believed."""
        if self.note is None or batch == self.number:
            return batch == self.number and (self.note is None or self.note.is_same(note))
        earlier = self.note.before(batch)
        return earlier is not None and earlier.is_same(note)

    def conflict(self, batch: int, note: Note, count: int) -> str:
        where = "into another exchange or queue" if self._is_elsewhere(note) else "with other rows"
        known = f"the broker has committed batch {batch} of this query before, {where}"
        if batch < self.number:
            known = f"the broker has committed this query up to batch {self.number} before"
        ends = self.note.places() if self.note is not None else ""
        return (
            f"Batch {batch} has {count} rows, but {known}: the checkpoint was restored from a backup, copied "
            "or cut short, or the sink was changed. Nothing was written."
            f"{f' The last commit had read the sources up to {ends}.' if ends else ''} Go on with a new "
            "checkpoint, and startingOffsets where the sink is complete; or set knownBatches to 'write' to "
            "write this batch and those after it, rows that are there already too; or, if the rows of this "
            "batch are there, as the query computes others each time, knownBatches to 'skip' for one start."
        )

    def _is_elsewhere(self, note: Note) -> bool:
        return self.note is not None and self.note.sink != note.sink


def without_late(options: WriteOptions, staged: Staged, query: str, batch: int) -> Staged:
    """Rolls back branches that were prepared when their batch was committed already: nobody else would.

    Those that are prepared before the commit are found by whoever commits. Those of a streaming batch that
    was given up are found by the next run of the query, which has the same batch to commit.
    """
    if staged.xids and options.known_batches != "write":
        known = Known.of(request(options, "dtx.marker", {"marker": query}))
        if known is not None and batch <= known.number:
            roll_back(options, list(staged.xids))
            staged.xids = []
    return staged


class TransactionalBatchWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """A batch write: all rows of the job, or none."""

    def __init__(self, options: WriteOptions) -> None:
        self.options = options
        self.job = uuid.UUID(int=Clock().random.getrandbits(128))

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        attempt = 0 if context is None else context.taskAttemptId() & 0xFFFFFFFF
        job = str(self.job)
        staged = stage(self.options, iterator, job, self.job.bytes, partition, attempt, is_digested=False)
        return without_late(self.options, staged, job, 0)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        staged = staged_of(messages)
        xids = xids_of(staged)
        if xids:
            rows = sum(each.rows.count for each in staged)
            commit_rows(self.options, str(self.job), rows, {"xids": xids, **self.marker()})
            roll_back(self.options, losers(self.options, self.job, 0))
            roll_back_old(self.options)

    def marker(self) -> FieldTable:
        """Tells tasks that come to their end later that the job is over: they roll back by themselves."""
        return {"marker": str(self.job), "marker-number": 0, "marker-keep-s": JOB_KEEP_S}

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Also what tasks have prepared that told nothing, as they were killed: nobody else looks for it.

        The marker goes first: a task either finds it after it has prepared, or is found here.
        """
        try:
            request(self.options, "dtx.commit", {"xids": [], **self.marker()})
        except AmqpError as error:
            log.warning("tasks that still run are not told that the job is over: %s", error)
        roll_back(self.options, prepared_by(messages))
        roll_back(self.options, losers(self.options, self.job, 0))
