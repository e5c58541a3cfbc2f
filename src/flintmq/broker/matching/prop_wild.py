"""What a binding of an x-prop-wild exchange asks of a message: properties that fit wild cards.

An argument names a header or a property, as in a selector (lookup.py). Its value is one of

    a text     a pattern: * stands for any number of letters, ? for one; it fits texts alone
    no value   the header or property must be there
    another    the header or property must be equal

x-match says whether all of them must fit, or any, as for a headers exchange.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from flintmq.broker.matching.condition import EQUAL, PRESENT, Condition, Cover, all_of, any_of, key_of
from flintmq.broker.matching.headers_condition import SHOWN_VALUE_CHARS_MAX, match_mode, term_names
from flintmq.broker.matching.lookup import Lookup, Reference, plain, reference_of
from flintmq.broker.matching.wildcard import Wildcard
from flintmq.errors import ChannelFault
from flintmq.wire import amqp
from flintmq.wire.tables import FieldValue

PATTERN_CHARS_MAX = 4096

PropWildForm: TypeAlias = tuple[bool, tuple[tuple[Reference, Any], ...]]


def prop_wild_form(arguments: Mapping[str, FieldValue]) -> PropWildForm:
    """Equal for two bindings that ask for the same; a ChannelFault when one asks for what cannot be."""
    mode = match_mode(arguments)
    terms: list[tuple[Reference, Any]] = []
    for name in term_names(arguments, mode):
        value = plain(arguments[name])
        if value is None and arguments[name] is not None:
            raise refused(name, "a table, an array or no number fits nothing")
        if type(value) is str and len(value) > PATTERN_CHARS_MAX:
            raise refused(name, f"its pattern has {len(value)} letters, {PATTERN_CHARS_MAX} at most")
        terms.append((reference_of(name), key_of(value)))
    return mode.startswith("any"), tuple(terms)


def refused(name: str, why: str) -> ChannelFault:
    shown = name[:SHOWN_VALUE_CHARS_MAX].encode("ascii", "backslashreplace").decode()[:SHOWN_VALUE_CHARS_MAX]
    return ChannelFault(amqp.PRECONDITION_FAILED, f"argument '{shown}' of a binding: {why}")


class PropWildCondition(Condition):
    __slots__ = ("any", "terms")

    def __init__(self, form: PropWildForm) -> None:
        Condition.__init__(self, form, 1 + len(form[1]))
        self.any = form[0]
        self.terms = tuple(
            [
                (reference, value, Wildcard(value, "?", "*") if type(value) is str else None)
                for reference, value in form[1]
            ]
        )

    def cover(self) -> Cover:
        covers: list[Cover] = []
        for reference, value, wildcard in self.terms:
            if wildcard is not None:
                covers.append(wildcard.cover(reference))
            else:
                covers.append((PRESENT, reference, None) if value is None else (EQUAL, reference, value))
        return any_of(covers) if self.any else all_of(covers)

    def holds(self, lookup: Lookup) -> bool:
        for term in self.terms:
            found = lookup.value(term[0])
            if found is None:
                satisfied = False
            elif term[2] is not None:
                wildcard = term[2]
                satisfied = type(found) is str and wildcard.matches(found, lookup)
            else:
                satisfied = term[1] is None or key_of(found) == term[1]
            if satisfied == self.any:
                return self.any
        return not self.any
