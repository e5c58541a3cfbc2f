"""Where Spark finds the `amqp` data source by itself: it imports every `pyspark_*` module for a DefaultSource.

That happens in each session that asks for any Python data source, so nothing heavy is imported here.
"""

from flintmq.spark.source import AmqpDataSource as DefaultSource

__all__ = ["DefaultSource"]
