"""Streams: every row once, whatever is restarted, and within the limits that were set."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from flintmq.client import Channel
from flintmq.spark import lag, metrics


def test_the_latest_offset_of_the_first_batch_survives_its_replay(query: Any, stream: str, fill: Any) -> None:
    """Resolved anew at the restart, `latest` would skip what came between."""
    fill(stream, 0, 5)
    reading = query(queue=stream)
    assert reading.run() == []  # the place is in the checkpoint now
    fill(stream, 5, 10)
    reading.fail_at = 1
    with pytest.raises(Exception, match="told to fail"):
        reading.run()
    reading.fail_at = None
    fill(stream, 10, 12)
    assert reading.run() == [5, 6, 7, 8, 9, 10, 11]
    assert [5, 6, 7, 8, 9] in reading.batches.values()  # the batch that failed, as it was planned


def test_a_failed_first_batch_is_read_again_as_it_was(query: Any, stream: str, fill: Any) -> None:
    fill(stream, 0, 4)
    reading = query(queue=stream, startingOffsets="earliest")
    reading.fail_at = 0
    with pytest.raises(Exception, match="told to fail"):
        reading.run()
    fill(stream, 4, 6)
    reading.fail_at = None
    assert reading.run() == [0, 1, 2, 3, 4, 5]
    assert reading.batches[0] == [0, 1, 2, 3]


def test_rows_and_bytes_of_a_batch_are_limited(query: Any, channel: Channel, stream: str) -> None:
    channel.publish_many([b"%010d" % number for number in range(1000)], routing_key=stream)
    reading = query(queue=stream, startingOffsets="earliest", maxOffsetsPerTrigger="400")
    assert reading.run() == list(range(1000))
    assert [len(rows) for _, rows in sorted(reading.batches.items())] == [400, 400, 200]


def test_a_limit_of_bytes(query: Any, channel: Channel, stream: str) -> None:
    for first in range(0, 200, 20):  # one chunk of the log each: bytes are known by the chunk
        channel.publish_many([b"%01000d" % number for number in range(first, first + 20)], routing_key=stream)
    reading = query(queue=stream, startingOffsets="earliest", maxBytesPerTrigger="50k")
    assert reading.run() == list(range(200))
    assert len(reading.batches) >= 4
    assert max(len(rows) for rows in reading.batches.values()) <= 50 + 2 * 20


def test_a_batch_is_split_into_the_tasks_asked_for(spark: Any, uri: str, stream: str, fill: Any) -> None:
    fill(stream, 0, 100)
    reader = spark.read.format("amqp").options(uri=uri, queue=stream, minPartitions="4")
    frame = reader.load()
    assert frame.rdd.getNumPartitions() == 4
    assert sorted(int(bytes(row.value)) for row in frame.collect()) == list(range(100))


def test_batch_reads_by_offset_and_time(spark: Any, uri: str, stream: str, fill: Any) -> None:
    fill(stream, 0, 10)

    def read(**options: str) -> list[int]:
        frame = spark.read.format("amqp").options(uri=uri, queue=stream, **options).load()
        return [int(bytes(row.value)) for row in frame.collect()]

    assert read() == list(range(10))
    starting, ending = json.dumps({stream: 3}), json.dumps({stream: {"0": 7}})
    assert read(startingOffsets=starting, endingOffsets=ending) == [3, 4, 5, 6]
    assert read(startingTimestamp="0") == list(range(10))
    assert read(startingTimestamp="99999999999999") == []


def test_every_column(spark: Any, uri: str, channel: Channel, stream: str) -> None:
    channel.exchange("prices", "topic", durable=True)
    channel.queue(stream, passive=True).bind("prices", "#")
    from flintmq.client import Properties

    sent = Properties(content_type="text/plain", message_id="m1", priority=3, timestamp=1_700_000_000)
    sent.headers = {"symbol": "ABC", "size": 7, "live": True}
    channel.publish(b"1", "prices", "eur.abc", properties=sent)
    options = {"uri": uri, "queue": stream, "includeProperties": "true", "includeHeaders": "true"}
    (row,) = spark.read.format("amqp").options(**options).load().collect()
    assert (bytes(row.value), row.key, row.routing_key, row.exchange) == (
        b"1",
        "eur.abc",
        "eur.abc",
        "prices",
    )
    assert (row.queue, row.partition, row.offset, row.redelivered) == (stream, 0, 0, False)
    assert row.timestamp.year >= 2024
    assert (row.content_type, row.message_id, row.priority) == ("text/plain", "m1", 3)
    assert row.property_timestamp.timestamp() % 3600 == 1_700_000_000 % 3600
    assert row.headers["symbol"].string == "ABC"
    assert row.headers["size"].long == 7
    assert row.headers["live"].boolean is True
    assert row.headers["size"].type == "long"


def test_fewer_columns_by_option_or_schema(spark: Any, uri: str, stream: str, fill: Any) -> None:
    fill(stream, 0, 3)
    reader = spark.read.format("amqp").options(uri=uri, queue=stream)
    assert reader.schema("offset BIGINT, value BINARY").load().collect()[2].offset == 2
    chosen = spark.read.format("amqp").options(uri=uri, queue=stream, columns="value,routing_key").load()
    assert chosen.columns == ["value", "routing_key"]
    assert [int(bytes(row.value)) for row in chosen.collect()] == [0, 1, 2]


def test_several_streams_and_those_that_a_pattern_finds(
    query: Any, channel: Channel, name: str, fill: Callable[..., None]
) -> None:
    for number, stream in enumerate((f"{name}.a", f"{name}.b")):
        channel.queue(stream, durable=True, arguments={"x-queue-type": "stream"})
        fill(stream, 100 * number, 100 * number + 3)
    reading = query(queuePattern=rf"{name}\..", startingOffsets="earliest")
    assert sorted(reading.run()) == [0, 1, 2, 100, 101, 102]
    channel.queue(f"{name}.c", durable=True, arguments={"x-queue-type": "stream"})
    fill(f"{name}.c", 200, 202)
    assert sorted(reading.run()) == [200, 201]


def test_lag_is_in_the_progress(query: Any, stream: str, fill: Any) -> None:
    fill(stream, 0, 30)
    reading = query(queue=stream, startingOffsets="earliest", maxOffsetsPerTrigger="10")
    reading.run()
    first = next(report for report in reading.last.recentProgress if report["numInputRows"])
    assert lag(first["sources"][0]) == {stream: 20}
    found = metrics(first["sources"][0])
    assert (found["batches"], found["rows"], found["lag"], found["retries"]) == (1, 10, 20, 0)
    last = [report for report in reading.last.recentProgress if report["numInputRows"]][-1]
    found = metrics(last["sources"][0])  # octets are true to one chunk of the log, so they are all there now
    assert (found["batches"], found["rows"], found["lag"]) == (3, 30, 0)
    assert found["octets"] > 30


def test_a_place_in_a_queue_that_a_pattern_does_not_find(query: Any, stream: str) -> None:
    starting = json.dumps({f"{stream}-not-there": 3})
    reading = query(queuePattern=f"{stream}.*", startingOffsets=starting)
    with pytest.raises(Exception, match=f"names '{stream}-not-there', and there is no such queue"):
        reading.run()
