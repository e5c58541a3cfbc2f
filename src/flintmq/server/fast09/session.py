"""A session of AMQP/Fast 0.9: what its methods mean to the broker, and what the broker says as its methods.

    methods of AMQP/Fast --> methods of AMQP, by fast09/commands.py and server/commands/command.py --> broker
    answers, deliveries, confirms --> methods of AMQP/Fast, with the synctag of what they answer

So permissions, limits, alarms and the audit log are those of every other client. docs/fast09.md says how the
document was read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from flintmq.auth import AnswerPending
from flintmq.broker.channels.channel import Channel as BrokerChannel
from flintmq.broker.channels.tickets import TICKETS_MAX, check_ticket
from flintmq.errors import ChannelFault, PeerFault, ProtocolMisuse
from flintmq.protocol import phases
from flintmq.protocol.channel import Channel
from flintmq.protocol.fast09.connection import NOBODY, Call, Fast09Connection
from flintmq.protocol.fast09.outbox import Fast09Output
from flintmq.server.commands import command as channel_commands
from flintmq.server.commands.content import check_test_size
from flintmq.server.fast import client_names
from flintmq.server.fast.session import CAPABILITIES
from flintmq.server.fast09 import commands, registrations
from flintmq.server.sessions import handshake
from flintmq.server.sessions.session import METHOD_COPIES, Session, cut
from flintmq.wire import amqp, methods
from flintmq.wire.fast09 import frames
from flintmq.wire.fast09.methods import KINDS, TRACER, UNREAL, MethodKind, encode, method
from flintmq.wire.fast09.methods import Method as FastMethod
from flintmq.wire.tables import FieldTable

if TYPE_CHECKING:
    from flintmq.broker.broker import Broker
    from flintmq.protocol.connection import Connection
    from flintmq.wire.methods import Method

# What a method that was done on a channel does to the connection as well; other faults are the channel's
# (section 3.18.3).
FATAL = (amqp.SYNTAX_ERROR, amqp.FRAME_ERROR, amqp.UNEXPECTED_FRAME, amqp.INTERNAL_ERROR)

# Destinations of contents that were staged and are not published yet: of all channels, some 500 octets each.
DESTINATIONS_MAX = 1024
SHORT_MAX = 65_535

CONTENT_CLASSES = ("jms", "file", "stream")
# What an unreal method is answered with in place of a reply that carries content.
BROWSED = "jms.browse-ok"
EMPTY = "jms.browse-empty"
SYNCH = "channel.synch"


class Waiting:
    """Frames that are written when all that was published on their channel up to `published` is safe."""

    __slots__ = ("call", "octets", "published")

    def __init__(self, published: int, octets: bytes, call: Call | None) -> None:
        self.published = published
        self.octets = octets
        self.call = call  # of a publish


class Fast09Session(Session):
    """One client, from its protocol header to its last octet."""

    def __init__(self, broker: Broker, output: Fast09Output, link: Any, peer_address: str) -> None:
        super().__init__(broker, output, link, peer_address)
        output.told = self
        self.out = output
        self.started: methods.ConnectionStartOk | None = (
            None  # waits for the response that it has no field for
        )
        self.client_id = ""
        self.claimed = ""
        self.decided: dict[str, bool] = {}  # by name: whether the user may enter the virtual host
        self.supported = frozenset(CONTENT_CLASSES)  # by the client
        self.prefetch_max = 0
        self.consumer_tag = 0
        # By channel: what is being done or was done last, what waits for the disk, the method that waits for
        # a back end, flags and ids of what closes it (of channel 0: the connection), and the namespace of a
        # queue that is being asserted.
        self.calls: dict[int, Call] = self.fast.current
        self.waiting: dict[int, deque[Waiting]] = {}
        self.unanswered: dict[int, Method] = {}
        self.failed: dict[int, tuple[int, int, int, int]] = {}
        self.namespaces: dict[int, str] = {}
        self.destinations: dict[tuple[int, str], str] = {}  # of staged contents, by channel and identifier
        self.tested: dict[int, bytes] = {}  # by channel: the header of a test.content
        self.deleted: dict[int, str] = {}  # by channel: the queue of its own deletion, with its namespace
        self.undelivered: dict[int, str] = {}  # by channel: why what was published last is not taken
        # By channel: whether a back end is asked, and the content that is published when it has answered.
        self.asking: set[int] = set()
        self.unpublished: dict[int, Call] = {}

    def new_connection(self) -> Connection:
        self.fast = Fast09Connection(
            self, self, cast(Fast09Output, self.output), self.broker.config.limits.message_bytes_max
        )
        return self.fast

    def heartbeat(self) -> bytes:
        return frames.HEARTBEAT_FRAME

    def count_work(self) -> None:
        """A method was done: after some of them others have their turn."""
        pass_work = self.broker.pass_work
        pass_work.copies += METHOD_COPIES
        if pass_work.is_laden():
            self.connection.paused = True

    def owner_of(self, channel: Channel) -> BrokerChannel:
        return channel_commands.broker_channel(channel)

    # The connection

    def greeted(self, version: int) -> None:
        self.link.greeted()
        self.write(
            0,
            method(
                "connection.start",
                version_major=0,
                version_minor=9,
                mechanisms=self.broker.authentication.mechanisms_offered().encode(),
                locales=handshake.LOCALE.encode(),
            ),
        )

    def connection_method(self, said: FastMethod, call: Call) -> None:
        self.calls[0] = call
        try:
            CONNECTION_METHODS[said.kind.name](self, said)
        except AnswerPending as pending:
            self.wait_for(pending, None, partial(self.connection_method, said, call))
        except PeerFault as fault:
            self.failed.setdefault(0, (call.flags & TRACER, *call.ids))
            self.fail(None, fault)

    def started_ok(self, said: FastMethod) -> None:
        """Start-Ok has no field for a response: an empty challenge asks for it."""
        properties: FieldTable = {"product": "AMQP/Fast 0.9", "capabilities": dict(CAPABILITIES)}
        self.started = methods.ConnectionStartOk(
            client_properties=properties, mechanism=said.mechanism, locale=said.locale
        )
        self.connection.send(methods.ConnectionSecure(challenge=b""))

    def secured(self, said: FastMethod) -> None:
        started, self.started = self.started, None
        if started is None:
            handshake.secure_ok(self, methods.ConnectionSecureOk(response=said.response))
        else:
            started.response = said.response
            handshake.start_ok(self, started)

    def tuned(self, said: FastMethod) -> None:
        self.supported = frozenset(name for name in CONTENT_CLASSES if said.values[f"{name}_support"])
        self.prefetch_max = said.prefetch_max
        handshake.tune_ok(
            self,
            methods.ConnectionTuneOk(
                channel_max=said.channel_max, frame_max=said.frame_max, heartbeat=said.heartbeat
            ),
        )

    def opened(self, said: FastMethod) -> None:
        host = client_names.host_of_path(self, said.virtual_path, self.decided)
        client_names.check(self, host, said.client_id)
        self.client_id = said.client_id or self.broker.new_name("amq.client-")
        self.client_properties["client_name"] = self.client_id
        handshake.open_connection(self, methods.ConnectionOpen(virtual_host=host))
        self.claimed = client_names.claim(self, said.client_id)

    def closed(self, said: FastMethod) -> None:
        self.close(methods.ConnectionClose())

    def closed_ok(self, said: FastMethod) -> None:
        self.close_ok(methods.ConnectionCloseOk())

    def heard_unknown(self, said: FastMethod) -> None:
        """We never ask what the client knows."""

    def depart(self, kind: int, answer: Any) -> None:
        client_names.release(self, self.claimed)
        self.claimed = ""
        super().depart(kind, answer)

    def say(self, said: Method) -> None:
        """What is said by methods of the connection class of AMQP, which follows from the last one heard."""
        flags, synctag = self.answering(0)
        if isinstance(said, methods.ConnectionSecure):
            self.write(0, method("connection.secure", challenge=bytes(said.challenge)), flags)
        elif isinstance(said, methods.ConnectionTune):
            self.write(0, self.tuning(said), flags)
        elif isinstance(said, methods.ConnectionOpenOk):
            self.write(0, method("connection.open-ok", client_id=self.client_id), flags, synctag)
        elif isinstance(said, methods.ConnectionClose):
            flags, *failed = self.failed.pop(0, (0, *NOBODY))
            self.write(0, closing("connection.close", said, tuple(failed)), flags)
        elif isinstance(said, methods.ConnectionCloseOk):
            self.write(0, method("connection.close-ok"), flags, synctag)
        else:
            raise ProtocolMisuse(f"{said.NAME} is no method of AMQP/Fast")

    def tuning(self, said: methods.ConnectionTune) -> FastMethod:
        limits = self.broker.config.limits
        return method(
            "connection.tune",
            frame_max=said.frame_max,
            channel_max=min(said.channel_max, SHORT_MAX),
            access_max=TICKETS_MAX,
            consumer_max=min(limits.consumers_per_channel_max, SHORT_MAX),
            heartbeat=min(said.heartbeat, SHORT_MAX),
            jms_support=True,
            file_support=self.broker.staging is not None,
            stream_support=True,
        )

    def tell_blocked(self, reason: str) -> None:
        self.flow_all(True)

    def tell_unblocked(self) -> None:
        self.flow_all(False)

    def flow_all(self, is_paused: bool) -> None:
        """Channel flow control is how a publisher is paused (section 3.16.8)."""
        for channel in self.connection.all_channels():
            if channel.state == phases.CHANNEL_OPEN:
                self.write(channel.number, method("channel.flow", flow_pause=is_paused))

    # Methods of channels

    def channel_method(self, channel: Channel, said: FastMethod, call: Call) -> None:
        was_open = channel.state == phases.CHANNEL_OPEN
        self.broker.tell_lost_consumers()  # which closes channels: not in the middle of a method
        if was_open and channel.state != phases.CHANNEL_OPEN:
            return
        self.calls[channel.number] = call
        try:
            commands.run(self, channel, said)
            self.count_work()
            self.check_undelivered(channel, call)
            if call.wants_synch() and channel.state == phases.CHANNEL_OPEN:
                self.reply(channel.number, method(SYNCH))
        except AnswerPending as pending:
            self.wait_for(pending, channel, partial(self.channel_method, channel, said, call))
        except PeerFault as fault:
            self.fail(channel, fault)

    def ask(self, channel: Channel, asked: Method) -> None:
        """Does what a method of AMQP does, with all its checks.

        When a back end has answered, the same is asked again, with the name that was drawn for a queue.
        """
        asked = self.unanswered.pop(channel.number, asked)
        try:
            channel_commands.run(self, channel, asked)
        except AnswerPending:
            self.unanswered[channel.number] = asked
            raise

    def check_ticket(self, channel: Channel, asked: Method) -> None:
        if self.connection.by_ticket:
            check_ticket(self.owner_of(channel), asked)

    # Contents

    def immediate_begins(self, channel: Channel, call: Call) -> None:
        """What a commit finds without a consumer could be told of only when the commit is done."""
        self.calls[channel.number] = call
        if self.owner_of(channel).transaction is not None:
            text = "an immediate message is not part of a transaction here"
            self.fail(channel, ChannelFault(amqp.NOT_IMPLEMENTED, text))

    def stage_begins(self, channel: Channel, destination: str, call: Call) -> None:
        self.calls[channel.number] = call
        identifier = commands.staged_identifier(self, channel)
        if identifier is not None:
            self.destinations[channel.number, identifier] = destination
            while len(self.destinations) > DESTINATIONS_MAX:
                del self.destinations[next(iter(self.destinations))]

    def test_begins(self, channel: Channel, header: bytes, call: Call) -> None:
        self.calls[channel.number] = call
        self.tested[channel.number] = header

    def content_follows(self, channel: Channel, call: Call) -> None:
        self.calls[channel.number] = call
        owner = self.owner_of(channel)
        if call.wants_synch() and owner.transaction is None:
            owner.confirms.active = True
            octets = self.framed(channel.number, method(SYNCH), *self.answering(channel.number))
            waiting = self.waiting.setdefault(channel.number, deque())
            waiting.append(Waiting(owner.confirms.published + 1, octets, call))

    def content_came(self, channel: Channel, call: Call) -> None:
        """In a transaction what is accepted waits for its commit, and its synchpoint does not."""
        if channel.number in self.asking:
            self.unpublished[channel.number] = call
            return
        self.check_undelivered(channel, call)
        owner = channel.owner
        if (
            call.wants_synch()
            and channel.state == phases.CHANNEL_OPEN
            and isinstance(owner, BrokerChannel)
            and owner.transaction is not None
        ):
            self.reply(channel.number, method(SYNCH))

    def content(self, channel: Channel, asked: Method, content: bytes, header_size: int) -> None:
        if not isinstance(asked, methods.TestContent):
            super().content(channel, asked, content, header_size)
            return
        self.count_work()
        header = self.tested.pop(channel.number, b"")
        try:
            check_test_size(len(content) - header_size)
        except PeerFault as fault:
            self.fail(channel, fault)
            return
        checksum = sum(memoryview(content)[header_size:]) % (1 << 32)
        answer = method("test.content-ok", content_checksum=checksum)
        flags, synctag = self.answering(channel.number)
        self.out.write_carrying(channel.number, answer, flags, synctag, header, content, header_size)

    def wait_for(self, pending: AnswerPending, channel: Channel | None, again: Callable[[], None]) -> None:
        if channel is not None:
            self.asking.add(channel.number)
        super().wait_for(pending, channel, again)

    def answered(self, channel: Channel | None, again: Callable[[], None]) -> None:
        """A content that a back end was asked about is published now, unless there is more to ask."""
        if channel is not None:
            self.asking.discard(channel.number)
        super().answered(channel, again)
        call = None if channel is None else self.unpublished.pop(channel.number, None)
        if channel is not None and call is not None and self.connection.state < phases.CONNECTION_CLOSING:
            self.content_came(channel, call)

    def check_undelivered(self, channel: Channel, call: Call) -> None:
        """`immediate` asserts something: what is not so is an exception of the channel."""
        text = self.undelivered.pop(channel.number, "")
        if not text:
            return
        waiting = self.waiting.get(channel.number)
        if waiting and waiting[-1].call is call:
            waiting.pop()
        if channel.state == phases.CHANNEL_OPEN:
            self.fail(channel, ChannelFault(amqp.NO_CONSUMERS, text))

    # Unreal methods

    def unreal(self, number: int, kind: MethodKind, call: Call) -> None:
        """Answered as expected, with nothing in it and nothing done; what is not answered has a synch."""
        self.count_work()
        if kind.name == "connection.unknown":
            return
        name = EMPTY if kind.reply == BROWSED else kind.reply or SYNCH
        flags = UNREAL | (call.flags & TRACER)
        self.out.write_said(number, method(name), flags, call.synctag)

    def unknown(self, class_id: int, method_id: int, synctag: int) -> None:
        self.count_work()
        answer = method(
            "connection.unknown",
            class_id=class_id,
            method_id=method_id,
            synctag=synctag,
            reply_code=amqp.NOT_IMPLEMENTED,
            reply_text="a server does not have this method",
        )
        self.out.write_said(0, answer, 0, synctag)

    def unknown_frame(self, kind: int) -> None:
        why = f"a frame of type {kind}, which is not defined"
        if self.user is None:
            handshake.refuse_handshake(self, why, self.link.drop)
        else:
            handshake.strangers_log.warning("connection of %s dropped: %s", self, why)
            self.link.drop()

    # What goes out

    def answering(self, channel: int) -> tuple[int, int]:
        call = self.calls.get(channel)
        return (0, 0) if call is None else (call.flags & TRACER, call.synctag)

    def framed(self, number: int, said: FastMethod, flags: int, synctag: int) -> bytes:
        return frames.framed(frames.METHOD, number, encode(said, flags, synctag))

    def write(self, number: int, said: FastMethod, flags: int = 0, synctag: int = 0) -> None:
        self.out.write_on(number, self.framed(number, said, flags, synctag))

    def reply(self, number: int, said: FastMethod) -> None:
        """Replies come in the order of what they answer, and some of them wait for the disk."""
        octets = self.framed(number, said, *self.answering(number))
        waiting = self.waiting.get(number)
        if waiting:
            waiting.append(Waiting(waiting[-1].published, octets, None))
        else:
            self.out.write_on(number, octets)

    def send(self, number: int, said: Method) -> None:
        """What channels are told by methods of AMQP."""
        if isinstance(said, methods.ChannelClose):
            flags, *failed = self.failed.pop(number, (0, *NOBODY))
            self.forget(number)
            self.write(number, closing("channel.close", said, tuple(failed)), flags)
        elif isinstance(said, methods.ChannelCloseOk):
            flags, synctag = self.answering(number)
            self.forget(number)
            self.write(number, method("channel.close-ok"), flags, synctag)
        elif isinstance(said, methods.FileOpen):
            opening = method("file.open", identifier=said.identifier, content_size=said.content_size)
            self.write(number, opening)
        elif isinstance(said, methods.QueueDeclareOk):
            self.reply(number, self.asserted(number, said))
        elif said.NAME in PLAIN_ANSWERS:
            answer = KINDS[PLAIN_ANSWERS[said.NAME]]
            values = {name: getattr(said, name) for name, _ in answer.fields}
            if "consumer_tag" in values:
                values["consumer_tag"] = int(values["consumer_tag"])
            self.reply(number, FastMethod(answer, values))
        elif said.NAME not in UNSAID:
            raise ProtocolMisuse(f"{said.NAME} is no answer of AMQP/Fast")

    def asserted(self, number: int, said: methods.QueueDeclareOk) -> FastMethod:
        """With the name as the client is to use it, and the proxy that messages come by."""
        channel = self.fast.channel_of(number)
        proxies: list[str] = []
        if channel is not None and isinstance(channel.owner, BrokerChannel):
            queue = channel.owner.virtual_host.lookup_queue(channel.owner.last_queue)
            proxies = [] if queue is None else registrations.entries_of(queue)
        namespace = self.namespaces.pop(number, "")
        return method(
            "queue.assert-ok",
            queue=str(said.queue).removeprefix(f"{namespace}:") if namespace else str(said.queue),
            proxy=proxies[0] if proxies else "",
            message_count=said.message_count,
            consumer_count=said.consumer_count,
        )

    def forget(self, number: int) -> None:
        """The channel of this number is over."""
        for kept in (self.calls, self.waiting, self.unanswered, self.namespaces, self.tested, self.deleted):
            kept.pop(number, None)
        for told in (self.undelivered, self.unpublished):
            told.pop(number, None)
        self.asking.discard(number)
        for key in [key for key in self.destinations if key[0] == number]:
            del self.destinations[key]
        for place in [place for place in self.out.targets if place[0] == number]:
            del self.out.targets[place]

    # What the broker says by itself

    def settled(self, channel: int, code: int, tag: int) -> None:
        """The messages of a channel are safe up to this one, or this one was refused."""
        waiting = self.waiting.get(channel)
        while waiting and waiting[0].published <= tag:
            first = waiting.popleft()
            if code == amqp.BASIC_NACK and first.call is not None and first.published == tag:
                found = self.fast.channel_of(channel)
                self.calls[channel] = first.call
                waiting.clear()
                if found is not None and found.state == phases.CHANNEL_OPEN:
                    text = "the queue has refused the message, or could not keep it"
                    self.fail(found, ChannelFault(amqp.RESOURCE_ERROR, text))
                return
            self.out.write_on(channel, first.octets)

    def returned(self, channel: int, payload: bytes) -> None:
        text = "no consumer can take the message at once, and it was published as immediate"
        self.undelivered[channel] = text

    def told_by_broker(self, channel: int, payload: bytes) -> None:
        """A consumer has lost its queue, or a content is to be staged at the client."""
        code = int.from_bytes(payload[:4], "big")
        if code == amqp.FILE_OPEN:
            self.send(channel, methods.decode_method(amqp.VERSION_0_9, payload))
        elif code == amqp.BASIC_CANCEL:
            self.consumer_lost(channel, payload[4 : 5 + payload[4]])

    def consumer_lost(self, number: int, tag: bytes) -> None:
        """Its queue is gone, which closes the channel, unless the channel has deleted the queue itself."""
        target = self.out.targets.pop((number, tag), None)
        channel = self.fast.channel_of(number)
        if target is None or channel is None or channel.state != phases.CHANNEL_OPEN:
            return
        if self.deleted.get(number) != commands.name_within(target.namespace, target.queue):
            self.calls.pop(number, None)
            text = f"the queue '{target.queue}' of a consumer was deleted"
            self.fail(channel, ChannelFault(amqp.NOT_FOUND, text))

    def fail(self, channel: Channel | None, fault: PeerFault) -> None:
        """A fault of what was asked closes the channel, whatever it closes elsewhere (section 3.18.3)."""
        if channel is not None and not isinstance(fault, ChannelFault) and fault.code not in FATAL:
            fault = ChannelFault(fault.code, fault.text)
        call = None if channel is None else self.calls.get(channel.number)
        failed = (0, *NOBODY) if call is None else (call.flags & TRACER, *call.ids)
        if channel is not None and isinstance(fault, ChannelFault):
            self.failed[channel.number] = failed
        else:  # kept until the close is said: the connection may take several passes to part
            fast = self.fast
            if fast.failing != NOBODY:
                failed = (fast.failing_flags & TRACER, *fast.failing)
            self.failed.setdefault(0, failed)
        super().fail(channel, fault)


def closing(name: str, said: Any, failing: tuple[int, ...]) -> FastMethod:
    class_id, method_id, synctag = failing
    return method(
        name,
        reply_code=said.reply_code,
        reply_text=cut(said.reply_text).replace("\0", " "),
        class_id=class_id,
        method_id=method_id,
        synctag=synctag,
    )


CONNECTION_METHODS: dict[str, Any] = {
    "connection.start-ok": Fast09Session.started_ok,
    "connection.secure-ok": Fast09Session.secured,
    "connection.tune-ok": Fast09Session.tuned,
    "connection.open": Fast09Session.opened,
    "connection.close": Fast09Session.closed,
    "connection.close-ok": Fast09Session.closed_ok,
    "connection.unknown": Fast09Session.heard_unknown,
}

# Answers whose fields have the same names on both sides.
PLAIN_ANSWERS = {
    "channel.open-ok": "channel.open-ok",
    "access.request-ok": "access.grant-ok",
    "exchange.declare-ok": "proxy.assert-ok",
    "exchange.delete-ok": "proxy.delete-ok",
    "queue.bind-ok": "queue.register-ok",
    "queue.unbind-ok": "queue.cancel-ok",
    "queue.purge-ok": "queue.purge-ok",
    "queue.delete-ok": "queue.delete-ok",
    "basic.consume-ok": "jms.consume-ok",
    "basic.cancel-ok": "jms.cancel-ok",
    "basic.get-empty": "jms.browse-empty",
    "file.consume-ok": "file.consume-ok",
    "file.cancel-ok": "file.cancel-ok",
    "file.open-ok": "file.open-ok",
    "stream.consume-ok": "stream.consume-ok",
    "stream.cancel-ok": "stream.cancel-ok",
    "tx.commit-ok": "tx.commit-ok",
    "tx.rollback-ok": "tx.abort-ok",
    "dtx.start-ok": "dtx.start-ok",
    "test.integer-ok": "test.integer-ok",
    "test.string-ok": "test.string-ok",
    "test.table-ok": "test.table-ok",
}
# Answers of AMQP to what is not answered in AMQP/Fast.
UNSAID = frozenset(("channel.flow-ok",))
