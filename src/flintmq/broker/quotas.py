"""How many queues, exchanges, bindings and consumers clients may make, by the operator's settings.

Whoever asks for one too many is refused as in RabbitMQ, and told the limit and its setting; what is there
stays, and so does what recovery and the settings bring, which is not asked about here. A name that exists
already may be declared, bound or asked for at any time. Names come last in the texts, as these are cut at
255 octets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.exchanges.binding import VIA
from flintmq.errors import ChannelFault, ConnectionFault
from flintmq.wire import amqp

if TYPE_CHECKING:
    from flintmq.broker.broker import Broker
    from flintmq.broker.channels.channel import Channel
    from flintmq.broker.exchanges.exchange import Exchange
    from flintmq.broker.queues.queue import Queue
    from flintmq.broker.virtual_host import VirtualHost
    from flintmq.config import Limits
    from flintmq.wire.tables import FieldTable


def check_queue(limits: Limits, host: VirtualHost, name: str, user: str) -> None:
    """Raises 406 if the queue would be one too many. Queues of direct reply-to do not count."""
    if name in host.queues:
        return
    most = limits.queues_per_virtual_host_max
    if host.broker is not None:
        most = host.broker.administration.limits.queues_max(host.name, most)
        host.broker.administration.limits.check_queue(user)
    if len(host.queues) - host.reply_queues >= most:
        why = f"cannot declare queue '{name}'"
        if most < limits.queues_per_virtual_host_max:
            text = f"queue limit in vhost '{host.name}' ({most}) is reached (max-queues): {why}"
            raise ChannelFault(amqp.PRECONDITION_FAILED, text)
        raise reached(host, "queue", most, "queues", why)


def check_exchange(limits: Limits, host: VirtualHost, name: str) -> None:
    """Raises 406 if the exchange would be one too many, beside those that are always there."""
    if len(host.exchanges) >= limits.exchanges_per_virtual_host_max and name not in host.exchanges:
        why = f"cannot declare exchange '{name}'"
        raise reached(host, "exchange", limits.exchanges_per_virtual_host_max, "exchanges", why)


def check_binding(
    limits: Limits,
    host: VirtualHost,
    source: Exchange,
    destination: Queue | Exchange,
    key: str,
    arguments: FieldTable,
) -> None:
    """Raises 406 if the binding would be one too many, 506 if topics of the exchange are too dear already."""
    is_full = host.binding_count >= limits.bindings_per_virtual_host_max
    steps = source.topic_steps(key)
    if VIA in arguments:
        steps = host.router.chains.topic_steps(source, key, arguments)
    if not is_full and steps < limits.topic_steps_max:
        return
    if source.find_binding(destination, key, arguments) is None:
        why = f"cannot bind '{destination.name}' to exchange '{source.name}'"
        if not is_full:
            text = f"a message may take {steps} steps to match (limits.topic_steps_max): {why}"
            raise ChannelFault(amqp.RESOURCE_ERROR, text)
        raise reached(host, "binding", limits.bindings_per_virtual_host_max, "bindings", why)


def reached(host: VirtualHost, kind: str, limit: int, setting: str, why: str) -> ChannelFault:
    return ChannelFault(
        amqp.PRECONDITION_FAILED,
        f"{kind} limit in vhost '{host.name}' ({limit}) is reached "
        f"(limits.{setting}_per_virtual_host_max): {why}",
    )


def check_consumer(limits: Limits, broker: Broker, channel: Channel) -> None:
    """Raises 530 if the channel, or its connection, may have no further consumer."""
    if len(channel.consumers) >= limits.consumers_per_channel_max:
        raise too_many_consumers(limits.consumers_per_channel_max, "channel")
    client = broker.connections.get(channel.origin)
    if client is None:
        return
    consumers = sum([len(each.consumers) for each in client.channels.values()])
    if consumers >= limits.consumers_per_connection_max:
        raise too_many_consumers(limits.consumers_per_connection_max, "connection")


def too_many_consumers(limit: int, kind: str) -> ConnectionFault:
    return ConnectionFault(
        amqp.NOT_ALLOWED,
        f"reached maximum ({limit}) of consumers per {kind} (limits.consumers_per_{kind}_max)",
    )
