"""Logins that wait for the broker: how many there may be, and who else waits."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from flintmq.clock import Clock
from flintmq.management.requests import identities
from flintmq.management.requests.faults import NotAuthorised, Unavailable
from flintmq.management.requests.identities import Identities, Identity

KNOWN = {"user": "u", "tags": [], "sees-all": False, "virtual-hosts": [], "changes": 0, "login": "1 0"}


class Broker:
    """Refuses the password `wrong` with a pause, and answers others when it is let."""

    def __init__(self, pause_ms: int) -> None:
        self.logins: list[Any] = []
        self.pause_ms = pause_ms
        self.known: dict[str, Any] = KNOWN
        self.may_answer = asyncio.Event()

    async def ask(self, service: str, arguments: dict[str, Any], among: Any = None) -> Any:
        if arguments["password"] == b"wrong":
            return SimpleNamespace(results={"refused": "no", "pause-ms": self.pause_ms})
        await self.may_answer.wait()
        return SimpleNamespace(results=self.known)


def test_the_pause_of_a_wrong_password_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identities, "WAITING_MAX", 3)

    async def use() -> None:
        broker = Broker(pause_ms=60_000)
        broker.may_answer.set()
        asked = Identities(broker, Clock())  # type: ignore[arg-type]
        paused = [asyncio.create_task(asked.login("u", b"wrong", f"10.0.0.{at}")) for at in range(20)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert (await asked.login("u", b"right", "10.1.1.1")).user == "u"
        for task in paused:
            assert not task.done()
            task.cancel()

    asyncio.run(use())


def test_a_wrong_password_is_refused_after_the_pause() -> None:
    async def use() -> None:
        asked = Identities(Broker(pause_ms=1), Clock())  # type: ignore[arg-type]
        with pytest.raises(NotAuthorised, match="Login failed"):
            await asked.login("u", b"wrong", "10.0.0.1")

    asyncio.run(use())


def test_logins_of_one_peer_and_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who finds no place is told to come again, not that the password is wrong."""
    monkeypatch.setattr(identities, "WAITING_MAX", 3)
    monkeypatch.setattr(identities, "PEER_WAITING_MAX", 2)

    async def use() -> None:
        broker = Broker(pause_ms=0)
        asked = Identities(broker, Clock())  # type: ignore[arg-type]
        waiting = [asyncio.create_task(asked.login("u", b"right", "10.0.0.1")) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(Unavailable, match="try again"):
            await asked.login("u", b"other", "10.0.0.1")
        waiting.append(asyncio.create_task(asked.login("u", b"right", "10.0.0.2")))
        await asyncio.sleep(0)
        with pytest.raises(Unavailable, match="try again"):
            await asked.login("u", b"right", "10.0.0.3")
        broker.may_answer.set()
        await asyncio.gather(*waiting)
        assert (await asked.login("u", b"other", "10.0.0.1")).user == "u"
        assert not asked.waiting

    asyncio.run(use())


def identity(user: str) -> Identity:
    return Identity(user, ("management",), False, frozenset(), 0, "1 0")


def test_nobody_logs_others_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of too many sessions of one user the oldest of that user ends."""
    monkeypatch.setattr(identities, "USER_SESSIONS_MAX", 2)
    asked = Identities(Broker(pause_ms=0), Clock())  # type: ignore[arg-type]
    of_ada, _ = asked.begin_session(identity("ada"), "ada", b"x")
    of_eve = [asked.begin_session(identity("eve"), "eve", b"x")[0] for _ in range(10)]
    assert list(asked.sessions) == [of_ada, *of_eve[-2:]]


def test_the_session_of_a_visitor_ends_when_the_back_end_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tags come with a login: a session that asked nobody would keep them for hours."""
    monkeypatch.setattr(identities, "REMEMBERED_S", 0.0)
    browser: Any = SimpleNamespace(client=SimpleNamespace(host="10.0.0.1"), headers={})

    async def use() -> None:
        broker = Broker(pause_ms=0)
        broker.may_answer.set()
        broker.known = {**KNOWN, "tags": ["administrator"], "visitor": 7}
        asked = Identities(broker, Clock())  # type: ignore[arg-type]
        token, session = asked.begin_session(await asked.login("u", b"right", "10.0.0.1"), "u", b"right")
        assert "right" not in repr(session)
        broker.known = {**KNOWN, "tags": ["management"], "visitor": 8}
        assert (await asked.of_session(token, browser, False)).tags == ("management",)
        broker.known = {"refused": "no", "pause-ms": 0}
        for reason in ("Login failed", "the session is over"):
            with pytest.raises(NotAuthorised, match=reason):
                await asked.of_session(token, browser, False)

    asyncio.run(use())
