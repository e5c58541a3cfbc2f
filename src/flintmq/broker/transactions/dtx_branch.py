"""One branch of a distributed transaction: what was published and settled in it, and how far it is.

                  prepare                       commit, too large for one group
    OPEN ---------------------> PREPARED ----------------------------------------> DECIDED
     |  |                        |    |                                               |
     |  | fail, timeout,         |    | the operator, or the heuristic timeout        | applied
     |  | a channel lost         |    v                                               v
     |  +-> ROLLBACK_ONLY        |  HEURISTIC --forget--> (gone)                    (gone)
     |            | rollback     |
     +------------+--------------+-- commit, rollback --> (gone)

A branch in which very much was settled is PREPARING between OPEN and PREPARED, or before a commit in one
phase: it locks some deliveries in each pass. Until all of them are locked nothing is on disk, and whatever
ends an open branch ends it.

What is published in a branch is put into the journal at once, owned by the branch and by no queue: a
branch costs little memory however large it is. Without a journal the messages stay here.
What is settled in it stays with its channel until the branch is prepared; then it is locked here.
"""

from __future__ import annotations

from array import array
from collections import deque
from enum import Enum, IntEnum
from typing import TYPE_CHECKING

from flintmq.wire import amqp

if TYPE_CHECKING:
    from flintmq.broker.messages.message import Message
    from flintmq.broker.queues.delivery import Delivery
    from flintmq.broker.queues.queue import Queue
    from flintmq.broker.scheduling.timetable import Alarm
    from flintmq.broker.transactions.dtx_work import DtxWork
    from flintmq.broker.transactions.xid import Xid

# Exchanges and routing keys that a branch remembers, of 600 octets at most: its manifest holds them too.
ROUTES_MAX = 64

# Of a user whose life nobody has noted: earlier versions knew names alone.
ANY_LIFE = -1


class BranchState(Enum):
    """Names as `dtx.list` gives them."""

    OPEN = "open"
    PREPARING = "preparing"
    ROLLBACK_ONLY = "rollback-only"
    PREPARED = "prepared"
    DECIDED = "committing"
    HEURISTIC = "heuristic"


class Settlement(IntEnum):
    """What becomes of a delivery at commit; the numbers are those in the journal."""

    ACK = 1
    REJECT = 2
    REQUEUE = 3


class Lock:
    """A message that a prepared branch has taken from its queue; the entry alone if recovery found it."""

    __slots__ = ("delivery", "entry", "queue", "settlement")

    def __init__(self, settlement: Settlement, queue: Queue, entry: int, delivery: Delivery | None) -> None:
        self.settlement = settlement
        self.queue = queue
        self.entry = entry  # in the journal; 0 if it is not there
        self.delivery = delivery


class Branch:
    """See the head of this module."""

    __slots__ = (
        "alarm",
        "associated",
        "code",
        "entries",
        "flags",
        "has_further_keys",
        "involved",
        "is_own",
        "large",
        "life",
        "locks",
        "manifest",
        "messages",
        "octets",
        "operations",
        "order",
        "owners",
        "refused",
        "routes",
        "settling",
        "since_ms",
        "sources",
        "state",
        "suspended",
        "timeout_s",
        "unrouted",
        "user",
        "works",
        "xid",
    )

    def __init__(
        self, xid: Xid, user: str, order: int, owner: int, since_ms: int, life: int = ANY_LIFE
    ) -> None:
        self.xid = xid
        self.user = user
        self.life = life  # of the user: another one of that name may not touch the branch
        self.order = order  # of its start, for those who go through all of them
        self.owners = (owner,)  # what the journal calls it; 0 without a journal
        self.since_ms = since_ms  # of the start, and then of the prepare
        self.is_own = False  # of the broker, for a commit of the tx class: nobody else may touch it
        self.state = BranchState.OPEN
        self.code = amqp.XA_OK  # the XA code that tells why it was rolled back or how it was completed
        # Channels that work in it now, or have suspended it; whether one did by dtx.start, which has no end.
        self.associated: dict[DtxWork, bool] = {}
        self.suspended: dict[DtxWork, None] = {}
        self.involved: dict[DtxWork, None] = {}  # channels whose work is in it, while it is OPEN
        # What was published, in order. One of the first two is empty.
        self.entries = array("Q")
        self.messages: list[Message] = []
        self.flags = bytearray()
        self.sources = array("I")  # which of `works` sent it
        self.works: list[DtxWork] = []
        self.octets = 0
        self.operations = 0
        # By exchange and routing key: how many messages, and the octets of their bodies. None: too many.
        self.routes: dict[bytes, tuple[int, int]] | None = {}
        self.has_further_keys = False  # some of its messages name further routing keys
        # Messages that are too large for streams: route, further keys, octets. Not known after a restart.
        self.large: list[tuple[bytes, list[str], int]] = []
        # Known when it is committed: messages that went to no queue, and that a queue did not take.
        self.unrouted = self.refused = 0
        self.settling: deque[tuple[DtxWork, Settlement, Delivery]] = deque()
        self.locks: list[Lock] = []
        self.manifest = 0  # the entry of the journal that says all this
        self.timeout_s = 0
        self.alarm: Alarm | None = None

    def owner(self) -> int:
        return self.owners[0]

    def is_busy(self) -> bool:
        """Whether a channel has not said the end of its work in it; dtx.start needs no end."""
        return bool(self.suspended) or not all(self.associated.values())

    def is_empty(self) -> bool:
        return not self.operations

    def published(self) -> int:
        return len(self.flags)

    def source_of(self, index: int) -> DtxWork | None:
        """Who published it, unless that was before the broker started."""
        return self.works[self.sources[index]] if self.works else None

    def state_text(self) -> str:
        if self.state is BranchState.HEURISTIC:
            return "heuristic-commit" if self.code == amqp.XA_HEURCOM else "heuristic-rollback"
        return str(self.state.value)

    def involve(self, work: DtxWork) -> None:
        self.involved[work] = None
        work.involved[self] = None

    def release_works(self) -> None:
        """Nobody's end matters to it any more."""
        for work in self.involved:
            del work.involved[self]
        self.involved.clear()

    def note_published(self, work: DtxWork, flags: int, octets: int) -> None:
        if not self.works or self.works[-1] is not work:
            if work in self.works:
                self.sources.append(self.works.index(work))
            else:
                self.sources.append(len(self.works))
                self.works.append(work)
        else:
            self.sources.append(len(self.works) - 1)
        self.flags.append(flags)
        self.octets += octets
        self.operations += 1

    def shorten(self, count: int) -> None:
        """The first messages have gone to their queues."""
        del self.flags[:count]
        del self.sources[:count]
        del self.entries[:count]
        del self.messages[:count]

    def note_route(self, route: bytes, body_octets: int) -> None:
        """Where a message is to go: a commit can tell by it beforehand whether it gets there."""
        routes = self.routes
        if routes is not None:
            count, octets = routes.get(route, (0, 0))
            routes[route] = (count + 1, octets + body_octets)
            if len(routes) > ROUTES_MAX:
                self.routes = None

    def forget_work(self) -> None:
        """What was done in it is undone; the channels have their deliveries back, unsettled.

        Entries that the journal still has, for a bug, go with the branch.
        """
        for work, _, delivery in self.settling:
            work.settled_tags.discard(delivery.tag)
        self.settling.clear()
        self.messages = []
        self.flags = bytearray()
        self.sources = array("I")
        self.works = []
        self.octets = self.operations = 0
        self.routes = {}
        self.large = []

    def set_alarm(self, alarm: Alarm | None) -> None:
        if self.alarm is not None:
            self.alarm.cancel()
        self.alarm = alarm
