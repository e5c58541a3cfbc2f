"""The wheel on which heartbeats are due."""

from __future__ import annotations

from flintmq.server.heartbeats import Heartbeats


class Beaten:
    def __init__(self, wheel: Heartbeats, beats_max: int = 1000) -> None:
        self.wheel = wheel
        self.beats_max = beats_max
        self.at: list[int] = []

    def beat(self) -> bool:
        self.at.append(self.wheel.now)
        return len(self.at) < self.beats_max


def turn(wheel: Heartbeats, ticks: int) -> None:
    for _ in range(ticks):
        wheel.tick()


def test_each_is_looked_at_twice_in_its_interval() -> None:
    wheel = Heartbeats()
    often, seldom = Beaten(wheel), Beaten(wheel)
    wheel.add(often, 1)  # type: ignore[arg-type]
    turn(wheel, 3)
    wheel.add(seldom, 10)  # type: ignore[arg-type]
    turn(wheel, 30)
    assert often.at == list(range(1, 34))  # each half second
    assert seldom.at == [13, 23, 33]  # each 5 seconds


def test_who_says_no_is_forgotten() -> None:
    wheel = Heartbeats()
    ending = Beaten(wheel, beats_max=2)
    wheel.add(ending, 2)  # type: ignore[arg-type]
    turn(wheel, 20)
    assert ending.at == [2, 4]
    assert wheel.slots == {}
