"""The async client of AMQP/Fast 0.9: connections, channels, and consumers.

    async with await connect(port=5674) as connection, await connection.channel() as channel:
        await channel.proxy("prices", "dest-wild")
        await channel.queue("stocks")
        await channel.register("stocks", "prices", {"destination": "stock.*"})
        stocks = await channel.consume("stocks")
        await channel.publish(b"101", "stock.ibm", "prices", synch=True)
        message = await stocks.receive()
        await channel.ack(message)

Errors are those of the other clients: NotFound, AccessRefused, ConnectionLost and so on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, MutableMapping
from types import TracebackType
from typing import Any

from flintmq.client.core.errors import ClientError, channel_closed
from flintmq.client.fast.aio.transport import Transport
from flintmq.client.fast09.core import Fast09Core, Message, Place
from flintmq.wire import amqp
from flintmq.wire.fast09 import methods
from flintmq.wire.fast09.content_header import ContentHeader
from flintmq.wire.fast09.methods import CLASS_FILE, CLASS_JMS, CLASS_STREAM, CLASS_TEST, Method, method
from flintmq.wire.tables import FieldTable

# How a channel works in transactions.
NO_TRANSACTIONS, STANDARD_TRANSACTIONS, DISTRIBUTED_TRANSACTIONS = 0, 1, 2


async def connect(
    host: str = "localhost",
    port: int = 5674,
    *,
    user: str = "guest",
    password: str = "guest",
    virtual_host: str = "/",
    client_id: str = "",
    heartbeat_s: int = 0,
    timeout_s: float = 30.0,
    files: MutableMapping[str, bytearray] | None = None,
) -> Connection:
    """An open connection. A `client_id` may be connected once at a time.

    `files` is where contents are gathered that the server stages here; who gives the same to a further
    connection has their transfers go on where they broke off.
    """
    core = Fast09Core(user, password, virtual_host, client_id, heartbeat_s, files)
    transport = Transport(core)
    await transport.open(host, port, None, timeout_s)
    connection = Connection(core, transport, timeout_s)
    try:
        await connection.wait(lambda: core.is_open, "connecting")
    except BaseException:
        transport.shut()
        raise
    return connection


class Connection:
    """A connection to one virtual host."""

    def __init__(self, core: Fast09Core, transport: Transport, timeout_s: float) -> None:
        self.core = core
        self.transport = transport
        self.timeout_s = timeout_s

    @property
    def client_id(self) -> str:
        """As it was given, or as the server has assigned it."""
        return self.core.client_id

    async def wait(
        self,
        is_there: Callable[[], bool],
        what: str,
        timeout_s: float | None = None,
        place: Place | None = None,
    ) -> None:
        """Until it is there; raises what has happened to the connection or the channel instead."""
        core = self.core

        def is_settled() -> bool:
            return is_there() or core.is_over or (place is not None and not place.is_open)

        await self.transport.wait(is_settled, self.timeout_s if timeout_s is None else timeout_s, what)
        if not is_there():
            if place is not None and place.failure is not None:
                raise place.failure
            core.check()
            raise channel_closed(0, "closed", what)

    async def channel(self, *, tx_mode: int = NO_TRANSACTIONS, prefetch_max: int = 0) -> Channel:
        """A new channel; `prefetch_max` is how many octets it may have unacked."""
        place = self.core.open_place()
        channel = Channel(self, place)
        await channel.ask(
            method("channel.open", prefetch_max=prefetch_max, tx_mode=tx_mode), "opening a channel"
        )
        return channel

    async def close(self) -> None:
        core = self.core
        try:
            if not core.is_over:
                core.check()
                core.write(0, method("connection.close", reply_code=amqp.REPLY_SUCCESS, reply_text="Ok"))
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
    """A serial stream of methods and messages."""

    def __init__(self, connection: Connection, place: Place) -> None:
        self.connection = connection
        self.core = connection.core
        self.place = place

    # Asking

    async def ask(self, said: Method, what: str, flags: int = 0) -> Method:
        """A method with a reply, or with a synchpoint: what the server answers."""
        core, place = self.core, self.place
        core.check_place(place)
        tag = core.next_tag(place)
        core.write(place.number, said, flags, tag)
        return await self.answered(tag, what)

    async def answered(self, tag: int, what: str) -> Method:
        replies = self.place.replies
        try:
            await self.connection.wait(lambda: replies[tag] is not None, what, None, self.place)
            answer = replies[tag]
        finally:
            del replies[tag]
        assert answer is not None
        return answer

    async def tell(self, said: Method, what: str, synch: bool) -> None:
        """An asynchronous method; with `synch` it is done when this returns."""
        self.core.check_place(self.place)
        if synch:
            await self.ask(said, what, methods.SYNCHREQ)
        else:
            self.core.write(self.place.number, said)
            await self.connection.transport.flush()

    async def supports(self, name: str) -> bool:
        """Whether the server has a method, such as "queue.assert": it is asked and does nothing."""
        core, place = self.core, self.place
        core.check_place(place)
        tag = core.next_tag(place)
        core.unknown.discard(tag)
        core.write(place.number, method(name), methods.UNREAL, tag)
        try:
            await self.connection.wait(
                lambda: tag in core.unknown or place.replies[tag] is not None or bool(place.browsed),
                "asking",
                None,
                place,
            )
            place.browsed.clear()
            return tag not in core.unknown
        finally:
            del place.replies[tag]
            core.unknown.discard(tag)

    # Proxies and queues

    async def proxy(
        self,
        name: str,
        class_name: str = "dest-name",
        *,
        durable: bool = False,
        auto_delete: bool = False,
        if_exists: bool = False,
        ticket: int = 0,
    ) -> None:
        """A proxy of this class is there; with `if_exists` it must have been."""
        said = method(
            "proxy.assert",
            ticket=ticket,
            proxy=name,
            class_name=class_name,
            if_exists=if_exists,
            durable=durable,
            auto_delete=auto_delete,
        )
        await self.ask(said, f"asserting proxy '{name}'")

    async def delete_proxy(self, name: str, *, if_unused: bool = False, ticket: int = 0) -> None:
        said = method("proxy.delete", ticket=ticket, proxy=name, if_unused=if_unused)
        await self.ask(said, f"deleting proxy '{name}'")

    async def queue(
        self,
        name: str = "",
        *,
        namespace: str = "",
        template: str = "",
        durable: bool = False,
        private: bool = False,
        auto_delete: bool = False,
        if_exists: bool = False,
        ticket: int = 0,
    ) -> Method:
        """A queue is there: its `queue`, `proxy`, `message_count` and `consumer_count`."""
        said = method(
            "queue.assert",
            ticket=ticket,
            namespace=namespace,
            queue=name,
            template=template,
            if_exists=if_exists,
            durable=durable,
            private=private,
            auto_delete=auto_delete,
        )
        return await self.ask(said, f"asserting queue '{name}'")

    async def register(
        self,
        queue: str,
        proxy: str,
        arguments: FieldTable | None = None,
        *,
        namespace: str = "",
        ticket: int = 0,
    ) -> None:
        """The queue gets what fits; from a further proxy on, what fits that one too."""
        said = method(
            "queue.register",
            ticket=ticket,
            namespace=namespace,
            queue=queue,
            proxy=proxy,
            arguments=arguments or {},
        )
        await self.ask(said, f"registering '{queue}' with '{proxy}'")

    async def cancel_registration(
        self,
        queue: str,
        proxy: str,
        arguments: FieldTable | None = None,
        *,
        namespace: str = "",
        ticket: int = 0,
    ) -> None:
        """Ends a registration, given as it was made."""
        said = method(
            "queue.cancel",
            ticket=ticket,
            namespace=namespace,
            queue=queue,
            proxy=proxy,
            arguments=arguments or {},
        )
        await self.ask(said, f"cancelling a registration of '{queue}' with '{proxy}'")

    async def purge(self, queue: str, *, namespace: str = "", ticket: int = 0) -> int:
        """How many messages were in the queue."""
        said = method("queue.purge", ticket=ticket, namespace=namespace, queue=queue)
        count: int = (await self.ask(said, f"purging '{queue}'")).message_count
        return count

    async def delete_queue(
        self,
        queue: str,
        *,
        namespace: str = "",
        if_unused: bool = False,
        if_empty: bool = False,
        ticket: int = 0,
    ) -> int:
        """How many messages were in the queue."""
        said = method(
            "queue.delete",
            ticket=ticket,
            namespace=namespace,
            queue=queue,
            if_unused=if_unused,
            if_empty=if_empty,
        )
        count: int = (await self.ask(said, f"deleting '{queue}'")).message_count
        return count

    # Messages

    async def publish(
        self,
        body: bytes,
        destination: str = "",
        proxy: str = "",
        *,
        synch: bool = False,
        trace: bool = False,
        immediate: bool = False,
        ticket: int = 0,
        **properties: Any,
    ) -> None:
        """A Jms message; with `synch` it is safe when this returns.

        `properties` are those of Jms content, such as delivery_mode=2 or headers={"n": 1}.
        """
        said = method("jms.publish", ticket=ticket, proxy=proxy, immediate=immediate)
        await self.send_content(
            said, CLASS_JMS, body, {"destination": destination, **properties}, synch, trace
        )

    async def publish_stream(
        self,
        body: bytes,
        destination: str = "",
        proxy: str = "",
        *,
        synch: bool = False,
        trace: bool = False,
        immediate: bool = False,
        ticket: int = 0,
        **properties: Any,
    ) -> None:
        """The next fragment of a stream."""
        said = method("stream.publish", ticket=ticket, proxy=proxy, immediate=immediate)
        given = {"destination": destination, **properties}
        await self.send_content(said, CLASS_STREAM, body, given, synch, trace)

    async def send_content(
        self, said: Method, class_id: int, body: bytes, properties: dict[str, Any], synch: bool, trace: bool
    ) -> Method | None:
        core, place = self.core, self.place
        core.check_place(place)
        if place.is_paused:
            await self.connection.wait(lambda: not place.is_paused, "waiting for the server", None, place)
        flags = (methods.SYNCHREQ if synch else 0) | (methods.TRACER if trace else 0)
        is_awaited = synch or not said.kind.is_async
        tag = core.next_tag(place) if is_awaited else 0
        try:
            core.publish(place, said, ContentHeader(class_id, 0, properties), body, flags, tag)
        except Exception:
            place.replies.pop(tag, None)
            raise
        if is_awaited:
            return await self.answered(tag, "publishing")
        await self.connection.transport.flush()
        return None

    async def send_file(
        self,
        body: bytes,
        identifier: str,
        destination: str = "",
        proxy: str = "",
        *,
        immediate: bool = False,
        ticket: int = 0,
        **properties: Any,
    ) -> int:
        """Stages a file and publishes it; goes on where an earlier try with this identifier broke off.

        How many octets were there already.
        """
        staged = await self.stage_file(body, identifier, destination, **properties)
        said = method("file.publish", ticket=ticket, proxy=proxy, immediate=immediate, identifier=identifier)
        await self.tell(said, "publishing a file", True)
        return staged

    async def stage_file(self, body: bytes, identifier: str, destination: str = "", **properties: Any) -> int:
        """Stages a file, without publishing it yet."""
        core, place = self.core, self.place
        core.check_place(place)
        core.write(place.number, method("file.open", identifier=identifier, content_size=len(body)))
        await self.connection.wait(lambda: bool(place.staged), "opening a file", None, place)
        staged = place.staged.popleft()
        header = ContentHeader(CLASS_FILE, 0, {"destination": destination, **properties})
        core.publish(place, method("file.stage"), header, body[staged:], 0, 0)
        await self.connection.transport.flush()
        return staged

    async def consume(
        self,
        queue: str,
        kind: str = "jms",
        *,
        namespace: str = "",
        prefetch: int = 0,
        prefetch_size: int = 0,
        consume_rate: int = 0,
        no_local: bool = False,
        auto_ack: bool = False,
        exclusive: bool = False,
        ticket: int = 0,
    ) -> Consumer:
        """Messages of a queue: "jms", "file" or "stream" content."""
        options: dict[str, Any] = {
            "ticket": ticket,
            "namespace": namespace,
            "queue": queue,
            "prefetch_size": prefetch_size,
            "prefetch_count": prefetch,
            "no_local": no_local,
            "exclusive": exclusive,
        }
        if kind == "stream":
            options["consume_rate"] = consume_rate
        else:
            options["auto_ack"] = auto_ack
        key = (kind, namespace, queue)
        inbox = self.place.inboxes.setdefault(key, deque())
        answer = await self.ask(method(f"{kind}.consume", **options), f"consuming from '{queue}'")
        return Consumer(self, key, answer.consumer_tag, inbox)

    async def browse(
        self, queue: str, *, namespace: str = "", auto_ack: bool = False, ticket: int = 0
    ) -> Message | None:
        """The next message of a queue; None when it is empty."""
        core, place = self.core, self.place
        core.check_place(place)
        said = method("jms.browse", ticket=ticket, namespace=namespace, queue=queue, auto_ack=auto_ack)
        core.write(place.number, said)
        await self.connection.wait(lambda: bool(place.browsed), f"browsing '{queue}'", None, place)
        return place.browsed.popleft()

    async def ack(self, message: Message, *, multiple: bool = False, synch: bool = False) -> None:
        """This message is processed; with `multiple` all before it are, too."""
        await self.tell(method("jms.ack", delivery_tag=message.tag, multiple=multiple), "acking", synch)

    async def reject(self, message: Message, *, requeue: bool = True, synch: bool = False) -> None:
        said = method("jms.reject", delivery_tag=message.tag, requeue=requeue)
        await self.tell(said, "rejecting", synch)

    async def pause(self, *, synch: bool = False) -> None:
        """No messages for now."""
        await self.tell(method("channel.flow", flow_pause=True), "pausing", synch)

    async def resume(self, *, synch: bool = False) -> None:
        await self.tell(method("channel.flow", flow_pause=False), "resuming", synch)

    # Transactions, tickets and tests

    async def commit(self) -> None:
        """All that was published goes to its queues, and all that was acked is processed."""
        await self.ask(method("tx.commit"), "committing")

    async def abort(self) -> None:
        """What was published is forgotten, and what was acked is not."""
        await self.ask(method("tx.abort"), "aborting")

    async def start_dtx(self, identifier: str) -> None:
        """The channel works in this distributed transaction from now on."""
        await self.ask(method("dtx.start", dtx_identifier=identifier), "starting a transaction")

    async def grant(self, realm: str, **rights: bool) -> int:
        """A ticket for a realm: `exclusive`, `passive`, `active`, `write` and `read` are asked for."""
        ticket: int = (
            await self.ask(method("access.grant", realm=realm, **rights), "asking for access")
        ).ticket
        return ticket

    async def test_content(self, body: bytes) -> int:
        """The sum of the octets, as the server has counted them."""
        answer = await self.send_content(method("test.content"), CLASS_TEST, body, {}, False, False)
        assert answer is not None
        checksum: int = answer.content_checksum
        return checksum

    async def close(self) -> None:
        place = self.place
        if place.is_open and not place.is_closing and not self.core.is_over:
            close = method("channel.close", reply_code=amqp.REPLY_SUCCESS, reply_text="Ok")
            self.core.write(place.number, close)
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


class Consumer:
    """Messages of one queue."""

    def __init__(self, channel: Channel, key: tuple[str, str, str], tag: int, inbox: deque[Message]) -> None:
        self.channel = channel
        self.key = key
        self.tag = tag
        self.inbox = inbox

    async def receive(self, timeout_s: float | None = None) -> Message:
        """The next message; CallTimeout when none comes in time."""
        inbox = self.inbox
        await self.channel.connection.wait(lambda: bool(inbox), "receiving", timeout_s, self.channel.place)
        return inbox.popleft()

    async def cancel(self) -> None:
        """No more messages; those that have come are still there to receive."""
        await self.channel.ask(method(f"{self.key[0]}.cancel", consumer_tag=self.tag), "cancelling")
        self.channel.place.inboxes.pop(self.key, None)
