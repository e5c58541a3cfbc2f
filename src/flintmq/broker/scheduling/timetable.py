"""What the broker does when its time comes: expiry, delays, timeouts.

An object that has many things to come (a queue with a deadline for each message) keeps them in its own
order and has one alarm here, for the first of them. So there are about as many alarms as queues.

An alarm that is cancelled stays in its heap. When a heap has grown to twice what it was after it was last
sorted out, it is put aside, and each new alarm sorts out some of it:

    alarms   a heap of new ones, and of those from `aside` that are not cancelled
    aside    a heap too: what is taken from its end leaves it one

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
# Cancelled alarms that come before the next one and are taken out in each look for it, two microseconds each:
# a hundred thousand may have been cancelled at once.
CANCELLED_MAX = 64
# A heap of fewer alarms is left as it is.
SORTED_OUT_MIN = 1024
# Of what is put aside, so many are sorted out with each new alarm.
SORTED_OUT_STEP = 4


class Alarm:
    """Something due at a time; cancelled by forgetting what it calls."""

    __slots__ = ("callback", "due_ms", "order")

    def __init__(self, due_ms: int, order: int, callback: Callable[[], object]) -> None:
        self.due_ms = due_ms
        self.order = order
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None

    def __lt__(self, other: Alarm) -> bool:
        return (self.due_ms, self.order) < (other.due_ms, other.order)


class Timetable:
    """The alarms of one broker, soonest first."""

    __slots__ = ("alarms", "aside", "clock", "made", "offset_ms", "sort_out_at", "started_ms")

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.offset_ms = clock.wall_ms() - round(clock.monotonic_s() * 1000)
        self.started_ms = self.now_ms()
        self.alarms: list[Alarm] = []
        self.aside: list[Alarm] = []
        self.sort_out_at = SORTED_OUT_MIN
        self.made = 0

    def now_ms(self) -> int:
        return self.offset_ms + int(self.clock.monotonic_s() * 1000)

    def go_on_from(self, noted_ms: int) -> int:
        """Never lets the time be before `noted_ms`; returns how far the machine's clock is behind, in ms."""
        behind_ms = max(noted_ms - self.now_ms(), 0)
        self.offset_ms += behind_ms
        self.started_ms += behind_ms
        return behind_ms

    def at(self, due_ms: int, callback: Callable[[], object]) -> Alarm:
        """Calls back once, at `due_ms` or as soon after it as the loop gets to it."""
        self.made += 1
        alarm = Alarm(due_ms, self.made, callback)
        if self.aside:
            self.sort_out()
        elif len(self.alarms) >= self.sort_out_at:
            self.aside, self.alarms = self.alarms, []
        heapq.heappush(self.alarms, alarm)
        return alarm

    def sort_out(self) -> None:
        """Some of what is put aside goes back, or, if it is cancelled, for good."""
        for _ in range(min(SORTED_OUT_STEP, len(self.aside))):
            alarm = self.aside.pop()
            if alarm.callback is not None:
                heapq.heappush(self.alarms, alarm)
        if not self.aside:
            self.sort_out_at = max(SORTED_OUT_MIN, 2 * len(self.alarms))

    def has_alarms(self) -> bool:
        return bool(self.alarms or self.aside)

    def first(self) -> list[Alarm] | None:
        """The heap whose first alarm is due first of all, be that alarm cancelled or not."""
        if not self.aside:
            return self.alarms or None
        return self.alarms if self.alarms and self.alarms[0] < self.aside[0] else self.aside

    def next_due_ms(self) -> int | None:
        """When `run` has something to do, if ever: it may be that an alarm is cancelled which is due then."""
        heap = self.first()
        for _ in range(CANCELLED_MAX):
            if heap is None or heap[0].callback is not None:
                break
            heapq.heappop(heap)
            heap = self.first()
        return None if heap is None else heap[0].due_ms

    def run(self) -> None:
        """Everything that is due by now."""
        now_ms = self.now_ms()
        until_s = self.clock.monotonic_s() + RUN_S
        for _ in range(ALARMS_MAX_PER_RUN):
            heap = self.first()
            if heap is None or heap[0].due_ms > now_ms:
                return
            callback = heapq.heappop(heap).callback
            if callback is not None:
                try:
                    callback()
                except Exception:  # what else is due has its turn all the same
                    log.exception("a bug ends what was due")
                if self.clock.monotonic_s() > until_s:
                    return
