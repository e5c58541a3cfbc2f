"""The wheel on which heartbeats are due, turned by a loop whose time is in the test's hands."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from typing import Any

import pytest

from flintmq.server.network.heartbeats import LOOKS_MAX, SLOT_S, Heartbeats


class Timer:
    def __init__(self, due_s: float, callback: Callable[[], None]) -> None:
        self.due_s = due_s
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True

    def __lt__(self, other: Timer) -> bool:
        return self.due_s < other.due_s


class FakeLoop:
    """An event loop that is late by up to `late_s` with every timer."""

    def __init__(self, late_s: float = 0.0, seed: int = 1) -> None:
        self.now_s = 1000.0
        self.late_s = late_s
        self.random = random.Random(seed)
        self.timers: list[Timer] = []

    def time(self) -> float:
        return self.now_s

    def call_at(self, due_s: float, callback: Callable[[], None]) -> Timer:
        timer = Timer(due_s, callback)
        heapq.heappush(self.timers, timer)
        return timer

    def run_until(self, end_s: float) -> None:
        while self.timers and self.timers[0].due_s <= end_s:
            timer = heapq.heappop(self.timers)
            if not timer.cancelled:
                self.now_s = max(self.now_s, timer.due_s + self.random.uniform(0, self.late_s))
                timer.callback()
        self.now_s = max(self.now_s, end_s)


class FakeScheduler:
    outbox: tuple[()] = ()


class Beaten:
    """A link: what it sends, and when."""

    session = "a session"

    def __init__(self, loop: FakeLoop, beats_max: int = 1_000_000) -> None:
        self.loop = loop
        self.looks = 0
        self.beats_max = beats_max
        self.sent = False
        self.sent_at: list[float] = [loop.now_s]

    def send(self) -> None:
        self.sent = True
        self.sent_at.append(self.loop.now_s)

    def beat(self) -> bool:
        self.looks += 1
        was_sent, self.sent = self.sent, False
        if not was_sent:
            self.send()
        return self.looks < self.beats_max

    def longest_gap_s(self) -> float:
        return max(later - earlier for earlier, later in zip(self.sent_at, self.sent_at[1:], strict=False))


def wheel_of(loop: FakeLoop) -> Heartbeats:
    scheduler: Any = FakeScheduler()
    fake: Any = loop
    return Heartbeats(fake, scheduler)


@pytest.mark.parametrize("interval_s", [1, 2, 3, 10, 60, 600])
@pytest.mark.parametrize("chatter", ["idle", "seldom", "busy", "right after each look"])
def test_from_one_frame_to_the_next_is_at_most_half_the_interval(interval_s: int, chatter: str) -> None:
    loop = FakeLoop(late_s=0.01)
    wheel = wheel_of(loop)
    link = Beaten(loop)
    wheel.add(link, interval_s)  # type: ignore[arg-type]
    end_s = loop.now_s + 20 * interval_s
    pause_s = {"idle": 1e9, "seldom": interval_s / 1.7, "busy": interval_s / 50}.get(chatter, SLOT_S)
    while loop.now_s < end_s:
        looks = link.looks
        loop.run_until(min(end_s, loop.now_s + pause_s))
        if chatter != "right after each look" or link.looks != looks:
            link.send()
    assert link.longest_gap_s() <= interval_s / 2


def test_lateness_does_not_add_up() -> None:
    loop = FakeLoop(late_s=0.05)
    wheel = wheel_of(loop)
    link = Beaten(loop)
    wheel.add(link, 2)  # type: ignore[arg-type]
    loop.run_until(loop.now_s + 400)
    assert link.looks == 1000  # each 0.4 s


def test_a_loop_that_stood_still_goes_on() -> None:
    loop = FakeLoop()
    wheel = wheel_of(loop)
    link = Beaten(loop)
    wheel.add(link, 1)  # type: ignore[arg-type]
    loop.run_until(loop.now_s + 1)
    looks = link.looks
    loop.now_s += 60
    loop.run_until(loop.now_s + 1)
    assert link.looks - looks == 6, "once for the time that was lost, and then as before"


def test_who_says_no_is_forgotten() -> None:
    loop = FakeLoop()
    wheel = wheel_of(loop)
    ending = Beaten(loop, beats_max=2)
    wheel.add(ending, 2)  # type: ignore[arg-type]
    loop.run_until(loop.now_s + 20)
    assert ending.looks == 2
    assert (wheel.slots, wheel.due, wheel.timer) == ({}, [], None)


def test_a_bug_in_looking_at_one_does_not_end_the_heartbeats_of_all(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    loop = FakeLoop()
    wheel = wheel_of(loop)
    broken, link = Beaten(loop), Beaten(loop)
    for each in (link, broken):
        wheel.add(each, 1)  # type: ignore[arg-type]
    beat = Beaten.beat

    def fails(beaten: Beaten) -> bool:
        if beat(beaten) and beaten is broken and beaten.looks < 3:
            raise RuntimeError("a bug")
        return True

    monkeypatch.setattr(Beaten, "beat", fails)
    loop.run_until(loop.now_s + 10)
    assert broken.looks == link.looks == 50
    assert "a bug in looking" in caplog.text


def test_nothing_runs_while_nobody_is_due() -> None:
    loop = FakeLoop()
    wheel = wheel_of(loop)
    assert loop.timers == []
    link = Beaten(loop)
    wheel.add(link, 600)  # type: ignore[arg-type]
    assert [timer.due_s - loop.now_s for timer in loop.timers] == [135.0]
    sooner = Beaten(loop)
    wheel.add(sooner, 1)  # type: ignore[arg-type]
    loop.run_until(loop.now_s + 10)
    assert (link.looks, sooner.looks) == (0, 50)


def test_very_many_are_looked_at_in_portions() -> None:
    loop = FakeLoop()
    wheel = wheel_of(loop)
    links = [Beaten(loop) for _ in range(LOOKS_MAX + 1)]
    for link in links:
        wheel.add(link, 1)  # type: ignore[arg-type]
    loop.now_s += 0.2
    wheel.run()
    assert sum(link.looks for link in links) == LOOKS_MAX
    wheel.run()
    assert sum(link.looks for link in links) == LOOKS_MAX + 1
