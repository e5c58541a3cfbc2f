"""The way to the broker: AMQP connections over pairs of sockets, one end of which the broker is handed.

    questions     some connections of the process itself: services, for it or in the name of a user
    logins        some that wait for passwords to be checked, so that questions do not wait behind them
    visits        the same as questions, for users whom a back end answers for: that may take long
    user's own    connections in the name of one user to one virtual host, for what only AMQP methods do:
                  declare, bind, publish, get; kept for some seconds

A connection that ended is opened again when it is needed next. The process ends when `control` does: the
broker is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

from flintmq.client.aio.connection import Connection
from flintmq.client.aio.transport import _Link
from flintmq.client.core.deadline import Deadline
from flintmq.client.core.errors import ClientError, ConnectFailed, ConnectionClosed, ServiceError
from flintmq.client.core.services import Reply
from flintmq.client.core.settings import Endpoint, Secret, Settings
from flintmq.clock import Clock
from flintmq.wire import amqp
from flintmq.wire.tables import FieldTable

# Connections for questions: a service that takes long holds up those behind it on its connection.
QUESTIONS = 4
# Each login that waits has one: a back end that hangs holds up the logins that it is asked about.
LOGINS = 64
VISITS = 16
# Connections in the name of users, and how long an idle one is kept.
ACTING_MAX = 32
IDLE_S = 10.0
TIMEOUT_S = 60.0

FOR_USER = "x-for-user"
FOR_VIRTUAL_HOST = "x-for-virtual-host"
FOR_VISITOR = "x-for-visitor"
FOR_ADDRESS = "x-for-address"


@contextlib.contextmanager
def unless_gone() -> Iterator[None]:
    """For one of several things that may be gone already: a virtual host, a queue, a connection."""
    try:
        yield
    except ServiceError as error:
        if error.code != amqp.NOT_FOUND:
            raise


class InheritedConnection(Connection):
    """A connection whose socket is one of a pair: the broker gets the other one over `control`."""

    def __init__(
        self, control: socket.socket, user: str, virtual_host: str, visitor: int = 0, peer_address: str = ""
    ) -> None:
        super().__init__(
            Settings(
                user=user,
                password=Secret(str(visitor) if visitor else ""),
                virtual_host=virtual_host,
                recovery=None,
                heartbeat_s=0,
                timeout_s=TIMEOUT_S,
                name=peer_address,  # the broker takes the name for the address that the user asks from
            )
        )
        self.control = control

    async def connect_socket(self, endpoint: Endpoint, deadline: Deadline) -> None:
        link = _Link(self)
        try:
            mine, theirs = socket.socketpair()
            with contextlib.ExitStack() as unless_opened:
                unless_opened.callback(mine.close)
                with theirs:
                    socket.send_fds(self.control, [b"c"], [theirs.fileno()])
                mine.setblocking(False)
                await self.loop.create_connection(lambda: link, sock=mine)
                unless_opened.pop_all()
        except OSError as error:
            raise ConnectFailed(f"the broker takes no connection: {error}") from None
        self._link = link
        self.is_writable = True


class Place:
    """Where one connection is, or will be again."""

    def __init__(
        self, link: BrokerLink, user: str, virtual_host: str, visitor: int = 0, peer_address: str = ""
    ) -> None:
        self.link = link
        self.peer_address = peer_address
        self.user = user
        self.visitor = visitor
        self.virtual_host = virtual_host
        self.lock = asyncio.Lock()
        self.connection: InheritedConnection | None = None
        self.used_s = 0.0
        self.users = 0  # requests that are at work with it

    async def open(self) -> InheritedConnection:
        async with self.lock:
            if self.connection is None or not self.connection.is_open:
                made = InheritedConnection(
                    self.link.control, self.user, self.virtual_host, self.visitor, self.peer_address
                )
                await made.open()
                self.connection = made
            return self.connection

    async def close(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            with contextlib.suppress(ClientError, OSError):
                await connection.close()


class BrokerLink:
    """All connections of this process."""

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.clock = Clock()
        self.questions = [Place(self, "", "") for _ in range(QUESTIONS)]
        self.logins = [Place(self, "", "") for _ in range(LOGINS)]
        self.visits = [Place(self, "", "") for _ in range(VISITS)]
        self.watch = Place(self, "", "")  # for snapshots and samples
        self.acting: dict[tuple[str, str, bool, int, str], Place] = {}

    async def ask(
        self,
        service: str,
        arguments: FieldTable | None = None,
        body: bytes = b"",
        place: Place | None = None,
        among: list[Place] | None = None,
    ) -> Reply:
        """Asks in the name of the process itself, at a place or among some, where the fewest wait."""
        chosen = place or min(among or self.questions, key=lambda each: each.users)
        chosen.users += 1
        try:
            connection = await chosen.open()
            try:
                return await connection.request(service, arguments, body)
            except ConnectionClosed:
                # Its virtual host may have been deleted. Only what changes nothing is asked again.
                if not service.startswith("management.") and not service.endswith((".list", ".info")):
                    raise
                connection = await chosen.open()
                return await connection.request(service, arguments, body)
        finally:
            chosen.users -= 1

    async def ask_for(
        self,
        user: str,
        virtual_host: str,
        service: str,
        arguments: FieldTable | None = None,
        body: bytes = b"",
        visitor: int = 0,
        place: Place | None = None,
        peer_address: str = "",
    ) -> Reply:
        """Asks in the name of a user, whose permissions the service meets, in a virtual host ("": any)."""
        given: dict[str, Any] = {**(arguments or {}), FOR_USER: user, FOR_ADDRESS: peer_address}
        if visitor:
            given[FOR_VISITOR] = visitor
        if virtual_host:
            given[FOR_VIRTUAL_HOST] = virtual_host
        return await self.ask(service, given, body, place, self.visits if visitor else None)

    @contextlib.asynccontextmanager
    async def connection_of(
        self, user: str, virtual_host: str, publishes: bool, visitor: int, peer_address: str
    ) -> AsyncIterator[Connection]:
        """A connection in the name of the user at that address.

        In an alarm one that has published is not read from: whoever deletes or purges then has another.
        """
        key = (user, virtual_host, publishes, visitor, peer_address)
        place = self.acting.get(key)
        if place is None:
            await self.make_room()
            if len(self.acting) >= ACTING_MAX:
                # All are at work: further addresses of a user share one, told as that of the process.
                peer_address = ""
                key = (user, virtual_host, publishes, visitor, peer_address)
            place = self.acting.setdefault(key, Place(self, user, virtual_host, visitor, peer_address))
        place.users += 1
        try:
            yield await place.open()
        finally:
            place.users -= 1
            place.used_s = self.clock.monotonic_s()

    async def make_room(self) -> None:
        """Ends connections that nobody has used for a while, or the oldest of too many."""
        now_s = self.clock.monotonic_s()
        idle = sorted(
            (place.used_s, key)
            for key, place in list(self.acting.items())
            if not place.users and place.used_s
        )
        too_many = len(self.acting) - ACTING_MAX + 1
        for at, (used_s, key) in enumerate(idle):
            place = self.acting.get(key)
            # While another one was closed somebody may have begun to use it.
            if place is None or place.users:
                continue
            if at < too_many or now_s - used_s > IDLE_S:
                del self.acting[key]
                await place.close()

    async def close(self) -> None:
        for place in [*self.questions, *self.logins, *self.visits, self.watch, *self.acting.values()]:
            await place.close()
