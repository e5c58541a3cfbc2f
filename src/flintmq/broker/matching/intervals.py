"""Conditions on a number, each with the interval it must lie in; which of them does a value meet?

A balanced tree laid out in lists that are sorted by the low bound. The middle of a stretch is its root,
and `reaches` has for each root the highest bound of its whole stretch:

    lows      1  2  4 [5] 7  8  9        value 6: the root reaches up to 30, so go left and right;
    highs     2  9  5 [6] 8 30  9        stretches that end before 6, or start after it, are left out
    reaches   2  9  5 [30] 8 30 9

What was added since waits in `pending`, where it is looked at one by one; what was removed stays in the
tree without destinations. The tree is made anew when either has grown to a fraction of it.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any, TypeAlias

from flintmq.broker.matching.condition import Condition

Entry: TypeAlias = tuple[Any, Any, Condition]

_low = itemgetter(0)

# How many may wait, beside a quarter of the tree.
PENDING_MIN = 32


class Intervals:
    """Closed intervals as entries (low, high, condition)."""

    __slots__ = ("conditions", "entries", "highs", "lows", "pending", "reaches")

    def __init__(self) -> None:
        self.entries: dict[Entry, None] = {}
        self.pending: dict[Entry, None] = {}
        self.lows: list[Any] = []
        self.highs: list[Any] = []
        self.reaches: list[Any] = []
        self.conditions: list[Condition] = []

    def count(self) -> int:
        return len(self.entries)

    def add(self, low: Any, high: Any, condition: Condition) -> None:
        entry = (low, high, condition)
        self.entries[entry] = None
        self.pending[entry] = None

    def remove(self, low: Any, high: Any, condition: Condition) -> None:
        entry = (low, high, condition)
        del self.entries[entry]
        self.pending.pop(entry, None)

    def stab(self, value: Any) -> list[Condition]:
        """The conditions with an interval that `value` lies in; one with several may be there repeatedly."""
        if len(self.pending) > PENDING_MIN + len(self.lows) // 4 or len(self.lows) > 2 * len(self.entries):
            self.rebuild()
        hits: list[Condition] = []
        self.search(value, 0, len(self.lows), hits)
        for entry in self.pending:
            if entry[0] <= value <= entry[1]:
                hits.append(entry[2])
        return hits

    def rebuild(self) -> None:
        entries = sorted(self.entries, key=_low)
        self.lows = [entry[0] for entry in entries]
        self.highs = [entry[1] for entry in entries]
        self.conditions = [entry[2] for entry in entries]
        self.reaches = [None] * len(entries)
        self.reach(0, len(entries))
        self.pending = {}

    def reach(self, low: int, high: int) -> Any:
        """The highest bound of a stretch that is not empty, noted for each root in it."""
        middle = (low + high) // 2
        if low >= high:
            return None
        highest = self.highs[middle]
        for other in (self.reach(low, middle), self.reach(middle + 1, high)):
            if other is not None and other > highest:
                highest = other
        self.reaches[middle] = highest
        return highest

    def search(self, value: Any, low: int, high: int, hits: list[Condition]) -> None:
        while low < high:
            middle = (low + high) // 2
            if self.reaches[middle] < value:
                return
            self.search(value, low, middle, hits)
            if self.lows[middle] > value:
                return
            if self.highs[middle] >= value:
                condition = self.conditions[middle]
                if condition.destinations is not None:
                    hits.append(condition)
            low = middle + 1
