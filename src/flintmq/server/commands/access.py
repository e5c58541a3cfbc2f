"""The access class of 0-8 and 0-9: tickets to realms, which broker/channels/tickets.py keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.server.commands.command import broker_channel, command
from flintmq.wire import amqp, methods

if TYPE_CHECKING:
    from flintmq.protocol.channel import Channel
    from flintmq.server.commands.command import Session


@command("access.request")
def access_request(session: Session, channel: Channel, method: methods.AccessRequest) -> None:
    """With 0-9-1, which has no such class, any ticket is granted and means nothing, as in RabbitMQ."""
    owner = broker_channel(channel)
    number = 1
    if session.connection.version != amqp.VERSION_0_9_1:
        number = session.broker.tickets.grant(owner, method)
    session.send(channel.number, methods.AccessRequestOk(ticket=number))
