# cython: boundscheck=False, wraparound=False
"""A first-in first-out sequence on a list whose length is a power of two.

    items   | . . . | head ......... head+count | . . . |      indexes wrap by `mask`

Growing doubles, and a ring that has emptied gives its memory back. Every index is masked, so it lies within
the list: the compiled module does not ask.
"""

from __future__ import annotations

from typing import Any

SMALLEST = 8
# An emptied ring of up to so many keeps its memory: one read of a socket brings some 4,400 small messages.
KEPT = 8192


class Ring:
    """push at the end, pop at the head, look at any index between."""

    __slots__ = ("count", "head", "items", "mask")

    def __init__(self) -> None:
        self.items: list[Any] = [None] * SMALLEST
        self.mask = SMALLEST - 1
        self.head = 0
        self.count = 0

    def push(self, item: Any) -> int:
        if self.count > self.mask:
            self.grow()
        self.items[(self.head + self.count) & self.mask] = item
        self.count += 1
        return 0

    def pop(self) -> Any:
        """The item at the head; the ring must not be empty."""
        item = self.items[self.head]
        self.items[self.head] = None
        self.head = (self.head + 1) & self.mask
        self.count -= 1
        if self.count == 0 and self.mask >= KEPT:
            self.clear()
        return item

    def pop_last(self) -> Any:
        """The item at the end; the ring must not be empty."""
        self.count -= 1
        index = (self.head + self.count) & self.mask
        item = self.items[index]
        self.items[index] = None
        return item

    def at(self, index: int) -> Any:
        """The item `index` places behind the head; 0 <= index < count."""
        return self.items[(self.head + index) & self.mask]

    def replace(self, index: int, item: Any) -> None:
        self.items[(self.head + index) & self.mask] = item

    def grow(self) -> None:
        self.items = self.items[self.head :] + self.items[: self.head] + [None] * len(self.items)
        self.mask = len(self.items) - 1
        self.head = 0

    def clear(self) -> None:
        self.items = [None] * SMALLEST
        self.mask = SMALLEST - 1
        self.head = 0
        self.count = 0
