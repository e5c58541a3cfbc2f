"""Encrypted connections: a link whose octets come and go over an asyncio TLS transport.

    readable -> decrypt into the shared buffer -> connection.receive -> ... -> flush -> encrypt -> send

The transport calls get_buffer and buffer_updated in one go for each piece it has decrypted, so all links
share the server's buffer here too. It tells when it holds more than it could send: the output counts as
blocked meanwhile. There is one task for each connection, which ends with the TLS handshake. It begins when a
whole hello is there (client_hello.py), a few of them in a turn as with all strangers.
"""

from __future__ import annotations

import asyncio
import logging
import select
import socket
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from flintmq.server.network import client_hello, sockets
from flintmq.server.network.certificates import said
from flintmq.server.network.link import CLOSE_TIMEOUT_S, HELD_CLOSED, STRANGER_READ_BYTES, Link

if TYPE_CHECKING:
    from flintmq.server.server import Server
    from flintmq.wire.tables import FieldTable

log = logging.getLogger("flintmq.strangers")

# Given to the transport at a time. With what it may hold before it calls for a pause, some 192 KiB of
# encrypted octets wait in a connection whose peer does not read.
WRITE_BYTES_MAX = 65_536
TRANSPORT_BYTES_HIGH = 131_072
TRANSPORT_BYTES_LOW = 32_768
# The longest hello in one record.
HELLO_BYTES_MAX = client_hello.RECORD_HEAD + client_hello.RECORD_BYTES_MAX
# Whether the system tells of a socket only when so many octets are there as one wants.
WAITS_FOR_OCTETS = hasattr(select, "epoll")


class TlsLink(Link, asyncio.BufferedProtocol):
    """A link that speaks TLS."""

    __slots__ = (
        "context",
        "handshake",
        "is_watched",
        "kept",
        "socket",
        "streaming_due",
        "transport",
        "wanted_octets",
    )

    def __init__(self, server: Server, descriptor: int, peer_address: str, context: ssl.SSLContext) -> None:
        super().__init__(server, descriptor, peer_address)
        self.socket = sockets.released(descriptor)
        self.context = context
        self.transport: asyncio.Transport | None = None
        self.handshake: asyncio.Task[None] | None = None
        self.streaming_due = False
        self.is_watched = False
        self.wanted_octets = 1  # of the hello, before one looks at it again
        self.kept: socket.socket | None = None  # the same connection, for a pause after TLS has closed it

    def start(self) -> None:
        """Who says nothing costs a socket alone: what TLS needs is some 40 KiB."""
        self.is_watched = True
        self.server.readiness.watch(self.descriptor, self)

    def unwatch(self) -> None:
        """From now on the socket is for TLS, or closed, and its number may be another one's."""
        if self.is_watched:
            self.is_watched = False
            self.server.readiness.forget(self.descriptor)

    def ready(self, events: int) -> bool:
        """The peer has said something, or has gone."""
        try:
            seen = self.socket.recv(HELLO_BYTES_MAX, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            seen = b""
        if not seen:
            self.drop()  # without a word, as health checks do: that is no failed handshake
            return False
        try:
            self.look_at(seen)
        except client_hello.NoHello as fault:
            self.unwatch()
            with suppress(OSError):
                self.socket.recv(len(seen))  # a socket closed with octets unread is reset, not ended
            self.fail(str(fault))
        return False

    def look_at(self, seen: bytes) -> None:
        """Begins with TLS as soon as the hello is whole."""
        if len(seen) < self.wanted_octets:
            raise client_hello.NoHello("it ended within its hello")  # else the system would not tell of it
        wanted = client_hello.octets_wanted(seen)
        if wanted > len(seen) and WAITS_FOR_OCTETS:
            self.wanted_octets = wanted
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wanted)
            return
        if self.wanted_octets > 1:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
        self.unwatch()
        self.handshake = self.server.loop.create_task(self.shake_hands())

    def fail(self, why: str) -> None:
        """There will be no TLS: the end comes after a pause, as it does after a failed login."""
        address = self.session.peer_address
        log.warning("no TLS with %s: %s", address, why)
        self.refuse(self.server.broker.failed_logins.note(address), self.drop)

    async def shake_hands(self) -> None:
        self.kept = self.socket.dup()
        try:
            await self.server.loop.connect_accepted_socket(
                lambda: self,
                self.socket,
                ssl=self.context,
                ssl_handshake_timeout=self.server.config.limits.handshake_timeout_s,
                ssl_shutdown_timeout=CLOSE_TIMEOUT_S,
            )
            self.let_go()
        except OSError as error:  # also those of TLS and of timeouts
            self.fail(said(error))
        finally:
            self.handshake = None

    def let_go(self) -> None:
        kept, self.kept = self.kept, None
        if kept is not None:
            kept.close()

    def settle(self) -> None:
        """The event loop watches the socket, from the first octet on."""

    def peer_certificate(self) -> dict[str, Any] | None:
        """`subject`, `subjectAltName` and so on of a certificate that an authority of ours has signed."""
        if self.transport is None:
            return None
        shown = self.transport.get_extra_info("ssl_object").getpeercert()
        return shown or None  # nothing is told of one that was not verified

    # What the transport tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # By its methods alone: uvloop's is no subclass.
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(TRANSPORT_BYTES_HIGH, TRANSPORT_BYTES_LOW)

    def get_buffer(self, sizehint: int) -> memoryview:
        kept = len(self.leftover)
        view = self.scheduler.view
        view[:kept] = self.leftover
        return view[kept : kept + STRANGER_READ_BYTES] if self.is_stranger else view[kept:]

    def buffer_updated(self, nbytes: int) -> None:
        if not self.held & HELD_CLOSED:
            self.received = True
            self.received_octets += nbytes
            self.scheduler.pass_work.unwatched_bytes -= nbytes
            self.receive(self.scheduler.buffer, len(self.leftover) + nbytes)

    def pause_writing(self) -> None:
        self.output.blocked = True

    def resume_writing(self) -> None:
        self.output.blocked = False
        self.scheduler.has_room(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.held & HELD_CLOSED:
            self.lost()

    # How octets come and go

    def pause_reading(self) -> None:
        if self.transport is not None:
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        if self.transport is not None:
            self.transport.resume_reading()

    def send(self) -> None:
        """In pieces, until all is sent or the transport calls for a pause; it keeps what it is given."""
        output = self.output
        if output.barrier:
            return
        if output.streaming and not self.fill_from_streams():
            return
        while self.transport is not None and output.pending() and not output.blocked:
            self.sent = True
            piece = bytes(memoryview(output.buffer)[output.start : output.fill][:WRITE_BYTES_MAX])
            output.sent(len(piece))
            self.sent_octets += len(piece)
            self.scheduler.sent_octets += len(piece)
            self.transport.write(piece)
        if output.streaming and not output.blocked and not self.streaming_due:
            # In the next turn of the loop, when others have had theirs.
            self.streaming_due = True
            self.server.loop.call_soon(self.stream_on)
        self.after_send(output.pending())

    def describe(self) -> FieldTable:
        found = super().describe()
        found["tls"] = True
        secure = None if self.transport is None else self.transport.get_extra_info("ssl_object")
        if secure is not None:
            cipher = secure.cipher()
            found["tls-protocol"] = secure.version() or ""
            found["tls-cipher"] = cipher[0] if cipher else ""
        return found

    def beat_ahead(self) -> None:
        if self.transport is not None:
            self.transport.write(self.session.heartbeat())

    def stream_on(self) -> None:
        self.streaming_due = False
        self.scheduler.has_room(self)

    def end_sending(self) -> None:
        self.drop()  # the transport reads on until close_notify is answered

    def disconnect(self) -> None:
        """Sends what the transport still holds and close_notify; a peer that takes neither is cut off."""
        self.let_go()
        if self.transport is not None:
            self.transport.close()
        elif self.handshake is not None:
            self.handshake.cancel()
        elif self.socket.fileno() >= 0:
            self.unwatch()
            self.socket.close()
