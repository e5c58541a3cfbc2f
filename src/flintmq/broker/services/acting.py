"""Requests and logins in the name of users, by the management process.

That process reaches the broker over sockets that it has inherited, and nobody else can open one
(server/process/management_process.py). Its connections are `Connections.internal`. On these a login names a
user without a password, as the password was checked before by `management.authenticate`; a login without a
name is that of the management process itself. A request may say in headers for which user, at which address,
and in which virtual host it is made: the service then meets that user's permissions, as if the user had
asked. A user whom only a back end knows is named with a number besides, which `management.authenticate` gave
(auth/visitors.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from flintmq.auth import Accepted, Permissions, Refused, Tag, User
from flintmq.config import PermissionSettings
from flintmq.errors import ServiceFault
from flintmq.wire import amqp

if TYPE_CHECKING:
    from flintmq.auth import Users
    from flintmq.broker.channels.channel import Channel
    from flintmq.broker.messages.message import Message
    from flintmq.broker.services.request import Request
    from flintmq.broker.virtual_host import VirtualHost
    from flintmq.storage.spool import SpoolReader

FOR_USER = "x-for-user"
FOR_VIRTUAL_HOST = "x-for-virtual-host"
FOR_VISITOR = "x-for-visitor"
FOR_ADDRESS = "x-for-address"
# The client property of an internal connection with the address of the user that it acts for.
ACTS_FOR = "connection_name"
# The login of the process itself: neither a name nor a number.
PROCESS_ITSELF = b"\0\0"


class Everywhere(Mapping[str, Permissions]):
    """All permissions, in any virtual host."""

    def __init__(self) -> None:
        self.all = Permissions(PermissionSettings(".*", ".*", ".*"))

    def __getitem__(self, name: str) -> Permissions:
        return self.all

    def __contains__(self, name: object) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


# The management process itself. No login by password can be this user: it is not among the users.
MANAGEMENT = User("", tags=frozenset((Tag.ADMINISTRATOR,)), permissions=Everywhere())


def internal_login(users: Users, response: bytes) -> Accepted | Refused:
    """The user that a connection of the management process acts for: NUL, name, NUL, as PLAIN has it.

    The number of a visitor is in the place of the password. When a token ends, so does the connection. Only
    the one response without any name is that of the process itself: whatever is malformed is nobody's.
    """
    if response == PROCESS_ITSELF:
        return Accepted(MANAGEMENT)
    parts = response.split(b"\0")
    if len(parts) != 3 or not parts[1]:
        return Refused("the login of the management process is malformed")
    name = parts[1].decode("utf-8", "replace")
    user = users.visitors.find(int(parts[2]), name) if parts[2].isdigit() else users.get(name)
    return Refused(f"no user {name!r}") if user is None else Accepted(user)


class ActingChannel:
    """A channel of the management process in the name of a user: what services ask of a channel."""

    __slots__ = ("number", "origin", "output", "router", "store", "transaction", "user", "virtual_host")

    def __init__(self, channel: Channel, user: User, virtual_host: VirtualHost) -> None:
        self.number = channel.number
        self.origin = channel.origin
        self.output = channel.output
        self.store = channel.store
        self.transaction = channel.transaction
        self.user = user
        self.virtual_host = virtual_host
        self.router = virtual_host.router

    def body_of(self, message: Message) -> SpoolReader | None:
        """As Channel.body_of."""
        return None if self.store is None else self.store.body_of(message)


def is_internal(request: Request) -> bool:
    return request.channel.origin in request.broker.clients.internal


def require_internal(request: Request) -> None:
    """Raises unless the management process itself asks."""
    if request.channel.user is not MANAGEMENT:
        raise ServiceFault(amqp.ACCESS_REFUSED, f"{request.name}: for the management process alone")


def assume(request: Request) -> None:
    """The request is that of the user whom it names, in the virtual host that it names.

    From anybody but the management process the headers mean nothing: the service meets them as arguments.
    """
    if not is_internal(request) or request.channel.user is not MANAGEMENT:
        return
    given: dict[str, Any] = dict(request.arguments)
    name, host_name = given.pop(FOR_USER), given.pop(FOR_VIRTUAL_HOST, "")
    channel = request.channel
    user = named_user(request, name, given.pop(FOR_VISITOR, 0))
    request.peer_address = str(given.pop(FOR_ADDRESS, ""))
    host = request.broker.virtual_hosts.get(host_name) if host_name else channel.virtual_host
    request.arguments = given
    if user is None:
        request.function = no_user
    elif host is None:
        request.function = no_virtual_host
    else:
        request.channel = ActingChannel(channel, user, host)  # type: ignore[assignment]


def named_user(request: Request, name: Any, visitor: Any = 0) -> User | None:
    """The user of that name, or the visitor of that number and name."""
    if not isinstance(name, str) or not isinstance(visitor, int):
        return None
    broker = request.broker
    if visitor:
        return broker.users.visitors.find(visitor, name, broker.timetable.now_ms())
    return broker.users.get(name)


def no_user(request: Request) -> None:
    raise ServiceFault(amqp.ACCESS_REFUSED, f"{request.name}: the user is gone")


def no_virtual_host(request: Request) -> None:
    raise ServiceFault(amqp.NOT_FOUND, f"{request.name}: no such virtual host")
