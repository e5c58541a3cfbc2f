"""Heartbeats of all connections on one wheel: each is looked at some times in its interval.

    a frame is sent
    |        look: something was sent, nothing to do
    |        |                 look: nothing was sent since the last one, so a heartbeat is
    +--------+-----------------+--------> at most two looks from one frame to the next

Two looks are less than half of an interval. Slots are points in time, counted from the start of the wheel:
what comes late does not delay what follows. Between slots with connections in them nothing runs.
"""

from __future__ import annotations

import heapq
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from flintmq.server.event_loop.pass_scheduler import PassScheduler
    from flintmq.server.network.link import Link

log = logging.getLogger("flintmq.link")

SLOT_S = 0.1
# Of an interval of one second 2 slots, twice which are 0.4 s; of a minute 135, twice which are 27 s.
SLOTS_PER_SECOND = 2.25
# Looked at in one go, each of them perhaps a heartbeat to write; then others have their turn.
LOOKS_MAX = 512


class Heartbeats:
    """Links by the slot in which they are due."""

    def __init__(self, loop: asyncio.AbstractEventLoop, scheduler: PassScheduler) -> None:
        self.loop = loop
        self.scheduler = scheduler
        self.started_s = loop.time()
        self.slots: dict[int, list[tuple[Link, int]]] = {}
        self.due: list[int] = []  # the slots, as a heap
        self.timer: asyncio.TimerHandle | None = None
        self.timer_slot = 0

    def now(self) -> int:
        """The last slot that has come."""
        return int((self.loop.time() - self.started_s) / SLOT_S + 0.02)  # timers may come a little early

    def add(self, link: Link, interval_s: int) -> None:
        """The link is looked at until it says that it has gone."""
        period = max(1, int(interval_s * SLOTS_PER_SECOND))
        self.place(link, period, self.now() + period)
        self.set_timer()

    def place(self, link: Link, period: int, slot: int) -> None:
        links = self.slots.get(slot)
        if links is None:
            links = self.slots[slot] = []
            heapq.heappush(self.due, slot)
        links.append((link, period))

    def is_there(self, link: Link) -> bool:
        """Looks at the link. A bug in that keeps no other from being looked at."""
        try:
            return link.beat()
        except Exception:
            log.exception("a bug in looking whether %s is there: once more in a while", link.session)
            return True

    def set_timer(self) -> None:
        if not self.due or (self.timer is not None and self.timer_slot <= self.due[0]):
            return
        self.stop()
        self.timer_slot = self.due[0]
        self.timer = self.loop.call_at(self.started_s + self.timer_slot * SLOT_S, self.run)

    def stop(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def run(self) -> None:
        """Looks at those that are due; if these are many the rest follows in the next turn of the loop."""
        self.timer = None
        now = self.now()
        looks = 0
        while self.due and self.due[0] <= now and looks < LOOKS_MAX:
            slot = self.due[0]
            links = self.slots[slot]
            while links and looks < LOOKS_MAX:
                link, period = links.pop()
                looks += 1
                if self.is_there(link):
                    self.place(link, period, max(slot + period, now + 1))
            if not links:
                del self.slots[slot]
                heapq.heappop(self.due)
        self.set_timer()
        if self.scheduler.outbox:
            self.scheduler.schedule_pass()
