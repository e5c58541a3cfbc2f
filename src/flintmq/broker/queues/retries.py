"""Messages that came back: how often, whether they are tried again, and when.

    returned   over the delivery limit: dies   to be tried later: waits, on disk   else: ready in its place

How often a message of the journal came back is kept there too, and so counts over restarts.
"""

from __future__ import annotations

import heapq
import logging
from typing import TYPE_CHECKING

from flintmq.broker.messages import entry_number
from flintmq.broker.messages.header_changes import with_delivery_count
from flintmq.broker.messages.message import Message
from flintmq.broker.queues.delivery import Delivery
from flintmq.broker.queues.queue_rules import PLAIN, QueueRules
from flintmq.broker.store.topology_records import forget_return, put_return
from flintmq.wire import traits

if TYPE_CHECKING:
    from flintmq.broker.scheduling.timetable import Timetable
    from flintmq.broker.store.store import Store

log = logging.getLogger("flintmq.retries")


class Retries:
    """The returns of one queue, which has this part once it counts them or recovery has found some."""

    __slots__ = (
        "counts",
        "delays",
        "delivery_limit",
        "name",
        "notes",
        "number",
        "rules",
        "store",
        "timetable",
        "waiting",
        "waiting_returns",
    )

    def __init__(self, timetable: Timetable, store: Store | None, number: int, name: str) -> None:
        self.timetable = timetable
        self.store = store
        self.number = number  # what the journal calls the queue
        self.name = name
        self.rules: QueueRules = PLAIN
        self.delivery_limit = -1
        self.counts = False  # whether deliveries are counted over restarts and told to consumers
        self.delays = False  # whether some of what comes back waits, on disk
        self.notes: dict[int, int] = {}  # by entry: how often it came back
        self.waiting: list[tuple[int, int, Delivery]] = []  # a heap: when it is due, its place
        self.waiting_returns = 0  # how often those that wait have come back, together

    def set(self, rules: QueueRules) -> None:
        self.rules = rules
        self.delivery_limit = -1 if rules.delivery_limit is None else rules.delivery_limit
        self.counts = rules.counts_returns()
        self.delays = rules.retry_type != "disabled"

    def shown(self, message: Message, redeliveries: int) -> Message:
        """The message as it goes out, with the number of its earlier deliveries if the queue counts them."""
        if not self.counts:
            return message
        content, header_size = with_delivery_count(message.content, message.header_size, redeliveries)
        return message.variant(message.route, content, header_size, message.traits | traits.HAS_HEADERS)

    def returned(self, deliveries: list[Delivery], failed: bool, dead: list[Message]) -> list[Delivery]:
        """The deliveries that are ready again at once. Others wait for their retry; `dead` gets the rest.

        Should it fail, nothing has happened to any of them.
        """
        ready: list[Delivery] = []
        later: list[tuple[int, Delivery]] = []
        for delivery in deliveries:
            message = delivery.message
            if message is None and delivery.paged is None:
                continue
            if message is not None and self.is_dead(delivery):
                dead.append(message)
                continue
            due_ms = self.due_ms(delivery.redeliveries, failed)
            if self.counts:
                try:
                    self.note(delivery.entry(), delivery.redeliveries, due_ms)
                except Exception:  # the message matters more
                    log.exception("how often a message of queue %r came back is not noted", self.name)
            if due_ms:
                later.append((due_ms, delivery))
            else:
                ready.append(delivery)
        for due_ms, delivery in later:
            self.wait(delivery, due_ms)
        return ready

    def is_dead(self, delivery: Delivery) -> bool:
        """Whether it has come back too often."""
        return self.delivery_limit >= 0 and delivery.redeliveries > self.delivery_limit

    def wait(self, delivery: Delivery, due_ms: int) -> None:
        """The delivery waits until it is due: on disk, as a consumer that fails may send a whole backlog."""
        if self.store is not None:
            try:
                delivery.page_out(self.store, self.number != 0)
            except Exception:  # then it waits in memory
                log.exception("a message of queue %r that waits for a retry stays in memory", self.name)
        heapq.heappush(self.waiting, (due_ms, delivery.position, delivery))
        self.waiting_returns += delivery.redeliveries

    def due_ms(self, redeliveries: int, failed: bool) -> int:
        """When a message that came back is ready again; 0: at once."""
        rules = self.rules
        if rules.retry_type != "all" and rules.retry_type != ("failed" if failed else "returned"):
            return 0
        delay_ms = rules.retry_min_ms * redeliveries
        if rules.retry_max_ms is not None:
            delay_ms = min(delay_ms, rules.retry_max_ms)
        return self.timetable.now_ms() + delay_ms if delay_ms else 0

    def note(self, entry: int, redeliveries: int, due_ms: int) -> None:
        """How often it came back is on disk, for a message that is."""
        if self.number and self.store is not None and entry_number.is_in_journal(entry):
            self.notes[entry] = redeliveries
            put_return(self.store.journal, self.number, entry_number.sequence_of(entry), redeliveries, due_ms)

    def forget(self, entry: int) -> None:
        """The message has left the queue for good."""
        if self.notes and self.store is not None and self.notes.pop(entry, 0):
            forget_return(self.store.journal, self.number, entry_number.sequence_of(entry))

    def restore(self, returns: dict[int, tuple[int, int]]) -> None:
        """What recovery found: by entry the returns and when it is due."""
        self.notes = {entry: count for entry, (count, _) in returns.items()}

    def wait_again(self, delivery: Delivery, due_ms: int) -> None:
        """A message that waited when the broker ended."""
        # The clock may have been set back since then: it waits for as long as it would from now.
        count = delivery.redeliveries
        again_ms = max(self.due_ms(count, True), self.due_ms(count, False))
        self.wait(delivery, min(due_ms, again_ms or due_ms))

    def next_due_ms(self) -> int:
        """When the first of those that wait is ready; -1: there is none."""
        return self.waiting[0][0] if self.waiting else -1

    def take_due(self, now_ms: int, most: int) -> list[Delivery]:
        """Messages whose next try has come."""
        ready: list[Delivery] = []
        while self.waiting and self.waiting[0][0] <= now_ms and len(ready) < most:
            delivery: Delivery = heapq.heappop(self.waiting)[2]
            self.waiting_returns -= delivery.redeliveries
            ready.append(delivery)
        return ready

    def take_waiting(self) -> list[Delivery]:
        """All that waits, for a queue that drops what it has."""
        waiting, self.waiting = self.waiting, []
        self.waiting_returns = 0
        return [delivery for _, _, delivery in waiting]
