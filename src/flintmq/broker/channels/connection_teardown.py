"""Connections that have ended: what they hold goes back in portions, as if all of it came back at once.

    survey    queues that the connections hold messages of are paused         |..|..|
    release   of each connection: its channels, then its exclusive queues     |..|..|..|..|..|
    resume    the queues hand out again, each with its messages in place      |..|..|

A message that is back must not leave before an older one that another channel, or another connection, still
has to give back: so no queue hands out between survey and resume. All connections that wait when a round
begins share it, and the survey of the next round comes before the resume of this one. Connections of few
channels are through with it at once, where they end.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from flintmq.broker.channels.channel import Channel
    from flintmq.broker.queues.queue import Queue
    from flintmq.broker.scheduling.chores import Chore, Wait
    from flintmq.broker.scheduling.pass_work import PassWork

log = logging.getLogger("flintmq.teardown")

# Deliveries looked at in one step of the survey, a few nanoseconds each; a channel counts as so many.
DELIVERIES = 8192
CHANNEL_DELIVERIES = 32
# Queues that go on in one step.
QUEUES = 128
# Small connections that one step gives up.
CONNECTIONS = 8


class EndedConnection(Protocol):
    """A connection that has ended, or is about to."""

    def held_channels(self) -> list[Channel]:
        """The channels that hold something yet."""

    def leave(self) -> Chore:
        """Gives back all that the connection holds, in portions."""

    def has_left(self) -> None:
        """The last portion is done."""


class ConnectionTeardowns:
    """The connections of one broker that are being taken apart."""

    def __init__(self, pass_work: PassWork) -> None:
        self.pass_work = pass_work
        self.waiting: list[EndedConnection] = []
        self.is_working = False

    def begin(self, ending: EndedConnection) -> None:
        self.waiting.append(ending)
        if not self.is_working:
            self.is_working = True
            self.pass_work.chores.begin(self.work())

    def work(self) -> Chore:
        """One round after the other; a bug costs the connection that met it, and no other.

        Those who have ended meanwhile are surveyed before the queues of a round hand out again.
        """
        paused: dict[Queue, None] = {}
        surveyed: dict[Queue, None] = {}
        try:
            ended = yield from self.next_round(surveyed)
            while ended:
                paused, surveyed = surveyed, {}
                yield from self.release(ended)
                ended = yield from self.next_round(surveyed)
                yield from self.resume(paused)
                if not ended:
                    ended = yield from self.next_round(surveyed)
        finally:
            self.is_working = False
            for queue in (*paused, *surveyed):
                queue.all_returned()

    def next_round(self, paused: dict[Queue, None]) -> Generator[Wait | None, None, list[EndedConnection]]:
        """Those who wait now, whose queues are paused."""
        ended, self.waiting = self.waiting, []
        try:
            yield from self.survey(ended, paused)
        except Exception:
            log.exception("a bug in the survey: messages may come out of turn")
        return ended

    def survey(self, ended: list[EndedConnection], paused: dict[Queue, None]) -> Chore:
        """Pauses the queues that messages will come back to."""
        looked = 0
        for ending in ended:
            for channel in ending.held_channels():
                start = 0
                while start < channel.unacked.ring.count:
                    for queue in channel.unacked.queues(start, DELIVERIES):
                        if queue not in paused:
                            paused[queue] = None
                            queue.returning += 1
                    looked += min(DELIVERIES, channel.unacked.ring.count - start)
                    start += DELIVERIES
                    if looked >= DELIVERIES:
                        looked = 0
                        yield None
                looked += CHANNEL_DELIVERIES
                if looked >= DELIVERIES:
                    looked = 0
                    yield None

    def release(self, ended: list[EndedConnection]) -> Chore:
        ended.reverse()
        left = 0
        while ended:
            ending = ended.pop()  # what it held is memory: that of each goes as it is done
            try:
                yield from ending.leave()
            except Exception:
                log.exception("a bug leaves something of %s behind", ending)
            try:
                ending.has_left()
            except Exception:
                log.exception("a bug in ending the connection of %s", ending)
            left += 1
            if left % CONNECTIONS == 0:
                yield None

    def resume(self, paused: dict[Queue, None]) -> Chore:
        while paused:
            for _ in range(min(QUEUES, len(paused))):
                queue, _ = paused.popitem()
                try:
                    queue.all_returned()
                except Exception:  # the others are to hand out again
                    log.exception("a bug keeps queue %r from handing out", queue.name)
            yield None
