"""A session joins one connection's protocol events to the broker, and turns faults into Close methods.

The handshake is in handshake.py, the end of a connection in parting.py, what channels ask for in commands/.
Knows methods, not frames; the link below it owns the socket.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from flintmq.auth import Accepted, AnswerPending, Challenge, Mechanism, Refused, User, Verification
from flintmq.broker.channels import spooled_publish
from flintmq.broker.channels.channel import Channel as BrokerChannel
from flintmq.broker.exchanges.system_exchange import SystemExchange
from flintmq.broker.scheduling.pass_work import PassWork
from flintmq.broker.services.acting import ACTS_FOR
from flintmq.broker.store.spooling import IncomingSpool
from flintmq.broker.virtual_host import VirtualHost
from flintmq.errors import ChannelFault, ConnectionFault, PeerFault
from flintmq.protocol import phases
from flintmq.protocol.channel import Channel, Sink
from flintmq.protocol.connection import SPOOLED_BYTES_LEAN, Connection
from flintmq.protocol.events import Events
from flintmq.protocol.states import END
from flintmq.server.commands import command as commands
from flintmq.server.commands import content as content_commands
from flintmq.server.logs.audit_log import ACCESS
from flintmq.server.sessions import handshake
from flintmq.server.sessions.parting import PARTS_CLOSED, PARTS_LOST, PARTS_REFUSED, Parting
from flintmq.server.sessions.rated_publishes import RatedPublishes
from flintmq.wire import amqp, methods, traits
from flintmq.wire.methods import Method

if TYPE_CHECKING:
    from flintmq.broker.broker import Broker
    from flintmq.protocol.outbox import Output
    from flintmq.protocol.requests import Answered
    from flintmq.wire.tables import FieldTable

# Reply codes of what a user may not do: in general, and in a virtual host.
REFUSALS = (amqp.ACCESS_REFUSED, amqp.NOT_ALLOWED)

log = logging.getLogger("flintmq.session")

TEXT_BYTES_MAX = 255
CLOSE_OK = methods.ConnectionCloseOk()
HEARTBEAT = bytes((amqp.FRAME_HEARTBEAT, 0, 0, 0, 0, 0, 0, amqp.FRAME_END))
# A method that is no publish or ack takes some 40 microseconds, and so does the header of a large content:
# after 8 of them others have their turn.
METHOD_COPIES = 1024
# A file for a large body takes some 200, or as long as the file system likes: others have a turn after it.
SPOOL_COPIES = 65_537  # one more than COPIES_ALONE_MAX of broker/scheduling/pass_work.py
# A field of its arguments takes some two more.
FIELD_COPIES = 48
# A request with a larger body is held back as a publish is.
REQUEST_BYTES_MAX = 1_048_576
# The same while memory is critical.
REQUEST_BYTES_CRITICAL = 16_384
# Channels that a connection may open while memory is critical: 2,047 of them take some megabytes.
CHANNELS_CRITICAL = 8

# For which the broker closes connections of strangers that have done nothing wrong.
OUR_OWN_REASONS = (amqp.CONNECTION_FORCED, amqp.INTERNAL_ERROR)

# What a client announces that understands the empty body frame at the end of a content called off.
INTERRUPTS = "content.interrupt"

# Clients that assemble contents even while they wait for close-ok, and fail if the rest does not come.
WHOLE_CONTENTS = frozenset(
    ("RabbitMQ", "py-amqp", "Bunny", "AMQPLib", "aiormq", "aio-pika", "amqp-client.js", "rabbitmq-c")
)


# Class and method that have published a content which is not basic.
PUBLISHES = {traits.FILE_CONTENT: (70, 60), traits.STREAM_CONTENT: (80, 40)}


class Session(Events):
    """One client, from its protocol header to its last octet."""

    __slots__ = (
        "broker",
        "capabilities",
        "client_properties",
        "connection",
        "has_published",
        "heartbeat_s",
        "is_internal",
        "is_leaving",
        "is_refused",
        "link",
        "login",
        "number",
        "output",
        "parting",
        "pass_work",
        "peer_address",
        "questions",
        "refusal",
        "user",
        "virtual_host",
    )

    def __init__(self, broker: Broker, output: Output, link: Any, peer_address: str) -> None:
        self.broker = broker
        self.pass_work: PassWork = broker.pass_work
        self.output = output
        self.link = link
        self.peer_address = peer_address
        self.number = broker.next_connection()
        self.connection: Connection = self.new_connection()
        self.user: User | None = None
        self.virtual_host: VirtualHost | None = None
        self.login: Mechanism | None = None
        self.questions = 0  # that back ends are asked: more than one where bodies go to files meanwhile
        self.refusal = ""  # what the peer may know of why its login was refused
        self.heartbeat_s = 0
        self.capabilities: frozenset[str] = frozenset()
        self.client_properties: dict[str, Any] = {}
        self.has_published = False
        self.is_refused = False  # has failed to log in, and has paused for it
        self.is_internal = False  # of the management process, see process/management_process.py
        self.parting: Parting | None = None  # since the connection began to end
        self.is_leaving = False  # what the connection holds is going back, in portions

    def new_connection(self) -> Connection:
        """The connection in the protocol that the client speaks."""
        return Connection(self, self.output, self.broker.config.limits.message_bytes_max)

    # Events of the connection

    def publish(self, channel: Channel, route: bytes, flags: int, content: bytes, header_size: int) -> None:
        if not self.has_published:
            self.has_published = not self.asks(route)
        owner = channel.owner
        try:
            owner.publish(route, flags, content, header_size)  # type: ignore[attr-defined]
            if self.pass_work.is_laden():
                self.connection.paused = True  # the link goes on with it when others have had their turn
        except AnswerPending as pending:
            owner.disown_publish()  # type: ignore[attr-defined]
            self.wait_for(
                pending, channel, partial(self.publish_again, channel, route, flags, content, header_size)
            )
        except PeerFault as fault:
            owner.disown_publish()  # type: ignore[attr-defined]
            self.fail(channel, of_publish(fault, flags))

    def body_begins(self, channel: Channel, route: bytes, flags: int, header: bytes) -> Sink | None:
        sink = self.begin_body(channel, route, flags, header)
        self.take_time(METHOD_COPIES)
        return sink

    def file_opened(self) -> None:
        """A large body has got its file: others have their turn before the next one does."""
        self.take_time(SPOOL_COPIES)

    def take_time(self, copies: int) -> None:
        """Something was done that takes as long as to put so many messages into queues."""
        self.pass_work.copies += copies
        if self.pass_work.is_laden():
            self.connection.paused = True

    def begin_body(self, channel: Channel, route: bytes, flags: int, header: bytes) -> Sink | None:
        self.has_published = self.has_published or not self.asks(route)
        try:
            return spooled_publish.begin_body(channel.owner, route, header, self.file_opened)  # type: ignore[arg-type]
        except AnswerPending as pending:
            self.wait_for(pending, channel, partial(self.check_body, channel, route, flags, header))
            return spooled_publish.new_spool(channel.owner, self.file_opened)  # type: ignore[arg-type]
        except PeerFault as fault:
            self.fail(channel, of_publish(fault, flags))
            return None

    def check_body(self, channel: Channel, route: bytes, flags: int, header: bytes) -> None:
        """A body has begun before a back end said whether the user may publish it."""
        try:
            spooled_publish.check_body(channel.owner, route, header)  # type: ignore[arg-type]
        except AnswerPending as pending:
            self.wait_for(pending, channel, partial(self.check_body, channel, route, flags, header))
        except PeerFault as fault:
            self.fail(channel, of_publish(fault, flags))

    # Compiled code that takes a method of a typed object as a value gets one without its object.

    def publish_again(
        self, channel: Channel, route: bytes, flags: int, content: bytes, header_size: int
    ) -> None:
        self.publish(channel, route, flags, content, header_size)

    def method_again(self, channel: Channel | None, method: Method) -> None:
        self.method(channel, method)

    def wait_for(self, pending: AnswerPending, channel: Channel | None, again: Callable[[], None]) -> None:
        """Reads nothing until a back end has answered, and then tries the same again."""
        self.questions += 1
        self.link.wait_for_answer()
        pending.question.tell(partial(self.answered, channel, again))

    def answered(self, channel: Channel | None, again: Callable[[], None]) -> None:
        self.questions -= 1
        if self.connection.state >= phases.CONNECTION_CLOSING:
            return
        if not self.questions:
            self.link.answered()
        if channel is not None and channel.state != phases.CHANNEL_OPEN:
            return
        try:
            again()
        except Exception:
            log.exception("a bug ends the connection of %s", self)
            self.close_connection(ConnectionFault(amqp.INTERNAL_ERROR, "see the log of the broker"))

    def is_short(self) -> bool:
        return self.pass_work.is_short

    def is_critical(self) -> bool:
        """Whether what takes more memory is refused."""
        if self.pass_work.is_critical:
            self.link.look_again()
        return self.pass_work.is_critical

    def spool_contents(self) -> None:
        """Memory is short: the larger ones of the bodies that are coming in go to files."""
        for channel in self.connection.all_channels():
            if channel.sink is not None or channel.method is not None or not channel.chunks:
                continue
            if channel.gathered_bytes() >= SPOOLED_BYTES_LEAN:
                channel.sink = self.begin_body(channel, channel.route, channel.flags, channel.header)
                if channel.sink is not None:
                    self.move_chunks(channel, channel.sink)

    def move_chunks(self, channel: Channel, sink: Sink) -> None:
        chunks, channel.chunks = channel.chunks, []
        try:
            for chunk in chunks:
                sink.append(bytes(chunk))
        except ChannelFault as fault:
            self.fail(channel, fault)

    def content_bytes(self) -> int:
        """What its channels hold of contents that are coming in and of open transactions."""
        size = 0
        for channel in self.connection.all_channels():
            size += channel.gathered_bytes()
            if isinstance(channel.sink, IncomingSpool):
                size += len(channel.sink.held)
            if isinstance(channel.owner, BrokerChannel):
                size += getattr(channel.owner.transaction, "content_bytes", 0)
                if channel.owner.messages is not None:
                    size += channel.owner.messages.gathered_bytes()
        return size

    def publish_spooled(self, channel: Channel, route: bytes, flags: int, header: bytes, sink: Sink) -> None:
        try:
            spooled_publish.publish_spooled(channel.owner, route, flags, header, sink)  # type: ignore[arg-type]
        except AnswerPending as pending:
            channel.owner.disown_publish()  # type: ignore[attr-defined]
            channel.sink = sink  # which goes with the channel, if that goes first
            self.wait_for(pending, channel, partial(self.publish_kept, channel, route, flags, header))
        except PeerFault as fault:
            channel.owner.disown_publish()  # type: ignore[attr-defined]
            self.fail(channel, of_publish(fault, flags))

    def publish_kept(self, channel: Channel, route: bytes, flags: int, header: bytes) -> None:
        """The body of a large message has waited for a back end."""
        sink, channel.sink = channel.sink, None
        if sink is not None:
            self.publish_spooled(channel, route, flags, header, sink)

    def ack(self, channel: Channel, tag: int, multiple: bool) -> None:
        owner = channel.owner
        try:
            owner.ack(tag, multiple)  # type: ignore[attr-defined]
            if multiple and self.pass_work.is_laden():
                self.connection.paused = True
        except PeerFault as fault:
            self.fail(channel, fault)

    def method(self, channel: Channel | None, method: Method) -> None:
        try:
            if channel is None:
                CONNECTION_COMMANDS[method.NAME](self, method)
            else:
                commands.run(self, channel, method)
                self.pass_work.copies += METHOD_COPIES + FIELD_COPIES * len(getattr(method, "arguments", ()))
                if self.pass_work.is_laden():
                    self.connection.paused = True
        except AnswerPending as pending:
            self.wait_for(pending, channel, partial(self.method_again, channel, method))
        except PeerFault as fault:
            if not fault.class_id:
                fault.class_id, fault.method_id = method.CLASS_ID, method.METHOD_ID
            self.fail(channel, fault)

    def content(self, channel: Channel, method: Method, content: bytes, header_size: int) -> None:
        """A method other than basic.publish with its content, or that with its ticket."""
        try:
            content_commands.run(self, channel, method, content, header_size)
            self.pass_work.copies += METHOD_COPIES
            if self.pass_work.is_laden():
                self.connection.paused = True
        except PeerFault as fault:
            if not fault.class_id:
                fault.class_id, fault.method_id = method.CLASS_ID, method.METHOD_ID
            self.fail(channel, fault)

    def content_begins(self, channel: Channel, method: Method, header: bytes) -> None:
        try:
            content_commands.begin(self, channel, method, header)
        except PeerFault as fault:
            if not fault.class_id:
                fault.class_id, fault.method_id = method.CLASS_ID, method.METHOD_ID
            self.fail(channel, fault)

    def message_request(self, channel: Channel, request_id: int, method: Method) -> None:
        from flintmq.server.commands import message as message_commands  # one of SELDOM

        try:
            message_commands.run(self, channel, request_id, method)
            self.pass_work.copies += METHOD_COPIES
            if self.pass_work.is_laden():
                self.connection.paused = True
        except AnswerPending as pending:
            self.wait_for(pending, channel, partial(self.request_again, channel, request_id, method))
        except PeerFault as fault:
            fault.class_id, fault.method_id = method.CLASS_ID, method.METHOD_ID
            self.fail(channel, fault)

    def request_again(self, channel: Channel, request_id: int, method: Method) -> None:
        self.message_request(channel, request_id, method)

    def message_response(self, channel: Channel, method: Method, answered: Answered) -> None:
        from flintmq.server.commands import message as message_commands  # one of SELDOM

        try:
            message_commands.answered(self, channel, method, answered)
        except PeerFault as fault:
            if not fault.class_id:
                fault.class_id, fault.method_id = method.CLASS_ID, method.METHOD_ID
            self.fail(channel, fault)

    def fault(self, channel: Channel, fault: ChannelFault) -> None:
        self.fail(channel, fault)

    # The handshake

    def greeted(self, version: int) -> None:
        handshake.greeted(self, version)

    def login_step(self, step: Challenge | Verification | Accepted | Refused) -> None:
        """A password was verified, or a back end has answered."""
        handshake.login_step(self, step)

    def login_refused(self) -> None:
        """The pause after a failed login is over."""
        handshake.login_refused(self)

    def limit_messages(self) -> None:
        """Limits of the user and of the virtual host hold for what is published from now on."""
        if self.user is None or self.virtual_host is None:
            return
        limits, user, host = self.broker.administration.limits, self.user.name, self.virtual_host.name
        most = self.broker.config.limits.message_bytes_max
        self.connection.message_bytes_max = limits.message_bytes_max(user, host, most)
        rates = limits.rates_of(user, host)
        self.connection.events = RatedPublishes(self, rates) if rates else self
        self.link.rate_changed()

    def describe(self) -> FieldTable:
        """The connection for the HTTP API and services."""
        found: FieldTable = self.link.describe()
        return found

    def octets(self) -> tuple[int, int]:
        """Received and sent."""
        return self.link.received_octets, self.link.sent_octets

    # What the client is known to understand

    def is_py_amqp(self) -> bool:
        """Whether kombu may be there, on which Celery stands.

        For any broker not called RabbitMQ Celery's worker counts on qos without global to hold for all that
        it consumes, and at once. Others on py-amqp mean each new consumer, as in RabbitMQ.
        """
        return not self.expects_standard() and self.client_properties.get("product") == "py-amqp"

    def expects_standard(self) -> bool:
        """Whether the answers are those of 0-8 and 0-9 where RabbitMQ has others.

        aioamqp opens with 0-9, and means RabbitMQ's 0-9-1.
        """
        is_old = self.connection.version != amqp.VERSION_0_9_1
        return is_old and self.client_properties.get("product") != "aioamqp"

    def wants_whole_contents(self) -> bool:
        """Whether the client takes close-ok in the middle of a content for a fault of the connection."""
        product = self.client_properties.get("product")
        return isinstance(product, str) and product in WHOLE_CONTENTS and not self.knows_interrupts()

    def knows_interrupts(self) -> bool:
        """Whether the client expects an empty body frame to end a content that it has called off."""
        return INTERRUPTS in self.capabilities

    def tell_blocked(self, reason: str) -> None:
        """connection.blocked, to clients that know it."""
        if self.hears_of_blocking():
            self.connection.send(methods.ConnectionBlocked(reason=cut(reason)))

    def tell_unblocked(self) -> None:
        if self.hears_of_blocking():
            self.connection.send(methods.ConnectionUnblocked())

    def hears_of_blocking(self) -> bool:
        """A client may claim to know a method that its version of the protocol does not have."""
        return (
            "connection.blocked" in self.capabilities
            and self.connection.version in methods.ConnectionBlocked.VERSIONS
            and self.connection.state == phases.CONNECTION_OPEN
        )

    def is_publisher(self) -> bool:
        """Whether what the client sends needs memory: messages, or contents that are not finished yet.

        Requests to the broker are answered and forgotten; in an alarm they are what one needs.
        """
        if self.has_published or not self.connection.has_content:
            return self.has_published
        most = REQUEST_BYTES_CRITICAL if self.pass_work.is_critical else REQUEST_BYTES_MAX
        for channel in self.connection.all_channels():
            if channel.expects == phases.EXPECTS_METHOD:
                continue
            if channel.method is not None or not self.asks(channel.route) or channel.remaining > most:
                return True  # what is not for basic.publish has no route
        return False

    def is_consumer(self) -> bool:
        return any(owner.consumers for owner in self.held_channels())

    def asks(self, route: bytes) -> bool:
        """Whether the exchange of a publish is the one for requests to the broker."""
        if self.virtual_host is None:
            return False
        name = route[1 : 1 + route[0]].decode("utf-8", "surrogateescape")
        return isinstance(self.virtual_host.exchanges.get(name), SystemExchange)

    def heartbeat(self) -> bytes:
        """What is sent when there has been nothing to send for a while."""
        return HEARTBEAT

    # Channels

    def open_channel(self, channel: Channel) -> None:
        if self.virtual_host is None or self.user is None:
            raise ConnectionFault(amqp.CHANNEL_ERROR, "the connection is not open")
        if self.connection.open_channels > CHANNELS_CRITICAL and self.is_critical():
            text = f"memory is short: no more than {CHANNELS_CRITICAL} channels for now"
            raise ConnectionFault(amqp.RESOURCE_ERROR, text)
        limits = self.broker.administration.limits
        if limits.of and not self.is_internal:
            limits.check_channel(self.user, self.virtual_host)
        opened = BrokerChannel(channel.number, self.number, self.virtual_host, self.user, self.output)
        self.virtual_host.tally.channels_opened += 1
        opened.cancel_notices = "consumer_cancel_notify" in self.capabilities
        opened.by_standard = self.expects_standard()
        opened.numeric = self.connection.numeric
        self.broker.clients.open_channel(self.number, opened)
        channel.owner = opened

    def held_channels(self) -> list[BrokerChannel]:
        found = [channel.owner for channel in self.connection.all_channels()]
        return [owner for owner in found if isinstance(owner, BrokerChannel)]

    def release_channel(self, channel: Channel, farewell: Callable[[], None] | None = None) -> None:
        """The broker's half of a channel goes; messages it held come back.

        With a `farewell` it stays until all that was published on it is confirmed, and the farewell is said.
        """
        owner = channel.owner
        if farewell is None:
            channel.owner = None
        self.broker.clients.close_channel(self.number, channel.number)
        if isinstance(owner, BrokerChannel):
            try:
                owner.close(farewell)
            except Exception:  # the other channels of the connection are to go as well
                log.exception("a bug leaves something of channel %d of %s behind", channel.number, self)
                if farewell is not None:
                    farewell()
        elif farewell is not None:
            farewell()

    # Closing

    def fail(self, channel: Channel | None, fault: PeerFault) -> None:
        """The one place where a fault becomes a Close."""
        if channel is None or not isinstance(fault, ChannelFault):
            self.close_connection(fault)
            return
        self.take_time(METHOD_COPIES)  # one after the other may fail, each on a channel of its own
        log.info("channel %d of %s closed: %s", channel.number, self, fault.reply_text)
        self.audit_refusal(fault)
        channel.abandon_content()
        channel.follow(END)
        if channel.state != phases.CHANNEL_ENDING:
            return  # the channel is closed, or about to be
        self.release_channel(channel, partial(self.say_channel_close, channel, channel.owner, fault))

    def say_channel_close(self, channel: Channel, owner: object, fault: PeerFault) -> None:
        """All that was published before is confirmed, so that the client need not publish it again."""
        if channel.owner is not owner or channel.state != phases.CHANNEL_ENDING:
            return  # the client has closed it meanwhile
        channel.owner = None
        channel.follow("> channel.close")
        self.send(
            channel.number,
            methods.ChannelClose(
                reply_code=fault.code,
                reply_text=cut(fault.reply_text),
                class_id=fault.class_id,
                method_id=fault.method_id,
            ),
        )

    def close_connection(self, fault: PeerFault) -> None:
        """Sends connection.close and waits for the answer, for a while."""
        if self.connection.state >= phases.CONNECTION_CLOSING:
            return
        self.audit_refusal(fault)
        if self.connection.state == phases.CONNECTION_HEADER:
            self.link.drop()
            return
        if self.user is None and not self.is_refused and fault.code not in OUR_OWN_REASONS:
            handshake.refuse_handshake(self, fault.reply_text, partial(self.close_connection, fault))
            return
        log.warning("connection of %s closed: %s", self, fault.reply_text)
        self.connection.follow(END)
        self.link.closing()
        # After a fault of the broker nobody can tell what is safe.
        parting = PARTS_LOST if fault.code == amqp.INTERNAL_ERROR else PARTS_REFUSED
        self.depart(parting, partial(self.say_close, fault))

    def say_close(self, fault: PeerFault) -> None:
        """connection.close, when all that was published on any channel before is confirmed."""
        if self.connection.state == phases.CONNECTION_CLOSING:
            self.connection.send(
                methods.ConnectionClose(
                    reply_code=fault.code,
                    reply_text=cut(fault.reply_text),
                    class_id=fault.class_id,
                    method_id=fault.method_id,
                )
            )

    def close(self, method: methods.ConnectionClose) -> None:
        """The client says goodbye; the answer tells it that nothing of it is left."""
        self.depart(PARTS_CLOSED, self.say_close_ok)

    def say_close_ok(self) -> None:
        self.connection.send(CLOSE_OK)
        self.link.finish()

    def close_ok(self, method: methods.ConnectionCloseOk) -> None:
        self.link.finish()

    def release(self) -> None:
        """The socket is closed: whatever the connection holds in the broker yet goes back."""
        awaits = self.parting is not None and bool(self.parting.unconfirmed)
        if self.connection.state <= phases.CONNECTION_CLOSING or self.is_leaving or awaits:
            self.depart(PARTS_LOST, None)

    def depart(self, kind: int, answer: Callable[[], None] | None) -> None:
        """Gives back all that the connection holds, in portions; then comes the answer."""
        if self.parting is None:
            self.parting = Parting(self)
        self.parting.begin(kind, answer)

    # The audit log

    def audit(self, kind: str, event: str, is_allowed: bool, subject: str = "", reason: str = "") -> None:
        """Notes what the client did, if there is a log of that."""
        audit = self.broker.audit
        if audit is not None:
            user = "" if self.user is None else self.user.name
            host = "" if self.virtual_host is None else self.virtual_host.name
            address = self.peer_address
            if self.is_internal:  # what a user does over HTTP
                address = str(self.client_properties.get(ACTS_FOR) or address)
            audit.note(kind, event, is_allowed, user, address, self.number, host, subject, reason)

    def audit_refusal(self, fault: PeerFault) -> None:
        """A fault that says that the client may not; a failed login is noted where it fails."""
        if fault.code in REFUSALS and self.user is not None:
            self.audit(ACCESS, "operation", False, reason=fault.text)

    def send(self, number: int, method: Method) -> None:
        self.output.write_method(number, self.connection.encoded(method))

    def __str__(self) -> str:
        user = "nobody" if self.user is None else self.user.name
        return f"{user}@{self.peer_address} (connection {self.number})"


CONNECTION_COMMANDS: dict[str, Callable[[Session, Any], None]] = {
    "connection.start-ok": handshake.start_ok,
    "connection.secure-ok": handshake.secure_ok,
    "connection.tune-ok": handshake.tune_ok,
    "connection.open": handshake.open_connection,
    "connection.close": Session.close,
    "connection.close-ok": Session.close_ok,
    "connection.update-secret": handshake.update_secret,
}


def cut(text: str) -> str:
    """At most what a short string holds, never in the middle of a character."""
    return text.encode("utf-8", "replace")[:TEXT_BYTES_MAX].decode("utf-8", "ignore")


def of_publish(fault: PeerFault, flags: int) -> PeerFault:
    """The fault with the ids of the method that has published, which are those of its content class."""
    if flags & traits.CONTENT_CLASSES:
        fault.class_id, fault.method_id = PUBLISHES[flags & traits.CONTENT_CLASSES]
    elif not fault.class_id:
        fault.class_id, fault.method_id = 60, 40
    return fault
