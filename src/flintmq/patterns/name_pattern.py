"""Patterns over the names of queues and exchanges, as permissions and policies have them.

A pattern is searched for with the machine of regexp.py, which looks at each letter of a name once: no pattern
makes a name slow to decide. Of what such a machine cannot do, one form is usual and has a way of its own:

    ^(?!amq\\.)rest     found where `rest` is and `^(?:amq\\.)` is not

Most patterns begin with ^ and some letters, or have some letters in them that every match has. A name that
begins otherwise, or has not these letters, is decided by that alone: of a thousand policies the machines of a
few are asked, which take some ten microseconds each.
"""

from __future__ import annotations

import re

from flintmq.errors import ChannelFault, FlintError
from flintmq.patterns.regexp import Regexp, StateBudget
from flintmq.patterns.regexp_parser import Machine, Ranges, Tree, parse_regexp

PATTERN_CHARS_MAX = 1024
# A letter that stands for itself, and is there: no repetition follows it that could make it none.
LETTERS = re.compile(r"(?:(?:[\w-]|\\[.-])(?![*?{]))*", re.ASCII)
UNLESS = "^(?!"

# Over all patterns together; what it forgets is made again.
_budget = StateBudget()


class PatternFault(FlintError):
    """Says what is wrong with a pattern, and where."""


class NamePattern:
    """One pattern; it matches anywhere in a name unless ^ or $ say otherwise."""

    __slots__ = ("beginning", "found", "needed", "places", "refused", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        if len(text) > PATTERN_CHARS_MAX:
            raise PatternFault(f"it has {len(text)} letters, {PATTERN_CHARS_MAX} at most")
        self.refused: Regexp | None = None
        self.places = 0  # of its machines: what a letter of a name may cost the first time
        if text.startswith(UNLESS):
            end = end_of_group(text)
            self.refused = self.machine(f"^(?:{text[len(UNLESS) : end]})")
            text = f"^{text[end + 1 :]}"
        self.found = self.machine(text)
        self.beginning = beginning_of(text)
        self.needed = needed_in(parse_regexp(text))

    def machine(self, text: str) -> Regexp:
        try:
            machine = Machine(parse_regexp(text))
        except ChannelFault as fault:
            raise PatternFault(fault.text.removeprefix("pattern, ")) from None
        self.places += len(machine.code)
        return Regexp(machine, _budget)

    def may_match(self, name: str) -> bool:
        """False if the letters alone tell that it does not match."""
        return name.startswith(self.beginning) and self.needed in name

    def matches(self, name: str) -> bool:
        if not self.may_match(name):
            return False
        if self.refused is not None and self.refused.matches(name):
            return False
        return self.found.matches(name)


def beginning_of(text: str) -> str:
    """The letters that every name begins with in which the pattern is found."""
    if not text.startswith("^") or "|" in text:
        return ""
    found = LETTERS.match(text, 1)
    return "" if found is None else found[0].replace("\\", "")


def needed_in(tree: Tree) -> str:
    """The longest letters in a row that each match has, as far as can be seen outside of groups."""
    longest = run = ""
    for item in tree[1] if tree[0] == "cat" else (tree,):
        ranges: Ranges = item[1] if item[0] == "letters" else ()
        first = [low for low, high in ranges if low == high]
        run = run + chr(first[0]) if first and len(ranges) == 1 else ""
        longest = max(longest, run, key=len)
    return longest


def end_of_group(text: str) -> int:
    """Where the group ends that follows the first letter."""
    depth = 0
    is_class = False
    at = 1
    while at < len(text):
        letter = text[at]
        if letter == "\\":
            at += 1
        elif is_class:
            is_class = letter != "]"
        elif letter == "[":
            is_class = True
            # Where a class begins, ] is a letter.
            at += 2 if text[at + 1 : at + 3] == "^]" else text[at + 1 : at + 2] == "]"
        elif letter == "(":
            depth += 1
        elif letter == ")":
            depth -= 1
            if not depth:
                break
        at += 1
    else:
        raise PatternFault("position 2: expected the ')' of the group that starts here")
    if text[at + 1 : at + 2] in ("|", "*", "+", "?", "{") or has_alternatives(text[at + 1 :]):
        raise PatternFault(f"position {at + 2}: behind (?!...) neither a repetition nor '|' is supported")
    return at


def has_alternatives(text: str) -> bool:
    """Whether a | stands outside of groups: the (?!...) before it is of the first alternative alone."""
    tree = parse_tree(text)
    return tree is not None and tree[0] == "alt"


def parse_tree(text: str) -> tuple[object, ...] | None:
    try:
        return parse_regexp(text)
    except ChannelFault:
        return None  # NamePattern.machine says what is wrong
