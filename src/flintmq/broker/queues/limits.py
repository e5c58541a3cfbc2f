"""How much a queue may hold: x-max-length, x-max-length-bytes and what x-overflow says of more.

A queue over its limits drops its oldest messages, or refuses the newest. The queue counts its messages; the
octets of their bodies are counted here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flintmq.broker.messages.message import Message
    from flintmq.broker.queues.queue_rules import QueueRules


class Limits:
    """The limits of one queue; -1 where there is none."""

    __slots__ = ("body_bytes", "bytes_max", "length_max", "refuses")

    def __init__(self) -> None:
        self.length_max = -1
        self.bytes_max = -1
        self.refuses = False  # the newest message, instead of dropping the oldest
        self.body_bytes = 0  # of all messages that are ready; right only where they are limited

    def set(self, rules: QueueRules) -> None:
        self.length_max = -1 if rules.length_max is None else rules.length_max
        self.bytes_max = -1 if rules.length_bytes_max is None else rules.length_bytes_max
        self.refuses = rules.refuses_publishes()

    def came(self, message: Message) -> None:
        self.body_bytes += message.body_size()

    def left(self, message: Message) -> None:
        self.body_bytes -= message.body_size()

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
