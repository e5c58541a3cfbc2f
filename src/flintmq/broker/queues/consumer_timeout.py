"""Consumers that take too long: what they hold goes back to its queue, and they keep their channel.

    handed out, in order of time     tag 7   tag 9   tag 12 ...
                                     ^ the first one that is unsettled is due first

The delivery's credit stays used until the client settles it after all, which then means nothing more:
a consumer that is stuck gets no further messages in place of those it sat on.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flintmq.broker.queues.queue import Queue
    from flintmq.broker.store.publisher import Publisher

log = logging.getLogger("flintmq.consumer_timeout")

# Settled ones behind the first are dropped when they are the larger half of so many.
TIDY_MIN = 64
# Taken back at a time, some milliseconds; the others a millisecond later.
TAKEN_BACK_MAX = 256


class ConsumerTimeout:
    """The unsettled deliveries of one queue, oldest first."""

    def __init__(self, queue: Queue, timeout_ms: int) -> None:
        self.queue = queue
        self.timeout_ms = timeout_ms
        self.out: deque[tuple[int, Publisher, int]] = deque()  # since when, by which channel, its tag
        self.taken = 0  # of those that are due, while there are more

    def handed_out(self, channel: Publisher, tag: int) -> None:
        self.out.append((self.queue.pass_work.timetable.now_ms(), channel, tag))
        if len(self.out) > TIDY_MIN and len(self.out) > 2 * self.queue.unacked:
            self.out = deque(each for each in self.out if each[1].holds(each[2]))

    def next_due_ms(self) -> int:
        """When the oldest is due; -1: there is none."""
        while self.out and not self.out[0][1].holds(self.out[0][2]):
            self.out.popleft()
        return self.out[0][0] + self.timeout_ms if self.out else -1

    def run(self, now_ms: int) -> None:
        """Takes back a portion of what is due. The log is told when that was the last one."""
        left = TAKEN_BACK_MAX
        last: tuple[int, Publisher, int] | None = None
        while left and 0 <= self.next_due_ms() <= now_ms:
            left -= 1
            last = self.out.popleft()
            self.taken += 1
            last[1].take_back(last[2])
        if last is None or 0 <= self.next_due_ms() <= now_ms:
            return
        taken, self.taken = self.taken, 0
        log.warning(
            "queue %r: %d deliveries are unsettled after %d ms: requeued; the last is delivery %d "
            "on channel %d of connection %d",
            self.queue.name,
            taken,
            self.timeout_ms,
            last[2],
            last[1].number,
            last[1].origin,
        )


def consumer_timeout_of(
    queue: Queue, timeout_ms: int | None, present: ConsumerTimeout | None
) -> ConsumerTimeout | None:
    """Who watches over consumers that take too long; what is out already stays watched."""
    if timeout_ms is None:
        return None
    if present is None:
        return ConsumerTimeout(queue, timeout_ms)
    present.timeout_ms = timeout_ms
    return present
