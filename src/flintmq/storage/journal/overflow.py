"""Transient entries that do not fit in memory: the journal's paging without its promises.

The same segments, index and reads, in a directory of its own that is emptied at every start.
Nothing is synced, nothing is recovered, and what dies is reclaimed as in the journal.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from flintmq.clock import Clock
from flintmq.storage.disk import Disk
from flintmq.storage.journal.journal import Journal
from flintmq.storage.options import JournalOptions, SyncPolicy


class Overflow:
    """A place for entries that may be forgotten when the process ends."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal

    @staticmethod
    def open(
        directory: str,
        disk: Disk,
        options: JournalOptions | None = None,
        clock: Clock | None = None,
        wake: Callable[[], None] | None = None,
    ) -> Overflow:
        """Empty the directory and begin."""
        wished = options or JournalOptions()
        # Zeros written ahead make syncs cheap; here there are none.
        chosen = wished._replace(sync=SyncPolicy.NEVER, ephemeral=True, spare_segments=0)
        journal = Journal.open(directory, disk, chosen, clock, wake)
        for name in disk.list(directory):
            if name != "lock":
                disk.delete(os.path.join(directory, name))
        journal.recover(_Nothing())
        return Overflow(journal)

    def append_entry(self, owners: tuple[int, ...], header: bytes, payload: bytes) -> int:
        """Page an entry out; returns its number, not related to the journal's."""
        return self.journal.append_entry(owners, header, payload)

    def append_settle(self, owner: int, sequence: int) -> bool:
        """One owner lets go."""
        return self.journal.append_settle(owner, sequence)

    def read_entry(self, sequence: int) -> tuple[bytes, bytes]:
        return self.journal.read_entry(sequence)

    def read_entries(self, sequences: list[int]) -> list[tuple[bytes, bytes]]:
        return self.journal.read_entries(sequences)

    def end_batch(self) -> None:
        self.journal.end_batch()

    def collect(self) -> None:
        self.journal.collect()

    def tick(self) -> None:
        self.journal.tick()

    def close(self) -> None:
        self.journal.close()


class _Nothing:
    """Visits an empty journal."""

    def value(self, key: bytes, octets: bytes) -> None:
        raise AssertionError("an emptied directory holds nothing")

    def entry(self, sequence: int, owners: tuple[int, ...], header: bytes, payload_octets: int) -> None:
        raise AssertionError("an emptied directory holds nothing")

    def progress(self, done_octets: int, total_octets: int) -> None:
        """Nothing to do."""
