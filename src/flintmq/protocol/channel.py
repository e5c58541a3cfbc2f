"""One channel of a connection: its state, and the content it is in the middle of receiving.

    method with content --> header --> body, body, ... until the announced size is reached

Knows no queues and no sockets. The owner of the connection hangs what it needs on `owner`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.protocol import phases

if TYPE_CHECKING:
    from flintmq.wire.methods import Method


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
        "route",
        "state",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.state: int = phases.CHANNEL_OPEN
        self.expects = phases.EXPECTS_METHOD
        # The method whose content is on its way; None for basic.publish, which keeps route and flags.
        self.method: Method | None = None
        self.route = b""
        self.flags = 0
        self.header = b""
        self.remaining = 0
        self.chunks: list[bytes] = []
        self.owner: object = None

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
