"""The socket of the async client, and its ways to wait: what the sync client has by another nature.

client/sync/transport.py has the same names for blocking code. Everything above is written once, in this
package; tools/generate_sync_client.py makes the sync client of it.

    Transport    the socket: opened, written, read in the background by the event loop
    Waiters      those who wait for something to change
    Background   the recovery: a task that begins with the loss
    Opening      a channel to be: awaited, or entered
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from flintmq.client.core import process
from flintmq.client.core.connection import ConnectionCore
from flintmq.client.core.deadline import Deadline
from flintmq.client.core.endpoints import connect_failed, prepare_socket, silent
from flintmq.client.core.errors import CallTimeout, ClientError, ForkedConnection
from flintmq.client.core.pending import Pending
from flintmq.client.core.settings import Endpoint, Settings
from flintmq.clock import Clock

if TYPE_CHECKING:
    from flintmq.client.aio.channel import Channel

READ_BYTES = 262_144

NEXT_ADDRESS_S = 0.5
# Reading what is there costs half a microsecond; a look at the process would cost as much again. Who waits,
# or settles a message, is looked at.
CHECKS_EACH_READ = False

Lock = asyncio.Lock

log = logging.getLogger("flintmq.client")


class Transport:
    """The socket of a connection, on the event loop that opened it."""

    is_closed: bool

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self.settings = settings
        self.clock = clock
        self.loop = asyncio.get_running_loop()
        self.core = ConnectionCore(settings, clock)
        self.core.flush = self.flush_soon
        self.core.on_resumed = self._read_again
        self.is_writable = True
        self._process = process.number
        self._link: _Link | None = None
        self._flush_due = False
        self._beating: asyncio.TimerHandle | None = None

    def ended(self) -> None:
        """This life of the connection is over."""
        raise NotImplementedError

    async def open_channel(self, confirm: bool, transactional: bool, prefetch: int | None) -> Channel:
        raise NotImplementedError

    def channel(
        self, *, confirm: bool = False, transactional: bool = False, prefetch: int | None = None
    ) -> Opening:
        """A new channel, with publisher confirms, or transactions, or neither: `await` it, or use it in
        `async with`."""
        return Opening(lambda: self.open_channel(confirm, transactional, prefetch))

    # The socket

    async def connect_socket(self, endpoint: Endpoint, deadline: Deadline) -> None:
        settings = self.settings
        link = _Link(self)
        options: dict[str, Any] = {}
        context = settings.context()
        if context is not None:
            options = {
                "ssl": context,
                "server_hostname": settings.server_name(endpoint.host),
                "ssl_handshake_timeout": max(deadline.left_s(), 0.001),
            }
        # Of a name with several addresses the next one is tried when one is slow; uvloop tries them in turn.
        if isinstance(self.loop, asyncio.BaseEventLoop):
            options["happy_eyeballs_delay"] = NEXT_ADDRESS_S
        try:
            async with asyncio.timeout(deadline.left_s()):
                await self.loop.create_connection(lambda: link, endpoint.host, endpoint.port, **options)
        except TimeoutError:
            raise silent(settings, endpoint, deadline) from None
        except (OSError, UnicodeError) as error:
            raise connect_failed(settings, endpoint, error) from None
        assert link.transport is not None
        self._link = link
        self.is_writable = True
        prepare_socket(link.transport.get_extra_info("socket"), settings)

    def begin_beating(self) -> None:
        """Heartbeats go out and are waited for from now on."""
        self._beat()

    def drop(self) -> None:
        """Ends the socket at once."""
        link = self._take_link()
        if link is not None and link.transport is not None:
            link.transport.abort()

    def _take_link(self) -> _Link | None:
        link, self._link = self._link, None
        if self._beating is not None:
            self._beating.cancel()
            self._beating = None
        return link

    def _hang_up(self) -> _Link | None:
        """Ends the socket when what was written has left."""
        link = self._take_link()
        if link is not None and link.transport is not None:
            link.transport.close()
        return link

    async def hang_up(self, deadline: Deadline) -> None:
        """Ends the socket when what was written has left; returns when it has ended."""
        self.flush()
        link = self._hang_up()
        if link is None:
            return
        try:
            await asyncio.wait([link.ended], timeout=deadline.left_s())
        finally:
            if link.transport is not None:
                link.transport.abort()

    def flush_soon(self) -> None:
        """What is written in one turn of the loop leaves in one piece."""
        if not self._flush_due:
            self.check_process()
            self._check_loop()
            self._flush_due = True
            self.loop.call_soon(self.flush)

    def flush(self) -> None:
        self._flush_due = False
        output = self.core.output
        size = output.pending()
        if size and self._link is not None and self._link.transport is not None:
            self._link.transport.write(bytes(memoryview(output.buffer)[output.start : output.fill]))
            output.sent(size)
            self.core.sent_s = self.clock.monotonic_s()
        self.core.outbox.clear()
        output.waiting = False

    def write(self, octets: bytearray, deadline: Deadline) -> None:
        """Frames that need not go through the output. The event loop keeps what the socket does not take."""
        self.flush()
        if self._link is not None and self._link.transport is not None:
            self._link.transport.write(octets)
            self.core.sent_s = self.clock.monotonic_s()

    def give_up_life(self, reason: str) -> None:
        """What was being sent was interrupted: nobody knows how much of it has left."""
        if self.core.failure is None:
            self.drop()
            self.core.lost(reason)
            self.ended()

    def glance(self) -> None:
        """Takes what has come meanwhile: the event loop has done that already."""

    def received(self) -> None:
        """The core has taken what was read."""
        if self.core.output.pending():
            self.flush()
        if self.core.failure is not None:
            self._hang_up()
            self.ended()
        elif self.core.protocol.paused and self._link is not None:
            self._link.pause_reading(True)
        self.core.call_back()

    def _read_again(self) -> None:
        if self._link is not None:
            self._link.pause_reading(False)

    def link_lost(self, link: _Link, reason: str) -> None:
        """A socket has ended by itself."""
        if self._link is not link:
            return
        self.drop()
        self.core.lost(reason)
        self.ended()
        self.core.call_back()

    def is_link(self, link: _Link) -> bool:
        return self._link is link

    def _beat(self) -> None:
        wait_s = self.core.beat()
        self.flush()
        if self.core.failure is not None:
            self.drop()
            self.ended()
            self.core.call_back()
        elif wait_s is not None:
            self._beating = self.loop.call_later(wait_s, self._beat)

    # Waiting

    def check_process(self) -> None:
        """Two processes on one socket would tear each other's frames."""
        if process.number != self._process:
            raise ForkedConnection(
                f"the connection to {self.settings.address} was opened by process {self._process}, "
                f"and this is process {process.number}: open a connection in each process"
            )

    def is_foreign(self) -> bool:
        """Whether this process did not open the connection."""
        return process.number != self._process

    def _check_loop(self) -> None:
        if self.loop.is_closed():
            raise ClientError(
                "the event loop of the connection is closed, and the connection with it; open another"
            )

    def check_use(self) -> None:
        """Whether the connection may be used here: on its event loop, in its process."""
        self.check_process()
        self._check_loop()
        if asyncio.get_running_loop() is not self.loop:
            raise ClientError(
                "the connection belongs to another event loop; use it there, by "
                "asyncio.run_coroutine_threadsafe from another thread"
            )

    async def until_told(self, pending: Pending, deadline: Deadline) -> None:
        """Until something happens to the Pending, or the time is over."""
        waker = self.loop.create_future()
        pending.told = lambda: _wake(waker)
        timer = self.loop.call_later(deadline.left_s(), _wake, waker)
        self.core.begin_wait()
        try:
            await waker
        finally:
            self.core.end_wait()
            timer.cancel()
            pending.told = None

    async def sleep(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)

    def release(self) -> None:
        """The connection is closed for good: it has nothing but its socket."""

    def run_soon(self, function: Callable[[], object]) -> None:
        """Has a function called on the connection's event loop: the one way in from another thread."""
        self._check_loop()
        self.loop.call_soon_threadsafe(function)


class _Link(asyncio.BufferedProtocol):
    """One socket of a connection, which is told of what it reads and of its end."""

    def __init__(self, owner: Transport) -> None:
        self.owner = owner
        self.transport: asyncio.Transport | None = None
        self.ended: asyncio.Future[None] = owner.loop.create_future()
        self.buffer = bytearray(owner.settings.frame_bytes_max + READ_BYTES)
        self.fill = 0
        self.is_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # By its methods alone: uvloop's of a pair of sockets is no subclass.
        self.transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        if len(self.buffer) - self.fill < 4096:
            # Only while paused: what the transport had read already must go somewhere.
            self.buffer = self.buffer + bytearray(READ_BYTES)
        return memoryview(self.buffer)[self.fill :]

    def buffer_updated(self, size: int) -> None:
        self.fill += size
        self.take()

    def take(self) -> None:
        if not self.owner.is_link(self):
            return
        used = self.owner.core.receive(self.buffer, self.fill)
        rest = self.fill - used
        if rest and used:
            self.buffer[:rest] = self.buffer[used : self.fill]
        self.fill = rest
        self.owner.received()

    def pause_reading(self, pause: bool) -> None:
        if self.transport is None or pause == self.is_paused or self.transport.is_closing():
            return
        self.is_paused = pause
        if pause:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()
            self.owner.loop.call_soon(self.take)

    def pause_writing(self) -> None:
        if self.owner.is_link(self):
            self.owner.is_writable = False

    def resume_writing(self) -> None:
        if self.owner.is_link(self):
            self.owner.is_writable = True
            self.owner.core.changed()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(None)
        reason = "the server hung up"
        if isinstance(error, OSError):
            reason = error.strerror or type(error).__name__
        self.owner.link_lost(self, reason)


class Waiters:
    """Tasks that wait for something to change."""

    def __init__(self, transport: Transport, reading: bool = True) -> None:
        """`reading`: they wait for something that only the socket can bring, however much of deliveries
        waits to be read by the application."""
        self.transport = transport
        self.reading = reading
        self.wakers: dict[asyncio.Future[None], None] = {}  # in the order in which they came

    def wake(self) -> None:
        if self.wakers:
            wakers, self.wakers = self.wakers, {}
            for waker in wakers:
                _wake(waker)

    async def wait(self, deadline: Deadline | None) -> None:
        """Until the next `wake`, or the time is over."""
        waker = self.transport.loop.create_future()
        self.wakers[waker] = None
        timer = None if deadline is None else self.transport.loop.call_later(deadline.left_s(), _wake, waker)
        if self.reading:
            self.transport.core.begin_wait()
        try:
            await waker
        finally:
            self.wakers.pop(waker, None)  # one whose time is over would stay until something comes
            if self.reading:
                self.transport.core.end_wait()
            if timer is not None:
                timer.cancel()


class Background:
    """Work that goes on beside the calls, which may wait for its end: a task."""

    def __init__(self, transport: Transport, work: Callable[[Deadline | None], Coroutine[Any, Any, None]]):
        self.transport = transport
        self.work = work
        self.task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        return self.task is not None

    def start(self) -> None:
        if self.task is None:
            self.task = self.transport.loop.create_task(self.work(None))
            self.task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        if self.task is not task:
            return  # whoever waited for the end has seen it, and the next work may have begun
        self.task = None
        if not task.cancelled() and task.exception() is not None:
            log.error("the recovery of a connection failed", exc_info=task.exception())
        self.transport.core.told()
        self.transport.core.call_back()

    async def finish(self, deadline: Deadline) -> None:
        """Waits for the end of the work."""
        task = self.task
        if task is not None:
            await asyncio.wait([task], timeout=deadline.left_s())
            if not task.done():
                raise CallTimeout(
                    f"the connection to {self.transport.settings.address} is lost, and not open again in "
                    f"{deadline.timeout_s:g} seconds"
                )
            if self.task is task:
                self._finished(task)

    async def cancel(self) -> None:
        task = self.task
        if task is not None:
            task.cancel()
            await asyncio.wait([task])


class Opening:
    """A channel to be: awaited, or entered."""

    def __init__(self, open_channel: Callable[[], Coroutine[Any, Any, Channel]]) -> None:
        self._open = open_channel
        self._channel: Channel | None = None

    def __await__(self) -> Generator[Any, None, Channel]:
        return self._open().__await__()

    async def __aenter__(self) -> Channel:
        self._channel = await self._open()
        return self._channel

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._channel is not None
        await self._channel.leave(error)


async def finished(result: Any) -> Any:
    """The result of a function of the application, which may be a coroutine function."""
    return await result if inspect.isawaitable(result) else result


def _wake(waker: asyncio.Future[None]) -> None:
    if not waker.done():
        waker.set_result(None)
