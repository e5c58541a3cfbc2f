"""How a lease is kept while a batch runs."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from flintmq.client.core.errors import CallTimeout
from flintmq.spark.feeds import lease_feed
from flintmq.spark.options import STREAM, ReadOptions


class Waits(threading.Event):
    """An event that nobody waits for: it notes how long it was to be waited for."""

    def __init__(self, took_s: list[float]) -> None:
        super().__init__()
        self.took_s = took_s

    def wait(self, timeout: float | None = None) -> bool:
        self.took_s.append(timeout or 0.0)
        return self.is_set()


class SilentAtFirst:
    """A connection that gives no answer, then one that does."""

    is_closed = False

    def __init__(self, took_s: list[float], answered: threading.Event) -> None:
        self.took_s = took_s
        self.answered = answered
        self.opened = 0

    def request(self, service: str, arguments: Any, timeout_s: float) -> None:
        if self.opened == 1:
            self.took_s.append(timeout_s)
            raise CallTimeout(f"no answer in {timeout_s:g} s")
        self.answered.set()

    def close(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize("lease_timeout_s", [3, 60, 600])
def test_one_renewal_without_an_answer_does_not_cost_the_lease(
    monkeypatch: pytest.MonkeyPatch, lease_timeout_s: int
) -> None:
    took_s: list[float] = []
    over = Waits(took_s)
    connection = SilentAtFirst(took_s, over)

    def opened(settings: Any, retry_timeout_s: float) -> SilentAtFirst:
        connection.opened += 1
        return connection

    monkeypatch.setattr(lease_feed, "threading", SimpleNamespace(Event=lambda: over, Thread=threading.Thread))
    monkeypatch.setattr(lease_feed, "open_connection", opened)
    options = ReadOptions.of({"queue": "q", "leaseTimeout": f"{lease_timeout_s}s"}, STREAM)
    lease_feed.Renewer(options, {}).thread.join()
    before_answer_s = took_s[:-1]  # the last is the wait that the end cut short
    assert connection.opened == 2
    assert len(before_answer_s) == 3, "a wait, a renewal without an answer, a wait"
    assert sum(before_answer_s) <= 0.75 * lease_timeout_s
