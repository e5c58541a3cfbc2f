"""The async client: the same core on asyncio.

    async with await connect("amqp://guest:guest@localhost") as connection:
        async with connection.channel(confirm=True) as channel:
            ...

Nothing per message goes through the event loop but what the application awaits itself. When the connection
is lost, a task opens it again; calls wait for that, consumers go on.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Generator
from types import TracebackType
from typing import Any, TypeVar

from flintmq.client.aio.channel import Channel
from flintmq.client.aio.services import Browser, Lease, Stream
from flintmq.client.core.connection import ConnectionCore
from flintmq.client.core.errors import (
    CallTimeout,
    ClientError,
    ConnectFailed,
    ConnectionClosed,
    ConnectionLost,
    LoginRefused,
    TransactionLost,
)
from flintmq.client.core.pending import Pending, Steps
from flintmq.client.core.services import Ask, Reply, ServiceCalls
from flintmq.client.core.settings import Settings
from flintmq.clock import Clock
from flintmq.wire.tables import FieldTable

READ_BYTES = 262_144
CALL_ATTEMPTS_MAX = 3
CLOSE_TIMEOUT_S = 10.0

T = TypeVar("T")


class _Link(asyncio.BufferedProtocol):
    """One socket of a connection, which is told of what it reads and of its end."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.transport: asyncio.Transport | None = None
        self.ended: asyncio.Future[None] = connection.loop.create_future()
        self.buffer = bytearray(connection.settings.frame_bytes_max + READ_BYTES)
        self.fill = 0
        self.is_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        if len(self.buffer) - self.fill < 4096:
            # Only while paused: what the transport had read already must go somewhere.
            self.buffer = self.buffer + bytearray(READ_BYTES)
        return memoryview(self.buffer)[self.fill :]

    def buffer_updated(self, size: int) -> None:
        self.fill += size
        self.take()

    def take(self) -> None:
        if self.connection.link is not self:
            return
        used = self.connection.core.receive(self.buffer, self.fill)
        rest = self.fill - used
        if rest and used:
            self.buffer[:rest] = self.buffer[used : self.fill]
        self.fill = rest
        self.connection.received()

    def pause_reading(self, pause: bool) -> None:
        if self.transport is None or pause == self.is_paused or self.transport.is_closing():
            return
        self.is_paused = pause
        if pause:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()
            self.connection.loop.call_soon(self.take)

    def pause_writing(self) -> None:
        self.connection.is_writable = False

    def resume_writing(self) -> None:
        self.connection.is_writable = True
        self.connection.wake()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(None)
        if self.connection.link is self:
            reason = "the server hung up"
            if isinstance(error, OSError):
                reason = error.strerror or type(error).__name__
            self.connection.lost(reason)


class Connection:
    """A connection to a broker, of one event loop. Made by `connect`."""

    def __init__(self, settings: Settings, clock: Clock | None = None) -> None:
        self.settings = settings
        self.clock = clock or Clock()
        self.loop = asyncio.get_running_loop()
        self.core = ConnectionCore(settings, self.clock, heartbeat_s_default=None)
        self.core.flush = self.flush_soon
        self.core.on_resumed = self._read_again
        self.link: _Link | None = None
        self.is_closed = False
        self.is_writable = True
        self._flush_due = False
        self._wakers: list[asyncio.Future[None]] = []
        self._beating: asyncio.TimerHandle | None = None
        self._recovery: asyncio.Task[None] | None = None
        self._exhausted = False  # the last attempt has failed
        self._services: ServiceCalls | None = None
        self._services_lock = asyncio.Lock()

    # The socket

    async def open(self) -> None:
        """A socket, and the handshake."""
        opened = self.core.begin()
        link = _Link(self)
        settings = self.settings
        address = settings.address
        try:
            async with asyncio.timeout(settings.connection_timeout_s):
                if settings.tls is None:
                    await self.loop.create_connection(lambda: link, settings.host, settings.port)
                else:
                    await self.loop.create_connection(
                        lambda: link,
                        settings.host,
                        settings.port,
                        ssl=settings.tls.context(),
                        server_hostname=settings.tls.server_name or settings.host,
                    )
        except TimeoutError:
            waited = f"{settings.connection_timeout_s:g} seconds"
            raise ConnectFailed(f"{address} cannot be reached: no answer in {waited}") from None
        except ssl.SSLCertVerificationError as error:
            why = error.verify_message
            raise ConnectFailed(f"{address} is not trusted: {why}; name its authority") from None
        except OSError as error:
            reason = error.strerror or str(error) or type(error).__name__
            raise ConnectFailed(
                f"{address} cannot be reached: {reason}; is the broker running there?"
            ) from None
        self.link = link
        self.is_writable = True
        assert link.transport is not None
        connected = link.transport.get_extra_info("socket")
        if connected is not None:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        try:
            await self.wait(opened, settings.connection_timeout_s)
        except BaseException:
            self._drop()
            raise
        self._beat()

    def _drop(self) -> None:
        link, self.link = self.link, None
        if self._beating is not None:
            self._beating.cancel()
            self._beating = None
        if link is not None and link.transport is not None:
            link.transport.abort()

    def _hang_up(self) -> None:
        """Ends the socket when what was written has left."""
        link, self.link = self.link, None
        if self._beating is not None:
            self._beating.cancel()
            self._beating = None
        if link is not None and link.transport is not None:
            link.transport.close()

    def flush_soon(self) -> None:
        """What is written in one turn of the loop leaves in one piece."""
        if not self._flush_due:
            self._flush_due = True
            self.loop.call_soon(self.flush)

    def flush(self) -> None:
        self._flush_due = False
        output = self.core.output
        size = output.pending()
        if size and self.link is not None and self.link.transport is not None:
            self.link.transport.write(bytes(memoryview(output.buffer)[output.start : output.fill]))
            output.sent(size)
            self.core.sent_s = self.clock.monotonic_s()
        self.core.outbox.clear()
        output.waiting = False

    def send_all(self, octets: bytearray) -> None:
        self.flush()
        if self.link is not None and self.link.transport is not None:
            self.link.transport.write(octets)

    def received(self) -> None:
        """The core has taken what was read."""
        if self.core.output.pending():
            self.flush()
        if self.core.failure is not None:
            self._hang_up()
            self._ended()
        elif self.core.protocol.paused and self.link is not None:
            self.link.pause_reading(True)

    def _read_again(self) -> None:
        if self.link is not None:
            self.link.pause_reading(False)

    def lost(self, reason: str) -> None:
        self._drop()
        self.core.lost(reason)
        self._ended()

    def _beat(self) -> None:
        wait_s = self.core.beat()
        self.flush()
        if self.core.failure is not None:
            self._drop()
            self._ended()
        elif wait_s is not None:
            self._beating = self.loop.call_later(wait_s, self._beat)

    # Waiting

    def wake(self) -> None:
        wakers, self._wakers = self._wakers, []
        for waker in wakers:
            if not waker.done():
                waker.set_result(None)

    async def until(
        self, holds: Callable[[], bool], doing: str, timeout_s: float | None, failed: Callable[[], None]
    ) -> None:
        """Waits until it holds; `failed` raises when it never will."""
        timeout_s = self.settings.timeout_s if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                while not holds():
                    failed()
                    waker = self.loop.create_future()
                    self._wakers.append(waker)
                    await waker
        except TimeoutError:
            blocked = f"; the broker blocks publishers ({self.blocked})" if self.blocked else ""
            raise CallTimeout(f"{doing}: not done in {timeout_s:g} seconds{blocked}") from None

    async def wait(self, pending: Pending, timeout_s: float) -> Any:
        """What the Pending is resolved with. A call without an answer mostly ends the connection: a late one
        would belong to nobody."""
        self.flush()
        if not pending.done:
            done: asyncio.Future[None] = self.loop.create_future()
            pending.told = lambda: None if done.done() else done.set_result(None)
            try:
                async with asyncio.timeout(timeout_s):
                    await done
            except TimeoutError:
                what = f"{pending.doing}: no answer from {self.settings.address} in {timeout_s:g} seconds"
                if self.core.blocked is not None:
                    what += f"; the broker blocks publishers ({self.core.blocked})"
                opening = pending is self.core.opened
                pending.fail(ConnectFailed(what) if opening else CallTimeout(what))
                if not pending.late_is_fine:
                    self._drop()
                    self.core.end(ConnectFailed(what) if opening else ConnectionLost(what))
                    self._ended()
        return pending.outcome()

    async def _drive(self, steps: Steps[T], timeout_s: float) -> T:
        """Runs the steps to their end, awaiting at each."""
        try:
            pending = next(steps)
            while True:
                try:
                    result = await self.wait(pending, timeout_s)
                except (ClientError, asyncio.CancelledError) as error:
                    pending = steps.throw(error)
                else:
                    pending = steps.send(result)
        except StopIteration as stop:
            result = stop.value
            return result  # type: ignore[no-any-return]

    async def ready(self) -> None:
        """Waits while the connection is being opened again; raises if it is over."""
        if self.is_closed:
            raise ConnectionClosed("the connection was closed; open another")
        recovery = self._recovery
        if recovery is not None:
            await asyncio.wait([recovery])
        if self.core.failure is not None:
            raise self.core.failure

    async def run(
        self, steps: Callable[[], Steps[T]], timeout_s: float | None = None, repeat: bool = True
    ) -> T:
        """Runs the steps; when the connection is lost meanwhile, again on the next one."""
        timeout_s = self.settings.timeout_s if timeout_s is None else timeout_s
        for attempt in range(CALL_ATTEMPTS_MAX):
            await self.ready()
            try:
                return await self._drive(steps(), timeout_s)
            except TransactionLost:
                raise
            except ConnectionLost:
                if not repeat or self.settings.recovery is None or attempt == CALL_ATTEMPTS_MAX - 1:
                    raise
        raise AssertionError("the last attempt returned or raised")

    # Recovery

    def _ended(self) -> None:
        """This life of the connection is over: is there to be another?"""
        failure = self.core.failure
        if self._recovery is not None or failure is None or not self.core.opened_once:
            self.wake()
            return
        if self.is_closed or self.settings.recovery is None or not isinstance(failure, ConnectionLost):
            self._give_up(failure)
            return
        self._recovery = self.loop.create_task(self._recover())
        self._recovery.add_done_callback(self._recovered)

    def _recovered(self, task: asyncio.Task[None]) -> None:
        self._recovery = None
        if not task.cancelled():
            task.result()
        if self.core.failure is not None:
            self._ended_again(self.core.failure)
        self.wake()

    def _ended_again(self, failure: ClientError) -> None:
        """Lost once more between the end of the recovery and now, or given up."""
        if isinstance(failure, ConnectionLost) and not self._exhausted:
            self._ended()
        else:
            self._give_up(failure)

    async def _recover(self) -> None:
        recovery = self.settings.recovery
        assert recovery is not None
        failure = self.core.failure
        for attempt in range(recovery.attempts_max):
            await asyncio.sleep(recovery.delay_s(attempt, self.clock.random.random()))
            try:
                await self.open()
                await self._drive(self.core.recover(), self.settings.timeout_s)
                self.flush()
                if self.core.failure is None:
                    return
            except LoginRefused as error:
                failure = error
                break
            except (ConnectFailed, ConnectionClosed, CallTimeout) as error:
                failure = error
        self._drop()
        self._exhausted = True
        self.core.failure = ConnectionLost(
            f"the connection to {self.settings.address} was lost and could not be opened again: {failure}"
        )

    def _give_up(self, failure: ClientError) -> None:
        for channel in list(self.core.channels.values()):
            channel.end(failure)
        self.wake()

    # The application's side

    @property
    def is_open(self) -> bool:
        return not self.is_closed and self._recovery is None and self.core.is_open

    @property
    def blocked(self) -> str | None:
        """Why the broker takes no messages at the moment; None when it does."""
        return self.core.blocked

    def on_blocked(self, told: Callable[[str | None], None] | None) -> None:
        """Has `told(reason)` called when the broker blocks publishers, with None when it stops to."""
        self.core.on_blocked = told

    @property
    def server_properties(self) -> FieldTable:
        return self.core.server_properties

    def channel(
        self, *, confirm: bool = False, transactional: bool = False, prefetch: int | None = None
    ) -> Opening:
        """A new channel: `await` it, or use it in `async with`."""
        return Opening(self, confirm, transactional, prefetch)

    async def request(
        self,
        service: str,
        arguments: FieldTable | None = None,
        body: bytes = b"",
        *,
        timeout_s: float | None = None,
    ) -> Reply:
        """Asks a service of the broker; a refusal is a ServiceError."""
        return await self.ask(Ask(service, arguments or {}, body, lambda reply: reply), timeout_s)

    async def ask(self, ask: Ask[T], timeout_s: float | None = None) -> T:
        async with self._services_lock:
            if self._services is None or self._services.is_over():
                services = ServiceCalls(self.core)
                await self.run(services.open)
                self._services = services
        services = self._services
        return ask.read(await self.run(lambda: services.ask(ask), timeout_s))

    def stream(self, queue: str) -> Stream:
        """A stream queue, read by offset."""
        return Stream(self, queue)

    def browse(self, queue: str) -> Browser:
        """The messages that wait in a queue, looked at and searched without taking any."""
        return Browser(self, queue)

    def lease(self, queue: str, consumer: str) -> Lease:
        """Batches of a queue's messages, leased to a consumer by name."""
        return Lease(self, queue, consumer)

    async def close(self) -> None:
        """Waits for outstanding confirms, and says goodbye; PublishFailed if a message is not safe."""
        if self.is_closed:
            return
        try:
            for core in list(self.core.channels.values()):
                if core.ledger is not None and core.ledger.segments:
                    await Channel(self, core).wait_for_confirms()
        finally:
            await self._abandon()

    async def _abandon(self) -> None:
        """Goodbye, without another word about messages."""
        if self.is_closed:
            return
        self.is_closed = True
        if self._recovery is not None:
            self._recovery.cancel()
            await asyncio.wait([self._recovery])
        link = self.link
        closing = self.core.close()
        try:
            await self.wait(closing, min(self.settings.timeout_s, CLOSE_TIMEOUT_S))
        except ClientError:
            closing.resolve(None)  # it is gone: closed as well
        self._hang_up()
        if link is not None:
            await asyncio.wait([link.ended], timeout=CLOSE_TIMEOUT_S)
        self._give_up(ConnectionClosed("the connection was closed"))

    async def __aenter__(self) -> Connection:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()
        else:
            await self._abandon()

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else "open" if self.core.is_open else "lost"
        return f"<Connection to {self.settings.address}, {state}>"


class Opening:
    """A channel to be: awaited, or entered."""

    def __init__(
        self, connection: Connection, confirm: bool, transactional: bool, prefetch: int | None
    ) -> None:
        self.connection = connection
        self.wishes = (confirm, transactional, prefetch)
        self.channel: Channel | None = None

    async def open(self) -> Channel:
        await self.connection.ready()
        core = self.connection.core.new_channel(*self.wishes)
        try:
            await self.connection.run(core.open, repeat=False)
        except ConnectionLost as error:
            if self.connection.settings.recovery is None:
                core.end(error)
                raise
            await self.connection.ready()  # the recovery has opened it as well
        except BaseException:
            core.end(ClientError("the channel was never open"))
            raise
        return Channel(self.connection, core)

    def __await__(self) -> Generator[Any, None, Channel]:
        return self.open().__await__()

    async def __aenter__(self) -> Channel:
        self.channel = await self.open()
        return self.channel

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self.channel is not None
        await self.channel.leave(error)


async def connect(source: str | Settings = "amqp://guest:guest@localhost", **options: Any) -> Connection:
    """Connects to a broker by URI or settings; options are fields of Settings and win over the URI."""
    connection = Connection(Settings.of(source, **options))
    await connection.open()
    return connection
