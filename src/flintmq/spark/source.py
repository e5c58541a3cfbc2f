"""The format `amqp` as Spark knows it. Light to import: what is heavy comes when it is used."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

from flintmq.spark.errors import AmqpError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class AmqpDataSource(DataSource):  # type: ignore[misc]
    """Reads queues and streams of an AMQP broker, in batches or as a stream, and writes to its exchanges."""

    def __init__(self, options: Mapping[str, str]) -> None:
        # Spark makes a source in the interpreter of its workers before it imports Arrow there by itself, and
        # would then end with the bare name of the module.
        if importlib.util.find_spec("pyarrow") is None:
            raise AmqpError(
                f"Spark runs Python as {sys.executable}, which has no pyarrow: set PYSPARK_PYTHON to an "
                "interpreter that has it before the session is made, use flintmq.spark.session(), or "
                "pip install 'flintmq[spark]' there."
            )
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        return "amqp"

    def schema(self) -> StructType:
        from flintmq.spark.schema import schema_of

        return schema_of(self.options)

    def reader(self, schema: StructType) -> Any:
        from flintmq.spark.options import READ, ReadOptions
        from flintmq.spark.read.batch_reader import AmqpBatchReader
        from flintmq.spark.schema import check_schema

        return AmqpBatchReader(check_schema(schema), ReadOptions.of(self.options, READ))

    def streamReader(self, schema: StructType) -> Any:
        from flintmq.spark.options import STREAM, ReadOptions
        from flintmq.spark.read.stream_reader import AmqpStreamReader
        from flintmq.spark.schema import check_schema

        return AmqpStreamReader(check_schema(schema), ReadOptions.of(self.options, STREAM))

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        from flintmq.spark.write.writers import batch_writer

        return batch_writer(schema, self.options, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        from flintmq.spark.write.writers import stream_writer

        return stream_writer(schema, self.options)
