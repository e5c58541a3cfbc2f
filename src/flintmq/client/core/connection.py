"""A client's connection without its socket: handshake, channels, heartbeats, recovery.

    octets in  --> receive() --> events --> Pending objects, inboxes, ledgers
    octets out <-- output    <-- calls

Drivers (`sync`, `aio`) own the socket: they bring what they read, send what is in `output`, and call
`lost` when the socket ends. What takes several calls is a generator of Pending objects (`Steps`).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from flintmq import __version__
from flintmq.client.core.channel import ChannelCore
from flintmq.client.core.confirms import Ledger
from flintmq.client.core.errors import (
    AccessRefused,
    CallTimeout,
    ClientError,
    ConnectFailed,
    ConnectionClosed,
    ConnectionLost,
    LoginRefused,
    ResourceLocked,
    channel_closed,
)
from flintmq.client.core.inbox import Intake
from flintmq.client.core.message import received
from flintmq.client.core.pending import Pending, Steps
from flintmq.client.core.settings import Settings
from flintmq.client.core.topology import QueueRecord, Topology
from flintmq.clock import Clock
from flintmq.errors import ConnectionFault, ProtocolMisuse
from flintmq.protocol import phases
from flintmq.protocol.client import ClientChannel, ClientConnection
from flintmq.protocol.client_states import ClientState
from flintmq.protocol.outbox import Output
from flintmq.protocol.requests import REQUESTS, Answered
from flintmq.protocol.states import LOST
from flintmq.scram import ClientExchange, ScramFault
from flintmq.wire import amqp, methods
from flintmq.wire.fields import encode_shortstr
from flintmq.wire.methods import Method
from flintmq.wire.tables import FieldTable

# Deliveries that may wait for the application while a call waits for something else, in limits of the
# settings: where nothing but these bounds them, and where the prefetch of each consumer does.
RECEIVED_FACTOR = 4
RECEIVED_FACTOR_BOUNDED = 1_000_000

# Channels that ended with something to tell, and of which nobody asked.
BURIED_MAX = 1000
# No channel of the application is open when what was declared is declared again.
SPARE_NUMBER = 1
# A refusal at the login that is about who we are; any other may pass.
_REFUSALS = (amqp.ACCESS_REFUSED, amqp.NOT_ALLOWED, amqp.NOT_FOUND, amqp.INVALID_PATH)

log = logging.getLogger("flintmq.client")

_CAPABILITIES: FieldTable = {
    "authentication_failure_close": True,
    "basic.nack": True,
    "connection.blocked": True,
    "consumer_cancel_notify": True,
    "content.interrupt": True,
    "publisher_confirms": True,
}
PLAIN_TO_TLS = "; a port for TLS, such as 5671, takes amqps://"
_HEARTBEAT = bytes((amqp.FRAME_HEARTBEAT, 0, 0, 0, 0, 0, 0, amqp.FRAME_END))


class ConnectionCore(Intake):
    """One connection of a client, through all its lives."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self.settings = settings
        self.clock = clock
        self.flush: Callable[[], None] = _nowhere  # of the driver: send what is in the output
        self.on_blocked: Callable[[str | None], None] | None = None
        self.on_resumed: Callable[[], None] | None = None
        self.on_change: Callable[[], None] | None = None  # something that calls wait for may have come
        self.waits = 0  # calls that wait for what only the socket can bring
        self.callbacks: deque[Callable[[], object]] = deque()
        self.secret: str | None = None  # in the place of the password
        self.updating: deque[Pending] = deque()  # update-secret without an answer
        self.scram: ClientExchange | None = None  # a login in progress
        self.calling_back = False
        self.channels: dict[int, ChannelCore] = {}
        self.closing: dict[int, Pending] = {}  # numbers whose close the server has not answered
        self.spare: ChannelCore | None = None  # declares again after a loss
        self.buried: list[Ledger] = []  # of channels that ended with something to tell
        self.topology = Topology()
        self.opened_once = False
        self.was_open = False  # this life
        self.held_until_s = 0.0  # what is ours may be held by a connection that the broker thinks alive
        self.on_lost: Callable[[ClientError], None] | None = None
        self.epoch = 0
        self.received_bytes = 0
        self.received_bytes_max = settings.received_bytes_max
        self.begin()

    # A life of the connection

    def begin(self) -> Pending:
        """A new socket is about to be there; the Pending is resolved when the connection is open."""
        self.outbox: list[Output] = []
        self.output = Output(self.outbox, None)
        self.protocol = ClientConnection(self, self.output, self.settings.message_bytes_max)
        self.failure: ClientError | None = None
        self.blocked: str | None = None
        self.heartbeat_s = 0
        self.heard_s = self.sent_s = self.clock.monotonic_s()
        self.server_properties: FieldTable = {}
        self.epoch += 1
        self.opened = Pending(f"connecting to {self.settings.address}")
        self.closed = Pending("closing the connection")
        self.protocol.greet(self.settings.version)
        return self.opened

    @property
    def is_open(self) -> bool:
        return self.failure is None and self.protocol.state == ClientState.OPEN

    def receive(self, buffer: bytearray, size: int) -> int:
        """Takes what was read; the octets used up."""
        self.heard_s = self.clock.monotonic_s()
        try:
            return self.protocol.receive(buffer, size)
        except ConnectionFault as fault:
            self._violated(fault)
            return size

    def _violated(self, fault: ConnectionFault) -> None:
        """The server broke the protocol: say so to it, and have done."""
        text = fault.text.encode("utf-8", "replace")[:200].decode("utf-8", "ignore")
        state = self.protocol.state
        if state in (ClientState.OPEN, ClientState.CLOSING):
            self.protocol.send(
                0,
                methods.ConnectionClose(
                    reply_code=fault.code,
                    reply_text=text,
                    class_id=fault.class_id,
                    method_id=fault.method_id,
                ),
            )
        what = f"{self.settings.address} broke the protocol: {fault.text}"
        if state in (ClientState.OPEN, ClientState.CLOSING):
            self.end(ConnectionClosed(what, fault.code, fault.text))
        else:
            self.end(ConnectFailed(f"{what}; is it an AMQP server?"))

    def lost(self, reason: str) -> None:
        """The socket has ended."""
        state = self.protocol.state
        address = self.settings.address
        if state == ClientState.CLOSING:
            self.end(ConnectionClosed("the connection was closed"))
        elif state == ClientState.LOGIN and not self._says_why_not():
            who, advice = self._login()
            self.end(LoginRefused(f"{address} hung up at the login of {who}; {advice}"))
        elif state == ClientState.OPEN:
            self.end(ConnectionLost(f"the connection to {address} was lost: {reason}"))
        else:
            # A port for TLS waits for the hello of TLS, and hangs up.
            way = "" if self.settings.is_secure or state != ClientState.START else PLAIN_TO_TLS
            self.end(ConnectFailed(f"{address} hung up before the connection was open: {reason}{way}"))

    def _login(self) -> tuple[str, str]:
        """Who we are to the server, and what to look at where that is refused."""
        if self.settings.mechanism == "EXTERNAL":
            return "our certificate", "check the certificate, and the user whom it names"
        return f"user {self.settings.user!r}", "check user and password"

    def _says_why_not(self) -> bool:
        """Whether the server would answer a wrong login with a close, and not hang up."""
        capabilities = self.server_properties.get("capabilities")
        told = isinstance(capabilities, dict) and capabilities.get("authentication_failure_close") is True
        return told or self.opened_once or len(self.settings.endpoints) > 1

    def end(self, error: ClientError, *, is_wanted: bool = False) -> None:
        """This life of the connection is over; whoever waits is told."""
        if self.failure is not None:
            return
        self.failure = error
        is_wanted = is_wanted or self.protocol.state == ClientState.CLOSING
        self.protocol.follow(LOST)
        self.opened.fail(error)
        self.closed.resolve(None)
        while self.updating:
            self.updating.popleft().fail(error)
        closing, self.closing = self.closing, {}
        for closed in closing.values():
            closed.resolve(None)
        for channel in (*self.channels.values(), *filter(None, (self.spare,))):
            channel.interrupted(error)
        told = self.on_lost
        if told is not None and self.was_open and not is_wanted:
            self.callbacks.append(lambda: told(error))
        self.was_open = False

    def told(self) -> None:
        """Whoever waits for something looks again."""
        for channel in list(self.channels.values()):
            channel.told()
        self.changed()

    def changed(self) -> None:
        if self.on_change is not None:
            self.on_change()

    def call_back(self) -> None:
        """Calls what the application wants to be called, when nothing is half done."""
        if self.calling_back:  # a callback that makes a call: the next one has to wait for its end
            return
        self.calling_back = True
        try:
            while self.callbacks:
                callback = self.callbacks.popleft()
                try:
                    callback()
                except Exception:
                    log.exception("a callback of the connection to %s failed", self.settings.address)
        finally:
            self.calling_back = False

    # Reading, and when not to

    def has_room(self) -> bool:
        """Whether more may be read although nobody waits for it."""
        return self.received_bytes <= self.settings.received_bytes_max

    def begin_wait(self) -> None:
        """A call waits for what only the socket can bring: reading goes on, whatever else comes with it."""
        self.waits += 1
        if self.waits == 1:
            factor = RECEIVED_FACTOR_BOUNDED
            for channel in self.channels.values():
                if channel.consumers and not channel.is_bounded():
                    factor = RECEIVED_FACTOR
            self.received_bytes_max = self.settings.received_bytes_max * factor
            if self.protocol.paused:
                self.protocol.paused = False
                self.resumed()

    def overflow(self) -> None:
        """Too much has come for a caller that reads something else first: it would wait for ever."""
        self.end(
            ConnectionClosed(
                f"{self.received_bytes} octets of deliveries wait to be read before anything else can be; "
                "use a smaller prefetch, or a connection of its own for consumers"
            )
        )

    def end_wait(self) -> None:
        self.waits -= 1
        if self.waits == 0:
            self.received_bytes_max = self.settings.received_bytes_max

    def resumed(self) -> None:
        if self.on_resumed is not None:
            self.on_resumed()

    # The methods of the connection class

    def connection_notice(self, method: Method) -> None:
        if isinstance(method, methods.ConnectionStart):
            self._log_in(method)
        elif isinstance(method, methods.ConnectionSecure):
            self._answer(method)
        elif isinstance(method, methods.ConnectionTune):
            self._tune(method)
        elif isinstance(method, methods.ConnectionOpenOk):
            self.opened_once = self.was_open = True
            self.opened.resolve(None)
        elif isinstance(method, methods.ConnectionClose):
            self._closed_by_server(method)
        elif isinstance(method, methods.ConnectionCloseOk):
            self.end(ConnectionClosed("the connection was closed"), is_wanted=True)
        elif isinstance(method, methods.ConnectionUpdateSecretOk):
            if not self.updating:
                raise ConnectionFault(amqp.COMMAND_INVALID, f"{method.NAME}: nobody asked for it")
            self.updating.popleft().resolve(None)
        elif isinstance(method, methods.ConnectionBlocked):
            self._set_blocked(method.reason or "no reason given")
        elif isinstance(method, methods.ConnectionUnblocked):
            self._set_blocked(None)
        else:
            raise ConnectionFault(amqp.NOT_IMPLEMENTED, f"{method.NAME} is not served")

    def _log_in(self, method: methods.ConnectionStart) -> None:
        mechanism = self.settings.mechanism
        if mechanism.encode() not in method.mechanisms.split():
            offered = method.mechanisms.decode("ascii", "replace")
            advice = "; show it a certificate" if mechanism == "EXTERNAL" else ""
            self.end(
                LoginRefused(
                    f"{self.settings.address} offers the logins {offered}, and not {mechanism}{advice}"
                )
            )
            return
        self.server_properties = method.server_properties
        properties: FieldTable = {
            "product": "FlintMQ client",
            "version": __version__,
            "platform": "Python",
            **self.settings.client_properties,
            "capabilities": dict(_CAPABILITIES),
        }
        if self.settings.name:
            properties["connection_name"] = self.settings.name
        self.protocol.send(
            0,
            methods.ConnectionStartOk(
                client_properties=properties,
                mechanism=mechanism,
                response=self._first_response(),
                locale="en_US",
            ),
        )

    def _first_response(self) -> bytes:
        user = self.settings.user
        password = self.settings.password.reveal() if self.secret is None else self.secret
        self.scram = None
        if self.settings.mechanism == "SCRAM-SHA-256":
            self.scram = ClientExchange(user, password)
            return self.scram.first()
        return (
            b"\0" + user.encode() + b"\0" + password.encode() if self.settings.mechanism == "PLAIN" else b""
        )

    def _answer(self, method: methods.ConnectionSecure) -> None:
        """A challenge; only SCRAM has any."""
        if self.scram is None:
            raise ConnectionFault(
                amqp.COMMAND_INVALID, f"{method.NAME}: {self.settings.mechanism} has no such"
            )
        try:
            response = self.scram.answer(method.challenge)
        except ScramFault as fault:
            self.end(LoginRefused(f"{self.settings.address} is not trusted: {fault}"))
            return
        self.protocol.send(0, methods.ConnectionSecureOk(response=response))

    def _tune(self, method: methods.ConnectionTune) -> None:
        settings = self.settings
        if self.scram is not None and not self.scram.is_proven:
            self.end(LoginRefused(f"{settings.address} is not trusted: it has not proven the password"))
            return
        self.scram = None
        frame_bytes_max = min(method.frame_max or settings.frame_bytes_max, settings.frame_bytes_max)
        if frame_bytes_max < amqp.FRAME_BYTES_MIN:
            raise ConnectionFault(
                amqp.NOT_ALLOWED, f"frames of at most {frame_bytes_max} octets are too small"
            )
        channel_max = min(method.channel_max or settings.channel_max, settings.channel_max)
        self.heartbeat_s = method.heartbeat if settings.heartbeat_s is None else settings.heartbeat_s
        self.protocol.frame_bytes_max = self.output.frame_bytes_max = frame_bytes_max
        self.protocol.channel_max = channel_max
        self.protocol.send(
            0,
            methods.ConnectionTuneOk(
                channel_max=channel_max, frame_max=frame_bytes_max, heartbeat=self.heartbeat_s
            ),
        )
        self.protocol.send(0, methods.ConnectionOpen(virtual_host=settings.virtual_host))

    def _closed_by_server(self, method: methods.ConnectionClose) -> None:
        state = self.protocol.state
        self.protocol.send(0, methods.ConnectionCloseOk())
        said = (method.reply_code, method.reply_text)
        text = f"{method.reply_code}: {method.reply_text}"
        address = self.settings.address
        who, advice = self._login()
        error: ClientError
        is_refusal = state != ClientState.START and method.reply_code in _REFUSALS
        if state in (ClientState.START, ClientState.LOGIN, ClientState.OPENING) and not is_refusal:
            error = ConnectFailed(f"{address} does not let anybody in now: {text}", *said)
        elif state == ClientState.LOGIN:
            error = LoginRefused(f"{address} refused {who} with {text}; {advice}", *said)
        elif state == ClientState.OPENING:
            host = self.settings.virtual_host
            error = LoginRefused(
                f"{address} refused virtual host {host!r} to {who} with {text}; "
                "check its name, and the user's rights",
                *said,
            )
        elif method.reply_code == amqp.CONNECTION_FORCED:
            # What a broker says when it stops: it may be back soon, as after a crash.
            error = ConnectionLost(f"{address} closed the connection with {text}", *said)
        else:
            error = ConnectionClosed(f"{address} closed the connection with {text}", *said)
        self.end(error)

    def _set_blocked(self, reason: str | None) -> None:
        self.blocked = reason
        if reason is not None:
            for closed in self.closing.values():
                if closed.late_is_fine:
                    closed.resolve(None)
        told = self.on_blocked
        if told is not None:
            self.callbacks.append(lambda: told(reason))

    def update_secret(self, secret: bytes, reason: str) -> Steps[None]:
        pending = Pending("updating the secret")
        if self.failure is not None:
            pending.fail(self.failure)
        else:
            self.protocol.send(0, methods.ConnectionUpdateSecret(new_secret=secret, reason=reason))
            self.updating.append(pending)
        yield pending

    def close(self) -> Pending:
        """connection.close; the Pending is resolved when the server has answered, or the socket is gone."""
        if self.is_open:
            self.protocol.send(
                0, methods.ConnectionClose(reply_code=amqp.REPLY_SUCCESS, reply_text="goodbye")
            )
        else:
            self.closed.resolve(None)
        return self.closed

    # Heartbeats

    def beat(self) -> float | None:
        """Sends a heartbeat if one is due; how long until this should be called again, None for never."""
        if self.heartbeat_s == 0 or self.failure is not None:
            return None
        now_s = self.clock.monotonic_s()
        if self.is_silent():
            self.lost(f"nothing was heard from it for {2 * self.heartbeat_s} seconds")
            return None
        due_s = self.sent_s + self.heartbeat_s / 2
        if now_s >= due_s:
            self.output.write(_HEARTBEAT)
            self.sent_s = now_s
            due_s = now_s + self.heartbeat_s / 2
        return max(0.0, min(due_s, self.heard_s + 2 * self.heartbeat_s + 0.001) - now_s)

    def beat_due_s(self) -> float | None:
        """How long until `beat` should be called."""
        if self.heartbeat_s == 0 or self.failure is not None:
            return None
        due_s = min(self.sent_s + self.heartbeat_s / 2, self.heard_s + 2 * self.heartbeat_s + 0.001)
        return max(0.0, due_s - self.clock.monotonic_s())

    def is_silent(self) -> bool:
        """Whether nothing was heard for longer than heartbeats allow."""
        return self.heartbeat_s > 0 and self.clock.monotonic_s() - self.heard_s > 2 * self.heartbeat_s

    def beat_beside(self) -> None:
        """Sends a heartbeat if one is due, and judges nothing: what has come may not have been read."""
        now_s = self.clock.monotonic_s()
        if self.heartbeat_s and self.failure is None and now_s >= self.sent_s + self.heartbeat_s / 2:
            self.output.write(_HEARTBEAT)
            self.sent_s = now_s

    # Channels

    def new_channel(self, confirm: bool, transactional: bool, prefetch: int | None) -> ChannelCore:
        for number in range(1, self.protocol.channel_max + 1):
            if number not in self.channels and number not in self.closing:
                channel = ChannelCore(self, number, confirm, transactional, prefetch)
                self.channels[number] = channel
                return channel
        raise ClientError(
            f"all {self.protocol.channel_max} channels of the connection are open; "
            "close one, or open another connection"
        )

    def forget(self, channel: ChannelCore) -> None:
        """The channel is over."""
        if self.channels.get(channel.number) is channel:
            del self.channels[channel.number]

    def bury(self, ledger: Ledger) -> None:
        """What a channel that is over has to tell is told when the connection is closed."""
        if not ledger.untold.is_empty() and len(self.buried) < BURIED_MAX:
            self.buried.append(ledger)

    def consumer_left(self, queue: QueueRecord) -> None:
        """An auto-delete queue ends with its last consumer: it is not to be declared again."""
        if queue.declared is not None and queue.declared.auto_delete:
            channels = self.channels.values()
            if not any(each.queue is queue for channel in channels for each in channel.consumers.values()):
                self.topology.deleted_queue(queue.name)

    def flush_if_open(self) -> None:
        if self.failure is None:
            self.flush()

    def call(
        self, channel: ChannelCore, method: Method, doing: str, then: Callable[[Any], None] | None = None
    ) -> Pending:
        """Sends the method; the Pending gets its answer."""
        pending = Pending(doing, late_is_fine=method.NAME in REQUESTS)
        pending.then = then
        if self.failure is not None:
            pending.fail(self.failure)
        elif channel.failure is not None:
            pending.fail(channel.told_later(channel.failure))
        else:
            try:
                self.protocol.call(channel.protocol, method, pending)
            except ProtocolMisuse as misuse:
                raise ClientError(f"{doing} cannot be sent: {misuse}") from None
        return pending

    def reply(self, channel: ClientChannel, method: Method, waiter: object) -> None:
        assert isinstance(waiter, Pending)
        waiter.resolve(method)

    def notice(self, channel: ClientChannel, method: Method) -> None:
        core: ChannelCore = channel.owner.channel  # type: ignore[attr-defined]
        if isinstance(method, methods.ChannelClose):
            self.protocol.send(channel.number, methods.ChannelCloseOk())
            if channel.state == phases.CHANNEL_CLOSING:
                # Both have closed. The server answers ours as well; until then the number is not free.
                self.closing[channel.number].resolve(None)
                return
            doing = next((str(waiter.doing) for waiter in channel.all_awaited()), core.doing())  # type: ignore[attr-defined]
            self.protocol.close_channel(channel)
            core.end(channel_closed(method.reply_code, method.reply_text, doing))
        elif isinstance(method, methods.ChannelFlow):
            core.flowing = method.active
            self.protocol.send(channel.number, methods.ChannelFlowOk(active=method.active))
            core.told()
        elif isinstance(method, methods.BasicCancel):
            core.cancelled(method.consumer_tag)

    def message_request(self, channel: ClientChannel, request_id: int, method: Method) -> None:
        core: ChannelCore = channel.owner.channel  # type: ignore[attr-defined]
        core.transfers.requested(request_id, method)  # the driver sends what that answers

    def message_response(self, channel: ClientChannel, method: Method, answered: Answered) -> None:
        for _, waiter in answered:
            assert isinstance(waiter, Pending)
            waiter.resolve(method)

    def settled(self, channel: ClientChannel, tag: int, multiple: bool, refused: bool) -> None:
        core: ChannelCore = channel.owner.channel  # type: ignore[attr-defined]
        if core.ledger is None:
            raise ConnectionFault(
                amqp.COMMAND_INVALID, f"a confirm on channel {channel.number}, which has none"
            )
        core.ledger.settle(tag, multiple, refused)

    def content(
        self, channel: ClientChannel, method: Method, properties: bytes, body: bytes, waiter: object
    ) -> None:
        core: ChannelCore = channel.owner.channel  # type: ignore[attr-defined]
        if isinstance(method, methods.BasicGetOk):
            route = encode_shortstr(method.exchange) + encode_shortstr(method.routing_key)
            assert isinstance(waiter, Pending)
            waiter.resolve(
                received(core, core.epoch, method.delivery_tag, method.redelivered, route, properties, body)
            )
        elif isinstance(method, methods.StreamDeliver):
            # It tells the queue, and not the key that the message was published with.
            route = encode_shortstr(method.exchange) + encode_shortstr(method.queue)
            consumer_tag = encode_shortstr(method.consumer_tag)
            self.deliver(channel, consumer_tag, method.delivery_tag, False, route, properties, body)
        elif isinstance(method, methods.BasicReturn | methods.StreamReturn):
            route = encode_shortstr(method.exchange) + encode_shortstr(method.routing_key)
            core.returned(received(core, core.epoch, 0, False, route, properties, body), method)
        else:
            raise ConnectionFault(amqp.NOT_IMPLEMENTED, f"{method.NAME} is not served")

    # Recovery

    def recover(self) -> Steps[None]:
        """After the connection is open again: channels, declarations, consumers and unconfirmed messages.

        What the broker refuses now costs the channel it was refused on, and is logged.
        """
        try:
            yield from self._declare_again()
        finally:
            self.spare = None
        channels = list(self.channels.values())
        for channel in channels:
            try:
                yield from self._restore(channel)
            except ConnectionClosed:
                raise
            except CallTimeout:
                raise
            except ClientError as error:
                self._refused_again(error)
                channel.discard(error)
        for channel in channels:
            channel.publish_again()

    def _restore(self, channel: ChannelCore) -> Steps[None]:
        if channel.number > self.protocol.channel_max:
            raise ClientError(
                f"channel {channel.number} is lost: the server allows {self.protocol.channel_max} now"
            )
        yield from channel.reopen()
        yield from channel.resume()

    def _refused_again(self, error: ClientError) -> None:
        """What was ours may be held by the connection that was lost, until the broker notices its end."""
        if isinstance(error, ResourceLocked | AccessRefused) and self.clock.monotonic_s() < self.held_until_s:
            raise ConnectFailed(f"the broker has not noticed the loss yet: {error}") from error
        log.warning("after a lost connection to %s: %s", self.settings.address, error)

    def _declare_again(self) -> Steps[None]:
        """On a channel of its own: a refusal must not cost the application one of its channels.

        None of those is open yet, so that there is a number for it.
        """
        for method, record in self.topology.again():
            if self.spare is None or self.spare.failure is not None:
                self.spare = ChannelCore(self, SPARE_NUMBER, False, False, None)
                yield from self.spare.open()
            try:
                answer = yield self.call(self.spare, method, f"declaring again by {method.NAME}")
            except ConnectionClosed:
                raise
            except CallTimeout:
                raise
            except ClientError as error:
                self._refused_again(error)
                continue
            if record is not None and record.server_named:
                self.topology.renamed(record, answer.queue)
        if self.spare is not None:
            yield from self.spare.close()


def _nowhere() -> None:
    raise ProtocolMisuse("the connection has no socket")
