"""The sync client: blocking calls on a socket of its own, with no thread and no event loop.

    with connect("amqp://guest:guest@localhost") as connection:
        with connection.channel(confirm=True) as channel:
            ...

A connection belongs to one thread, and to the process that opened it: after a fork it refuses to be used,
as two processes on one socket would tear each other's frames. The socket is read whenever a call waits,
so heartbeats go out only then: none are asked for unless the settings say so, and TCP keepalive finds a
peer that is gone.
"""

from __future__ import annotations

import math
import os
import select
import socket
import ssl
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from flintmq.client.core.connection import ConnectionCore
from flintmq.client.core.errors import (
    CallTimeout,
    ClientError,
    ConnectFailed,
    ConnectionClosed,
    ConnectionLost,
    ForkedConnection,
    LoginRefused,
    TransactionLost,
)
from flintmq.client.core.pending import Pending, Steps
from flintmq.client.core.services import Ask, Reply, ServiceCalls
from flintmq.client.core.settings import Settings
from flintmq.client.sync.channel import Channel
from flintmq.client.sync.services import Browser, Lease, Stream
from flintmq.clock import Clock
from flintmq.wire.tables import FieldTable

# One read; with what was left of a frame before it.
READ_BYTES = 262_144
# A call that is repeated on a new connection this often, and kills each, is not repeated again.
CALL_ATTEMPTS_MAX = 3
KEEPALIVE_IDLE_S = 30
CLOSE_TIMEOUT_S = 10.0

T = TypeVar("T")


class Connection:
    """A connection to a broker. Use it in a `with` statement, or close it."""

    def __init__(self, settings: Settings, clock: Clock | None = None) -> None:
        self.settings = settings
        self.clock = clock or Clock()
        self.core = ConnectionCore(settings, self.clock, heartbeat_s_default=0)
        self.core.flush = self.flush
        self.is_closed = False
        self._process = os.getpid()
        self._socket: socket.socket | None = None
        self._poll = select.poll()
        self._buffer = bytearray(settings.frame_bytes_max + READ_BYTES)
        self._view = memoryview(self._buffer)
        self._fill = 0
        self._services: ServiceCalls | None = None
        self._recovering = False
        self._open()

    # The socket

    def _open(self) -> None:
        """A socket, and the handshake."""
        opened = self.core.begin()
        self._fill = 0
        try:
            self._socket = _connect(self.settings)
            self._poll = select.poll()
            self._poll.register(self._socket, select.POLLIN)
            self._wait(opened, self.settings.connection_timeout_s)
        except BaseException:
            self._drop()
            raise

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def flush(self) -> None:
        """Sends everything that waits to be sent."""
        self.check_process()
        output = self.core.output
        while output.pending() and self._socket is not None:
            sent = self._send(memoryview(output.buffer)[output.start : output.fill])
            output.sent(sent)
            if sent == 0:
                self._step(None, write=True)
        self.core.outbox.clear()
        output.waiting = False

    def send_all(self, octets: bytearray) -> None:
        """Frames that need not go through the output."""
        self.flush()
        view = memoryview(octets)
        at = 0
        while at < len(octets) and self._socket is not None:
            sent = self._send(view[at:])
            at += sent
            if sent == 0:
                self._step(None, write=True)

    def _send(self, octets: memoryview) -> int:
        if self._socket is None:
            return 0
        try:
            sent = self._socket.send(octets)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return 0
        except OSError as error:
            self._lost(error)
            return 0
        self.core.sent_s = self.core.clock.monotonic_s()
        return sent

    def _lost(self, error: OSError | None) -> None:
        """The socket has ended; what it still holds of the server's last words is read first."""
        if error is not None and self._socket is not None:
            self._read_rest()
        self._drop()
        reason = "the server hung up" if error is None else error.strerror or type(error).__name__
        self.core.lost(reason)

    def _read_rest(self) -> None:
        """A send fails before the close that explains it has been read."""
        for _ in range(64):
            try:
                if not self._receive():
                    return
            except OSError:
                return

    def _receive(self) -> bool:
        """One read; False if there is nothing to read."""
        if self._socket is None:
            return False
        try:
            size = self._socket.recv_into(self._view[self._fill :])
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False
        if size == 0:
            self._lost(None)
            return False
        self._fill += size
        self._take()
        return True

    def _take(self) -> None:
        """Hands what was read to the core; what is left of a frame goes to the front."""
        used = self.core.receive(self._buffer, self._fill)
        rest = self._fill - used
        if rest and used:
            self._view[:rest] = bytes(self._view[used : self._fill])
        self._fill = rest
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
        self._drop()

    def _step(self, timeout_s: float | None, write: bool = False) -> None:
        """Waits for the socket, at most so long, and reads once."""
        if self._socket is None:
            return
        beat_s = self.core.beat()
        if self.core.output.pending() and not write:
            self.flush()
            if self._socket is None:
                return
        paused = self.core.protocol.paused
        if not paused and self._settings_tls() and self._receive():
            return
        waits = [wait for wait in (timeout_s, beat_s) if wait is not None]
        timeout_ms = math.ceil(min(waits) * 1000) if waits else None
        events = (0 if paused else select.POLLIN) | (select.POLLOUT if write else 0)
        self._poll.modify(self._socket, events)
        if not self._poll.poll(timeout_ms) or paused:
            return
        try:
            self._receive()
        except OSError as error:
            self._drop()
            self.core.lost(error.strerror or type(error).__name__)

    def _settings_tls(self) -> bool:
        return self.settings.tls is not None

    def pump(self, timeout_s: float | None) -> None:
        """Lets the connection work for at most so long: reads, answers, sends heartbeats.

        Something happened, or the time is over, when it returns. Who calls this wants to read: if too much
        waits for the application to be read by other ways, that can never be.
        """
        if self.core.protocol.paused:
            self.core.end(
                ConnectionClosed(
                    f"{self.core.received_bytes} octets of deliveries wait to be read before anything "
                    "else can be; use a smaller prefetch, or a connection of its own for consumers"
                )
            )
            self._drop()
            return
        if self._fill >= 8 and self.core.failure is None:
            before = self._fill
            self._take()  # what a pause left behind
            if self._fill != before:
                return
        self._step(timeout_s)

    def glance(self) -> None:
        """Takes what has come meanwhile, without waiting: above all the news that the server is gone."""
        if self._socket is not None and not self.core.protocol.paused:
            self.pump(0.0)

    # Waiting

    def _wait(self, pending: Pending, timeout_s: float) -> Any:
        deadline_s = self.clock.monotonic_s() + timeout_s
        self.flush()
        while not pending.done:
            left_s = deadline_s - self.clock.monotonic_s()
            if left_s <= 0:
                self._timed_out(pending, timeout_s)
            elif self._socket is None:
                pending.fail(self.core.failure or ConnectionClosed("the connection was closed"))
            else:
                self.pump(left_s)
        return pending.outcome()

    def _timed_out(self, pending: Pending, timeout_s: float) -> None:
        """A late answer would mostly belong to nobody: then the connection ends."""
        what = f"{pending.doing}: no answer from {self.settings.address} in {timeout_s:g} seconds"
        if self.core.blocked is not None:
            what += f"; the broker blocks publishers ({self.core.blocked})"
        opening = pending is self.core.opened
        pending.fail(ConnectFailed(what) if opening else CallTimeout(what))
        if not pending.late_is_fine:
            self._drop()
            self.core.end(ConnectFailed(what) if opening else ConnectionLost(what))

    def _drive(self, steps: Steps[T], timeout_s: float) -> T:
        """Runs the steps to their end, waiting at each."""
        try:
            pending = next(steps)
            while True:
                try:
                    result = self._wait(pending, timeout_s)
                except ClientError as error:
                    pending = steps.throw(error)
                else:
                    pending = steps.send(result)
        except StopIteration as stop:
            result = stop.value
            return result  # type: ignore[no-any-return]

    def check_process(self) -> None:
        """Two processes on one socket would tear each other's frames."""
        if os.getpid() != self._process:
            raise ForkedConnection(
                f"the connection to {self.settings.address} was opened by process {self._process}, "
                f"and this is process {os.getpid()}: open a connection in each process"
            )

    def check(self) -> None:
        """Whether it may be used here."""
        self.check_process()
        if self.is_closed:
            raise ConnectionClosed("the connection was closed; open another")

    def run(self, steps: Callable[[], Steps[T]], timeout_s: float | None = None, repeat: bool = True) -> T:
        """Runs the steps; when the connection is lost meanwhile, again on the next one."""
        self.check()
        timeout_s = self.settings.timeout_s if timeout_s is None else timeout_s
        for attempt in range(CALL_ATTEMPTS_MAX):
            if self.core.failure is not None:
                self.recover()
            try:
                return self._drive(steps(), timeout_s)
            except TransactionLost:
                raise
            except ConnectionLost:
                if not repeat or self.settings.recovery is None or attempt == CALL_ATTEMPTS_MAX - 1:
                    raise
        raise AssertionError("the last attempt returned or raised")

    # Recovery

    def recover(self) -> None:
        """Connects again after a loss, and restores what was; raises the failure if it cannot be."""
        self.check()
        failure = self.core.failure
        if failure is None or self._recovering:
            return
        recovery = self.settings.recovery
        if recovery is None or not isinstance(failure, ConnectionLost):
            raise failure
        self._recovering = True
        try:
            for attempt in range(recovery.attempts_max):
                select.select([], [], [], recovery.delay_s(attempt, self.clock.random.random()))
                try:
                    self._open()
                    self._drive(self.core.recover(), self.settings.timeout_s)
                    self.flush()
                    if self.core.failure is None:
                        return
                except LoginRefused as error:
                    failure = error
                    break
                except (ConnectFailed, ConnectionClosed, CallTimeout) as error:
                    failure = error
        finally:
            self._recovering = False
        self._drop()
        lost = ConnectionLost(
            f"the connection to {self.settings.address} was lost and could not be opened again: {failure}"
        )
        self.core.failure = lost
        raise lost

    # The application's side

    @property
    def is_open(self) -> bool:
        return not self.is_closed and self.core.is_open

    @property
    def blocked(self) -> str | None:
        """Why the broker takes no messages at the moment; None when it does."""
        return self.core.blocked

    @property
    def server_properties(self) -> FieldTable:
        return self.core.server_properties

    def channel(
        self, *, confirm: bool = False, transactional: bool = False, prefetch: int | None = None
    ) -> Channel:
        """A new channel: with publisher confirms, or transactions, or neither."""
        self.check()
        if self.core.failure is not None:
            self.recover()
        core = self.core.new_channel(confirm, transactional, prefetch)
        try:
            self._drive(core.open(), self.settings.timeout_s)
        except ConnectionLost:
            if self.settings.recovery is None:
                core.end(ConnectionLost("the channel was never open"))
                raise
            self.recover()  # opens it as well
        except ClientError as error:
            core.end(error)
            raise
        return Channel(self, core)

    def process_events(self, timeout_s: float = 0.0) -> None:
        """Lets the connection work while the application has nothing to ask: heartbeats, blocked notices."""
        self.check()
        if self.core.failure is not None:
            self.recover()
        if not self.core.protocol.paused:
            self.pump(timeout_s)

    def request(
        self,
        service: str,
        arguments: FieldTable | None = None,
        body: bytes = b"",
        *,
        timeout_s: float | None = None,
    ) -> Reply:
        """Asks a service of the broker; a refusal is a ServiceError."""
        return self.ask(Ask(service, arguments or {}, body, lambda reply: reply), timeout_s)

    def ask(self, ask: Ask[T], timeout_s: float | None = None) -> T:
        if self._services is None or self._services.is_over():
            self._services = ServiceCalls(self.core)
        services = self._services
        return ask.read(self.run(lambda: services.ask(ask), timeout_s))

    def stream(self, queue: str) -> Stream:
        """A stream queue, read by offset."""
        return Stream(self, queue)

    def browse(self, queue: str) -> Browser:
        """The messages that wait in a queue, looked at and searched without taking any."""
        return Browser(self, queue)

    def lease(self, queue: str, consumer: str) -> Lease:
        """Batches of a queue's messages, leased to a consumer by name."""
        return Lease(self, queue, consumer)

    def close(self) -> None:
        """Waits for outstanding confirms, and says goodbye; PublishFailed if a message is not safe.

        Nothing happens if it is closed already, or was opened by another process.
        """
        if self.is_closed or os.getpid() != self._process:
            return
        try:
            for core in list(self.core.channels.values()):
                if core.ledger is not None and core.ledger.segments:
                    Channel(self, core).wait_for_confirms()
        finally:
            self._abandon()

    def _abandon(self) -> None:
        """Goodbye, without another word about messages."""
        if self.is_closed or os.getpid() != self._process:
            return
        self.is_closed = True
        try:
            if self._socket is not None:
                self._wait(self.core.close(), min(self.settings.timeout_s, CLOSE_TIMEOUT_S))
        except ClientError:
            self.core.closed.resolve(None)  # it is gone: closed as well
        finally:
            self._drop()
            for channel in list(self.core.channels.values()):
                channel.end(ConnectionClosed("the connection was closed"))

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self._abandon()

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else "open" if self.core.is_open else "lost"
        return f"<Connection to {self.settings.address}, {state}>"

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a connection cannot be pickled; send its settings and connect there")


def _connect(settings: Settings) -> socket.socket:
    """A connected socket that never blocks, encrypted if the settings say so."""
    address = settings.address
    try:
        made = socket.create_connection((settings.host, settings.port), settings.connection_timeout_s)
    except OSError as error:
        reason = error.strerror or str(error) or type(error).__name__
        raise ConnectFailed(f"{address} cannot be reached: {reason}; is the broker running there?") from None
    try:
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_KEEPIDLE"):
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_S)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_IDLE_S // 3)
        if settings.tls is not None:
            name = settings.tls.server_name or settings.host
            made = settings.tls.context().wrap_socket(made, server_hostname=name)
        made.setblocking(False)
    except ssl.SSLCertVerificationError as error:
        made.close()
        raise ConnectFailed(f"{address} is not trusted: {error.verify_message}; name its authority") from None
    except OSError as error:
        made.close()
        reason = error.strerror or type(error).__name__
        raise ConnectFailed(f"{address} does not speak TLS with us: {reason}") from None
    except BaseException:
        made.close()
        raise
    return made


def connect(source: str | Settings = "amqp://guest:guest@localhost", **options: Any) -> Connection:
    """Connects to a broker by URI or settings; options are fields of Settings and win over the URI."""
    return Connection(Settings.of(source, **options))
