"""A connection for long work: when it is lost, the work goes on over another one."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from flintmq.cli.operating import running_broker
from flintmq.clock import Clock

if TYPE_CHECKING:
    from flintmq.client import Connection
    from flintmq.client.core.services import Reply

T = TypeVar("T")

PAUSE_S = 0.2
PAUSE_S_MAX = 2.0


class PatientConnection:
    """One connection at a time. What it is used for has to be safe to begin again."""

    def __init__(self, options: argparse.Namespace, patience_s: float) -> None:
        self.options = options
        self.patience_s = patience_s
        self.clock = Clock()
        self.heard_s = self.clock.monotonic_s()  # when the broker last answered
        self.open: Connection | None = None
        self.made = 0  # connections so far

    def __enter__(self) -> PatientConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.drop()

    def connection(self) -> Connection:
        if self.open is None:
            self.open = running_broker.connected(self.options)
            self.made += 1
            self.heard_s = self.clock.monotonic_s()
        return self.open

    def drop(self) -> None:
        from flintmq.client import ClientError

        connection, self.open = self.open, None
        if connection is not None:
            with suppress(ClientError, OSError):
                connection.close()

    def request(
        self, service: str, arguments: dict[str, Any], body: bytes = b"", wait_s: float = 0.0
    ) -> Reply:
        """Asks a service over the connection that is open now."""
        connection = self.connection()
        reply = connection.request(service, arguments, body, timeout_s=connection.settings.timeout_s + wait_s)
        self.heard_s = self.clock.monotonic_s()
        return reply

    def patiently(self, work: Callable[[], T]) -> T:
        """Does the work; from its beginning again after the connection was lost, as long as is allowed."""
        from flintmq.client.core import errors

        pause_s = PAUSE_S
        made = self.made
        while True:
            try:
                return work()
            except (
                errors.ConnectFailed,
                errors.ConnectionClosed,
                errors.CallTimeout,
                errors.RequestUnknown,
            ) as error:
                self.drop()
                is_refused = isinstance(error, errors.ConnectFailed) and error.code in (403, 530)
                if isinstance(error, errors.LoginRefused) or is_refused:
                    raise
                if self.clock.monotonic_s() - self.heard_s > self.patience_s:
                    raise
            pause_s = PAUSE_S if self.made > made else min(PAUSE_S_MAX, pause_s * 1.5)
            made = self.made
            self.clock.sleep(pause_s)
