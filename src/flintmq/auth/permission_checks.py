"""The one place that says yes or no to an operation, for AMQP sessions and HTTP requests alike.

A refusal is a ChannelFault 403: the session makes a channel.close of it, the HTTP API a status.
"""

from __future__ import annotations

from enum import Enum, StrEnum, auto

from flintmq.auth.asked_permissions import AskedPermissions
from flintmq.auth.permissions import NAMELESS_EXCHANGE
from flintmq.auth.user import User
from flintmq.errors import ChannelFault, ConnectionFault
from flintmq.reply_codes import ACCESS_REFUSED


class Operation(StrEnum):
    CONFIGURE = "configure"
    WRITE = "write"
    READ = "read"


class Heeded(Enum):
    """What an answer about a routing key depends on: whoever keeps the answer has to keep it by that."""

    NOTHING = auto()
    KEY = auto()
    KEY_AND_CLIENT = auto()


_VERBS = {Operation.CONFIGURE: "configure", Operation.WRITE: "write to", Operation.READ: "read from"}


def may(user: User, virtual_host: str, operation: Operation, name: str, kind: str = "queue") -> bool:
    """Whether `user` may do `operation` on the exchange or queue `name` of `virtual_host`."""
    permissions = user.permissions.get(virtual_host)
    if permissions is None:
        return False
    if isinstance(permissions, AskedPermissions):
        return permissions.may(operation.value, kind, name)
    if operation is Operation.WRITE:
        return permissions.may_write(name)
    if operation is Operation.READ:
        return permissions.may_read(name)
    return permissions.may_configure(name)


def require(user: User, virtual_host: str, operation: Operation, kind: str, name: str) -> None:
    """Nothing if allowed, else a ChannelFault; `kind` is "exchange" or "queue", for the reply text."""
    if not may(user, virtual_host, operation, name, kind):
        if kind == "exchange" and not name:
            name = NAMELESS_EXCHANGE  # as the patterns of the settings have to spell it
        raise ChannelFault(
            ACCESS_REFUSED,
            f"user '{user.name}' may not {_VERBS[operation]} {kind} '{name}' "
            f"in virtual host '{virtual_host}'",
        )


def require_topic(
    user: User, virtual_host: str, operation: Operation, exchange: str, key: str, client_id: str | None
) -> Heeded:
    """A ChannelFault unless the user may use the routing key; what was heeded for that."""
    allowed = user.topic_permissions.get((virtual_host, exchange))
    if allowed is None:
        return Heeded.NOTHING
    asked = allowed.may_write if operation is Operation.WRITE else allowed.may_read
    if not asked(key, client_id):
        raise ChannelFault(
            ACCESS_REFUSED,
            f"user '{user.name}' may not {_VERBS[operation]} topic '{key}' of exchange '{exchange}' "
            f"in virtual host '{virtual_host}'",
        )
    return Heeded.KEY_AND_CLIENT if allowed.heeds_clients() else Heeded.KEY


def require_virtual_host(user: User, virtual_host: str) -> None:
    """Nothing if the user may use `virtual_host`, else the fault that ends connection.open."""
    if not user.may_enter(virtual_host):
        raise ConnectionFault(ACCESS_REFUSED, f"user '{user.name}' may not use virtual host '{virtual_host}'")
