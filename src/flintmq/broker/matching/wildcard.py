"""Patterns in which one sign stands for any letter and another for any number of letters.

    LIKE      _   and   %      'stock.%.s_1'
    prop-wild ?   and   *      stock.*.s?1

A pattern is cut at the signs for any number of letters. The first segment must fit the start of the text,
the last its end, and those between are found one after another, each as far left as it will go: whatever
a later place could match, the first one can as well. So there is no going back. A segment of plain letters
is found by str.find; one with signs for any letter by a bit for each of its letters (shift-and). Both look
at each letter of the text once, and these are counted (Lookup.spend).
"""

from __future__ import annotations

from itertools import pairwise

from flintmq.broker.matching.condition import EQUAL, Cover, cover_of_text
from flintmq.broker.matching.lookup import Lookup, Reference

ANY_LETTER = None
# Letters of a text that are looked at in a step of Lookup.spend: by str.find, and as many fewer by shift-and,
# with so many more of its bits.
LETTERS_A_STEP = 32
SHIFT_AND_COST = 10
BITS_OF_COST = 32


class Segment:
    """Letters, of which some may be any: `letters` has None there."""

    __slots__ = ("last", "masks", "size", "text", "wild")

    def __init__(self, letters: list[str | None]) -> None:
        self.size = len(letters)
        wild = [at for at, letter in enumerate(letters) if letter is ANY_LETTER]
        self.text = "".join(["\0" if letter is ANY_LETTER else letter for letter in letters])
        self.wild: set[int] | None = set(wild) if wild else None
        self.masks: dict[str | None, int] | None = None
        self.last = 1 << self.size >> 1
        if wild:
            free = sum([1 << at for at in wild])
            self.masks = {ANY_LETTER: free}
            for at, letter in enumerate(letters):
                if letter is not ANY_LETTER:
                    self.masks[letter] = self.masks.get(letter, free) | 1 << at

    def runs(self) -> list[str]:
        """The stretches of plain letters."""
        cuts = [-1, *sorted(self.wild or ()), self.size]
        return [self.text[start + 1 : end] for start, end in pairwise(cuts)]

    def fits(self, text: str, start: int) -> bool:
        """Whether it fits at `start`, where there is room for it."""
        if self.wild is None:
            return text.startswith(self.text, start)
        for at in range(self.size):  # noqa: SIM110 - a generator expression is a closure: not in compiled methods
            if text[start + at] != self.text[at] and at not in self.wild:
                return False
        return True

    def find(self, text: str, start: int, end: int) -> int:
        """Where it first fits within start..end; -1 when nowhere."""
        if self.masks is None:
            return text.find(self.text, start, end)
        free = self.masks[ANY_LETTER]
        state = 0
        for at in range(start, end):
            state = (state << 1 | 1) & self.masks.get(text[at], free)
            if state & self.last:
                return at + 1 - self.size
        return -1


class Wildcard:
    """One pattern: segments with any number of letters between them."""

    __slots__ = ("cost", "segments", "shortest")

    def __init__(self, pattern: str, any_letter: str, any_letters: str, escape: str = "") -> None:
        letters: list[str | None] = []
        self.segments: list[Segment] = []
        at = 0
        while at < len(pattern):
            letter = pattern[at]
            at += 1
            if escape and letter == escape:
                # What follows stands for itself; the caller has made sure that something does.
                letters.append(pattern[at])
                at += 1
            elif letter == any_letters:
                self.segments.append(Segment(letters))
                letters = []
            else:
                letters.append(ANY_LETTER if letter == any_letter else letter)
        self.segments.append(Segment(letters))
        self.shortest = sum([segment.size for segment in self.segments])
        # Of a letter of the text, in parts of a step.
        wild = [segment.size for segment in self.segments[1:-1] if segment.wild is not None]
        self.cost = SHIFT_AND_COST + max(wild) // BITS_OF_COST if wild else 1

    def matches(self, text: str, lookup: Lookup | None = None) -> bool:
        """Whether the text fits; what that takes is counted in `lookup`."""
        end = len(text)
        if end < self.shortest:
            return False
        segment = self.segments[0]
        if not segment.fits(text, 0):
            return False
        start = segment.size
        if len(self.segments) == 1:
            return start == end
        last = self.segments[len(self.segments) - 1]
        if not last.fits(text, end - last.size):
            return False
        end -= last.size
        if lookup is not None and len(self.segments) > 2:
            lookup.spend(len(self.segments) + (end - start) * self.cost // LETTERS_A_STEP)
        for index in range(1, len(self.segments) - 1):
            segment = self.segments[index]
            if segment.size:
                start = segment.find(text, start, end)
                if start < 0:
                    return False
                start += segment.size
        return start <= end

    def cover(self, reference: Reference) -> Cover:
        """What a text that matches must have."""
        first, last = self.segments[0], self.segments[-1]
        if len(self.segments) == 1 and first.wild is None:
            return (EQUAL, reference, first.text)
        runs = [run for segment in self.segments for run in segment.runs()]
        return cover_of_text(reference, first.runs()[0], last.runs()[-1], runs)
