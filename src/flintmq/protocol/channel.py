"""One channel of a connection: its state, and the content it is in the middle of receiving.

    method with content --> header --> body, body, ... until the announced size is reached

Knows no queues and no sockets. The owner of the connection hangs what it needs on `owner`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from flintmq.errors import ProtocolMisuse
from flintmq.protocol import phases
from flintmq.protocol.states import CHANNEL, ChannelState

# A piece of a body is kept as it came if it is this long. Smaller ones are put together, as an object
# for each would take tens of octets: 28 times the body for pieces of two.
PIECE_BYTES_MIN = 4096

if TYPE_CHECKING:
    from flintmq.protocol.requests import Requests
    from flintmq.wire.methods import Method


class Sink(Protocol):
    """Where a body goes that is too large for memory."""

    def append(self, octets: bytes) -> None:
        """The next of it; raises a ChannelFault when it cannot be taken."""

    def discard(self) -> None:
        """The rest will not come."""


class Channel:
    """State of one channel number between channel.open and channel.close-ok."""

    __slots__ = (
        "chunks",
        "expects",
        "flags",
        "header",
        "method",
        "number",
        "owner",
        "remaining",
        "requests",
        "route",
        "sink",
        "state",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.state: int = phases.CHANNEL_CLOSED
        self.expects = phases.EXPECTS_METHOD
        # The method whose content is on its way; None for basic.publish, which keeps route and flags.
        self.method: Method | None = None
        self.route = b""
        self.flags = 0
        self.header = b""
        self.remaining = 0
        self.chunks: list[bytes | bytearray] = []
        self.sink: Sink | None = None  # in place of chunks
        self.owner: object = None
        self.requests: Requests | None = None  # since the first request or response

    def follow(self, event: str) -> None:
        """Goes to the state that an event of our own leads to, as the table says."""
        following = CHANNEL[self.state].get(event)
        if following is None:
            raise ProtocolMisuse(f"{event!r} on a channel that is {ChannelState(self.state).name.lower()}")
        self.state = following

    def becomes_publish(self, route: bytes, flags: int, header: bytes) -> None:
        """The content that is on its way counts as that of a basic.publish, with this header."""
        self.method = None
        self.route = route
        self.flags = flags
        self.header = header

    def add_body(self, payload: bytes) -> None:
        """A piece of the body, in as little memory as it needs however small it is."""
        if len(payload) >= PIECE_BYTES_MIN or not self.chunks:
            self.chunks.append(payload)
            return
        last = self.chunks[-1]
        if isinstance(last, bytearray):
            last += payload
        else:
            self.chunks.append(bytearray(payload))

    def gathered_bytes(self) -> int:
        """What has come of the body so far and lies here."""
        return sum([len(chunk) for chunk in self.chunks])

    def take_content(self) -> bytes:
        """Header and body in one piece; the channel is ready for the next method."""
        content = b"".join((self.header, *self.chunks))
        self.abandon_content()
        return content

    def abandon_content(self) -> None:
        self.expects = phases.EXPECTS_METHOD
        self.header = b""
        self.remaining = 0
        self.chunks = []
        if self.sink is not None:
            sink, self.sink = self.sink, None
            sink.discard()
