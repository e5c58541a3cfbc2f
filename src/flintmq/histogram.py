"""How often something took how long: counts of values in buckets, each wider than the one before.

    bounds    100 us   200 us   400 us  ...  and more
    counts  |   17   |   4    |   0    | ... |   1   |     each value is in the first bucket that holds it

To note a value costs some 20 ns. One thread notes; others may read, and see a value late at the worst.
"""

from __future__ import annotations


class Histogram:
    """Values in microseconds."""

    __slots__ = ("counts", "factor", "first_us", "sum_us")

    def __init__(self, first_us: int, factor: int, bounds: int) -> None:
        self.first_us = first_us
        self.factor = factor
        self.counts = [0] * (bounds + 1)  # the last is of what exceeds all bounds
        self.sum_us = 0

    def note(self, value_us: int) -> int:
        if value_us < 0:
            value_us = 0
        bound_us = self.first_us
        index = 0
        last = len(self.counts) - 1
        while index < last and value_us > bound_us:
            bound_us *= self.factor
            index += 1
        self.counts[index] += 1
        self.sum_us += value_us
        return 0

    def told(self) -> tuple[list[int], list[int], int]:
        """The bounds, the counts, of which there is one more, and the sum of all values."""
        bounds = [self.first_us * self.factor**index for index in range(len(self.counts) - 1)]
        return bounds, list(self.counts), self.sum_us
