"""A broker in a program's own event loop: `async with flintmq.Broker() as broker:`.

It shares the loop, the process and the memory with the program, and leaves alone what belongs to the program:
signals, logging and the collector's settings. A program that keeps the loop busy keeps clients waiting.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from flintmq import config
from flintmq.clock import Clock
from flintmq.errors import ConfigFault
from flintmq.server.server import STOP_TIMEOUT_S, Server

if TYPE_CHECKING:
    import os


class Broker:
    """A broker for the time of an `async with`; not running before and after it.

    `settings` is a text in TOML or the Path of a file, as docs/configuration.md has them. Without settings it
    listens on a free port of 127.0.0.1 and has the user guest. `port`, `hosts` and `data` go before them.
    """

    def __init__(
        self,
        settings: str | os.PathLike[str] | None = None,
        *,
        port: int | None = None,
        hosts: tuple[str, ...] | None = None,
        data: str | os.PathLike[str] | None = None,
        stop_timeout_s: float = STOP_TIMEOUT_S,
    ) -> None:
        is_text = isinstance(settings, str)
        if settings is None:
            port = 0 if port is None else port
            hosts = ("127.0.0.1",) if hosts is None else hosts
        self.config = config.load(
            None if settings is None or is_text else Path(settings),
            hosts=hosts,
            port=port,
            directory=None if data is None else str(data),
            text=settings if isinstance(settings, str) else None,
        )
        if self.config.management is not None:
            raise ConfigFault("[management] needs a process of its own: use `flintmq serve` for the HTTP API")
        self.stop_timeout_s = stop_timeout_s
        self.server: Server | None = None
        self.urls: list[str] = []  # of all addresses that it listens on, without users

    async def __aenter__(self) -> Broker:
        if self.server is not None:
            raise RuntimeError("this Broker runs already: make another one")
        self.server = Server(self.config, Clock(), asyncio.get_running_loop())
        try:
            self.urls = self.server.listen()
        except BaseException:
            self.server.close()
            self.server = None
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        server, self.server = self.server, None
        if server is not None:
            await server.stop(self.stop_timeout_s)

    @property
    def port(self) -> int:
        """Of its first address."""
        if not self.urls:
            raise RuntimeError("the broker listens nowhere before `async with`")
        return urlsplit(self.urls[0]).port or 0

    @property
    def uri(self) -> str:
        """Its first address, with guest or else the first user whose password is in the settings."""
        users = self.config.users
        plain = [name for name, user in users.items() if user.password is not None and user.permissions]
        scheme, address = self.address.split("://", 1)
        if not plain:
            return self.address
        name = "guest" if "guest" in plain else plain[0]
        permitted = users[name].permissions
        host = "" if "/" in permitted else "/" + quote(next(iter(permitted)), safe="")
        password = quote(users[name].password or "", safe="")
        return f"{scheme}://{quote(name, safe='')}:{password}@{address}{host}"

    @property
    def address(self) -> str:
        """The first of `urls`; of a broker that listens everywhere, by the way of this machine itself."""
        port = self.port
        url = self.urls[0]
        for everywhere, loopback in (("0.0.0.0", "127.0.0.1"), ("[::]", "[::1]")):
            url = url.replace(f"://{everywhere}:{port}", f"://{loopback}:{port}")
        return url
