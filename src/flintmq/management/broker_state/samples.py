"""Counts over time: totals each few seconds for an hour, and rates of anything between two moments."""

from __future__ import annotations

import asyncio
import logging
import marshal
import sys
from collections import Counter, deque
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

    def __init__(self, time_s: float, hosts: dict[str, Any], broker: dict[str, Any]) -> None:
        self.time_s = time_s  # by a clock that never leaps
        self.hosts = hosts
        self.broker = broker
        self._summed: tuple[tuple[str, ...], dict[str, int]] | None = None  # what was asked for last

    def summed(self, hosts: tuple[str, ...]) -> dict[str, int]:
        """All counts, each added up over these virtual hosts. It is remembered: the console asks for the
        same of a hundred samples again and again."""
        if self._summed is None or self._summed[0] != hosts:
            found: Counter[str] = Counter()
            for host in hosts:
                found.update(self.hosts.get(host, {}))
            self._summed = (hosts, dict(found))
        return self._summed[1]

    def sum(self, name: str) -> int:
        """Over all virtual hosts."""
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
        self.changes = 0  # over HTTP

    async def watch(self) -> None:
        """Samples for ever."""
        while True:
            try:
                self.history.append(await self.take())
            except ClientError as error:
                log.error("no sample: %s", error)
            except Exception:
                log.exception("a bug keeps a sample from being taken")
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
        began_s, changes = self.clock.monotonic_s(), self.changes
        reply = await self.link.ask("management.totals", place=self.link.watch)
        found = marshal.loads(reply.body)
        hosts = self.shared(found["hosts"])
        totals = Totals(self.clock.monotonic_s(), hosts, found["broker"])
        took_s = totals.time_s - began_s
        self.took_s = took_s if took_s > QUICK_S else 0.0
        if changes == self.changes:
            self.latest = totals
        return totals

    def shared(self, hosts: dict[str, Any]) -> dict[str, Any]:
        """Counts that are those of the sample before are the very same ones: in most of a thousand virtual
        hosts nothing happens, and what is kept of each would be some hundred octets, 720 times."""
        before = self.history[-1].hosts if self.history else {}
        found: dict[str, Any] = {}
        for name, counts in hosts.items():
            known = before.get(name)
            found[sys.intern(name)] = known if known == counts else counts
        return found

    def forget(self) -> None:
        """The next one who asks gets new totals, not those that are on their way."""
        self.latest = None
        self.taking = None
        self.changes += 1

    def before(self, now: Totals) -> Totals | None:
        """The totals that rates are counted from: about five seconds ago."""
        for earlier in reversed(self.history):
            if now.time_s - earlier.time_s >= EVERY_S / 2:
                return earlier
        return None

    def timestamps(self, points: list[Totals]) -> list[int]:
        """By the clock on the wall as that goes now: it may have been set since the first of them."""
        now_s, wall_ms = self.clock.monotonic_s(), self.clock.wall_ms()
        return [wall_ms - round(1000 * (now_s - point.time_s)) for point in points]

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
