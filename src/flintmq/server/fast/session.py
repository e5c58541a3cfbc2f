"""A session of AMQP/Fast: what its commands mean to the broker, and what the broker says as commands.

    CONNECTION, CHANNEL and HANDLE commands --> methods of AMQP, by server/commands/command.py --> broker
    deliveries, confirms, returned messages --> NOTIFY, REPLY, CLOSE

So permissions, limits, alarms and the audit log are those of every other client. A queue service is the
queues of the virtual host, a topic service is the exchange amq.topic. docs/fast.md says how the document was
read.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from flintmq.auth import AnswerPending
from flintmq.broker.channels.channel import Channel as BrokerChannel
from flintmq.broker.transactions.transaction import Transaction
from flintmq.errors import ChannelFault, ConnectionFault, PeerFault
from flintmq.protocol import phases
from flintmq.protocol.channel import Channel
from flintmq.protocol.fast.connection import FastConnection
from flintmq.protocol.fast.handle import Handle
from flintmq.protocol.fast.outbox import FastOutput
from flintmq.reply_codes import REPLY_NAMES
from flintmq.server.commands import channel as channel_class
from flintmq.server.commands import command as channel_commands
from flintmq.server.commands import tx as tx_class
from flintmq.server.fast import client_names, handle_commands
from flintmq.server.fast.handle_commands import LOOK_COPIES
from flintmq.server.fast.listings import Listing
from flintmq.server.fast.restarts import Restarts
from flintmq.server.sessions import handshake
from flintmq.server.sessions.session import METHOD_COPIES, Session, cut
from flintmq.wire import amqp, methods
from flintmq.wire.fast import commands
from flintmq.wire.fast.commands import Command

if TYPE_CHECKING:
    from flintmq.broker.broker import Broker
    from flintmq.protocol.channel import Sink
    from flintmq.protocol.connection import Connection
    from flintmq.wire.methods import Method
    from flintmq.wire.tables import FieldTable

log = logging.getLogger("flintmq.fast")

# Of the mechanisms that the broker has: what the document defines, and what needs no words.
MECHANISMS = ("PLAIN", "EXTERNAL")
# What a client can do that Session asks after.
CAPABILITIES = {"authentication_failure_close": True, "consumer_cancel_notify": True}
# Short names that one connection may give to headers.
NAMES_MAX = 1024

# A fragment of a message takes some 10 microseconds.
PART_COPIES = 128

OK = "Ok"


class Reply:
    """A command that is written when all that was sent on its channel up to `published` is safe."""

    __slots__ = ("confirm_tag", "frame", "handle", "published")

    def __init__(
        self, published: int, frame: bytes, handle: Handle | None = None, confirm_tag: int = 0
    ) -> None:
        self.published = published
        self.frame = frame
        self.handle = handle  # of a SEND
        self.confirm_tag = confirm_tag


class FastSession(Session):
    """One client, from 128 1 to its last octet."""

    def __init__(self, broker: Broker, output: FastOutput, link: Any, peer_address: str) -> None:
        super().__init__(broker, output, link, peer_address)
        output.told = self
        self.out = output
        self.replies: dict[int, deque[Reply]] = {}  # by channel: what waits for messages to be safe
        self.committing: dict[int, int] = {}  # by channel: the confirm tag of a commit in hand
        self.closes: dict[
            int, bytes
        ] = {}  # by channel: what was said when it was closed, to be said once again
        self.consumers = handle_commands.Consumers(self)
        self.restarts = Restarts(self)
        self.listings: dict[int, Listing] = {}  # by handle
        self.wanted_heartbeat_s: int = broker.config.limits.heartbeat_s  # what the client says of it counts
        self.client_name = ""
        self.answer_method: Method | None = None
        # Of a command that waits for a back end: answers to the methods that it has asked so far, how many of
        # them it has heard again, and the method that waits.
        self.answers: list[Method | None] = []
        self.heard = 0
        self.unanswered: Method | None = None
        # Of the same command, by name: whether the user may read from a queue, or enter a virtual host.
        self.decided: dict[str, bool] = {}
        self.in_hand: Reply | None = None  # of the SEND that is being published

    def new_connection(self) -> Connection:
        self.fast = FastConnection(
            self, self, cast(FastOutput, self.output), self.broker.config.limits.message_bytes_max
        )
        return self.fast

    def now_ms(self) -> int:
        return self.broker.timetable.now_ms()

    def heartbeat(self) -> bytes:
        """A ping that asks for an answer: a peer need not ping by itself."""
        return PING

    # Commands

    def command(self, command: Command) -> None:
        self.answers.clear()
        self.unanswered = None
        self.decided.clear()
        self.consumers.earlier = self.consumers.serial
        self.broker.tell_lost_consumers()  # which closes handles: not in the middle of a command
        self.do(command)

    def do(self, command: Command) -> None:
        """Once more, when a back end has answered: what was asked before is not asked again."""
        self.heard = 0
        channel: Channel | None = None
        try:
            if command.NAME.startswith("handle."):
                handle = self.handle_of(command)
                if handle is not None:
                    channel = handle.channel
                    handle_commands.run(self, handle, command)
            elif command.NAME.startswith("channel."):
                channel = self.channel_of(command)
                if channel is not None:
                    CHANNEL_COMMANDS[command.NAME](self, channel, command)
            else:
                CONNECTION_COMMANDS[command.NAME](self, command)
            self.count_work(METHOD_COPIES)
        except AnswerPending as pending:
            if isinstance(command, commands.HandleOpen):
                self.fast.handles.pop(command.handle_id)
            self.wait_for(pending, channel, partial(self.do, command))
        except PeerFault as fault:
            self.fail(channel, fault)

    def count_work(self, copies: int) -> None:
        """So much was done, as copies of messages count: after some of it others have their turn."""
        pass_work = self.broker.pass_work
        pass_work.copies += copies
        if pass_work.is_laden():
            self.connection.paused = True

    def ask(self, channel: Channel, method: Method) -> Method | None:
        """Does what a method of AMQP does, with all its checks; its answer."""
        self.heard += 1
        if self.heard > len(self.answers):
            asked = (
                self.unanswered or method
            )  # the former has the name that was drawn for a queue without one
            self.answer_method = None
            try:
                channel_commands.run(self, channel, asked)
            except AnswerPending:
                self.unanswered = asked
                raise
            self.unanswered = None
            self.answers.append(self.answer_method)
        return self.answers[self.heard - 1]

    def owner_of(self, channel: Channel) -> BrokerChannel:
        return channel_commands.broker_channel(channel)

    # The connection

    def greeted(self, version: int) -> None:
        self.link.greeted()
        offered = self.broker.authentication.mechanisms_offered().split()
        names = " ".join(name for name in offered if name in MECHANISMS)
        self.output.write(commands.encode(commands.ConnectionChallenge(1, names)))

    def response(self, command: commands.ConnectionResponse) -> None:
        if command.mechanism not in MECHANISMS:
            text = f"mechanism '{command.mechanism[:32]}' was not offered"
            raise ConnectionFault(amqp.NOT_ALLOWED, text)
        fields = command.responses
        octets = b""
        if command.mechanism == "PLAIN":
            login, password = fields.get("LOGIN"), fields.get("PASSWORD")
            if not isinstance(login, str) or not isinstance(password, str):
                text = "PLAIN takes the fields LOGIN and PASSWORD, both of them strings"
                raise ConnectionFault(amqp.SYNTAX_ERROR, text)
            if "\0" in login or "\0" in password:
                raise ConnectionFault(amqp.SYNTAX_ERROR, "LOGIN and PASSWORD must not contain a NUL")
            octets = f"\0{login}\0{password}".encode()
        properties: FieldTable = {"product": "AMQP/Fast", "capabilities": dict(CAPABILITIES)}
        handshake.start_ok(
            self,
            methods.ConnectionStartOk(
                client_properties=properties, mechanism=command.mechanism, response=octets, locale=""
            ),
        )

    def tuned(self, command: commands.ConnectionTune) -> None:
        """CONNECTION TUNE of the client, of which there may be several."""
        limits = self.broker.config.limits
        frame_max = command.options.get("FRAME_MAX", self.output.frame_bytes_max)
        heartbeat = command.options.get("HEARTBEAT", self.wanted_heartbeat_s)
        if not isinstance(frame_max, int) or not (
            commands.FRAME_BYTES_MIN <= frame_max <= limits.frame_bytes_max
        ):
            text = f"FRAME_MAX {frame_max!r} is not in {commands.FRAME_BYTES_MIN}..{limits.frame_bytes_max}"
            raise ConnectionFault(amqp.NOT_ALLOWED, text)
        if not isinstance(heartbeat, int) or not 0 <= heartbeat <= 65_535:
            raise ConnectionFault(amqp.NOT_ALLOWED, f"HEARTBEAT {heartbeat!r} is not in 0..65535 seconds")
        self.output.frame_bytes_max = frame_max
        self.wanted_heartbeat_s = heartbeat
        for short_name, name in command.dictionary.items():
            if not isinstance(name, str) or not 0 < len(name.encode()) <= 128:
                text = f"dictionary: '{short_name}' stands for no name of 1 to 128 octets"
                raise ConnectionFault(amqp.SYNTAX_ERROR, text)
            self.fast.names.setdefault(short_name.encode(), name.encode())
            self.out.names.setdefault(name.encode(), short_name.encode())
        if max(len(self.fast.names), len(self.out.names)) > NAMES_MAX:
            raise ConnectionFault(amqp.RESOURCE_ERROR, f"more than {NAMES_MAX} names in dictionaries")

    def opened(self, command: commands.ConnectionOpen) -> None:
        limits = self.broker.config.limits
        self.connection.channel_max = limits.channels_per_connection_max
        self.heartbeat_s = self.wanted_heartbeat_s
        self.fast.open_confirm_tag = command.confirm_tag
        name = client_names.host_of_path(self, command.virtual_path, self.decided)
        client_names.check(self, name, command.client_name)
        self.client_properties["client_name"] = command.client_name
        handshake.open_connection(self, methods.ConnectionOpen(virtual_host=name))
        self.connection.by_ticket = False  # AMQP/Fast has none
        self.client_name = client_names.claim(self, command.client_name)
        self.link.start_heartbeats(self.heartbeat_s)

    def ping(self, command: commands.ConnectionPing) -> None:
        if command.respond:
            self.output.write(commands.encode(commands.ConnectionPing()))

    def closed(self, command: commands.ConnectionClose) -> None:
        """Of the peer: it says goodbye, or answers our own."""
        if self.fast.is_close_said:
            self.link.finish()
        else:
            self.close(methods.ConnectionClose())

    def depart(self, kind: int, answer: Any) -> None:
        for channel in self.connection.all_channels():
            self.restarts.keep(channel)
        self.consumers.depart()
        client_names.release(self, self.client_name)
        self.client_name = ""
        super().depart(kind, answer)

    # Channels

    def channel_of(self, command: Any) -> Channel | None:
        """The channel of a command, None if it is to be ignored."""
        number: int = command.channel_id
        channel = self.fast.channel_of(number)
        if isinstance(command, commands.ChannelOpen):
            if not number:
                raise ConnectionFault(amqp.CHANNEL_ERROR, "channel 0 cannot be opened: numbers begin with 1")
            if channel is None:
                channel = self.fast.enter_channel(number)
                self.open_channel(channel)
                return channel
        if isinstance(command, commands.ChannelClose):
            return channel  # of none: the answer to a close that was said again
        if channel is None:
            raise self.fast.no_channel(number)
        if channel.state == phases.CHANNEL_OPEN:
            return channel
        if number in self.closes:
            self.out.write_command(number, self.closes.pop(number))
        return None

    def open_fast_channel(self, channel: Channel, command: commands.ChannelOpen) -> None:
        owner = self.owner_of(channel)
        if channel.number in self.replies:
            text = f"channel {channel.number} is open already"
            raise ChannelFault(amqp.CHANNEL_ERROR, text)
        self.replies[channel.number] = deque()
        if command.out_of_band:
            text = "messages are not taken out of band: leave out-of-band empty"
            raise ChannelFault(amqp.NOT_IMPLEMENTED, text)
        if command.restartable:
            self.restarts.channels.add(channel.number)
        if command.transacted:
            owner.transaction = Transaction(owner)
        self.confirm_channel(channel, command.confirm_tag)

    def close_fast_channel(self, channel: Channel, command: commands.ChannelClose) -> None:
        self.restarts.keep(channel)
        self.restarts.channels.discard(channel.number)
        channel.abandon_content()
        self.forget_handles(channel)
        if channel.state in (phases.CHANNEL_OPEN, phases.CHANNEL_ENDING):  # ours is not said yet
            channel.follow("channel.close")
            channel_class.channel_close(self, channel, methods.ChannelClose())
        else:
            channel.follow("channel.close-ok")
            channel_class.channel_close_ok(self, channel, methods.ChannelCloseOk())
        self.closes.pop(channel.number, None)
        self.replies.pop(channel.number, None)

    def forget_handles(self, channel: Channel) -> None:
        self.fast.sending.pop(channel.number, None)
        self.count_work(LOOK_COPIES * len(self.fast.handles))
        for handle in [each for each in self.fast.handles.values() if each.channel is channel]:
            self.consumers.forget(handle)
            self.listings.pop(handle.number, None)
            del self.fast.handles[handle.number]

    def commit(self, channel: Channel, command: commands.ChannelCommit) -> None:
        """All that was notified counts as processed (CHANNEL COMMIT)."""
        owner = self.owner_of(channel)
        transaction = tx_class.open_transaction(channel)
        notified = owner.held(0, True, command.NAME)
        if notified:
            transaction.ack(notified)
        self.committing[channel.number] = command.confirm_tag
        self.ask(channel, methods.TxCommit())

    def rollback(self, channel: Channel, command: commands.ChannelRollback) -> None:
        """What was notified goes back to its destinations (CHANNEL ROLLBACK)."""
        self.ask(channel, methods.TxRollback())
        self.owner_of(channel).recover(True)
        self.confirm_channel(channel, command.confirm_tag)

    def ack_through(self, channel: Channel, number: int, confirm_tag: int) -> None:
        """Of a number that was never given, or was acked before, all before it are acked (CHANNEL ACK)."""
        try:
            owner = self.owner_of(channel)
            tag = whole_tag(owner.delivery_tag, number)
            if owner.transaction is None:
                tag = owner.unacked.last_through(tag)
            else:
                unacked = owner.held(0, True, "channel.ack")
                held = [each for each in unacked if each.tag <= tag]
                tag = held[-1].tag if held else 0
                self.count_work(METHOD_COPIES + LOOK_COPIES * len(unacked))
            if tag:
                owner.ack(tag, True)
            if confirm_tag:
                self.confirm_channel(channel, confirm_tag)
        except PeerFault as fault:
            self.fail(channel, fault)

    def whole_tag(self, owner: BrokerChannel, number: int) -> int:
        return whole_tag(owner.delivery_tag, number)

    def find_route(self, handle: Handle, name: str, is_known: bool) -> bool:
        try:
            handle_commands.find_route(self, handle, name, is_known)
        except AnswerPending as pending:
            self.fast.is_to_repeat = True
            self.wait_for(pending, handle.channel, nothing)
            return False
        except PeerFault as fault:
            self.fail(handle.channel, fault)
            return False
        return True

    def spool_contents(self) -> None:
        """Between two commands, or while a back end is asked about one: that one stays the current one."""
        current = self.fast.current
        try:
            super().spool_contents()
        finally:
            self.fast.current = current

    def begin_body(self, channel: Channel, route: bytes, flags: int, header: bytes) -> Sink | None:
        """Where memory is short, that is later than the command: a fault is one of the handle that sends."""
        self.fast.current = self.fast.sending.get(channel.number)
        return super().begin_body(channel, route, flags, header)

    def check_body(self, channel: Channel, route: bytes, flags: int, header: bytes) -> None:
        """A command of another handle may wait for its answer still: that one stays the current one."""
        current = self.fast.current
        self.fast.current = self.fast.sending.get(channel.number)
        try:
            super().check_body(channel, route, flags, header)
        finally:
            self.fast.current = current

    def prepare(self, handle: Handle, head: bytes, body: bytes, content_hash: str) -> None:
        try:
            self.restarts.prepare(handle, head, body, content_hash)
        except PeerFault as fault:
            self.fail(handle.channel, fault)

    def part_came(self) -> None:
        self.count_work(PART_COPIES)

    def is_prepared(self, channel: Channel) -> bool:
        return channel.number in self.restarts.prepared

    def recover(self, handle: Handle, send: commands.HandleSend, fragment: bytes) -> None:
        try:
            self.restarts.recover(handle, send, fragment)
        except PeerFault as fault:
            self.fail(handle.channel, fault)

    # Replies

    def confirm_channel(self, channel: Channel, confirm_tag: int) -> None:
        if confirm_tag:
            reply = commands.ChannelReply(channel.number, confirm_tag, amqp.REPLY_SUCCESS, OK)
            self.reply(channel, commands.encode(reply))

    def confirm_handle(
        self, handle: Handle, confirm_tag: int, code: int = amqp.REPLY_SUCCESS, text: str = OK
    ) -> None:
        if confirm_tag:
            reply = commands.HandleReply(handle.number, confirm_tag, code, cut(text))
            self.reply(handle.channel, commands.encode(reply))

    def reply(self, channel: Channel, frame: bytes) -> None:
        """Replies come in the order of their commands, and some of them wait for the disk."""
        waiting = self.replies.get(channel.number)
        if waiting:
            waiting.append(Reply(waiting[-1].published, frame))
        else:
            self.out.write_command(channel.number, frame)

    def will_confirm(self, handle: Handle, confirm_tag: int) -> None:
        owner = handle.channel.owner
        if isinstance(owner, BrokerChannel) and owner.transaction is None:
            owner.confirms.active = True
            reply = commands.HandleReply(handle.number, confirm_tag, amqp.REPLY_SUCCESS, OK)
            frame = commands.encode(reply)
            self.in_hand = Reply(owner.confirms.published + 1, frame, handle, confirm_tag)
            self.replies[handle.channel.number].append(self.in_hand)

    def has_sent(self, handle: Handle, confirm_tag: int) -> None:
        """In a transaction a message that is accepted waits for its commit, and its confirmation does not."""
        self.in_hand = None
        owner = handle.channel.owner
        if isinstance(owner, BrokerChannel) and owner.transaction is not None and not handle.is_closing:
            self.confirm_handle(handle, confirm_tag)

    def settled(self, channel: int, code: int, tag: int) -> None:
        """The broker has the messages of a channel safe up to this one, or has refused this one."""
        waiting = self.replies.get(channel)
        while waiting and waiting[0].published <= tag:
            reply = waiting.popleft()
            frame = reply.frame
            if code == amqp.BASIC_NACK and reply.handle is not None and reply.published == tag:
                text = "the destination has refused the message, or could not keep it"
                frame = commands.encode(
                    commands.HandleReply(reply.handle.number, reply.confirm_tag, amqp.RESOURCE_ERROR, text)
                )
            self.out.write_command(channel, frame)

    def returned(self, channel: int, payload: bytes) -> None:
        """A message to a queue that is not there (section "Destination Name Hierarchies")."""
        key_at = 7 + payload[6]
        key_at += 1 + payload[key_at]
        name = payload[key_at + 1 :].decode("utf-8", "replace")
        handle = self.fast.current
        if handle is None or handle.channel.number != channel:
            handle = self.handle_to(channel, name)
        if handle is not None:
            self.handle_fault(handle, ChannelFault(amqp.NOT_FOUND, f"no queue '{name}'"))

    def handle_to(self, channel: int, name: str) -> Handle | None:
        """The handle that a message came by, which is known no more: at the end of a transaction."""
        for handle in self.fast.handles.values():
            if handle.channel.number == channel and handle.is_producer and name.startswith(handle.name):
                return handle
        return None

    def cancelled(self, channel: int, tag: bytes) -> None:
        """A queue that is consumed from is gone, or has a message that a body size cannot tell."""
        handle = self.consumers.handle_of(tag)
        if handle is not None:
            fault = ChannelFault(amqp.NOT_FOUND, "the destination was deleted")
            consumer = self.owner_of(handle.channel).consumers.get(tag[1:].decode())
            if consumer is not None and not consumer.queue.deleted:
                fault = handle_commands.too_large(consumer.queue.name)
            self.handle_fault(handle, fault)

    # Faults

    def handle_of(self, command: Any) -> Handle | None:
        """The handle of a command, None if it is to be ignored."""
        if isinstance(command, commands.HandleOpen):
            return handle_commands.opened(self, command)
        handle = self.fast.handles.get(command.handle_id)
        if handle is None:
            if isinstance(command, commands.HandleClose):
                return None  # it crossed ours
            raise self.fast.no_handle(command.handle_id)
        if isinstance(command, commands.HandleClose):
            return handle
        if handle.is_closing or handle.channel.state != phases.CHANNEL_OPEN:
            return None
        self.fast.current = handle
        return handle

    def handle_fault(self, handle: Handle, fault: ChannelFault) -> None:
        """Any error on a destination results in a HANDLE CLOSE (section "Error Handling")."""
        if handle.is_closing:
            return
        log.info("handle %d of %s closed: %s", handle.number, self, fault.text)
        self.audit_refusal(fault)
        if self.fast.sending.get(handle.channel.number) is handle:
            self.restarts.forget(handle.channel)
        self.end_handle(handle)
        handle.is_closing = True
        self.take_back_reply(handle)
        close = commands.HandleClose(handle.number, fault.code, told(fault))
        self.reply(handle.channel, commands.encode(close))

    def take_back_reply(self, handle: Handle) -> None:
        """The message that the handle was about to publish is at fault, and is not confirmed.

        Where a back end was asked about it, others may have been told to wait behind its confirmation.
        """
        number, owner = handle.channel.number, handle.channel.owner
        waiting = self.replies.get(number)
        if not waiting or not isinstance(owner, BrokerChannel):
            return
        at = len(waiting) - 1
        while at >= 0 and waiting[at].handle is None and waiting[at].published > owner.confirms.published:
            at -= 1
        found = waiting[at] if at >= 0 else None
        if found is None or found.handle is not handle:
            return
        if found is not self.in_hand and found.published <= owner.confirms.published:
            return  # it is published
        del waiting[at]
        before = waiting[at - 1].published if at else 0
        for behind in islice(waiting, at, None):
            behind.published = before
        while waiting and not waiting[0].published:
            self.out.write_command(number, waiting.popleft().frame)

    def end_handle(self, handle: Handle) -> None:
        """What it consumes and is in the middle of sending ends."""
        number = handle.channel.number
        if self.fast.sending.get(number) is handle:
            self.restarts.keep(handle.channel)
        self.listings.pop(handle.number, None)
        if self.fast.sending.get(number) is handle:
            del self.fast.sending[number]
            handle.channel.abandon_content()
        self.consumers.cancel(handle)

    def fail(self, channel: Channel | None, fault: PeerFault) -> None:
        handle = self.fast.current
        if (
            handle is not None
            and channel is handle.channel
            and isinstance(fault, ChannelFault)
            and channel.state == phases.CHANNEL_OPEN
        ):
            self.handle_fault(handle, fault)
            return
        if channel is not None and isinstance(fault, ChannelFault):
            self.forget_handles(channel)
        super().fail(channel, fault)

    def send(self, number: int, method: Method) -> None:
        """What channels are told by methods of AMQP."""
        if isinstance(method, methods.ChannelClose):
            frame = commands.encode(commands.ChannelClose(number, method.reply_code, method.reply_text))
            self.closes[number] = frame
            self.out.write_command(number, frame)
        elif isinstance(method, methods.ChannelCloseOk):
            close = commands.ChannelClose(number, amqp.REPLY_SUCCESS, OK)
            self.out.write_command(number, commands.encode(close))
        elif isinstance(method, methods.TxCommitOk):
            channel = self.fast.channel_of(number)
            if channel is not None:
                self.confirm_channel(channel, self.committing.pop(number, 0))
        else:
            self.answer_method = method  # of a method that a command is made of


PING = commands.encode(commands.ConnectionPing(respond=True))


def nothing() -> None:
    """What was held back is looked at again all the same."""


def whole_tag(newest: int, number: int) -> int:
    """The delivery tag that a message number means: the last one with these lower 32 bits."""
    tag = newest & ~0xFFFFFFFF | number
    return tag if tag <= newest else max(tag - (1 << 32), 0) if newest >> 32 else newest


def told(fault: PeerFault) -> str:
    return cut(fault.reply_text if fault.code in REPLY_NAMES else fault.text)


CONNECTION_COMMANDS: dict[str, Any] = {
    "connection.response": FastSession.response,
    "connection.tune": FastSession.tuned,
    "connection.open": FastSession.opened,
    "connection.ping": FastSession.ping,
    "connection.close": FastSession.closed,
}

CHANNEL_COMMANDS: dict[str, Any] = {
    "channel.open": FastSession.open_fast_channel,
    "channel.commit": FastSession.commit,
    "channel.rollback": FastSession.rollback,
    "channel.close": FastSession.close_fast_channel,
}
