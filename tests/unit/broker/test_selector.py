"""Selectors: what they mean, what they refuse and where, and what an index makes of them."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from flintmq.broker.matching.lookup import lookup_of, reference_of
from flintmq.broker.matching.match_index import MatchIndex
from flintmq.broker.matching.selector_parser import parse_selector
from flintmq.errors import ChannelFault


def holds(selector: str, **headers: Any) -> bool:
    return parse_selector(selector).holds(lookup_of(headers.copy, "stock.nyse"))


@pytest.mark.parametrize(
    ("selector", "headers"),
    [
        ("", {}),
        ("  ", {"a": 1}),
        ("a = 1", {"a": 1}),
        ("a = 1", {"a": 1.0}),
        ("a = 'it''s'", {"a": "it's"}),
        ("a = 'x'", {"a": b"x"}),
        ("A = 1 or a = 2", {"a": 2}),
        ("a <> 'x'", {"a": "y"}),
        ("a > 1 AND a < 3", {"a": 2}),
        ("2 < a", {"a": 3}),
        ("a BETWEEN 1 AND 3 AND b", {"a": 3, "b": True}),
        ("a NOT BETWEEN 1 AND 3", {"a": 4}),
        ("a IN ('x', 'y')", {"a": "y"}),
        ("a NOT IN ('x', 'y')", {"a": "z"}),
        ("a in (-1, 2.5)", {"a": -1}),
        ("a LIKE 'x%y_'", {"a": "x..yz"}),
        ("a NOT LIKE 'x%'", {"a": "y"}),
        (r"a LIKE '10\%' ESCAPE '\'", {"a": "10%"}),
        ("a IS NULL", {}),
        ("a IS NULL", {"a": None}),
        ("a IS NULL", {"a": {"k": 1}}),
        ("a is not null", {"a": 0}),
        ("NOT a = 1", {"a": 2}),
        ("NOT (a = 1 AND b = 2)", {"a": 1, "b": 3}),
        ("NOT (a = 1 AND b = 2)", {"a": 2}),
        ("urgent", {"urgent": True}),
        ("NOT urgent", {"urgent": False}),
        ("TRUE", {}),
        ("a = TRUE", {"a": True}),
        ("a + 1 = 3", {"a": 2}),
        ("a - 1 - 1 = 0", {"a": 2}),
        ("1 + a * 2 = 5", {"a": 2}),
        ("(1 + a) * 2 = 6", {"a": 2}),
        ("-a = -2", {"a": 2}),
        ("- -a = +2", {"a": 2}),
        ("7 / a = 3", {"a": 2}),
        ("-7 / a = -3", {"a": 2}),
        ("7 / a = 3.5", {"a": 2.0}),
        ("a = .5", {"a": Decimal("0.5")}),
        ("a = 1e3", {"a": 1000}),
        ("a = 60", {"a": datetime(1970, 1, 1, 0, 1, tzinfo=UTC)}),
        ('"x-retry-count" > 2', {"x-retry-count": 3}),
        ('"say ""hi""" = 1', {'say "hi"': 1}),
        ("headers.priority = 9", {"priority": 9}),
        ('"priority" = 9', {"priority": 9}),
        ("größe > 3", {"größe": 4}),
        ("a.b = 1", {"a.b": 1}),
        ("routing_key LIKE 'stock.%'", {}),
    ],
)
def test_holds(selector: str, headers: dict[str, Any]) -> None:
    assert holds(selector, **headers)


@pytest.mark.parametrize(
    ("selector", "headers"),
    [
        ("FALSE", {}),
        ("a = 1", {}),
        ("a <> 1", {}),
        ("NOT a = 1", {}),
        ("a = 1", {"a": True}),
        ("a = TRUE", {"a": 1}),
        ("a = '1'", {"a": 1}),
        ("a <> '1'", {"a": 1}),
        ("NOT a = '1'", {"a": 1}),
        ("a < 3", {"a": "2"}),
        ("NOT a < 3", {"a": "2"}),
        ("a < b", {"a": "1", "b": "2"}),
        ("a IN ('x')", {"a": 1}),
        ("a NOT IN ('x')", {"a": 1}),
        ("a NOT IN ('x')", {}),
        ("a LIKE '%'", {"a": 1}),
        ("a NOT LIKE 'x'", {"a": 1}),
        ("a NOT LIKE 'x'", {}),
        ("a LIKE 'x'", {"a": "xx"}),
        ("a LIKE 'X'", {"a": "x"}),
        ("a = b", {}),
        ("a / 0 = 1 OR NOT a / 0 = 1", {"a": 1}),
        ("a + b IS NOT NULL", {"a": 1, "b": "x"}),
        ("a * a IS NOT NULL", {"a": 2**63}),
        ("urgent", {"urgent": 1}),
        ("NOT urgent", {"urgent": "yes"}),
        ("a = a", {"a": float("nan")}),
        ("priority = 9", {"priority": 9}),
        ("a BETWEEN 3 AND 1", {"a": 2}),
        ("A = 1", {"a": 1}),
    ],
)
def test_does_not_hold(selector: str, headers: dict[str, Any]) -> None:
    assert not holds(selector, **headers)


@pytest.mark.parametrize(
    ("selector", "position", "expected"),
    [
        ("a =", 4, "expected a value or a condition, found the end"),
        ("a = 1 b", 7, "expected an operator or the end, found 'b'"),
        ("a + 1", 1, "expected a condition, found a value"),
        ("'x'", 1, "expected a condition, found a value"),
        ("(a = 1", 7, "expected an operator or ')', found the end"),
        ("a = 1)", 6, "expected an operator or the end, found ')'"),
        ("a = 'x", 5, "expected the ' that ends the text which starts here"),
        ('"a = 1', 1, 'expected the " that ends the name which starts here'),
        ("a ; b", 3, "expected a value or an operator, found ';'"),
        ("a == 1", 4, "expected a value or a condition, found '='"),
        ("a IS 1", 6, "expected NULL or NOT NULL, found '1'"),
        ("a IS NOT 1", 10, "expected NULL, found '1'"),
        ("a NOT 1", 7, "expected BETWEEN, IN or LIKE, found '1'"),
        ("a IN 1", 6, "expected '(', found '1'"),
        ("a IN ()", 7, "expected a literal, found ')'"),
        ("a IN (b)", 7, "expected a literal, found 'b'"),
        ("a IN (- 'x')", 9, "expected a number, found 'x'"),
        ("a IN (1 2)", 9, "expected ',' or ')', found '2'"),
        ("a LIKE b", 8, "expected a pattern in quotes, found 'b'"),
        ("a LIKE 'x' ESCAPE 'no'", 19, "expected one letter in quotes, found 'no'"),
        ("a LIKE 'x!' ESCAPE '!'", 8, "the pattern ends with its escape letter"),
        ("a BETWEEN 1", 12, "expected AND, found the end"),
        ("a < 'x'", 5, "expected a number for <, found a text"),
        ("TRUE > a", 1, "expected a number for >, found TRUE or FALSE"),
        ("a BETWEEN 'a' AND 'b'", 11, "expected a number for BETWEEN, found a text"),
        ("1 + 'x' = a", 5, "expected a number for +, found a text"),
        ("-'x' = a", 2, "expected a number for -, found a text"),
        ("(a = 1) = b", 9, "expected AND, OR or the end after a condition, found '='"),
        ("a = (b = 1)", 5, "expected a value, found a condition"),
        ("a < b < c", 7, "expected AND, OR or the end after a condition, found '<'"),
        ("a = 12x", 7, "expected an operator after '12', found 'x'"),
        ("a = 99999999999999999999", 5, "expected a whole number of 19 digits at most"),
        ("NOT", 4, "expected a value or a condition, found the end"),
        ("(" * 70 + "a" + ")" * 70, 65, "nested deeper than 64 levels"),
        ("NOT " * 70 + "a", 257, "nested deeper than 64 levels"),
        ("a = " + "1 + " * 70 + "1", 0, "nested deeper than 64 levels"),
        ("a OR " * 600 + "a", 0, "more than 1024 words and signs"),
        ("a" * 5000, 4097, "it has 5000 letters, 4096 at most"),
    ],
)
def test_refused(selector: str, position: int, expected: str) -> None:
    with pytest.raises(ChannelFault) as fault:
        parse_selector(selector)
    assert fault.value.code == 406
    assert expected in fault.value.text
    assert position == 0 or f"position {position}:" in fault.value.text
    assert len(fault.value.reply_text.encode()) <= 255


def test_long_chains_are_flat() -> None:
    assert holds(" AND ".join(["a = 1"] * 250), a=1)
    assert holds(" OR ".join([f"a = {number}" for number in range(250)]), a=249)


def test_a_reply_text_stays_short_whatever_was_sent() -> None:
    with pytest.raises(ChannelFault) as fault:
        parse_selector("a = 1 " + "\U0001f600" * 3000)
    assert len(fault.value.reply_text.encode()) <= 255


def test_names() -> None:
    assert reference_of("JMSPriority") == reference_of("priority") == 0x0800
    assert reference_of("region") == reference_of("headers.region") == "region"
    assert reference_of("headers.priority") == "priority"


def met(selectors: list[str], headers: dict[str, Any]) -> tuple[int, set[Any]]:
    """How many of the conditions a message is held against, and what it finds."""
    index = MatchIndex()
    conditions = [parse_selector(selector) for selector in selectors]
    for condition in conditions:
        index.add(condition, condition.form)
    found: dict[Any, Any] = {}
    index.match(lookup_of(headers.copy, "k"), found)
    return len([condition for condition in conditions if condition.serial == 1]), set(found)


@pytest.mark.parametrize(
    ("template", "headers", "met_max"),
    [
        ("symbol = 's{0}' AND price > 10", {"symbol": "s7", "price": 11}, 1),
        ("price > 10 AND symbol IN ('s{0}', 't{0}')", {"symbol": "s7", "price": 11}, 1),
        ("region = 'eu' AND (user = {0} OR order = {0})", {"region": "eu", "user": 7, "order": 7}, 30),
        ("price BETWEEN {0} AND {0} + 0", {"price": 7}, 1000),
        ("price BETWEEN {0} AND {0}.5", {"price": 7}, 33),
        ("price > {0}", {"price": 7}, 40),
        ("path LIKE '/home/u{0}/%'", {"path": "/home/u7/x"}, 12),
        ("path LIKE '%.ext{0}'", {"path": "a.ext7"}, 2),
        ("path LIKE '%<{0}>%'", {"path": "abc <7> def"}, 20),
        ("NOT (symbol <> 's{0}' OR price <= 10)", {"symbol": "s7", "price": 11}, 1),
        ("h{0} > 1", {"h7": 2}, 1),
    ],
)
def test_a_message_meets_few_of_many(template: str, headers: dict[str, Any], met_max: int) -> None:
    selectors = [template.format(number) for number in range(1000)]
    looked_at, found = met(selectors, headers)
    expected = {s for s in selectors if parse_selector(s).holds(lookup_of(headers.copy, "k"))}
    assert expected
    assert found == expected
    assert looked_at <= max(met_max, len(expected))
