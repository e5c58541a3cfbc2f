"""AMQP and Spark: the data source `amqp`, which Spark finds by itself, and a session that works.

    driver      session    source    stream_reader, driver, feeds    writers
    executors                        tasks of the feeds              rows, transactional
    both        options    schema    offsets    admission    record_batches    connections

A read goes in columns from the broker to Arrow, a write in slices of Arrow's buffers to the socket.
Knows the client, never the broker. Begin with source.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flintmq.spark.errors import AmqpError, BadOption, DataLost
    from flintmq.spark.feeds.offsets import lag, metrics
    from flintmq.spark.sessions import register, session

__all__ = ["AmqpError", "BadOption", "DataLost", "lag", "metrics", "register", "session"]

_PLACES = {
    "AmqpError": "errors",
    "BadOption": "errors",
    "DataLost": "errors",
    "lag": "feeds.offsets",
    "metrics": "feeds.offsets",
    "register": "sessions",
    "session": "sessions",
}


def __getattr__(name: str) -> Any:
    """Imports what is asked for: Spark imports this package in processes that need none of it."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"flintmq.spark.{_PLACES[name]}"), name)
