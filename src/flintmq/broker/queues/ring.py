# cython: boundscheck=False, wraparound=False
"""A first-in first-out sequence of any length, in which nothing is ever moved in one go.

    items   | . . . | head ........... head+near | . . . |      a list, indexes wrap by `mask`
    blocks  [ BLOCK items ] [ BLOCK items ] ... [ 1 to BLOCK ]  what does not fit there, in order

The list's length is a power of two, and doubles up to NEAR_MAX. What comes beyond that goes to blocks, and
when the list runs out the first block takes its place: to copy half a million pointers, and have the garbage
collector look at all of them as at a new list, is many milliseconds. Every index is masked, so it lies within
the list: the compiled module does not ask, and knows no index that counts from the end.
"""

from __future__ import annotations

from typing import Any

SMALLEST = 8
# An emptied ring of up to so many keeps its memory: one read of a socket brings some 4,400 small messages.
NEAR_MAX = 8192
# Some microseconds for whoever makes one or looks at it; of a million items there are a thousand.
BLOCK_BITS = 10
BLOCK = 1 << BLOCK_BITS


class Ring:
    """push at the end, pop at the head, look at any index between."""

    __slots__ = ("blocks", "count", "head", "items", "mask", "near", "room")

    def __init__(self) -> None:
        self.items: list[Any] = [None] * SMALLEST
        self.mask = SMALLEST - 1
        self.head = 0
        self.count = 0
        self.near = 0  # how many of them are in `items`
        self.room = SMALLEST  # up to so many are; 0 while there are blocks, which take what comes
        self.blocks: list[list[Any]] = []

    def push(self, item: Any) -> int:
        if self.near >= self.room and self.put_beyond(item):
            return 0
        self.items[(self.head + self.near) & self.mask] = item
        self.near += 1
        self.count += 1
        return 0

    def put_beyond(self, item: Any) -> bool:
        """The list is full, or has blocks behind it: whether a block has taken the item."""
        if self.room and self.mask < NEAR_MAX - 1:
            self.grow()
            return False
        block = self.blocks[len(self.blocks) - 1] if self.blocks else None
        if block is None or len(block) == BLOCK:
            self.blocks.append([item])
            self.room = 0
        else:
            block.append(item)
        self.count += 1
        return True

    def pop(self) -> Any:
        """The item at the head; the ring must not be empty."""
        item = self.items[self.head]
        self.items[self.head] = None
        self.head = (self.head + 1) & self.mask
        self.near -= 1
        self.count -= 1
        if self.near == 0 and self.blocks:
            self.draw_near()
        return item

    def draw_near(self) -> None:
        """The list has run out: the first block takes its place."""
        block = self.blocks[0]
        near = len(block)
        if near < BLOCK:
            block = block + [None] * (BLOCK - near)
        del self.blocks[0]
        self.items = block
        self.mask = BLOCK - 1
        self.head = 0
        self.near = near
        if not self.blocks:
            self.room = BLOCK

    def pop_last(self) -> Any:
        """The item at the end; the ring must not be empty."""
        self.count -= 1
        if self.blocks:
            block = self.blocks[len(self.blocks) - 1]
            item = block.pop()
            if not block:
                self.blocks.pop()
                if not self.blocks:
                    self.room = self.mask + 1
            return item
        self.near -= 1
        index = (self.head + self.near) & self.mask
        item = self.items[index]
        self.items[index] = None
        return item

    def at(self, index: int) -> Any:
        """The item `index` places behind the head; 0 <= index < count."""
        if index < self.near:
            return self.items[(self.head + index) & self.mask]
        index -= self.near
        block = self.blocks[index >> BLOCK_BITS]
        return block[index & BLOCK - 1]

    def replace(self, index: int, item: Any) -> None:
        if index < self.near:
            self.items[(self.head + index) & self.mask] = item
        else:
            index -= self.near
            block = self.blocks[index >> BLOCK_BITS]
            block[index & BLOCK - 1] = item

    def grow(self) -> None:
        self.items = self.items[self.head :] + self.items[: self.head] + [None] * len(self.items)
        self.mask = len(self.items) - 1
        self.head = 0
        self.room = len(self.items)

    def clear(self) -> None:
        self.items = [None] * SMALLEST
        self.mask = SMALLEST - 1
        self.head = 0
        self.count = 0
        self.near = 0
        self.room = SMALLEST
        self.blocks = []
