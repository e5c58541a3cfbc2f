"""A regular expression as a condition of the matching engine: the exchange type x-regexp has them."""

from __future__ import annotations

from collections.abc import Hashable

from flintmq.broker.matching import lookup as lookups
from flintmq.broker.matching.condition import EQUAL, Condition, Cover, any_of, cover_of_text
from flintmq.broker.matching.lookup import Lookup, Reference
from flintmq.patterns.regexp import Regexp, StateBudget
from flintmq.patterns.regexp_parser import Machine, Tree, parse_regexp


class RegexpCondition(Condition):
    """A pattern, and the header or property that it is searched for in."""

    __slots__ = ("pattern", "reference", "regexp")

    def __init__(self, form: Hashable, reference: Reference, pattern: str, budget: StateBudget) -> None:
        Condition.__init__(self, form)
        self.reference = reference
        self.pattern = pattern
        self.regexp = Regexp(Machine(parse_regexp(pattern)), budget)

    def cover(self) -> Cover:
        # Parsed once more: a tree that is kept is larger than all the rest of a condition.
        return cover_of(parse_regexp(self.pattern), self.reference)

    def holds(self, lookup: Lookup) -> bool:
        value = lookup.value(self.reference)
        if type(value) is not str:
            return False
        is_found = self.regexp.search(value, lookups.STEPS_MAX - lookup.steps)
        lookup.spend(self.regexp.steps)
        return is_found


def cover_of(tree: Tree, reference: Reference) -> Cover:
    """What every text has in which the pattern is found."""
    if tree[0] == "alt":
        return any_of([cover_of(branch, reference) for branch in tree[1]])
    items = flatten(tree)
    runs: list[str] = [""]
    starts_run = ends_run = False
    for index, item in enumerate(items):
        if item[0] == "letters" and len(item[1]) == 1 and item[1][0][0] == item[1][0][1]:
            if index == 1 and items[0] == ("start",):
                starts_run = True
            runs[-1] += chr(item[1][0][0])
        elif item == ("end",) and index == len(items) - 1:
            ends_run = bool(runs[-1])
        else:
            runs.append("")
    prefix = runs[1] if starts_run else ""
    suffix = runs[-1] if ends_run else ""
    if starts_run and ends_run and len(runs) == 2:
        return (EQUAL, reference, prefix)
    return cover_of_text(reference, prefix, suffix, runs)


def flatten(tree: Tree) -> list[Tree]:
    """A tree as the items that follow each other, those of plain groups included."""
    if tree[0] != "cat":
        return [tree]
    return [flat for item in tree[1] for flat in flatten(item)]
