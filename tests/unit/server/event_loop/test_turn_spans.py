"""Spans for turns of the event loop that take long."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from flintmq.clock import Clock
from flintmq.errors import ConfigFault
from flintmq.server.event_loop import turn_spans
from flintmq.server.event_loop.turn_spans import SPANS_MAX, TurnSpans


class Still(Clock):
    """A moment."""

    now_s = 5.0

    def monotonic_s(self) -> float:
        return self.now_s

    def wall_ms(self) -> int:
        return round(1000 * self.now_s)


class Recorder:
    """Both a provider and a tracer."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, int, int, dict[str, Any]]] = []

    def get_tracer(self, *_: Any, **__: Any) -> Recorder:
        return self

    def start_span(self, name: str, start_time: int, attributes: dict[str, Any]) -> Any:
        return SimpleNamespace(end=lambda end: self.spans.append((name, start_time, end, attributes)))


def scheduler() -> Any:
    return SimpleNamespace(pass_work=SimpleNamespace(passes=7, queues=[]), slow_us=0, slow_turn=None)


def test_a_long_turn_is_a_span() -> None:
    turns, recorder = scheduler(), Recorder()
    TurnSpans(turns, 50, Still(), recorder)
    assert turns.slow_us == 50_000
    turns.slow_turn(60_000)
    ((name, start_ns, end_ns, attributes),) = recorder.spans
    assert (name, end_ns - start_ns, attributes["flintmq.passes"]) == ("turn", 60_000_000, 7)


def test_a_broker_that_is_always_late_tells_of_some() -> None:
    turns, recorder, clock = scheduler(), Recorder(), Still()
    TurnSpans(turns, 50, clock, recorder)
    for _ in range(SPANS_MAX + 3):
        turns.slow_turn(60_000)
    assert len(recorder.spans) == SPANS_MAX
    clock.now_s += 1
    turns.slow_turn(60_000)
    assert recorder.spans[-1][3]["flintmq.untold"] == 3


def test_a_tracer_that_fails_is_asked_once() -> None:
    turns, recorder = scheduler(), Recorder()
    TurnSpans(turns, 50, Still(), recorder)
    recorder.start_span = None  # type: ignore[assignment, method-assign]
    turns.slow_turn(60_000)
    assert turns.slow_turn is None


def test_without_opentelemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(turn_spans.importlib, "import_module", missing)
    with pytest.raises(ConfigFault, match=r"pip install 'flintmq\[otel\]'"):
        TurnSpans(scheduler(), 50, Still())
