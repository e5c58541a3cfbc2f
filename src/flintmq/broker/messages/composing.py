"""Messages that the broker writes itself: replies of services, and whatever else it has to say."""

from __future__ import annotations

import struct

from flintmq.broker.messages.message import Message, new_message
from flintmq.wire import amqp, content, traits
from flintmq.wire.fields import encode_shortstr
from flintmq.wire.properties import BasicProperties, encode_properties

# Class, weight, body size: what a content header has before its properties.
_HEADER_HEAD = struct.Struct(">HHQ")


def composed(exchange: str, routing_key: str, properties: BasicProperties, body: bytes = b"") -> Message:
    """A message for Router.post."""
    header = _HEADER_HEAD.pack(amqp.CLASS_BASIC, 0, len(body)) + encode_properties(properties)
    route = encode_shortstr(exchange) + encode_shortstr(routing_key)
    found = content.traits_of(header) & ~(traits.UNPROVEN | traits.TOO_MANY)
    return new_message(route, header + body, len(header), found, 0)
