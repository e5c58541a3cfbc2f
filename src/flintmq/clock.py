"""Time and chance come in here, so that a simulation can replace both."""

from __future__ import annotations

import random
import time


class Clock:
    """The machine's own time and randomness."""

    def __init__(self) -> None:
        self.random: random.Random = random.SystemRandom()

    def monotonic_s(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """For a pause that no event can end, such as the one before the next attempt to connect."""
        time.sleep(seconds)

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


class MovableClock(Clock):
    """The machine's time, and as much more as somebody has moved it ahead: for tests of what takes hours."""

    def __init__(self, ahead_s: float = 0.0) -> None:
        super().__init__()
        self.ahead_s = ahead_s

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.ahead_s

    def wall_ms(self) -> int:
        return super().wall_ms() + round(self.ahead_s * 1000)


def monotonic_us() -> int:
    """The machine's own time whatever the clock: for measuring how long work takes, never for deciding."""
    return time.monotonic_ns() // 1000
