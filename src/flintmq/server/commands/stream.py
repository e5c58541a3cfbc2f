"""The stream class of AMQP 0-8 and 0-9: qos, consume, cancel and publish.

How it delivers is in broker/queues/stream_terms.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.auth import Operation
from flintmq.broker import queue_namespaces, quotas
from flintmq.broker.channels.channel import Channel as BrokerChannel
from flintmq.broker.channels.tickets import check_ticket
from flintmq.broker.queues.consumer import Consumer
from flintmq.broker.queues.consumer_terms import rate_of
from flintmq.broker.queues.stream_terms import StreamTerms
from flintmq.errors import ChannelFault, ConnectionFault
from flintmq.server.commands.command import broker_channel, command
from flintmq.server.commands.content import beginning, content_command, way_of
from flintmq.server.commands.queue import caught_up, named_queue
from flintmq.wire import amqp, methods, traits
from flintmq.wire.content_class import to_basic

if TYPE_CHECKING:
    from flintmq.protocol.channel import Channel
    from flintmq.server.commands.command import Session


@command("stream.qos")
def stream_qos(session: Session, channel: Channel, method: methods.StreamQos) -> None:
    """For all consumers of the stream class on the channel, or on all channels, each by itself."""
    channels = session.connection.all_channels() if method.global_ else [channel]
    broker_channel(channel)
    for each in channels:
        owner = each.owner
        if isinstance(owner, BrokerChannel):
            owner.stream_qos = (method.consume_rate, method.prefetch_size, method.prefetch_count)
            for consumer in owner.consumers.values():
                if isinstance(consumer.terms, StreamTerms):
                    caught_up(consumer.queue)
                    limit(consumer.terms, owner)
                    consumer.wake()
    session.send(channel.number, methods.StreamQosOk())


def limit(terms: StreamTerms, owner: BrokerChannel) -> None:
    """The rate that the consumer has asked for itself goes before that of its channel."""
    rate, window_bytes, window_count = owner.stream_qos
    terms.limit(terms.own_rate or rate, window_bytes, window_count)


@command("stream.consume")
def stream_consume(session: Session, channel: Channel, method: methods.StreamConsume) -> None:
    consume_stream(session, channel, method, StreamTerms)


def consume_stream(
    session: Session, channel: Channel, method: methods.StreamConsume, make: type[StreamTerms]
) -> None:
    """stream.consume for a client whose deliveries are written by such terms."""
    owner = broker_channel(channel)
    name, arguments = method.queue, method.arguments
    if name:
        name, arguments = queue_namespaces.qualified(name, arguments)
    queue = caught_up(named_queue(owner, name, Operation.READ))
    what = f"queue '{queue.name}' in vhost '{owner.virtual_host.name}'"
    if queue.is_stream:
        text = f"{what} is of the type stream, which has no consumers of the stream class: use basic.consume"
        raise ConnectionFault(amqp.NOT_IMPLEMENTED, text)
    session.broker.tell_lost_consumers()
    tag = method.consumer_tag or session.broker.new_name("amq.ctag-")
    if tag in owner.consumers:
        raise ConnectionFault(amqp.NOT_ALLOWED, f"attempt to reuse consumer tag '{tag}'")
    if queue.claimed & traits.STREAM_CONTENT:
        # 000, section 3.21.1: each of several would get a part of the stream.
        text = f"{what} has a consumer of the stream class already: bind a queue for each"
        raise ChannelFault(amqp.RESOURCE_LOCKED, text)
    quotas.check_consumer(session.broker.config.limits, session.broker, owner)
    terms = make(queue.name, rate_of(arguments))
    limit(terms, owner)
    consumer = Consumer(owner, queue, tag, True, method.no_local, method.exclusive, arguments, terms)
    owner.virtual_host.consume(consumer)
    if not method.no_wait:
        session.send(channel.number, methods.StreamConsumeOk(consumer_tag=tag))


@command("stream.cancel")
def stream_cancel(session: Session, channel: Channel, method: methods.StreamCancel) -> None:
    owner = broker_channel(channel)
    session.broker.tell_lost_consumers()
    consumer = owner.consumers.get(method.consumer_tag)
    if consumer is not None and consumer.content_class == traits.STREAM_CONTENT:
        caught_up(consumer.queue)
        owner.virtual_host.cancel(consumer)
    if not method.no_wait:
        session.send(channel.number, methods.StreamCancelOk(consumer_tag=method.consumer_tag))


@content_command("stream.publish")
def stream_publish(
    session: Session, channel: Channel, method: methods.StreamPublish, content: bytes, header_size: int
) -> None:
    """One that shows its ticket, see Connection.by_ticket."""
    check_ticket(broker_channel(channel), method)
    route, flags = way_of(method)
    whole = to_basic(content)
    session.connection.events.publish(channel, route, flags | traits.STREAM_CONTENT, whole, header_size)


@beginning("stream.publish")
def stream_begins(session: Session, channel: Channel, method: methods.StreamPublish, header: bytes) -> None:
    check_ticket(broker_channel(channel), method)
    route, flags = way_of(method)
    channel.becomes_publish(route, flags | traits.STREAM_CONTENT, to_basic(header))
