"""df.write and df.writeStream to `amqp`: the mode `confirm`, and which writer a write gets.

Confirm: each task publishes and waits until the broker has confirmed every message. At least once, with any
broker: a task that is run again publishes again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from flintmq.client.core.errors import ClientError, PublishFailed
from flintmq.spark.connections import ended, fault, forget, pooled, sentence
from flintmq.spark.errors import AmqpError, BadOption
from flintmq.spark.options import WriteOptions
from flintmq.spark.write.figures import note, total, unrouted_by
from flintmq.spark.write.rows import RowReader, check_columns, in_order, publish
from flintmq.spark.write.transactional import TransactionalBatchWriter, TransactionalStreamWriter


@dataclass
class Published(WriterCommitMessage):  # type: ignore[misc]
    rows: int
    unrouted: int = 0
    query: str = ""


def batch_writer(schema: StructType, given: Mapping[str, str], overwrite: bool) -> Any:
    options = _options(schema, given)
    if overwrite:
        raise BadOption("Messages cannot be overwritten; use mode('append').")
    return TransactionalBatchWriter(options) if options.transactional else ConfirmBatchWriter(options)


def stream_writer(schema: StructType, given: Mapping[str, str]) -> Any:
    options = _options(schema, given)
    return TransactionalStreamWriter(options) if options.transactional else ConfirmStreamWriter(options)


def _options(schema: StructType, given: Mapping[str, str]) -> WriteOptions:
    options = WriteOptions.of(given)
    check_columns(schema, options)
    return options


def write_confirmed(options: WriteOptions, batches: Iterator[Any]) -> Published:
    """Publishes all rows of a task, and returns when they are safe."""
    rows = unrouted = 0
    reader = RowReader(options)
    try:
        connection = pooled(options.settings, options.retry_timeout_s)
        with connection.channel(confirm=True) as channel:
            for batch in in_order(batches, options):
                for run in reader.runs(batch):
                    rows += publish(channel, run, options, wait=False)
            channel.wait_for_confirms(options.confirm_timeout_s)
            if rows and not options.mandatory:
                unrouted = unrouted_by(connection, channel)
    except PublishFailed as failure:
        raise AmqpError(refused(failure, options)) from None
    except ClientError as error:
        forget(options.settings)
        raise fault("Publishing", options.settings, error) from None
    context = TaskContext.get()
    query = None if context is None else context.getLocalProperty("sql.streaming.queryId")
    return Published(rows, unrouted, query or "")


def note_published(options: WriteOptions, messages: Iterable[WriterCommitMessage | None]) -> None:
    """Every row was safe when its task ended; what went nowhere is told."""
    found = [message for message in messages if isinstance(message, Published)]
    query = next((message.query for message in found if message.query), "a batch write")
    note(options, query, *total((message.rows, message.unrouted) for message in found))


def refused(failure: PublishFailed, options: WriteOptions) -> str:
    cause = failure.__cause__
    if isinstance(cause, ClientError):  # the channel was closed: its reason is the row's or the exchange's
        return sentence("Publishing", options.settings, cause)
    if failure.returned:
        first = failure.returned[0]
        if not first.exchange:
            return (
                f"Publishing: {len(failure.returned_numbers)} rows went to no queue: there is no queue "
                f"{first.routing_key!r}; declare it, or set mandatory to false to have such rows dropped."
            )
        return (
            f"Publishing: {len(failure.returned_numbers)} rows went to no queue, the first to exchange "
            f"{first.exchange!r} with routing key {first.routing_key!r}; bind a queue, or set mandatory to "
            "false to have such rows dropped."
        )
    if failure.nacked and not failure.unknown:
        return (
            f"Publishing: {len(failure.nacked)} rows were refused by a queue that is full; make room in it, "
            "or raise its limit, and write again. The other rows are there, and come again with them."
        )
    return f"Publishing: {ended(failure)}"


class ConfirmBatchWriter(DataSourceArrowWriter):  # type: ignore[misc]
    def __init__(self, options: WriteOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return write_confirmed(self.options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        note_published(self.options, messages)


class ConfirmStreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    def __init__(self, options: WriteOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return write_confirmed(self.options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        note_published(self.options, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """What was published cannot be taken back; the batch is tried again whole."""
