"""The matching engine: which of many conditions does a message fulfil?

An inverted index. Each condition hangs at homes that together are met by every message it can hold for
(condition.py); a message visits the slots of the names it has, and is held against what it meets there.

    names   "symbol" -> values    "IBM" -> conditions           EQUAL
                        prefixes  "stock.ny" -> conditions      PREFIX, by each length in use
                        suffixes, grams                         SUFFIX, GRAM (anywhere in the text)
                        intervals a tree of low..high           BETWEEN
                        present   conditions                    PRESENT
    everywhere  conditions without a home: met by every message

Where a condition could hang at more than one home it takes the one that fewest share when it comes, so
that one common term does not make every message look at every binding. The cost of a match is the number
of names and of the conditions met, not of those there are. A condition is met once for a message, however
many of its homes are.
"""

from __future__ import annotations

from collections.abc import Hashable
from math import inf
from typing import Any

from flintmq.broker.matching import counted_set
from flintmq.broker.matching.condition import (
    ALL_OF,
    ANY_OF,
    BETWEEN,
    EQUAL,
    GRAM,
    PREFIX,
    PRESENT,
    SUFFIX,
    Condition,
    Cover,
)
from flintmq.broker.matching.intervals import Intervals
from flintmq.broker.matching.lookup import AskedNames, Lookup, Reference

# What a home costs that nobody shares yet, in units of one more condition that is met: a number from low to
# high is rarer than mere presence, a value is rarest.
_BETWEEN_COST = 32
_PRESENT_COST = 256
# A short text is in many others: one letter costs 16, two cost 4, from five on it is nothing.
_TEXT_COST = 16
# Grams of a text that are looked for in a step of Lookup.spend.
GRAMS_A_STEP = 2


def cost_of(kind: int, value: Any) -> int:
    """What a home costs by itself."""
    if kind == EQUAL:
        return 0
    if kind == BETWEEN:
        return _BETWEEN_COST
    if kind == PRESENT:
        return _PRESENT_COST
    return _TEXT_COST // (len(value) * len(value)) + (kind == GRAM)


class Pieces:
    """Prefixes, suffixes or grams: conditions by text, and the lengths that there are."""

    __slots__ = ("counts", "sizes", "texts")

    def __init__(self) -> None:
        self.texts: dict[str, counted_set.CountedSet] = {}
        self.counts: dict[int, int] = {}
        self.sizes: list[int] = []

    def find(self, text: str) -> counted_set.CountedSet:
        return self.texts.get(text)

    def add(self, text: str, condition: Condition) -> None:
        self.texts[text] = counted_set.add(self.texts.get(text), condition)
        size = len(text)
        self.counts[size] = self.counts.get(size, 0) + 1
        if self.counts[size] == 1:
            self.sizes = sorted(self.counts)

    def remove(self, text: str, condition: Condition) -> None:
        _take(self.texts, text, condition)
        size = len(text)
        self.counts[size] -= 1
        if not self.counts[size]:
            del self.counts[size]
            self.sizes = sorted(self.counts)


class NameSlot:
    """What hangs at one name."""

    __slots__ = ("grams", "intervals", "prefixes", "present", "suffixes", "uses", "values")

    def __init__(self) -> None:
        self.uses = 0  # homes here; at 0 the name is forgotten
        self.present: counted_set.CountedSet = None
        self.values: dict[Hashable, counted_set.CountedSet] | None = None
        self.prefixes: Pieces | None = None
        self.suffixes: Pieces | None = None
        self.grams: Pieces | None = None
        self.intervals: Intervals | None = None

    def crowd(self, kind: int, value: Any) -> int:
        """How many conditions share a home."""
        if kind == PRESENT:
            return counted_set.size(self.present)
        if kind == EQUAL:
            return 0 if self.values is None else counted_set.size(self.values.get(value))
        if kind == PREFIX:
            return 0 if self.prefixes is None else counted_set.size(self.prefixes.find(value))
        if kind == SUFFIX:
            return 0 if self.suffixes is None else counted_set.size(self.suffixes.find(value))
        if kind == GRAM:
            return 0 if self.grams is None else counted_set.size(self.grams.find(value))
        # An interval shares a value with a part of the others; with how many depends on the message.
        return 0 if self.intervals is None else self.intervals.count() // 4

    def hang(self, kind: int, value: Any, condition: Condition) -> None:
        self.uses += 1
        if kind == PRESENT:
            self.present = counted_set.add(self.present, condition)
        elif kind == EQUAL:
            if self.values is None:
                self.values = {}
            self.values[value] = counted_set.add(self.values.get(value), condition)
        elif kind == PREFIX:
            if self.prefixes is None:
                self.prefixes = Pieces()
            self.prefixes.add(value, condition)
        elif kind == SUFFIX:
            if self.suffixes is None:
                self.suffixes = Pieces()
            self.suffixes.add(value, condition)
        elif kind == GRAM:
            if self.grams is None:
                self.grams = Pieces()
            self.grams.add(value, condition)
        else:
            if self.intervals is None:
                self.intervals = Intervals()
            self.intervals.add(value[0], value[1], condition)

    def unhang(self, kind: int, value: Any, condition: Condition) -> None:
        self.uses -= 1
        if kind == PRESENT:
            self.present = counted_set.remove(self.present, condition)
        elif kind == EQUAL and self.values is not None:
            if not _take(self.values, value, condition):
                self.values = None
        elif kind == PREFIX and self.prefixes is not None:
            self.prefixes.remove(value, condition)
            if not self.prefixes.texts:
                self.prefixes = None
        elif kind == SUFFIX and self.suffixes is not None:
            self.suffixes.remove(value, condition)
            if not self.suffixes.texts:
                self.suffixes = None
        elif kind == GRAM and self.grams is not None:
            self.grams.remove(value, condition)
            if not self.grams.texts:
                self.grams = None
        elif self.intervals is not None:
            self.intervals.remove(value[0], value[1], condition)
            if not self.intervals.count():
                self.intervals = None


class MatchIndex:
    """Conditions and their destinations. `typed`: values are compared as headers exchanges do."""

    __slots__ = (
        "asked",
        "conditions",
        "everywhere",
        "names",
        "numbers",
        "serial",
        "typed",
        "unlisted",
    )

    def __init__(self, typed: bool = False) -> None:
        self.typed = typed
        self.names: dict[Reference, NameSlot] = {}
        self.conditions: dict[Hashable, Condition] = {}
        self.everywhere: counted_set.CountedSet = None
        self.numbers: list[int] = []  # those of the names that are no headers
        self.serial = 0
        # What conditions ask for beside the names, and how many of them may ask for any header.
        self.asked = AskedNames()
        self.unlisted = 0

    def find(self, form: Hashable) -> Condition | None:
        """The condition of this form, if any binding asks for it."""
        return self.conditions.get(form)

    def add(self, condition: Condition, destination: Any) -> None:
        """Leads what fulfils the condition to one more destination; they need not be distinct."""
        if condition.form not in self.conditions:
            self.insert(condition)
        condition.destinations = counted_set.add(condition.destinations, destination)

    def remove(self, form: Hashable, destination: Any) -> None:
        """Takes back one add of the same form and destination; KeyError when there was none."""
        condition = self.conditions[form]
        condition.destinations = counted_set.remove(condition.destinations, destination)
        if condition.destinations is None:
            self.dismiss(condition)

    def insert(self, condition: Condition) -> None:
        cover = condition.cover()
        homes: list[Any] = []
        if self.choose(cover, homes) == inf:
            self.everywhere = counted_set.add(self.everywhere, condition)
        else:
            # Most have one home, and a tuple around it for each of 100,000 would be 5 MB.
            condition.homes = homes[0] if len(homes) == 1 else tuple(dict.fromkeys(homes)) or None
            for kind, reference, value in condition.home_list():
                slot = self.names.get(reference)
                if slot is None:
                    slot = self.names[reference] = NameSlot()
                    if isinstance(reference, int):
                        self.numbers.append(reference)
                slot.hang(kind, value, condition)
        self.conditions[condition.form] = condition
        asked = condition.header_names()
        if asked is None:
            self.unlisted += 1
        else:
            for name in asked:
                self.asked.add(name)

    def choose(self, cover: Cover, homes: list[Any]) -> float:
        """Puts the homes of the best way to cover into `homes`; what it is expected to cost."""
        if cover is None:
            return inf
        kind = cover[0]
        if kind == ANY_OF:
            return sum([self.choose(part, homes) for part in cover[1]])
        if kind != ALL_OF:
            homes.append(cover)
            slot = self.names.get(cover[1])
            crowd = 0 if slot is None else slot.crowd(kind, cover[2])
            return float(cost_of(kind, cover[2]) + crowd)
        best = inf
        chosen: list[Any] = []
        for part in cover[1]:
            tried: list[Any] = []
            cost = self.choose(part, tried)
            if cost < best:
                best, chosen = cost, tried
        homes.extend(chosen)
        return best

    def dismiss(self, condition: Condition) -> None:
        del self.conditions[condition.form]
        asked = condition.header_names()
        if asked is None:
            self.unlisted -= 1
        else:
            for name in asked:
                self.asked.remove(name)
        for kind, reference, value in condition.home_list():
            slot = self.names[reference]
            slot.unhang(kind, value, condition)
            if slot.uses == 0:
                del self.names[reference]
                if isinstance(reference, int):
                    self.numbers.remove(reference)
        if condition.homes is None and counted_set.holds(self.everywhere, condition):
            self.everywhere = counted_set.remove(self.everywhere, condition)

    def match(self, lookup: Lookup, found: dict[Any, Any]) -> int:
        """Puts the destinations of every condition that the message fulfils into `found` as keys.

        Returns what that took, in steps of the lookup; a fault if it took too many.
        """
        self.serial += 1
        if self.everywhere is not None:
            self.meet(self.everywhere, lookup, found)
        if not self.names:
            return lookup.steps
        headers = lookup.headers() if self.unlisted else lookup.headers_among(self.asked)
        for name, value in headers.items():
            # Headers that no condition names are left alone, however large their values are.
            slot = self.names.get(name)
            if slot is None:
                continue
            if type(value) is str or type(value) is int:  # which stand for themselves
                self.visit(slot, value, lookup, found)
            elif self.typed:
                self.visit(slot, lookup.form(name), lookup, found)
            else:
                value = lookup.value(name)
                if value is not None:
                    self.visit(slot, ("bool", value) if type(value) is bool else value, lookup, found)
        for number in self.numbers:
            value = lookup.value(number)
            if value is not None:
                slot = self.names[number]
                self.visit(slot, value, lookup, found)
        return lookup.steps

    def visit(self, slot: NameSlot, value: Any, lookup: Lookup, found: dict[Any, Any]) -> None:
        """Meets what the message meets at one of its names."""
        if slot.present is not None:
            self.meet(slot.present, lookup, found)
        if slot.values is not None:
            self.meet(slot.values.get(value), lookup, found)
        if type(value) is str:
            if slot.prefixes is not None or slot.suffixes is not None or slot.grams is not None:
                self.visit_text(slot, value, lookup, found)
        elif slot.intervals is not None and (type(value) is int or type(value) is float):
            for condition in slot.intervals.stab(value):
                self.meet_one(condition, lookup, found)

    def visit_text(self, slot: NameSlot, text: str, lookup: Lookup, found: dict[Any, Any]) -> None:
        length = len(text)
        if slot.prefixes is not None:
            for size in slot.prefixes.sizes:
                if size > length:
                    break
                self.meet(slot.prefixes.texts.get(text[:size]), lookup, found)
        if slot.suffixes is not None:
            for size in slot.suffixes.sizes:
                if size > length:
                    break
                self.meet(slot.suffixes.texts.get(text[length - size :]), lookup, found)
        if slot.grams is not None:
            for size in slot.grams.sizes:
                lookup.spend(max(0, length - size) // GRAMS_A_STEP)
                for start in range(length - size + 1):
                    self.meet(slot.grams.texts.get(text[start : start + size]), lookup, found)

    def meet(self, conditions: counted_set.CountedSet, lookup: Lookup, found: dict[Any, Any]) -> None:
        if conditions is None:
            return
        if type(conditions) is not dict:
            self.meet_one(conditions, lookup, found)
            return
        for condition in conditions:
            self.meet_one(condition, lookup, found)

    def meet_one(self, condition: Condition, lookup: Lookup, found: dict[Any, Any]) -> None:
        if condition.serial == self.serial:
            return
        condition.serial = self.serial
        if condition.exact:
            lookup.steps += 1
        else:
            lookup.spend(condition.steps)
            if not condition.holds(lookup):
                return
        counted_set.collect(condition.destinations, found)


def _take(slots: dict[Any, counted_set.CountedSet], key: Hashable, condition: Condition) -> bool:
    """Takes a condition from what hangs at `key`; whether anything is left at all."""
    left = counted_set.remove(slots.get(key), condition)
    if left is None:
        del slots[key]
    else:
        slots[key] = left
    return bool(slots)
