"""How many messages a user, or all users of a virtual host, may publish in a second.

    time    ----+-----------+------------------------->
                now         due: when all that was published would have come, one after the other

Each message moves `due` on by its share of a second. A publisher waits until `due` has come. A publisher that
was silent has a tenth of a second in hand. `due` is never further ahead than a few seconds: thousands of
connections that publish one message each would else have the next publisher wait for hours.
"""

from __future__ import annotations

IN_HAND_US = 100_000
AHEAD_US_MAX = 10_000_000


class PublishRate:
    """What was published under one limit, by however many connections."""

    __slots__ = ("due_us", "rate")

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self.due_us = 0.0

    def take(self, now_us: int) -> int:
        """One message more was published; how long its publisher is to wait, 0 or less if not at all."""
        due_us = max(self.due_us, float(now_us - IN_HAND_US)) + 1_000_000 / self.rate
        self.due_us = min(due_us, float(now_us + AHEAD_US_MAX))
        return int(self.due_us) - now_us
