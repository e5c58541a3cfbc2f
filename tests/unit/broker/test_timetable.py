"""The timetable: alarms in order of time, however many are cancelled."""

from __future__ import annotations

import random

from flintmq.broker.scheduling.timetable import (
    ALARMS_MAX_PER_RUN,
    CANCELLED_MAX,
    SORTED_OUT_MIN,
    Alarm,
    Timetable,
)
from flintmq.clock import Clock


class SetClock(Clock):
    def __init__(self) -> None:
        self.random = random.Random(1)
        self.now_ms = 1_000

    def monotonic_s(self) -> float:
        return (self.now_ms + 0.25) / 1000

    def wall_ms(self) -> int:
        return self.now_ms


def test_cancelled_alarms_do_not_pile_up() -> None:
    timetable = Timetable(SetClock())
    rung: list[int] = []
    kept = [timetable.at(50_000 + number, lambda: rung.append(1)) for number in range(10)]
    for number in range(10_000):
        timetable.at(10_000_000 - number, lambda: rung.append(2)).cancel()
        assert len(timetable.alarms) + len(timetable.aside) <= 2 * SORTED_OUT_MIN
    assert timetable.next_due_ms() == 50_000
    assert all(alarm.callback is not None for alarm in kept)


def test_alarms_cancelled_at_once_go_in_portions() -> None:
    clock = SetClock()
    timetable = Timetable(clock)
    rung: list[int] = []
    count = 100 * CANCELLED_MAX
    alarms = [timetable.at(2_000 + number, lambda: rung.append(1)) for number in range(count)]
    timetable.at(50_000, lambda: rung.append(2))
    for alarm in alarms:
        alarm.cancel()
    looks = 0
    left = count + 1
    while timetable.next_due_ms() != 50_000:
        looks += 1
        before, left = left, len(timetable.alarms) + len(timetable.aside)
        assert before - left <= CANCELLED_MAX
    assert looks >= 99
    clock.now_ms = 50_000
    timetable.run()
    assert rung == [2]


def test_a_run_goes_past_cancelled_alarms_in_portions() -> None:
    clock = SetClock()
    timetable = Timetable(clock)
    rung: list[int] = []
    for number in range(3 * ALARMS_MAX_PER_RUN):
        timetable.at(2_000 + number, lambda: rung.append(1)).cancel()
    timetable.at(40_000, lambda: rung.append(2))
    clock.now_ms = 50_000
    before = len(timetable.alarms) + len(timetable.aside)
    timetable.run()
    assert before - len(timetable.alarms) - len(timetable.aside) <= ALARMS_MAX_PER_RUN
    while timetable.has_alarms():
        timetable.run()
    assert rung == [2]


def test_alarms_ring_in_order_while_some_are_put_aside() -> None:
    clock = SetClock()
    timetable = Timetable(clock)
    chance = random.Random(7)
    rung: list[int] = []
    expected: list[tuple[int, int]] = []
    alarms: dict[int, Alarm] = {}
    for number in range(4_000):
        due_ms = chance.randrange(2_000, 100_000)
        alarms[number] = timetable.at(due_ms, lambda number=number: rung.append(number))  # type: ignore[misc]
        expected.append((due_ms, number))
        if chance.random() < 0.6:
            gone = chance.choice(expected)
            expected.remove(gone)
            alarms[gone[1]].cancel()
    while (due_ms_next := timetable.next_due_ms()) is not None:
        clock.now_ms = due_ms_next
        timetable.run()
    assert rung == [number for _, number in sorted(expected)]
    assert not timetable.has_alarms()
