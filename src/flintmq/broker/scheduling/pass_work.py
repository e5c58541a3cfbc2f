"""What is left to do at the end of a pass over the readable sockets, and what is due later.

Queues and channels put themselves here, once, when they have work; the broker empties it.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Protocol

from flintmq.broker.scheduling.chores import Chores
from flintmq.broker.scheduling.message_fates import MessageFates
from flintmq.histogram import Histogram
from flintmq.protocol.outbox import Room

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable

    from flintmq.broker.scheduling.errands import Errand
    from flintmq.broker.scheduling.timetable import Timetable

# What one read of a publisher may put into queues, a millisecond of work: a buffer full of small messages to
# a thousand queues each would keep everybody else waiting for a second.
COPIES_MAX = 8192
# The same where nobody else waits: as much as a read brings to ten queues, in a few milliseconds.
COPIES_ALONE_MAX = 65_536
# The same while memory is short, when each of them goes to disk.
COPIES_SHORT_MAX = 4096
# What a pass hands out of messages that have waited in queues, a third of a millisecond, beside as many as
# have come since the last one. The queues that have something share it, and none gets less than so many.
HANDED_OUT_MAX = 512
# The same where hardly anybody sends anything who could be kept waiting: some milliseconds.
HANDED_OUT_ALONE_MAX = 16_384
# Of messages that have come at once, so many are for one pass: more than a read brings to ten queues, and at
# the worst some tens of milliseconds. The others are for the passes behind it. One message may go to a
# hundred thousand queues.
ARRIVED_MAX = 65_536
PORTION_MIN = 64
# What is handed out between two passes to whoever waited before a method that counts messages or consumers,
# for all such methods together: some milliseconds.
EARLY_MAX = 8192
UNBOUNDED = 1 << 62
# Up to so many links that are read in one turn have the whole of it each; more of them share it.
LINKS_MAX = 16
# More than so many in one turn are others for each other, whoever has sent before.
LINKS_FEW = 3
COPIES_MIN = 32
# Buckets: turns of the event loop, 100 us to 3.3 s; times in queues, 1 ms to 4.7 hours.
TURN_BUCKETS = (100, 2, 16)
WAIT_BUCKETS = (1000, 4, 13)
# What the broker does of its own accord pauses so long before it looks again: for memory, and for the disk.
MEMORY_PAUSE_MS = 100
DISK_PAUSE_MS = 5
# Held in memory until commit: 256 MiB of content for one channel. Spooled bodies do not count.
TRANSACTION_BYTES_MAX = 268_435_456


class WaitingQueue(Protocol):
    """A queue with messages for ready consumers; queues/queue.py has the whole."""

    @property
    def name(self) -> str: ...

    def pause(self) -> None: ...

    def go_on(self) -> None: ...

    def dispatch(self) -> int: ...

    def dispatch_sampled(self) -> int: ...


class WaitingConfirms(Protocol):
    """A channel with publishes to confirm; channels/confirms.py has the whole."""

    @property
    def origin(self) -> int: ...

    def confirm(self) -> None: ...


class WaitingConsumer(Protocol):
    """A consumer that is to hear of something; queues/consumer.py has the whole."""

    def wake(self) -> None: ...

    def notify_cancel(self) -> None: ...


class CrowdedLetters(Protocol):
    """Dead letters of a virtual host; exchanges/dead_letter.py has the whole."""

    def when_room(self, callback: Callable[[], None]) -> None: ...


def never() -> bool:
    """Where nobody limits memory."""
    return False


class PassWork:
    """Queues with messages for ready consumers, channels with publishes to confirm, consumers to be told."""

    __slots__ = (
        "arrived",
        "arrived_before",
        "asking",
        "awaiting",
        "behind",
        "chores",
        "chores_waited",
        "confirms",
        "copies",
        "copies_full",
        "copies_max",
        "crowded",
        "drained",
        "early_left",
        "fates",
        "handed_out_max",
        "has_chores",
        "has_goals",
        "hoard_bytes_max",
        "hoarders",
        "is_critical",
        "is_memory_full",
        "is_promised",
        "is_short",
        "lost_consumers",
        "now_ms",
        "offered",
        "pass_left",
        "passes",
        "portion",
        "pressed",
        "queues",
        "room",
        "sampled_ms",
        "timetable",
        "transaction_bytes_max",
        "turn_times",
        "unwatched_bytes",
        "waits",
    )

    def __init__(self, timetable: Timetable) -> None:
        self.timetable = timetable
        # The time that messages are noted to have come at, late by a turn of the event loop at most (see
        # tick): asking for it anew is more than a message costs on its way.
        self.now_ms = timetable.now_ms()
        self.queues: list[WaitingQueue] = []
        self.confirms: list[WaitingConfirms] = []
        self.lost_consumers: list[WaitingConsumer] = []
        self.passes = 0  # that have ended
        self.chores = Chores(self)
        self.has_chores = False  # for the next pass
        self.chores_waited = False  # the last pass has left them to this one
        self.has_goals = False  # whether any queue has goals, see queues/service_goals.py
        # What connections have asked for and wait for, see errands.py: they are not read from meanwhile.
        self.asking: dict[int, deque[Errand]] = {}
        self.awaiting: dict[int, Callable[[], None]] = {}  # what to call when the last of them is done
        # A publish went to a queue whose consumers' sockets are full: its publisher should pause.
        self.pressed = False
        # The same of a queue whose consumers drain it from disk: a longer pause.
        self.drained = False
        # The dead letters that whoever is being read has made, while too many of them wait already: he waits.
        self.crowded: CrowdedLetters | None = None
        # Messages put into queues by what is being read now, one of them many times where it goes to many.
        self.copies = 0
        self.copies_full = COPIES_MAX  # what they may come to where no more than LINKS_FEW are read in a turn
        self.copies_max = COPIES_MAX
        # Messages put into queues since the last pass. What this pass may still hand out, and what the queue
        # may whose turn it is: as much as it likes outside of a pass. A message that is loaded from disk
        # counts many times.
        self.arrived = 0
        self.arrived_before = 0  # and before that, for which the last pass had no time
        self.handed_out_max = HANDED_OUT_MAX
        self.pass_left = self.handed_out_max
        self.portion = UNBOUNDED
        self.early_left = EARLY_MAX
        self.offered = 0  # what consumers were asked, who may refuse: 16 make one of the portion
        # What goes to queues now was promised to be there: a queue that is full takes it, too.
        self.is_promised = False
        # More was published than the disk has taken: all publishers should pause.
        self.behind = False
        # Memory, see server/memory_relief.py. Short: queues keep little of their messages there, and a
        # consumer with so much unacked gets nothing more. Critical: whatever takes more memory is refused.
        self.is_short = False
        self.is_critical = False
        # Looks whether so much is in use that publishers have to wait.
        self.is_memory_full: Callable[[], bool] = never
        self.hoard_bytes_max = 0
        self.hoarders: dict[WaitingConsumer, None] = {}
        self.transaction_bytes_max = TRANSACTION_BYTES_MAX
        # What may come to memory until somebody looks how much of it is in use.
        self.unwatched_bytes = 1 << 62
        self.room = Room()  # for what waits to be sent
        # For those who look on: how long turns of the event loop take; how long messages wait in queues, of
        # which one in a millisecond is looked at; and what became of those that nobody got.
        self.turn_times = Histogram(*TURN_BUCKETS)
        self.waits = Histogram(*WAIT_BUCKETS)
        self.sampled_ms = 0  # when the last one was looked at
        self.fates = MessageFates()

    def wake_hoarders(self, most: int) -> bool:
        """There is memory again for what some consumers have not acked; whether more of them wait."""
        for consumer in list(islice(self.hoarders, most)):
            del self.hoarders[consumer]
            consumer.wake()
        return bool(self.hoarders)

    def tick(self) -> None:
        """Some time has gone by; called twice a second, and with turns of the event loop."""
        self.now_ms = self.timetable.now_ms()

    def note_wait(self, arrived_ms: int) -> int:
        """A message that came then leaves its queue for a client."""
        self.sampled_ms = self.now_ms
        if arrived_ms:
            self.waits.note(1000 * (self.now_ms - arrived_ms))
        return 0

    def load(self) -> None:
        """What is being read now has to wait for others. Whoever counts copies has lost none of them."""
        if self.copies <= self.copies_max:
            self.copies = self.copies_max + 1

    def share(self, links: int) -> None:
        """So many links are about to be read in one turn: what each of them may bring."""
        most = self.copies_full if links <= LINKS_FEW else COPIES_MAX
        if self.is_short:
            most = COPIES_SHORT_MAX
        if links > LINKS_MAX:
            most = max(COPIES_MIN, most // links)
        self.copies_max = most

    def keep_waiting(self, others: bool) -> None:
        """Whether there are others who wait while a pass does its work for one or two."""
        self.handed_out_max = HANDED_OUT_MAX if others else HANDED_OUT_ALONE_MAX
        self.copies_full = COPIES_MAX if others else COPIES_ALONE_MAX

    def begin_pass(self) -> int:
        self.passes += 1
        self.copies = 0
        arrived = self.arrived + self.arrived_before
        self.arrived = 0
        self.arrived_before = 0
        if arrived > ARRIVED_MAX:
            if self.queues:
                self.arrived_before = arrived - ARRIVED_MAX
            arrived = ARRIVED_MAX
        self.pass_left = self.handed_out_max + arrived
        self.early_left = EARLY_MAX
        return 0

    def begin_early(self) -> int:
        """A queue is served before the pass comes to it."""
        self.portion = self.early_left
        return 0

    def end_early(self) -> int:
        self.early_left = self.portion
        self.portion = UNBOUNDED
        return 0

    def begin_portion(self, queues: int) -> int:
        """One of so many queues that wait has its turn."""
        self.portion = self.pass_left // queues
        if self.portion < PORTION_MIN:
            self.portion = PORTION_MIN
        self.pass_left -= self.portion
        return 0

    def widen_portion(self) -> int:
        """The queue whose turn it is has a goal that is due: it gets half of what the others would have."""
        more = self.pass_left // 2
        if more > 0:
            self.portion += more
            self.pass_left -= more
        return 0

    def charge_offers(self) -> int:
        """What consumers were asked counts as messages handed out."""
        self.portion -= self.offered >> 4
        self.offered &= 15
        return 0

    def end_portion(self) -> int:
        """What the queue has left is for others."""
        self.pass_left += self.portion
        self.portion = UNBOUNDED
        return 0

    def is_laden(self) -> bool:
        """Whether what is being read now has brought so much that others should have their turn."""
        return self.copies > self.copies_max

    def pause_ms(self) -> int:
        """How long the broker itself is to put no more messages into queues; 0 if it may.

        Asked before each portion of what nobody has to publish any more, and a fanout makes many copies of:
        delayed messages that are due, those of a large commit, the past that a new binding gets.
        """
        try:
            is_full = self.is_memory_full()
        except (MemoryError, OSError):  # whoever asks is called by the clock, and by nobody if this raises
            is_full = True
        if is_full:
            return MEMORY_PAUSE_MS
        return DISK_PAUSE_MS if self.behind else 0

    def is_turn_of_chores(self) -> bool:
        """Whether a pass is for chores too: where it has something to hand out they wait for the next one."""
        self.chores_waited = not self.chores_waited and bool(self.queues or self.confirms)
        return not self.chores_waited

    def has_work(self) -> bool:
        return bool(self.queues or self.confirms or self.lost_consumers or self.has_chores)
