"""FlintMQ: an AMQP message broker in Python whose traffic is a Spark stream.

async with flintmq.Broker() as broker:    a broker in your own event loop, see docs/embedding.md
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """The server is loaded by whoever embeds it: a client need not wait for that, nor depend on it."""
    if name == "Broker":
        return import_module("flintmq.server.process.embedded").Broker
    raise AttributeError(f"module 'flintmq' has no attribute {name!r}")
