"""Patterns over names: what they find, what is refused, and that none is slow."""

from __future__ import annotations

import re
import time

import pytest

from flintmq.config import parse
from flintmq.errors import ConfigFault
from flintmq.patterns.name_pattern import NamePattern, PatternFault


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        ".*",
        "^orders$",
        "orders|^bills\\.",
        "^(amq\\.gen-.*|replies)$",
        "^[a-z]+(\\.[a-z0-9_-]+)*$",
        "^(?!amq\\.)",
        "^(?!amq\\.).*$",
        "^(?!amq\\.|system$)[^.]*",
        "^(?!(a|b)\\.)(x|a)",
        "^(?![)a])b",
        "^(?!a{2,3}$)a+$",
    ],
)
def test_finds_what_others_find(pattern: str) -> None:
    names = ["", "orders", "my-orders", "bills.1", "amq.gen-x", "amq.default", "replies", "system", "a", "aa"]
    names += ["a.b", "b.a", "x", "b", ")b", "ab", "aaaa", "aaa", "A", "q_1.z-2", "systems"]
    for name in names:
        assert NamePattern(pattern).matches(name) is (re.search(pattern, name) is not None), name


@pytest.mark.parametrize(
    ("pattern", "found", "missed"),
    [
        ("^[[:alnum:]]+$", ["orders", "Q1"], ["my-orders", ":", "]", "n]"]),
        ("^[[:alpha:]_.-]+$", ["a.b_c-d"], ["a1", ""]),
        ("^[^[:space:]]+$", ["a"], ["a b", "a\tb"]),
        ("^[[:^digit:]]+$", ["abc"], ["a1"]),
        ("^[[:upper:][:digit:]]{2}$", ["A1", "11"], ["a1"]),
        ("^[[:]+$", ["[:", "::"], ["a"]),
        ("^[[.]$", ["[", "."], ["a"]),
    ],
)
def test_named_classes_mean_what_rabbitmq_takes_them_for(
    pattern: str, found: list[str], missed: list[str]
) -> None:
    matches = NamePattern(pattern).matches
    assert ([matches(name) for name in found], [matches(name) for name in missed]) == (
        [True] * len(found),
        [False] * len(missed),
    )


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("[[:alpah:]]", "'[:alpah:]' is not supported"),
        ("[[.hyphen.]]", "is not supported"),
        ("(a)\\1", "backreferences"),
        ("a(?=b)", "is not supported"),
        ("(?<=a)b", "is not supported"),
        ("a(?!b)", "is not supported"),
        ("^(?!a)|b", "neither a repetition nor"),
        ("^(?!a)b|c", "neither a repetition nor"),
        ("^(?!a", "expected the ')'"),
        ("(", "expected the ')'"),
        ("a{500}{500}", "nothing to repeat"),
        ("(a{100}){100}", "more than"),
        ("a" * 1025, "1024 at most"),
    ],
)
def test_says_what_it_cannot_do(pattern: str, why: str) -> None:
    with pytest.raises(PatternFault, match=re.escape(why)):
        NamePattern(pattern)


@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(a|a)*$", "(a+a+)+b", "^(?!(a+)+c)(a*)*d"])
def test_looks_at_each_letter_once(pattern: str) -> None:
    found = NamePattern(pattern)
    begun_s = time.thread_time()
    for length in range(100, 255):
        found.matches("a" * length + "x")
    assert time.thread_time() - begun_s < 5.0


@pytest.mark.parametrize(
    ("settings", "where"),
    [
        ('[users.a]\npassword = "x"\npermissions."/".read = "(?=a)"', 'users.a.permissions."/".read'),
        (
            '[[policies]]\nname = "p"\npattern = "(a)\\\\1"\ndefinition = {max-length = 1}',
            "policies[0].pattern",
        ),
    ],
)
def test_the_setting_is_named(settings: str, where: str) -> None:
    with pytest.raises(ConfigFault, match=re.escape(where)):
        parse(settings)


@pytest.mark.parametrize(
    ("text", "beginning"),
    [
        ("^orders\\.new", "orders.new"),
        ("^ab*", "a"),
        ("^ab?c", "a"),
        ("^ab{0}c", "a"),
        ("^ab+c", "ab"),
        ("^(?!amq\\.)team-", "team-"),
        ("^a|b", ""),
        ("^(a|b)", ""),
        ("^[ab]", ""),
        ("abc", ""),
    ],
)
def test_what_every_match_begins_with_is_known(text: str, beginning: str) -> None:
    assert NamePattern(text).beginning == beginning


def test_of_a_thousand_patterns_few_machines_are_asked() -> None:
    asked: list[str] = []

    class Noting:
        def __init__(self, text: str) -> None:
            self.text = text

        def matches(self, name: str) -> bool:
            asked.append(self.text)
            return True

    patterns = [NamePattern(f"^team{number:03}\\.") for number in range(1000)]
    for pattern in patterns:
        pattern.found = Noting(pattern.text)  # type: ignore[assignment]
    assert [pattern.text for pattern in patterns if pattern.matches("team007.orders")] == ["^team007\\."]
    assert asked == ["^team007\\."]


@pytest.mark.parametrize(
    ("text", "needed"),
    [
        ("orders", "orders"),
        (".*\\.dead$", ".dead"),
        ("^ab*cd", "cd"),
        ("(ab)+x", "x"),
        ("a|b", ""),
        ("[ab]", ""),
        (r"x[^\s\S]", "x"),
        ("ab{2}", "a"),
        ("^(?!amq\\.).*-new", "-new"),
        ("", ""),
    ],
)
def test_the_letters_that_every_match_has_are_known(text: str, needed: str) -> None:
    assert NamePattern(text).needed == needed
