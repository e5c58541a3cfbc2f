"""Memory is short: what queues hold goes to disk, a portion at a time, so that nobody waits for it.

A round looks at every queue once. Each step moves a portion and ends; between steps the broker serves its
clients. While the disk is behind nothing is moved: that would only be another place in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flintmq.broker.broker import Broker

# Moved by one step: some milliseconds of work.
STEP_BYTES = 1_048_576
# What looking at a queue that has nothing to move counts as: a step looks at 2,048 of them.
LOOK_BYTES = 512


class MemoryShedding:
    """The rounds of one broker."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.round: Iterator[int] | None = None
        self.moved_bytes = 0  # in this round

    def step(self) -> bool:
        """Moves a portion; False when a whole round has found nothing more to move."""
        store = self.broker.store
        if store is None:
            return False
        if store.is_overflow_behind():
            return True
        if self.round is None:
            self.moved_bytes = 0
            self.round = self.walk()
        done = 0
        for moved in self.round:
            self.moved_bytes += moved
            done += max(moved, LOOK_BYTES)
            if done >= STEP_BYTES:
                return True
        self.round = None
        return self.moved_bytes > 0

    def walk(self) -> Iterator[int]:
        """Sheds queue after queue; the octets of each portion."""
        if self.broker.streams is not None:
            self.broker.streams.shed()
        for host in list(self.broker.virtual_hosts.values()):
            for queue in list(host.queues.values()):
                moved = queue.shed(STEP_BYTES)
                while moved >= STEP_BYTES:
                    yield moved
                    moved = queue.shed(STEP_BYTES)
                yield moved
