"""Writes: columns to messages, confirms, and transactions that come once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from spark_queries import run_to_end

from flintmq.client import Channel, Connection
from flintmq.spark import transactional
from flintmq.spark.options import WriteOptions

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
    assert (staged.rows, len(staged.xids)) == (56, 3)
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
    newest = max(int(path.name) for path in (tmp_path / "commits").iterdir() if path.name.isdigit())
    for name in (f"{newest}", f".{newest}.crc"):
        (tmp_path / "commits" / name).unlink(missing_ok=True)
    fill(stream, 60, 70)
    relay(spark, uri, stream, out, "transactional", tmp_path)
    assert sorted(drain(out)) == list(range(60, 70))
    assert connection.request("dtx.list").results["rows"] == []


@pytest.mark.parametrize(
    ("mode", "said"),
    [("confirm", "there is no queue 'not-there'; declare it"), ("transactional", "no queue 'not-there'")],
)
def test_rows_that_go_nowhere_are_told(spark: Any, uri: str, mode: str, said: str) -> None:
    frame = spark.range(3).selectExpr("CAST(id AS STRING) AS value")
    with pytest.raises(Exception, match=said):
        frame.write.format("amqp").options(uri=uri, queue="not-there", mode=mode).mode("append").save()
