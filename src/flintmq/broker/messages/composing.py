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
    header = header_of(properties, len(body))
    return message_of(exchange, routing_key, header, header + body)


def header_of(properties: BasicProperties, body_octets: int) -> bytes:
    """The content header, with which the content of a message begins."""
    return _HEADER_HEAD.pack(amqp.CLASS_BASIC, 0, body_octets) + encode_properties(properties)


def message_of(exchange: str, routing_key: str, header: bytes, octets: bytes) -> Message:
    """A message for Router.post whose content, header and body, is there already."""
    route = encode_shortstr(exchange) + encode_shortstr(routing_key)
    found = content.traits_of(header) & ~(traits.UNPROVEN | traits.TOO_MANY)
    return new_message(route, octets, len(header), found, 0)
