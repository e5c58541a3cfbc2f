"""Work whose size others decide, done in portions: some milliseconds at the end of each pass.

    delete of an exchange -> gone for everybody at once -> its bindings, 64 in a step:  |..|..|..|..|
                                                            now, while the pass has credit ^  ^ later passes

A chore is an iterator; each step is a bounded piece of work, well under a millisecond, after which everything
is consistent. A chore that has to wait for something yields a function, which is given what to call then. The
first steps are taken where the chore begins, so that little work is done at once, as if there were no chores.
What is left waits with that of others and is done in turn.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flintmq.broker.scheduling.pass_work import PassWork

log = logging.getLogger("flintmq.chores")

# What all chores together take of a pass, which everybody else waits for; the last step may double it. The
# second is for when somebody waits who sends little.
PASS_S = 0.0005
PASS_WAITED_S = 0.0001
# The same by count, for a clock that stands still.
STEPS_MAX = 64
# What chores of one pass may take where they begin: as long, and as many steps.
CREDIT = 64

# Messages that one step lets go of: a tenth of a millisecond, or half of one where the journal is told.
MESSAGES = 512

Wait = Callable[[Callable[[], None]], None]
Chore = Iterator[Wait | None]


class Chores:
    """The chores of one broker."""

    def __init__(self, pass_work: PassWork) -> None:
        self.pass_work = pass_work
        self.waiting: deque[Chore] = deque()
        self.fresh: deque[Chore] | None = None  # begun by the step that is being taken
        self.pass_s = PASS_WAITED_S
        self.credit = CREDIT
        self.credit_s = self.pass_s
        self.pass_number = 0  # that the credit is of

    def keep_waiting(self, little_waits: bool) -> None:
        """Whether somebody who sends little waits for the end of a pass."""
        self.pass_s = PASS_WAITED_S if little_waits else PASS_S

    def begin(self, chore: Chore) -> None:
        """Takes the first steps, as far as the credit of this pass goes; the others come by themselves."""
        if self.fresh is not None:
            self.fresh.append(chore)
            return
        if self.pass_number != self.pass_work.passes:
            self.pass_number = self.pass_work.passes
            self.credit = CREDIT
            self.credit_s = self.pass_s
        self.fresh = deque((chore,))
        monotonic_s = self.pass_work.timetable.clock.monotonic_s
        now_s = monotonic_s()
        try:
            while self.fresh and self.credit > 0 and self.credit_s > 0:
                self.credit -= 1
                if self.is_left(self.fresh[0]):
                    self.fresh.popleft()
                begun_s, now_s = now_s, monotonic_s()
                self.credit_s -= now_s - begun_s
        except BaseException:
            self.fresh.popleft()  # what has failed is not tried again
            raise
        finally:
            left, self.fresh = self.fresh, None
            self.waiting.extend(left)
            self.pass_work.has_chores = bool(self.waiting)

    def run(self) -> None:
        """The share of one pass, at its end."""
        monotonic_s = self.pass_work.timetable.clock.monotonic_s
        until_s = monotonic_s()
        if self.pass_number + 1 == self.pass_work.passes:
            until_s += self.credit_s  # chores that began before this pass have had their time
        else:
            until_s += self.pass_s
        for _ in range(STEPS_MAX):
            if not self.waiting:
                break
            self.step(self.waiting.popleft())
            if monotonic_s() >= until_s:
                break
        self.pass_work.has_chores = bool(self.waiting)

    def step(self, chore: Chore) -> None:
        self.fresh = deque()
        try:
            is_left = self.is_left(chore)
        except Exception:
            # There is nobody to answer; the others go on.
            log.exception("a bug ends a chore")
            is_left = True
        finally:
            fresh, self.fresh = self.fresh, None
        if not is_left:
            self.waiting.append(chore)
        self.waiting.extend(fresh)

    def is_left(self, chore: Chore) -> bool:
        """Takes a step; whether the chore is over, or waits for something."""
        try:
            wait = next(chore)
        except StopIteration:
            return True
        if wait is None:
            return False
        wait(partial(self.go_on, chore))
        return True

    def go_on(self, chore: Chore) -> None:
        """What the chore has waited for has come."""
        self.waiting.append(chore)
        self.pass_work.has_chores = True

    def finish(self) -> None:
        """All of it, for whoever is about to stop.

        Alarms come meanwhile: some chores ask in each step whether what an alarm does is done.
        """
        while self.waiting:
            for _ in range(len(self.waiting)):
                self.step(self.waiting.popleft())
            self.pass_work.timetable.run()
        self.pass_work.has_chores = False


def repeated(step: Callable[[int], bool]) -> Chore:
    """Until the step, of which the argument is how much it may do, says that there is no more."""
    while step(MESSAGES):
        yield None
