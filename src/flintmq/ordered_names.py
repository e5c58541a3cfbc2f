"""Names, or whatever has a place in an order, kept in that order, so that a list goes on from any place.

    parts    [ a .. f ]  [ g .. m ]  [ n .. z ]        512 items each when split, 1,024 at most
    ends       f           m           z               where to look

Adding, removing and finding a place take a search among the parts and one in a part, however many there are.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

PART_ITEMS_MAX = 1024

Item = TypeVar("Item")


class OrderedNames(Generic[Item]):
    """Items in the order of their places; no two have the same."""

    __slots__ = ("ends", "parts", "place_of")

    def __init__(self, place_of: Callable[[Item], Any] | None = None) -> None:
        self.place_of = place_of  # None: an item is its own place
        self.parts: list[list[Item]] = []
        self.ends: list[Any] = []  # the last place in each part

    def __len__(self) -> int:
        return sum(len(part) for part in self.parts)

    def __iter__(self) -> Iterator[Item]:
        for part in self.parts:
            yield from part

    def place(self, item: Item) -> Any:
        return item if self.place_of is None else self.place_of(item)

    def add(self, item: Item) -> None:
        """Puts an item where it belongs; nothing if one is there."""
        place = self.place(item)
        if not self.ends:
            self.parts.append([item])
            self.ends.append(place)
            return
        number = min(bisect_left(self.ends, place), len(self.ends) - 1)
        part = self.parts[number]
        if place > self.ends[number]:
            part.append(item)
            self.ends[number] = place
        else:
            at = bisect_left(part, place, key=self.place_of)
            if self.place(part[at]) == place:
                return
            part.insert(at, item)
        if len(part) > PART_ITEMS_MAX:
            # What comes in order fills parts whole: the next one begins with this item.
            half = PART_ITEMS_MAX if part[-1] is item else PART_ITEMS_MAX // 2
            self.parts.insert(number + 1, part[half:])
            self.ends.insert(number, self.place(part[half - 1]))
            del part[half:]

    def append(self, item: Item) -> None:
        """Puts an item behind all others, where it belongs."""
        place_of = self.place_of
        place = item if place_of is None else place_of(item)
        last = self.parts[-1] if self.parts else None
        if last is not None and len(last) < PART_ITEMS_MAX:
            last.append(item)
            self.ends[-1] = place
        else:
            self.parts.append([item])
            self.ends.append(place)

    def discard(self, item: Item) -> None:
        """Takes an item out, if it is there."""
        place = self.place(item)
        number = bisect_left(self.ends, place)
        if number == len(self.ends):
            return
        part = self.parts[number]
        at = bisect_left(part, place, key=self.place_of)
        if self.place(part[at]) != place:
            return
        del part[at]
        if not part:
            del self.parts[number]
            del self.ends[number]
        elif at == len(part):
            self.ends[number] = self.place(part[-1])

    def after(self, place: Any) -> Iterator[Item]:
        """The items behind a place, all if None. The directory must not change meanwhile."""
        first = 0 if place is None else bisect_right(self.ends, place)
        if first < len(self.parts):
            part = self.parts[first]
            start = 0 if place is None else bisect_right(part, place, key=self.place_of)
            yield from part[start:]
            for number in range(first + 1, len(self.parts)):
                yield from self.parts[number]

    def portion(self, place: Any, most: int) -> list[Item]:
        """The first of those behind a place, None for all; at least one if there is any, `most` at the most.

        It ends where a part does: items are copied together, whoever walks over many takes little time here.
        """
        number = 0 if place is None else bisect_right(self.ends, place)
        if number == len(self.parts):
            return []
        part = self.parts[number]
        start = 0 if place is None else bisect_right(part, place, key=self.place_of)
        return part[start : start + most]
