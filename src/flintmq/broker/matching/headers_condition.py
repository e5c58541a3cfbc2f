"""What a binding of a headers exchange asks of a message.

A term is a header name with the value it must have, or with None when being there is enough.

    x-match any, any-with-x    one satisfied term is enough
    x-match all, all-with-x    every term must be satisfied

Without "-with-x", arguments that start with "x-" are no terms; x-match itself never is. `all` of no terms
matches every message, `any` of none matches nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeAlias

from flintmq.broker.matching import field_equality
from flintmq.broker.matching.condition import EQUAL, PRESENT, Condition, Cover, all_of, any_of
from flintmq.broker.matching.lookup import Lookup
from flintmq.errors import ChannelFault
from flintmq.reply_codes import PRECONDITION_FAILED
from flintmq.wire.tables import FieldValue

Term: TypeAlias = tuple[str, Hashable]
HeadersForm: TypeAlias = tuple[Term, ...]

# Stands before the terms of which one is enough; no header has the number 0 for a name.
_ANY: Term = (0, None)  # type: ignore[assignment]
MATCH_MODES = ("all", "any", "all-with-x", "any-with-x")
# A reply text has 255 octets; the value a peer sent may be of any length.
SHOWN_VALUE_CHARS_MAX = 60


def match_mode(arguments: Mapping[str, FieldValue]) -> str:
    """The x-match of a binding, `all` when it says nothing; ChannelFault when it is none of the four."""
    mode = arguments.get("x-match", "all")
    if isinstance(mode, str) and mode in MATCH_MODES:
        return mode
    shown = repr(mode)[:SHOWN_VALUE_CHARS_MAX]
    raise ChannelFault(
        PRECONDITION_FAILED, f"invalid x-match argument {shown}: expected all, any, all-with-x or any-with-x"
    )


def term_names(arguments: Mapping[str, FieldValue], mode: str) -> list[str]:
    """The arguments of a binding that are terms, in order."""
    with_x = mode.endswith("-with-x")
    return sorted([name for name in arguments if name != "x-match" and (with_x or not name.startswith("x-"))])


def headers_form(arguments: Mapping[str, FieldValue]) -> HeadersForm:
    """Equal for two bindings that ask for the same."""
    mode = match_mode(arguments)
    terms = [(name, field_equality.matching_form(arguments[name])) for name in term_names(arguments, mode)]
    return (_ANY, *terms) if mode.startswith("any") else tuple(terms)


class HeadersCondition(Condition):
    __slots__ = ("any", "terms")

    def __init__(self, form: HeadersForm) -> None:
        Condition.__init__(self, form, 1 + len(form) // 2)
        self.any = bool(form) and form[0] is _ANY
        self.terms = form[1:] if self.any else form
        self.exact = self.any or len(self.terms) < 2

    def header_names(self) -> list[str]:
        return [name for name, _ in self.terms]

    def cover(self) -> Cover:
        homes = [
            (PRESENT, name, None) if value is None else (EQUAL, name, value) for name, value in self.terms
        ]
        return any_of(homes) if self.any else all_of(homes)

    def holds(self, lookup: Lookup) -> bool:
        for term in self.terms:
            name, value = term
            satisfied = lookup.has_header(name) if value is None else lookup.form(name) == value
            if satisfied == self.any:
                return self.any
        return not self.any
