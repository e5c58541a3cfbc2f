"""Bodies that come slowly, or too many at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from flintmq.client.core.message import Message
from flintmq.management.endpoints import dead_letters
from flintmq.management.endpoints.dead_letters import take
from flintmq.management.requests import bodies, routes
from flintmq.management.requests.bodies import Bodies
from flintmq.management.requests.faults import TooSlow, Unavailable
from flintmq.management.requests.identities import NOBODY
from flintmq.management.requests.routes import Call


def call_of(context: Any, chunks: list[bytes], pause_s: float) -> Call:
    async def stream() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk
            await asyncio.sleep(pause_s)

    request: Any = SimpleNamespace(stream=stream)
    return Call(context, request, NOBODY, {})


def test_a_body_that_trickles_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "BODY_S", 0.05)
    context = SimpleNamespace(bodies=Bodies())
    with pytest.raises(TooSlow, match="65536 bytes a second"):
        asyncio.run(call_of(context, [b"x"] * 100_000, 0.01).octets())
    assert not context.bodies.held


def test_a_large_body_has_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time grows with what has come."""
    monkeypatch.setattr(routes, "BODY_S", 0.05)
    monkeypatch.setattr(routes, "BODY_BYTES_PER_S", 1)
    context = SimpleNamespace(bodies=Bodies())
    assert asyncio.run(call_of(context, [b"x" * 100] * 3, 0.1).octets()) == b"x" * 300


def test_bodies_of_one_user_and_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "HELD_BYTES_MAX", 100)
    monkeypatch.setattr(bodies, "USER_BYTES_MAX", 60)
    held = Bodies()
    with held.gathering("a") as grow, held.gathering("b") as other:
        grow(60)
        with pytest.raises(Unavailable, match="try again"):
            grow(1)
        other(40)
        with pytest.raises(Unavailable, match="try again"):
            other(1)
    assert not held.held


def test_dead_letters_that_are_held_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many octets and the message that reaches them, or so many messages."""
    monkeypatch.setattr(dead_letters, "HELD_BYTES_MAX", 100)

    class Channel:
        async def get(self, queue: str) -> Message:
            return SimpleNamespace(body=b"x" * 40)  # type: ignore[return-value]

    channel: Any = Channel()
    assert len(asyncio.run(take(channel, "q", 256))) == 3
    assert len(asyncio.run(take(channel, "q", 2))) == 2
