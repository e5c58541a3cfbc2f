"""The socket of the sync client of AMQP/Fast, and how its calls wait; aio/transport.py has the same names."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable

from flintmq.client.core.deadline import Deadline
from flintmq.client.core.errors import CallTimeout, ConnectFailed
from flintmq.client.fast.core import Core
from flintmq.clock import Clock

READ_BYTES = 262_144


class Transport:
    """Read and written by the thread that calls."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.socket: socket.socket | None = None
        self.clock = Clock()
        self.timeout_s = 30.0

    def open(self, host: str, port: int, tls: ssl.SSLContext | None, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        try:
            made = socket.create_connection((host, port), timeout_s)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.socket = made if tls is None else tls.wrap_socket(made, server_hostname=host)
        except OSError as error:
            raise ConnectFailed(f"{host}:{port} cannot be reached: {error.strerror or error}") from None

    def flush(self) -> None:
        """Sends what was written; waits while the server takes no more."""
        octets = self.core.take_output()
        if octets and self.socket is not None:
            try:
                self.socket.settimeout(self.timeout_s)
                self.socket.sendall(octets)
            except OSError as error:
                self.core.lost(str(error))

    def wait(self, is_there: Callable[[], bool], timeout_s: float | None, what: str) -> None:
        """Until it is there; the caller looks whether the connection is."""
        deadline = None if timeout_s is None else Deadline(self.clock, timeout_s)
        self.flush()
        while not is_there():
            left_s = None if deadline is None else deadline.left_s()
            if left_s == 0:
                raise CallTimeout(f"{what}: no answer in {timeout_s:g} seconds")
            self.read(left_s)
            self.flush()

    def read(self, timeout_s: float | None) -> None:
        if self.socket is None:
            return
        try:
            self.socket.settimeout(timeout_s)
            octets = self.socket.recv(READ_BYTES)
        except TimeoutError:
            return
        except OSError as error:
            self.core.lost(str(error))
            return
        if octets:
            self.core.receive(octets)
        else:
            self.core.lost("the server closed it")

    def shut(self) -> None:
        if self.socket is not None:
            self.socket.close()
