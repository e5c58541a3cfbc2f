"""What a reader of a queue takes: the filters among the arguments of basic.consume.

    x-selector                the WHERE of an SQL query (selector.py); x-filter-jms-selector is the same
    x-filter                  a binding without an exchange, or a list of up to FILTERS_MAX of them:
                              {"type": exchange type, "routing-key": text, "arguments": table}

A filter takes the messages that a binding with this key and these arguments leads on, at an exchange of this
type. All filters of a reader have to take a message. An argument that claims to be a filter and is not known
is refused: whoever sets it must not get what it was to keep away.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from flintmq.broker.matching.condition import Condition, reading_copies
from flintmq.broker.matching.headers_condition import HeadersCondition, headers_form
from flintmq.broker.matching.lookup import ROUTING_KEY, Lookup, Reference, reference_of
from flintmq.broker.matching.prop_wild import PropWildCondition, prop_wild_form
from flintmq.broker.matching.regexp_condition import RegexpCondition
from flintmq.broker.matching.selector_parser import parse_selector
from flintmq.broker.matching.topic_trie import TopicTrie
from flintmq.broker.scheduling.pass_work import PassWork
from flintmq.checks import shown
from flintmq.errors import ChannelFault
from flintmq.patterns.regexp import StateBudget
from flintmq.wire import amqp
from flintmq.wire.tables import FieldValue

SELECTOR = "x-selector"
JMS_SELECTOR = "x-filter-jms-selector"
FILTER = "x-filter"
# What a queue browser of Qpid's JMS client sets: consumers here take what they get.
BROWSING = ("x-filter-no-consume", "x-filter-auto-close")
# Arguments of bindings: beside a consumer they mean nothing, but whoever sets one wants to filter.
OF_BINDINGS = ("x-match", "x-pattern", "x-header")
# Each is asked for each message: 8 of them are some 10 microseconds.
FILTERS_MAX = 8
KEY_CHARS_MAX = 4096

# Places and ways on that the pattern of one filter keeps: 256 KB at the worst.
PATTERN_BUDGET = 4096

Arguments = Mapping[str, FieldValue]


class KeyCondition(Condition):
    """The routing key is this one."""

    __slots__ = ("key",)

    def __init__(self, key: str) -> None:
        Condition.__init__(self, key)
        self.key = key

    def holds(self, lookup: Lookup) -> bool:
        return lookup.key == self.key


class TopicCondition(Condition):
    """The routing key fits a pattern of words."""

    __slots__ = ("trie",)

    def __init__(self, pattern: str) -> None:
        Condition.__init__(self, pattern)
        self.trie = TopicTrie()
        self.trie.add(pattern, self.form)

    def holds(self, lookup: Lookup) -> bool:
        found: dict[object, object] = {}
        lookup.spend(self.trie.match(lookup.key, found))
        return bool(found)


class Conjunction(Condition):
    """Several conditions, all of which have to hold."""

    __slots__ = ("parts",)

    def __init__(self, parts: tuple[Condition, ...]) -> None:
        Condition.__init__(self, tuple([part.form for part in parts]), sum([part.steps for part in parts]))
        self.parts = parts

    def holds(self, lookup: Lookup) -> bool:
        return all(part.holds(lookup) for part in self.parts)


def condition_of(arguments: Arguments, pass_work: PassWork) -> Condition | None:
    """What a reader with these arguments takes, None for everything; a ChannelFault names a wrong filter.

    What it takes to read them is counted in the work of the pass.
    """
    parts: list[Condition] = []
    for name, value in arguments.items():
        if name in (SELECTOR, JMS_SELECTOR):
            parts.append(counted_selector(text_of(value, f"argument '{name}'"), pass_work))
        elif name == FILTER:
            pass_work.copies += reading_copies(value)
            parts.extend(filters_of(value))
        elif name.startswith(FILTER) or name in OF_BINDINGS:
            refuse_unknown(name, value)
    return joined(parts)


def counted_selector(text: str, pass_work: PassWork) -> Condition:
    """A selector; reading it is counted in the work of the pass."""
    pass_work.copies += reading_copies(text)
    return parse_selector(text)


def joined(parts: list[Condition]) -> Condition | None:
    return None if not parts else parts[0] if len(parts) == 1 else Conjunction(tuple(parts))


def refuse_unknown(name: str, value: FieldValue) -> None:
    if name in BROWSING:
        if value is False or value is None:
            return
        raise refused(
            f"argument '{name}': consumers take what they get; look into a queue with the service queue.peek"
        )
    if name in OF_BINDINGS:
        raise refused(f"argument '{name}' is one of bindings: a consumer has a filter as argument '{FILTER}'")
    known = ", ".join((SELECTOR, JMS_SELECTOR, FILTER))
    raise refused(f"unknown filter {shown(name)}: known are {known}")


def filters_of(value: FieldValue) -> list[Condition]:
    """The filters that the argument x-filter has."""
    filters = value if isinstance(value, list) else [value]
    if not 1 <= len(filters) <= FILTERS_MAX:
        raise refused(f"argument '{FILTER}': expected 1 to {FILTERS_MAX} filters, found {len(filters)}")
    return [filter_of(each) for each in filters]


def filter_of(value: FieldValue) -> Condition:
    if not isinstance(value, dict):
        raise refused(f"argument '{FILTER}': expected a table with 'type', found {shown(value)}")
    unknown = [name for name in value if name not in ("type", "routing-key", "arguments")]
    if unknown:
        raise refused(
            f"argument '{FILTER}': unknown field {shown(unknown[0])}: known are type, routing-key, arguments"
        )
    kind = text_of(value.get("type"), f"'type' of argument '{FILTER}'")
    key = text_of(value.get("routing-key", ""), f"'routing-key' of argument '{FILTER}'")
    if len(key) > KEY_CHARS_MAX:
        raise refused(f"argument '{FILTER}': 'routing-key' has {KEY_CHARS_MAX} letters at most")
    arguments = value.get("arguments", {})
    if not isinstance(arguments, dict):
        raise refused(f"argument '{FILTER}': expected a table as 'arguments', found {shown(arguments)}")
    if kind not in FILTER_TYPES:
        known = ", ".join(sorted(FILTER_TYPES))
        raise refused(f"argument '{FILTER}': no filter of type {shown(kind)}: known are {known}")
    return FILTER_TYPES[kind](key, arguments)


def direct_filter(key: str, arguments: Arguments) -> Condition:
    return KeyCondition(key)


def topic_filter(key: str, arguments: Arguments) -> Condition:
    return TopicCondition(key)


def headers_filter(key: str, arguments: Arguments) -> Condition:
    return HeadersCondition(headers_form(arguments))


def prop_wild_filter(key: str, arguments: Arguments) -> Condition:
    return PropWildCondition(prop_wild_form(arguments))


def selector_filter(key: str, arguments: Arguments) -> Condition:
    return parse_selector(text_of(arguments.get(SELECTOR), f"argument '{SELECTOR}' of a filter"))


def regexp_filter(key: str, arguments: Arguments) -> Condition:
    pattern = text_of(arguments.get("x-pattern", key), "argument 'x-pattern' of a filter")
    header = arguments.get("x-header")
    reference: Reference = ROUTING_KEY
    if header is not None:
        reference = reference_of(text_of(header, "argument 'x-header' of a filter"))
    return RegexpCondition((reference, pattern), reference, pattern, StateBudget(PATTERN_BUDGET))


FILTER_TYPES: dict[str, Callable[[str, Arguments], Condition]] = {
    "direct": direct_filter,
    "topic": topic_filter,
    "headers": headers_filter,
    "x-prop-wild": prop_wild_filter,
    "x-selector": selector_filter,
    "x-regexp": regexp_filter,
}


def text_of(value: FieldValue, what: str) -> str:
    if isinstance(value, str):
        return value
    found = "nothing" if value is None else f"a value of type {type(value).__name__}"
    raise refused(f"expected a text as {what}, found {found}")


def refused(why: str) -> ChannelFault:
    return ChannelFault(amqp.PRECONDITION_FAILED, why)
