"""Exchanges that select messages by what they say, all on the matching engine (matching/match_index.py).

kind          a message follows a binding when
x-selector    the binding's argument x-selector, the WHERE of an SQL query, is true (matching/selector.py)
x-prop-wild   headers and properties fit the binding's arguments, with wild cards (matching/prop_wild.py)
x-regexp      the pattern is found in the routing key, or in the header that the argument x-header
              names (patterns/regexp.py); the pattern is the argument x-pattern, or else the binding's key
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, TypeAlias

from flintmq.broker.exchanges.binding import Binding
from flintmq.broker.exchanges.exchange import ConditionExchange, Exchange, Headers
from flintmq.broker.matching.condition import Condition, reading_copies
from flintmq.broker.matching.lookup import ROUTING_KEY, Reference, reference_of
from flintmq.broker.matching.match_index import MatchIndex
from flintmq.broker.matching.prop_wild import PropWildCondition, PropWildForm, prop_wild_form
from flintmq.broker.matching.regexp_condition import RegexpCondition
from flintmq.broker.matching.selector_parser import parse_selector
from flintmq.errors import ChannelFault
from flintmq.patterns.regexp import StateBudget
from flintmq.wire import amqp
from flintmq.wire.tables import FieldValue

RegexpForm: TypeAlias = tuple[Reference, str]


class SelectorExchange(ConditionExchange):
    __slots__ = ("validated",)
    type = "x-selector"

    def prepare(self) -> None:
        self.index = MatchIndex()
        self.validated: Condition | None = None  # of the binding that is about to be made

    def validate_binding(self, routing_key: str, arguments: Mapping[str, FieldValue]) -> None:
        form = text_argument(arguments, "x-selector", None)
        if self.index.find(form) is None:
            self.validated = self.read(form)

    def read(self, form: Any) -> Condition:
        """A selector that was validated is not parsed again."""
        validated, self.validated = self.validated, None
        if validated is not None and validated.form == form:
            return validated
        return ConditionExchange.read(self, form)

    def form_of(self, binding: Binding) -> Hashable:
        return text_argument(binding.arguments, "x-selector", None)

    def condition_of(self, form: str) -> Condition:
        return parse_selector(form)


class PropWildExchange(ConditionExchange):
    __slots__ = ()
    type = "x-prop-wild"

    def validate_binding(self, routing_key: str, arguments: Mapping[str, FieldValue]) -> None:
        prop_wild_form(arguments)

    def form_of(self, binding: Binding) -> Hashable:
        return prop_wild_form(binding.arguments)

    def condition_of(self, form: PropWildForm) -> Condition:
        return PropWildCondition(form)


class RegexpExchange(ConditionExchange):
    __slots__ = ("budget", "by_header")
    type = "x-regexp"

    def prepare(self) -> None:
        self.index = MatchIndex()
        self.budget = StateBudget()
        self.by_header = 0

    @property
    def needs_headers(self) -> bool:  # type: ignore[override]
        """While all patterns are for the routing key, a route can be kept."""
        return self.by_header > 0

    def validate_binding(self, routing_key: str, arguments: Mapping[str, FieldValue]) -> None:
        form = regexp_form(routing_key, arguments)
        self.charge(reading_copies(form))
        RegexpCondition(form, form[0], form[1], StateBudget())

    def form_of(self, binding: Binding) -> RegexpForm:
        return regexp_form(binding.routing_key, binding.arguments)

    def condition_of(self, form: RegexpForm) -> Condition:
        return RegexpCondition(form, form[0], form[1], self.budget)

    def route(self, routing_key: str, headers: Headers | None, found: dict[Any, Any]) -> None:
        if not self.by_header:
            headers = None
        ConditionExchange.route(self, routing_key, headers, found)

    def attach(self, binding: Binding) -> None:
        ConditionExchange.attach(self, binding)
        self.by_header += self.form_of(binding)[0] != ROUTING_KEY

    def detach(self, binding: Binding) -> None:
        form = self.form_of(binding)
        condition = self.index.find(form)
        self.index.remove(form, binding.destination)
        if isinstance(condition, RegexpCondition) and condition.destinations is None:
            self.budget.leave(condition.regexp)
        self.by_header -= form[0] != ROUTING_KEY


def regexp_form(routing_key: str, arguments: Mapping[str, FieldValue]) -> RegexpForm:
    """What a pattern is searched for in, and the pattern."""
    pattern = text_argument(arguments, "x-pattern", routing_key)
    if "x-header" not in arguments:
        return ROUTING_KEY, pattern
    return reference_of(text_argument(arguments, "x-header", None)), pattern


def text_argument(arguments: Mapping[str, FieldValue], name: str, default: str | None) -> str:
    """A text among a binding's arguments."""
    value = arguments.get(name, default)
    if isinstance(value, str):
        return value
    found = "nothing" if value is None else f"a value of type {type(value).__name__}"
    raise ChannelFault(amqp.PRECONDITION_FAILED, f"expected a text as argument '{name}', found {found}")


SELECTOR_TYPES: dict[str, type[Exchange]] = {
    kind.type: kind for kind in (SelectorExchange, PropWildExchange, RegexpExchange)
}
