"""What the broker knows of clients' connections: who they are, their channels, and how to close them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from flintmq.auth import User
    from flintmq.broker.channels.channel import Channel
    from flintmq.errors import PeerFault
    from flintmq.wire.tables import FieldTable

Group = TypeVar("Group")


class Host(Protocol):
    """The virtual host of a connection. One that is deleted differs from a later one of its name."""

    @property
    def name(self) -> str: ...


class Peer(Protocol):
    """Whoever speaks for a connection: its session."""

    def close_connection(self, fault: PeerFault) -> None:
        """As the fault says, whatever the client is doing."""

    def describe(self) -> FieldTable:
        """Octets, ports and agreed limits, for those who look on."""

    def octets(self) -> tuple[int, int]:
        """Received and sent, for those who look on every few seconds: the socket is not asked."""

    def limit_messages(self) -> None:
        """The limits of its messages have changed."""


class ClientConnection:
    """An open connection, for those who list them and those who close them."""

    __slots__ = (
        "blocked",
        "channels",
        "client_properties",
        "number",
        "peer",
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
        virtual_host: Host,
        peer_address: str,
        version: int,
        client_properties: FieldTable,
        since_ms: int,
        peer: Peer,
    ) -> None:
        self.number = number
        self.user = user
        self.virtual_host = virtual_host
        self.peer_address = peer_address
        self.version = version  # of the protocol, as wire/amqp.py numbers them
        self.client_properties = client_properties
        self.since_ms = since_ms
        self.peer = peer
        self.blocked = ""  # why nothing is read from it, if it publishes while there is an alarm
        self.channels: dict[int, Channel] = {}


class Connections:
    """The connections that are open."""

    __slots__ = (
        "by_host",
        "by_number",
        "by_user",
        "channels_of_host",
        "channels_of_user",
        "internal",
        "is_watching_kept",
        "kept",
        "names",
        "patient",
    )

    def __init__(self) -> None:
        self.by_number: dict[int, ClientConnection] = {}
        self.by_user: dict[str, dict[int, ClientConnection]] = {}
        self.by_host: dict[Host, dict[int, ClientConnection]] = {}
        # Of the management process, which acts for users: in no list, and no limit counts them.
        self.internal: dict[int, ClientConnection] = {}
        # By virtual host and client name: the connection of AMQP/Fast that has it, of which there is one.
        self.names: dict[tuple[str, str], int] = {}
        # And what has come of messages of it that broke off, see server/fast/restarts.py.
        self.kept: dict[tuple[str, str, bytes], Any] = {}
        self.is_watching_kept = False  # an alarm is set for the oldest of these
        # Requests of each that wait for something to come, with what to call when the connection is over.
        self.patient: dict[int, dict[object, Callable[[], None]]] = {}
        self.channels_of_user: dict[str, int] = {}
        self.channels_of_host: dict[Host, int] = {}

    def enter(self, client: ClientConnection) -> None:
        self.by_number[client.number] = client
        self.by_user.setdefault(client.user.name, {})[client.number] = client
        self.by_host.setdefault(client.virtual_host, {})[client.number] = client

    def leave(self, number: int) -> None:
        """The connection is over, if it ever was open."""
        self.internal.pop(number, None)
        for give_up in self.patient.pop(number, {}).values():
            give_up()
        client = self.by_number.pop(number, None)
        if client is None:
            return
        self.count_channels(client, -len(client.channels))
        leave_group(self.by_user, client.user.name, number)
        leave_group(self.by_host, client.virtual_host, number)

    def forget_kept(self, virtual_host: str | None, user: str | None) -> None:
        """What broke off of messages to that virtual host, or of that user."""
        for key in list(self.kept):
            if key[0] == virtual_host or key[1] == user:
                self.kept.pop(key).discard()

    def find(self, number: int) -> ClientConnection | None:
        """The connection of that number, if it is open; one of the management process too."""
        return self.by_number.get(number) or self.internal.get(number)

    def open_channel(self, number: int, channel: Channel) -> None:
        """The connection of that number, if it is open, has one more channel."""
        client = self.by_number.get(number)
        if client is not None:
            client.channels[channel.number] = channel
            self.count_channels(client, 1)

    def close_channel(self, number: int, channel_number: int) -> None:
        client = self.by_number.get(number)
        if client is not None and client.channels.pop(channel_number, None) is not None:
            self.count_channels(client, -1)

    def count_channels(self, client: ClientConnection, more: int) -> None:
        count_up(self.channels_of_user, client.user.name, more)
        count_up(self.channels_of_host, client.virtual_host, more)

    def of_user(self, name: str) -> list[ClientConnection]:
        inside = [client for client in self.internal.values() if client.user.name == name]
        return inside + list(self.by_user.get(name, {}).values())

    def of_host(self, virtual_host: Host) -> list[ClientConnection]:
        inside = [client for client in self.internal.values() if client.virtual_host is virtual_host]
        return inside + list(self.by_host.get(virtual_host, {}).values())


def leave_group(groups: dict[Group, dict[int, ClientConnection]], group: Group, number: int) -> None:
    those = groups[group]
    del those[number]
    if not those:
        del groups[group]


def count_up(counts: dict[Group, int], group: Group, more: int) -> None:
    count = counts.get(group, 0) + more
    if count:
        counts[group] = count
    else:
        counts.pop(group, None)
