"""A client's connection of AMQP/Fast without its socket.

    octets in  --> receive() --> replies, messages, closes
    octets out <-- take_output() <-- calls

Drivers (`aio`, `sync`) own the socket. Whoever waits looks at the state here until it has changed.
"""

from __future__ import annotations

import hashlib
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Protocol

from flintmq.client.core.errors import (
    ClientError,
    ConnectFailed,
    ConnectionClosed,
    ConnectionLost,
    LoginRefused,
    MessageTooLarge,
    channel_closed,
)
from flintmq.errors import ConnectionFault, ProtocolMisuse
from flintmq.wire import amqp
from flintmq.wire.fast import VERSION, commands, message_head, tables
from flintmq.wire.fast.commands import Command
from flintmq.wire.fast.message_head import MessageHead

INITIATION = bytes((VERSION, 1))
# Of commands and fragments that a server sends: what we ask for, and what may come before we have.
FRAME_BYTES_MAX = 131_072
# A message that a server sends is at most this long.
MESSAGE_BYTES_MAX = 512 * 2**20
CONFIRM_TAG_MAX = 65_535
# Messages in one HANDLE INDEX.
LISTED_MAX = 65_536
OK = "Ok"


class Core(Protocol):
    """What a transport asks of a connection: that of AMQP/Fast 0.8 is below, that of 0.9 in client/fast09."""

    def take_output(self) -> bytes:
        """What is to be sent."""

    def receive(self, octets: bytes) -> None:
        """What the server sent."""

    def lost(self, why: str) -> None:
        """The socket is gone."""


@dataclass(slots=True)
class FastMessage:
    """What a server has notified."""

    body: bytes
    head: MessageHead
    number: int  # by which it is acked, pushed back or browsed
    name: str  # of the destination that it came from
    is_redelivered: bool = False
    is_delivered: bool = True  # False of one that was browsed: it stays where it is

    @property
    def headers(self) -> tables.Table:
        return self.head.headers


@dataclass(slots=True)
class Place:
    """A channel or a handle: what has come for it, and how it ended."""

    number: int
    channel: int = 0
    is_open: bool = True
    is_closing: bool = False  # we have closed it, and wait for the answer
    failure: ClientError | None = None
    name: str = ""  # of a temporary destination
    inbox: deque[FastMessage] = field(default_factory=deque)
    browsed: deque[FastMessage] = field(default_factory=deque)
    indexes: deque[commands.HandleIndex] = field(default_factory=deque)
    ready: deque[int] = field(default_factory=deque)
    parts: list[bytes] = field(default_factory=list)  # of a message that comes in fragments


class FastCore:
    """One connection."""

    def __init__(
        self, user: str, password: str, virtual_host: str, client_name: str, heartbeat_s: int
    ) -> None:
        self.user = user
        self.password = password
        self.virtual_host = virtual_host
        self.client_name = client_name
        self.heartbeat_s = heartbeat_s
        self.output = bytearray(INITIATION)
        self.input = bytearray()
        self.is_open = False
        self.is_over = False
        self.is_closing = False
        self.failure: ClientError | None = None
        self.frame_bytes_max = commands.FRAME_BYTES_MIN  # that the server takes
        self.limits: tables.Table = {}  # as the server told them
        self.channels: dict[int, Place] = {}
        self.handles: dict[int, Place] = {}
        self.replies: dict[int, Any] = {}  # by confirm tag; None while there is none yet
        self.confirm_tag = 0

    # Octets

    def take_output(self) -> bytes:
        taken, self.output = bytes(self.output), bytearray()
        return taken

    def write(self, command: Command) -> None:
        self.check()
        self.output += commands.encode(command)

    def receive(self, octets: bytes) -> None:
        """What the server sent. Whatever cannot be understood ends the connection."""
        self.input += octets
        try:
            while not self.is_over and (used := self.receive_command()):
                del self.input[:used]
        except ConnectionFault as fault:
            self.output += commands.encode(commands.ConnectionClose(fault.code, fault.text[:200]))
            self.end(ConnectionClosed(f"the server broke the protocol: {fault.text}", fault.code, fault.text))

    def receive_command(self) -> int:
        """The first command of the input, with its fragment: its length, 0 if it is not all there."""
        octets = self.input
        if len(octets) < 2:
            return 0
        size, start = int.from_bytes(octets[:2], "big"), 2
        if size == commands.LONG_SIZE:
            if len(octets) < 6:
                return 0
            size, start = int.from_bytes(octets[2:6], "big"), 6
        if not 2 <= size <= FRAME_BYTES_MAX:
            raise ConnectionFault(amqp.FRAME_ERROR, f"a command of {size} octets")
        end = start + size
        if len(octets) < end:
            return 0
        if octets[end - 1] != commands.END:
            raise ConnectionFault(amqp.FRAME_ERROR, "a command does not end with 0xCE")
        command = commands.decode(bytes(octets[start : end - 1]))
        if isinstance(command, (commands.HandleNotify, commands.HandlePrepare)):
            stop = end + command.fragment_size
            if command.fragment_size > FRAME_BYTES_MAX:
                raise ConnectionFault(amqp.FRAME_ERROR, f"a fragment of {command.fragment_size} octets")
            if len(octets) < stop:
                return 0
            fragment = bytes(octets[end:stop])
            if isinstance(command, commands.HandleNotify):
                self.notified(command, fragment)
            else:
                self.prepared(command, fragment)
            return stop
        self.obey(command)
        return end

    def lost(self, why: str) -> None:
        """The socket is gone."""
        if not self.is_open and not self.is_over:
            self.end(
                ConnectFailed(f"the server hung up: {why}; does it speak AMQP/Fast, and is the login right?")
            )
        else:
            self.end(ConnectionLost(f"the connection is lost: {why}"))

    def end(self, failure: ClientError | None) -> None:
        if not self.is_over:
            self.is_over = True
            self.failure = self.failure or failure

    def check(self) -> None:
        """Raises when the connection is over."""
        if self.failure is not None:
            raise self.failure
        if self.is_over or self.is_closing:
            raise ConnectionClosed("the connection is closed", 0, "")

    # What the server says

    def obey(self, command: Command) -> None:
        if isinstance(command, commands.ConnectionChallenge):
            fields: tables.Table = {"LOGIN": self.user, "PASSWORD": self.password}
            self.output += commands.encode(commands.ConnectionResponse("PLAIN", fields))
        elif isinstance(command, commands.ConnectionTune):
            self.tune(command)
        elif isinstance(command, commands.ConnectionReply):
            self.is_open = True
        elif isinstance(command, commands.ConnectionPing):
            if command.respond:
                self.output += commands.encode(commands.ConnectionPing())
        elif isinstance(command, commands.ConnectionClose):
            self.closed(command)
        elif isinstance(command, (commands.ChannelReply, commands.HandleReply)):
            if command.confirm_tag in self.replies:
                self.replies[command.confirm_tag] = (command.reply_code, command.reply_text)
        elif isinstance(command, commands.ChannelClose):
            self.channel_closed(command)
        else:
            self.obey_handle(command)

    def tune(self, command: commands.ConnectionTune) -> None:
        self.limits = command.options
        frame_max = command.options.get("FRAME_MAX")
        if not isinstance(frame_max, int) or frame_max < commands.FRAME_BYTES_MIN:
            raise ConnectionFault(amqp.NOT_ALLOWED, f"FRAME_MAX {frame_max!r} is below 1024")
        self.frame_bytes_max = frame_max
        ours: tables.Table = {"FRAME_MAX": min(frame_max, FRAME_BYTES_MAX), "HEARTBEAT": self.heartbeat_s}
        self.output += commands.encode(commands.ConnectionTune(ours))
        self.output += commands.encode(commands.ConnectionOpen(1, self.virtual_host, self.client_name))

    def closed(self, command: commands.ConnectionClose) -> None:
        if not self.is_closing:
            self.output += commands.encode(commands.ConnectionClose(amqp.REPLY_SUCCESS, OK))
            code, text = command.reply_code, command.reply_text
            if self.is_open:
                self.end(ConnectionClosed(f"the server closed the connection: {code} {text}", code, text))
            else:
                self.end(LoginRefused(f"the server refused the connection: {code} {text}", code, text))
        self.end(None)

    def channel_closed(self, command: commands.ChannelClose) -> None:
        channel = self.channels.get(command.channel_id)
        if channel is None or not channel.is_open:
            return  # it was said again
        channel.is_open = False
        if not channel.is_closing:
            channel.failure = channel_closed(command.reply_code, command.reply_text, "the channel")
            self.output += commands.encode(commands.ChannelClose(channel.number, amqp.REPLY_SUCCESS, OK))
        for handle in self.handles.values():
            if handle.channel == channel.number:
                handle.is_open = False
                handle.failure = handle.failure or channel.failure

    def obey_handle(self, command: Any) -> None:
        number = getattr(command, "handle_id", None)
        handle = None if number is None else self.handles.get(number)
        if handle is None:
            raise ConnectionFault(
                amqp.COMMAND_INVALID, f"{command.NAME} is not for a client, or of no handle"
            )
        if isinstance(command, commands.HandleCreated):
            handle.name = command.dest_name
        elif isinstance(command, commands.HandleIndex):
            handle.indexes.append(command)
        elif isinstance(command, commands.HandleReady):
            handle.ready.append(command.message_size)
        elif isinstance(command, commands.HandleClose):
            if handle.is_open and not handle.is_closing:
                handle.failure = channel_closed(command.reply_code, command.reply_text, "the handle")
                self.output += commands.encode(commands.HandleClose(handle.number, amqp.REPLY_SUCCESS, OK))
            handle.is_open = False
        else:
            raise ConnectionFault(amqp.COMMAND_INVALID, f"{command.NAME} is not for a client")

    def prepared(self, prepare: commands.HandlePrepare, fragment: bytes) -> None:
        """A server sends a large message in parts. To us each is new: the rest follows what came now."""
        handle = self.handles.get(prepare.handle_id)
        end = message_head.end_of(fragment, 0, len(fragment))
        if handle is None or end < 0:
            text = f"a message for handle {prepare.handle_id}, which is not open, or without its header"
            raise ConnectionFault(amqp.CHANNEL_ERROR, text)
        handle.parts = [fragment]
        self.output += commands.encode(commands.HandleReady(handle.number, len(fragment) - end))

    def notified(self, notify: commands.HandleNotify, fragment: bytes) -> None:
        handle = self.handles.get(notify.handle_id)
        if handle is None:
            raise ConnectionFault(
                amqp.CHANNEL_ERROR, f"a message for handle {notify.handle_id}, which is not open"
            )
        handle.parts.append(fragment)
        if notify.partial:
            if sum(map(len, handle.parts)) > MESSAGE_BYTES_MAX:
                raise ConnectionFault(
                    amqp.RESOURCE_ERROR, f"a message of more than {MESSAGE_BYTES_MAX} octets"
                )
            return
        whole = b"".join(handle.parts)
        handle.parts.clear()
        end = message_head.end_of(whole, 0, len(whole))
        if end < 0:
            raise ConnectionFault(amqp.SYNTAX_ERROR, "a message header is cut short")
        head = message_head.decode(whole[:end])
        if len(whole) - end != head.body_size:
            return  # it was called off
        message = FastMessage(
            whole[end:], head, notify.message_nbr, notify.dest_name, notify.redelivered, notify.delivered
        )
        (handle.inbox if notify.delivered else handle.browsed).append(message)

    # What the application says

    def next_tag(self) -> int:
        """A confirm tag whose reply is awaited from now on."""
        for _ in range(CONFIRM_TAG_MAX):
            self.confirm_tag = self.confirm_tag % CONFIRM_TAG_MAX + 1
            if self.confirm_tag not in self.replies:
                self.replies[self.confirm_tag] = None
                return self.confirm_tag
        raise ProtocolMisuse("65535 commands wait for their confirmation")

    def open_place(self, places: dict[int, Place], channel: int = 0) -> Place:
        """A free number for a channel or a handle."""
        for number in range(1, 65_536):
            found = places.get(number)
            if found is None or not (found.is_open or found.failure):
                places[number] = Place(number, channel)
                return places[number]
        raise ProtocolMisuse("all 65535 numbers are in use")

    def check_place(self, place: Place) -> None:
        self.check()
        if place.failure is not None:
            raise place.failure
        if not place.is_open or place.is_closing:
            raise ConnectionClosed("the channel or handle is closed", 0, "")

    def send(self, handle: Place, head: MessageHead, body: bytes, name: str, confirm_tag: int) -> None:
        """A message, in as many fragments as the server takes at once."""
        self.check_place(handle)
        whole = self.head_octets(head, body) + body
        most = self.frame_bytes_max
        for start in range(0, len(whole), most):
            stop = min(start + most, len(whole))
            is_last = stop == len(whole)
            self.output += commands.encode(
                commands.HandleSend(
                    handle.number,
                    confirm_tag if is_last else 0,
                    stop - start,
                    partial=not is_last,
                    dest_name=name if is_last else "",
                )
            )
            self.output += whole[start:stop]

    def head_octets(self, head: MessageHead, body: bytes) -> bytes:
        head.body_size = len(body)
        try:
            octets = message_head.encode(head)
        except ProtocolMisuse as misuse:
            raise MessageTooLarge(str(misuse)) from None
        if len(octets) > self.frame_bytes_max:
            text = (
                f"a message header of {len(octets)} octets does not fit a fragment of {self.frame_bytes_max}"
            )
            raise MessageTooLarge(text)
        return octets

    # Restartable transfers

    def fits(self, head: MessageHead, body: bytes) -> bool:
        """Whether a message is one fragment, which is not to be prepared."""
        return len(self.head_octets(head, body)) + len(body) <= self.frame_bytes_max

    def prepare(self, handle: Place, head: MessageHead, body: bytes) -> int:
        """HANDLE PREPARE with the beginning of the body; how much of that."""
        octets = self.head_octets(head, body)
        size = self.frame_bytes_max - len(octets)
        digest = hashlib.sha1(body, usedforsecurity=False).hexdigest()
        self.write(commands.HandlePrepare(handle.number, len(octets) + size, digest))
        self.output += octets + body[:size]
        return size

    def rest(self, body: bytes, received: int) -> range:
        """Where the fragments begin that the server does not have."""
        if received > len(body):
            raise ConnectionClosed("the server has more of the message than there is", 0, "")
        return range(received, max(len(body), received + 1), self.frame_bytes_max)

    def recover(self, handle: Place, body: bytes, start: int, name: str, confirm_tag: int) -> None:
        """The fragment that begins there."""
        self.check_place(handle)
        stop = min(start + self.frame_bytes_max, len(body))
        is_last = stop == len(body)
        self.output += commands.encode(
            commands.HandleSend(
                handle.number,
                confirm_tag if is_last else 0,
                stop - start,
                partial=not is_last,
                recovery=True,
                dest_name=name if is_last else "",
            )
        )
        self.output += body[start:stop]


def listed(text: bytes) -> list[int]:
    """The numbers of HANDLE INDEX: "0 5 9 15-40 80"."""
    numbers: list[int] = []
    for part in text.decode("ascii", "replace").split():
        first, _, last = part.partition("-")
        if not first.isdigit() or (last and not last.isdigit()):
            raise ConnectionClosed(f"the server lists messages as {part[:32]!r}", 0, "")
        if int(last or first) - int(first) + len(numbers) > LISTED_MAX:
            raise ConnectionClosed(f"the server lists more than {LISTED_MAX} messages at once", 0, "")
        numbers.extend(range(int(first), int(last or first) + 1))
    return numbers
