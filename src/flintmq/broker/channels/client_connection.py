"""What the broker knows of a client's connection: who it is, and its channels."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flintmq.auth import User
    from flintmq.broker.channels.channel import Channel
    from flintmq.broker.virtual_host import VirtualHost
    from flintmq.wire.tables import FieldTable


class ClientConnection:
    """An open connection, for those who list them."""

    __slots__ = (
        "blocked",
        "channels",
        "client_properties",
        "number",
        "peer_address",
        "since_ms",
        "user",
        "version",
        "virtual_host",
    )

    def __init__(
        self,
        number: int,
        user: User,
        virtual_host: VirtualHost,
        peer_address: str,
        version: int,
        client_properties: FieldTable,
        since_ms: int,
    ) -> None:
        self.number = number
        self.user = user
        self.virtual_host = virtual_host
        self.peer_address = peer_address
        self.version = version  # of the protocol, as wire/amqp.py numbers them
        self.client_properties = client_properties
        self.since_ms = since_ms
        self.blocked = ""  # why nothing is read from it, if it publishes while there is an alarm
        self.channels: dict[int, Channel] = {}
