"""A handle of AMQP/Fast: a channel's access to one destination, or to all whose names begin alike."""

from __future__ import annotations

from flintmq.protocol.channel import Channel

QUEUE = 1
TOPIC = 2


class Handle:
    """Between HANDLE OPEN and HANDLE CLOSE."""

    __slots__ = (
        "channel",
        "copies",
        "encoding",
        "flags",
        "head",
        "header",
        "is_browser",
        "is_closing",
        "is_consumer",
        "is_exact",
        "is_producer",
        "mime_type",
        "name",
        "number",
        "route",
        "sent_name",
        "service",
    )

    def __init__(self, number: int, channel: Channel, service: int, name: str) -> None:
        self.number = number
        self.channel = channel
        self.service = service
        self.name = name
        self.mime_type = ""  # of messages that say nothing of it, and the same of their encoding
        self.encoding = ""
        self.is_producer = False
        self.is_consumer = False
        self.is_browser = False
        self.is_closing = False  # we have closed it, and the peer has not answered yet
        # Of the message that was sent last: the name as it came, and where that leads; the header without its
        # body size, and what it is in Basic. The next one has the same, more often than not.
        self.sent_name = b""
        self.route = b""  # none so far
        self.flags = 0
        self.is_exact = False  # the name is that of a queue or topic, and does not stand for several queues
        self.copies: list[str] = []  # further queues, where it does
        self.head = b""
        self.header = b""
