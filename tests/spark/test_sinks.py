"""Writes: columns to messages, confirms, and transactions that come once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flintmq.client import Channel, Connection

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


def relay(
    spark: Any, uri: str, source: str, out: str, mode: str, checkpoint: Path, fail_at: int | None = None
) -> None:
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
    writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()


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


def test_rows_that_go_nowhere_are_told(spark: Any, uri: str) -> None:
    frame = spark.range(3).selectExpr("CAST(id AS STRING) AS value")
    with pytest.raises(Exception, match="went to no queue"):
        frame.write.format("amqp").options(uri=uri, queue="not-there").mode("append").save()
