"""Alarms: called once, in order, not before their time, whatever happens to the machine's clock."""

from __future__ import annotations

import random

from flintmq.broker.scheduling.timetable import ALARMS_MAX_PER_RUN, Timetable
from flintmq.clock import Clock


class SetClock(Clock):
    def __init__(self) -> None:
        self.random = random.Random(1)
        self.wall = 1_700_000_000_000
        self.passed_s = 50.0

    def monotonic_s(self) -> float:
        return self.passed_s

    def wall_ms(self) -> int:
        return self.wall


def test_alarms_come_in_order_and_once() -> None:
    clock = SetClock()
    timetable = Timetable(clock)
    called: list[str] = []
    start = timetable.now_ms()
    assert start == clock.wall
    timetable.at(start + 20, lambda: called.append("second"))
    timetable.at(start + 10, lambda: called.append("first"))
    timetable.at(start + 20, lambda: called.append("third"))
    timetable.run()
    assert called == []
    clock.passed_s += 0.0205
    timetable.run()
    timetable.run()
    assert called == ["first", "second", "third"]
    assert timetable.next_due_ms() is None


def test_a_cancelled_alarm_is_not_called_and_not_waited_for() -> None:
    timetable = Timetable(SetClock())
    alarm = timetable.at(timetable.now_ms(), lambda: 1 / 0)
    alarm.cancel()
    assert timetable.next_due_ms() is None
    timetable.run()


def test_a_jump_of_the_wall_clock_changes_nothing() -> None:
    clock = SetClock()
    timetable = Timetable(clock)
    called: list[int] = []
    timetable.at(timetable.now_ms() + 1000, lambda: called.append(1))
    clock.wall += 86_400_000
    timetable.run()
    assert called == []
    clock.wall -= 10 * 86_400_000
    clock.passed_s += 1.001
    timetable.run()
    assert called == [1]


def test_an_alarm_that_renews_itself_at_once_ends_the_run() -> None:
    timetable = Timetable(SetClock())
    called: list[int] = []

    def again() -> None:
        called.append(1)
        timetable.at(timetable.now_ms(), again)

    again()
    timetable.run()
    assert len(called) == ALARMS_MAX_PER_RUN + 1
