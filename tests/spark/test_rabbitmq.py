"""RabbitMQ by the same format: queues and streams, at least once. Needs Debian's rabbitmq-server."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from flintmq.client import Connection, connect
from flintmq.spark.errors import AmqpError
from flintmq.spark.source import AmqpDataSource

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
brokers: Any = importlib.import_module("brokers")

pytestmark = [
    pytest.mark.skipif(not brokers.RABBITMQ_SERVER.exists(), reason="RabbitMQ is not installed"),
    pytest.mark.timeout(300),
]


@pytest.fixture(scope="module")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with brokers.rabbitmq(tmp_path_factory.mktemp("rabbitmq")) as broker:
        yield f"amqp://127.0.0.1:{broker.port}"


@pytest.fixture(scope="module")
def filled(rabbitmq: str) -> Iterator[Connection]:
    with connect(rabbitmq) as connection, connection.channel(confirm=True) as channel:
        for queue, arguments in (("queue", None), ("stream", {"x-queue-type": "stream"})):
            channel.queue(queue, durable=True, arguments=dict(arguments) if arguments else None)
            bodies = [b"%d" % number for number in range(100)]
            channel.publish_many(bodies, routing_key=queue, persistent=True, headers={"a": 1})
        yield connection


def reader(**options: str) -> Any:
    """What Spark makes of the options, without Spark: a JVM adds nothing to this test."""
    source = AmqpDataSource({name.lower(): text for name, text in options.items()})
    return source.streamReader(source.schema())


def rows(reading: Any, start: Any, end: Any) -> list[dict[str, Any]]:
    tasks = reading.partitions(start, end)
    return [row for task in tasks for batch in reading.read(task) for row in batch.to_pylist()]


def numbers(found: list[dict[str, Any]]) -> list[int]:
    return [int(row["value"]) for row in found]


def test_a_stream_is_read_by_offset(rabbitmq: str, filled: Connection) -> None:
    reading = reader(uri=rabbitmq, queue="stream", startingOffsets="earliest", includeHeaders="true")
    initial = reading.initialOffset()
    first = reading.latestOffset(initial, ReadMaxRows(30))
    found = rows(reading, initial, first)
    assert numbers(found) == list(range(30))
    assert dict(found[0]["headers"])["a"]["long"] == 1
    second = reading.latestOffset(first, ReadAllAvailable())
    assert numbers(rows(reading, first, second)) == list(range(30, 100))
    reading.stop()
    again = reader(uri=rabbitmq, queue="stream")
    assert numbers(rows(again, first, second)) == list(range(30, 100))  # a replay has the same rows


def test_a_queue_is_acked_when_its_batch_is_safe(rabbitmq: str, filled: Connection) -> None:
    reading = reader(uri=rabbitmq, queue="queue", maxOffsetsPerTrigger="60")
    initial = reading.initialOffset()
    first = reading.latestOffset(initial, ReadMaxRows(60))
    assert numbers(rows(reading, initial, first)) == list(range(60))
    assert numbers(rows(reading, initial, first)) == list(range(60))  # a task that is run again
    second = reading.latestOffset(first, ReadMaxRows(60))  # the first is safe now
    assert numbers(rows(reading, first, second)) == list(range(60, 100))
    reading.stop()
    # Started again before the second batch was safe: its messages come again, the first ones do not.
    again = reader(uri=rabbitmq, queue="queue")
    assert rows(again, first, second) == []
    third = again.latestOffset(second, ReadAllAvailable())
    found = rows(again, second, third)
    assert numbers(found) == list(range(60, 100))
    assert all(row["redelivered"] for row in found)
    assert again.latestOffset(third, ReadAllAvailable()) == third
    again.stop()


def test_what_cannot_be_had_is_said(rabbitmq: str, filled: Connection) -> None:
    missing = reader(uri=rabbitmq, queue="missing")
    with pytest.raises(AmqpError, match="no queue 'missing'"):
        missing.latestOffset(missing.initialOffset(), ReadAllAvailable())
    source = AmqpDataSource({"uri": rabbitmq, "queue": "queue"})
    with pytest.raises(AmqpError, match="availableNow"):
        source.reader(source.schema()).partitions()
