"""Threads on which back ends are asked: logins of strangers keep no permission waiting."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from flintmq.auth import AnswerPending, Verification
from flintmq.auth.asked_permissions import Answers
from flintmq.auth.backend import Identity, Login
from flintmq.clock import Clock
from flintmq.config import Config, Listen
from flintmq.server.logins.back_end_threads import THREADS_MAX, WAITING_MAX, BackEndThreads
from flintmq.server.server import Server


class Back:
    timeout_s, cache_s, can_renew = 2.0, 60.0, False

    def authenticate(self, login: Login) -> Identity | None:
        return None

    def may_enter(self, identity: Identity, virtual_host: str, peer_address: str) -> bool:
        return True

    def may(self, identity: Identity, virtual_host: str, kind: str, name: str, operation: str) -> bool:
        return True

    def may_use_topic(
        self, identity: Identity, virtual_host: str, exchange: str, operation: str, routing_key: str
    ) -> bool:
        return True


class SlowLogin(Verification):
    """A back end that takes its time for a wrong password, as directories do."""

    is_remote = True
    backend = "back"
    timeout_s = 60.0

    def __init__(self, gate: threading.Event) -> None:
        self.gate = gate

    def run(self) -> bool:
        return self.gate.wait(60)


async def answer_of(answers: Answers) -> bool:
    def ask() -> bool:
        return answers.allowed(("back", "alice", "read", "queue", "q", "/"), Back(), lambda: True)

    told = asyncio.Event()
    with pytest.raises(AnswerPending) as pending:
        ask()
    pending.value.question.tell(told.set)
    await asyncio.wait_for(told.wait(), 20)
    return ask()


def test_logins_that_hang_keep_no_question_about_permissions_waiting() -> None:
    async def main() -> bool:
        config = Config()._replace(listen=Listen(("127.0.0.1",), 0))
        server = Server(config, Clock(), asyncio.get_running_loop())
        gate = threading.Event()
        try:
            for _ in range(2 * THREADS_MAX):
                server.verify_password(SlowLogin(gate), lambda found: None)
            return await answer_of(server.broker.authentication.answers)
        finally:
            gate.set()
            await server.stop(0.1)

    assert asyncio.run(main()), "an answer that comes too late is a refusal"


class Asking:
    """What back ends are asked, and what came of it."""

    def __init__(self, waiting_max: int = WAITING_MAX) -> None:
        self.threads = BackEndThreads(asyncio.get_running_loop(), waiting_max)
        self.gate = threading.Event()
        self.told: list[tuple[str, Any]] = []

    def ask(self, backend: str, work: Callable[[], Any], timeout_s: float = 60.0) -> None:
        self.threads.submit(backend, work, timeout_s, lambda found: self.told.append((backend, found)))

    def hang(self) -> bool:
        return self.gate.wait(60)

    async def until_told(self, count: int) -> list[tuple[str, Any]]:
        for _ in range(4000):
            if len(self.told) >= count:
                break
            await asyncio.sleep(0.005)
        assert len(self.told) >= count, self.told
        return self.told

    def end(self) -> None:
        self.gate.set()
        self.threads.close()


def test_a_back_end_that_hangs_has_threads_apart() -> None:
    async def main() -> None:
        asking = Asking()
        try:
            for _ in range(2 * THREADS_MAX):
                asking.ask("hung", asking.hang)
            asking.ask("other", lambda: "answer")
            assert await asking.until_told(1) == [("other", "answer")]
        finally:
            asking.end()

    asyncio.run(main())


def test_a_back_end_that_hangs_is_asked_one_thing_at_a_time() -> None:
    """Others are told at once: they may be users of the next back end, or of the broker itself."""

    async def main() -> None:
        asking = Asking()
        try:
            asking.ask("hung", asking.hang, 0.05)
            assert await asking.until_told(1) == [("hung", "no answer in 0.05 s")]
            asking.ask("hung", asking.hang)  # to see whether it answers again
            for _ in range(THREADS_MAX):
                asking.ask("hung", lambda: "answer")
            told = await asking.until_told(1 + THREADS_MAX)
            assert {found for _, found in told[1:]} == {
                "it has not answered in time, and is being asked by another"
            }
            asking.gate.set()
            assert (await asking.until_told(2 + THREADS_MAX))[-1] == ("hung", True)
            asking.ask("hung", lambda: "answer")
            asking.ask("hung", lambda: "answer")
            assert (await asking.until_told(4 + THREADS_MAX))[-2:] == [("hung", "answer")] * 2
        finally:
            asking.end()

    asyncio.run(main())


def test_who_has_given_up_is_not_waited_for() -> None:
    """A login that was cancelled meanwhile keeps nobody from asking whether the back end answers again."""

    async def main() -> None:
        asking = Asking()
        try:
            asking.threads.submit("hung", asking.hang, 0.05, lambda found: None).cancel()
            await asyncio.sleep(0.1)
            asking.ask("hung", lambda: "answer")
            assert await asking.until_told(1) == [("hung", "answer")]
        finally:
            asking.end()

    asyncio.run(main())


def test_few_wait_for_one_back_end_over_http() -> None:
    """The places of all logins over HTTP are never those of one back end that hangs."""

    async def main() -> None:
        asking = Asking(waiting_max=4)
        try:
            for _ in range(THREADS_MAX + 4 + 3):
                asking.ask("hung", asking.hang)
            assert await asking.until_told(1)
            await asyncio.sleep(0)
            assert asking.told[0] == ("hung", "4 others wait for it")
            assert 3 <= len(asking.told) <= 3 + THREADS_MAX
            asking.ask("other", lambda: "answer")
            assert ("other", "answer") in await asking.until_told(len(asking.told) + 1)
        finally:
            asking.end()

    asyncio.run(main())


def test_a_back_end_without_a_thread_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def main() -> None:
        threads = BackEndThreads(asyncio.get_running_loop())
        told: list[Any] = []
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refuse)
            threads.submit("b", lambda: "answer", 20, told.append)
        threads.submit("b", lambda: "answer", 20, told.append)
        for _ in range(20_000):
            if len(told) == 2:
                break
            await asyncio.sleep(0.001)
        threads.close()
        assert told == ["there is no thread to ask it on", "answer"]

    asyncio.run(main())
