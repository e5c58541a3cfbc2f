"""One request to a web server, with a deadline for the whole of it and a limit for the answer.

Redirections are not followed and proxies are not used: what is asked is for the eyes of one server.
"""

from __future__ import annotations

import http.client
import io
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from flintmq.auth.backend import BackendFault
from flintmq.errors import ConfigFault

if TYPE_CHECKING:
    from pathlib import Path

    from flintmq.clock import Clock


@dataclass(frozen=True, slots=True)
class Web:
    """How web servers are asked."""

    clock: Clock
    timeout_s: float
    context: ssl.SSLContext

    def ask(self, method: str, url: str, body: bytes | None, octets_max: int) -> tuple[int, bytes]:
        """The status and the body of the answer, or a BackendFault."""
        parts = urlsplit(url)
        until_s = self.clock.monotonic_s() + self.timeout_s
        target = parts.path or "/"
        if parts.query:
            target += f"?{parts.query}"
        headers = {"Content-Type": "application/x-www-form-urlencoded"} if body is not None else {}
        connection = self._connection(parts.scheme, parts.hostname or "", parts.port)
        socket = None
        try:
            connection.connect()
            socket = connection.sock
            connection.sock = Timed(socket, self.clock, until_s)
            connection.request(method, target, body, headers)
            answer = connection.getresponse()
            octets = answer.read(octets_max + 1)
        except (OSError, http.client.HTTPException) as error:
            raise BackendFault(f"{parts.hostname}: {type(error).__name__}: {error}") from None
        finally:
            connection.close()
            if socket is not None:
                socket.close()
        if len(octets) > octets_max:
            raise BackendFault(f"{parts.hostname}: an answer of more than {octets_max} octets")
        return answer.status, octets

    def _connection(self, scheme: str, host: str, port: int | None) -> http.client.HTTPConnection:
        if scheme == "https":
            return http.client.HTTPSConnection(host, port, timeout=self.timeout_s, context=self.context)
        return http.client.HTTPConnection(host, port, timeout=self.timeout_s)


def web(clock: Clock, timeout_s: float, authority: Path | None, where: str) -> Web:
    """For a back end whose settings are at `where`."""
    try:
        context = ssl.create_default_context(cafile=None if authority is None else str(authority))
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigFault(
            f'{where}.authority = "{authority}" is not usable: {reason}; give PEM files'
        ) from None
    return Web(clock, timeout_s, context)


class Timed:
    """A socket whose every operation ends when the whole has to: a trickle of octets gains no time."""

    def __init__(self, socket: Any, clock: Clock, until_s: float) -> None:
        self._socket = socket
        self._clock = clock
        self._until_s = until_s

    def sendall(self, octets: bytes) -> None:
        self._hurry().sendall(octets)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(TimedReader(self))

    def receive(self, buffer: Any) -> int:
        count: int = self._hurry().recv_into(buffer)
        return count

    def close(self) -> None:
        """http.client closes while the answer is still to be read; whoever has asked closes in the end."""

    def _hurry(self) -> Any:
        left_s = self._until_s - self._clock.monotonic_s()
        if left_s <= 0:
            raise TimeoutError("the answer takes too long")
        self._socket.settimeout(left_s)
        return self._socket


class TimedReader(io.RawIOBase):
    """What http.client reads from."""

    def __init__(self, socket: Timed) -> None:
        self._socket = socket

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._socket.receive(buffer)
