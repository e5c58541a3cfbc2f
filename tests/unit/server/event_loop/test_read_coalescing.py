"""Pauses: only between small turns in quick succession, and only as long as they pay."""

from __future__ import annotations

import pytest

from flintmq.server.event_loop import read_coalescing
from flintmq.server.event_loop.read_coalescing import TURNS_MIN, TURNS_WITHOUT, ReadCoalescing


class Time:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.pauses = 0

    def perf_counter(self) -> float:
        return self.now_s

    def sleep(self, wait_s: float) -> None:
        self.pauses += 1
        self.now_s += 70e-6


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    scripted = Time()
    monkeypatch.setattr(read_coalescing, "time", scripted)
    return scripted


def turn(coalescing: ReadCoalescing, time: Time, octets: int, after_s: float = 20e-6) -> None:
    time.now_s += after_s
    coalescing.octets += octets
    coalescing.end_turn()


def test_many_small_turns_in_a_row_are_paused_while_it_pays(time: Time) -> None:
    coalescing = ReadCoalescing()
    for _ in range(TURNS_MIN):
        turn(coalescing, time, 60)
    assert time.pauses == 1
    for _ in range(100):
        turn(coalescing, time, 3000)
    assert time.pauses == 101


def test_a_peer_that_waits_for_answers_is_left_alone(time: Time) -> None:
    coalescing = ReadCoalescing()
    for _ in range(TURNS_MIN):
        turn(coalescing, time, 60)
    for _ in range(TURNS_WITHOUT):
        turn(coalescing, time, 60)
    assert time.pauses == 1


def test_turns_with_time_between_them_are_no_rush(time: Time) -> None:
    coalescing = ReadCoalescing()
    for _ in range(10 * TURNS_MIN):
        turn(coalescing, time, 60, after_s=200e-6)
    assert time.pauses == 0


def test_large_turns_need_no_pause(time: Time) -> None:
    coalescing = ReadCoalescing()
    for _ in range(10 * TURNS_MIN):
        turn(coalescing, time, 100_000)
    assert time.pauses == 0
