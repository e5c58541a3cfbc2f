"""Queues by leases: nothing lost, and everything acked in the end."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from broker_process import BrokerProcess
from network_proxy import TO_CLIENT, Cut, Fault, NetworkProxy

from flintmq.client import Channel, Connection, connect
from flintmq.spark.connections import open_connection
from flintmq.spark.errors import AmqpRefused
from flintmq.spark.feeds.feed_types import feed_of
from flintmq.spark.feeds.lease_feed import LeaseFeed
from flintmq.spark.feeds.offsets import Progress
from flintmq.spark.feeds.unacked_feed import UnackedFeed
from flintmq.spark.options import STREAM, ReadOptions
from flintmq.spark.read.stream_planner import StreamPlanner


def counts(connection: Connection, queue: str) -> tuple[Any, Any]:
    found = connection.request("queue.info", {"queue": queue}).results
    return found["messages-ready"], found["messages-unacked"]


def test_the_last_batch_is_acked_when_available_now_ends(
    query: Any, connection: Connection, queue: str, fill: Callable[..., None]
) -> None:
    fill(queue, 0, 25)
    reading = query(queue=queue, maxOffsetsPerTrigger="10")
    assert reading.run() == list(range(25))
    assert [len(rows) for _, rows in sorted(reading.batches.items()) if rows] == [10, 10, 5]
    assert counts(connection, queue) == (0, 0)
    fill(queue, 25, 30)
    assert reading.run() == [25, 26, 27, 28, 29]
    assert counts(connection, queue) == (0, 0)


def test_a_failed_batch_is_read_again_as_it_was(
    query: Any, connection: Connection, queue: str, fill: Callable[..., None]
) -> None:
    fill(queue, 0, 10)
    reading = query(queue=queue)
    reading.fail_at = 1  # the first one is empty: it puts the name of the consumer into the checkpoint
    with pytest.raises(Exception, match="told to fail"):
        reading.run()
    assert counts(connection, queue) == (0, 10)  # leased, not acked
    fill(queue, 10, 12)
    reading.fail_at = None
    assert reading.run() == list(range(12))
    assert reading.batches[1] == list(range(10))
    assert counts(connection, queue) == (0, 0)


def test_a_lease_that_expires_gives_its_messages_back(
    query: Any, connection: Connection, channel: Channel, queue: str, fill: Callable[..., None]
) -> None:
    fill(queue, 0, 6)
    reading = query(queue=queue, consumerName="export")
    reading.fail_at = 0
    with pytest.raises(Exception, match="told to fail"):
        reading.run()
    (lease,) = connection.request("lease.list", {"queue": queue}).results["rows"]  # type: ignore[misc]
    assert isinstance(lease, dict)
    # As the clock would: the process that renewed it is gone.
    arguments = {name: lease[name] for name in ("consumer", "epoch")}
    connection.request("lease.release", {"queue": queue, **arguments})
    assert counts(connection, queue) == (6, 0)
    reading.fail_at = None
    assert sorted(reading.run()) == list(range(6))
    assert counts(connection, queue) == (0, 0)


def test_an_idle_query_acks_its_last_batch_and_a_second_one_takes_over(
    query: Any, spark: Any, connection: Connection, queue: str, fill: Callable[..., None]
) -> None:
    fill(queue, 0, 5)
    reading = query(queue=queue, consumerName="export")
    running = reading.writer({"processingTime": "0 seconds"}).start()
    try:
        wait_until(lambda: counts(connection, queue) == (0, 0) and len(reading.rows) == 5)
        # Another reader of that name claims the lease: the first is told so, in one line.
        connection.request(
            "queue.lease", {"queue": queue, "consumer": "export", "claim": True, "max-rows": 0}
        )
        # It hears of it though there is nothing to read: else two that wait would both stay.
        with pytest.raises(Exception, match="not leased to this query any more"):
            running.awaitTermination(60)
    finally:
        running.stop()
    assert counts(connection, queue) == (0, 0)


def wait_until(holds: Callable[[], bool], timeout_s: float = 60.0) -> None:
    import time

    deadline_s = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline_s, "it did not come to that"
        time.sleep(0.05)


def test_a_batch_read_leaves_everything_where_it_is(
    spark: Any, uri: str, connection: Connection, queue: str, fill: Callable[..., None]
) -> None:
    fill(queue, 0, 7, headers={"a": 1})
    frame = spark.read.format("amqp").options(uri=uri, queue=queue, includeHeaders="true").load()
    for _ in range(2):
        rows = frame.collect()
        assert [int(bytes(row.value)) for row in rows] == list(range(7))
        assert rows[0].headers["a"].long == 1
    assert counts(connection, queue) == (7, 0)


def test_redelivered_is_told(
    query: Any, spark: Any, uri: str, connection: Connection, queue: str, fill: Callable[..., None]
) -> None:
    fill(queue, 0, 2)
    with connection.channel() as other:
        message = other.get(queue)
        assert message is not None
        message.nack(requeue=True)
    rows = spark.read.format("amqp").options(uri=uri, queue=queue).load().collect()
    assert [row.redelivered for row in rows] == [True, False]


def test_held_deliveries_that_come_again_are_in_one_batch(
    broker: BrokerProcess, queue: str, fill: Callable[..., None]
) -> None:
    """A broker without leases, whose connection is lost between a look at the queue and the batch."""
    fill(queue, 0, 10)
    with NetworkProxy(broker.port) as proxy:
        uri = proxy.uri
        feed = UnackedFeed(queue, ReadOptions.of({"uri": uri, "queue": queue}, STREAM))
        feed.check(0)
        assert feed.tail(0, 5.0) == 10
        proxy.cut()
        # The first looks may come before the loss is known, or before the broker knows of it.
        last = next((last for last in (feed.tail(0, 0.5) for _ in range(20)) if last == 10), 0)
        assert feed.take(0, last, None) == 10
        assert all(message.redelivered for _, message in feed.unacked)
        assert feed.tail(0, 0.1) == 10
        feed.close()


def test_a_lease_goes_on_when_the_broker_died_before_it_answered(tmp_path: Path) -> None:
    """The broker that comes back does not remember the requests, and does not do them twice."""
    first = BrokerProcess("--data", str(tmp_path))
    with NetworkProxy(first.port) as proxy, ThreadPoolExecutor(1) as pool:
        with connect(proxy.uri) as made, made.channel(confirm=True) as channel:
            channel.queue("work", durable=True)
            channel.publish_many([b"a", b"b", b"c"], routing_key="work", persistent=True)
        options = ReadOptions.of({"uri": proxy.uri, "queue": "work"}, STREAM)
        connection = open_connection(options.settings, 30.0)
        feed = LeaseFeed("work", options, connection, "reader")
        feed.check(0, "")
        assert feed.take(0, 2, None) == 2
        proxy.refuse()
        proxy.strike(Fault(TO_CLIENT, Cut("rst"), method="basic.deliver"))
        acking = pool.submit(feed.done, 2, feed.identity)
        proxy.wait_for_fault()
        first.process.kill()
        first.process.wait()
        with BrokerProcess("--data", str(tmp_path)) as second:
            proxy.target = second.port
            proxy.accept()
            acking.result(60.0)
            assert feed.acked == 2
            assert counts(connection, "work") == (1, 0)
            assert feed.take(2, 10, None) == 3
            feed.close()
            connection.close()


def test_a_queue_of_another_kind_than_wanted_is_refused(connection: Connection, queue: str) -> None:
    options = ReadOptions.of({"queue": queue, "queueType": "stream"}, STREAM)
    with pytest.raises(AmqpRefused, match="is a classic queue, and a stream is wanted"):
        feed_of(connection, queue, options, "reader")
    options = ReadOptions.of({"queue": queue, "queueType": "classic"}, STREAM)
    assert isinstance(feed_of(connection, queue, options, "reader"), LeaseFeed)


def test_a_pattern_that_matches_nothing_is_told(uri: str, caplog: pytest.LogCaptureFixture) -> None:
    planner = StreamPlanner(ReadOptions.of({"uri": uri, "queuePattern": "no-such-.*"}, STREAM))
    assert planner.latest(Progress(initial="earliest"), None, None).queues == {}
    planner.close()
    assert "queuePattern 'no-such-.*' matches the whole name of no queue yet" in caplog.text
