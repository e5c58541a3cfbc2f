"""Which sockets have something to read or room to write, told to their links and listeners.

One epoll of our own watches them all, and the event loop watches that one: to take up a socket, to leave
it alone for a while or to let it go is one system call, and a turn over many sockets is one callback.

    event loop -> turn -+-> link.ready                     for each socket that is, and a pass for them:
                        |                                  event_loop/pass_scheduler.py
                        +-> link.ready, listener.accept    for who takes long, who has not logged in yet
                        |                                  and who connects; of strangers a few
                        +-> end_turn                       a pass for all that is left

Some strangers are watched with all others. Those that are more have an epoll of their own, which the first
one watches: thousands of them that say something at once are heard a few in each turn, between which the
others have theirs. Where few connect at a time nobody pays for that.

A socket that is neither to be read nor written is still watched: a peer that has reset its connection or
closed it both ways is told of at once, for its queues and messages would stay taken for ever.

Where there is no epoll the event loop watches each socket by itself, and heartbeats have to find out
about the peers of sockets that are left alone.
"""

from __future__ import annotations

import asyncio
import os
import select
from typing import TYPE_CHECKING, Protocol

from flintmq.server.event_loop.pass_scheduler import PassScheduler
from flintmq.server.network import sockets
from flintmq.server.network.link import READ, WRITE, Link

if TYPE_CHECKING:
    from collections.abc import Callable

    from flintmq.server.network.listener import Listener

EVENTS_MAX = 256
# Strangers heard in a turn, as many of those watched with all others as of those apart: each may have a table
# of a thousand fields decoded, begin with TLS, or be dropped, some 200 microseconds.
NEWCOMERS_MAX = 2
# Whom of the strangers a turn is for.
NOBODY = 0
ARRIVALS = 1
CROWD = 2
# Some 100 us without an answer end the lingering, and so do this many turns: the event loop has more to do.
LOOKS_MAX = 100
LINGER_TURNS_MAX = 8


class Readiness(Protocol):
    """Links by their descriptors, each with what it waits for: READ, WRITE, both or neither."""

    def watch(self, descriptor: int, link: Link) -> None:
        """From now on, waiting to read."""

    def change(self, descriptor: int, wanted: int) -> None: ...

    def settle(self, descriptor: int, wanted: int) -> None:
        """The link is no stranger any more."""

    def listen(self, descriptor: int, listener: Listener) -> None:
        """From now on, for those who connect to it."""

    def forget(self, descriptor: int) -> None:
        """To be called before the descriptor is closed."""

    def close(self) -> None: ...


class EpollReadiness:
    __slots__ = (
        "apart",
        "crowd",
        "due",
        "epoll",
        "links",
        "listeners",
        "looks_max",
        "loop",
        "newcomers",
        "scheduler",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, scheduler: PassScheduler) -> None:
        self.loop = loop
        self.scheduler = scheduler
        self.epoll = select.epoll()
        self.crowd = select.epoll()
        self.epoll.register(self.crowd.fileno(), READ)
        self.apart: set[int] = set()  # those that the crowd's epoll watches
        self.newcomers = 0  # strangers that are not among them
        self.due = NOBODY  # whom of the strangers the next turn is for
        self.links: dict[int, Link] = {}
        self.listeners: dict[int, Listener] = {}
        # Where there is one processor the other side needs it.
        self.looks_max = LOOKS_MAX if len(os.sched_getaffinity(0)) > 1 else 0
        loop.add_reader(self.epoll.fileno(), self.turn)

    def watch(self, descriptor: int, link: Link) -> None:
        if not link.is_stranger:
            self.epoll.register(descriptor, READ)
        elif self.newcomers < NEWCOMERS_MAX:
            self.epoll.register(descriptor, READ)
            self.newcomers += 1
        else:
            self.crowd.register(descriptor, READ)
            self.apart.add(descriptor)
        self.links[descriptor] = link

    def change(self, descriptor: int, wanted: int) -> None:
        (self.crowd if descriptor in self.apart else self.epoll).modify(descriptor, wanted)

    def settle(self, descriptor: int, wanted: int) -> None:
        if descriptor not in self.links:
            return
        if descriptor in self.apart:
            self.apart.remove(descriptor)
            self.crowd.unregister(descriptor)
            self.epoll.register(descriptor, wanted)
        else:
            self.newcomers -= 1

    def listen(self, descriptor: int, listener: Listener) -> None:
        self.epoll.register(descriptor, READ)
        self.listeners[descriptor] = listener

    def forget(self, descriptor: int) -> None:
        link = self.links.pop(descriptor, None)
        if link is not None:
            if descriptor in self.apart:
                self.apart.remove(descriptor)
                self.crowd.unregister(descriptor)
                return
            self.epoll.unregister(descriptor)
            if link.is_stranger:
                self.newcomers -= 1
        elif self.listeners.pop(descriptor, None) is not None:
            self.epoll.unregister(descriptor)

    def turn(self) -> None:
        if self.serve(sockets.ready(self.epoll, EVENTS_MAX)):
            self.linger()

    def serve(self, ready: list[tuple[int, int]]) -> bool:
        """Those who can keep others waiting come last; whether somebody is opening a connection."""
        is_opening = False
        later: list[tuple[int, int]] = []
        self.scheduler.begin_turn(len(ready))
        try:
            for descriptor, events in ready:
                # One of those before may have ended it. If its number has a new owner by now, that one finds
                # nothing to read, which does no harm.
                link = self.links.get(descriptor)
                if link is None or self.comes_later(link):
                    later.append((descriptor, events))
                elif link.ready(events):
                    is_opening = True
            if later:
                if len(later) < len(ready):
                    self.scheduler.finish_pass()
                if self.serve_later(later):
                    is_opening = True
        finally:
            self.scheduler.end_turn()  # whatever happened: others wait for theirs
        return is_opening

    def comes_later(self, link: Link) -> bool:
        """Strangers, and who sends much beside others who send little."""
        return link.is_stranger or (self.scheduler.little_waits and link.takes_long())

    def serve_later(self, ready: list[tuple[int, int]]) -> bool:
        """Whether one of them is opening its connection."""
        is_opening = False
        # Those who come and those who are there share the time of strangers: a turn is for one of both, and
        # the next one for the other if it had to wait.
        served, self.due = self.due, NOBODY
        for descriptor, events in ready:
            link = self.links.get(descriptor)
            if link is not None:
                if link.ready(events):
                    is_opening = True
            elif descriptor in self.listeners:
                if served == CROWD:
                    self.due = ARRIVALS
                else:
                    served = ARRIVALS
                    if self.listeners[descriptor].accept():
                        is_opening = True
            elif served == ARRIVALS:
                self.due = CROWD
            else:
                served = CROWD
                if self.serve_crowd():
                    is_opening = True
        return is_opening

    def serve_crowd(self) -> bool:
        """Some of the strangers apart that have something to say; whether one is opening its connection."""
        is_opening = False
        for descriptor, events in sockets.ready(self.crowd, NEWCOMERS_MAX):
            link = self.links.get(descriptor)
            if link is not None and link.ready(events):
                is_opening = True
        return is_opening

    def linger(self) -> None:
        """Somebody opens a connection and has the next word at once.

        Six times in a row each waits for the other. To look a few times more is cheaper than to fall
        asleep and be woken.
        """
        looks = self.looks_max
        turns = LINGER_TURNS_MAX
        while looks > 0 and turns > 0:
            looks -= 1
            ready = sockets.ready(self.epoll, EVENTS_MAX)
            if ready:
                turns -= 1
                looks = self.looks_max if self.serve(ready) else 0
            else:
                os.sched_yield()  # it may be the other side that waits for this processor

    def close(self) -> None:
        if not self.epoll.closed:
            self.loop.remove_reader(self.epoll.fileno())
            self.epoll.close()
            self.crowd.close()


class LoopReadiness:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.links: dict[int, Link] = {}

    def watch(self, descriptor: int, link: Link) -> None:
        self.links[descriptor] = link
        self.change(descriptor, READ)

    def change(self, descriptor: int, wanted: int) -> None:
        loop = self.loop
        ready: Callable[[int], bool] = self.links[descriptor].ready
        if wanted & READ:
            loop.add_reader(descriptor, ready, READ)
        else:
            loop.remove_reader(descriptor)
        if wanted & WRITE:
            loop.add_writer(descriptor, ready, WRITE)
        else:
            loop.remove_writer(descriptor)

    def settle(self, descriptor: int, wanted: int) -> None:
        """All are watched alike."""

    def listen(self, descriptor: int, listener: Listener) -> None:
        self.loop.add_reader(descriptor, listener.accept)

    def forget(self, descriptor: int) -> None:
        self.links.pop(descriptor, None)
        self.loop.remove_reader(descriptor)
        self.loop.remove_writer(descriptor)

    def close(self) -> None:
        self.links.clear()


def readiness(loop: asyncio.AbstractEventLoop, scheduler: PassScheduler) -> Readiness:
    """The best that this machine has."""
    return EpollReadiness(loop, scheduler) if hasattr(select, "epoll") else LoopReadiness(loop)
