"""What is wrong is told in one plain last line, without a password."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from spark_queries import run_to_end

from flintmq.client import Channel


def last_line(failure: BaseException) -> str:
    """What a user sees: the last line of the Python error, before what Spark adds."""
    found = re.findall(r"^flintmq\.spark\.errors\.\w+: (.+)$", str(failure), re.MULTILINE)
    assert found, str(failure)
    return str(found[-1])


def read(spark: Any, path: Any, **options: str) -> None:
    spark.read.format("amqp").options(**options).load().collect()


def stream(spark: Any, path: Any, **options: str) -> None:
    frame = spark.readStream.format("amqp").options(**options).load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(path))
    run_to_end(writer.trigger(availableNow=True))


def write(spark: Any, path: Any, columns: str = "'a' AS value", **options: str) -> None:
    spark.range(1).selectExpr(*columns.split("; ")).write.format("amqp").options(**options).mode(
        "append"
    ).save()


def write_stream(spark: Any, path: Any, columns: str = "'a' AS value", **options: str) -> None:
    frame = spark.readStream.format("rate").option("rowsPerSecond", "1000").load()
    writer = frame.selectExpr(*columns.split("; ")).writeStream.format("amqp").options(**options)
    run_to_end(writer.option("checkpointLocation", str(path)).trigger(processingTime="100 milliseconds"))


Use = Callable[..., None]


def refusal(use: Use, spark: Any, path: Any, **options: str) -> str:
    with pytest.raises(Exception) as failure:  # noqa: PT011 - Spark's own classes vary
        use(spark, path, **options)
    assert "hunter2" not in str(failure.value)
    return last_line(failure.value)


@pytest.mark.parametrize("use", [read, stream])
def test_a_missing_queue(spark: Any, uri: str, tmp_path: Any, use: Use) -> None:
    told = refusal(use, spark, tmp_path, uri=uri, queue="nowhere")
    assert "no queue 'nowhere'" in told
    assert "declare it first" in told


@pytest.mark.parametrize(("use", "mode"), [(write, "confirm"), (write_stream, "transactional")])
def test_a_missing_exchange(spark: Any, uri: str, tmp_path: Any, use: Use, mode: str) -> None:
    told = refusal(use, spark, tmp_path, uri=uri, exchange="nowhere", mode=mode)
    assert "no exchange 'nowhere'" in told
    assert "declare it first" in told


@pytest.mark.parametrize("use", [read, stream, write_stream])
def test_a_wrong_password_which_is_not_shown(spark: Any, uri: str, tmp_path: Any, use: Use) -> None:
    wrong = uri.replace("://", "://guest:hunter2@")
    assert "refused user 'guest'" in refusal(use, spark, tmp_path, url=wrong, queue="any")


def test_a_virtual_host_that_is_not_there(spark: Any, uri: str, tmp_path: Any) -> None:
    told = refusal(read, spark, tmp_path, uri=f"{uri}/nowhere", queue="any")
    assert "refused virtual host 'nowhere' to user 'guest': vhost nowhere not found" in told
    assert "password" not in told


@pytest.mark.parametrize("use", [write, write_stream])
def test_a_refused_login_is_not_taken_for_the_end_of_a_transaction(
    spark: Any, uri: str, tmp_path: Any, use: Use
) -> None:
    wrong = uri.replace("://", "://guest:hunter2@")
    told = refusal(use, spark, tmp_path, url=wrong, queue="any", mode="transactional")
    assert "refused user 'guest'" in told
    assert "Ending" not in told


def test_no_broker(spark: Any, tmp_path: Any) -> None:
    told = refusal(read, spark, tmp_path, uri="amqp://127.0.0.1:1", queue="any")
    assert "no connection to amqp://127.0.0.1:1" in told
    assert "?." not in told


@pytest.mark.parametrize("use", [read, write_stream])
def test_an_unknown_option(spark: Any, uri: str, tmp_path: Any, use: Use) -> None:
    told = refusal(use, spark, tmp_path, uri=uri, queue="any", retryTimeouts="1s")
    assert "did you mean 'retryTimeout'?" in told


def test_a_schema_that_is_not_ours(spark: Any, uri: str) -> None:
    with pytest.raises(Exception) as failure:  # noqa: PT011
        spark.read.format("amqp").options(uri=uri, queue="any").schema("price DOUBLE").load().collect()
    assert "column 'price'" in last_line(failure.value)
    with pytest.raises(Exception) as failure:  # noqa: PT011
        spark.read.format("amqp").options(uri=uri, queue="any").schema("value STRING").load().collect()
    assert "cast it after reading" in last_line(failure.value)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ("id AS price", "no column 'price'"),
        ("id AS value", "binary or string"),
        ("'a' AS value; 3 AS offset", "Column 'offset' cannot be written"),
        ("'a' AS exchange", "'value' is missing"),
        ("'a' AS value; 7 AS message_id", "make it string"),
        ("'a' AS value; map(1, 'v') AS headers", "names are int, not string"),
        ("'a' AS value; map('m', map(1, 'v')) AS headers", "names are int, not string"),
        ("'a' AS value; map('d', current_date()) AS headers", "no date in a message"),
    ],
)
def test_columns_that_cannot_be_written(spark: Any, uri: str, tmp_path: Any, columns: str, said: str) -> None:
    assert said in refusal(write, spark, tmp_path, columns=columns, uri=uri, exchange="amq.topic")


def test_columns_that_a_stream_cannot_write(spark: Any, uri: str, tmp_path: Any) -> None:
    told = refusal(write_stream, spark, tmp_path, columns="1.5D AS price", uri=uri, exchange="amq.topic")
    assert "no column 'price'" in told


@pytest.mark.parametrize(
    ("use", "columns", "said"),
    [
        (write, "CAST(NULL AS STRING) AS value", "null 'value'"),
        (write_stream, "CAST(NULL AS STRING) AS value", "null 'value'"),
        (write, "'a' AS value; repeat('k', 300) AS routing_key", "correct such rows, or filter them out"),
        (write, "'a' AS value; 300 AS priority", "priority 300 does not fit 1 octets"),
        (write, "'a' AS value; 'soon' AS expiration", "invalid expiration 'soon'"),
    ],
)
def test_rows_that_cannot_be_messages(
    spark: Any, uri: str, tmp_path: Any, use: Use, columns: str, said: str
) -> None:
    assert said in refusal(use, spark, tmp_path, columns=columns, uri=uri, exchange="amq.topic")


def test_expired_retention(spark: Any, uri: str, channel: Channel, name: str, query: Any) -> None:
    arguments = {
        "x-queue-type": "stream",
        "x-max-length-bytes": 100_000,
        "x-stream-max-segment-size-bytes": 50_000,
    }
    channel.queue(name, durable=True, arguments=dict(arguments))
    reading = query(queue=name, startingOffsets="earliest")
    channel.publish_many([b"0"] * 10, routing_key=name)
    reading.run()
    for _ in range(40):
        channel.publish_many([b"%0999d" % 1] * 20, routing_key=name)
    with pytest.raises(Exception) as failure:  # noqa: PT011
        reading.run()
    assert "have expired before they were read" in last_line(failure.value)
    assert "failOnDataLoss" in last_line(failure.value)
    assert len(reading.run(failOnDataLoss="false")) > 50
    told = refusal(read, spark, None, uri=uri, queue=name, startingOffsets=json.dumps({name: 0}))
    assert "have expired before they were read" in told
    assert "failOnDataLoss" in told
