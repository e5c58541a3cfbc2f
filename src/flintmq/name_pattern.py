"""Patterns over the names of queues and exchanges, as permissions and policies have them.

A pattern is searched for with the machine of regexp.py, which looks at each letter of a name once: no pattern
makes a name slow to decide. Of what such a machine cannot do, one form is usual and has a way of its own:

    ^(?!amq\\.)rest     found where `rest` is and `^(?:amq\\.)` is not
"""

from __future__ import annotations

from flintmq.errors import ChannelFault, FlintError
from flintmq.regexp import Regexp, StateBudget
from flintmq.regexp_parser import Machine, parse_regexp

PATTERN_CHARS_MAX = 1024
UNLESS = "^(?!"

# Over all patterns together; what it forgets is made again.
_budget = StateBudget()


class PatternFault(FlintError):
    """Says what is wrong with a pattern, and where."""


class NamePattern:
    """One pattern; it matches anywhere in a name unless ^ or $ say otherwise."""

    __slots__ = ("found", "refused", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        if len(text) > PATTERN_CHARS_MAX:
            raise PatternFault(f"it has {len(text)} letters, {PATTERN_CHARS_MAX} at most")
        self.refused: Regexp | None = None
        if text.startswith(UNLESS):
            end = end_of_group(text)
            self.refused = machine(f"^(?:{text[len(UNLESS) : end]})")
            text = f"^{text[end + 1 :]}"
        self.found = machine(text)

    def matches(self, name: str) -> bool:
        if self.refused is not None and self.refused.matches(name):
            return False
        return self.found.matches(name)


def machine(text: str) -> Regexp:
    try:
        return Regexp(Machine(parse_regexp(text)), _budget)
    except ChannelFault as fault:
        raise PatternFault(fault.text.removeprefix("pattern, ")) from None


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
        return None  # `machine` says what is wrong
