"""Tells at once that a peer has reset its connection or closed it both ways.

An event loop tells only those who wait to read or write, so a link that is held would not hear of it,
and uvloop stops watching a descriptor with an error without telling anyone: the peer's queues and
messages would stay taken for ever. An epoll of our own, asked for no events, reports just these two.
Where there is no epoll there is no uvloop of that kind either: heartbeats have to find out about held
links.
"""

from __future__ import annotations

import asyncio
import select
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flintmq.server.link import Link

TOLD_MAX = 256


class HangUps:
    """Every connected link by its descriptor."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.epoll = select.epoll() if hasattr(select, "epoll") else None
        self.links: dict[int, Link] = {}
        if self.epoll is not None:
            loop.add_reader(self.epoll.fileno(), self.tell)

    def watch(self, descriptor: int, link: Link) -> None:
        if self.epoll is not None:
            self.links[descriptor] = link
            self.epoll.register(descriptor, 0)

    def forget(self, descriptor: int) -> None:
        """To be called before the descriptor is closed."""
        if self.links.pop(descriptor, None) is not None and self.epoll is not None:
            self.epoll.unregister(descriptor)

    def tell(self) -> None:
        if self.epoll is None:
            return
        for descriptor, _ in self.epoll.poll(0, TOLD_MAX):
            link = self.links.get(descriptor)
            if link is not None:
                link.hung_up()

    def close(self) -> None:
        if self.epoll is not None:
            self.loop.remove_reader(self.epoll.fileno())
            self.epoll.close()
