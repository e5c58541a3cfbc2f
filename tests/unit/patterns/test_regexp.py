"""Patterns: what they find, what they refuse, and that no pattern makes them slow or large."""

from __future__ import annotations

from typing import Any

import pytest

from flintmq.broker.exchanges.selector_exchange import RegexpExchange
from flintmq.broker.matching.condition import ANY_OF, EQUAL, PREFIX
from flintmq.broker.matching.regexp_condition import cover_of
from flintmq.errors import ChannelFault
from flintmq.patterns.regexp import Regexp, StateBudget
from flintmq.patterns.regexp_parser import Machine, parse_regexp


class Queue:
    def __init__(self, name: str) -> None:
        self.name = name


def found(pattern: str, text: str) -> bool:
    return Regexp(Machine(parse_regexp(pattern)), StateBudget()).matches(text)


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("", "", True),
        ("b", "abc", True),
        ("^b", "abc", False),
        ("^a.c$", "abc", True),
        ("^a.c$", "a\nc", True),
        ("^$", "", True),
        ("^$", "a", False),
        ("^(stock|bond)\\.[a-z]{2,4}\\.\\d+$", "stock.nyse.42", True),
        ("^(stock|bond)\\.[a-z]{2,4}\\.\\d+$", "stock.nasdaq.42", False),
        ("^(?:ab)*$", "ababab", True),
        ("^(?:ab)*$", "aba", False),
        ("[]x]", "]", True),
        ("[^]x]", "]", False),
        ("[a-]", "-", True),
        ("[\\d.]+$", "12.5", True),
        ("\\x41\\u00e9", "Aé", True),
        ("\\W", "é", True),
        ("x{0}y", "y", True),
        ("(^a|b)c", "bc", True),
        ("(^a|b)c", "xac", False),
        ("a|", "zzz", True),
        ("a$|b", "b.", True),
        ("a$|b", "a.", False),
        ("\\{\\}", "{}", True),
    ],
)
def test_found(pattern: str, text: str, expected: bool) -> None:
    assert found(pattern, text) is expected


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("(a)\\1", "position 4: backreferences such as \\1 are not supported"),
        ("(?=a)", "position 1: '(?=a' is not supported: groups are"),
        ("(?i)a", "is not supported"),
        ("(?P<n>a)", "is not supported"),
        ("\\bword", "position 1: \\b is not supported"),
        ("(a", "position 1: expected the ')' of the group"),
        ("a)", "position 2: ')' without a '('"),
        ("[a", "position 1: expected the ']'"),
        ("*a", "position 1: nothing to repeat before '*'"),
        ("a**", "position 3: a repetition of a repetition needs a group"),
        ("a{2", "position 2: expected {2}, {2,} or {2,5}"),
        ("a{,2}", "position 2: expected {2}, {2,} or {2,5}"),
        ("a{3,2}", "position 2: the upper bound is below the lower one"),
        ("a{1001}", "position 2: more than 1000 repetitions"),
        ("a{99999999999}", "position 2: more than 1000 repetitions"),
        ("^*", "position 2: an anchor cannot be repeated"),
        ("[z-a]", "position 1: a range in a class that ends before it starts"),
        ("[\\d-z]", "position 1: a range in a class goes from one letter to another"),
        ("a\\", "position 2: the pattern ends with a backslash"),
        ("\\xg0", "position 1: expected \\xHH"),
        ("((a{100}){100}){100}", "more than 1000 places"),
        ("(" * 40 + "a" + ")" * 40, "groups nested deeper than 32 levels"),
        ("a" * 1025, "position 1025: it has 1025 letters, 1024 at most"),
    ],
)
def test_refused(pattern: str, expected: str) -> None:
    with pytest.raises(ChannelFault) as fault:
        Machine(parse_regexp(pattern))
    assert fault.value.code == 406
    assert expected in fault.value.text


def test_no_pattern_is_slow() -> None:
    """Backtracking would take 2**200 steps for each of these."""
    assert not found("^(a+)+$", "a" * 200 + "b")
    assert not found("^(a|a)*$", "a" * 200 + "b")
    assert not found("^(a?){200}b$", "a" * 200)
    assert found("(x+x+)+y", "x" * 200 + "y")


def test_what_is_kept_is_bounded() -> None:
    # One State for each of the last 16 letters: 65,536 of them without a bound.
    budget = StateBudget(2000)
    regexp = Regexp(Machine(parse_regexp("(a|b)*a(a|b){16}$")), budget)
    letters = "".join(["ab"[number * number % 7 % 2] + "ba"[number % 3 % 2] for number in range(3000)])
    for start in range(0, 3000, 20):
        text = letters[start : start + 60]
        assert regexp.matches(text) is (len(text) > 16 and text[-17] == "a")
        assert budget.spent <= 2000


@pytest.mark.parametrize(
    ("pattern", "cover"),
    [
        ("^stock$", (EQUAL, "r", "stock")),
        ("^ab", (PREFIX, "r", "ab")),
        ("^ab|^cd", (ANY_OF, ((PREFIX, "r", "ab"), (PREFIX, "r", "cd")))),
    ],
)
def test_covers(pattern: str, cover: Any) -> None:
    assert cover_of(parse_regexp(pattern), "r") == cover


def test_a_route_can_be_kept_while_only_keys_are_looked_at() -> None:
    exchange = RegexpExchange("x")
    queue, other = Queue("q"), Queue("r")
    exchange.bind(queue, "^a", {})
    assert not exchange.needs_headers
    exchange.bind(other, "", {"x-header": "h", "x-pattern": "^a"})
    assert exchange.needs_headers
    routed: dict[Any, Any] = {}
    headers = {"h": "abc"}
    exchange.route("x", headers.copy, routed)
    assert list(routed) == [other]
    exchange.unbind(other, "", {"x-header": "h", "x-pattern": "^a"})
    assert not exchange.needs_headers


def test_a_message_meets_few_of_many() -> None:
    exchange = RegexpExchange("x")
    queues = [Queue(f"q{number}") for number in range(1000)]
    for number, queue in enumerate(queues):
        exchange.bind(queue, f"sym{number:04d}\\.(trade|quote)", {})
    routed: dict[Any, Any] = {}
    exchange.route("stock.sym0042.trade", None, routed)
    assert list(routed) == [queues[42]]
    looked_at = [condition for condition in exchange.index.conditions.values() if condition.serial == 1]
    assert len(looked_at) <= 120
