"""The longest part of recovery: each live entry, unread, on the shelves of the queues that hold it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.exchanges.delayed_exchange import due_in
from flintmq.broker.messages import entry_number
from flintmq.broker.queues.paged_tail import Shelf
from flintmq.broker.store import entry_head
from flintmq.broker.store.store import OWNERS
from flintmq.wire import traits

if TYPE_CHECKING:
    from flintmq.broker.transactions.dtx_journal import FoundBranches


class Shelving:
    """Who holds what, by the numbers that queues and exchanges have in the journal."""

    __slots__ = ("branches", "delays", "priorities_max", "ranked", "shelves", "timed")

    def __init__(self, branches: FoundBranches) -> None:
        self.branches = branches
        self.shelves: dict[int, Shelf] = {}
        # Of queues with priorities: by the queue's number, then by priority. The lowest is in `shelves`.
        self.ranked: dict[int, dict[int, Shelf]] = {}
        self.priorities_max: dict[int, int] = {}  # of these queues
        self.timed: set[int] = set()  # queues that hold messages which may expire
        self.delays: dict[int, list[tuple[int, int]]] = {}  # of exchanges that hold messages: due, entry

    def entry(self, sequence: int, owners: tuple[int, ...], header: bytes, payload_octets: int) -> None:
        if owners[0] >= OWNERS:
            self.branches.entry(sequence, owners[0], header)
            return
        found = entry_head.traits_of(header)
        size = payload_octets if found & traits.SPOOLED else payload_octets - entry_head.header_size(header)
        for owner in owners:
            if self.delays and owner in self.delays:
                self.delays[owner].append((due_in(header), entry_number.of_journal(sequence)))
                continue
            priority = found >> 8 & 0xFF
            if priority:
                # All that are above the highest share its lane, in the order in which they came.
                priority = min(priority, self.priorities_max.get(owner, 0))
            shelf = self.ranked[owner].get(priority) if priority else self.shelves.get(owner)
            if shelf is None:
                shelf = Shelf()
                if priority:
                    self.ranked[owner][priority] = shelf
                else:
                    self.shelves[owner] = shelf
            shelf.push(entry_number.of_journal(sequence))
            shelf.octets += size
            if found & (traits.TIMED | traits.HAS_EXPIRATION):
                self.timed.add(owner)
