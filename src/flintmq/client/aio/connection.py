"""The connection of the async client: calls, recovery, services, and its end.

    async with await connect("amqp://guest:guest@localhost") as connection:
        async with connection.channel(confirm=True) as channel:
            ...

Every call has one deadline, which holds for all that it waits for: a connection that is being opened again,
room to publish, an answer, confirms. The socket is the Transport's.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from flintmq.client.aio.channel import Channel
from flintmq.client.aio.services import Browser, Lease, Stream
from flintmq.client.aio.transport import Background, Lock, Transport, Waiters, finished
from flintmq.client.core.channel import ChannelCore
from flintmq.client.core.deadline import Deadline
from flintmq.client.core.endpoints import in_order
from flintmq.client.core.errors import (
    CallTimeout,
    ClientError,
    CommitUnknown,
    ConnectFailed,
    ConnectionClosed,
    ConnectionLost,
    LoginRefused,
    PublishFailed,
    RequestUnknown,
    TransactionLost,
)
from flintmq.client.core.message import Message
from flintmq.client.core.pending import Pending, Steps
from flintmq.client.core.publishing import properties_of, together
from flintmq.client.core.services import Ask, Reply, Request, Sent, ServiceCalls
from flintmq.client.core.settings import Endpoint, Recovery, Settings
from flintmq.clock import Clock
from flintmq.wire.properties import BasicProperties
from flintmq.wire.tables import FieldTable

# A call that is repeated on a new connection this often, and kills each, is not repeated again.
CALL_ATTEMPTS_MAX = 3
CLOSE_TIMEOUT_S = 10.0
# A close whose time went by with waiting for confirms has this long to say goodbye.
GOODBYE_S_MIN = 0.5
# A call whose deadline is near has this long for an attempt to connect again: with less none would succeed.
ATTEMPT_S_MIN = 0.8
# All that a call does after its deadline has this long together.
LATE_S_MAX = 0.8
# A connection that is lost sooner after a recovery is not tried again at once.
STEADY_S = 10.0
# How long a broker may take a lost connection for alive: it holds exclusive queues and consumers meanwhile.
HELD_S_MIN = 10.0
HELD_HEARTBEATS = 2.5
FOREVER_S = 1e8  # three years; a timer takes no infinity

T = TypeVar("T")


class Connection(Transport):
    """A connection to a broker. Made by `connect`."""

    def __init__(self, settings: Settings, clock: Clock | None = None) -> None:
        super().__init__(settings, clock or Clock())
        self.is_closed = False
        self.changed = Waiters(self)
        self.core.on_change = self.changed.wake
        self._recovery = Background(self, self._recover)
        self.endpoint = settings.endpoints[0]  # where the broker was reached last
        self._turn = 0  # of the hosts
        self._attempt = 0  # of the recovery that goes on
        self._attempt_at_s: float | None = None  # when the next one is due
        self._short_lives = 0  # in a row: each makes the next delay longer
        self._steady_at_s = 0.0  # a life that lasts until then was no short one
        self._on_recovered: Callable[[], None] | None = None
        self._services: ServiceCalls | None = None
        self._services_lock = Lock()

    # Lives

    async def open(self, deadline: Deadline | None = None) -> None:
        """A socket to the first host that lets us in, and the handshake; each host has its share of time."""
        timeout_s = self.settings.connection_timeout_s
        until = Deadline(self.clock, timeout_s) if deadline is None else deadline.within(timeout_s)
        endpoints = in_order(self.settings, self.clock, self._turn)
        self._turn += 1
        failures: list[ConnectFailed] = []
        for place, endpoint in enumerate(endpoints):
            share = until.within(until.left_s() / (len(endpoints) - place))
            try:
                await self._open_at(endpoint, share)
            except LoginRefused:
                raise
            except ConnectFailed as error:
                failures.append(error)
            else:
                return
        raise failures[0] if len(failures) == 1 else ConnectFailed("; ".join(map(str, failures)))

    async def _open_at(self, endpoint: Endpoint, deadline: Deadline) -> None:
        opened = self.core.begin()
        try:
            if self.settings.token_provider is not None:
                self.core.secret = await self._token(self.settings.token_provider)
            await self.connect_socket(endpoint, deadline)
            await self.answer(opened, deadline)
        except BaseException as error:
            self.drop()
            self.core.end(error if isinstance(error, ClientError) else ConnectFailed("it was called off"))
            raise
        self.endpoint = endpoint
        self.begin_beating()

    async def _token(self, provider: Callable[[], Any]) -> str:
        """What the application's function gives. One that fails may be away for a while, as a broker may."""
        try:
            return str(await finished(provider()))
        except ClientError:
            raise
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
            raise ConnectFailed(
                f"no token for {self.settings.address}: the provider raised {what}"
            ) from error

    async def update_secret(self, secret: str | None = None, reason: str = "renewed") -> None:
        """Gives the broker a new password or token before the old one ends; without one the provider of the
        settings is asked for it."""
        if secret is None:
            if self.settings.token_provider is None:
                raise ClientError("there is no token_provider in the settings; give the secret itself")
            secret = await self._token(self.settings.token_provider)
        self.core.secret = secret
        await self.run(lambda: self.core.update_secret(secret.encode(), reason))

    def ended(self) -> None:
        """This life of the connection is over: is there to be another?"""
        failure = self.core.failure
        if failure is None or not self.core.opened_once or self._recovery.is_running:
            return
        if self.is_closed or self.settings.recovery is None or not isinstance(failure, ConnectionLost):
            self._give_up(failure)
            return
        now_s = self.clock.monotonic_s()
        self._short_lives = self._short_lives + 1 if now_s < self._steady_at_s else 0
        self.core.held_until_s = now_s + max(HELD_S_MIN, HELD_HEARTBEATS * self.core.heartbeat_s)
        self._recovery.start()

    async def _recover(self, deadline: Deadline | None) -> None:
        """Connects again after a loss, and restores what was. The last failure stays if that cannot be."""
        recovery = self.settings.recovery
        assert recovery is not None
        failure = self.core.failure
        while self._attempt < recovery.attempts_max:
            await self._wait_for_attempt(recovery, deadline)
            self._attempt += 1
            self._attempt_at_s = None
            try:
                await self._open_again(deadline)
            except LoginRefused as error:
                failure = error
                break
            except ClientError as error:
                failure = error
            else:
                self._attempt = 0
                return
        self._attempt = 0
        lost = ConnectionLost(
            f"the connection to {self.settings.address} was lost and could not be opened again: {failure}"
        )
        lost.__cause__ = failure
        self.core.failure = lost
        self.core.told()

    async def _wait_for_attempt(self, recovery: Recovery, deadline: Deadline | None) -> None:
        """Until the next attempt is due, which calls with short deadlines do not put off."""
        now_s = self.clock.monotonic_s()
        if self._attempt_at_s is None:
            turn = max(self._attempt, self._short_lives)
            self._attempt_at_s = now_s + recovery.delay_s(turn, self.clock.random.random())
        delay_s = max(0.0, self._attempt_at_s - now_s)
        if deadline is None or delay_s <= deadline.left_s():
            await self.sleep(delay_s)
            return
        await self.sleep(deadline.left_s())
        raise CallTimeout(
            f"the connection to {self.settings.address} is lost, and not open again in "
            f"{deadline.timeout_s:g} seconds"
        )

    async def _open_again(self, deadline: Deadline | None) -> None:
        """One attempt: all of it, or nothing that looks like a connection."""
        until = self.deadline() if deadline is None else deadline.at_least(ATTEMPT_S_MIN, LATE_S_MAX)
        try:
            await self.open(until)
            await self._drive(self.core.recover(), until)
            self.flush()
            if self.core.failure is not None:
                raise self.core.failure
            self._steady_at_s = self.clock.monotonic_s() + STEADY_S
            told = self._on_recovered
            if told is not None:
                self.core.callbacks.append(told)
        except BaseException as error:
            self.drop()
            lost = ConnectionLost(
                f"the connection to {self.settings.address} was lost, and is not open again: {error}"
            )
            self.core.end(lost)
            self.core.failure = lost
            raise

    def _give_up(self, failure: ClientError) -> None:
        for channel in list(self.core.channels.values()):
            channel.end(failure)
        self.core.told()

    # Waiting

    def deadline(self, timeout_s: float | None = None) -> Deadline:
        """That of a call which begins now."""
        return Deadline(self.clock, self.settings.timeout_s if timeout_s is None else timeout_s)

    def forever(self) -> Deadline:
        """For a consumer that waits without a limit."""
        return Deadline(self.clock, FOREVER_S)

    async def ready(self, deadline: Deadline) -> None:
        """Waits while the connection is being opened again; raises if it is over."""
        self.check_use()
        if self.is_closed:
            raise ConnectionClosed("the connection was closed; open another")
        failure = self.core.failure
        if failure is None and not self._recovery.is_running:
            return
        if failure is not None and not self._recovery.is_running:
            if self.settings.recovery is None or not isinstance(failure, ConnectionLost):
                raise failure
            self._recovery.start()
        await self._recovery.finish(deadline)
        if self.core.failure is not None:
            raise self.core.failure

    async def answer(self, pending: Pending, deadline: Deadline) -> Any:
        """What the Pending is resolved with. A call without an answer mostly ends the connection: a late one
        would belong to nobody."""
        self.flush()
        while not pending.done:
            if deadline.is_over():
                self._timed_out(pending, deadline)
            else:
                await self.until_told(pending, deadline)
        return pending.outcome()

    def _timed_out(self, pending: Pending, deadline: Deadline) -> None:
        what = (
            f"{pending.doing}: no answer from {self.settings.address} in {deadline.timeout_s:g} seconds"
            f"{self.blocking()}"
        )
        opening = pending is self.core.opened
        pending.fail(ConnectFailed(what) if opening else CallTimeout(what))
        if not pending.late_is_fine:
            self.drop()
            self.core.end(ConnectFailed(what) if opening else ConnectionLost(what))
            self.ended()

    def blocking(self) -> str:
        """For the text of an error: why the broker may not answer."""
        return f"; the broker blocks publishers ({self.blocked})" if self.blocked else ""

    async def _drive(self, steps: Steps[T], deadline: Deadline) -> T:
        """Runs the steps to their end, waiting at each."""
        try:
            pending = next(steps)
            while True:
                try:
                    result = await self.answer(pending, deadline)
                except BaseException as error:
                    pending = steps.throw(error)
                else:
                    pending = steps.send(result)
        except StopIteration as stop:
            result = stop.value
            return result  # type: ignore[no-any-return]

    async def run(
        self, steps: Callable[[], Steps[T]], timeout_s: float | None = None, repeat: bool = True
    ) -> T:
        """Runs the steps; when the connection is lost meanwhile, again on the next one."""
        deadline = self.deadline(timeout_s)
        for attempt in range(CALL_ATTEMPTS_MAX):
            await self.ready(deadline)
            try:
                return await self._drive(steps(), deadline)
            except (TransactionLost, CommitUnknown):
                raise
            except ConnectionLost:
                if not repeat or self.settings.recovery is None or attempt == CALL_ATTEMPTS_MAX - 1:
                    raise
        raise AssertionError("the last attempt returned or raised")

    # The application's side

    @property
    def is_open(self) -> bool:
        return not self.is_closed and not self._recovery.is_running and self.core.is_open

    @property
    def blocked(self) -> str | None:
        """Why the broker takes no messages at the moment; None when it does."""
        return self.core.blocked

    def on_blocked(self, told: Callable[[str | None], None] | None) -> None:
        """Has `told(reason)` called when the broker blocks publishers, with None when it stops to."""
        self.core.on_blocked = told

    def on_lost(self, told: Callable[[ClientError], None] | None) -> None:
        """Has `told(error)` called when the connection is lost, whether it comes back or not."""
        self.core.on_lost = told

    def on_recovered(self, told: Callable[[], None] | None) -> None:
        """Has `told()` called when the connection is open again, with all that was restored."""
        self._on_recovered = told

    @property
    def server_properties(self) -> FieldTable:
        return self.core.server_properties

    async def open_channel(self, confirm: bool, transactional: bool, prefetch: int | None) -> Channel:
        deadline = self.deadline()
        await self.ready(deadline)
        core = self.core.new_channel(confirm, transactional, prefetch)
        try:
            await self._drive(core.open(), deadline)
        except ConnectionLost as error:
            if self.settings.recovery is None:
                core.end(error)
                raise
            await self._await_opened(core, deadline)
        except BaseException:
            core.discard(ClientError("the channel was never open"))
            raise
        if core.failure is not None:
            raise core.failure
        return Channel(self, core)

    async def _await_opened(self, core: ChannelCore, deadline: Deadline) -> None:
        """The recovery opens the channel with all others."""
        try:
            await self.ready(deadline)
        except BaseException:
            core.discard(ClientError("the channel was never open"))
            raise

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
        deadline = self.deadline(timeout_s)
        request = Request(ask)
        for _ in range(CALL_ATTEMPTS_MAX):
            services = await self._open_services(deadline)
            try:
                reply = await self.run(lambda: services.ask(request), deadline.left_s(), repeat=False)  # noqa: B023
            except ConnectionLost as error:
                if self.settings.recovery is None or not request.may_repeat():
                    raise request.lost(error) from error
                lost = error
            except RequestUnknown:
                if not request.renew():
                    raise
            else:
                return ask.read(reply)
        raise request.lost(lost) from lost

    async def _open_services(self, deadline: Deadline) -> ServiceCalls:
        async with self._services_lock:
            if self._services is None or self._services.is_over():
                services = ServiceCalls(self.core)
                await self.run(services.open, deadline.left_s())
                self._services = services
            return self._services

    async def call(
        self,
        body: bytes,
        exchange: str = "",
        routing_key: str = "",
        *,
        headers: FieldTable | None = None,
        properties: BasicProperties | None = None,
        timeout_s: float | None = None,
    ) -> Message:
        """Publishes a request with a `reply_to` of its own, and returns the reply; Consumer.serve answers.

        A request that no queue takes is a PublishFailed. One whose reply is lost with the connection is a
        RequestUnknown: it is not made again by itself.
        """
        deadline = self.deadline(timeout_s)
        services = await self._open_services(deadline)
        made = properties_of(properties, headers, False)
        sent = Sent()
        try:
            return await self.run(
                lambda: services.call(body, exchange, routing_key, made, sent),
                deadline.left_s(),
                repeat=False,
            )
        except ConnectionLost as error:
            if not sent.is_sent:
                raise
            raise RequestUnknown(f"the request to {routing_key or exchange!r}", str(error)) from error

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
        """Waits for outstanding confirms, and says goodbye; PublishFailed if a message is not safe.

        Nothing happens if it is closed already, or was opened by another process.
        """
        if self.is_closed or self.is_foreign():
            return
        self.check_use()
        ledgers = [core.ledger for core in self.core.channels.values() if core.ledger is not None]
        failures: list[PublishFailed] = []
        cause: ClientError | None = None
        deadline = self.deadline()
        try:
            for core in list(self.core.channels.values()):
                if core.ledger is not None and core.ledger.has_something_to_tell():
                    await Channel(self, core).wait_for_confirms(deadline.left_s())
        except PublishFailed as failure:
            failures.append(failure)
        except ClientError as error:
            cause = error
        finally:
            await self._abandon(deadline)
        # Each channel that has ended tells what it leaves behind, and those that ended before.
        told = {id(ledger): ledger for ledger in (*ledgers, *self.core.buried)}
        failures += filter(None, (ledger.take_failure() for ledger in told.values()))
        self.core.buried.clear()
        if failures:
            raise together(failures) from (failures[0].__cause__ or cause)
        if cause is not None and not isinstance(cause, ConnectionLost):
            raise cause

    def _goodbye_s(self) -> float:
        """How long the broker has to say goodbye. One that blocks publishers reads nothing."""
        is_confirmed = all(core.ledger is not None for core in self.core.channels.values())
        return GOODBYE_S_MIN if self.blocked is not None and is_confirmed else CLOSE_TIMEOUT_S

    async def _abandon(self, deadline: Deadline) -> None:
        """Goodbye, without another word about messages."""
        if self.is_closed or self.is_foreign():
            return
        self.is_closed = True
        try:
            await self._recovery.cancel()
            until = deadline.at_least(GOODBYE_S_MIN, LATE_S_MAX).within(self._goodbye_s())
            await self.answer(self.core.close(), until)
            await self.hang_up(until)
        except ClientError:
            self.core.closed.resolve(None)  # it is gone: closed as well
        finally:
            self.drop()
            self.release()
            self._give_up(ConnectionClosed("the connection was closed"))

    async def __aenter__(self) -> Connection:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()
        else:
            await self._abandon(self.deadline())

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else "open" if self.core.is_open else "lost"
        return f"<Connection to {self.settings.address}, {state}>"


async def connect(source: str | Settings = "amqp://guest:guest@localhost", **options: Any) -> Connection:
    """Connects to a broker by URI or settings; options are fields of Settings and win over the URI."""
    connection = Connection(Settings.of(source, **options))
    try:
        await connection.open()
    except BaseException:
        connection.release()
        raise
    return connection
