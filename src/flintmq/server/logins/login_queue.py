"""Passwords that wait to be checked: one thread, which takes the most trustworthy login first.

    submit --> waiting, by rank --> the thread, some 40 ms each --> results --> done(found), on the loop
           \\-> no room: the newest of the worst rank is told so

A password costs 40 ms on purpose, so whoever sends many of them fills the time of the thread. Addresses that
somebody has logged in from go ahead of those that nobody knows, and these ahead of those that have failed
(FailedLogins.rank): guesses, from however many addresses, delay guesses.

The loop takes a few results in each of its turns: of hundreds of clients that have hung up meanwhile, the
thread is done with all at once.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from flintmq.auth.failed_logins import FAILED, KNOWN
from flintmq.errors import NO_MEMORY, NO_THREAD

log = logging.getLogger("flintmq.strangers")

# Each takes 40 ms: 10 seconds of work, after which a handshake has to be done.
WAITING_MAX = 256
# What is told on the loop in one turn: a refusal is some 100 microseconds.
RESULTS_MAX = 1


class Gone:
    """Found of a password that nobody waits for any more: it was not checked."""


GONE = Gone()


class WaitingLogin:
    """Something for the thread to find out, and whom to tell."""

    __slots__ = ("done", "found", "is_cancelled", "is_wanted", "queue", "rank", "work")

    def __init__(
        self,
        queue: LoginQueue,
        work: Callable[[], Any],
        done: Callable[[Any], None],
        rank: int,
        is_wanted: Callable[[], bool],
    ) -> None:
        self.queue = queue
        self.work = work
        self.done = done
        self.rank = rank
        self.is_wanted = is_wanted
        self.is_cancelled = False
        self.found: Any = None

    def cancel(self) -> None:
        """Nobody is told, and if it waits yet, its place is free."""
        self.is_cancelled = True
        self.queue.forget(self)

    def run(self) -> None:
        """On the thread."""
        if not self.is_wanted():
            self.found = GONE
            return
        try:
            self.found = self.work()
        except MemoryError:
            log.error("a password cannot be checked: %s", NO_MEMORY)
            self.found = "there is no memory for it"
        except Exception as error:
            log.exception("a bug in the check of a password")
            self.found = f"{type(error).__name__} in the check"


def always() -> bool:
    return True


class LoginQueue:
    """The thread that checks passwords, and those who wait for it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lock = threading.Condition()
        # By rank, the oldest first.
        self._waiting: list[dict[WaitingLogin, None]] = [{} for _ in range(FAILED + 1)]
        self._results: deque[WaitingLogin] = deque()
        self._is_telling = False  # `tell` is on its way
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self.refused = 0  # as there was no room

    def __len__(self) -> int:
        return sum(map(len, self._waiting))

    def submit(
        self,
        work: Callable[[], Any],
        done: Callable[[Any], None],
        rank: int = KNOWN,
        is_wanted: Callable[[], bool] = always,
    ) -> WaitingLogin:
        """Has `work` done unless nobody wants it by then; a text is found where there is no room for it."""
        login = WaitingLogin(self, work, done, rank, is_wanted)
        with self._lock:
            self._waiting[rank][login] = None
            displaced = self._make_room() if len(self) > WAITING_MAX else None
            reason = f"{WAITING_MAX} other passwords wait to be checked"
            if self._thread is None and not self._is_closed and not self._start():
                displaced, reason = self._make_room(), "there is no thread for it"
            self._lock.notify()
        if displaced is not None:
            self.refused += 1
            displaced.found = reason
            self._add_result(displaced)
        return login

    def _start(self) -> bool:
        """Begins the thread, if the system lets it; the next login tries again."""
        # A daemon: the process does not wait for passwords when it ends.
        thread = threading.Thread(target=self._serve, name="verify", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            log.error("passwords cannot be checked: %s", NO_THREAD)
            return False
        self._thread = thread
        return True

    def _make_room(self) -> WaitingLogin:
        """The newest of the worst rank has to go."""
        for logins in reversed(self._waiting):
            if logins:
                break
        displaced, _ = logins.popitem()
        return displaced

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            for logins in self._waiting:
                logins.clear()
            self._lock.notify()

    def forget(self, login: WaitingLogin) -> None:
        with self._lock:
            self._waiting[login.rank].pop(login, None)

    def _next(self) -> WaitingLogin | None:
        """The login that is to be checked now; None at the end."""
        with self._lock:
            while not self._is_closed:
                for logins in self._waiting:
                    if logins:
                        login = next(iter(logins))
                        del logins[login]
                        return login
                self._lock.wait()
        return None

    def _serve(self) -> None:
        while (login := self._next()) is not None:
            if not login.is_cancelled:
                login.run()
                self._add_result(login)

    def _add_result(self, login: WaitingLogin) -> None:
        with self._lock:
            self._results.append(login)
            is_first, self._is_telling = not self._is_telling, True
        if is_first:
            try:
                self._loop.call_soon_threadsafe(self.tell)
            except RuntimeError:  # the loop has ended meanwhile
                return

    def tell(self) -> None:
        """On the loop: a few of the results, and the others in the turns that follow."""
        told = 0
        while told < RESULTS_MAX:
            with self._lock:
                if not self._results:
                    self._is_telling = False
                    return
                login = self._results.popleft()
            if not login.is_cancelled:
                told += 1
                login.done(login.found)
        self._loop.call_soon(self.tell)
