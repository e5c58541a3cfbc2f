"""One connection of the HTTP API: how long it may take to ask for something, and how many a peer may have.

    connected ---- HEAD_S ----> closed, unless the head of a request is whole
    answered  ---- keep-alive of uvicorn ----> closed, unless something comes
    something came ---- HEAD_S ----> closed, unless the head of a request is whole
    answer waits to be read ---- STALLED_S ----> closed, unless some of it was read meanwhile

Otherwise peers without a login could fill the process with connections that say nothing, and those with one
could have it hold the rows of long lists that they do not read.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from typing import Any, ClassVar

from uvicorn.protocols.http.auto import AutoHTTPProtocol

log = logging.getLogger("flintmq.management")

HEAD_S = 10.0
# The kernel may hold megabytes of an answer, and takes more when a third of that was read: a peer that reads
# some thousand octets a second is waited for.
STALLED_S = 300.0
# A quarter of all. A proxy in front is one peer: browsers have six connections each, and tools one.
PEER_CONNECTIONS_MAX = 250
FULL = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"

UvicornProtocol: Any = AutoHTTPProtocol


class HttpConnection(UvicornProtocol):  # type: ignore[misc]
    """uvicorn's protocol, with limits on what a peer may leave undone."""

    # Connections by the address of the other end; there is one server in the process.
    peers: ClassVar[Counter[str]] = Counter()

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self.head_timer: asyncio.TimerHandle | None = None
        self.stall_timer: asyncio.TimerHandle | None = None
        # Requests without a whole answer, the oldest first. uvicorn knows the newest alone.
        self.unanswered: deque[Any] = deque()
        self.peer = "" if self.client is None else str(self.client[0])
        self.peers[self.peer] += 1
        if self.peers[self.peer] > PEER_CONNECTIONS_MAX:
            log.warning("%s has %d connections over HTTP: no more", self.peer, PEER_CONNECTIONS_MAX)
            transport.write(FULL)
            transport.close()
        else:
            self.expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self.peers[self.peer] -= 1
        if not self.peers[self.peer]:
            del self.peers[self.peer]
        self.forget_head()
        self.forget_stall()
        for cycle in self.unanswered:
            # Its answer ends here: a write to the socket would raise.
            cycle.disconnected = True
            cycle.message_event.set()
        self.unanswered.clear()
        super().connection_lost(exc)

    def on_headers_complete(self) -> None:
        """A request has begun, with httptools. With h11 there is one at a time, which uvicorn knows."""
        before = self.cycle
        super().on_headers_complete()
        if self.cycle is not before:
            self.unanswered.append(self.cycle)

    def on_response_complete(self) -> None:
        while self.unanswered and self.unanswered[0].response_complete:
            self.unanswered.popleft()
        super().on_response_complete()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.is_asked:
            self.forget_head()
        elif not self.transport.is_closing():
            self.expect_head()

    @property
    def is_asked(self) -> bool:
        """Whether a request is at work."""
        return self.cycle is not None and not self.cycle.response_complete

    def expect_head(self) -> None:
        """The first octet of a head starts the time, the next ones do not prolong it."""
        if self.head_timer is None:
            self.head_timer = self.loop.call_later(HEAD_S, self.close_unasked)

    def forget_head(self) -> None:
        if self.head_timer is not None:
            self.head_timer.cancel()
            self.head_timer = None

    def close_unasked(self) -> None:
        self.head_timer = None
        self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.forget_stall()
        waiting = self.transport.get_write_buffer_size()
        self.stall_timer = self.loop.call_later(STALLED_S, self.close_unread, waiting)

    def resume_writing(self) -> None:
        self.forget_stall()
        super().resume_writing()

    def forget_stall(self) -> None:
        if self.stall_timer is not None:
            self.stall_timer.cancel()
            self.stall_timer = None

    def close_unread(self, were_waiting: int) -> None:
        """Ends the connection unless its peer has read since so many octets waited."""
        waiting = self.transport.get_write_buffer_size()
        if waiting < were_waiting:
            self.stall_timer = self.loop.call_later(STALLED_S, self.close_unread, waiting)
            return
        self.stall_timer = None
        log.warning("%s has read nothing of an answer for %g s: closed", self.peer, STALLED_S)
        self.transport.abort()
