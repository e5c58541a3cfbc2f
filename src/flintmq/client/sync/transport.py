"""The socket of the sync client, and its ways to wait: what the async client has by another nature.

client/aio/transport.py has the same names for asyncio. Everything above is made from the async client by
tools/generate_sync_client.py.

    Transport    the socket: opened, written, and read whenever a call waits
    Waiters      those who wait for something to change: the caller, who reads the socket
    Background   the recovery: done by the call that needs the connection
    Pulse        the thread that sends heartbeats while no call waits
"""

from __future__ import annotations

import contextlib
import math
import queue
import select
import socket
import ssl
import threading
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from flintmq.client.core import process
from flintmq.client.core.connection import ConnectionCore
from flintmq.client.core.deadline import Deadline
from flintmq.client.core.endpoints import connect_failed, prepare_socket, silent
from flintmq.client.core.errors import ClientError, ConnectionClosed, ForkedConnection
from flintmq.client.core.pending import Pending
from flintmq.client.core.settings import Endpoint, Settings
from flintmq.clock import Clock

if TYPE_CHECKING:
    from flintmq.client.sync.channel import Channel

# One read; with what was left of a frame before it.
READ_BYTES = 262_144
# Publishing waits while more than this waits for the socket.
OUTPUT_BYTES_MAX = 65_536
# The last words of a server that hung up are at most this many reads.
LAST_READS_MAX = 64
# The heartbeat thread holds the socket for one send; another thread of the application for a whole call.
HANDOVER_S = 0.5
# A wait for the socket that is due to beat looks again after this long.
BEAT_S_MIN = 0.05
SHORT_S = 0.001
# A fork is common among blocking programs: what was delivered to the parent is not for the child.
CHECKS_EACH_READ = True


class Transport:
    """The socket of a connection, read and written by the thread that calls."""

    is_closed: bool

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self.settings = settings
        self.clock = clock
        self.core = ConnectionCore(settings, clock)
        self.core.flush = self.flush
        self._process = process.number
        self._socket: socket.socket | None = None
        self._poll = select.poll()
        self._buffer = bytearray(settings.frame_bytes_max + READ_BYTES)
        self._view = memoryview(self._buffer)
        self._fill = 0
        self._busy = threading.RLock()  # held by whoever works on the socket
        self._working = Working(self._busy)
        self._in_work = False  # an interrupt has left a read or a send half done if this is set before one
        self._pulse: Pulse | None = None
        # What other threads want to be called, and how they wake the one that waits.
        self._soon: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._waker, self._woken = socket.socketpair()
        self._waker.setblocking(False)
        self._woken.setblocking(False)

    def ended(self) -> None:
        """This life of the connection is over."""
        raise NotImplementedError

    def ready(self, deadline: Deadline) -> None:
        raise NotImplementedError

    def deadline(self, timeout_s: float | None = None) -> Deadline:
        raise NotImplementedError

    def open_channel(self, confirm: bool, transactional: bool, prefetch: int | None) -> Channel:
        raise NotImplementedError

    def channel(
        self, *, confirm: bool = False, transactional: bool = False, prefetch: int | None = None
    ) -> Channel:
        """A new channel: with publisher confirms, or transactions, or neither."""
        return self.open_channel(confirm, transactional, prefetch)

    def process_events(self, timeout_s: float = 0.0) -> None:
        """Lets the connection work while the application has nothing to ask: returns, blocked notices."""
        deadline = Deadline(self.clock, timeout_s)
        self.ready(self.deadline())
        self.pump(deadline.left_s())

    # The socket

    def connect_socket(self, endpoint: Endpoint, deadline: Deadline) -> None:
        settings = self.settings
        context = settings.context()
        self._fill = 0
        self._in_work = False
        made: socket.socket | None = None
        try:
            made = _connected(endpoint, deadline)
            prepare_socket(made, settings)
            if context is not None:
                made.settimeout(max(deadline.left_s(), SHORT_S))
                made = context.wrap_socket(made, server_hostname=settings.server_name(endpoint.host))
            made.setblocking(False)
        except BaseException as error:
            if made is not None:
                made.close()
            if isinstance(error, TimeoutError):
                raise silent(settings, endpoint, deadline) from None
            if isinstance(error, OSError | UnicodeError):
                raise connect_failed(settings, endpoint, error) from None
            raise
        self._socket = made
        self._poll = select.poll()
        self._poll.register(made, select.POLLIN)
        self._poll.register(self._woken, select.POLLIN)

    def begin_beating(self) -> None:
        """Heartbeats go out from now on, while no call waits too."""
        if self.core.heartbeat_s and self._pulse is None:
            self._pulse = Pulse(self, self.core.heartbeat_s)

    def drop(self) -> None:
        """Ends the socket at once."""
        made, self._socket = self._socket, None
        pulse, self._pulse = self._pulse, None
        if pulse is not None:
            pulse.stop()
        if made is not None:
            made.close()

    def hang_up(self, deadline: Deadline) -> None:
        """Ends the socket when what was written has left."""
        with self._working:
            self._drain(deadline)
        self.drop()

    @property
    def is_writable(self) -> bool:
        """Whether the socket takes more without much waiting for it already."""
        return self.core.output.pending() < OUTPUT_BYTES_MAX

    def flush(self) -> None:
        """Sends what the socket takes of everything that waits to be sent."""
        if process.number != self._process:
            self.check_process()
        busy = self._busy
        if not busy.acquire(False):
            self._working.wait()
        try:
            self._flush()
        finally:
            busy.release()

    def _flush(self) -> None:
        core = self.core
        output = core.output
        while output.pending() and self._socket is not None:
            sent = self._send(memoryview(output.buffer)[output.start : output.fill])
            if sent == 0:
                break
            output.sent(sent)
            self._in_work = False
        core.outbox.clear()
        output.waiting = False

    def write(self, octets: bytearray, deadline: Deadline) -> None:
        """Frames that need not go through the output, unless the socket takes them too slowly."""
        self.check_process()
        with self._working:
            self._flush()
            if self.core.output.pending() and not self._drain(deadline):
                self.core.output.write(bytes(octets))
                return
            view = memoryview(octets)
            at = 0
            while at < len(octets) and self._socket is not None:
                sent = self._send(view[at:])
                at += sent
                if sent:
                    self._in_work = False
                elif deadline.is_over():
                    self._put_first(view[at:])
                    return
                else:
                    self._await_socket(deadline)

    def _drain(self, deadline: Deadline) -> bool:
        """Waits until nothing is left in the output; False if the time is over before."""
        while self.core.output.pending() and self._socket is not None:
            if deadline.is_over():
                return False
            self._await_socket(deadline)
            self._flush()
        return True

    def _await_socket(self, deadline: Deadline) -> None:
        """Waits until the socket takes more, and reads meanwhile: a peer may read only what is read from it.

        Nothing of the output is sent: a frame may have left in part.
        """
        if self._socket is None:
            return
        if not self._soon.empty():
            self._take_soon()
        beat_s = self.core.beat_due_s()
        left_s = deadline.left_s() if beat_s is None else min(deadline.left_s(), max(beat_s, BEAT_S_MIN))
        self._poll.modify(self._socket, select.POLLIN | select.POLLOUT)
        found = self._poll.poll(math.ceil(left_s * 1000))
        ready = [each for each in found if each[0] != self._woken.fileno()]
        if len(ready) < len(found):
            self._take_soon()
        if not ready and self.core.is_silent():
            self._lost("nothing was heard from it, and it takes nothing")
        elif ready and ready[0][1] & ~select.POLLOUT:
            self.core.begin_wait()
            try:
                self._receive()
            finally:
                self.core.end_wait()

    def _put_first(self, octets: memoryview) -> None:
        """The rest of a frame goes before whatever waits in the output."""
        output = self.core.output
        waiting = bytes(memoryview(output.buffer)[output.start : output.fill])
        if waiting:
            output.sent(len(waiting))
        output.write(bytes(octets) + waiting)

    def give_up_life(self, reason: str) -> None:
        """What was being sent was interrupted: nobody knows how much of it has left."""
        if self.core.failure is None:
            self._lost(reason)

    def _send(self, octets: memoryview) -> int:
        """One send; how many octets the socket took. The caller counts them, and then the work is done."""
        if self._in_work:
            self._lost("an interrupt stopped the client in the middle of a read or a send")
        if self._socket is None:
            return 0
        self._in_work = True
        try:
            sent = self._socket.send(octets)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            self._in_work = False
            return 0
        except OSError as error:
            self._in_work = False
            self._read_rest()
            self._lost(error.strerror or type(error).__name__)
            return 0
        self.core.sent_s = self.clock.monotonic_s()
        return sent

    def _lost(self, reason: str) -> None:
        self.drop()
        self._in_work = False
        self.core.lost(reason)
        self.ended()

    def _read_rest(self) -> None:
        """A send fails before the close that explains it has been read."""
        for _ in range(LAST_READS_MAX):
            if not self._receive():
                return

    def _receive(self) -> bool:
        """One read; False if there is nothing to read."""
        if self._in_work:
            self._lost("an interrupt stopped the client in the middle of a read or a send")
        if self._socket is None:
            return False
        self._in_work = True
        try:
            size = self._socket.recv_into(self._view[self._fill :])
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            self._in_work = False
            return False
        except OSError as error:
            self._lost(error.strerror or type(error).__name__)
            return False
        if size == 0:
            self._lost("the server hung up")
            return False
        self._fill += size
        self._take()
        self._in_work = False
        return True

    def _take(self) -> None:
        """Hands what was read to the core; what is left of a frame goes to the front."""
        used = self.core.receive(self._buffer, self._fill)
        rest = self._fill - used
        if rest and used:
            self._view[:rest] = bytes(self._view[used : self._fill])
        self._fill = rest
        if self.core.protocol.paused and self.core.waits:
            self.core.overflow()
        if self.core.failure is not None:
            self._say_goodbye()

    def _say_goodbye(self) -> None:
        """The last octets, such as a close-ok, if the socket takes them; then no socket any more."""
        output = self.core.output
        if output.pending() and self._socket is not None:
            try:
                self._socket.send(memoryview(output.buffer)[output.start : output.fill])
            except OSError:
                self.core.closed.resolve(None)  # the server did not wait for it
        self.drop()
        self.ended()

    def pump(self, left_s: float | None) -> None:
        """Lets the connection work for at most so long: reads, answers, sends heartbeats.

        Something happened, or the time is over, when it returns.
        """
        self.check_process()
        with self._working:
            self.core.begin_wait()
            try:
                self._step(left_s)
            finally:
                self.core.end_wait()
        if self.core.callbacks:
            self.core.call_back()

    def _step(self, left_s: float | None) -> None:
        self._flush()
        if self._socket is None:
            return
        if self.settings.is_secure and self._receive():
            return  # what the TLS layer has read already wakes no poll
        if self._socket is None:
            return
        beat_s = self.core.beat_due_s()
        wait_s = beat_s if left_s is None else left_s if beat_s is None else min(left_s, beat_s)
        timeout_ms = None if wait_s is None else math.ceil(wait_s * 1000)
        events = select.POLLIN | (select.POLLOUT if self.core.output.pending() else 0)
        self._poll.modify(self._socket, events)
        ready = self._poll.poll(timeout_ms)
        if ready:
            self._flush()
            woken = self._woken.fileno()
            for descriptor, _ in ready:
                if descriptor == woken:
                    self._take_soon()
                else:
                    self._receive()
        elif beat_s is not None and (left_s is None or beat_s <= left_s):
            self._beat()

    def run_soon(self, function: Callable[[], object]) -> None:
        """Has a function called by the thread that works with the connection, in the call that waits or in
        the next one: the one way in from another thread."""
        self._soon.put(function)
        try:
            self._waker.send(b"x")
        except BlockingIOError:
            pass  # it is awake already
        except OSError:
            raise ConnectionClosed("the connection was closed; open another") from None

    def release(self) -> None:
        """The connection is closed for good: nobody has to be woken any more."""
        self._waker.close()
        self._woken.close()

    def _take_soon(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._woken.recv(4096)
        while not self._soon.empty():
            self.core.callbacks.append(self._soon.get())

    def _beat(self) -> None:
        """A heartbeat is due, or nothing was heard for too long: nothing is in the socket either."""
        self.core.beat()
        if self.core.failure is not None:
            self.drop()
            self.ended()
        else:
            self._flush()

    def beat_beside(self) -> None:
        """A heartbeat from another thread, if no call is at work: that sends its own."""
        if self._busy.acquire(blocking=False):
            try:
                if self._socket is not None and not self._in_work and not self.is_foreign():
                    self.core.beat_beside()
                    self._flush()
            finally:
                self._busy.release()

    def glance(self) -> None:
        """Takes what has come meanwhile, without waiting: above all the news that the server is gone."""
        if self._socket is not None and self.core.has_room():
            self.pump(0.0)

    # Waiting

    def is_foreign(self) -> bool:
        """Whether this process did not open the connection."""
        return process.number != self._process

    def check_process(self) -> None:
        """Two processes on one socket would tear each other's frames."""
        if process.number != self._process:
            raise ForkedConnection(
                f"the connection to {self.settings.address} was opened by process {self._process}, "
                f"and this is process {process.number}: open a connection in each process"
            )

    check_use = check_process  # all that asyncio would want to know besides

    def until_told(self, pending: Pending, deadline: Deadline) -> None:
        """Until something may have happened to the Pending, or the time is over."""
        self.pump(deadline.left_s())

    def sleep(self, delay_s: float) -> None:
        # A signal handler may raise here: an Event would be left with a lock that nobody holds.
        self.clock.sleep(delay_s)

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a connection cannot be pickled; send its settings and connect there")


def _connected(endpoint: Endpoint, deadline: Deadline) -> socket.socket:
    """A socket to the first address of the endpoint that answers; each has its share of the time."""
    addresses = _resolved(endpoint, deadline)
    failure: OSError = TimeoutError()
    for place, (family, address) in enumerate(addresses):
        made = socket.socket(family, socket.SOCK_STREAM)
        try:
            made.settimeout(max(deadline.left_s() / (len(addresses) - place), SHORT_S))
            made.connect(address)
        except BaseException as error:
            made.close()
            if not isinstance(error, OSError):
                raise
            failure = error
        else:
            return made
    raise failure


def _resolved(endpoint: Endpoint, deadline: Deadline) -> list[tuple[int, Any]]:
    """The addresses of the endpoint. A thread asks for those of a name: the system may take its time."""
    found: list[tuple[int, Any]] = []
    failures: list[OSError | UnicodeError] = []

    def look_up(host: str | bytes, flags: int) -> None:
        try:
            answers = socket.getaddrinfo(host, endpoint.port, type=socket.SOCK_STREAM, flags=flags)
            found.extend((family, address) for family, _, _, _, address in answers)
        except (OSError, UnicodeError) as error:
            failures.append(error)

    # As octets: for text Python loads the rules of international names, which takes milliseconds.
    look_up(endpoint.host.encode(), socket.AI_NUMERICHOST)
    if not found:
        failures.clear()
        thread = threading.Thread(
            target=look_up, args=(endpoint.host, 0), name="flintmq-resolver", daemon=True
        )
        thread.start()
        thread.join(max(deadline.left_s(), SHORT_S))
    if failures:
        raise failures[0]
    if not found:
        raise TimeoutError
    return list(found)


def finished(result: Any) -> Any:
    """The result of a function of the application."""
    return result


class Working:
    """Holds the socket for one piece of work; another thread that wants it meanwhile is told so."""

    __slots__ = ("busy",)

    def __init__(self, busy: threading.RLock) -> None:
        self.busy: Any = busy

    def __enter__(self) -> None:
        if not self.busy.acquire(False):
            self.wait()

    def wait(self) -> None:
        if not self.busy.acquire(timeout=HANDOVER_S):
            raise ClientError(
                "the connection is at work in another thread; open a connection for each thread"
            )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.busy.release()


class Waiters:
    """The caller that waits for something to change, and reads the socket meanwhile."""

    def __init__(self, transport: Transport, reading: bool = True) -> None:
        self.transport = transport

    def wake(self) -> None:
        """The caller looks for itself."""

    def wait(self, deadline: Deadline | None) -> None:
        self.transport.pump(None if deadline is None else deadline.left_s())


class Background:
    """Work that goes on beside the calls elsewhere; here the call that needs its result does it."""

    def __init__(self, transport: Transport, work: Callable[[Deadline | None], None]) -> None:
        self.transport = transport
        self.work = work
        self.is_running = False

    def start(self) -> None:
        """The next call begins with it."""

    def finish(self, deadline: Deadline) -> None:
        if not self.is_running:
            self.is_running = True
            try:
                self.work(deadline)
            finally:
                self.is_running = False
            self.transport.core.call_back()

    def cancel(self) -> None:
        """Nothing is under way between calls."""


class Lock:
    """Nothing comes between: a connection has one caller at a time."""

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


class Pulse(threading.Thread):
    """Sends heartbeats while the application computes. Ends with the socket, or with the connection."""

    def __init__(self, transport: Transport, heartbeat_s: float) -> None:
        super().__init__(name="flintmq-heartbeat", daemon=True)
        self.transport = weakref.ref(transport)
        self.interval_s = heartbeat_s / 4
        self.over = threading.Event()
        self.start()

    def run(self) -> None:
        while not self.over.wait(self.interval_s):
            transport = self.transport()
            if transport is None:
                return
            transport.beat_beside()
            del transport

    def stop(self) -> None:
        self.over.set()
