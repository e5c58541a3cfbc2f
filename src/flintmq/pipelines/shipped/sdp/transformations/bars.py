"""Ticks of a stream to a table, and bars of them to a topic exchange, each run with what has come since."""

from typing import Any

from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

spark: Any = SparkSession.active()
URI = spark.conf.get("flintmq.uri")
SCHEMA = "feed STRING, seq BIGINT, symbol STRING, price DOUBLE, size BIGINT, time BIGINT"

dp.create_sink("bars_exchange", "amqp", {"uri": URI, "exchange": spark.conf.get("flintmq.exchange")})


def parsed() -> Any:
    """The ticks of the stream, in columns."""
    messages = (
        spark.readStream.format("amqp")
        .option("uri", URI)
        .option("queue", spark.conf.get("flintmq.stream"))
        .option("startingOffsets", "earliest")
        .option("columns", "value")
        .load()
    )
    ticks = messages.selectExpr(f"from_json(CAST(value AS STRING), '{SCHEMA}') AS tick").select("tick.*")
    return ticks.selectExpr("*", "timestamp_millis(time) AS event_time")


@dp.table
def ticks() -> Any:
    """Every tick, once."""
    return parsed()


@dp.append_flow(target="bars_exchange")
def bars() -> Any:
    """A bar per symbol and minute, when its minute is over. From the stream and not from the table `ticks`:
    Spark looks for the table when it sees the watermark, and that is before it has made it."""
    made = (
        parsed()
        .withWatermark("event_time", "2 seconds")
        .groupBy(F.window("event_time", "1 minute").alias("minute"), "symbol")
        .agg(
            F.min_by("price", "seq").alias("open"),
            F.max("price").alias("high"),
            F.min("price").alias("low"),
            F.max_by("price", "seq").alias("close"),
            F.sum("size").alias("volume"),
            F.expr("sum(price * size) / sum(size)").alias("vwap"),
            F.count("*").alias("ticks"),
        )
    )
    bar = "struct(symbol, minute.start AS start, open, high, low, close, volume, vwap, ticks)"
    return made.selectExpr(
        f"CAST(to_json({bar}) AS BINARY) AS value", "concat('bar.', symbol) AS routing_key"
    )
