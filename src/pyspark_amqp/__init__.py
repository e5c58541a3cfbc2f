"""Where Spark finds the format `amqp` by itself: it looks for a DefaultSource in all `pyspark_*` modules.

That happens in each session that asks for any Python data source, so nothing heavy is imported here.
"""

from flintmq.spark.source import AmqpDataSource as DefaultSource

__all__ = ["DefaultSource"]
