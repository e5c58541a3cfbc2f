"""Publisher confirms of a channel: which publishes are counted, which are safe, which were lost.

    publish -> count ... end of the pass -> confirm -> streams? -> journal? -> confirm_through -> basic.ack

Writes into the output of its connection; knows nothing of queues.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from typing import TYPE_CHECKING

from flintmq.broker.scheduling import chores
from flintmq.protocol.outbox import Output
from flintmq.wire import amqp

if TYPE_CHECKING:
    from flintmq.broker.exchanges.router import Router
    from flintmq.broker.scheduling.pass_work import PassWork
    from flintmq.broker.store.store import Store

# Numbers of lost publishes that were told of, and are dropped from the front of the list in one go.
TOLD_MAX = 4096
ALL = 1 << 62


class Confirms:
    """What one channel has published, and how much of that is confirmed."""

    __slots__ = (
        "active",
        "confirmed",
        "farewell",
        "is_due",
        "is_telling",
        "joins_nacks",
        "kept",
        "lost",
        "number",
        "origin",
        "output",
        "pass_work",
        "published",
        "router",
        "safe",
        "store",
        "stream_batch",
        "told",
    )

    def __init__(self, number: int, origin: int, router: Router, output: Output) -> None:
        self.number = number
        self.origin = origin
        self.router = router
        self.output = output
        self.pass_work: PassWork = router.pass_work
        self.store: Store | None = router.store
        self.active = False  # since confirm.select
        self.is_due = False
        self.published = 0
        self.confirmed = 0
        self.kept = 0  # the newest entry of the channel in the journal
        self.stream_batch = 0  # the batch of streams that its newest message for one is in
        self.safe = 0  # up to where publishes are safe or lost: more than is confirmed while a chore tells
        # Publishes that the disk has lost before they were confirmed, or that were refused; mostly none.
        self.lost: list[int] | None = None
        self.told = 0  # how many of them, from the front, the client has been told of
        self.is_telling = False
        # AMQP tells of neighbours by one basic.nack; other outputs answer each publish by itself.
        self.joins_nacks = type(output) is Output
        # The channel is closed; called when all that was published is confirmed.
        self.farewell: Callable[[], None] | None = None

    def count(self) -> int:
        """One more publish that is to be confirmed."""
        self.published += 1
        if not self.is_due:
            self.is_due = True
            self.pass_work.confirms.append(self)
        return 0

    def lose(self, number: int) -> None:
        """The publish of this number is lost or refused, of which a basic.nack tells."""
        if self.lost is None:
            self.lost = []
        if not self.lost or number > self.lost[-1]:
            self.lost.append(number)
        elif number < self.lost[-1]:
            insort(self.lost, number, self.told)

    def note_kept(self, entry: int) -> None:
        """What was published lies in the journal: it is confirmed when that is synced."""
        self.kept = max(self.kept, entry)

    def confirm(self) -> None:
        """At the end of a pass: everything published so far is safe, or will be when the journal is."""
        self.is_due = False
        streams = self.router.streams
        if self.stream_batch and streams is not None and not streams.is_safe(self):
            streams.wait(self, self.published)
        else:
            self.confirm_streamed(self.published)

    def confirm_streamed(self, published: int) -> None:
        """Streams have nothing more to wait for up to this publish; the journal may."""
        if self.store is not None and self.kept > self.store.synced:
            self.store.wait(self, published)
        else:
            self.confirm_through(published)

    def confirm_through(self, published: int) -> None:
        """Up to this publish all are safe, or lost. Many basic.nacks are written in portions."""
        self.safe = max(self.safe, published)
        if self.lost is None:
            self.confirm_unlost(published)
        elif not self.is_telling:
            self.is_telling = True  # until its first step: it may have to wait for that
            self.pass_work.chores.begin(chores.repeated(self.tell))

    def confirm_unlost(self, published: int) -> None:
        """Up to this publish none is lost that the client has not been told of."""
        if published > self.confirmed:
            multiple = 1 if published - self.confirmed > 1 else 0
            self.confirmed = published
            self.output.write_settlement(self.number, amqp.BASIC_ACK, self.confirmed, multiple)
        if self.farewell is not None:
            self.part()

    def tell(self, most: int) -> bool:
        """Confirms so many lost publishes, and those between them; whether more are left."""
        self.is_telling = False
        while self.lost is not None and self.told < len(self.lost) and self.lost[self.told] <= self.safe:
            if most <= 0:
                self.is_telling = True
                return True
            most -= self.tell_lost(self.lost, most)
        if self.told:
            self.forget_told()
        self.confirm_unlost(self.safe)
        return False

    def tell_lost(self, lost: list[int], most: int) -> int:
        """A basic.nack of the first lost publish, with up to `most` lost ones that follow it at once."""
        begun = self.told
        at = begun + 1
        last: int = lost[begun]
        first = last
        if self.joins_nacks:
            end = min(len(lost), begun + most)
            while at < end and last < self.safe and lost[at] == last + 1:
                last += 1
                at += 1
        if last > self.confirmed:  # else the channel has closed
            first = max(first, self.confirmed + 1)
            self.confirm_unlost(first - 1)
            self.output.write_settlement(self.number, amqp.BASIC_NACK, last, 1 if last > first else 0)
            self.confirmed = last
        self.told = at
        return at - begun

    def forget_told(self) -> None:
        """Gives up the numbers that were told of, when they are all, or many and more than half."""
        if self.lost is None or self.told == len(self.lost):
            self.lost = None
            self.told = 0
        elif self.told > TOLD_MAX and 2 * self.told > len(self.lost):
            del self.lost[: self.told]
            self.told = 0

    def confirm_safe(self) -> None:
        """Confirms now what need not wait for the disk: the client is about to close."""
        streams = self.router.streams
        is_streamed = not self.stream_batch or streams is None or streams.is_safe(self)
        if is_streamed and (self.store is None or self.kept <= self.store.synced):
            self.safe = self.published
        if self.safe > self.confirmed:
            self.tell(ALL)

    def retire(self, farewell: Callable[[], None] | None) -> None:
        """The channel closes. Without a `farewell` nothing more is confirmed."""
        self.farewell = farewell
        if farewell is None:
            self.confirmed = self.published

    def part(self) -> None:
        """Says farewell if nothing is left to confirm."""
        if self.farewell is not None and self.confirmed >= self.published:
            farewell, self.farewell = self.farewell, None
            farewell()
