"""Messages that come twice: an exchange that drops the second, and a queue that refuses it.

What makes two messages the same is the value of their header `x-deduplication-header`; a message without
it is like no other. The exchange remembers values for a time, the queue those of the messages it has.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING

from flintmq.broker.matching.field_equality import typed_form
from flintmq.broker.messages.message import Message
from flintmq.broker.messages.published import headers_of
from flintmq.wire import traits

if TYPE_CHECKING:
    from flintmq.broker.store.store import Store
    from flintmq.wire.tables import FieldTable

HEADER = "x-deduplication-header"
DEDUPLICATED = "x-message-deduplication"
# Longer values are remembered by 16 octets of digest: a value costs some 100 octets at the most.
VALUE_CHARACTERS_MAX = 64


def value_of(headers: FieldTable) -> Hashable:
    """What stands for the message, or None."""
    value = headers.get(HEADER)
    if value is None:
        return None
    form = typed_form(value)
    if isinstance(form, int) or (isinstance(form, str) and len(form) <= VALUE_CHARACTERS_MAX):
        return form
    octets = form.encode("utf-8", "surrogateescape") if isinstance(form, str) else repr(form).encode()
    return hashlib.blake2b(octets, digest_size=16).digest()


class Cache:
    """Values seen lately, at most `size` of them: the oldest makes room."""

    __slots__ = ("entries", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.entries: dict[Hashable, int] = {}  # until when, in ms since 1970; 0: until there is no room

    def has_seen(self, value: Hashable, now_ms: int, ttl_ms: int) -> bool:
        """Whether the value is known; it is from now on, for `ttl_ms` if that is not 0."""
        until_ms = self.entries.pop(value, None)
        if until_ms is not None and (not until_ms or until_ms > now_ms):
            self.entries[value] = until_ms
            return True
        if len(self.entries) >= self.size:
            del self.entries[next(iter(self.entries))]
        self.entries[value] = now_ms + ttl_ms if ttl_ms else 0
        return False

    def forget(self, value: Hashable) -> None:
        """The message was not taken after all."""
        self.entries.pop(value, None)


class Duplicates:
    """The values of the messages that a queue has, with those handed out and not yet acked."""

    __slots__ = ("passing", "values")

    def __init__(self) -> None:
        self.values: set[Hashable] = set()
        # Values of messages that the queue has refused and makes dead letters of, by how many they are.
        self.passing: dict[Hashable, int] = {}

    def refuses(self, message: Message) -> bool:
        """Whether the queue has the like of it; if not, it has now."""
        value = value_of(headers_of(message)) if message.traits & traits.HAS_HEADERS else None
        if value is None:
            return False
        if value in self.values:
            return True
        self.values.add(value)
        return False

    def pass_by(self, message: Message) -> None:
        """The queue is to forget a message that it has never had: it goes on to know what it has."""
        value = value_of(headers_of(message)) if message.traits & traits.HAS_HEADERS else None
        if value is not None:
            self.passing[value] = self.passing.get(value, 0) + 1

    def forget(self, message: Message) -> None:
        """The message has left the queue."""
        if not message.traits & traits.HAS_HEADERS:
            return
        value = value_of(headers_of(message))
        passing = self.passing.pop(value, 0) if self.passing else 0
        if not passing:
            self.values.discard(value)
        elif passing > 1:
            self.passing[value] = passing - 1

    def disown(self, message: Message) -> None:
        """The message has not come into the queue after all."""
        self.values.discard(value_of(headers_of(message)))

    def clear(self) -> None:
        self.values.clear()

    def recall(self, tail: Iterable[int], store: Store) -> None:
        """After a restart: the values of these entries, as a paged tail has them."""
        entries = list(tail)
        for at in range(0, len(entries), 64):
            for message in store.load(entries[at : at + 64]):
                if message is not None:
                    self.refuses(message)
