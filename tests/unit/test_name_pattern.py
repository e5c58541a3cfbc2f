"""Patterns over names: what they find, what is refused, and that none is slow."""

from __future__ import annotations

import re
import time

import pytest

from flintmq.config import parse
from flintmq.errors import ConfigFault
from flintmq.name_pattern import NamePattern, PatternFault


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
    ("pattern", "why"),
    [
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
