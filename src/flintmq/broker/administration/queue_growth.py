"""Queues that grow while nobody consumes from them: an alert for each, not too often.

Each LOOK_MS a chore goes through the queues of virtual hosts where somebody hears of it. A queue without a
consumer that has more messages than at the look before, GROWN_LOOKS times in a row, is told of once; again
after AGAIN_MS, if it still grows.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flintmq.broker.administration.events import Events
    from flintmq.broker.queues.queue import Queue
    from flintmq.broker.scheduling.chores import Chore

LOOK_MS = 10_000
GROWN_LOOKS = 3
AGAIN_MS = 300_000
# Alerts of one look: the others come with the next.
ALERTS_MAX = 20
# Queues that one step looks at, a microsecond each, and those that are remembered, of 200 octets each.
STEP = 256
KNOWN_MAX = 100_000


class Grown:
    """What is known of one queue."""

    __slots__ = ("looks", "messages", "queue", "since", "told_ms")

    def __init__(self, queue: Queue, messages: int) -> None:
        self.queue = queue
        self.messages = messages  # at the last look
        self.since = messages  # when it began to grow
        self.looks = 0  # in a row that found more
        self.told_ms = 0


class QueueGrowth:
    """Of one broker."""

    def __init__(self, events: Events) -> None:
        self.events = events
        self.known: dict[Queue, Grown] = {}
        self.looked_ms = 0
        self.is_looking = False

    def tick(self) -> None:
        """Called now and then."""
        broker = self.events.broker
        now_ms = broker.timetable.now_ms()
        if self.is_looking or now_ms - self.looked_ms < LOOK_MS:
            return
        self.looked_ms = now_ms
        hosts = [name for name in broker.virtual_hosts if self.events.hearers(name)]
        if not hosts:
            self.known.clear()
            return
        self.is_looking = True
        broker.pass_work.chores.go_on(self.look(hosts, now_ms))

    def look(self, hosts: list[str], now_ms: int) -> Chore:
        before, self.known = self.known, {}
        alerts = 0
        try:
            for name in hosts:
                last: str | None = None
                while (host := self.events.broker.virtual_hosts.get(name)) is not None and (
                    names := list(islice(host.queue_names.after(last), STEP))
                ):
                    for queue_name in names:
                        queue = host.queues[queue_name]
                        grown = self.compared(queue, before.get(queue))
                        if grown is not None and alerts < ALERTS_MAX and is_due(grown, now_ms):
                            alerts += 1
                            self.tell(name, grown, now_ms)
                    last = names[-1]
                    yield None
        finally:
            self.is_looking = False

    def compared(self, queue: Queue, grown: Grown | None) -> Grown | None:
        """What is known of the queue now; None where it does not wait for a consumer."""
        messages = queue.message_count()
        if queue.consumers or queue.leases or queue.is_stream or not messages:
            return None
        if grown is None:
            grown = Grown(queue, messages)
        elif messages > grown.messages:
            grown.looks += 1
        else:
            grown.looks, grown.since = 0, messages
        grown.messages = messages
        if len(self.known) < KNOWN_MAX:
            self.known[queue] = grown
        return grown

    def tell(self, host: str, grown: Grown, now_ms: int) -> None:
        grown.told_ms = now_ms
        fields = {
            "name": grown.queue.name,
            "messages": grown.messages,
            "grown_by": grown.messages - grown.since,
            "seconds": grown.looks * LOOK_MS // 1000,
        }
        self.events.tell("alert.queue.growing", host, fields)


def is_due(grown: Grown, now_ms: int) -> bool:
    return grown.looks >= GROWN_LOOKS and (not grown.told_ms or now_ms - grown.told_ms >= AGAIN_MS)
