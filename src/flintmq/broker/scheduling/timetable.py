"""What the broker does when its time comes: expiry, delays, timeouts.

An object that has many things to come (a queue with a deadline for each message) keeps them in its own
order and has one alarm here, for the first of them. So there are about as many alarms as queues.

Time is in milliseconds since 1970. It is read from the wall once, at the start, and goes on with the
monotonic clock: setting the machine's clock neither fires everything at once nor stops it all. Nor does time
go back over a restart: a broker with a store goes on from the time that its last life has noted.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flintmq.clock import Clock

log = logging.getLogger("flintmq.timetable")

# A run that makes its own next alarm due at once must still come to an end; a thousand queues may each have
# a thousand messages that expire now, so a run ends by the clock too.
ALARMS_MAX_PER_RUN = 1000
RUN_S = 0.01


class Alarm:
    """Something due at a time; cancelled by forgetting what it calls."""

    __slots__ = ("callback", "due_ms", "order")

    def __init__(self, due_ms: int, order: int, callback: Callable[[], None]) -> None:
        self.due_ms = due_ms
        self.order = order
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None

    def __lt__(self, other: Alarm) -> bool:
        return (self.due_ms, self.order) < (other.due_ms, other.order)


class Timetable:
    """The alarms of one broker, soonest first."""

    __slots__ = ("alarms", "clock", "made", "offset_ms", "started_ms")

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.offset_ms = clock.wall_ms() - round(clock.monotonic_s() * 1000)
        self.started_ms = self.now_ms()
        self.alarms: list[Alarm] = []
        self.made = 0

    def now_ms(self) -> int:
        return self.offset_ms + int(self.clock.monotonic_s() * 1000)

    def go_on_from(self, noted_ms: int) -> int:
        """Never lets the time be before `noted_ms`; returns how far the machine's clock is behind, in ms."""
        behind_ms = max(noted_ms - self.now_ms(), 0)
        self.offset_ms += behind_ms
        self.started_ms += behind_ms
        return behind_ms

    def at(self, due_ms: int, callback: Callable[[], None]) -> Alarm:
        """Calls back once, at `due_ms` or as soon after it as the loop gets to it."""
        self.made += 1
        alarm = Alarm(due_ms, self.made, callback)
        heapq.heappush(self.alarms, alarm)
        return alarm

    def next_due_ms(self) -> int | None:
        """When `run` has something to do, if ever."""
        while self.alarms and self.alarms[0].callback is None:
            heapq.heappop(self.alarms)
        return self.alarms[0].due_ms if self.alarms else None

    def run(self) -> None:
        """Everything that is due by now."""
        now_ms = self.now_ms()
        until_s = self.clock.monotonic_s() + RUN_S
        for _ in range(ALARMS_MAX_PER_RUN):
            due_ms = self.next_due_ms()
            if due_ms is None or due_ms > now_ms:
                return
            callback = heapq.heappop(self.alarms).callback
            if callback is not None:
                try:
                    callback()
                except Exception:  # what else is due has its turn all the same
                    log.exception("a bug ends what was due")
                if self.clock.monotonic_s() > until_s:
                    return
