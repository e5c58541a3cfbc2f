"""A broker that can be killed and started again on its port, with its data."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
from pathlib import Path
from types import TracebackType

from broker_process import BrokerProcess


def free_port() -> int:
    """Below the ports of connections that go out: one of these could take it while the broker is away."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class Restarting:
    """`broker` is the present process."""

    def __init__(self, data: Path) -> None:
        self.port = free_port()
        self.options = ("--port", str(self.port), "--data", str(data))
        self.broker = BrokerProcess(*self.options)
        self.uri = f"amqp://guest:guest@127.0.0.1:{self.port}"

    def kill(self) -> None:
        """kill -9."""
        self.broker.process.kill()
        self.broker.process.wait()

    def start(self) -> None:
        self.broker = BrokerProcess(*self.options)

    def restart(self) -> None:
        self.kill()
        self.start()

    def restart_later(self, delay_s: float) -> threading.Thread:
        """Killed after a while, in the middle of whatever goes on, and started again."""

        def strike() -> None:
            threading.Event().wait(delay_s)
            self.restart()

        thread = threading.Thread(target=strike)
        thread.start()
        return thread

    def __enter__(self) -> Restarting:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.broker.stop()
