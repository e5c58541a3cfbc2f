"""A publisher to a queue that is drained from disk lets the consumers of the queue go first."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from flintmq.server.network.link import HELD_DRAINED
from flintmq.server.server import DRAINED_LOOKS_MAX, Server


class Link:
    held = 0

    def __init__(self, is_consumer: bool = False) -> None:
        self.session = SimpleNamespace(is_consumer=lambda: is_consumer)

    def hold(self, reason: int) -> None:
        self.held |= reason

    def unhold(self, reason: int) -> None:
        self.held &= ~reason


class Timer:
    """Of a loop: what is to be called later."""

    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []

    def call_later(self, seconds: float, callback: Callable[..., None], *arguments: Any) -> None:
        self.due.append(lambda: callback(*arguments))

    def passes(self) -> None:
        due, self.due = self.due, []
        for each in due:
            each()


class Drained(Server):
    """A server that has nothing but its work, with one queue that waits for its turn."""

    def __init__(self) -> None:
        self.loop: Any = Timer()
        self.work = SimpleNamespace(passes=10, copies=8192, handed_out_max=512, queues=[object()])
        self.broker: Any = SimpleNamespace(pass_work=self.work)


def test_it_waits_until_four_times_as_much_is_handed_out() -> None:
    server, link = Drained(), Link()
    server.let_drain(link)  # type: ignore[arg-type]
    assert link.held == HELD_DRAINED
    server.let_drain(link)  # type: ignore[arg-type]
    assert len(server.loop.due) == 1
    server.work.passes += 35
    server.loop.passes()
    assert link.held == HELD_DRAINED
    server.work.passes += 1
    server.loop.passes()
    assert not link.held
    assert not server.loop.due


def test_it_does_not_wait_for_a_queue_that_nobody_drains_any_more() -> None:
    server, link = Drained(), Link()
    server.let_drain(link)  # type: ignore[arg-type]
    server.work.queues.clear()
    server.loop.passes()
    assert not link.held


def test_it_does_not_wait_for_ever() -> None:
    server, link = Drained(), Link()
    server.let_drain(link)  # type: ignore[arg-type]
    for _ in range(DRAINED_LOOKS_MAX):
        assert link.held
        server.loop.passes()
    assert not link.held


def test_a_connection_that_consumes_too_is_read_from() -> None:
    server, link = Drained(), Link(is_consumer=True)
    server.let_drain(link)  # type: ignore[arg-type]
    assert not link.held
