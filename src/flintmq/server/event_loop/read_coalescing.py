"""When to wait a moment before the next look at the sockets.

A publisher that sends each message by itself wakes the broker for each of them, which then wakes a
consumer for each: three threads spend their time waking one another. When turns of the event loop come
in quick succession and bring little, a pause of some 70 microseconds (what is asked for, and the slack of the
system's timers) lets more arrive, and everything that follows is done once for many.

Whoever waits for an answer before asking again sends nothing in a pause. So a pause has to pay: it must
bring much more than the turns before it did. If not, there is none for a while.
"""

from __future__ import annotations

import time

PAUSE_S = 20e-6
# A turn that comes later than this after the one before ends the succession.
GAP_S_MAX = 150e-6
# Turns in quick succession before the first pause.
TURNS_MIN = 32
# One turn that comes late takes back so many: the machine may have been busy elsewhere.
TURNS_LATE = 4
# A pause must bring this many times what a turn brought without it.
GAIN_MIN = 2
# What a turn may bring without a pause: this much is a batch already.
OCTETS_ENOUGH = 32_768
# Turns without another try when a pause did not pay.
TURNS_WITHOUT = 500


class ReadCoalescing:
    """The recent turns of an event loop."""

    __slots__ = ("ended_s", "octets", "pausing", "turns", "usual_octets")

    def __init__(self) -> None:
        self.octets = 0  # read in this turn; the links count them
        self.turns = 0  # in quick succession so far; below 0: no pauses for so many turns
        self.usual_octets = 0.0  # of a turn without a pause
        self.pausing = False
        self.ended_s = 0.0

    def end_turn(self) -> None:
        """Called when a turn has read something and all of it is dealt with; may wait."""
        octets, self.octets = self.octets, 0
        now_s = time.perf_counter()
        gap_s, self.ended_s = now_s - self.ended_s, now_s
        if self.pausing:
            if octets >= OCTETS_ENOUGH:
                return
            if octets < GAIN_MIN * self.usual_octets:
                self.pausing = False
                self.turns = -TURNS_WITHOUT
                return
        elif gap_s > GAP_S_MAX or octets >= OCTETS_ENOUGH:
            self.turns = self.turns + 1 if self.turns < 0 else max(0, self.turns - TURNS_LATE)
            return
        else:
            self.usual_octets += (octets - self.usual_octets) / 8
            self.turns += 1
            if self.turns < TURNS_MIN:
                return
            self.pausing = True
        time.sleep(PAUSE_S)  # noqa: TID251 - to stop the event loop for a moment is what it is for
        self.ended_s = time.perf_counter()
