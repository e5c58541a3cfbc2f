"""What both versions of AMQP/Fast say when a connection is opened: a path, and the name of the client.

A path begins with a slash, which names of virtual hosts mostly do not. A name is active in at most one
connection of a virtual host at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.errors import ConnectionFault
from flintmq.wire import amqp

if TYPE_CHECKING:
    from flintmq.server.sessions.session import Session


def host_of_path(session: Session, path: str, decided: dict[str, bool]) -> str:
    """The virtual host that a path means; who may not use a virtual host need not know that there is one.

    So a back end is asked about the name behind the slash whether there is such a virtual host or not. What
    it has said of that is kept in `decided`: it may be old when the answer about the whole path is there.
    """
    hosts, user = session.broker.virtual_hosts, session.user
    if not path:
        return "/"
    behind = path[1:]
    if path[0] != "/" or not behind:
        return path
    if behind not in decided:
        decided[behind] = user is not None and user.may_enter(behind)
    return behind if decided[behind] and path not in hosts and behind in hosts else path


def check(session: Session, host: str, name: str) -> None:
    """Raises if the name is in use."""
    if name and (host, name) in session.broker.clients.names:
        user = session.user
        if user is not None and user.may_enter(host):  # others need not know
            text = f"client '{name}' is connected already, and may be so once"
            raise ConnectionFault(amqp.NOT_ALLOWED, text)


def claim(session: Session, name: str) -> str:
    """The name that is in use from now on; none if the connection was not opened."""
    if session.virtual_host is None or not name:
        return ""
    session.broker.clients.names[session.virtual_host.name, name] = session.number
    return name


def release(session: Session, name: str) -> None:
    if name and session.virtual_host is not None:
        session.broker.clients.names.pop((session.virtual_host.name, name), None)
