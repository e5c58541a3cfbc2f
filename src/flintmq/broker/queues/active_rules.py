"""The rules of one queue in force: the parts that the queue has beyond first in, first out.

    limits      limits.py            expiry   expiry.py           retries   retries.py
    choice      consumer_choice.py   timeout  consumer_timeout.py goals     service_goals.py

A part is None as long as the queue does without it. A plain queue has no ActiveRules at all, and pays for a
test of one pointer. A queue gets them with its arguments or a policy (queue_rules.py), with the first message
that carries an expiration, or with a consumer that has a priority. The queue does what the parts decide; no
part calls its queue, except that a choice changes the round of the queue's consumers.

All that comes by the clock shares one alarm, set for whatever is due first: the head's expiry, the end of
a wait, a consumer that is overdue, the end of the queue itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from flintmq.broker.messages.message import Message
from flintmq.broker.queues.consumer_choice import ConsumerChoice
from flintmq.broker.queues.expiry import Expiry
from flintmq.broker.queues.limits import Limits
from flintmq.broker.queues.queue_rules import PLAIN, QueueRules
from flintmq.broker.queues.retries import Retries
from flintmq.broker.queues.service_goals import ServiceGoals
from flintmq.wire import traits

if TYPE_CHECKING:
    from flintmq.broker.queues.consumer_timeout import ConsumerTimeout
    from flintmq.broker.queues.delivery import Delivery
    from flintmq.broker.queues.queue import Queue
    from flintmq.broker.scheduling.timetable import Alarm, Timetable
    from flintmq.broker.store.store import Store


class Host(Protocol):
    """The virtual host, as far as the rules of a queue need it."""

    def bury(self, queue: Queue, messages: list[Message], reason: str) -> None: ...

    def letters_room(self) -> int: ...

    def when_letters_room(self, callback: Callable[[], None]) -> None: ...

    def delete_queue(self, queue: Queue) -> int: ...


class ActiveRules:
    """Of a queue with priorities, its lanes share them."""

    __slots__ = (
        "alarm",
        "choice",
        "expires_ms",
        "expiry",
        "goals",
        "host",
        "is_consumed",
        "leaves_ms",
        "limits",
        "persists",
        "retries",
        "settings",
        "timeout",
        "timetable",
        "unused_since_ms",
    )

    def __init__(self, timetable: Timetable) -> None:
        self.timetable = timetable
        self.settings: QueueRules = PLAIN
        self.host: Host | None = None
        self.alarm: Alarm | None = None
        self.limits: Limits | None = None
        self.expiry: Expiry | None = None
        self.retries: Retries | None = None
        self.choice: ConsumerChoice | None = None
        self.timeout: ConsumerTimeout | None = None
        self.goals: ServiceGoals | None = None
        self.persists = False  # whether all messages are to last, whatever their publisher says
        self.expires_ms = -1  # of the queue itself
        self.unused_since_ms = 0
        self.is_consumed = False  # whether an auto-delete queue with a pause has had a consumer
        self.leaves_ms = -1  # when the queue goes, as its last consumer has gone and none has come since

    def need_expiry(self) -> Expiry:
        if self.expiry is None:
            self.expiry = Expiry(self.timetable)
        return self.expiry

    def need_limits(self) -> Limits:
        if self.limits is None:
            self.limits = Limits()
        return self.limits

    def need_retries(self, queue: Queue) -> Retries:
        if self.retries is None:
            self.retries = Retries(self.timetable, queue.store, queue.number, queue.name)
            self.retries.set(self.settings)
        return self.retries

    def need_choice(self, queue: Queue) -> ConsumerChoice:
        if self.choice is None:
            self.choice = ConsumerChoice(queue)
        return self.choice

    def set_goals(self, settings: QueueRules) -> bool:
        """Whether the queue has goals from now on."""
        if settings.delivery_ms_max is None and settings.bandwidth_min is None:
            self.goals = None
            return False
        if self.goals is None:
            self.goals = ServiceGoals(self.timetable)
        wait_ms_max = -1 if settings.delivery_ms_max is None else settings.delivery_ms_max
        self.goals.set(wait_ms_max, settings.bandwidth_min or 0)
        return True

    def end_after(self, expires_ms: int) -> None:
        """The queue ends when it was unused for so long; -1: it does not."""
        if self.expires_ms < 0:
            self.unused_since_ms = self.timetable.now_ms()
        self.expires_ms = expires_ms

    def touch(self) -> None:
        """The queue is used."""
        if self.expires_ms >= 0:
            self.unused_since_ms = self.timetable.now_ms()

    def pause_deletion(self) -> bool:
        """The last consumer of an auto-delete queue has gone; whether the queue waits for another one."""
        pause_ms = self.settings.delete_pause_ms
        if pause_ms is None:
            return False
        self.leaves_ms = self.timetable.now_ms() + pause_ms
        return True

    def begins_consuming(self) -> bool:
        """Whether the consumer that has come is the first, as the journal is to know of one that pauses."""
        if self.is_consumed or self.settings.delete_pause_ms is None:
            return False
        self.is_consumed = True
        return True

    def restore_consumed(self) -> None:
        """The queue had a consumer before the broker was restarted: its pause begins now."""
        self.is_consumed = self.pause_deletion()

    def loaded(self, message: Message, store: Store | None) -> int:
        """A message is back from the disk; how often it came back to its queue, as far as was counted."""
        if message.lifetime_ms >= 0 and not message.traits & traits.TIMED:
            message.stamp(self.timetable.started_ms)  # of an exchange that was lost: rescued, it came then
        if message.traits & traits.TIMED:
            self.need_expiry().loaded(message, store)
        return 0 if self.retries is None else self.retries.notes.get(message.entry, 0)

    def purge(self) -> list[Delivery]:
        """The queue drops all it has: the messages that wait for their next try."""
        if self.limits is not None:
            self.limits.clear()
        return [] if self.retries is None else self.retries.take_waiting()

    def set_alarm(self, due_ms: int, callback: Callable[[], None]) -> None:
        """An alarm that comes too early does no harm: it is set anew then."""
        alarm = self.alarm
        if alarm is not None:
            if alarm.due_ms <= due_ms:
                return
            alarm.cancel()
        # What is late already waits for the next run, or a run could go on for ever.
        self.alarm = self.timetable.at(max(due_ms, self.timetable.now_ms() + 1), callback)

    def close(self) -> None:
        """The queue is gone."""
        if self.alarm is not None:
            self.alarm.cancel()
            self.alarm = None
