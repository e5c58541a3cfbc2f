"""What callbacks of the event loop raise: told once a second, and an end for one that fails without end.

    a callback raises --> the loop's exception handler --> one line of it in a second, with its traceback
                                                      \\-> still failing after LASTING_S: an orderly end,
                                                           and after STOPPING_S more an end at once

A reader whose callback fails is called again at once, as what it was to read is still there: 48,000 times a
second where the system gives no memory for what signals bring, and the signal that is to end the broker is
not heard. What is confirmed is in the journal, as after a kill.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

log = logging.getLogger("flintmq.server")

SECOND_S = 1.0
# One callback that fails so often in each second, for so long, does not come to itself.
FAILURES_MIN = 100
LASTING_S = 5.0
# How long an orderly end may take while callbacks go on failing.
STOPPING_S = 10.0
# Places and callbacks that are known at a time.
KNOWN_MAX = 64
# Of a broker that does not end in an orderly way.
EXIT_BROKEN = 1

Context = dict[str, Any]


class Failing:
    """One place in the code, or one callback, that fails: how often in this second, and since when."""

    __slots__ = ("began_s", "count", "since_s", "total")

    def __init__(self, now_s: float) -> None:
        self.began_s = now_s  # this second
        self.since_s = now_s  # it has failed often in each second since then
        self.count = 0  # in this second
        self.total = 0

    def note(self, now_s: float) -> int:
        """One more failure; if it is the first of a new second, how many there were in the one before."""
        self.total += 1
        if self.count and now_s - self.began_s < SECOND_S:
            self.count += 1
            return 0
        before, self.count = self.count, 1
        if before < FAILURES_MIN or now_s - self.began_s >= 2 * SECOND_S:
            self.since_s = now_s
        self.began_s = now_s
        return max(before, 1)


class LoopFaults:
    """The exception handler of one loop; `end` begins the orderly end of the broker."""

    def __init__(
        self,
        end: Callable[[], None],
        monotonic_s: Callable[[], float],
        leave: Callable[[int], Any] = os._exit,
    ) -> None:
        self.end = end
        self.monotonic_s = monotonic_s
        self.leave = leave
        self.places: dict[object, Failing] = {}
        self.callbacks: dict[object, Failing] = {}
        self.leaves_s: float | None = None  # when the orderly end must be over
        self.has_ended_broker = False

    def heed(self, loop: asyncio.AbstractEventLoop, context: Context) -> None:
        """Called by the loop for each failure. Never fails: the loop would tell of that without a limit."""
        now_s = self.monotonic_s()
        with suppress(Exception):  # as where there is no memory for the line
            self.tell(loop, context, now_s)
        callback = context.get("handle")
        if callback is not None:
            with suppress(Exception):
                self.count(callback, now_s)

    def tell(self, loop: asyncio.AbstractEventLoop, context: Context, now_s: float) -> None:
        """Once a second for each place, with the number of those left out in the second before."""
        count = known(self.places, place_of(context), now_s).note(now_s)
        if count > 1:
            log.error("%d more failures like the next one were left out of the log", count - 1)
        if count:
            loop.default_exception_handler(context)

    def count(self, callback: object, now_s: float) -> None:
        """One more failure of what is called again and again, not of many that are called once."""
        failing = known(self.callbacks, callback, now_s)
        failing.note(now_s)
        if failing.count < FAILURES_MIN:
            return
        if self.leaves_s is None:
            if now_s - failing.since_s >= LASTING_S:
                self.give_up(callback, now_s)
        elif now_s >= self.leaves_s:
            with suppress(Exception):
                log.critical("a callback of the event loop still fails, so the end is at once: %s", callback)
            self.leave(EXIT_BROKEN)

    def give_up(self, callback: object, now_s: float) -> None:
        self.has_ended_broker = True
        self.leaves_s = now_s + STOPPING_S
        with suppress(Exception):
            log.critical("a callback of the event loop fails without end, and the broker ends: %s", callback)
        self.end()

    def stopping(self) -> None:
        """The broker ends for another reason: what fails meanwhile keeps it for so long at most."""
        if self.leaves_s is None:
            self.leaves_s = self.monotonic_s() + STOPPING_S


def known(table: dict[object, Failing], key: object, now_s: float) -> Failing:
    """Of the key, if need be in the place of the one that has failed least: many are called but once."""
    found = table.get(key)
    if found is None:
        if len(table) >= KNOWN_MAX:
            del table[min(table, key=lambda each: table[each].total)]
        found = table[key] = Failing(now_s)
    return found


def place_of(context: Context) -> object:
    """The line of the code that has raised, and what; of what is no exception the first line of its text."""
    error = context.get("exception")
    if not isinstance(error, BaseException):
        return str(context.get("message")).split("\n")[0]
    trace = error.__traceback__
    if trace is None:
        return type(error)
    while trace.tb_next is not None:
        trace = trace.tb_next
    return type(error), trace.tb_frame.f_code.co_filename, trace.tb_lineno
