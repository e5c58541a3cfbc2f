"""Brokers for tests, in processes of their own: `with Broker() as broker:`. docs/testing.md has it all.

pytest has fixtures of them (flintmq.pytest_plugin), and those of pytest-rabbitmq (rabbitmq_fixtures.py).
The other end, in the process of the broker, is server/process/rehearsal.py.
"""

from __future__ import annotations

import atexit
import os
import tempfile
import threading
from types import TracebackType

from flintmq.testing.messages import SeenMessage
from flintmq.testing.served_broker import ServedBroker, VirtualHost
from flintmq.testing.sources import BrokerGone, Source, new_source

__all__ = ["Broker", "BrokerGone", "SeenMessage", "ServedBroker", "VirtualHost"]


class SharedSource:
    """One source for all brokers of a process, made with the first of them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.source: Source | None = None
        self.process = 0  # that the source belongs to: a child that was forked needs its own

    def get(self) -> Source:
        with self.lock:
            if self.source is None or self.process != os.getpid():
                self.source = new_source()
                self.process = os.getpid()
                atexit.register(self.source.close)
            return self.source


SHARED = SharedSource()


class Broker:
    """`with Broker() as broker:` is a broker, in memory or with `durable` on disk, for the block alone.

    `options` are further ones of `flintmq serve`, such as "--config", "tests/flintmq.toml".
    """

    def __init__(self, *options: str, durable: bool = False) -> None:
        self.options = options
        self.directory = tempfile.TemporaryDirectory(prefix="flintmq-") if durable else None
        self.served: ServedBroker | None = None

    def __enter__(self) -> ServedBroker:
        if self.served is not None:
            raise RuntimeError("this Broker runs already: make another one")
        data = () if self.directory is None else ("--data", self.directory.name)
        try:
            self.served = ServedBroker(SHARED.get(), (*self.options, *data))
        except BaseException:
            self.clean_up()
            raise
        return self.served

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        served, self.served = self.served, None
        try:
            if served is not None:
                served.stop()
        finally:
            self.clean_up()

    def clean_up(self) -> None:
        if self.directory is not None:
            self.directory.cleanup()
