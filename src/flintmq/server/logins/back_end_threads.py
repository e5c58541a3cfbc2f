"""Threads on which back ends of identities are asked, so that none of them ever stops the loop.

    submit(name, work, timeout_s) --> a thread of that back end --> done(result), on the loop
                                  --> too late, too many, or a fault --> done(text that says why), on the loop

A back end that hangs holds a thread for as long as it likes, but whoever waits is told after `timeout_s`.
From then on it is asked one thing at a time, until it answers one in time; everybody else is told at once. So
users whom another back end knows, or the broker itself, have neither to wait for it nor to share its threads.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

from flintmq.errors import NO_THREAD

log = logging.getLogger("flintmq.strangers")

THREADS_MAX = 8  # for each back end
# Waiting for a thread; more are refused at once.
WAITING_MAX = 1000

# An answer that takes this part of the timeout is none in time: a back end may have a timeout of its own.
IN_TIME = 0.9

Done = Callable[[Any], None]


class BackEndThreads:
    """Those of all back ends, by their names."""

    def __init__(self, loop: asyncio.AbstractEventLoop, waiting_max: int = WAITING_MAX) -> None:
        self._loop = loop
        self._waiting_max = waiting_max
        self._threads: dict[str, Threads] = {}
        self._is_closed = False

    def submit(self, name: str, work: Callable[[], Any], timeout_s: float, done: Done) -> Future[Any]:
        """Has `work` done by the back end of that name; the future serves to cancel it."""
        threads = self._threads.get(name)
        if threads is None:
            threads = self._threads[name] = Threads(self._loop, self._waiting_max)
            if self._is_closed:
                threads.close()
        return threads.submit(work, timeout_s, done)

    def close(self) -> None:
        self._is_closed = True
        for threads in self._threads.values():
            threads.close()


class Threads:
    """A few threads, started when they are needed, that nothing waits for at the end."""

    def __init__(self, loop: asyncio.AbstractEventLoop, waiting_max: int) -> None:
        self._loop = loop
        self._waiting_max = waiting_max
        self._untold = 0  # those who wait for an answer
        self._is_late = False  # the last one has not had it in time
        self._lock = threading.Condition()
        self._waiting: deque[Errand] = deque()
        self._idle = 0
        self._count = 0
        self._is_closed = False

    def submit(self, work: Callable[[], Any], timeout_s: float, done: Done) -> Future[Any]:
        errand = Errand(self._loop, work, done)
        if self._is_late and self._untold:
            self._loop.call_soon(errand.tell, "it has not answered in time, and is being asked by another")
            return errand.future
        with self._lock:
            is_full = len(self._waiting) >= self._waiting_max or self._is_closed
            has_thread = True
            if not is_full:
                self._waiting.append(errand)
                if self._idle >= len(self._waiting):
                    self._lock.notify()
                elif self._count < THREADS_MAX and not self._start() and not self._count:
                    self._waiting.pop()
                    has_thread = False
        if is_full:
            self._loop.call_soon(errand.tell, f"{self._waiting_max} others wait for it")
        elif not has_thread:
            self._loop.call_soon(errand.tell, "there is no thread to ask it on")
        else:
            self._untold += 1
            late_s = self._loop.time() + IN_TIME * timeout_s
            errand.told = partial(self._told, late_s)
            errand.alarm = self._loop.call_later(timeout_s, errand.tell, f"no answer in {timeout_s:g} s")
        return errand.future

    def _start(self) -> bool:
        """Begins one more, if the system lets it."""
        # A daemon: a back end that hangs must not keep the process from ending.
        name = f"back-end-{self._count + 1}"
        try:
            threading.Thread(target=self._serve, name=name, daemon=True).start()
        except RuntimeError:
            log.error("back ends are asked on fewer threads than there should be: %s", NO_THREAD)
            return False
        self._count += 1
        return True

    def _told(self, late_s: float) -> None:
        """One who has waited for an answer has it, or hears that there is none."""
        self._untold -= 1
        self._is_late = self._loop.time() >= late_s

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._waiting.clear()
            self._lock.notify_all()

    def _serve(self) -> None:
        while True:
            with self._lock:
                self._idle += 1
                while not self._waiting and not self._is_closed:
                    self._lock.wait()
                self._idle -= 1
                if self._is_closed:
                    return
                errand = self._waiting.popleft()
            errand.run()


class Errand:
    """Something to be done, and whom to tell: once, whatever comes first."""

    __slots__ = ("_done", "_loop", "_work", "alarm", "future", "told")

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Callable[[], Any], done: Done) -> None:
        self._loop = loop
        self._work = work
        self._done = done
        self.alarm: asyncio.TimerHandle | None = None
        self.told: Callable[[], None] | None = None  # called once, however it ends
        self.future: Future[Any] = Future()

    def run(self) -> None:
        """On a thread of its own."""
        if self.future.done():
            return  # nobody waits any more
        try:
            found = self._work()
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
        try:
            self._loop.call_soon_threadsafe(self.tell, found)
        except RuntimeError:  # the loop has ended meanwhile
            return

    def tell(self, found: Any) -> None:
        """On the loop."""
        if self.alarm is not None:
            self.alarm.cancel()
        if self.told is not None:
            told, self.told = self.told, None
            told()
        if not self.future.done():
            self.future.set_result(None)
            self._done(found)
