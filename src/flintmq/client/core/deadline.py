"""The one deadline of a blocking call, handed down to everything that the call waits for."""

from __future__ import annotations

from flintmq.clock import Clock


class Deadline:
    """A point in time, and how long it was away when it was set."""

    __slots__ = ("at_s", "clock", "timeout_s")

    def __init__(self, clock: Clock, timeout_s: float) -> None:
        self.clock = clock
        self.timeout_s = timeout_s
        self.at_s = clock.monotonic_s() + timeout_s

    def left_s(self) -> float:
        return max(0.0, self.at_s - self.clock.monotonic_s())

    def is_over(self) -> bool:
        return self.clock.monotonic_s() >= self.at_s

    def within(self, timeout_s: float) -> Deadline:
        """This deadline, or one so far from now if that is sooner."""
        other = Deadline(self.clock, timeout_s)
        return other if other.at_s < self.at_s else self

    def at_least(self, timeout_s: float, late_s_max: float) -> Deadline:
        """This deadline, or one so far from now if that is later: `late_s_max` after this one at most."""
        other = Deadline(self.clock, timeout_s)
        other.at_s = min(other.at_s, self.at_s + late_s_max)
        return other if other.at_s > self.at_s else self
