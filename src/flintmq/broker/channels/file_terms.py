"""A consumer of the file class of AMQP 0-8 and 0-9: each message is opened, staged and then delivered.

One content at a time is on its way on a channel, as file.open-ok does not say which one it answers. While the
client has not answered, nothing else comes to the consumers of the class there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import google_crc32c

from flintmq.broker.channels.file_transfers import OutgoingFile, transfers_of
from flintmq.broker.queues.consumer_terms import ConsumerTerms
from flintmq.wire import amqp, content_class, traits
from flintmq.wire.stream import HeldBody

if TYPE_CHECKING:
    from flintmq.broker.messages.message import Message
    from flintmq.broker.queues.consumer import Consumer
    from flintmq.wire.stream import Body


class FileTerms(ConsumerTerms):
    """Of one consumer of the file class."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(traits.FILE_CONTENT)

    def admits(self, consumer: Consumer, message: Message) -> bool:
        return transfers_of(consumer.channel).outgoing is None and super().admits(consumer, message)

    def deliver(
        self,
        consumer: Consumer,
        message: Message,
        tag: int,
        redelivered: bool,
        content: bytes,
        body: Body | None,
    ) -> None:
        channel = consumer.channel
        header = content_class.from_basic(amqp.CLASS_FILE, content[: message.header_size])
        if body is None:
            body = HeldBody(content, message.header_size)
        identifier = identifier_of(consumer, message)
        route = message.shown_route()
        outgoing = OutgoingFile(consumer, tag, redelivered, route, identifier, header, body)
        transfers_of(channel).outgoing = outgoing
        channel.output.write_method(channel.number, outgoing.open_payload())


def identifier_of(consumer: Consumer, message: Message) -> str:
    """The same for the same message whenever it comes again, also after a restart, and for no other."""
    size = message.body_size()
    store = consumer.channel.store
    spool = store.spool_of(message) if store is not None and message.traits & traits.SPOOLED else None
    if spool is not None:
        return f"{spool.number:x}-{size:x}-{spool.crc:08x}"
    crc = google_crc32c.value(message.content[message.header_size :])
    return f"{message.entry:x}-{size:x}-{crc:08x}"
