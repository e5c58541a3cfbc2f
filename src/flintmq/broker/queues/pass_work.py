"""What is left to do at the end of a pass over the readable sockets, and what is due later.

Queues and channels put themselves here, once, when they have work; the broker empties it.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from flintmq.broker.queues.chores import Chores
from flintmq.protocol.outbox import Room

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable

    from flintmq.broker.queues.consumer import Consumer
    from flintmq.broker.queues.errands import Errand
    from flintmq.broker.queues.queue import Queue
    from flintmq.broker.queues.timetable import Timetable
    from flintmq.broker.store.publisher import Publisher

# What one read of a publisher may put into queues, some milliseconds of work: a buffer full of small messages
# to a thousand queues each would keep everybody else waiting for a second.
COPIES_MAX = 65_536
# The same while memory is short, when each of them goes to disk.
COPIES_SHORT_MAX = 4096
# Up to so many links that are read in one turn have the whole of it each; more of them share it.
LINKS_MAX = 16
COPIES_MIN = 256
# Held in memory until commit: 256 MiB of content for one channel. Spooled bodies do not count.
TRANSACTION_BYTES_MAX = 268_435_456


class PassWork:
    """Queues with messages for ready consumers, channels with publishes to confirm, consumers to be told."""

    __slots__ = (
        "asking",
        "awaiting",
        "behind",
        "chores",
        "confirms",
        "copies",
        "copies_max",
        "has_chores",
        "hoard_bytes_max",
        "hoarders",
        "is_critical",
        "is_promised",
        "is_short",
        "lost_consumers",
        "now_ms",
        "passes",
        "pressed",
        "queues",
        "room",
        "timetable",
        "transaction_bytes_max",
        "unwatched_bytes",
    )

    def __init__(self, timetable: Timetable) -> None:
        self.timetable = timetable
        # The time that messages are noted to have come at, late by half a second at most (see tick): asking
        # for it anew is more than a message costs on its way.
        self.now_ms = timetable.now_ms()
        self.queues: list[Queue] = []
        self.confirms: list[Publisher] = []
        self.lost_consumers: list[Consumer] = []
        self.passes = 0  # that have ended
        self.chores = Chores(self)
        self.has_chores = False  # for the next pass
        # What connections have asked for and wait for, see errands.py: they are not read from meanwhile.
        self.asking: dict[int, deque[Errand]] = {}
        self.awaiting: dict[int, Callable[[], None]] = {}  # what to call when the last of them is done
        # A publish went to a queue whose consumers' sockets are full: its publisher should pause.
        self.pressed = False
        # Messages put into queues by what is being read now, one of them many times where it goes to many.
        self.copies = 0
        self.copies_max = COPIES_MAX
        # What goes to queues now was promised to be there: a queue that is full takes it, too.
        self.is_promised = False
        # More was published than the disk has taken: all publishers should pause.
        self.behind = False
        # Memory, see server/relief.py. Short: queues keep little of their messages there, and a consumer with
        # so much unacked gets nothing more. Critical: whatever takes more memory is refused.
        self.is_short = False
        self.is_critical = False
        self.hoard_bytes_max = 0
        self.hoarders: dict[Consumer, None] = {}
        self.transaction_bytes_max = TRANSACTION_BYTES_MAX
        # What may come to memory until somebody looks how much of it is in use.
        self.unwatched_bytes = 1 << 62
        self.room = Room()  # for what waits to be sent

    def wake_hoarders(self, most: int) -> bool:
        """There is memory again for what some consumers have not acked; whether more of them wait."""
        for consumer in list(islice(self.hoarders, most)):
            del self.hoarders[consumer]
            consumer.wake()
        return bool(self.hoarders)

    def tick(self) -> None:
        """Some time has gone by; called twice a second."""
        self.now_ms = self.timetable.now_ms()

    def load(self) -> None:
        """What is being read now has to wait for others."""
        self.copies = COPIES_MAX + 1

    def share(self, links: int) -> None:
        """So many links are about to be read in one turn: what each of them may bring."""
        most = COPIES_SHORT_MAX if self.is_short else COPIES_MAX
        if links > LINKS_MAX:
            most = max(COPIES_MIN, most // links)
        self.copies_max = most

    def is_laden(self) -> bool:
        """Whether what is being read now has brought so much that others should have their turn."""
        return self.copies > self.copies_max

    def has_work(self) -> bool:
        return bool(self.queues or self.confirms or self.lost_consumers or self.has_chores)
