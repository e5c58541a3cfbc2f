"""Processes killed at every step of a batch: streams into transactions come once, the rest at least once.

Here the processes of the connector die, under a Spark that lives. tools/spark_faults.py kills whole drivers,
executors and brokers, on one machine and on a cluster, for as many rounds as it is told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faulty_source
import pytest
from pyspark import cloudpickle
from spark_queries import run_to_end

from flintmq.client import Channel, Connection

ATTEMPTS_MAX = 6
ROWS = 90


@pytest.fixture(scope="module")
def faulty(spark: Any) -> Any:
    cloudpickle.register_pickle_by_value(faulty_source)
    spark.dataSource.register(faulty_source.FaultyDataSource)
    return spark


def relay(spark: Any, uri: str, source: str, out: str, mode: str, directory: Path) -> None:
    """Runs the query until it ends by itself, however often it is killed."""
    for _ in range(ATTEMPTS_MAX):
        reader = spark.readStream.format("amqp-faulty").options(
            uri=uri,
            queue=source,
            startingOffsets="earliest",
            maxOffsetsPerTrigger="30",
            faults=str(directory),
        )
        writer = (
            reader.load()
            .select("value")
            .writeStream.format("amqp-faulty")
            .options(uri=uri, queue=out, mode=mode, faults=str(directory))
            .option("checkpointLocation", str(directory / "checkpoint"))
            .trigger(availableNow=True)
        )
        failure = failure_of(writer)
        if failure is None:
            return
    raise AssertionError(f"{ATTEMPTS_MAX} attempts were not enough; the last ended by {failure}")


def failure_of(writer: Any) -> Exception | None:
    """What the query ended by; a killed process shows in many ways."""
    try:
        run_to_end(writer)
    except Exception as error:
        return error
    return None


@pytest.mark.parametrize("step", faulty_source.STEPS)
def test_streams_into_transactions_come_once(
    faulty: Any,
    uri: str,
    connection: Connection,
    stream: str,
    out: str,
    fill: Callable[..., None],
    drain: Callable[[str], list[int]],
    tmp_path: Path,
    step: str,
) -> None:
    fill(stream, 0, ROWS)
    (tmp_path / step).write_text("")
    relay(faulty, uri, stream, out, "transactional", tmp_path)
    assert not (tmp_path / step).exists(), "nobody came to that step"
    assert sorted(drain(out)) == list(range(ROWS))
    assert connection.request("dtx.list").results["rows"] == []


@pytest.mark.parametrize("step", ["after-latest", "after-partitions", "before-source-commit"])
def test_queues_with_confirms_lose_nothing(
    faulty: Any,
    uri: str,
    connection: Connection,
    channel: Channel,
    queue: str,
    out: str,
    fill: Callable[..., None],
    drain: Callable[[str], list[int]],
    tmp_path: Path,
    step: str,
) -> None:
    fill(queue, 0, ROWS)
    (tmp_path / step).write_text("skip=1")  # the first batch is empty
    relay(faulty, uri, queue, out, "confirm", tmp_path)
    assert not (tmp_path / step).exists(), "nobody came to that step"
    found = Counter(drain(out))
    assert sorted(found) == list(range(ROWS))
    left = connection.request("queue.info", {"queue": queue}).results
    assert (left["messages-ready"], left["messages-unacked"]) == (0, 0)
