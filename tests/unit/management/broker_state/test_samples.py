"""Totals now and before: after a change, after a bug, and of many virtual hosts."""

from __future__ import annotations

import asyncio
import marshal
from types import SimpleNamespace
from typing import Any

import pytest

from flintmq.clock import Clock
from flintmq.management.broker_state import samples
from flintmq.management.broker_state.samples import Samples


class Link:
    """A broker that has so many queues, and answers when it may."""

    watch = None

    def __init__(self) -> None:
        self.queues = 1
        self.asked = 0
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def ask(self, service: str, place: Any) -> Any:
        self.asked += 1
        hosts = {"/": {"queues": self.queues, "ready": 0}, "other": {"queues": 7, "ready": 1000}}
        await self.may_answer.wait()
        return SimpleNamespace(body=marshal.dumps({"broker": {"now_ms": 5}, "hosts": hosts}))


def test_totals_of_before_a_change_are_not_told_after_it() -> None:
    """Totals were on their way when a queue was declared."""

    async def use() -> None:
        link: Any = Link()
        known = Samples(link, Clock())
        link.may_answer.clear()
        slow = asyncio.create_task(known.current())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        link.queues = 2
        known.forget()
        after = asyncio.create_task(known.current())
        await asyncio.sleep(0)
        link.may_answer.set()
        assert (await after).sum("queues") == 9
        await slow
        assert (await known.current()).sum("queues") == 9

    asyncio.run(use())


def test_samples_go_on_after_a_bug(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(samples, "EVERY_S", 0.001)

    async def use() -> None:
        link: Any = Link()
        known = Samples(link, Clock())
        told, went_on = link.ask, asyncio.Event()

        async def ask(service: str, place: Any) -> Any:
            if link.asked == 1:
                link.asked += 1
                raise KeyError("hosts")
            if link.asked == 4:
                went_on.set()
            return await told(service, place)

        link.ask = ask
        watching = asyncio.create_task(known.watch())
        async with asyncio.timeout(10):
            await went_on.wait()
        watching.cancel()
        assert len(known.history) >= 2

    asyncio.run(use())
    assert "a bug keeps a sample from being taken" in caplog.text


def test_virtual_hosts_in_which_nothing_happens_take_little_memory() -> None:
    """720 samples of 1000 virtual hosts took 600 MB."""

    async def use() -> None:
        link: Any = Link()
        known = Samples(link, Clock())
        known.history.append(await known.take())
        link.queues = 2
        known.history.append(await known.take())
        first, second = known.history
        assert second.hosts["other"] is first.hosts["other"]
        assert [each.hosts["/"]["queues"] for each in known.history] == [1, 2]
        assert [each.summed(("/", "other"))["queues"] for each in known.history] == [8, 9]
        assert second.summed(("/", "other")) is second.summed(("/", "other"))
        assert second.summed(("/", "gone")) == {"queues": 2, "ready": 0}

    asyncio.run(use())


def test_a_clock_that_was_set_back_leaves_the_times_between_samples() -> None:
    class Moved(Clock):
        now_s, wall = 100.0, 50_000_000

        def monotonic_s(self) -> float:
            return self.now_s

        def wall_ms(self) -> int:
            return self.wall

    clock = Moved()
    link: Any = Link()
    known = Samples(link, clock)
    for _ in range(3):
        known.history.append(asyncio.run(known.take()))
        clock.now_s += 5
        clock.wall += 5000
    clock.wall -= 3_600_000
    times_ms = known.timestamps(known.samples(60, 5))
    assert times_ms == [clock.wall - 5000, clock.wall - 10_000, clock.wall - 15_000]
