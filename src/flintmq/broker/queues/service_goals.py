"""What a queue is promised of the broker's time: a longest wait of its messages, and a least bandwidth.

    queues of a pass         a  b  GOAL  c  d  GOAL  e ...
    in the order of service  GOAL  a  GOAL  b  c  d  e ...       a goal that is due, then one of the others

A queue whose goal is due has its turn at the head of each pass, and up to half of what the pass hands out
beside its own portion. Every second turn stays with the others, so that no goal keeps them from theirs. The
broker gives its own time: what a consumer or its network does not take, nobody can deliver.
A broker without such queues pays for one test in a pass, and a queue without a goal for nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flintmq.broker.messages.message import Message

if TYPE_CHECKING:
    from flintmq.broker.scheduling.pass_work import PassWork
    from flintmq.broker.scheduling.timetable import Timetable

# So much of its bandwidth a queue may make up for later, in ms: what nobody wanted for longer is not owed.
OWED_MS = 1000
# A message is due when it has waited for this part of the longest wait: 1 / DUE_PART.
DUE_PART = 4


class ServiceGoals:
    """The service goals of one queue."""

    __slots__ = ("bandwidth", "filled_ms", "late", "owed", "timetable", "wait_ms_max")

    def __init__(self, timetable: Timetable) -> None:
        self.timetable = timetable
        self.wait_ms_max = -1  # that a message should wait for a consumer; -1 for any
        self.bandwidth = 0  # octets of bodies in a second that are handed out at least; 0 for none
        # Thousandths of octets; what went beyond the bandwidth is below 0, by what a second brings at most.
        self.owed = 0
        self.filled_ms = timetable.now_ms()
        self.late = 0  # messages that were handed out after they had waited longer

    def set(self, wait_ms_max: int, bandwidth: int) -> None:
        """From now on these hold."""
        self.wait_ms_max = wait_ms_max
        if bandwidth != self.bandwidth:
            self.bandwidth = bandwidth
            self.owed = 0
            self.filled_ms = self.timetable.now_ms()

    def handed_out(self, message: Message, now_ms: int) -> int:
        """The message has left the queue for a client; `now_ms` may be late by a turn of the event loop."""
        if self.wait_ms_max >= 0 and message.arrived_ms and now_ms - message.arrived_ms > self.wait_ms_max:
            self.late += 1
        if self.bandwidth:
            size = message.body_size()
            self.owed -= 1000 * (size if size > 0 else 1)
        return 0

    def due_ms(self, message: Message, now_ms: int) -> int:
        """When the queue should have its turn, with this message at its head; -1: at any time."""
        due_ms = -1
        if self.wait_ms_max >= 0 and message.arrived_ms:
            due_ms = message.arrived_ms + self.wait_ms_max // DUE_PART
            if due_ms > now_ms:
                due_ms = -1
        if due_ms < 0 and self.bandwidth and self.is_owed(now_ms):
            due_ms = now_ms
        return due_ms

    def is_owed(self, now_ms: int) -> bool:
        """Whether the queue has handed out less than its bandwidth."""
        # The product fits in 64 bits: no more than what fills it up is added, however long ago that was.
        most = self.bandwidth * OWED_MS
        self.owed = max(self.owed, -most)
        needed_ms = (most - self.owed) // self.bandwidth + 1
        self.owed = min(most, self.owed + self.bandwidth * min(max(0, now_ms - self.filled_ms), needed_ms))
        self.filled_ms = now_ms
        return self.owed > 0


def due_ms_of(queue: Any, now_ms: int) -> int:
    """When the queue should have its turn at the latest; -1: at any time."""
    goals: ServiceGoals | None = None if queue.rules is None else queue.rules.goals
    if goals is None:
        return -1
    try:
        message = queue.head()
    except Exception:
        return -1  # the queue's turn in this pass meets the same, and tells of it
    return -1 if message is None else goals.due_ms(message, now_ms)


def in_order_of_goals(queues: list[Any], pass_work: PassWork) -> tuple[list[Any], set[Any]]:
    """The queues of a pass: those whose goals are due first, in turns with others; and which those are."""
    now_ms = pass_work.timetable.now_ms()
    due: list[tuple[int, int]] = []
    others: list[Any] = []
    for at, queue in enumerate(queues):
        due_ms = due_ms_of(queue, now_ms)
        if due_ms < 0:
            others.append(queue)
        else:
            due.append((due_ms, at))
    if not due:
        return queues, set()
    due.sort()
    first = [queues[at] for _, at in due]
    ordered: list[Any] = []
    for at, queue in enumerate(first):
        ordered.append(queue)
        ordered += others[at : at + 1]
    return ordered + others[len(first) :], set(first)
