"""What a binding asks of a message, and where an index may keep it so that few messages meet it.

A condition has a *cover*: what must be true of every message that it holds for, in terms which an index
can look up. It is a home, or a choice of covers:

    (EQUAL, reference, value)           the value is this one
    (PREFIX | SUFFIX, reference, text)  it is a text that starts or ends so
    (GRAM, reference, text)             it is a text with this one somewhere in it
    (BETWEEN, reference, (low, high))   it is a number from low to high
    (PRESENT, reference, None)          there is one
    (ALL_OF, covers)                    each of them is a cover: take the one that is best now
    (ANY_OF, covers)                    only all of them together are: one of them is true
    None                                nothing can be said

A reference is what Lookup takes. True and False stand as ("bool", value): 1 would equal True.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, TypeAlias

from flintmq.broker.matching import counted_set
from flintmq.broker.matching.lookup import Lookup, Reference

PRESENT = 0
EQUAL = 1
PREFIX = 2
SUFFIX = 3
GRAM = 4
BETWEEN = 5
ALL_OF = 6
ANY_OF = 7

# The lengths that grams may have: a message is looked at from each of its letters for each length in use.
GRAM_SIZES = (12, 8, 5, 3)
# A longer prefix or suffix tells no more bindings apart, and every length in use costs a message a look.
AFFIX_CHARS_MAX = 32
# Grams of one pattern that are considered: more do not find a rarer one often enough.
GRAMS_MAX = 32

# To read a condition takes some 1.2 microseconds for a letter of a selector or pattern, and 0.3 milliseconds
# where a pattern repeats something a thousand times, or is refused for that. As PassWork.copies counts.
LETTER_COPIES = 32
REPETITION_COPIES = 8192

Cover: TypeAlias = tuple[Any, ...] | None


def reading_copies(given: object) -> int:
    """To read a condition from this takes as long, at most, as to put so many messages into queues."""
    if isinstance(given, str):
        return LETTER_COPIES * len(given) + (REPETITION_COPIES if "{" in given else 0)
    if isinstance(given, dict):
        return sum([reading_copies(name) + reading_copies(value) for name, value in given.items()])
    if isinstance(given, list | tuple):
        return sum([reading_copies(each) for each in given])
    return 0


def all_of(covers: Iterable[Cover]) -> Cover:
    """The cover of conditions that must all hold."""
    known = tuple([cover for cover in covers if cover is not None])
    return None if not known else known[0] if len(known) == 1 else (ALL_OF, known)


def any_of(covers: Iterable[Cover]) -> Cover:
    """The cover of conditions of which one must hold; of none at all, it is never met."""
    known: list[Cover] = []
    for cover in covers:
        if cover is None:
            return None
        known.append(cover)
    return known[0] if len(known) == 1 else (ANY_OF, tuple(known))


def key_of(value: Any) -> Hashable:
    """A plain value as the key of an EQUAL home."""
    return ("bool", value) if type(value) is bool else value


def gram_size(length: int) -> int:
    """The longest grams that a run of letters has; 0 when it is too short for any."""
    for size in GRAM_SIZES:
        if size <= length:
            return size
    return 0


def cover_of_text(reference: Reference, prefix: str, suffix: str, runs: Iterable[str]) -> Cover:
    """The cover of a text that starts and ends so, and has each of `runs` in it."""
    homes: list[Cover] = []
    if prefix:
        homes.append((PREFIX, reference, prefix[:AFFIX_CHARS_MAX]))
    if suffix:
        homes.append((SUFFIX, reference, suffix[-AFFIX_CHARS_MAX:]))
    grams: dict[str, None] = {}
    for run in (*runs, prefix, suffix):
        size = gram_size(len(run))
        for start in range(len(run) - size + 1 if size else 0):
            if len(grams) < GRAMS_MAX:
                grams[run[start : start + size]] = None
    homes.extend((GRAM, reference, gram) for gram in grams)
    return all_of(homes) or (PRESENT, reference, None)


class Condition:
    """Bindings that ask for the same share one, so a message is held against it once."""

    __slots__ = ("destinations", "exact", "form", "homes", "serial", "steps")

    def __init__(self, form: Hashable, steps: int = 1) -> None:
        self.form = form  # equal for two conditions that are the same
        self.steps = steps  # what to ask it takes, without what is counted as it goes (Lookup.spend)
        self.destinations: counted_set.CountedSet = None
        self.homes: tuple[Any, ...] | None = None  # one home, or a tuple of several
        # Whether a message that meets any of the homes fulfils it: nothing is left to look at.
        self.exact = False
        self.serial = 0  # of the last match that has looked at it

    def home_list(self) -> tuple[Any, ...]:
        """The homes where an index keeps it."""
        if self.homes is None:
            return ()
        return self.homes if type(self.homes[0]) is tuple else (self.homes,)

    def header_names(self) -> list[str] | None:
        """All headers that `cover` and `holds` ask for; None where that cannot be told."""
        return None

    def cover(self) -> Cover:
        raise NotImplementedError

    def holds(self, lookup: Lookup) -> bool:
        raise NotImplementedError
