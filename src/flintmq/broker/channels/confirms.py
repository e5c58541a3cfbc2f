"""Publisher confirms of a channel: which publishes are counted, which are safe, which were lost.

    publish -> count ... end of the pass -> confirm -> streams? -> journal? -> confirm_through -> basic.ack

Writes into the output of its connection; knows nothing of queues.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from typing import TYPE_CHECKING

from flintmq.wire import amqp

if TYPE_CHECKING:
    from flintmq.broker.exchanges.router import Router
    from flintmq.broker.scheduling.pass_work import PassWork
    from flintmq.broker.store.store import Store
    from flintmq.protocol.outbox import Output


class Confirms:
    """What one channel has published, and how much of that is confirmed."""

    __slots__ = (
        "active",
        "confirmed",
        "farewell",
        "is_due",
        "kept",
        "lost",
        "number",
        "origin",
        "output",
        "pass_work",
        "published",
        "router",
        "store",
        "stream_batch",
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
        # Publishes that the disk has lost before they were confirmed, or that were refused; mostly none.
        self.lost: list[int] | None = None
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
        insort(self.lost, number)

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
        while self.lost and self.lost[0] <= published:
            number = self.lost.pop(0)
            if number > self.confirmed:  # else the channel has closed
                self.confirm_through(number - 1)
                self.confirmed = number
                self.output.write_settlement(self.number, amqp.BASIC_NACK, number, 0)
        if published > self.confirmed:
            multiple = 1 if published - self.confirmed > 1 else 0
            self.confirmed = published
            self.output.write_settlement(self.number, amqp.BASIC_ACK, self.confirmed, multiple)
        if self.farewell is not None:
            self.part()

    def confirm_safe(self) -> None:
        """Confirms now what need not wait for the disk: the client is about to close."""
        streams = self.router.streams
        if self.stream_batch and streams is not None and not streams.is_safe(self):
            return
        if self.store is None or self.kept <= self.store.synced:
            self.confirm_through(self.published)

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
