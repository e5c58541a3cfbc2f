"""How much a queue may hold: x-max-length, x-max-length-bytes and what x-overflow says of more; and how much
of that in memory, which is x-max-in-memory-length.

A queue over its limits drops its oldest messages, of the lowest priority alone if it is told so, or refuses
the newest. The queue counts its messages; the octets of their bodies are counted here. Messages of the stream
class have a limit in every queue (stream_backlog.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.queues.queue_rules import DROP_LOWEST
from flintmq.broker.queues.stream_backlog import StreamBacklog
from flintmq.wire import traits

if TYPE_CHECKING:
    from flintmq.broker.messages.message import Message
    from flintmq.broker.queues.delivery import Delivery
    from flintmq.broker.queues.queue_rules import QueueRules


class Limits:
    """The limits of one queue; -1 where there is none."""

    __slots__ = ("backlog", "body_bytes", "bytes_max", "drops_lowest", "length_max", "memory_max", "refuses")

    def __init__(self) -> None:
        self.length_max = -1
        self.bytes_max = -1
        self.memory_max = -1  # messages in memory; those behind them go to disk
        self.refuses = False  # the newest message, instead of dropping the oldest
        self.drops_lowest = False  # of the lowest priority first
        self.body_bytes = 0  # of all messages that are ready; right only where they are limited
        self.backlog: StreamBacklog | None = None  # of messages of the stream class, once there was one

    def set(self, rules: QueueRules) -> None:
        self.length_max = -1 if rules.length_max is None else rules.length_max
        self.bytes_max = -1 if rules.length_bytes_max is None else rules.length_bytes_max
        self.memory_max = -1 if rules.memory_length_max is None else rules.memory_length_max
        self.refuses = rules.refuses_publishes()
        self.drops_lowest = rules.overflow == DROP_LOWEST
        if self.backlog is not None:
            self.backlog.limit(self.length_max, self.bytes_max)

    def need_backlog(self) -> StreamBacklog:
        if self.backlog is None:
            self.backlog = StreamBacklog()
            self.backlog.limit(self.length_max, self.bytes_max)
        return self.backlog

    def came(self, message: Message) -> None:
        self.count(1, message.body_size(), message.traits)

    def note(self, delivery: Delivery, sign: int) -> int:
        """A message that may lie on disk has come back (1) or was lost (-1)."""
        if delivery.message is not None:
            self.count(sign, delivery.message.body_size(), delivery.message.traits)
        elif delivery.paged is not None:
            self.count(sign, delivery.paged.body_size, delivery.paged.traits)
        return 0

    def left(self, message: Message) -> None:
        self.count(-1, message.body_size(), message.traits)

    def count(self, sign: int, size: int, found: int) -> int:
        """A message with a body of this size and these traits has come (1) or left (-1)."""
        self.body_bytes += sign * size
        if self.backlog is not None and found & traits.STREAM_CONTENT:
            self.backlog.change(sign, sign * size)
        return 0

    def clear(self) -> None:
        """The queue has dropped all it had."""
        self.body_bytes = 0
        if self.backlog is not None:
            self.backlog.clear()

    def is_exceeded(self, count: int) -> bool:
        """Whether a queue of so many messages has too much."""
        if self.length_max >= 0 and count > self.length_max:
            return True
        return self.bytes_max >= 0 and self.body_bytes > self.bytes_max

    def would_exceed(self, count: int, coming: int, size: int) -> bool:
        """The same with so many more messages, whose bodies have `size` octets together."""
        if self.length_max >= 0 and count + coming > self.length_max:
            return True
        return self.bytes_max >= 0 and self.body_bytes + size > self.bytes_max
