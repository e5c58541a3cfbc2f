"""Ticks of a stream to a table, and bars of them to a topic exchange, each run with what has come since."""

from typing import Any

from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

spark: Any = SparkSession.active()
URI = spark.conf.get("flintmq.uri")
SCHEMA = "feed STRING, seq BIGINT, symbol STRING, price DOUBLE, size BIGINT, time BIGINT"

dp.create_sink("bars_exchange", "amqp", {"uri": URI, "exchange": spark.conf.get("flintmq.exchange")})


@dp.table
def ticks() -> Any:
    """Every tick, once."""
    messages = (
        spark.readStream.format("amqp")
        .option("uri", URI)
        .option("queue", spark.conf.get("flintmq.stream"))
        .option("startingOffsets", "earliest")
        .option("columns", "value")
        .load()
    )
    parsed = messages.selectExpr(f"from_json(CAST(value AS STRING), '{SCHEMA}') AS tick").select("tick.*")
    return parsed.selectExpr("*", "timestamp_millis(time) AS event_time")


@dp.append_flow(target="bars_exchange")
def bars() -> Any:
    """A bar per symbol and minute, when its minute is over."""
    ticks_in_time = spark.readStream.table("ticks").withWatermark("event_time", "2 seconds")
    made = ticks_in_time.groupBy(F.window("event_time", "1 minute").alias("minute"), "symbol").agg(
        F.min_by("price", "seq").alias("open"),
        F.max("price").alias("high"),
        F.min("price").alias("low"),
        F.max_by("price", "seq").alias("close"),
        F.sum("size").alias("volume"),
        F.expr("sum(price * size) / sum(size)").alias("vwap"),
        F.count("*").alias("ticks"),
    )
    bar = "struct(symbol, minute.start AS start, open, high, low, close, volume, vwap, ticks)"
    return made.selectExpr(
        f"CAST(to_json({bar}) AS BINARY) AS value", "concat('bar.', symbol) AS routing_key"
    )
