"""The socket of the async client of AMQP/Fast and its ways to wait. sync/transport.py has the same names."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import cast

from flintmq.client.core.errors import CallTimeout, ConnectFailed
from flintmq.client.fast.core import Core


class Transport(asyncio.Protocol):
    """Reads in the background; whoever waits is woken by what comes."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.socket: asyncio.Transport | None = None
        self.changed = asyncio.Event()
        self.writable = asyncio.Event()
        self.writable.set()

    async def open(self, host: str, port: int, tls: ssl.SSLContext | None, timeout_s: float) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_s):
                await loop.create_connection(lambda: self, host, port, ssl=tls)
        except TimeoutError:
            raise ConnectFailed(
                f"{host}:{port} cannot be reached: no answer in {timeout_s:g} seconds"
            ) from None
        except OSError as error:
            raise ConnectFailed(f"{host}:{port} cannot be reached: {error.strerror or error}") from None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.socket = cast(asyncio.Transport, transport)
        self.send()

    def data_received(self, data: bytes) -> None:
        self.core.receive(data)
        self.send()
        self.changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.core.lost(str(exc or "the server closed it"))
        self.changed.set()
        self.writable.set()

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def send(self) -> None:
        octets = self.core.take_output()
        if octets and self.socket is not None and not self.socket.is_closing():
            self.socket.write(octets)

    async def flush(self) -> None:
        """Sends what was written; waits while the server takes no more."""
        self.send()
        await self.writable.wait()

    async def wait(self, is_there: Callable[[], bool], timeout_s: float | None, what: str) -> None:
        """Until it is there; the caller looks whether the connection is."""
        await self.flush()
        try:
            async with asyncio.timeout(timeout_s):
                while not is_there():
                    self.changed.clear()
                    await self.changed.wait()
        except TimeoutError:
            raise CallTimeout(f"{what}: no answer in {timeout_s:g} seconds") from None

    def shut(self) -> None:
        if self.socket is not None:
            self.socket.close()
