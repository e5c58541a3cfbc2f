"""When messages of a queue expire: by x-message-ttl, and by the expiration that a message carries.

A message is stamped with its time of arrival when it may expire. A message dies when it has come to the head
of its queue, so messages behind the head cost no timers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.messages import entry_number
from flintmq.wire import traits

if TYPE_CHECKING:
    from flintmq.broker.messages.message import Message
    from flintmq.broker.scheduling.timetable import Timetable
    from flintmq.broker.store.store import Store

# What is handed out at the end of a pass has waited for less than this.
PASS_MS_MAX = 1000


class Expiry:
    """The lifetimes of the messages of one queue, which has this part once a message of it may expire."""

    __slots__ = ("momentary", "timetable", "ttl_ms", "ttl_since_ms")

    def __init__(self, timetable: Timetable) -> None:
        self.timetable = timetable
        self.ttl_ms = -1
        self.ttl_since_ms = 0  # for messages that were there before the time to live
        self.momentary: Message | None = None  # has come just now: it is handed out however short it lives

    def limit(self, ttl_ms: int) -> None:
        """The time to live of all messages from now on; -1: they have none in common."""
        if ttl_ms >= 0 and self.ttl_ms < 0:
            self.ttl_since_ms = self.timetable.now_ms()
        self.ttl_ms = ttl_ms

    def stamp(self, message: Message) -> None:
        """The message has come in."""
        if not message.traits & traits.TIMED and (message.lifetime_ms >= 0 or self.ttl_ms >= 0):
            message.stamp(self.timetable.now_ms())

    def is_urgent(self, message: Message) -> bool:
        """Whether the message may expire before the end of the pass, which is when consumers get theirs."""
        lifetime_ms = message.lifetime_ms
        if self.ttl_ms >= 0 and (lifetime_ms < 0 or self.ttl_ms < lifetime_ms):
            lifetime_ms = self.ttl_ms
        return 0 <= lifetime_ms <= PASS_MS_MAX

    def has_just_come(self, message: Message) -> bool:
        """Whether it is the one that is handed out however short it lives, from the paged tail perhaps."""
        newest = self.momentary
        return newest is not None and (message is newest or 0 < newest.entry == message.entry)

    def due_ms(self, message: Message) -> int:
        """When the message expires; -1: never."""
        due_ms = -1
        if message.lifetime_ms >= 0:
            due_ms = message.arrived_ms + message.lifetime_ms
        if self.ttl_ms >= 0:
            since_ms = message.arrived_ms if message.traits & traits.TIMED else self.ttl_since_ms
            until_ms = since_ms + self.ttl_ms
            if due_ms < 0 or until_ms < due_ms:
                due_ms = until_ms
        return due_ms

    def has_expired(self, message: Message) -> bool:
        if self.has_just_come(message):
            return False
        due_ms = self.due_ms(message)
        if due_ms < 0:
            return False
        now_ms: int = self.timetable.now_ms()
        return due_ms <= now_ms

    def loaded(self, message: Message, store: Store | None) -> None:
        """A message with a time of arrival is back from the disk."""
        # The machine's clock may have been set back while the broker was down: what came in an
        # earlier life came before this one began.
        if (
            store is not None
            and entry_number.is_in_journal(message.entry)
            and entry_number.sequence_of(message.entry) <= store.recovered
        ):
            message.arrived_ms = min(message.arrived_ms, self.timetable.started_ms)
