"""Writes: columns to messages, confirms, and transactions that come once."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from spark_queries import run_to_end

from flintmq.client import Channel, Connection
from flintmq.spark.errors import AmqpError
from flintmq.spark.options import WriteOptions
from flintmq.spark.write import figures, transactional

Drain = Callable[[str], list[int]]


def test_columns_become_messages(spark: Any, uri: str, channel: Channel, out: str) -> None:
    channel.exchange("bars", "topic", durable=True)
    channel.queue(out, passive=True).bind("bars", "#")
    frame = spark.sql(
        "SELECT 'hello' AS value, 'bars' AS exchange, 'eur.abc' AS routing_key, "
        "'text/plain' AS content_type, "
        "'m1' AS message_id, 4 AS priority, map('symbol', 'ABC') AS headers, "
        "timestamp'2026-01-02 03:04:05' AS timestamp"
    )
    frame.write.format("amqp").options(uri=uri).mode("append").save()
    message = channel.get(out, no_ack=True)
    assert message is not None
    assert (message.body, message.exchange, message.routing_key) == (b"hello", "bars", "eur.abc")
    found = message.properties
    assert (found.content_type, found.message_id, found.priority, found.delivery_mode) == (
        "text/plain",
        "m1",
        4,
        2,
    )
    assert found.headers == {"symbol": "ABC"}
    assert found.timestamp == 1767323045


def test_rows_to_several_exchanges_keep_their_order(spark: Any, uri: str, channel: Channel, out: str) -> None:
    for exchange in ("left", "right"):
        channel.exchange(exchange, "fanout", durable=True)
        channel.queue(out, passive=True).bind(exchange)
    frame = spark.range(20).selectExpr(
        "CAST(id AS STRING) AS value", "IF(id % 4 < 2, 'left', 'right') AS exchange"
    )
    frame.coalesce(1).write.format("amqp").options(uri=uri).mode("append").save()
    found = []
    while (message := channel.get(out, no_ack=True)) is not None:
        found.append((int(message.body), message.exchange))
    assert found == [(number, "left" if number % 4 < 2 else "right") for number in range(20)]


@pytest.mark.parametrize("mode", ["confirm", "transactional"])
def test_a_batch_write(spark: Any, uri: str, out: str, drain: Drain, mode: str) -> None:
    frame = spark.range(0, 1000, 1, 3).selectExpr("CAST(id AS STRING) AS value")
    frame.write.format("amqp").options(uri=uri, queue=out, mode=mode).mode("append").save()
    assert sorted(drain(out)) == list(range(1000))


def test_a_task_uses_as_many_branches_as_it_needs(
    uri: str, connection: Connection, out: str, drain: Drain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its own functions: half a million rows are too many for a test."""
    monkeypatch.setattr(transactional, "BRANCH_ROWS_MAX", 20)
    bodies = [[b"%d" % (first + row) for row in range(8)] for first in range(0, 56, 8)]
    batches = [pyarrow.record_batch({"value": each}) for each in bodies]
    options = WriteOptions.of({"uri": uri, "queue": out, "mode": "transactional"})
    staged = transactional.stage(options, batches, "query", b"global", 0, 0)
    assert (staged.rows.count, len(staged.xids)) == (56, 3)
    assert drain(out) == []
    connection.request("dtx.commit", {"xids": list(staged.xids)})
    assert sorted(drain(out)) == list(range(56))


def relay(spark: Any, uri: str, source: str, out: str, mode: str, checkpoint: Path) -> None:
    """Reads all that is there and writes it out, in batches of 40."""
    frame = (
        spark.readStream.format("amqp")
        .options(
            uri=uri, queue=source, startingOffsets="earliest", maxOffsetsPerTrigger="40", minPartitions="2"
        )
        .load()
        .select("value")
    )
    writer = frame.writeStream.format("amqp").options(uri=uri, queue=out, mode=mode)
    run_to_end(writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True))


@pytest.mark.parametrize("mode", ["confirm", "transactional"])
def test_a_stream_write(
    spark: Any, uri: str, stream: str, out: str, fill: Any, drain: Drain, tmp_path: Path, mode: str
) -> None:
    fill(stream, 0, 100)
    relay(spark, uri, stream, out, mode, tmp_path)
    assert sorted(drain(out)) == list(range(100))
    fill(stream, 100, 120)
    relay(spark, uri, stream, out, mode, tmp_path)
    assert sorted(drain(out)) == list(range(100, 120))


def test_a_batch_that_was_committed_is_not_written_again(
    spark: Any,
    uri: str,
    connection: Connection,
    stream: str,
    out: str,
    fill: Any,
    drain: Drain,
    tmp_path: Path,
) -> None:
    """As if the driver had died after the sink's commit, before Spark noted it."""
    fill(stream, 0, 60)
    relay(spark, uri, stream, out, "transactional", tmp_path)
    assert sorted(drain(out)) == list(range(60))
    forget_last(tmp_path)
    fill(stream, 60, 70)
    relay(spark, uri, stream, out, "transactional", tmp_path)
    assert sorted(drain(out)) == list(range(60, 70))
    assert connection.request("dtx.list").results["rows"] == []


def forget_last(checkpoint: Path) -> None:
    """As if the driver had died after the sink's commit, before Spark noted it."""
    newest = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit())
    for name in (f"{newest}", f".{newest}.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)


def test_a_batch_that_computes_other_rows_each_time_is_known_by_its_plan(
    spark: Any, uri: str, stream: str, out: str, fill: Any, channel: Channel, tmp_path: Path
) -> None:
    fill(stream, 0, 30)

    def run(**options: str) -> int:
        reader = spark.readStream.format("amqp").options(uri=uri, queue=stream, startingOffsets="earliest")
        frame = reader.load().selectExpr("uuid() AS value")
        writer = frame.writeStream.format("amqp").options(uri=uri, queue=out, mode="transactional", **options)
        run_to_end(writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True))
        return channel.queue(out, passive=True).message_count

    assert run() == 30
    forget_last(tmp_path)
    assert run() == 30


def test_a_branch_that_is_prepared_after_its_batch_was_committed_is_rolled_back(
    uri: str, connection: Connection, out: str, drain: Drain
) -> None:
    """Of a task that Spark had given up, and that came to its end all the same."""
    options = WriteOptions.of({"uri": uri, "queue": out, "mode": "transactional"})
    query = "00000000-0000-0000-0000-000000000001"

    def staged() -> transactional.Staged:
        batch = pyarrow.record_batch({"value": [b"1", b"2"]})
        found = transactional.stage(options, [batch], query, b"global", 0, 0)
        return transactional.without_late(options, found, query, 4)

    first = staged()
    assert len(first.xids) == 1
    connection.request("dtx.commit", {"xids": list(first.xids), "marker": query, "marker-number": 4})
    late = staged()
    assert (late.xids, late.rows.count) == ([], 2)
    assert connection.request("dtx.list").results["rows"] == []
    assert drain(out) == [1, 2]
    connection.request("dtx.forget-marker", {"marker": query})


def test_a_task_that_fails_leaves_no_branch(
    uri: str, connection: Connection, out: str, drain: Drain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody would look for the branches of a batch write that failed."""
    monkeypatch.setattr(transactional, "BRANCH_ROWS_MAX", 2)
    options = WriteOptions.of({"uri": uri, "queue": out, "mode": "transactional"})
    writer = transactional.TransactionalBatchWriter(options)

    def rows() -> Iterator[Any]:
        for first in (0, 2, 4):
            yield pyarrow.record_batch({"value": [b"%d" % first, b"%d" % (first + 1)]})
        listed: Any = connection.request("dtx.list").results["rows"]
        assert len(listed) == 3, "what is to be taken back"
        raise ZeroDivisionError("a function of the user's")

    with pytest.raises(ZeroDivisionError):
        writer.write(rows())
    assert connection.request("dtx.list").results["rows"] == []
    assert drain(out) == []


def test_a_job_that_is_given_up_takes_back_what_a_killed_task_has_prepared(
    uri: str, connection: Connection, out: str, drain: Drain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark hands on what tasks have told; a process that was killed has told nothing."""
    options = WriteOptions.of({"uri": uri, "queue": out, "mode": "transactional"})
    writer = transactional.TransactionalBatchWriter(options)
    told = [writer.write(iter([pyarrow.record_batch({"value": [b"%d" % row]})])) for row in range(4)]
    listed: Any = connection.request("dtx.list").results["rows"]
    assert len(listed) == 4
    monkeypatch.setattr(transactional, "BRANCHES_MAX", 2)  # and there are more than a commit takes
    with pytest.raises(AmqpError, match="4 branches, and a transaction has at most 2"):
        writer.commit(list(told))
    writer.abort([None, *told[:3]])
    assert connection.request("dtx.list").results["rows"] == []
    assert drain(out) == []


def test_a_task_that_prepares_after_its_job_was_given_up_takes_its_branch_back(
    uri: str, connection: Connection, out: str, drain: Drain
) -> None:
    options = WriteOptions.of({"uri": uri, "queue": out, "mode": "transactional"})
    writer = transactional.TransactionalBatchWriter(options)
    late = iter([pyarrow.record_batch({"value": [b"1"]})])

    def rows() -> Iterator[Any]:
        yield next(late)
        writer.abort([None])

    told = writer.write(rows())
    assert isinstance(told, transactional.Staged)
    assert (told.xids, told.rows.count) == ([], 1)
    assert connection.request("dtx.list").results["rows"] == []
    assert drain(out) == []


def test_a_task_that_prepares_after_its_batch_was_given_up_is_taken_back_by_the_next_run(
    uri: str, connection: Connection, out: str, drain: Drain
) -> None:
    options = WriteOptions.of({"uri": uri, "queue": out, "mode": "transactional"})
    query = uuid.UUID(int=7)

    def staged(row: bytes) -> transactional.Staged:
        batch = pyarrow.record_batch({"value": [row]})
        global_id = query.bytes + (3).to_bytes(8, "big")
        found = transactional.stage(options, [batch], str(query), global_id, 0, 0)
        return transactional.without_late(options, found, str(query), 3)

    transactional.TransactionalStreamWriter(options).abort([staged(b"1")], 3)
    assert connection.request("dtx.list").results["rows"] == []
    assert staged(b"1").xids, "prepared after the end of the batch"
    transactional.TransactionalStreamWriter(options).commit([staged(b"2")], 3)
    assert connection.request("dtx.list").results["rows"] == []
    assert drain(out) == [2]
    connection.request("dtx.forget-marker", {"marker": str(query)})


def test_branches_of_queries_that_never_come_back_are_rolled_back_when_they_are_old(
    uri: str, connection: Connection, out: str, drain: Drain, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = WriteOptions.of({"uri": uri, "queue": out, "mode": "transactional"})
    gone = uuid.UUID(int=8)
    left = pyarrow.record_batch({"value": [b"1"]})
    transactional.stage(options, [left], str(gone), gone.bytes + bytes(8), 0, 0)

    def write(row: bytes) -> list[Any]:
        monkeypatch.setattr(transactional, "_looked_s", {})
        writer = transactional.TransactionalBatchWriter(options)
        writer.commit([writer.write(iter([pyarrow.record_batch({"value": [row]})]))])
        rows: Any = connection.request("dtx.list").results["rows"]
        return [row["state"] for row in rows]

    assert write(b"2") == ["prepared"], "it is young, and may be committed yet"
    monkeypatch.setattr(transactional, "OLD_S", -60)
    assert write(b"3") == []
    assert drain(out) == [2, 3]


def test_batch_writes_leave_no_marker_that_lasts(
    spark: Any, uri: str, connection: Connection, out: str
) -> None:
    frame = spark.range(3).selectExpr("CAST(id AS STRING) AS value")
    frame.write.format("amqp").options(uri=uri, queue=out, mode="transactional").mode("append").save()
    rows: Any = connection.request("dtx.markers", {"limit": 1000}).results["rows"]
    kept = {row["marker"]: row["keep-s"] for row in rows}
    assert all(not keep_s or keep_s == transactional.JOB_KEEP_S for keep_s in kept.values())
    assert transactional.JOB_KEEP_S in kept.values()


def test_maps_and_lists_in_headers(spark: Any, uri: str, channel: Channel, out: str) -> None:
    frame = spark.sql(
        "SELECT 'a' AS value, map('m', map('x', 1, 'y', 2)) AS headers UNION ALL "
        "SELECT 'b' AS value, map('m', CAST(map() AS MAP<STRING, INT>)) AS headers"
    )
    frame.coalesce(1).write.format("amqp").options(uri=uri, queue=out).mode("append").save()
    lists = spark.sql("SELECT 'c' AS value, map('l', array(map('x', array(1, 2)))) AS headers")
    lists.write.format("amqp").options(uri=uri, queue=out).mode("append").save()
    found = [channel.get(out, no_ack=True) for _ in range(3)]
    assert [message.headers for message in found if message is not None] == [
        {"m": {"x": 1, "y": 2}},
        {"m": {}},
        {"l": [{"x": [1, 2]}]},
    ]


def test_large_unsigned_headers_are_written_as_they_were_read(
    spark: Any, uri: str, channel: Channel, queue: str, out: str
) -> None:
    headers: Any = {"large": (1 << 64) - 1, "inner": {"large": 1 << 63}}
    channel.publish(b"a", routing_key=queue, headers=headers)
    sent = channel.get(queue)
    assert sent is not None
    sent.nack(requeue=True)
    frame = spark.read.format("amqp").options(uri=uri, queue=queue, columns="value,headers").load()
    frame.write.format("amqp").options(uri=uri, queue=out).mode("append").save()
    message = channel.get(out, no_ack=True)
    assert message is not None
    assert message.headers == sent.headers
    computed = frame.selectExpr(
        "value", "map('large', CAST(headers['large'].string AS DECIMAL(20, 0))) AS headers"
    )
    computed.write.format("amqp").options(uri=uri, queue=out).mode("append").save()
    message = channel.get(out, no_ack=True)
    assert message is not None
    assert message.headers == {"large": str((1 << 64) - 1)}


@pytest.mark.parametrize(
    ("mode", "said"),
    [("confirm", "there is no queue 'not-there'; declare it"), ("transactional", "no queue 'not-there'")],
)
def test_rows_that_go_nowhere_are_told(spark: Any, uri: str, mode: str, said: str) -> None:
    frame = spark.range(3).selectExpr("CAST(id AS STRING) AS value")
    with pytest.raises(Exception, match=said):
        frame.write.format("amqp").options(uri=uri, queue="not-there", mode=mode).mode("append").save()


@pytest.mark.parametrize("mode", ["confirm", "transactional"])
def test_rows_that_go_to_no_queue_are_counted(
    spark: Any, uri: str, channel: Channel, out: str, tmp_path: Path, mode: str
) -> None:
    """Of a batch write and of a stream, where nobody asked for mandatory."""
    channel.exchange("spark-some", "topic", durable=True)
    channel.queue(out, passive=True).bind("spark-some", f"{out}.kept")
    file = tmp_path / "figures" / "sink.json"
    made = "CAST(id AS STRING) AS value", f"if(id % 4 = 0, '{out}.kept', 'dropped') AS routing_key"
    given = {"uri": uri, "exchange": "spark-some", "mode": mode, "figuresFile": str(file)}
    rows = spark.range(100).repartition(2)
    rows.selectExpr(*made).write.format("amqp").options(**given).mode("append").save()
    assert figures.read(file) == figures.Figures(1, 100, 75)
    rows.write.parquet(str(tmp_path / "rows"))
    stream = spark.readStream.schema("id BIGINT").parquet(str(tmp_path / "rows")).selectExpr(*made)
    writer = stream.writeStream.format("amqp").options(**given)
    run_to_end(writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True))
    assert figures.read(file) == figures.Figures(2, 200, 150)
    channel.exchange("spark-some", passive=True).delete()
