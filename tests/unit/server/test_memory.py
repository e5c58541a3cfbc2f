"""The memory alarm: on above the mark, off well below it."""

from __future__ import annotations

from dataclasses import replace

from flintmq.config import Config, Limits
from flintmq.server.memory import MemoryAlarm

MIB = 2**20


class Scripted(MemoryAlarm):
    used = 0

    def used_bytes(self) -> int:
        return self.used


def alarm() -> Scripted:
    return Scripted(replace(Config(), limits=Limits(memory_high_bytes=100 * MIB)))


def test_it_does_not_flutter() -> None:
    watched = alarm()
    told = []
    for used in (50, 100, 101, 99, 91, 101, 90, 95, 100, 120):
        watched.used = used * MIB
        told.append((watched.check(), watched.active))
    assert told == [
        (False, False),
        (False, False),
        (True, True),
        (False, True),
        (False, True),
        (False, True),
        (True, False),
        (False, False),
        (False, False),
        (True, True),
    ]


def test_the_reason_tells_both_numbers() -> None:
    watched = alarm()
    watched.used = 130 * MIB
    watched.check()
    assert watched.reason == "low on memory: 130 MiB used of 100 MiB allowed"
    watched.used = 0
    watched.check()
    assert watched.reason == ""


def test_the_real_use_is_a_plausible_one() -> None:
    assert MIB < MemoryAlarm(Config()).used_bytes() < 2**40
