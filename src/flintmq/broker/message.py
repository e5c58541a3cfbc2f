"""A message as the broker keeps it: octets as they came, and the few facts that steer it.

    route    | exchange 1+n | routing key 1+n |           the two short strings of basic.publish
    content  | header payload | body |                     delivered as it came, frames made anew
             | header payload |                            of a spooled message, see spooling.py

One Message serves all the queues it was routed to. It holds only octets and numbers, so the garbage
collector need not know of it.
"""

from __future__ import annotations

from flintmq.wire import octets, traits


class Message:
    """Immutable but for what the journal notes on it."""

    __slots__ = ("content", "entry", "header_size", "origin", "route", "traits")

    route: bytes
    content: bytes
    header_size: int
    traits: int
    origin: int
    entry: int

    @staticmethod
    def create(route: bytes, content: bytes, header_size: int, traits: int, origin: int) -> Message:
        message = Message.__new__(Message)
        message.route = route
        message.content = content
        message.header_size = header_size
        message.traits = traits  # bits of wire/traits.py
        message.origin = origin  # number of the connection it came by
        message.entry = 0  # where it lies on disk, see store.py
        return message

    def body_size(self) -> int:
        if self.traits & traits.SPOOLED:
            return octets.read_longlong(octets.readable_bytes(self.content), 4)
        return len(self.content) - self.header_size

    def copy(self) -> Message:
        """The same message for others, who let go of it at other times."""
        return Message.create(self.route, self.content, self.header_size, self.traits, self.origin)

    def exchange_name(self) -> str:
        return self.route[1 : 1 + self.route[0]].decode("utf-8", "surrogateescape")

    def routing_key(self) -> str:
        return self.route[2 + self.route[0] :].decode("utf-8", "surrogateescape")


def new_message(route: bytes, content: bytes, header_size: int, traits: int, origin: int) -> Message:
    """Message.create, for those that are not compiled."""
    return Message.create(route, content, header_size, traits, origin)
