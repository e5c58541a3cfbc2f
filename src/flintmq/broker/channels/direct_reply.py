"""Answers without a queue to declare: consume from amq.rabbitmq.reply-to, and name it as reply-to.

    requester                                   broker                              server
    basic.consume amq.rabbitmq.reply-to  ->  a queue amq.rabbitmq.reply-to.TOKEN
    basic.publish reply-to=...reply-to   ->  reply-to=...reply-to.TOKEN          ->  the request
    the answer                           <-  that queue                          <-  basic.publish to ...TOKEN

The queue behind it belongs to the requester's connection, lives in memory, and ends with its consumer.
Nobody can name it who was not told: a token is 128 bits of chance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.errors import ChannelFault
from flintmq.wire import amqp
from flintmq.wire.fields import encode_shortstr
from flintmq.wire.header_edits import place_of, with_property

if TYPE_CHECKING:
    from flintmq.broker.channels.channel import Channel
    from flintmq.broker.queues.queue import Queue

NAME = "amq.rabbitmq.reply-to"
NAME_OCTETS = encode_shortstr(NAME)


def open_queue(channel: Channel, name: str, no_ack: bool) -> Queue:
    """What basic.consume of amq.rabbitmq.reply-to consumes from; `name` is NAME and a token."""
    if not no_ack:
        raise ChannelFault(amqp.PRECONDITION_FAILED, "reply consumer cannot acknowledge", 60, 20)
    if is_open(channel):
        raise ChannelFault(amqp.PRECONDITION_FAILED, "reply consumer already set", 60, 20)
    queue = channel.virtual_host.add_queue(name, False, True, True, {}, channel.origin)
    channel.reply_name = name
    return queue


def is_open(channel: Channel) -> bool:
    return bool(channel.reply_name) and channel.reply_name in channel.virtual_host.queues


def exists(queues: dict[str, Queue], name: str) -> bool:
    """Whether an answer to this name would reach somebody, now; for those who declare it to find out."""
    return name == NAME or name in queues


def rewritten(channel: Channel, whole: bytes, header_size: int) -> bytes:
    """A published content with the reply-to that leads back to this channel."""
    header = whole[:header_size]
    start, end = place_of(header, amqp.FLAG_REPLY_TO)
    if header[start:end] != NAME_OCTETS:
        return whole  # the octets were elsewhere in the header
    if not is_open(channel):
        raise ChannelFault(amqp.PRECONDITION_FAILED, "fast reply consumer does not exist", 60, 40)
    changed = with_property(header, amqp.FLAG_REPLY_TO, encode_shortstr(channel.reply_name))
    return changed + whole[header_size:]
