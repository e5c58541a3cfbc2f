"""A connection of AMQP/Fast in the server's role: octets in, events out.

    128 1  then   | size 2 | code 1 | fields ... | end 0xCE |  [message fragment]  | size 2 | ...

A command and its fragment are taken when both are there. A message that comes whole in one HANDLE SEND is
published in one go; one in several fragments is gathered like a content of AMQP, so that large ones go to
files. What a message looks like afterwards is Basic (wire/fast/crossing.py): all of the broker behind here
serves it.
A fault of the octets, or a channel or handle that was never opened, ends the connection.
"""

from __future__ import annotations

from typing import Protocol

from flintmq.errors import ChannelFault, ConnectionFault, ProtocolMisuse
from flintmq.protocol import phases
from flintmq.protocol.channel import Channel
from flintmq.protocol.connection import Connection
from flintmq.protocol.events import Events
from flintmq.protocol.fast.handle import Handle
from flintmq.protocol.fast.outbox import FastOutput
from flintmq.protocol.states import HEADER, OTHER_HEADER, ConnectionState
from flintmq.wire import amqp, methods, octets
from flintmq.wire.fast import VERSION, commands, crossing, message_head
from flintmq.wire.fast.commands import Command
from flintmq.wire.methods import Method

# The only one there is of AMQP/Fast.
FAST_VERSION = 1

SEND = 31
ACK = 21
PREPARE = 43
# The shortest SEND, ACK and PREPARE, with the end octet.
SEND_OCTETS = 12
ACK_OCTETS = 10
PREPARE_OCTETS = 9

# Of a message header, before its texts; and what in place of a size says that a longer one follows.
FIXED_OCTETS = message_head.FIXED_OCTETS
LONG_SIZE = commands.LONG_SIZE

# Handles that a connection may have open: some 500 octets each.
HANDLES_MAX = 4096

# Codes that AMQP has other names for, or none.
MESSAGE_NOT_FOUND = 310
MESSAGE_TOO_LARGE = 311
INVALID_CONTENTS = 542

# What a connection may be told in its states; a ping and a close at any time.
_EXPECTED: dict[int, frozenset[str]] = {
    ConnectionState.START: frozenset(("connection.response",)),
    ConnectionState.SECURE: frozenset(("connection.response",)),
    ConnectionState.TUNE: frozenset(("connection.tune", "connection.open")),
    ConnectionState.OPEN: frozenset(
        f"channel.{verb}" for verb in ("open", "ack", "commit", "rollback", "close")
    )
    | frozenset(
        f"handle.{verb}" for verb in ("open", "consume", "flow", "unget", "query", "browse", "close")
    ),
}
_ALWAYS = frozenset(("connection.ping", "connection.close"))


class Told(Protocol):
    """Who hears what the commands say; messages are told as Events."""

    def command(self, command: Command) -> None:
        """Any command but HANDLE SEND and CHANNEL ACK; it is one of those that the state allows."""

    def ack_through(self, channel: Channel, number: int, confirm_tag: int) -> None:
        """CHANNEL ACK."""

    def find_route(self, handle: Handle, name: str, is_known: bool) -> bool:
        """Sets where a SEND of the handle to `name` leads; False, and the handle is closed, if nowhere.

        False too where a back end has to be asked first: `is_to_repeat` is set then.
        Of a name that is not known yet, which comes with the last fragment, only whether it is permitted.
        """

    def will_confirm(self, handle: Handle, confirm_tag: int) -> None:
        """The message that is published next is to be confirmed."""

    def has_sent(self, handle: Handle, confirm_tag: int) -> None:
        """It is published, or refused."""

    def prepare(self, handle: Handle, head: bytes, body: bytes, content_hash: str) -> None:
        """HANDLE PREPARE."""

    def recover(self, handle: Handle, send: commands.HandleSend, fragment: bytes) -> None:
        """HANDLE SEND with the rest of a prepared message."""

    def part_came(self) -> None:
        """A SEND of a message in several fragments, which takes more work than its octets tell."""

    def is_prepared(self, channel: Channel) -> bool:
        """Whether the message that is coming in was prepared: what follows of it says so."""

    def handle_fault(self, handle: Handle, fault: ChannelFault) -> None:
        """The peer broke a rule that costs it the handle."""

    def now_ms(self) -> int:
        """The wall clock."""


class FastConnection(Connection):
    """The receiving half of one connection."""

    __slots__ = (
        "current",
        "frame_bytes_max_agreed",
        "handles",
        "is_close_said",
        "is_to_repeat",
        "names",
        "open_confirm_tag",
        "sending",
        "told",
    )

    def __init__(self, events: Events, told: Told, output: FastOutput, message_bytes_max: int) -> None:
        super().__init__(events, output, message_bytes_max)
        self.told = told
        self.handles: dict[int, Handle] = {}
        self.sending: dict[int, Handle] = {}  # by channel: whose message is coming in fragments
        self.current: Handle | None = None  # whose command is being done
        self.names: dict[bytes, bytes] = {}  # short names of headers, and what they stand for
        self.open_confirm_tag = 0
        self.is_close_said = 0
        self.is_to_repeat = False  # what has come of the last SEND or PREPARE is to be looked at again, later
        self.frame_bytes_max_agreed = 0
        self.frame_bytes_max = commands.COMMAND_BYTES_MAX_BEFORE_OPEN

    # Frames

    def receive(self, buffer: bytearray, size: int) -> int:
        """Takes the first `size` octets of `buffer`; the number used up, up to the last whole command."""
        frames = octets.readable(buffer)
        at = 0
        if self.state == phases.CONNECTION_HEADER:
            if size < 2:
                return 0
            at = self.receive_initiation(frames[0], frames[1])
        while size - at >= 2 and self.state != phases.CONNECTION_CLOSED and not self.paused:
            if self.output.is_full():
                self.paused = True
                break
            length = octets.read_short(frames, at)
            start = at + 2
            if length == LONG_SIZE:
                if size - at < 6:
                    break
                length = octets.read_long(frames, at + 2)
                start = at + 6
            if length > self.frame_bytes_max or length < 2:
                raise self.missized(length)
            end = start + length
            if end > size:
                break
            if frames[end - 1] != amqp.FRAME_END:
                raise ConnectionFault(amqp.FRAME_ERROR, f"command of {length} octets does not end with 0xCE")
            code = frames[start]
            if code in (SEND, PREPARE):
                end = self.receive_fragment(frames, code, start, end, size)
                if end == 0:
                    break
            elif code == ACK and self.state == phases.CONNECTION_OPEN:
                self.receive_ack(frames, start, end)
            else:
                self.receive_command(octets.copy(frames, start, end - 1))
            at = end
        return at

    def due(self, start: bytearray) -> int:
        """How long the command at the beginning of `start` is, with its fragment, as far as one can tell."""
        size = len(start)
        length, head = int.from_bytes(start[:2], "big"), 2
        if length == commands.LONG_SIZE:
            length, head = int.from_bytes(start[2:6], "big"), 6
        due = head + length
        if size >= head + SEND_OCTETS and start[head] == SEND:
            due += int.from_bytes(start[head + 5 : head + 9], "big")
        elif size >= head + PREPARE_OCTETS and start[head] == PREPARE:
            due += int.from_bytes(start[head + 3 : head + 7], "big")
        return min(due, 2 * self.frame_bytes_max)

    def missized(self, length: int) -> ConnectionFault:
        return ConnectionFault(
            amqp.FRAME_ERROR, f"command of {length} octets: it may have from 2 to {self.frame_bytes_max}"
        )

    def receive_initiation(self, protocol: int, version: int) -> int:
        """128, and the highest version that the peer knows."""
        if protocol != VERSION or version < FAST_VERSION:
            self.follow(OTHER_HEADER)
            return 2
        self.version = VERSION
        self.follow(HEADER)
        self.events.greeted(VERSION)
        return 2

    # Messages

    def receive_fragment(self, frames: octets.Readable, code: int, start: int, end: int, size: int) -> int:
        """A SEND or PREPARE and its fragment: the position behind both, 0 if not all is there yet."""
        if end - start < (SEND_OCTETS if code == SEND else PREPARE_OCTETS):
            raise truncated("handle.send" if code == SEND else "handle.prepare")
        fragment = octets.read_long(frames, start + 5 if code == SEND else start + 3)
        if fragment > self.frame_bytes_max:
            raise ConnectionFault(
                amqp.FRAME_ERROR,
                f"message fragment of {fragment} octets is larger than the agreed {self.frame_bytes_max}",
            )
        stop = end + fragment
        if stop > size:
            return 0
        if self.state != phases.CONNECTION_OPEN:
            self.refuse_early("handle.send" if code == SEND else "handle.prepare")
            return stop
        handle = self.handles.get(octets.read_short(frames, start + 1))
        if handle is None:
            raise self.no_handle(octets.read_short(frames, start + 1))
        if handle.is_closing or handle.channel.state != phases.CHANNEL_OPEN:
            return stop
        self.current = handle
        if not handle.is_producer:
            text = f"handle {handle.number} was not opened by a producer"
            self.told.handle_fault(handle, ChannelFault(amqp.NOT_ALLOWED, text))
        elif code == PREPARE:
            self.receive_prepare(handle, octets.copy(frames, start, end - 1), octets.copy(frames, end, stop))
        else:
            self.receive_send(frames, start, end, stop, handle)
        if self.is_to_repeat:
            self.is_to_repeat = False
            return 0
        return stop

    def receive_send(self, frames: octets.Readable, start: int, end: int, stop: int, handle: Handle) -> int:
        """| code | handle 2 | confirm tag 2 | fragment size 4 | flags 1 | name 1+n | end |"""
        if start + 12 + frames[start + 10] != end:
            raise truncated("handle.send")
        flags = frames[start + 9]
        channel = handle.channel
        if flags or channel.expects != phases.EXPECTS_METHOD:
            self.receive_part(handle, octets.copy(frames, start, end - 1), octets.copy(frames, end, stop))
            return 0
        head = self.head_end(frames, end, stop)
        if head < 0:
            raise truncated("a message header")
        if (
            not handle.route
            or not handle.is_exact
            or not octets.equal(frames, start + 11, end - 1, handle.sent_name)
        ):
            name = octets.copy(frames, start + 11, end - 1)
            if not self.told.find_route(handle, commands.read_text(name, "handle.send: dest_name"), True):
                return 0
            handle.sent_name = name
        body_size = octets.read_long(frames, end)
        if head + body_size != stop:
            self.told.handle_fault(handle, wrong_size(body_size, stop - head))
            return 0
        if body_size > self.message_bytes_max:
            self.told.handle_fault(handle, self.too_large(body_size))
            return 0
        if not octets.equal(frames, end + 4, head, handle.head):
            self.translate(handle, octets.copy(frames, end + 4, head))
        confirm_tag = octets.read_short(frames, start + 3)
        if confirm_tag:
            self.told.will_confirm(handle, confirm_tag)
        header = handle.header
        if handle.copies:
            header = crossing.with_copies(header, handle.copies)
        content = octets.with_body(header, body_size, frames, head, stop)
        self.events.publish(channel, handle.route, handle.flags, content, len(header))
        if confirm_tag:
            self.told.has_sent(handle, confirm_tag)
        return 0

    def head_end(self, frames: octets.Readable, at: int, stop: int) -> int:
        """Where the message header that begins at `at` ends; -1 if that is behind `stop`."""
        at += FIXED_OCTETS
        for _ in range(3):
            if at >= stop:
                return -1
            at += 1 + frames[at]
        if at + 2 > stop:
            return -1
        at += 2 + octets.read_short(frames, at)
        return at if at <= stop else -1

    def translate(self, handle: Handle, head: bytes) -> None:
        """Sets what a message with this header, of which the body size is left out, is in Basic."""
        handle.head = b""
        handle.header = crossing.basic_header(
            head, handle.mime_type, handle.encoding, self.told.now_ms(), self.names
        )
        if len(handle.header) > self.frame_bytes_max - 8:
            raise ConnectionFault(
                amqp.FRAME_ERROR,
                f"a message header of {len(handle.header)} octets, with names of the dictionary in full, is "
                f"larger than the {self.frame_bytes_max - 8} that other clients take",
            )
        if head[2:6] == bytes(4):  # what expires has a new header with each second
            handle.head = head

    def receive_part(self, handle: Handle, payload: bytes, fragment: bytes) -> None:
        """A SEND with flags, or a further one of its message."""
        send = commands.decode(payload)
        if not isinstance(send, commands.HandleSend):
            raise ProtocolMisuse("no handle.send")
        self.told.part_came()
        channel = handle.channel
        if send.out_of_band:
            text = "messages are not taken out of band: no other way than the connection is agreed on"
            self.told.handle_fault(handle, ChannelFault(amqp.NOT_IMPLEMENTED, text))
        elif send.recovery:
            self.told.recover(handle, send, fragment)
        elif channel.expects == phases.EXPECTS_METHOD:
            self.begin_message(handle, send, fragment)
        elif self.sending.get(channel.number) is not handle or self.told.is_prepared(channel):
            raise ConnectionFault(
                amqp.UNEXPECTED_FRAME,
                f"a fragment of handle {handle.number} on channel {channel.number}, where a message of "
                "another handle, or one that was prepared, is not whole yet",
            )
        else:
            self.continue_message(handle, send, fragment)

    def begin_message(self, handle: Handle, send: commands.HandleSend, fragment: bytes) -> None:
        """The first fragment, with all of the header."""
        head = message_head.end_of(fragment, 0, len(fragment))
        if head < 0:
            raise truncated("a message header")
        size, rest = int.from_bytes(fragment[:4], "big"), len(fragment) - head
        if size > self.message_bytes_max:
            self.told.handle_fault(handle, self.too_large(size))
            return
        if rest >= size:  # some of it is to come
            self.told.handle_fault(handle, wrong_size(size, rest))
            return
        if self.begin_content(handle, fragment[:head], size) and rest:
            self.receive_body(handle.channel.number, handle.channel, fragment[head:])

    def begin_content(self, handle: Handle, head: bytes, size: int) -> bool:
        """A message of several fragments has this header; False if it is refused, and the handle closed."""
        channel = handle.channel
        self.translate(handle, head[4:])
        header = handle.header
        if not self.told.find_route(handle, "", False):  # the name is in the last fragment
            return False
        channel.route, channel.flags, channel.method = handle.route, handle.flags, None
        handle.route = b""
        channel.expects = phases.EXPECTS_HEADER
        self.sending[channel.number] = handle
        self.receive_header(channel.number, channel, header[:4] + size.to_bytes(8, "big") + header[12:])
        return channel.expects == phases.EXPECTS_BODY

    def continue_message(self, handle: Handle, send: commands.HandleSend, fragment: bytes) -> None:
        channel = handle.channel
        left = channel.remaining - len(fragment)
        if left < 0 or (left == 0) == send.partial:
            channel.abandon_content()
            text = f"{-left} octets more" if left < 0 else f"{left} octets less"
            self.told.handle_fault(handle, invalid(f"the fragments have {text} than the header announced"))
            return
        if left == 0:
            if not self.told.find_route(handle, send.dest_name, True):
                return
            self.sending.pop(channel.number)
            channel.route, channel.flags = handle.route, handle.flags
            handle.sent_name = send.dest_name.encode()
            if handle.copies:
                channel.header = crossing.with_copies(channel.header, handle.copies)
            if send.confirm_tag:
                self.told.will_confirm(handle, send.confirm_tag)
        self.receive_body(channel.number, channel, fragment)
        if left == 0 and send.confirm_tag:
            self.told.has_sent(handle, send.confirm_tag)

    def receive_prepare(self, handle: Handle, payload: bytes, fragment: bytes) -> None:
        prepare = commands.decode(payload)
        if not isinstance(prepare, commands.HandlePrepare):
            raise ProtocolMisuse("no handle.prepare")
        head = message_head.end_of(fragment, 0, len(fragment))
        if head < 0:
            raise truncated("a message header")
        self.told.prepare(handle, fragment[:head], fragment[head:], prepare.content_hash)

    def too_large(self, size: int) -> ChannelFault:
        text = f"message size {size} is above the maximum of {self.message_bytes_max}"
        return ChannelFault(MESSAGE_TOO_LARGE, text)

    # Other commands

    def receive_ack(self, frames: octets.Readable, start: int, end: int) -> int:
        """| code | channel 2 | confirm tag 2 | message number 4 | end |"""
        if end - start != ACK_OCTETS:
            raise truncated("channel.ack")
        number = octets.read_short(frames, start + 1)
        channel = self.channel_of(number)
        if channel is None:
            raise self.no_channel(number)
        if channel.state == phases.CHANNEL_OPEN:
            self.current = None
            self.told.ack_through(
                channel, octets.read_long(frames, start + 5), octets.read_short(frames, start + 3)
            )
        return 0

    def channel_of(self, number: int) -> Channel | None:
        channel: Channel | None
        channel = self.channels[number] if number < len(self.channels) else self.far_channels.get(number)
        return channel

    def receive_command(self, payload: bytes) -> None:
        command = commands.decode(payload)
        name = command.NAME
        self.current = None
        if name not in _ALWAYS and name not in _EXPECTED.get(self.state, ()):
            self.refuse_early(name)
            return
        if self.state == phases.CONNECTION_CLOSING and name != "connection.close":
            self.refuse_early(name)
            return
        if name == "connection.open":
            self.follow("connection.tune-ok")
        elif name == "connection.close":
            closing = self.state == phases.CONNECTION_CLOSING
            self.follow("connection.close-ok" if closing else "connection.close")
        self.told.command(command)

    def refuse_early(self, name: str) -> None:
        """A command that the state does not allow. While we close, it is discarded, and our close said again.

        Once: the document wants it with each command, and each of these would be answered by the peer.
        """
        if self.state != phases.CONNECTION_CLOSING:
            state = ConnectionState(self.state).name.lower()
            raise ConnectionFault(amqp.COMMAND_INVALID, f"{name}: not expected in state {state}")
        if self.is_close_said == 1:
            self.is_close_said = 2
            self.output.write(commands.encode(commands.ConnectionClose(320, "the connection is closing")))

    def no_handle(self, number: int) -> ConnectionFault:
        return ConnectionFault(amqp.CHANNEL_ERROR, f"handle {number} is not open")

    def no_channel(self, number: int) -> ConnectionFault:
        return ConnectionFault(amqp.CHANNEL_ERROR, f"channel {number} is not open")

    def enter_channel(self, number: int) -> Channel:
        """A channel that is open from now on."""
        channel = self.open_channel(number, methods.ChannelOpen())
        channel.follow("channel.open")
        return channel

    # Sending

    def send(self, method: Method) -> None:
        """What the session says by methods of the connection class, as commands."""
        self.follow(f"> {method.NAME}")
        command: Command | None = None
        if isinstance(method, methods.ConnectionTune):
            command = commands.ConnectionTune(
                options={
                    "FRAME_MAX": method.frame_max,
                    "CHANNEL_MAX": method.channel_max,
                    "HANDLE_MAX": HANDLES_MAX,
                    "HEARTBEAT": method.heartbeat,
                }
            )
            self.frame_bytes_max_agreed = method.frame_max
        elif isinstance(method, methods.ConnectionOpenOk):
            self.frame_bytes_max = self.frame_bytes_max_agreed
            if self.open_confirm_tag:
                command = commands.ConnectionReply(self.open_confirm_tag, amqp.REPLY_SUCCESS, "Ok")
        elif isinstance(method, methods.ConnectionClose):
            self.is_close_said = 1
            command = commands.ConnectionClose(method.reply_code, method.reply_text)
        elif isinstance(method, methods.ConnectionCloseOk):
            command = commands.ConnectionClose(amqp.REPLY_SUCCESS, "Ok")
        else:
            raise ProtocolMisuse(f"{method.NAME} is no command of AMQP/Fast")
        if command is not None:
            self.output.write(commands.encode(command))


def truncated(what: str) -> ConnectionFault:
    return ConnectionFault(amqp.SYNTAX_ERROR, f"{what} is cut short, or longer than it says")


def invalid(why: str) -> ChannelFault:
    return ChannelFault(INVALID_CONTENTS, why)


def wrong_size(announced: int, found: int) -> ChannelFault:
    return invalid(f"the header announced a body of {announced} octets, and {found} came")
