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


class ConsumerTimeout:
    """The unsettled deliveries of one queue, oldest first."""

    def __init__(self, queue: Queue, timeout_ms: int) -> None:
        self.queue = queue
        self.timeout_ms = timeout_ms
        self.out: deque[tuple[int, Publisher, int]] = deque()  # since when, by which channel, its tag

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
        """Takes back what is due."""
        while 0 <= self.next_due_ms() <= now_ms:
            _, channel, tag = self.out.popleft()
            log.warning(
                "queue %r: delivery %d on channel %d of connection %d is unsettled after %d ms: requeued",
                self.queue.name,
                tag,
                channel.number,
                channel.origin,
                self.timeout_ms,
            )
            channel.take_back(tag)


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
