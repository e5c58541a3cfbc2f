"""A message as the broker keeps it: octets as they came, and the few facts that steer it.

    route    | exchange 1+n | routing key 1+n |           the two short strings of basic.publish
             | ...                            | 4+n |      with the keys of a BCC that nobody may see: BLIND
    content  | header payload | body |                     delivered as it came, frames made anew
             | header payload |                            of a spooled message, see store/spooling.py

One Message serves all the queues it was routed to. It holds only octets and numbers, so the garbage
collector need not know of it.
"""

from __future__ import annotations

from flintmq.wire import octets, traits


class Message:
    """Immutable but for what the journal notes on it, when it came, and how many queues hold it."""

    __slots__ = (
        "arrived_ms",
        "content",
        "entry",
        "header_size",
        "holders",
        "lifetime_ms",
        "origin",
        "route",
        "traits",
    )

    route: bytes
    content: bytes
    header_size: int
    traits: int
    origin: int
    entry: int
    arrived_ms: int
    lifetime_ms: int
    holders: int

    @staticmethod
    def create(route: bytes, content: bytes, header_size: int, traits: int, origin: int) -> Message:
        message = Message.__new__(Message)
        message.route = route
        message.content = content
        message.header_size = header_size
        message.traits = traits  # bits of wire/traits.py
        message.origin = origin  # number of the connection it came by
        message.entry = 0  # where it lies on disk, see store/store.py
        message.arrived_ms = 0  # when it came, 0 if nobody has noted it; exact where TIMED is set
        message.lifetime_ms = -1  # its expiration; -1: it has none
        message.holders = 0  # queues that have not let go of it; when it is spilled, each gets its share
        return message

    def variant(self, route: bytes, content: bytes, header_size: int, traits: int) -> Message:
        """A message of the same origin, that nobody has stored yet."""
        return Message.create(route, content, header_size, traits, self.origin)

    def twin(self) -> Message:
        """The same message once more, to be stored and let go apart from this one."""
        twin = self.variant(self.route, self.content, self.header_size, self.traits)
        twin.arrived_ms = self.arrived_ms
        twin.lifetime_ms = self.lifetime_ms
        return twin

    def stamp(self, now_ms: int) -> None:
        """The message came now and may expire: its time goes to disk with it."""
        self.arrived_ms = now_ms
        self.traits |= traits.TIMED

    def body_size(self) -> int:
        if self.traits & traits.SPOOLED:
            return octets.read_longlong(octets.readable_bytes(self.content), 4)
        return len(self.content) - self.header_size

    def shown_route(self) -> bytes:
        """Exchange and routing key alone, as others may see it."""
        if self.traits & traits.BLIND:
            end = 2 + self.route[0] + self.route[1 + self.route[0]]
            return self.route[:end]
        return self.route

    def exchange_name(self) -> str:
        return self.route[1 : 1 + self.route[0]].decode("utf-8", "surrogateescape")

    def routing_key(self) -> str:
        start = 2 + self.route[0]
        return self.route[start : start + self.route[start - 1]].decode("utf-8", "surrogateescape")


def new_message(route: bytes, content: bytes, header_size: int, traits: int, origin: int) -> Message:
    """Message.create, for those that are not compiled."""
    return Message.create(route, content, header_size, traits, origin)
