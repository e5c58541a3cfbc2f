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
