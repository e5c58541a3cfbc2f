"""Whether the user of a channel may publish to an exchange, and use a routing key of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.auth import Heeded, Operation, require, require_topic
from flintmq.errors import ChannelFault
from flintmq.wire import amqp

if TYPE_CHECKING:
    from flintmq.broker.channels.channel import Channel
    from flintmq.broker.exchanges.exchange import Exchange


def check_publish(channel: Channel, exchange: Exchange | None) -> None:
    """Raises unless the user may publish to the exchange; None is the default exchange."""
    host = channel.virtual_host.name
    name = "" if exchange is None else exchange.name
    require(channel.user, host, Operation.WRITE, "exchange", name)
    if exchange is not None and exchange.internal:
        raise ChannelFault(
            amqp.ACCESS_REFUSED, f"cannot publish to internal exchange '{name}' in vhost '{host}'", 60, 40
        )


def check_topic(channel: Channel, exchange: Exchange | None, operation: Operation, key: str) -> Heeded:
    """Raises unless the user may use the routing key. Returns what the answer depends on."""
    host, user = channel.virtual_host, channel.user
    if exchange is None or (host.name, exchange.name) not in user.topic_permissions:
        return Heeded.NOTHING
    if not exchange.routes_by_topic():
        return Heeded.NOTHING
    client = None if host.broker is None else host.broker.connections.get(channel.origin)
    client_id = None if client is None else client.client_properties.get("client_id")
    known = client_id if isinstance(client_id, str) else None
    return require_topic(user, host.name, operation, exchange.name, key, known)
