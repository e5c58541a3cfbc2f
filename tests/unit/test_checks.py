"""Checks of values: what each takes, and what the fault says that was expected."""

from __future__ import annotations

from decimal import Decimal

import pytest

from flintmq import checks
from flintmq.checks import Check, Unfit


@pytest.mark.parametrize(
    ("check", "given", "meant"),
    [
        (checks.whole(0, 9), 9, 9),
        (checks.count, 1, 1),
        (checks.number(0, 1), 1, 1.0),
        (checks.number(0, 1), Decimal("0.5"), 0.5),
        (checks.size(1, 2**40), 5, 5),
        (checks.size(1, 2**40), "2 GB", 2 * 10**9),
        (checks.size(1, 2**40), "512MiB", 512 * 2**20),
        (checks.any_text, "", ""),
        (checks.some_text, "a", "a"),
        (checks.text(3), "abc", "abc"),
        (checks.key, "", ""),
        (checks.one_of("a", "b"), "b", "b"),
        (checks.switch, False, False),
        (checks.texts(checks.text(3)), ["a", "b"], ("a", "b")),
        (checks.table, {"a": 1}, {"a": 1}),
    ],
)
def test_what_a_value_means(check: Check, given: object, meant: object) -> None:
    assert check(given) == meant
    assert type(check(given)) is type(meant)


@pytest.mark.parametrize(
    ("check", "given", "said"),
    [
        (checks.whole(0, 9), 10, "expected a whole number from 0 to 9"),
        (checks.whole(0, 9), True, "expected a whole number from 0 to 9"),
        (checks.whole(0, 9), 1.0, "expected a whole number from 0 to 9"),
        (checks.whole(0, 9), None, "expected a whole number from 0 to 9"),
        (checks.count, 0, "expected a whole number above 0"),
        (checks.count, 1 << 63, "expected a whole number above 0"),
        (checks.number(0, 1), float("nan"), "expected a number from 0 to 1"),
        (checks.number(0, 1), 10**400, "expected a number from 0 to 1"),
        (checks.number(0, 1), True, "expected a number from 0 to 1"),
        (checks.number(0, 1), "0", "expected a number from 0 to 1"),
        (checks.size(1, 100), "1kB", 'expected a size from 1 to 100 bytes, such as 65536 or "512MiB"'),
        (checks.size(1, 100), "1.5B", 'expected a size from 1 to 100 bytes, such as 65536 or "512MiB"'),
        (checks.any_text, b"a", "expected text"),
        (checks.some_text, " ", "expected some text"),
        (checks.text(3), "", "expected text of 1 to 3 octets"),
        (checks.text(3), "\u00e4\u00e4", "expected text of 1 to 3 octets"),
        (checks.key, "a" * 256, "expected text of at most 255 octets"),
        (checks.one_of("a", "b"), [], "expected one of a, b"),
        (checks.one_of("a", "b", quote='"'), "c", 'expected one of "a", "b"'),
        (checks.switch, 1, "expected true or false"),
        (checks.texts(checks.any_text, 1), [], "expected a list of texts with at least one in it"),
        (checks.table, [], "expected a table"),
    ],
)
def test_what_was_expected(check: Check, given: object, said: str) -> None:
    with pytest.raises(Unfit) as caught:
        check(given)
    assert str(caught.value) == said
    assert caught.value.within == ""


@pytest.mark.parametrize(("given", "at"), [(["a", 1], "[1]"), (["a", "b", "a"], "[2]")])
def test_a_fault_inside_a_list_is_found(given: list[object], at: str) -> None:
    with pytest.raises(Unfit) as caught:
        checks.texts(checks.any_text)(given)
    assert caught.value.within == at
    assert caught.value.value == given[-1]


@pytest.mark.parametrize(
    ("given", "meant"),
    [("90s", 90), ("1.5 m", 90.0), (" 7 ", 7), ("7x", None), ("s", None), ("-1s", None), (7, None)],
)
def test_a_number_with_a_unit(given: object, meant: float | None) -> None:
    assert checks.quantity(given, {"": 1, "s": 1, "m": 60}) == meant


def test_the_nearest_name() -> None:
    assert checks.nearest("qeue", ["queue", "stream"]) == "queue"
    assert checks.nearest("zzz", ["queue", "stream"]) is None
    assert checks.suggestion("qeue", ["queue"]) == "; did you mean 'queue'?"


@pytest.mark.parametrize(
    ("word", "known", "meant"),
    [
        ("list_ciphers", ["list_users", "list_vhosts"], None),
        ("list_user", ["list_users", "list_vhosts"], "list_users"),
        ("--description", ["--script-name"], None),
        ("--vhsot", ["--script-name", "--vhost"], "--vhost"),
        ("x-max-len", ["x-max-length"], "x-max-length"),
        ("max_length", ["max-length"], "max-length"),
    ],
)
def test_what_names_begin_with_makes_them_not_alike(word: str, known: list[str], meant: str | None) -> None:
    assert checks.nearest(word, known) == meant
    assert checks.suggestion("zzz", ["queue"]) == ""


@pytest.mark.parametrize(
    ("value", "shown"),
    [(True, "true"), ({}, "a table"), ("a\n", '"a\\n"'), (5, "5"), ("x" * 99, '"' + "x" * 56 + "...")],
)
def test_a_value_is_shown_on_a_line(value: object, shown: str) -> None:
    assert checks.shown(value) == shown
