"""Heartbeats of all connections on one wheel: each is looked at twice in its interval.

A slot is half a second. An idle connection costs one visit in half its interval and nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flintmq.server.link import Link

SLOT_S = 0.5


class Heartbeats:
    """Links by the slot in which they are due."""

    def __init__(self) -> None:
        self.slots: dict[int, list[tuple[Link, int]]] = {}
        self.now = 0

    def add(self, link: Link, interval_s: int) -> None:
        """Half of the interval is `interval_s` slots of half a second: they cancel out."""
        self.slots.setdefault(self.now + interval_s, []).append((link, interval_s))

    def tick(self) -> None:
        """Half a second has passed."""
        self.now += 1
        for link, interval_s in self.slots.pop(self.now, ()):
            if link.beat():
                self.add(link, interval_s)
