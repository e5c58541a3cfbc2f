"""What is left to do at the end of a pass over the readable sockets, and what is due later.

Queues and channels put themselves here, once, when they have work; the broker empties it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flintmq.broker.channel import Channel
    from flintmq.broker.consumer import Consumer
    from flintmq.broker.queue import Queue
    from flintmq.broker.timetable import Timetable


class Agenda:
    """Queues with messages for ready consumers, channels with publishes to confirm, consumers to be told."""

    __slots__ = ("behind", "confirms", "logged", "lost_consumers", "now_ms", "pressed", "queues", "timetable")

    def __init__(self, timetable: Timetable) -> None:
        self.timetable = timetable
        # The time that messages are noted to have come at, late by half a second at most (see tick): asking
        # for it anew is more than a message costs on its way.
        self.now_ms = timetable.now_ms()
        self.queues: list[Queue] = []
        self.confirms: list[Channel] = []
        self.lost_consumers: list[Consumer] = []
        # A publish went to a queue whose consumers' sockets are full: its publisher should pause.
        self.pressed = False
        # More was published than the disk has taken: all publishers should pause.
        self.behind = False
        # A publish went to a stream: its publisher has to wait for the disk.
        self.logged = False

    def tick(self) -> None:
        """Some time has gone by; called twice a second."""
        self.now_ms = self.timetable.now_ms()

    def has_work(self) -> bool:
        return bool(self.queues or self.confirms or self.lost_consumers)
