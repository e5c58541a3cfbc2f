"""What is wrong is told in one plain last line, without a password."""

from __future__ import annotations

import re
from typing import Any

import pytest
from spark_queries import run_to_end

from flintmq.client import Channel


def last_line(failure: BaseException) -> str:
    """What a user sees: the last line of the Python error, before what Spark adds."""
    found = re.findall(r"^flintmq\.spark\.errors\.\w+: (.+)$", str(failure), re.MULTILINE)
    assert found, str(failure)
    return str(found[-1])


def read(spark: Any, **options: str) -> Any:
    return spark.read.format("amqp").options(**options).load().collect()


def stream(spark: Any, path: Any, **options: str) -> None:
    frame = spark.readStream.format("amqp").options(**options).load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(path))
    run_to_end(writer.trigger(availableNow=True))


def test_a_missing_queue(spark: Any, uri: str, tmp_path: Any) -> None:
    with pytest.raises(Exception) as failure:  # noqa: PT011 - Spark's own classes vary
        stream(spark, tmp_path, uri=uri, queue="nowhere")
    assert "no queue 'nowhere'" in last_line(failure.value)
    assert "declare it first" in last_line(failure.value)


def test_a_wrong_password_which_is_not_shown(spark: Any, uri: str) -> None:
    wrong = uri.replace("://", "://guest:hunter2@")
    with pytest.raises(Exception) as failure:  # noqa: PT011
        read(spark, url=wrong, queue="any")
    assert "refused user 'guest'" in last_line(failure.value)
    assert "hunter2" not in str(failure.value)
    plan = spark.read.format("amqp").options(url=wrong, queue="any").load()
    assert "hunter2" not in plan._jdf.queryExecution().toString()


def test_no_broker(spark: Any) -> None:
    with pytest.raises(Exception) as failure:  # noqa: PT011
        read(spark, uri="amqp://127.0.0.1:1", queue="any")
    assert "no connection to amqp://127.0.0.1:1" in last_line(failure.value)


def test_an_unknown_option(spark: Any, uri: str) -> None:
    with pytest.raises(Exception) as failure:  # noqa: PT011
        read(spark, uri=uri, queue="any", startingOffset="earliest")
    assert "did you mean 'startingOffsets'?" in last_line(failure.value)


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
        ("'a' AS value, 3 AS offset", "Column 'offset' cannot be written"),
        ("'a' AS exchange", "'value' is missing"),
        ("'a' AS value, 7 AS message_id", "make it string"),
    ],
)
def test_columns_that_cannot_be_written(spark: Any, uri: str, columns: str, said: str) -> None:
    frame = spark.range(1).selectExpr(*columns.split(", "))
    with pytest.raises(Exception) as failure:  # noqa: PT011
        frame.write.format("amqp").options(uri=uri, exchange="amq.topic").mode("append").save()
    assert said in last_line(failure.value)


def test_a_null_value(spark: Any, uri: str) -> None:
    frame = spark.sql("SELECT CAST(NULL AS STRING) AS value")
    with pytest.raises(Exception) as failure:  # noqa: PT011
        frame.write.format("amqp").options(uri=uri, exchange="amq.topic").mode("append").save()
    assert "null 'value'" in last_line(failure.value)


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
