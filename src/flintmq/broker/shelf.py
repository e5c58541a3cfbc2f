"""The far end of a long queue: messages that lie on disk only, known here by eight octets each.

    ready (messages in memory) | shelf (numbers of entries) ........
                               ^ loaded from here when ready runs out

A number names an entry of the journal, or of the overflow where the lowest bit is set.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator

# 4,096 numbers of 8 octets: 32 KiB are given back at a time.
RUN_ENTRIES = 4096


class Shelf:
    """First in, first out, with room for putting things back in front."""

    __slots__ = ("count", "octets", "runs", "taken")

    def __init__(self) -> None:
        self.runs: deque[array[int]] = deque()
        self.taken = 0  # of the first run
        self.count = 0
        self.octets = 0  # of the bodies; kept by those who know them

    def push(self, entry: int) -> None:
        if not self.runs or len(self.runs[-1]) >= RUN_ENTRIES:
            self.runs.append(array("Q"))
        self.runs[-1].append(entry)
        self.count += 1

    def take(self, most: int) -> list[int]:
        """The first entries, at most `most`."""
        taken: list[int] = []
        while self.runs and len(taken) < most:
            run = self.runs[0]
            end = min(len(run), self.taken + most - len(taken))
            taken.extend(run[self.taken : end])
            self.taken = end
            if end == len(run):
                self.runs.popleft()
                self.taken = 0
        self.count -= len(taken)
        return taken

    def window(self, start: int, most: int) -> list[int]:
        """At most `most` entries, of which the first has `start` before it; they stay where they are."""
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
        """In front of all others."""
        if self.taken:
            self.runs[0] = self.runs[0][self.taken :]
            self.taken = 0
        if entries:
            self.runs.appendleft(array("Q", entries))
            self.count += len(entries)

    def __iter__(self) -> Iterator[int]:
        for index, run in enumerate(self.runs):
            yield from run[self.taken :] if index == 0 else run
