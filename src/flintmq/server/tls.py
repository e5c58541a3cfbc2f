"""Encrypted connections: a link whose octets come and go over an asyncio TLS transport.

    readable -> decrypt into the shared buffer -> connection.receive -> ... -> flush -> encrypt -> send

The transport calls get_buffer and buffer_updated in one go for each piece it has decrypted, so all links
share the server's buffer here too. It tells when it holds more than it could send: the output counts as
blocked meanwhile. There is one task for each connection, which ends with the TLS handshake.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import TYPE_CHECKING, cast

from flintmq.errors import ConfigFault
from flintmq.server import sockets
from flintmq.server.link import CLOSE_TIMEOUT_S, HEARTBEAT, HELD_CLOSED, Link

if TYPE_CHECKING:
    from flintmq.config import Tls
    from flintmq.server.server import Server

log = logging.getLogger("flintmq.tls")

# Given to the transport at a time. With what it may hold before it calls for a pause, some 192 KiB of
# encrypted octets wait in a connection whose peer does not read.
WRITE_BYTES_MAX = 65_536
TRANSPORT_BYTES_HIGH = 131_072
TRANSPORT_BYTES_LOW = 32_768


def server_context(tls: Tls) -> ssl.SSLContext:
    """What the broker shows to its clients, and what it asks of them."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # A key with a passphrase is refused: OpenSSL would ask the terminal for it.
        context.load_cert_chain(tls.certificate, tls.key, password="")
    except OSError as error:
        raise ConfigFault(
            f'tls.certificate = "{tls.certificate}" and tls.key = "{tls.key}" are not usable together: '
            f"{said(error)}; give a certificate chain and its key, without a passphrase, in PEM"
        ) from None
    if tls.authority is not None:
        try:
            context.load_verify_locations(tls.authority)
        except OSError as error:
            raise ConfigFault(
                f'tls.authority = "{tls.authority}" is not usable: {said(error)}; give certificates in PEM'
            ) from None
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def said(error: OSError) -> str:
    """The reason alone: OpenSSL adds the line of its own source."""
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    return error.strerror or type(error).__name__


class TlsLink(Link, asyncio.BufferedProtocol):
    """A link that speaks TLS."""

    __slots__ = ("context", "handshake", "socket", "streaming_due", "transport")

    def __init__(self, server: Server, descriptor: int, peer_address: str, context: ssl.SSLContext) -> None:
        super().__init__(server, descriptor, peer_address)
        self.socket = sockets.released(descriptor)
        self.context = context
        self.transport: asyncio.Transport | None = None
        self.handshake: asyncio.Task[None] | None = None
        self.streaming_due = False

    def start(self) -> None:
        self.handshake = self.server.loop.create_task(self.shake_hands())

    async def shake_hands(self) -> None:
        try:
            await self.server.loop.connect_accepted_socket(
                lambda: self,
                self.socket,
                ssl=self.context,
                ssl_handshake_timeout=self.server.config.limits.handshake_timeout_s,
                ssl_shutdown_timeout=CLOSE_TIMEOUT_S,
            )
        except OSError as error:  # also those of TLS and of timeouts
            log.warning("no TLS with %s: %s", self.session.peer_address, said(error))
            self.drop()
        finally:
            self.handshake = None

    # What the transport tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # By its methods alone: uvloop's is no subclass.
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(TRANSPORT_BYTES_HIGH, TRANSPORT_BYTES_LOW)

    def get_buffer(self, sizehint: int) -> memoryview:
        kept = len(self.leftover)
        view = self.scheduler.view
        view[:kept] = self.leftover
        return view[kept:]

    def buffer_updated(self, nbytes: int) -> None:
        if not self.held & HELD_CLOSED:
            self.received = True
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
            self.transport.write(piece)
        if output.streaming and not output.blocked and not self.streaming_due:
            # In the next turn of the loop, when others have had theirs.
            self.streaming_due = True
            self.server.loop.call_soon(self.stream_on)
        self.after_send(output.pending())

    def beat_ahead(self) -> None:
        if self.transport is not None:
            self.transport.write(HEARTBEAT)

    def stream_on(self) -> None:
        self.streaming_due = False
        self.scheduler.has_room(self)

    def end_sending(self) -> None:
        self.drop()  # the transport reads on until close_notify is answered

    def disconnect(self) -> None:
        """Sends what the transport still holds and close_notify; a peer that takes neither is cut off."""
        if self.transport is not None:
            self.transport.close()
        elif self.handshake is not None:
            self.handshake.cancel()
        else:
            self.socket.close()
