"""A client of Spark Connect: argument 1 is the broker's URI, 2 a stream, 3 a queue, 4 a directory.

Run in a process of its own: an interpreter has sessions of Connect or of Spark itself, not both.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

from flintmq.spark import lag, metrics
from flintmq.spark.sessions import prepare_environment


def main(uri: str, stream: str, out: str, directory: str) -> None:
    prepare_environment()
    spark = (
        SparkSession.builder.remote("local[2]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "700m")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    told: dict[str, object] = {"session": type(spark).__module__}
    frame = spark.read.format("amqp").options(uri=uri, queue=stream).load()
    told["read"] = frame.count()
    frame.limit(3).select("value").write.format("amqp").options(
        uri=uri, queue=out, mode="transactional"
    ).mode("append").save()
    reader = spark.readStream.format("amqp").options(
        uri=uri, queue=stream, startingOffsets="earliest", maxOffsetsPerTrigger="20"
    )
    writer = reader.load().select("value").writeStream.format("amqp")
    query = (
        writer.options(uri=uri, queue=out, mode="transactional")
        .option("checkpointLocation", directory)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    sources = [json.loads(each.json)["sources"][0] for each in query.recentProgress if each.numInputRows]
    told["lag"] = [sum(lag(each).values()) for each in sources]
    told["rows"] = metrics(sources[-1])["rows"]
    try:
        spark.read.format("amqp").options(uri=uri, queue="nowhere").load().collect()
    except Exception as failure:  # of Connect's own classes
        told["failure"] = str(failure)
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
