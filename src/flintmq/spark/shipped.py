"""The format `amqp` for clusters where the package comes by --py-files.

Spark puts such files on the path of tasks, but not on that of the process that plans and reads streams in
the driver: there a class of an imported module cannot be unpickled. So this one travels by value, knows
where the driver has the package, and imports the real source when it is used. It names no other module of
the package at its top, else those had to travel as well.
"""

from __future__ import annotations

import sys
from typing import Any, ClassVar

from pyspark.sql.datasource import DataSource


class ShippedDataSource(DataSource):  # type: ignore[misc]
    """Stands for AmqpDataSource, and finds it."""

    paths: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def name(cls) -> str:
        return "amqp"

    def found(self) -> Any:
        for path in self.paths:
            if path not in sys.path:
                sys.path.append(path)
        from flintmq.spark.source import AmqpDataSource

        return AmqpDataSource(self.options)

    def schema(self) -> Any:
        return self.found().schema()

    def reader(self, schema: Any) -> Any:
        return self.found().reader(schema)

    def streamReader(self, schema: Any) -> Any:
        return self.found().streamReader(schema)

    def writer(self, schema: Any, overwrite: bool) -> Any:
        return self.found().writer(schema, overwrite)

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        return self.found().streamWriter(schema, overwrite)
