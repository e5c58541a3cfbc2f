"""The process of the HTTP API: started, watched, started again, and ended with the broker.

    broker                                                    management process
      |---- starts it, with the listening sockets and one end of `control` ---->|
      |<--- over `control`: one end of a pair of sockets, as often as needed ---|
      |<--- over `control`: an octet every PING_S, or the process is ended -----|
      |<=== AMQP over that pair: an internal connection =======================>|

Whoever holds `control` is trusted (broker/services/acting.py): it is inherited, so there is no port, no file
and no password that somebody else could use. The sockets stay with the broker while the process is started
again: clients that come meanwhile wait for it. Whatever becomes of the process, the broker goes on.
"""

from __future__ import annotations

import asyncio
import errno
import importlib.util
import json
import logging
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

from flintmq.errors import ConfigFault
from flintmq.server.network.link import Link
from flintmq.server.network.listener import bound

if TYPE_CHECKING:
    from pathlib import Path

    from flintmq.config import Management
    from flintmq.server.server import Server

log = logging.getLogger("flintmq.management")

NEEDED = ("starlette", "uvicorn", "orjson")
# Internal connections at a time. The process keeps fewer: it would be a bug of its own.
CONNECTIONS_MAX = 192
# A process that ended is started again after this long, which doubles if it ends soon.
AGAIN_S = 0.5
AGAIN_S_MAX = 30.0
# One that has run for so long did not end soon.
STEADY_S = 60.0
# How long a process has to end when it is told to.
STOP_S = 1.0
PEER = "management"
# How long a port that is taken is waited for: the management process of a broker that was killed may be a
# moment behind it. And how long between two attempts.
ORPHAN_S = 3.0
ORPHAN_LOOK_S = 0.05
# How often the process says that it is alive, and after how many such times of silence it is taken for hung.
# The first word may take twice as long: modules are read first.
PING_S = 5.0
SILENT_MAX = 6


def path_of(file: Path | None) -> str | None:
    return None if file is None else str(file.absolute())


class ManagementProcess:
    """The process, and the sockets that it shares with the broker."""

    def __init__(self, server: Server, settings: Management) -> None:
        missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
        if missing:
            raise ConfigFault(
                f"the HTTP API needs {', '.join(missing)}: pip install 'flintmq[management]', "
                "or leave out --management-port and [management]"
            )
        if not hasattr(socket, "send_fds"):
            raise ConfigFault("the HTTP API needs sockets that can be passed on, which this system lacks")
        self.server = server
        self.settings = settings
        self.sockets: list[socket.socket] = []
        self.control: socket.socket | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self.started_s = 0.0
        self.again_s = AGAIN_S
        self.is_stopping = False
        self.watch_timer: asyncio.TimerHandle | None = None
        self.silent = 0  # times that `watch` found nothing said since the last word

    def start(self) -> list[str]:
        """Binds every configured address, and starts the process; the URLs that it is reached by."""
        scheme = "http" if self.settings.certificate is None else "https"
        urls: list[str] = []
        port = self.settings.port
        for host in self.settings.hosts:
            try:
                listening = self.bound_soon(host, port)
            except OSError as error:
                if urls:
                    log.info("not listening on %s: %s", host, error.strerror)
                    continue
                raise OSError(
                    error.errno, f"cannot listen on {host} port {port} for HTTP: {error.strerror}"
                ) from None
            self.sockets.append(listening)
            address, port = listening.getsockname()[:2]
            shown = f"[{address}]" if ":" in address else address
            urls.append(f"{scheme}://{shown}:{port}")
            self.server.http_listeners.append({"protocol": scheme, "ip_address": address, "port": port})
        self.begin()
        return urls

    def bound_soon(self, host: str, port: int) -> socket.socket:
        """A listening socket, after the management process of a broker that was killed has let go of it."""
        clock = self.server.broker.clock
        until_s = clock.monotonic_s() + ORPHAN_S
        while True:
            try:
                return bound(host, port)
            except OSError as error:
                if error.errno != errno.EADDRINUSE or clock.monotonic_s() >= until_s:
                    raise
            clock.sleep(ORPHAN_LOOK_S)

    def begin(self) -> None:
        """One life of the process."""
        self.started_s = self.server.loop.time()
        try:
            self.spawn()
        except OSError as error:  # no descriptors or no memory are left, for the moment
            self.hang_up()
            self.end_process()
            log.error("the management process cannot be started: %s", error)
            self.begin_again()

    def spawn(self) -> None:
        self.control, theirs = socket.socketpair()
        with theirs:
            self.control.setblocking(False)
            shared = [listening.fileno() for listening in self.sockets]
            settings = {
                "control": theirs.fileno(),
                "sockets": shared,
                "certificate": path_of(self.settings.certificate),
                "key": path_of(self.settings.key),
                "log_level": self.server.config.log.level,
                "amqp": self.server.amqp_listeners(),
                "ping_s": PING_S,
                "pipelines": path_of(self.settings.pipelines),
                "log_file": path_of(self.server.config.log.file),
                "audit_file": path_of(self.server.config.audit.file),
            }
            self.process = subprocess.Popen(
                [sys.executable, "-m", "flintmq.management", json.dumps(settings)],
                pass_fds=[theirs.fileno(), *shared],
                stdin=subprocess.DEVNULL,
            )
        self.server.loop.add_reader(self.control.fileno(), self.readable)
        self.silent = -SILENT_MAX
        self.watch_timer = self.server.loop.call_later(PING_S, self.watch)

    def watch(self) -> None:
        """Ends a process that hangs. Looks are counted, not seconds: time in which the broker itself stood
        still is not held against the process."""
        self.silent += 1
        if self.silent > SILENT_MAX:
            log.error("the management process has said nothing for %d s: it is ended", PING_S * SILENT_MAX)
            self.ended()
            return
        self.watch_timer = self.server.loop.call_later(PING_S, self.watch)

    def readable(self) -> None:
        """The process is alive, wants a connection, or has ended."""
        assert self.control is not None
        try:
            said, descriptors, _, _ = socket.recv_fds(self.control, 1, 1)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            said, descriptors = b"", []
        self.silent = 0
        for descriptor in descriptors:
            self.connect(descriptor)
        if not said:
            self.ended()

    def connect(self, descriptor: int) -> None:
        theirs = socket.socket(fileno=descriptor)
        if len(self.server.broker.clients.internal) >= CONNECTIONS_MAX:
            log.error("the management process has %d connections: no more", CONNECTIONS_MAX)
            theirs.close()
            return
        theirs.setblocking(False)
        link = Link(self.server, theirs.detach(), PEER)
        link.session.is_internal = True
        self.server.connected(link)
        link.start()

    def hang_up(self) -> None:
        if self.watch_timer is not None:
            self.watch_timer.cancel()
            self.watch_timer = None
        if self.control is not None:
            self.server.loop.remove_reader(self.control.fileno())
            self.control.close()
            self.control = None

    def ended(self) -> None:
        self.hang_up()
        if self.is_stopping:
            return
        status = self.end_process()
        if status is not None:
            log.error("the management process has ended with status %d: it is started again", status)
        self.begin_again()

    def end_process(self) -> int | None:
        """The status of the process, if there was one."""
        process, self.process = self.process, None
        if process is None:
            return None
        process.kill()  # it may have closed the socket and be there still
        return process.wait()

    def begin_again(self) -> None:
        if self.server.loop.time() - self.started_s > STEADY_S:
            self.again_s = AGAIN_S
        self.server.loop.call_later(self.again_s, self.restart)
        self.again_s = min(2 * self.again_s, AGAIN_S_MAX)

    def restart(self) -> None:
        if not self.is_stopping:
            self.begin()

    def stop(self) -> None:
        """The process ends when `control` does."""
        self.is_stopping = True
        self.hang_up()
        for listening in self.sockets:
            listening.close()
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for link in list(self.server.links):
            if link.session.is_internal:
                link.drop()  # nobody is left to answer, which would be told as a client that went away
