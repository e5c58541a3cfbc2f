"""The far end of a long queue: messages that lie on disk only, known here by eight octets each.

    ready (messages in memory) | paged tail (numbers of entries) .... 0 .... 0 0 ....
                               ^ loaded from here when ready runs out    ^ holes

A number names an entry of the journal, or of the overflow where the lowest bit is set. Consumers that refuse
some messages take others from the middle: the hole, which is 0, keeps the places of those behind it. Runs
that are nothing but holes are all the same one in memory.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flintmq.broker.messages.message import Message
    from flintmq.broker.store.store import Store

# 4,096 numbers of 8 octets: 32 KiB are given back at a time.
RUN_ENTRIES = 4096
# Read from disk at a time: few at first, as whoever looks may want no more.
READ_ENTRIES_MIN = 8
READ_ENTRIES_MAX = 256
READ_BYTES = 1_048_576
# What a run is replaced by when all of it is gone; never changed.
HOLES_OCTETS = bytes(8 * RUN_ENTRIES)
HOLES_RUN = array("Q", HOLES_OCTETS)


class PagedTail:
    """First in, first out, with room for putting things back in front and for taking them from the middle."""

    __slots__ = ("count", "holes", "octets", "runs", "taken")

    def __init__(self) -> None:
        # An empty deque would be 140 MB for 200,000 queues. The first of the 25,000 runs of a hundred million
        # entries is taken from a list in ten microseconds.
        self.runs: list[array[int]] = []
        self.taken = 0  # of the first run
        self.count = 0
        self.holes = 0
        self.octets = 0  # of the bodies; kept by those who know them

    def push(self, entry: int) -> None:
        if not self.runs or len(self.runs[-1]) >= RUN_ENTRIES:
            self.runs.append(array("Q"))
        self.runs[-1].append(entry)
        self.count += 1

    def take(self, most: int) -> list[int]:
        """The first entries, at most `most`, with the holes between them."""
        taken: list[int] = []
        while self.runs and len(taken) < most:
            run = self.runs[0]
            end = min(len(run), self.taken + most - len(taken))
            part = run[self.taken : end]
            holes = part.count(0) if self.holes else 0
            taken.extend(part)
            self.count -= len(part) - holes
            self.holes -= holes
            self.taken = end
            if end == len(run):
                del self.runs[0]
                self.taken = 0
        return taken

    def window(self, start: int, most: int) -> list[int]:
        """At most `most` entries and holes, of which the first has `start` before it; they stay."""
        found: list[int] = []
        at = start + self.taken
        for run in self.runs:
            if at >= len(run):
                at -= len(run)
                continue
            found.extend(run[at : at + most - len(found)])
            if len(found) >= most:
                break
            at = 0
        return found

    def put_back(self, entries: list[int]) -> None:
        """In front of all others; those that are 0 are holes."""
        if self.taken:
            self.runs[0] = self.runs[0][self.taken :]
            self.taken = 0
        if entries:
            run = array("Q", entries)
            if self.runs and len(run) + len(self.runs[0]) <= RUN_ENTRIES:
                self.runs[0] = run + self.runs[0]  # else many small portions would be as many runs
            else:
                self.runs.insert(0, run)
            holes = entries.count(0)
            self.count += len(entries) - holes
            self.holes += holes

    def punch(self, index: int) -> None:
        """Takes the entry that has `index` before it, and leaves a hole."""
        number, at = self.place_of(index)
        run = self.runs[number]
        run[at] = 0
        self.count -= 1
        self.holes += 1
        # The ends tell of most runs that they are not empty, which is dear to find out.
        if not run[0] and not run[-1] and run.tobytes() == HOLES_OCTETS:
            self.runs[number] = HOLES_RUN

    def pick(self, wanted: set[int]) -> list[tuple[int, int]]:
        """Takes these entries, and leaves holes; each with how many places are before it."""
        found: list[tuple[int, int]] = []
        before = -self.taken
        for number, run in enumerate(self.runs):
            holes = 0
            for at in range(self.taken if number == 0 else 0, len(run)):
                entry = run[at]
                if entry in wanted:
                    found.append((before + at, entry))
                    run[at] = 0
                    holes += 1
            before += len(run)
            if holes and run.tobytes() == HOLES_OCTETS:
                self.runs[number] = HOLES_RUN
        self.count -= len(found)
        self.holes += len(found)
        return found

    def skip_holes(self) -> int:
        """Drops the holes before the first entry; their number."""
        skipped = 0
        while self.runs:
            run = self.runs[0]
            while self.taken < len(run) and not run[self.taken]:
                self.taken += 1
                skipped += 1
            if self.taken < len(run):
                break
            del self.runs[0]
            self.taken = 0
        self.holes -= skipped
        return skipped

    def is_hole(self, index: int) -> bool:
        """Whether what has `index` before it is a hole."""
        if not 0 <= index < self.count + self.holes:
            return False
        number, at = self.place_of(index)
        return not self.runs[number][at]

    def fill(self, index: int, entry: int) -> bool:
        """Puts an entry into the hole that has `index` before it; False if there is none."""
        if not self.is_hole(index):
            return False
        number, at = self.place_of(index)
        if self.runs[number] is HOLES_RUN:
            self.runs[number] = array("Q", HOLES_RUN)
        self.runs[number][at] = entry
        self.count += 1
        self.holes -= 1
        return True

    def place_of(self, index: int) -> tuple[int, int]:
        """Which run, and where in it."""
        at = index + self.taken
        number = 0
        for run in self.runs:
            if at < len(run):
                break
            at -= len(run)
            number += 1
        return number, at

    def clear(self) -> None:
        self.runs.clear()
        self.taken = 0
        self.count = 0
        self.holes = 0
        self.octets = 0

    def __iter__(self) -> Iterator[int]:
        for index, run in enumerate(self.runs):
            for entry in run[self.taken :] if index == 0 else run:
                if entry:
                    yield entry

    def read(self, store: Store | None, index: int) -> Iterator[list[Message | None]]:
        """The messages from `index` on, in portions, which stay here; None for those that are gone."""
        most = READ_ENTRIES_MIN
        while store is not None and (entries := self.window(index, most)):
            entries = entries[: store.fitting(entries, READ_BYTES)]
            index += len(entries)
            most = min(2 * most, READ_ENTRIES_MAX)
            yield store.load(entries)
