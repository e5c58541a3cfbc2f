"""Restartable transfers: HANDLE PREPARE, the rest of the message, and what is kept of one that broke off.

    PREPARE (header, beginning) --> READY (octets that are here) --> SEND, recovery (the rest) ... --> publish

What came of a message whose connection, channel or handle ended is kept for a while, in memory or in its
spool file, by virtual host, user and header: the header is the identity of a message. Who prepares the same
again goes on from there. It is gone when the broker stops; a client then begins anew, which it can always.
"""

from __future__ import annotations

import hashlib
from functools import partial
from typing import TYPE_CHECKING, Any

from flintmq.broker.store.spooling import IncomingSpool
from flintmq.errors import ChannelFault, ConnectionFault
from flintmq.protocol import phases
from flintmq.protocol.fast.connection import MESSAGE_TOO_LARGE, invalid, wrong_size
from flintmq.wire import amqp
from flintmq.wire.fast import commands

if TYPE_CHECKING:
    from flintmq.broker.broker import Broker
    from flintmq.protocol.channel import Channel, Sink
    from flintmq.protocol.fast.handle import Handle
    from flintmq.server.fast.session import FastSession

# What broke off is kept for an hour: at most so many of all users, those in memory up to 4 MiB each. The
# oldest go first.
KEPT_MS = 3_600_000
KEPT_MAX = 64
KEPT_BYTES_MAX = 4_194_304
# All of those in memory.
KEPT_MEMORY_BYTES_MAX = 33_554_432
SHA1_DIGITS = 40

Key = tuple[str, str, bytes]


class Prepared:
    """A message that is coming in after a PREPARE."""

    __slots__ = ("content_hash", "handle", "key", "size", "so_far")

    def __init__(self, handle: Handle, key: Key, size: int, content_hash: str, so_far: Any) -> None:
        self.handle = handle
        self.key = key
        self.size = size
        self.content_hash = content_hash.lower()
        self.so_far = so_far  # the SHA-1 of what has come

    def is_right(self) -> bool:
        return not self.content_hash or self.so_far.hexdigest() == self.content_hash


class Kept:
    """What came of a message that broke off."""

    __slots__ = ("chunks", "octets", "since_ms", "sink", "so_far")

    def __init__(self, channel: Channel, octets: int, so_far: Any, since_ms: int) -> None:
        self.chunks: list[bytes | bytearray] = channel.chunks
        self.sink: Sink | None = channel.sink
        self.octets = octets
        self.so_far = so_far
        self.since_ms = since_ms

    def discard(self) -> None:
        if self.sink is not None:
            self.sink.discard()


class Restarts:
    """The prepared messages of one connection, by channel."""

    def __init__(self, session: FastSession) -> None:
        self.session = session
        self.channels: set[int] = set()  # those that were opened as restartable
        self.prepared: dict[int, Prepared] = {}

    def prepare(self, handle: Handle, head: bytes, body: bytes, content_hash: str) -> None:
        session, channel = self.session, handle.channel
        if channel.number not in self.channels:
            raise ChannelFault(amqp.NOT_ALLOWED, f"channel {channel.number} was not opened as restartable")
        if channel.expects != phases.EXPECTS_METHOD:
            text = f"handle.prepare on channel {channel.number}, where a message is not whole yet"
            raise ConnectionFault(amqp.UNEXPECTED_FRAME, text)
        if content_hash and (len(content_hash) != SHA1_DIGITS or not is_hexadecimal(content_hash)):
            raise ChannelFault(
                amqp.SYNTAX_ERROR, "content-hash is a SHA-1 as 40 hexadecimal digits, or empty"
            )
        size = int.from_bytes(head[:4], "big")
        if size > session.connection.message_bytes_max:
            session.fast.current = None  # the channel is closed, not the handle
            text = f"message size {size} is above the maximum of {session.connection.message_bytes_max}"
            raise ChannelFault(MESSAGE_TOO_LARGE, text)
        if len(body) >= size:
            raise wrong_size(size, len(body))
        if not session.fast.begin_content(handle, head, size):
            return
        kept = self.take(self.key_of(head))
        so_far = hashlib.sha1(usedforsecurity=False)
        self.prepared[channel.number] = Prepared(handle, self.key_of(head), size, content_hash, so_far)
        if kept is not None and kept.octets > len(body):
            self.go_on(channel, kept)
            received = kept.octets
        else:
            if kept is not None:
                kept.discard()
            so_far.update(body)
            received = len(body)
            if body:
                session.fast.receive_body(channel.number, channel, body)
        session.reply(channel, commands.encode(commands.HandleReady(handle.number, received)))

    def go_on(self, channel: Channel, kept: Kept) -> None:
        """What was kept is there as if it had come now."""
        channel.remaining -= kept.octets
        self.prepared[channel.number].so_far = kept.so_far
        if kept.sink is not None:
            if channel.sink is not None:
                channel.sink.discard()
            channel.sink = kept.sink
            if isinstance(kept.sink, IncomingSpool):
                kept.sink.opened = self.session.file_opened
        elif channel.sink is not None:
            for chunk in kept.chunks:
                channel.sink.append(bytes(chunk))
        else:
            channel.chunks = kept.chunks

    def recover(self, handle: Handle, send: commands.HandleSend, fragment: bytes) -> None:
        """A SEND with the recovery flag: more of a message that was prepared."""
        number = handle.channel.number
        prepared = self.prepared.get(number)
        if prepared is None or prepared.handle is not handle:
            text = f"handle {handle.number} goes on with a message that was not prepared"
            raise ConnectionFault(amqp.UNEXPECTED_FRAME, text)
        if not send.partial and not self.session.find_route(handle, send.dest_name, True):
            return
        prepared.so_far.update(fragment)
        if not send.partial:
            del self.prepared[number]
            if handle.channel.remaining == len(fragment) and not prepared.is_right():
                raise invalid(f"the SHA-1 of the body is {prepared.so_far.hexdigest()}, not as announced")
        self.session.fast.continue_message(handle, send, fragment)

    def forget(self, channel: Channel) -> None:
        """What is coming in is at fault."""
        self.prepared.pop(channel.number, None)

    def keep(self, channel: Channel) -> None:
        """What is coming in breaks off here; the rest may follow on another connection."""
        prepared = self.prepared.pop(channel.number, None)
        if prepared is None or channel.expects != phases.EXPECTS_BODY:
            return
        octets = prepared.size - channel.remaining
        if not octets or (channel.sink is None and octets > KEPT_BYTES_MAX):
            return
        found = self.session.broker.clients.kept
        self.tidy(KEPT_MAX - 1)
        older = found.pop(prepared.key, None)
        if older is not None:
            older.discard()
        found[prepared.key] = Kept(channel, octets, prepared.so_far, self.session.now_ms())
        if isinstance(channel.sink, IncomingSpool):
            channel.sink.opened = nobody_waits  # the session is not to be kept with it
        channel.chunks, channel.sink = [], None
        shed_kept(self.session.broker)
        watch_kept(self.session.broker)

    def take(self, key: Key) -> Kept | None:
        self.tidy(KEPT_MAX)
        kept: Kept | None = self.session.broker.clients.kept.pop(key, None)
        return kept

    def tidy(self, most: int) -> None:
        tidy_kept(self.session.broker, most)

    def key_of(self, head: bytes) -> Key:
        """Two headers are of the same message only when every field of them is identical."""
        session = self.session
        host = "" if session.virtual_host is None else session.virtual_host.name
        return host, "" if session.user is None else session.user.name, hashlib.sha256(head).digest()


def tidy_kept(broker: Broker, most: int) -> None:
    """Those in order of their age, of which some are too old or too many."""
    found = broker.clients.kept
    now_ms = broker.timetable.now_ms()
    for key in list(found):
        if len(found) <= most and found[key].since_ms > now_ms - KEPT_MS:
            break
        found.pop(key).discard()


def shed_kept(broker: Broker) -> None:
    """The oldest of those in memory go while all of them are too much."""
    found = broker.clients.kept
    held = [key for key, kept in found.items() if kept.sink is None]
    octets = sum([found[key].octets for key in held])
    for key in held:
        if octets <= KEPT_MEMORY_BYTES_MAX:
            break
        octets -= found.pop(key).octets


def watch_kept(broker: Broker) -> None:
    """Has an alarm for the oldest, so that it goes though nobody prepares anything any more."""
    clients = broker.clients
    if clients.kept and not clients.is_watching_kept:
        clients.is_watching_kept = True
        oldest = next(iter(clients.kept.values()))
        broker.timetable.at(oldest.since_ms + KEPT_MS, partial(kept_is_due, broker))


def kept_is_due(broker: Broker) -> None:
    broker.clients.is_watching_kept = False
    tidy_kept(broker, KEPT_MAX)
    watch_kept(broker)


def nobody_waits() -> None:
    """What is kept gets its file without a connection that could give others their turn."""


def is_hexadecimal(text: str) -> bool:
    return all(digit in "0123456789abcdefABCDEF" for digit in text)
