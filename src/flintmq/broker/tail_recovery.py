"""The longest part of recovery: each live entry, unread, in the paged tails of the queues that hold it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.exchanges.delayed_exchange import due_in
from flintmq.broker.messages import entry_number
from flintmq.broker.queues.paged_tail import PagedTail
from flintmq.broker.store import entry_head
from flintmq.broker.store.store import OWNERS
from flintmq.wire import traits

if TYPE_CHECKING:
    from flintmq.broker.transactions.dtx_journal import FoundBranches


class TailRecovery:
    """Who holds what, by the numbers that queues and exchanges have in the journal."""

    __slots__ = ("branches", "delays", "priorities_max", "ranked", "tails", "timed")

    def __init__(self, branches: FoundBranches) -> None:
        self.branches = branches
        self.tails: dict[int, PagedTail] = {}
        # Of queues with priorities: by the queue's number, then by priority. The lowest is in `tails`.
        self.ranked: dict[int, dict[int, PagedTail]] = {}
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
            tail = self.ranked[owner].get(priority) if priority else self.tails.get(owner)
            if tail is None:
                tail = PagedTail()
                if priority:
                    self.ranked[owner][priority] = tail
                else:
                    self.tails[owner] = tail
            tail.push(entry_number.of_journal(sequence))
            tail.octets += size
            if found & (traits.TIMED | traits.HAS_EXPIRATION):
                self.timed.add(owner)
