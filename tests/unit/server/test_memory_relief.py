"""What the server does as memory runs short: a step now and then, no more than that, until it is over."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from flintmq.broker.broker import Broker
from flintmq.clock import Clock
from flintmq.config import Config, Limits
from flintmq.protocol.outbox import Room
from flintmq.server.memory import MemoryAlarm
from flintmq.server.memory_relief import ROUND_S, STEP_S, Relief
from flintmq.wire.stream import BodyStream, HeldBody

MIB = 2**20


class Scripted(MemoryAlarm):
    used_mib = 0

    def used_bytes(self) -> int:
        return self.used_mib * MIB


class Loop:
    """Timers that ring when the test says so."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.timers: list[tuple[float, Any]] = []

    def time(self) -> float:
        return self.now_s

    def call_later(self, delay_s: float, callback: Any) -> Any:
        self.timers.append((delay_s, callback))
        return SimpleNamespace(cancel=self.timers.clear)

    def ring(self) -> None:
        timers, self.timers = self.timers, []
        for delay_s, callback in timers:
            self.now_s += delay_s
            callback()


class Bench:
    """What Relief knows of a server."""

    def __init__(self) -> None:
        config = Config()._replace(limits=Limits(memory_high_bytes=100 * MIB))
        self.loop = Loop()
        self.alarm = Scripted(config)
        self.broker = Broker(config, Clock())
        self.scheduler = SimpleNamespace(room=Room(), schedule_pass=lambda: None)
        self.links: dict[Any, None] = {}
        self.stopping = None
        self.has_garbage = False
        self.given_back = 0
        self.relief = Relief(self)  # type: ignore[arg-type]

    def watch_memory(self) -> None:
        self.alarm.check()
        self.relief.react()

    def give_back(self) -> None:
        """All objects are looked at, of which there are many; connections come and go."""
        self.given_back += 1
        self.loop.now_s += 0.4

    def uses(self, mib: int) -> None:
        self.alarm.used_mib = mib
        self.watch_memory()

    def delays_s(self) -> list[float]:
        return [delay_s for delay_s, _ in self.loop.timers]


def test_there_is_one_step_at_a_time_with_a_pause_before_it() -> None:
    bench = Bench()
    bench.uses(60)
    assert (bench.delays_s(), bench.broker.pass_work.is_short) == ([], False)
    bench.uses(80)
    bench.uses(81)
    assert (bench.delays_s(), bench.broker.pass_work.is_short) == ([STEP_S], True)
    for _ in range(3):
        bench.loop.ring()
        assert bench.delays_s() == [ROUND_S], "there is nothing to move"
    bench.uses(50)
    assert not bench.broker.pass_work.is_short
    bench.loop.ring()
    assert bench.delays_s() == []


def link_of(
    bench: Bench, ended: list[str], name: str, leftover: int, pending: int = 0, body: int = 0
) -> None:
    streams = [BodyStream(1, HeldBody(bytes(body), 0), bench, 0)] if body else []  # type: ignore[arg-type]
    link = SimpleNamespace(
        leftover=bytearray(leftover),
        output=SimpleNamespace(
            capacity=pending,
            behind_bytes=0,
            pending=lambda: pending,
            streams=streams,
            streaming=len(streams),
        ),
        session=SimpleNamespace(
            content_bytes=lambda: 0, close_connection=lambda fault: ended.append(f"{name} {fault.code}")
        ),
        drop=lambda: ended.append(f"{name} dropped"),
    )
    bench.links[Hashable(link)] = None


class Hashable:
    """A link that can be a key."""

    def __init__(self, link: SimpleNamespace) -> None:
        self.__dict__ = link.__dict__


def test_the_heaviest_connections_end_where_memory_is_critical() -> None:
    bench = Bench()
    ended: list[str] = []
    link_of(bench, ended, "light", 100_000)
    link_of(bench, ended, "deaf", 0, 8 * MIB)
    link_of(bench, ended, "half", 6 * MIB)
    link_of(bench, ended, "also half", 5 * MIB)
    bench.uses(105)
    assert ended == []
    bench.uses(112)
    assert ended == ["deaf dropped", "half 506"], "12 MiB are too much: the two hold 14"
    assert bench.broker.pass_work.is_critical


def test_a_body_that_is_sent_from_memory_is_of_the_weight_of_its_connection() -> None:
    bench = Bench()
    ended: list[str] = []
    link_of(bench, ended, "half", 6 * MIB)
    link_of(bench, ended, "deaf", 0, body=13 * MIB)
    bench.uses(112)
    assert ended == ["deaf dropped"]


def test_parts_of_the_limit_follow_it() -> None:
    bench = Bench()
    usual = bench.relief.transaction_bytes_usual
    parts = []
    for mib in (8, 100_000, 100):
        bench.alarm.limit(Limits(memory_high_bytes=mib * MIB))
        bench.relief.take_shares()
        parts.append((bench.scheduler.room.budget_bytes, bench.broker.pass_work.transaction_bytes_max))
    assert parts == [(MIB, MIB), (12_500 * MIB, usual), (100 * MIB // 8, 100 * MIB // 8)]


@pytest.mark.parametrize(("mib", "times"), [(80, 2), (90, 2), (112, 16)])
def test_what_connections_leave_behind_is_looked_for_all_the_time_only_where_memory_is_critical(
    mib: int, times: int
) -> None:
    bench = Bench()
    bench.has_garbage = True
    bench.uses(mib)
    while bench.loop.now_s < 160:
        bench.loop.ring()
    assert bench.given_back == pytest.approx(times, abs=1)
