"""What the broker knows of clients' connections: who they are, their channels, and how to close them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from flintmq.auth import User
    from flintmq.broker.channels.channel import Channel
    from flintmq.broker.virtual_host import VirtualHost
    from flintmq.errors import PeerFault
    from flintmq.wire.tables import FieldTable

Group = TypeVar("Group")


class ClientConnection:
    """An open connection, for those who list them and those who close them."""

    __slots__ = (
        "blocked",
        "channels",
        "client_properties",
        "close",
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
        close: Callable[[PeerFault], None],
    ) -> None:
        self.number = number
        self.user = user
        self.virtual_host = virtual_host
        self.peer_address = peer_address
        self.version = version  # of the protocol, as wire/amqp.py numbers them
        self.client_properties = client_properties
        self.since_ms = since_ms
        self.close = close  # as the fault says, whatever the client is doing
        self.blocked = ""  # why nothing is read from it, if it publishes while there is an alarm
        self.channels: dict[int, Channel] = {}


class Connections:
    """The connections that are open."""

    __slots__ = ("by_host", "by_number", "by_user")

    def __init__(self) -> None:
        self.by_number: dict[int, ClientConnection] = {}
        self.by_user: dict[str, dict[int, ClientConnection]] = {}
        self.by_host: dict[VirtualHost, dict[int, ClientConnection]] = {}

    def enter(self, client: ClientConnection) -> None:
        self.by_number[client.number] = client
        self.by_user.setdefault(client.user.name, {})[client.number] = client
        self.by_host.setdefault(client.virtual_host, {})[client.number] = client

    def leave(self, number: int) -> None:
        """The connection is over, if it ever was open."""
        client = self.by_number.pop(number, None)
        if client is None:
            return
        leave_group(self.by_user, client.user.name, number)
        leave_group(self.by_host, client.virtual_host, number)

    def of_user(self, name: str) -> list[ClientConnection]:
        return list(self.by_user.get(name, {}).values())

    def of_host(self, virtual_host: VirtualHost) -> list[ClientConnection]:
        return list(self.by_host.get(virtual_host, {}).values())


def leave_group(groups: dict[Group, dict[int, ClientConnection]], group: Group, number: int) -> None:
    those = groups[group]
    del those[number]
    if not those:
        del groups[group]
