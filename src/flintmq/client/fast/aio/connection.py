"""The async client of AMQP/Fast 0.8: connections, channels, and handles to queues and topics.

    async with await connect() as connection, await connection.channel() as channel:
        orders = await channel.queue("orders")
        await orders.send(b"two apples", mime_type="text/plain")
        await orders.consume(prefetch=10)
        message = await orders.receive()
        await channel.ack(message)

Errors are those of the other client: NotFound, AccessRefused, ConnectionLost and so on.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from types import TracebackType
from typing import Any

from flintmq.client.core.errors import ClientError, PublishFailed, channel_closed
from flintmq.client.fast.aio.transport import Transport
from flintmq.client.fast.core import FastCore, FastMessage, Place, listed
from flintmq.wire import amqp
from flintmq.wire.fast import commands
from flintmq.wire.fast.message_head import MessageHead
from flintmq.wire.fast.tables import Table

QUEUE = 1
TOPIC = 2


async def connect(
    host: str = "localhost",
    port: int = 5672,
    *,
    user: str = "guest",
    password: str = "guest",
    virtual_host: str = "/",
    client_name: str = "",
    tls: ssl.SSLContext | None = None,
    heartbeat_s: int = 0,
    timeout_s: float = 30.0,
) -> Connection:
    """An open connection. A `client_name` may be connected once at a time."""
    core = FastCore(user, password, virtual_host, client_name, heartbeat_s)
    transport = Transport(core)
    await transport.open(host, port, tls, timeout_s)
    connection = Connection(core, transport, timeout_s)
    try:
        await connection.wait(lambda: core.is_open, "connecting")
    except BaseException:
        transport.shut()
        raise
    return connection


class Connection:
    """A connection to one virtual host."""

    def __init__(self, core: FastCore, transport: Transport, timeout_s: float) -> None:
        self.core = core
        self.transport = transport
        self.timeout_s = timeout_s

    async def wait(
        self,
        is_there: Callable[[], bool],
        what: str,
        timeout_s: float | None = None,
        place: Place | None = None,
    ) -> None:
        """Until it is there; raises what has happened to the connection or the place instead."""
        core = self.core

        def is_settled() -> bool:
            return is_there() or core.is_over or (place is not None and not place.is_open)

        await self.transport.wait(is_settled, self.timeout_s if timeout_s is None else timeout_s, what)
        if not is_there():
            if place is not None and place.failure is not None:
                raise place.failure
            core.check()
            raise channel_closed(0, "closed", what)

    async def confirmed(self, tag: int, what: str, place: Place | None = None) -> tuple[int, str]:
        """The reply with this confirm tag."""
        replies = self.core.replies
        try:
            await self.wait(lambda: replies[tag] is not None, what, None, place)
            code, text = replies[tag]
        finally:
            del replies[tag]
        return code, text

    async def channel(self, *, transacted: bool = False, restartable: bool = False) -> Channel:
        """A new channel; with transactions, what is sent and received on it waits for `commit`."""
        place = self.core.open_place(self.core.channels)
        tag = self.core.next_tag()
        self.core.write(
            commands.ChannelOpen(place.number, tag, transacted=transacted, restartable=restartable)
        )
        await self.confirmed(tag, "opening a channel", place)
        return Channel(self, place)

    async def ping(self) -> None:
        """Tells the server that we are alive."""
        self.core.write(commands.ConnectionPing())
        await self.transport.flush()

    async def close(self) -> None:
        core = self.core
        try:
            if not core.is_over:
                core.write(commands.ConnectionClose(amqp.REPLY_SUCCESS, "Ok"))
                core.is_closing = True
                await self.transport.wait(lambda: core.is_over, self.timeout_s, "closing the connection")
        finally:
            self.transport.shut()

    async def __aenter__(self) -> Connection:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except ClientError:
            if error is None:
                raise


class Channel:
    """A sequence of commands and messages, acked or committed as one."""

    def __init__(self, connection: Connection, place: Place) -> None:
        self.connection = connection
        self.core = connection.core
        self.place = place

    async def queue(self, name: str = "", **options: Any) -> Handle:
        """A handle to a queue, or to those whose names begin so; options as in `open`."""
        return await self.open(QUEUE, name, **options)

    async def topic(self, name: str = "", **options: Any) -> Handle:
        """A handle to a topic, or to those whose names begin so; options as in `open`."""
        return await self.open(TOPIC, name, **options)

    async def open(
        self,
        service: int,
        name: str,
        *,
        producer: bool = True,
        consumer: bool = True,
        browser: bool = True,
        temporary: bool = False,
        mime_type: str = "",
        encoding: str = "",
    ) -> Handle:
        """A handle. A temporary destination goes with the connection; without a name it gets one."""
        self.core.check_place(self.place)
        place = self.core.open_place(self.core.handles, self.place.number)
        tag = self.core.next_tag()
        self.core.write(
            commands.HandleOpen(
                self.place.number,
                place.number,
                service,
                tag,
                producer=producer,
                consumer=consumer,
                browser=browser,
                temporary=temporary,
                dest_name=name,
                mime_type=mime_type,
                encoding=encoding,
            )
        )
        place.name = name
        await self.connection.confirmed(tag, f"opening '{name}'", place)
        return Handle(self, place)

    async def ack(self, message: FastMessage, *, confirm: bool = False) -> None:
        """This message, and all that came before it on the channel, are processed."""
        self.core.check_place(self.place)
        tag = self.core.next_tag() if confirm else 0
        self.core.write(commands.ChannelAck(self.place.number, tag, message.number))
        await self.flushed(tag, "acking")

    async def commit(self) -> None:
        """All that was sent goes to its destinations, and all that was received is processed."""
        self.core.check_place(self.place)
        tag = self.core.next_tag()
        self.core.write(commands.ChannelCommit(self.place.number, tag))
        await self.flushed(tag, "committing")

    async def rollback(self) -> None:
        """What was sent is forgotten, and what was received goes back."""
        self.core.check_place(self.place)
        tag = self.core.next_tag()
        self.core.write(commands.ChannelRollback(self.place.number, tag))
        await self.flushed(tag, "rolling back")

    async def flushed(self, tag: int, what: str) -> None:
        """All is sent, and the command with a confirm tag is confirmed."""
        if not tag:
            await self.connection.transport.flush()
            return
        code, text = await self.connection.confirmed(tag, what, self.place)
        if code != amqp.REPLY_SUCCESS:
            raise channel_closed(code, text, what)

    async def close(self) -> None:
        place = self.place
        if place.is_open and not place.is_closing and not self.core.is_over:
            self.core.write(commands.ChannelClose(place.number, amqp.REPLY_SUCCESS, "Ok"))
            place.is_closing = True
            await self.connection.transport.wait(
                lambda: not place.is_open or self.core.is_over, self.connection.timeout_s, "closing a channel"
            )

    async def __aenter__(self) -> Channel:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except ClientError:
            if error is None:
                raise


class Handle:
    """Access to a queue or topic, or to all whose names begin as its own does."""

    def __init__(self, channel: Channel, place: Place) -> None:
        self.channel = channel
        self.connection = channel.connection
        self.core = channel.core
        self.place = place

    @property
    def name(self) -> str:
        """As it was opened; of a temporary destination what the server called it."""
        return self.place.name

    async def send(
        self,
        body: bytes,
        name: str = "",
        *,
        persistent: bool = False,
        priority: int = 0,
        expiration: int = 0,
        mime_type: str = "",
        encoding: str = "",
        identifier: str = "",
        headers: Table | None = None,
        confirm: bool = False,
    ) -> None:
        """A message to the destination whose name is that of the handle and `name`.

        `expiration` is a time in seconds since 1970. With `confirm` it is safe when this returns.
        """
        head = MessageHead(
            0, persistent, priority, expiration, mime_type, encoding, identifier, headers or {}
        )
        self.core.check_place(self.place)
        tag = self.core.next_tag() if confirm else 0
        self.core.send(self.place, head, body, name, tag)
        if not tag:
            await self.connection.transport.flush()
            return
        code, text = await self.connection.confirmed(tag, "sending", self.place)
        if code != amqp.REPLY_SUCCESS:
            raise PublishFailed(f"the message was refused: {code} {text}")

    async def consume(
        self,
        name: str = "",
        *,
        prefetch: int = 100,
        no_ack: bool = False,
        no_local: bool = False,
        dynamic: bool = False,
        selector: Table | None = None,
    ) -> None:
        """Asks for messages, of which at most `prefetch` are unacked at a time; `dynamic` makes the queue."""
        await self.ask(
            lambda tag: commands.HandleConsume(
                self.place.number,
                tag,
                prefetch,
                no_local=no_local,
                no_ack=no_ack,
                dynamic=dynamic,
                dest_name=name,
                selector=selector or {},
            ),
            "consuming",
        )

    async def receive(self, timeout_s: float | None = None) -> FastMessage:
        """The next message; CallTimeout when none comes in time."""
        inbox = self.place.inbox
        await self.connection.wait(lambda: bool(inbox), "receiving", timeout_s, self.place)
        return inbox.popleft()

    async def upload(self, body: bytes, name: str = "", *, confirm: bool = True, **head: Any) -> int:
        """Sends a large message on a restartable channel, and goes on where an earlier try broke off.

        The same header (all of `head`, as in `send`) and body make it the same message. How many octets were
        there already.
        """
        core, place = self.core, self.place
        core.check_place(place)
        if core.fits(MessageHead(**head), body):
            await self.send(body, name, confirm=confirm, **head)
            return 0
        block = core.prepare(place, MessageHead(**head), body)
        await self.connection.wait(lambda: bool(place.ready), "preparing", None, place)
        received = place.ready.popleft()
        tag = core.next_tag() if confirm else 0
        for start in core.rest(body, received):
            core.recover(place, body, start, name, tag)
            await self.connection.transport.flush()
        if tag:
            code, text = await self.connection.confirmed(tag, "sending", place)
            if code != amqp.REPLY_SUCCESS:
                raise PublishFailed(f"the message was refused: {code} {text}")
        return max(received - block, 0)

    async def query(self, first: int = 0, name: str = "", *, selector: str = "") -> tuple[list[int], bool]:
        """Numbers of the messages that wait in the queue, and whether there are more behind the last."""
        core, place = self.core, self.place
        core.check_place(place)
        core.write(commands.HandleQuery(place.number, first, name, selector.encode()))
        await self.connection.wait(lambda: bool(place.indexes), "querying", None, place)
        index = place.indexes.popleft()
        return listed(index.message_list), index.message_nbr > 0

    async def browse(self, number: int) -> FastMessage | None:
        """The message of a number that `query` gave, which stays where it is; None if it is gone."""
        core, place = self.core, self.place
        core.check_place(place)
        tag = core.next_tag()
        core.write(commands.HandleBrowse(place.number, tag, number))
        try:
            await self.connection.wait(
                lambda: bool(place.browsed) or core.replies[tag] is not None, "browsing", None, place
            )
            return place.browsed.popleft() if place.browsed else None
        finally:
            del core.replies[tag]

    async def unget(self, message: FastMessage) -> None:
        """Gives a message back to its queue, for others; before it is acked."""
        await self.ask(
            lambda tag: commands.HandleUnget(self.place.number, tag, message.number), "giving back"
        )

    async def pause(self) -> None:
        """No messages for now; those of queues go to others."""
        await self.ask(lambda tag: commands.HandleFlow(self.place.number, tag, flow_pause=True), "pausing")

    async def resume(self) -> None:
        await self.ask(lambda tag: commands.HandleFlow(self.place.number, tag, flow_pause=False), "resuming")

    async def ask(self, command: Callable[[int], commands.Command], what: str) -> None:
        """A command that is confirmed."""
        self.core.check_place(self.place)
        tag = self.core.next_tag()
        self.core.write(command(tag))
        code, text = await self.connection.confirmed(tag, what, self.place)
        if code != amqp.REPLY_SUCCESS:
            raise channel_closed(code, text, what)

    async def close(self) -> None:
        place = self.place
        if place.is_open and not place.is_closing and not self.core.is_over:
            self.core.write(commands.HandleClose(place.number, amqp.REPLY_SUCCESS, "Ok"))
            place.is_closing = True
            await self.connection.transport.wait(
                lambda: not place.is_open or self.core.is_over, self.connection.timeout_s, "closing a handle"
            )

    async def __aenter__(self) -> Handle:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except ClientError:
            if error is None:
                raise
