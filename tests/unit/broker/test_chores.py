"""Chores: what is done at once, what waits, and that all have their turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from flintmq.broker.scheduling import chores
from flintmq.broker.scheduling.pass_work import PassWork
from flintmq.broker.scheduling.timetable import Timetable
from flintmq.clock import Clock


class StandingClock(Clock):
    """Goes on only where a step takes time."""

    def __init__(self) -> None:
        self.now_s = 0.0
        super().__init__()

    def monotonic_s(self) -> float:
        return self.now_s


class Bench:
    def __init__(self) -> None:
        self.clock = StandingClock()
        self.pass_work = PassWork(Timetable(self.clock))
        self.pass_work.chores.keep_waiting(False)
        self.done: list[str] = []

    def chore(self, name: str, steps: int, takes_s: float = 0.0) -> Iterator[None]:
        for _ in range(steps):
            self.done.append(name)
            self.clock.now_s += takes_s
            yield

    def finish_pass(self) -> None:
        self.pass_work.passes += 1
        if self.pass_work.has_chores:
            self.pass_work.chores.run()


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_little_is_done_at_once(bench: Bench) -> None:
    bench.pass_work.chores.begin(bench.chore("a", 3))
    assert bench.done == ["a"] * 3
    assert not bench.pass_work.has_work()


def test_much_is_done_over_passes(bench: Bench) -> None:
    bench.pass_work.chores.begin(bench.chore("a", 1000))
    assert len(bench.done) == chores.CREDIT
    assert bench.pass_work.has_work()
    bench.finish_pass()
    assert len(bench.done) == chores.CREDIT + chores.STEPS_MAX
    while bench.pass_work.has_work():
        bench.finish_pass()
    assert len(bench.done) == 1000


def test_what_begins_in_one_pass_shares_its_credit(bench: Bench) -> None:
    for number in range(chores.CREDIT + 5):
        bench.pass_work.chores.begin(bench.chore(str(number), 1))
    assert len(bench.pass_work.chores.waiting) > 5
    bench.finish_pass()
    bench.done.clear()
    bench.pass_work.chores.begin(bench.chore("next pass", 1))
    assert bench.done == ["next pass"]


def test_a_pass_ends_by_the_clock(bench: Bench) -> None:
    bench.pass_work.chores.begin(bench.chore("slow", 100, chores.PASS_S))
    assert len(bench.done) == 1
    bench.finish_pass()
    assert len(bench.done) == 2


def test_a_pass_is_shorter_where_somebody_waits(bench: Bench) -> None:
    bench.pass_work.chores.keep_waiting(True)
    bench.pass_work.chores.begin(bench.chore("a", 1000, chores.PASS_WAITED_S))
    assert len(bench.done) == 1
    for passes in (1, 2, 3):
        bench.finish_pass()
        assert len(bench.done) == 1 + passes


def test_a_pass_with_something_to_hand_out_leaves_chores_to_the_next_one(bench: Bench) -> None:
    assert bench.pass_work.is_turn_of_chores()
    bench.pass_work.queues = [None]  # whatever it is
    turns = [bench.pass_work.is_turn_of_chores() for _ in range(4)]
    assert turns == [False, True, False, True]
    bench.pass_work.is_turn_of_chores()
    bench.pass_work.queues = []
    assert [bench.pass_work.is_turn_of_chores() for _ in range(2)] == [True, True]


def test_all_have_their_turn(bench: Bench) -> None:
    bench.pass_work.chores.begin(bench.chore("long", 10_000, chores.PASS_S / 4))
    bench.pass_work.chores.begin(bench.chore("late", 1, chores.PASS_S / 4))
    bench.pass_work.chores.begin(bench.chore("later", 1, chores.PASS_S / 4))
    bench.done.clear()
    bench.finish_pass()
    bench.finish_pass()
    assert set(bench.done) == {"long", "late", "later"}


def test_a_chore_may_begin_others(bench: Bench) -> None:
    def chain(left: int) -> Iterator[None]:
        bench.done.append("link")
        if left:
            bench.pass_work.chores.begin(chain(left - 1))
        yield

    bench.pass_work.chores.begin(chain(5000))  # deeper than calls may be
    while bench.pass_work.has_work():
        bench.finish_pass()
    assert len(bench.done) == 5001


def test_what_fails_at_once_is_its_callers(bench: Bench) -> None:
    def broken() -> Iterator[None]:
        yield
        raise KeyError("bug")

    with pytest.raises(KeyError):
        bench.pass_work.chores.begin(broken())
    assert not bench.pass_work.has_work()
    bench.pass_work.chores.begin(bench.chore("a", 1))
    assert bench.done == ["a"]


def test_what_fails_later_leaves_the_others_alone(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> Iterator[None]:
        for _ in range(chores.CREDIT):
            yield
        raise KeyError("bug")

    bench.pass_work.chores.begin(broken())
    bench.pass_work.chores.begin(bench.chore("a", 3))
    while bench.pass_work.has_work():
        bench.finish_pass()
    assert bench.done == ["a"] * 3
    assert "a bug ends a chore" in caplog.text


def test_all_of_it_before_the_end(bench: Bench) -> None:
    bench.pass_work.chores.begin(bench.chore("a", 1000, 1.0))
    bench.pass_work.chores.finish()
    assert len(bench.done) == 1000
    assert not bench.pass_work.has_work()


def test_what_has_begun_takes_of_the_time_of_the_pass(bench: Bench) -> None:
    """Everybody else waits for both."""
    bench.pass_work.chores.begin(bench.chore("a", 1000, 0.0001))
    at_once = len(bench.done)
    bench.finish_pass()
    assert len(bench.done) == at_once + 1
    bench.finish_pass()
    assert len(bench.done) == at_once + 1 + round(chores.PASS_S / 0.0001)


@pytest.mark.parametrize("credit", [0, 1, chores.CREDIT])
def test_a_chore_that_waits_takes_no_time(bench: Bench, credit: int) -> None:
    called: list[Callable[[], None]] = []

    def work() -> chores.Chore:
        bench.done.append("before")
        yield called.append
        bench.done.append("after")

    bench.pass_work.chores.pass_number, bench.pass_work.chores.credit = bench.pass_work.passes, credit
    bench.pass_work.chores.begin(work())
    for _ in range(3):
        bench.finish_pass()
    assert bench.done == ["before"]
    assert not bench.pass_work.has_work()
    called.pop()()
    assert bench.pass_work.has_work()
    bench.finish_pass()
    assert bench.done == ["before", "after"]
    assert not bench.pass_work.has_work()


def test_a_chore_that_waits_for_what_is_there_goes_on(bench: Bench) -> None:
    def work() -> chores.Chore:
        yield lambda go_on: go_on()
        bench.done.append("after")

    bench.pass_work.chores.begin(work())
    bench.finish_pass()
    assert bench.done == ["after"]


def test_what_waits_for_an_alarm_comes_to_an_end_too(bench: Bench) -> None:
    timetable = bench.pass_work.timetable
    has_come: list[bool] = []
    timetable.at(timetable.now_ms() + 5, lambda: has_come.append(True))

    def asking() -> Iterator[None]:
        while not has_come:
            bench.clock.now_s += 0.001
            assert bench.clock.now_s < 1
            yield
        bench.done.append("asking")

    bench.pass_work.chores.waiting.append(asking())
    bench.pass_work.chores.finish()
    assert bench.done == ["asking"]
