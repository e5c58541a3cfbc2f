"""The past of queues: ticks, points, what holds between them, and what is forgotten."""

from __future__ import annotations

import asyncio
import logging
from itertools import pairwise
from typing import Any

import pytest

from flintmq.client.core.errors import ConnectionClosed
from flintmq.clock import Clock
from flintmq.management.broker_state import queue_history
from flintmq.management.broker_state.queue_history import Counts, Now, QueueHistory, pause_s
from flintmq.management.broker_state.shapes import QUEUE_DEPTHS, QUEUE_STATS, as_declared
from flintmq.snapshot_rows import QueueRow

WALL_MS = 1_700_000_000_000


def row_of(name: str, published: int = 0, ready: int = 0, number: int = 0) -> QueueRow:
    empty = QueueRow._make(
        [name, False, False, False, False, b"", 0, number, *[0] * (len(QueueRow._fields) - 8)]
    )
    return empty._replace(entered=published, ready=ready)


class Past:
    """A history of the virtual host `/`, which is told of its queues tick by tick."""

    def __init__(self, every_s: float = 5.0) -> None:
        self.history = QueueHistory(None, None, Clock())  # type: ignore[arg-type]
        self.every_s = every_s
        self.now_s = 1000.0
        self.rows: dict[Any, QueueRow] = {}

    @property
    def now(self) -> Now:
        return Now(round(1000 * self.now_s), WALL_MS + round(1000 * self.now_s))

    def tick(self, *rows: QueueRow, host: str = "/") -> None:
        """Queues that are not told as they are now are gone."""
        self.now_s += self.every_s
        self.history.round_before_ms = self.history.round_ms
        self.history.round_ms = self.now.time_ms
        asyncio.run(self.history.note(host, {row.name: row for row in rows}, self.now.time_ms))
        self.rows = {row.name: row for row in rows}

    def published(self, name: str, age_s: float = 600, incr_s: float = 5) -> list[int]:
        """Samples of a counter, newest first."""
        ticks = self.history.ticks("/", self.now, age_s, incr_s, 1000)
        points = self.history.points("/", self.rows[name], self.now, ticks)
        return [counts.publish for _, counts in points]


def test_a_queue_that_does_not_change_has_one_point_and_its_values_hold() -> None:
    past = Past()
    for published in (3, 3, 3, 7, 7):
        past.tick(row_of("q", published))
    assert past.published("q") == [7, 7, 3, 3, 3]
    assert list(past.history.queues["/", "q"].fine.values)[8::10] == [3, 7]


def test_ten_minutes_are_fine_and_an_hour_has_minutes() -> None:
    past = Past()
    for number in range(1000):  # 83 minutes
        past.tick(row_of("q", number))
    fine = past.published("q")
    assert fine == list(range(999, 878, -1))  # 121 ticks are ten minutes
    hour = past.published("q", 3600, 60)
    assert len(hour) in (60, 61, 62)
    assert {newer - older for newer, older in pairwise(hour[1:])} <= {11, 12, 13}
    kept = past.history.queues["/", "q"]
    octets = sum(
        len(each.times_ms) * each.times_ms.itemsize + len(each.values) * each.values.itemsize
        for each in (kept.fine, kept.coarse)
    )
    assert octets == (121 + 61) * 88


def test_a_value_of_an_hour_ago_holds_until_the_queue_changes() -> None:
    past = Past()
    past.tick(row_of("q", 5), row_of("busy", 0))
    for number in range(500):
        past.tick(row_of("q", 5), row_of("busy", number))
    past.tick(row_of("q", 6), row_of("busy", 500))
    hour = past.published("q", 3600, 60)
    assert hour[0] == 6
    assert set(hour[1:]) == {5}
    assert len(hour) > 40


def test_samples_are_as_far_apart_as_is_wanted_and_newest_first() -> None:
    past = Past()
    for number in range(100):
        past.tick(row_of("q", number))
    ticks = past.history.ticks("/", past.now, 60, 10, 1000)
    assert ticks == [past.now.time_ms - 10_000 * number for number in range(len(ticks))]
    assert len(ticks) == 7
    assert len(past.history.ticks("/", past.now, 600, 5, 30)) == 30
    points = past.history.points("/", past.rows["q"], past.now, ticks)
    assert [at_ms for at_ms, _ in points] == [WALL_MS + time_ms for time_ms in ticks]


def test_a_clock_that_was_set_back_leaves_the_times_between_samples() -> None:
    past = Past()
    for number in range(3):
        past.tick(row_of("q", number))
    ticks = past.history.ticks("/", past.now, 60, 5, 1000)
    set_back = past.now._replace(wall_ms=past.now.wall_ms - 3_600_000)
    points = past.history.points("/", past.rows["q"], set_back, ticks)
    times_ms = [at_ms for at_ms, _ in points]
    assert times_ms[0] == set_back.wall_ms
    assert [newer - older for newer, older in pairwise(times_ms)] == [5000, 5000]


def test_what_was_seen_since_the_last_tick_is_the_newest_sample() -> None:
    past = Past()
    for number in (1, 2):
        past.tick(row_of("q", number))
    past.rows["q"] = row_of("q", 9)
    past.now_s += 1
    assert past.published("q") == [2, 1]  # one second is too short for a rate
    past.now_s += 3
    assert past.published("q") == [9, 2, 1]


def test_counters_that_go_back_begin_a_new_history() -> None:
    past = Past()
    for number in (10, 20, 4, 6):
        past.tick(row_of("q", number))
    assert past.published("q") == [6, 4]
    past.rows["q"] = row_of("q", 1)
    past.now_s += 4
    assert past.published("q") == [1]
    # A durable queue has another number in the journal when it is declared again.
    past.tick(row_of("kept", 5, number=7))
    past.tick(row_of("kept", 9, number=8))
    assert past.published("kept") == [9]


def test_deleted_queues_and_virtual_hosts_are_forgotten() -> None:
    past = Past()
    past.tick(row_of("a"), row_of("b"))
    past.tick(row_of("a"))
    assert list(past.history.queues) == [("/", "a")]
    past.tick(row_of("a"), host="other")
    past.history.forget_hosts(frozenset({"/"}))
    assert list(past.history.queues) == [("/", "a")]
    assert list(past.history.hosts) == ["/"]


def test_the_queue_that_was_unchanged_longest_makes_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_history, "QUEUES_MAX", 3)
    past = Past()
    names = ["a", "b", "c", "d"]
    counts = dict.fromkeys(names, 0)

    def tick(*changed: str) -> list[str]:
        counts.update({name: counts[name] + 1 for name in changed})
        past.tick(*(row_of(name, counts[name]) for name in names))
        return sorted(name for _, name in past.history.queues)

    assert tick() == ["a", "b", "c"]
    assert tick("a") == ["a", "b", "c"]
    assert tick("a", "c") == ["a", "b", "c"]
    assert tick("a", "c", "d") == ["a", "c", "d"]
    assert past.published("d") == [1, 0]  # with the value that had held before
    # Where all queues with a history are busy, no other one takes their place.
    assert tick("a", "b", "c", "d") == ["a", "c", "d"]
    assert past.published("b") == [1]  # as it is now


def test_counts_are_those_of_message_stats() -> None:
    row = as_declared(row_of("q"))._replace(
        ready=3, unacked=2, entered=50, settled=30, unasked=4, gets=5, gets_unasked=6, redeliveries=7
    )
    counts = Counts.of(row)
    assert counts.stats() == {name: count(row) for name, count in QUEUE_STATS.items()}
    assert counts.depths() == {name: count(row) for name, count in QUEUE_DEPTHS.items()}


def test_looks_take_a_hundredth_of_the_time() -> None:
    assert [pause_s(took_s) for took_s in (0.0, 0.04, 0.2, 5.0)] == [5.0, 5.0, 20.0, 60.0]


def test_a_broker_that_does_not_answer_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rounds = []

    async def hosts() -> list[str]:
        rounds.append(1)
        if len(rounds) == 4:
            raise asyncio.CancelledError
        raise ConnectionClosed("gone")

    monkeypatch.setattr(queue_history, "EVERY_S", 0.0)
    history = QueueHistory(None, hosts, Clock())  # type: ignore[arg-type]
    with caplog.at_level(logging.ERROR), pytest.raises(asyncio.CancelledError):
        asyncio.run(history.watch())
    assert [record.getMessage() for record in caplog.records] == ["no look at queues: gone"]


def test_a_row_from_before_the_last_tick_is_no_queue_that_was_declared_again() -> None:
    past = Past()
    past.tick(row_of("q", 1))
    past.tick(row_of("q", 5))
    earlier = past.now
    past.tick(row_of("q", 9))
    ticks = past.history.ticks("/", earlier, 600, 5, 100)
    points = past.history.points("/", row_of("q", 5), earlier, ticks[1:])
    assert [counts.publish for _, counts in points] == [5, 1]
