"""A consumer of the stream class of AMQP 0-8 and 0-9: what it gets, and how.

    stream.deliver  | consumer tag 1+n | delivery tag 8 | exchange 1+n | queue 1+n |

It acks nothing, and is alone with its queue: each of several would get a part of the stream. It has nothing
to do with queues of the type stream (broker/streams/).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from flintmq.broker.messages.message import Message
from flintmq.broker.queues.consumer_terms import ConsumerTerms
from flintmq.wire import amqp, content_class, header_edits, traits

if TYPE_CHECKING:
    from flintmq.broker.queues.consumer import Consumer
    from flintmq.wire.stream import Body

_LONG = struct.Struct(">I")
_LONGLONG = struct.Struct(">Q")


class StreamTerms(ConsumerTerms):
    """Of one consumer of the stream class."""

    __slots__ = ("own_rate", "queue_octets")

    def __init__(self, queue: str, own_rate: int) -> None:
        super().__init__(traits.STREAM_CONTENT)
        self.own_rate = own_rate  # by an argument, 0 for that of the channel
        name = queue.encode("utf-8", "surrogateescape")
        self.queue_octets = bytes((len(name),)) + name

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
        route = message.route
        payload = b"".join(
            (
                _LONG.pack(amqp.STREAM_DELIVER),
                consumer.tag_octets,
                _LONGLONG.pack(tag),
                route[: 1 + route[0]],
                self.queue_octets,
            )
        )
        header = content_class.from_basic(amqp.CLASS_STREAM, content[: message.header_size])
        shown = header + content[message.header_size :]
        if channel.numeric:
            shown = header_edits.with_numbers(shown)
        consumer.output.write_method_content(channel.number, payload, shown, len(header))
        if body is not None:
            channel.stream(body, tag)
