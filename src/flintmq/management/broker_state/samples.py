"""Counts over time: totals each few seconds for an hour, and rates of anything between two moments."""

from __future__ import annotations

import asyncio
import logging
import marshal
from collections import deque
from collections.abc import Sequence
from typing import Any

from flintmq.client.core.errors import ClientError
from flintmq.clock import Clock
from flintmq.management.broker_state.broker_link import BrokerLink

log = logging.getLogger("flintmq.management")

EVERY_S = 5.0
# An hour of them; one is some thousand octets for each virtual host.
KEPT = 720
# Totals are asked for anew if they are older, or older than so many times what it took to add them up: for
# 100,000 queues the broker takes some 30 ms, in portions.
FRESH_S = 0.05
SELDOM = 10
QUICK_S = 0.05
# Samples told for one value.
TOLD_MAX = 200


class Totals:
    """What management.totals told: `hosts` by name, and `broker`."""

    def __init__(self, time_s: float, wall_ms: int, hosts: dict[str, Any], broker: dict[str, Any]) -> None:
        self.time_s = time_s
        self.wall_ms = wall_ms
        self.hosts = hosts
        self.broker = broker

    def sum(self, name: str, host: str | None = None) -> int:
        if host is not None:
            return int(self.hosts.get(host, {}).get(name, 0))
        return sum(counts.get(name, 0) for counts in self.hosts.values())


class Samples:
    """Totals, now and before."""

    def __init__(self, link: BrokerLink, clock: Clock) -> None:
        self.link = link
        self.clock = clock
        self.history: deque[Totals] = deque(maxlen=KEPT)
        self.latest: Totals | None = None
        self.took_s = 0.0  # for the last ones, if that was long
        self.taking: asyncio.Task[Totals] | None = None

    async def watch(self) -> None:
        """Samples for ever."""
        while True:
            try:
                self.history.append(await self.take())
            except ClientError as error:
                log.error("no sample: %s", error)
            await asyncio.sleep(EVERY_S)

    async def current(self, fresh_s: float = FRESH_S) -> Totals:
        latest = self.latest
        wanted_s = max(fresh_s, SELDOM * self.took_s)
        if latest is not None and self.clock.monotonic_s() - latest.time_s < wanted_s:
            return latest
        if self.taking is None or self.taking.done():
            self.taking = asyncio.get_running_loop().create_task(self.take())
        return await asyncio.shield(self.taking)

    async def take(self) -> Totals:
        began_s = self.clock.monotonic_s()
        reply = await self.link.ask("management.totals", place=self.link.watch)
        found = marshal.loads(reply.body)
        self.latest = Totals(
            self.clock.monotonic_s(), found["broker"]["now_ms"], found["hosts"], found["broker"]
        )
        took_s = self.latest.time_s - began_s
        self.took_s = took_s if took_s > QUICK_S else 0.0
        return self.latest

    def forget(self) -> None:
        """The next one who asks gets new totals."""
        self.latest = None

    def before(self, now: Totals) -> Totals | None:
        """The totals that rates are counted from: about five seconds ago."""
        for earlier in reversed(self.history):
            if now.time_s - earlier.time_s >= EVERY_S / 2:
                return earlier
        return None

    def samples(self, age_s: float, incr_s: float) -> list[Totals]:
        """Newest first, `incr_s` apart or more, as far back as `age_s`."""
        incr_s = max(incr_s, age_s / TOLD_MAX)
        found: list[Totals] = []
        now_s = self.clock.monotonic_s()
        for each in reversed(self.history):
            if now_s - each.time_s > age_s or len(found) >= TOLD_MAX:
                break
            if not found or found[-1].time_s - each.time_s >= incr_s - EVERY_S / 2:
                found.append(each)
        return found


def rate(now: float, before: float | None, seconds: float) -> float:
    """Of a count that may have begun again."""
    if before is None or seconds <= 0:
        return 0.0
    return round((now - before) / seconds, 3)


def add_samples(found: dict[str, Any], timestamps: Sequence[int], values: Sequence[dict[str, int]]) -> None:
    """The history of each count, newest first, as `samples` of its details; `timestamps` are milliseconds."""
    if len(timestamps) < 2:
        return
    seconds = (timestamps[0] - timestamps[-1]) / 1000
    for name in values[0]:
        details = found.get(f"{name}_details")
        if details is None:
            continue
        numbers = [each[name] for each in values]
        details["samples"] = [
            {"sample": number, "timestamp": timestamp}
            for number, timestamp in zip(numbers, timestamps, strict=True)
        ]
        details["avg"] = sum(numbers) / len(numbers)
        details["avg_rate"] = rate(numbers[0], numbers[-1], seconds)
