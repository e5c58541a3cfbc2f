"""When identities end: in time, once, and without a trace of those who have gone."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from flintmq.auth.token_expiry import Expiries


def test_those_of_a_second_share_an_alarm(caplog: pytest.LogCaptureFixture) -> None:
    alarms: list[tuple[int, Callable[[], None]]] = []
    expiries, ended = Expiries(), []
    expiries.at = lambda due_ms, callback: alarms.append((due_ms, callback))

    def fail() -> None:
        raise RuntimeError("a bug")

    expiries.add("bug", 5001, fail)
    expiries.add("a", 5001, lambda: ended.append("a"))
    expiries.add("b", 6000, lambda: ended.append("b"))
    expiries.add("gone", 5500, lambda: ended.append("gone"))
    expiries.add("renewed", 5500, lambda: ended.append("too early"))
    expiries.add("renewed", 9000, lambda: ended.append("renewed"))
    expiries.discard("gone")
    expiries.discard("never there")
    assert [due_ms for due_ms, _ in alarms] == [6000, 9000]
    assert len(expiries) == 4
    for _, callback in alarms:
        callback()
    assert ended == ["a", "b", "renewed"]
    assert len(expiries) == 0
    assert "a bug leaves a connection open" in caplog.text


def test_many_of_a_second_end_in_portions() -> None:
    """Whoever has gone or has a new token before its turn comes is left alone."""
    alarms: list[Callable[[], None]] = []
    chores: list[Iterator[None]] = []
    expiries, ended = Expiries(), []
    expiries.at = lambda due_ms, callback: alarms.append(callback)
    expiries.begin = chores.append
    for number in range(20):
        expiries.add(number, 5000, lambda number=number: ended.append(number))  # type: ignore[misc]
    alarms[0]()
    (chore,) = chores
    assert ended == []
    next(chore)
    assert ended == list(range(8))
    expiries.discard(8)
    expiries.add(9, 9000, lambda: ended.append("too early"))
    expiries.add("late", 5000, lambda: ended.append("late"))
    next(chore)
    assert ended == [*range(8), *range(10, 18)]
    assert list(chore) == []
    assert ended[16:] == [18, 19, "late"]
    assert len(expiries) == 1
    expiries.add("next", 5000, lambda: ended.append("next"))
    assert len(alarms) == 3, "the second has an alarm again"
