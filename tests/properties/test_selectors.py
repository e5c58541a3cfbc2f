"""Selectors, wild cards, patterns and the index of them agree with plain models."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.broker.exchanges.exchange import Exchange, HeadersExchange
from flintmq.broker.exchanges.selector_exchange import PropWildExchange, RegexpExchange, SelectorExchange
from flintmq.broker.matching.lookup import lookup_of
from flintmq.broker.matching.selector_parser import parse_selector
from flintmq.broker.matching.wildcard import Wildcard
from flintmq.errors import ChannelFault
from flintmq.patterns.regexp import Regexp, StateBudget
from flintmq.patterns.regexp_parser import Machine, parse_regexp
from flintmq.wire.headers import read_headers, read_property
from flintmq.wire.properties import BasicProperties, decode_basic_properties, encode_properties
from flintmq.wire.tables import decode_table

Headers = dict[str, Any]
# A model of a selector: its text, and its truth for given headers; None is unknown.
Model = tuple[str, Callable[[Headers], Any]]


class Queue:
    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


QUEUES = [Queue(f"q{number}") for number in range(4)]
BINDINGS_MAX = 1000

# Few names and values, so that terms are shared and often fulfilled.
names = st.sampled_from(["a", "b", "c"])
texts = st.sampled_from(["", "x", "xy", "xyz", "abcabc", "it's", "x%y", "a_c"])
numbers = st.sampled_from([0, 1, 2, -1, 7, 0.5, 1.0, 2.5])
scalars = texts | numbers | st.booleans()
field_values = scalars | st.sampled_from([None, [1], {"k": 1}, b"xy", b"\xff", float("nan"), Decimal("0.5")])
headers = st.dictionaries(names, field_values, max_size=3)


def seen(value: Any) -> Any:
    """What the model sees of a field value."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, Decimal):
        return float(value)
    if value is None or isinstance(value, list | dict) or value != value:
        return None
    return value


def literal(value: Any) -> str:
    if isinstance(value, bool):
        return "TRUE" if value else "false"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return repr(value)


def kind(value: Any) -> str:
    return "text" if isinstance(value, str) else "bool" if isinstance(value, bool) else "number"


def compared(operator: str, left: Any, right: Any) -> Any:
    if left is None or right is None or kind(left) != kind(right):
        return None
    if operator in ("=", "<>"):
        return (left == right) is (operator == "=")
    if kind(left) != "number":
        return None
    return {"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[operator]


def calculated(operator: str, left: Any, right: Any) -> Any:
    if left is None or right is None or kind(left) != "number" or kind(right) != "number":
        return None
    if operator == "/":
        if right == 0:
            return None
        if isinstance(left, int) and isinstance(right, int):
            return int(Decimal(left) / Decimal(right))
        return left / right
    return {"+": left + right, "-": left - right, "*": left * right}[operator]


def negation(truth: Any) -> Any:
    return None if truth is None else not truth


def conjunction(one: Any, other: Any) -> Any:
    if one is False or other is False:
        return False
    return None if one is None or other is None else True


operators = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])


def name_model(name: str) -> Model:
    return name, lambda given_headers: seen(given_headers.get(name))


def literal_model(value: Any) -> Model:
    return literal(value), lambda given_headers: value


def arithmetic_model(operator: str, left: Model, right: Model) -> Model:
    text = f"({left[0]} {operator} {right[0]})"
    return text, lambda given_headers: calculated(operator, left[1](given_headers), right[1](given_headers))


def comparison_model(operator: str, left: Model, right: Model) -> Model:
    text = f"{left[0]} {operator} {right[0]}"
    return text, lambda given_headers: compared(operator, left[1](given_headers), right[1](given_headers))


def between_model(operand: Model, low: Model, high: Model, negated: bool) -> Model:
    text = f"{operand[0]} {'NOT ' * negated}BETWEEN {low[0]} AND {high[0]}"

    def test(given_headers: Headers) -> Any:
        value = operand[1](given_headers)
        truth = conjunction(
            compared(">=", value, low[1](given_headers)), compared("<=", value, high[1](given_headers))
        )
        return negation(truth) if negated else truth

    return text, test


def membership_model(operand: Model, values: list[Any], negated: bool) -> Model:
    text = f"{operand[0]} {'NOT ' * negated}IN ({', '.join([literal(value) for value in values])})"

    def test(given_headers: Headers) -> Any:
        truths = [compared("=", operand[1](given_headers), value) for value in values]
        truth = True if True in truths else None if None in truths else False
        return negation(truth) if negated else truth

    return text, test


def like_fits(pattern: str, value: str) -> bool:
    parts = [".*" if sign == "%" else "." if sign == "_" else re.escape(sign) for sign in pattern]
    return re.fullmatch("".join(parts), value, re.DOTALL) is not None


def like_model(operand: Model, pattern: str, negated: bool) -> Model:
    text = f"{operand[0]} {'not ' * negated}LIKE {literal(pattern)}"

    def test(given_headers: Headers) -> Any:
        value = operand[1](given_headers)
        truth = like_fits(pattern, value) if isinstance(value, str) else None
        return negation(truth) if negated else truth

    return text, test


def null_model(operand: Model, negated: bool) -> Model:
    text = f"{operand[0]} IS {'NOT ' * negated}NULL"
    return text, lambda given_headers: (operand[1](given_headers) is None) is not negated


def not_model(part: Model) -> Model:
    return f"NOT ({part[0]})", lambda given_headers: negation(part[1](given_headers))


def junction_model(word: str, parts: list[Model]) -> Model:
    text = f" {word} ".join([f"({part[0]})" for part in parts])

    def test(given_headers: Headers) -> Any:
        truths = [part[1](given_headers) for part in parts]
        decisive = word == "OR"
        return decisive if decisive in truths else None if None in truths else not decisive

    return text, test


def truth_model(name: str) -> Model:
    def test(given_headers: Headers) -> Any:
        value = given_headers.get(name)
        return value if isinstance(value, bool) else None

    return name, test


name_models = st.builds(name_model, names)
number_models = st.builds(literal_model, numbers)
sums = st.builds(
    arithmetic_model, st.sampled_from("+-*/"), name_models | number_models, name_models | number_models
)
calculations = name_models | number_models | sums
patterns = st.text("xyabc%_'", max_size=6)
leaves = (
    st.builds(comparison_model, operators, calculations, calculations)
    | st.builds(
        comparison_model, st.sampled_from(["=", "<>"]), name_models, st.builds(literal_model, scalars)
    )
    | st.builds(between_model, calculations, calculations, calculations, st.booleans())
    | st.builds(membership_model, name_models, st.lists(scalars, min_size=1, max_size=3), st.booleans())
    | st.builds(like_model, name_models, patterns, st.booleans())
    | st.builds(null_model, name_models | sums, st.booleans())
    | st.builds(truth_model, names)
)
selectors = st.recursive(
    leaves,
    lambda parts: (
        st.builds(not_model, parts)
        | st.builds(junction_model, st.sampled_from(["AND", "OR"]), st.lists(parts, min_size=2, max_size=3))
    ),
    max_leaves=6,
)


@given(selectors, st.lists(headers, min_size=1, max_size=5))
def test_a_selector_agrees_with_the_model(selector: Model, published: list[Headers]) -> None:
    condition = parse_selector(selector[0])
    for table in published:
        assert condition.holds(lookup_of(table.copy, "")) is (selector[1](table) is True), selector[0]


def check_index(
    exchange: Exchange, script: list[Any], fits: Callable[[Any, Any], bool], published: list[Any]
) -> None:
    """Binds and unbinds as the script says; after each step every message goes where the model says."""
    model: list[tuple[Queue, Any, str, Headers]] = []
    for drop, queue, wanted, key, arguments in script:
        if drop is not None and model:
            gone, _, old_key, old_arguments = model.pop(drop % len(model))
            assert exchange.unbind(gone, old_key, old_arguments)
        elif exchange.bind(queue, key, arguments):
            model.append((queue, wanted, key, arguments))
        for key_published, table in published:
            found: dict[Any, Any] = {}
            exchange.route(key_published, table.copy, found)
            expected = {bound for bound, asked, _, _ in model if fits(asked, (key_published, table))}
            assert set(found) == expected, [asked for _, asked, _, _ in model]
    for queue in QUEUES:
        exchange.unbind_chain(exchange.unhook(queue), BINDINGS_MAX)
    index = exchange.index  # type: ignore[attr-defined]
    assert not index.names
    assert not index.conditions
    assert not index.numbers
    assert index.everywhere is None


drops = st.none() | st.none() | st.integers(0, 50)
queues = st.sampled_from(QUEUES)


# So few values that equal ones are common: what hangs at a term is fulfilled by it, or only in part.
few = st.sampled_from([0, 1, "x", True])
equalities = st.recursive(
    st.builds(
        comparison_model, st.sampled_from(["=", "<>", "<"]), name_models, st.builds(literal_model, st.just(1))
    )
    | st.builds(comparison_model, st.sampled_from(["=", "<>"]), name_models, st.builds(literal_model, few))
    | st.builds(membership_model, name_models, st.lists(few, min_size=1, max_size=2), st.booleans())
    | st.builds(null_model, name_models, st.booleans())
    | st.builds(truth_model, names),
    lambda parts: (
        st.builds(not_model, parts)
        | st.builds(junction_model, st.sampled_from(["AND", "OR"]), st.lists(parts, min_size=2, max_size=2))
    ),
    max_leaves=3,
)


@given(
    st.lists(st.tuples(drops, queues, equalities), min_size=1, max_size=12),
    st.lists(st.dictionaries(names, few, min_size=1), min_size=2, max_size=8),
)
def test_an_index_of_equalities_agrees_with_the_model(script: list[Any], published: list[Headers]) -> None:
    steps = [(drop, queue, wanted, "", {"x-selector": wanted[0]}) for drop, queue, wanted in script]
    messages = [("", table) for table in published]
    check_index(SelectorExchange("x"), steps, lambda asked, message: asked[1](message[1]) is True, messages)


@given(
    st.lists(st.tuples(drops, queues, selectors), max_size=12),
    st.lists(headers, min_size=1, max_size=6),
)
def test_an_index_of_selectors_agrees_with_the_model(script: list[Any], published: list[Headers]) -> None:
    steps = [(drop, queue, wanted, "", {"x-selector": wanted[0]}) for drop, queue, wanted in script]
    messages = [("", table) for table in published]
    check_index(SelectorExchange("x"), steps, lambda asked, message: asked[1](message[1]) is True, messages)


ranges = st.builds(
    comparison_model, st.sampled_from(["<", ">", "<=", ">="]), st.just(name_model("a")), number_models
) | st.builds(between_model, st.just(name_model("a")), number_models, number_models, st.just(False))


@settings(max_examples=30)  # each of them is long
@given(
    st.lists(st.tuples(drops, queues, ranges | selectors), min_size=30, max_size=90),
    st.lists(st.fixed_dictionaries({"a": numbers}), min_size=1, max_size=2),
)
def test_intervals_agree_with_the_model(script: list[Any], published: list[Headers]) -> None:
    """Enough of them that the tree is made anew, and has removed ones in it."""
    steps = [
        (drop, queue, wanted, str(number), {"x-selector": wanted[0]})
        for number, (drop, queue, wanted) in enumerate(script)
    ]
    messages = [("", table) for table in published]
    check_index(SelectorExchange("x"), steps, lambda asked, message: asked[1](message[1]) is True, messages)


wild_texts = st.text("ab.*?", max_size=6)
wild_arguments = st.dictionaries(names, wild_texts | st.none() | numbers | st.booleans(), max_size=3)
wild_modes = st.sampled_from([{}, {"x-match": "any"}, {"x-match": "all"}])


def wild_fits(arguments: Headers, message: tuple[str, Headers]) -> bool:
    verdicts = []
    for name, wanted in arguments.items():
        if name == "x-match":
            continue
        value = seen(message[1].get(name))
        if value is None:
            verdicts.append(False)
        elif isinstance(wanted, str):
            expression = "".join([{"*": ".*", "?": "."}.get(sign, re.escape(sign)) for sign in wanted])
            verdicts.append(isinstance(value, str) and re.fullmatch(expression, value, re.DOTALL) is not None)
        else:
            verdicts.append(wanted is None or compared("=", value, wanted) is True)
    return any(verdicts) if arguments.get("x-match") == "any" else all(verdicts)


@given(
    st.lists(st.tuples(drops, queues, wild_modes, wild_arguments), max_size=12),
    st.lists(st.dictionaries(names, st.text("ab.", max_size=7) | field_values), min_size=1, max_size=6),
)
def test_an_index_of_wild_cards_agrees_with_the_model(script: list[Any], published: list[Headers]) -> None:
    steps = [(drop, queue, {**mode, **table}, "", {**mode, **table}) for drop, queue, mode, table in script]
    check_index(PropWildExchange("x"), steps, wild_fits, [("", table) for table in published])


@given(st.text("ab%_", max_size=12), st.text("abc", max_size=20))
def test_a_wild_card_agrees_with_the_model(pattern: str, text: str) -> None:
    assert Wildcard(pattern, "_", "%").matches(text) is like_fits(pattern, text)


def anchorless(pattern: str) -> bool:
    return "^" not in pattern.replace("[^", "[") and "$" not in pattern


# What both dialects have. Python's $ also matches before a last newline: \Z is what is meant here.
atoms = st.sampled_from(
    ["a", "b", "c", ".", r"\.", "[ab]", "[^a]", "[a-c.]", r"\d", r"\w", r"\S", "abc", "^", "$"]
)
bounds = st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{0,2}", "{2,}", "*?"])
regexps = st.recursive(
    atoms,
    lambda parts: (
        st.builds(lambda inner, bound: f"(?:{inner}){bound}", parts.filter(anchorless), bounds)
        | st.builds(lambda one, other: f"(?:{one}|{other})", parts, parts)
        | st.builds(lambda one, other: f"{one}{other}", parts, parts)
    ),
    max_leaves=8,
)


def pattern_found(pattern: str, text: str) -> bool:
    return re.search(pattern.replace("$", r"\Z"), text, re.DOTALL | re.ASCII) is not None


@given(regexps, st.lists(st.text("abc.1\n", max_size=12), min_size=1, max_size=6))
def test_a_pattern_agrees_with_the_model(pattern: str, searched: list[str]) -> None:
    # A budget so small that what is kept is forgotten again and again.
    for budget in (StateBudget(), StateBudget(40)):
        regexp = Regexp(Machine(parse_regexp(pattern)), budget)
        for text in searched:
            assert regexp.matches(text) is pattern_found(pattern, text), (pattern, text)


@given(
    st.lists(st.tuples(drops, queues, regexps, st.sampled_from(["key", "argument", "header"])), max_size=10),
    st.lists(st.tuples(st.text("abc.1", max_size=10), st.text("abc.1", max_size=10)), min_size=1, max_size=5),
)
def test_an_index_of_patterns_agrees_with_the_model(script: list[Any], published: list[Any]) -> None:
    steps = []
    for drop, queue, pattern, way in script:
        arguments = {
            "key": {},
            "argument": {"x-pattern": pattern},
            "header": {"x-pattern": pattern, "x-header": "h"},
        }[way]
        steps.append((drop, queue, (pattern, way), pattern if way == "key" else "other", arguments))
    check_index(
        RegexpExchange("x"),
        steps,
        lambda asked, message: pattern_found(
            asked[0], message[1]["h"] if asked[1] == "header" else message[0]
        ),
        [(key, {"h": value}) for key, value in published],
    )


wire_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.text(max_size=5)
    | st.binary(max_size=5)
    | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=3),
    max_leaves=4,
)
shortstrs = st.text(max_size=20) | st.none()
properties = st.builds(
    BasicProperties,
    content_type=shortstrs,
    headers=st.none() | st.dictionaries(st.text(max_size=4), wire_values, max_size=5),
    delivery_mode=st.none() | st.integers(0, 255),
    priority=st.none() | st.integers(0, 255),
    correlation_id=shortstrs,
    message_id=shortstrs,
    timestamp=st.none() | st.integers(0, 2**64 - 1),
    type=shortstrs,
    cluster_id=shortstrs,
)
FLAGS = {
    "content_type": 0x8000,
    "content_encoding": 0x4000,
    "delivery_mode": 0x1000,
    "priority": 0x0800,
    "correlation_id": 0x0400,
    "message_id": 0x0080,
    "timestamp": 0x0040,
    "type": 0x0020,
    "app_id": 0x0008,
    "cluster_id": 0x0004,
}


@given(properties, st.binary(max_size=3))
def test_reading_a_header_agrees_with_decoding_it(sent: BasicProperties, body: bytes) -> None:
    header = b"\x00\x3c" + bytes(10) + encode_properties(sent)
    decoded = decode_basic_properties(header, 12, len(header))
    assert read_headers(header + body, len(header)) == (decoded.headers or {})
    for name, flag in FLAGS.items():
        assert read_property(header + body, len(header), flag) == getattr(decoded, name)


@given(st.binary(max_size=40))
def test_a_table_of_any_octets_is_read_as_it_is_decoded(octets: bytes) -> None:
    table = len(octets).to_bytes(4, "big") + octets
    header = b"\x00\x3c" + bytes(10) + b"\x20\x00" + table
    try:
        expected: Any = decode_table(header, 14, len(header), "basic headers")[0]
    except Exception as fault:
        with pytest.raises(type(fault), match=re.escape(str(fault))):
            read_headers(header, len(header))
        return
    assert repr(read_headers(header, len(header))) == repr(expected)


def check_fault(fault: ChannelFault) -> None:
    assert fault.code == 406
    assert re.search(r"position \d+: ", fault.text)
    assert len(fault.reply_text.encode()) <= 255


@given(st.text("abAND ()='<>,.1+-*/NOTRIS\"", max_size=40))
def test_any_text_is_a_selector_or_a_fault(text: str) -> None:
    try:
        parse_selector(text).holds(lookup_of(None, ""))
    except ChannelFault as fault:
        check_fault(fault)


@given(st.text("ab()[]{}*+?|^$\\.,-:d2", max_size=30), st.text("ab2", max_size=10))
def test_any_text_is_a_pattern_or_a_fault(pattern: str, text: str) -> None:
    try:
        Regexp(Machine(parse_regexp(pattern)), StateBudget()).matches(text)
    except ChannelFault as fault:
        check_fault(fault)


def test_headers_and_selectors_share_the_engine() -> None:
    assert type(HeadersExchange("x").index) is type(SelectorExchange("y").index)
