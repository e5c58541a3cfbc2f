"""Passwords that wait: whose is checked first, how many may wait, and how many answers come in a turn."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from flintmq.auth.failed_logins import FAILED, KNOWN, UNTRIED
from flintmq.auth.passwords import PasswordPolicy
from flintmq.errors import NO_MEMORY, NO_THREAD
from flintmq.server.logins import login_queue
from flintmq.server.logins.login_queue import GONE, RESULTS_MAX, WAITING_MAX, LoginQueue


class Scene:
    """A queue whose thread stands still until `go`."""

    def __init__(self) -> None:
        self.queue = LoginQueue(asyncio.get_running_loop())
        self.started, self.gate = threading.Event(), threading.Event()
        self.told: list[Any] = []
        self.queue.submit(self.stand, self.told.append)
        assert self.started.wait(20)

    def stand(self) -> str:
        self.started.set()
        assert self.gate.wait(20)
        return "first"

    def submit(self, name: str, rank: int = KNOWN, **more: Any) -> login_queue.WaitingLogin:
        return self.queue.submit(lambda: name, self.told.append, rank, **more)

    async def until(self, count: int) -> list[Any]:
        self.gate.set()
        for _ in range(20_000):
            if len(self.told) >= count:
                return self.told
            await asyncio.sleep(0.001)
        raise AssertionError(f"{count} were to be told, and only {self.told} were")


def run(scenario: Callable[[Scene], Awaitable[None]]) -> None:
    async def main() -> None:
        scene = Scene()
        try:
            await scenario(scene)
        finally:
            scene.gate.set()
            scene.queue.close()

    asyncio.run(main())


def test_who_was_let_in_before_goes_ahead_and_who_has_failed_comes_last() -> None:
    async def scenario(scene: Scene) -> None:
        for name, rank in (("f1", FAILED), ("u1", UNTRIED), ("k1", KNOWN), ("f2", FAILED), ("k2", KNOWN)):
            scene.submit(name, rank)
        assert await scene.until(6) == ["first", "k1", "k2", "u1", "f1", "f2"]

    run(scenario)


def test_where_there_is_no_room_the_newest_of_the_worst_is_told() -> None:
    async def scenario(scene: Scene) -> None:
        for number in range(WAITING_MAX):
            scene.submit(f"f{number}", FAILED)
        scene.submit("known", KNOWN)
        assert len(scene.queue) == WAITING_MAX
        await asyncio.sleep(0)
        assert scene.told == [f"{WAITING_MAX} other passwords wait to be checked"]
        assert scene.queue.refused == 1
        told = await scene.until(WAITING_MAX + 2)
        assert told[1:3] == ["first", "known"]
        assert f"f{WAITING_MAX - 1}" not in told

    run(scenario)


def test_who_has_hung_up_costs_no_check_and_who_cancels_frees_the_place() -> None:
    async def scenario(scene: Scene) -> None:
        checked: list[str] = []
        scene.queue.submit(lambda: checked.append("gone"), scene.told.append, is_wanted=lambda: False)
        cancelled = scene.submit("cancelled")
        assert len(scene.queue) == 2
        cancelled.cancel()
        assert len(scene.queue) == 1
        scene.submit("last")
        assert await scene.until(3) == ["first", GONE, "last"]
        assert not checked

    run(scenario)


def test_a_turn_of_the_loop_tells_a_few_results() -> None:
    async def scenario(scene: Scene) -> None:
        turns: list[int] = []
        for number in range(20):
            scene.submit(str(number))
        tell, calls = scene.queue.tell, 0

        def counted() -> None:
            nonlocal calls
            before = len(scene.told)
            calls += 1
            tell()
            turns.append(len(scene.told) - before)

        scene.queue.tell = counted  # type: ignore[method-assign]
        scene.gate.set()
        await scene.until(21)
        assert max(turns) <= RESULTS_MAX

    run(scenario)


def test_a_check_that_fails_is_told_and_the_thread_goes_on() -> None:
    async def scenario(scene: Scene) -> None:
        scene.queue.submit(lambda: 1 // 0, scene.told.append)
        scene.submit("next")
        assert await scene.until(3) == ["first", "ZeroDivisionError in the check", "next"]

    run(scenario)


def test_a_login_without_a_thread_is_told_and_the_next_one_may_have_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def main() -> None:
        queue = LoginQueue(asyncio.get_running_loop())
        told: list[Any] = []
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refuse)
            queue.submit(lambda: "checked", told.append)
        for count in (1, 2):
            for _ in range(20_000):
                if len(told) == count:
                    break
                await asyncio.sleep(0.001)
            queue.submit(lambda: "checked", told.append)
        queue.close()
        assert told[:2] == ["there is no thread for it", "checked"]

    asyncio.run(main())
    assert [record.getMessage() for record in caplog.records if record.exc_info is None] == [
        f"passwords cannot be checked: {NO_THREAD}"
    ]


def test_a_check_without_memory_is_no_bug(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: Any, **__: Any) -> bytes:
        raise ValueError("[digital envelope routines] malloc failure")

    async def scenario(scene: Scene) -> None:
        kept = PasswordPolicy().hash(b"secret")
        monkeypatch.setattr("hashlib.scrypt", refuse)
        scene.queue.submit(lambda: kept.matches(b"secret"), scene.told.append)
        assert await scene.until(2) == ["first", "there is no memory for it"]

    run(scenario)
    assert [(record.getMessage(), record.exc_info) for record in caplog.records] == [
        (f"a password cannot be checked: {NO_MEMORY}", None)
    ]
