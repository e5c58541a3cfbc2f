"""Queues with rules, as the model sees them: what may leave them by itself, and where it must turn up.

    reconcile    the broker counts fewer than the model: the oldest have expired, or were over the limit
    die          a copy leaves its queue; its letter is in the morgue of that queue, if there is one

Each queue has a morgue of its own, so that a message is in no queue twice.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from flintmq.broker.services import browsing

from .broker_model import READY, Copy, ModelQueue, ModelStream

if TYPE_CHECKING:
    from flintmq.broker.broker import Broker
    from flintmq.broker.messages.message import Message
    from flintmq.broker.queues.queue import Queue
    from flintmq.broker.store.store import Store
    from flintmq.broker.virtual_host import VirtualHost

    from .broker_model import Model
    from .journal_history import SimulatedClock

TTL_MS = 100
LENGTH_MAX = 3
DELIVERY_LIMIT = 1
MORGUE = "dead-"

RULES: dict[str, dict[str, Any]] = {
    "r1": {"x-message-ttl": TTL_MS},
    "r2": {"x-max-length": LENGTH_MAX},
    "r3": {"x-max-priority": 4},
    "r4": {"x-delivery-limit": DELIVERY_LIMIT},
    "r5": {"x-max-priority": 2, "x-message-ttl": TTL_MS},
}
MORGUES = tuple(MORGUE + name for name in RULES)


def arguments_of(name: str) -> dict[str, Any]:
    rules = RULES.get(name)
    if rules is None:
        return {}
    return {**rules, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": MORGUE + name}


class RuledQueues:
    """What a history knows of them."""

    broker: Broker
    store: Store
    host: VirtualHost
    model: Model
    ever: dict[int, dict[int, int]]
    persistent: dict[int, bool]
    expirations: dict[int, int]
    priorities: dict[int, int]

    clock: SimulatedClock
    offset_ms: int  # between the broker's time and the monotonic clock, since this life began

    def now_ms(self) -> int:
        """The time by which a broker goes: of the wall when it began, or of its last life; then its own."""
        return self.offset_ms + int(self.clock.now_s * 1000)

    def is_expired(self, copy: Copy) -> bool:
        return 0 <= copy.due_ms <= self.now_ms()

    def reconcile(self, was_cut: bool = False) -> None:
        """What the broker counts no more has died for a reason, or is in hand when the power fails."""
        for name, queue in list(self.model.queues.items()):
            real = self.host.queues.get(name)
            if real is None:
                continue
            ready = queue.ready()
            excess = len(ready) - real.message_count()
            alive: list[Copy] = []
            is_limited = "x-max-length" in RULES.get(name, {})
            # Which was over the limit depends on what had expired by then, and which of the expired was the
            # first depends on what had come back by then: those that the broker has live.
            present = self.numbers_in(real) if excess > 0 else set()
            for index, copy in enumerate(ready):
                if excess <= 0:
                    break
                over = is_limited and len(ready) - index > LENGTH_MAX
                if (over or self.is_expired(copy)) and copy.number not in present:
                    self.die(copy, "expired" if self.is_expired(copy) else "maxlen")
                    excess -= 1
                else:
                    alive.append(copy)
            assert excess <= 0 or was_cut, f"{alive[0].number} of {name} is gone"

    def is_blind(self) -> bool:
        """Whether the broker cannot read, or has not looked yet whether it can again."""
        raise NotImplementedError

    def sound(self) -> AbstractContextManager[None]:
        """What is looked up inside is the model's doing, which can read all there is."""
        raise NotImplementedError

    def numbers_in(self, queue: Queue) -> set[int]:
        """The messages of a queue that are ready, in memory or in the paged tail."""
        messages: list[Message | None] = []
        for part in queue.parts():
            messages += [part.ready.at(index) for index in range(part.ready.count)]
            with self.sound():
                messages += [browsing.message_of(part, delivery) for delivery in part.returned]
                messages += self.store.load(list(part.tail))
        bodies = [each.content[each.header_size :] for each in messages if each is not None]
        return {int(body[: body.index(b".")]) for body in bodies}

    def expire_heads(self, queue: ModelQueue) -> None:
        """The broker hands out the first that has not expired; those before it die of that."""
        for copy in queue.ready():
            if not self.is_expired(copy):
                break
            self.die(copy, "expired")

    def letter_in(self, morgue: ModelQueue, number: int) -> Copy | None:
        """A letter that was handed out in the very pass in which its original died.

        What has expired and is not at the head, or was put back since then, dies when a pass comes to it.
        """
        queue = self.model.queues.get(morgue.name.removeprefix(MORGUE))
        copy = None if queue is None else queue.copies.get(number)
        if copy is None or copy.state is not READY or not self.is_expired(copy):
            return None
        self.die(copy, "expired")
        return morgue.copies.get(number)

    def die(self, copy: Copy, reason: str, sequence: int | None = None) -> Copy | None:
        """The letter, if it goes to disk."""
        queue = copy.queue
        if sequence is None:
            self.model.settle(copy)
        else:
            self.model.settle(copy, sequence)
        morgue = self.model.queues.get(MORGUE + queue.name)
        if queue.deleted or queue.name not in RULES or morgue is None:
            return None
        letters = self.enqueue(copy.number, [morgue], self.persistent[copy.number], is_letter=True)
        if not letters:
            return None
        self.model.deaths.append((copy, letters[0]))
        return letters[0]

    def enqueue(
        self, number: int, queues: list[ModelQueue], persistent: bool, is_letter: bool = False
    ) -> list[Copy]:
        """Adds the message; those of its copies that go to disk."""
        copies = self.model.enqueue(number, queues, persistent, self.store.last())
        for copy in copies:
            self.ever[copy.queue.number][number] = copy.place
        for queue in queues:
            if isinstance(queue, ModelStream):
                continue
            copy = queue.copies[number]
            lives_ms = RULES.get(queue.name, {}).get("x-message-ttl", -1)
            own_ms = -1 if is_letter else self.expirations.get(number, -1)
            chosen = [each for each in (lives_ms, own_ms) if each >= 0]
            copy.due_ms = self.now_ms() + min(chosen) if chosen else -1
            copy.rank = self.rank_of(number, queue.name)
        return copies

    def rank_of(self, number: int, queue: str) -> int:
        return -min(self.priorities.get(number, 0), RULES.get(queue, {}).get("x-max-priority", 0))

    def come_back(self, copy: Copy) -> None:
        """A copy was put back; too often, for some queues."""
        copy.returns += 1
        limit = RULES.get(copy.queue.name, {}).get("x-delivery-limit", 1 << 30)
        if copy.state is not READY or copy.returns <= limit:
            return
        real = self.host.queues[copy.queue.name]
        if self.is_blind() and copy.number in self.numbers_in(real):
            return  # it could not be read, and dies another time
        self.die(copy, "delivery_limit")
