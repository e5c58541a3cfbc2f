"""A listening socket, and the links of those who connect to it."""

from __future__ import annotations

import logging
import os
import socket
import ssl
import sys
from importlib import import_module
from typing import TYPE_CHECKING

from flintmq.auth.user import is_loopback
from flintmq.server.network import sockets
from flintmq.server.network.link import HELD_CLOSED, Link

if TYPE_CHECKING:
    from flintmq.server.server import Server

log = logging.getLogger("flintmq.strangers")

BACKLOG = 4096
# In one turn, if they come together, some 100 microseconds each, and as much again for whoever makes room;
# the first turns take one, for there is mostly no more.
ACCEPTS_MAX = 2
PAUSE_S = 1.0
# The same while as many handshakes are in progress as may be: some of them are done by then.
FULL_PAUSE_S = 0.02


class Listener:
    """One address. Its clients speak TLS if there is a `context`, and AMQP/Fast 0.9 if it is for that."""

    __slots__ = ("accepts", "context", "proxies", "server", "socket", "speaks_fast09")

    def __init__(
        self,
        server: Server,
        host: str,
        port: int,
        context: ssl.SSLContext | None,
        speaks_fast09: bool = False,
    ) -> None:
        self.server = server
        self.socket = bound(host, port)
        self.context = context
        self.speaks_fast09 = speaks_fast09
        self.proxies = server.config.listen.proxy_protocol_from
        # What few brokers need, and these before anybody comes: it takes a millisecond to load.
        if self.proxies:
            import_module("flintmq.server.network.proxy_protocol")
        if context is not None:
            import_module("flintmq.server.network.tls")
        self.accepts = 1  # tried in the next turn
        self.resume()

    def close(self) -> None:
        if self.socket.fileno() >= 0:
            self.server.readiness.forget(self.socket.fileno())
            self.socket.close()

    def accept(self) -> bool:
        """Whether somebody is there who will say something at once."""
        is_opening = False
        strangers = self.server.strangers
        for turn in range(self.accepts):
            if strangers.is_full():
                # Of the first it is known that it is there: others have to make room for it, or it waits.
                if turn:
                    break
                if not strangers.make_room(ACCEPTS_MAX):
                    self.wait(FULL_PAUSE_S)
                    break
            try:
                accepted = sockets.accept(self.socket)
            except OSError as error:
                self.pause(error)
                break
            if accepted is None:
                self.accepts = 1
                break
            descriptor, address = accepted
            if self.proxies and self.is_brought(descriptor, address):
                continue
            if self.arrived(descriptor, address):
                is_opening = self.context is None  # there is more to wait for with TLS
        else:
            self.accepts = min(2 * self.accepts, ACCEPTS_MAX)
        return is_opening

    def is_brought(self, descriptor: int, address: str) -> bool:
        """Whether a proxy is there, which tells first whom it brings."""
        from flintmq.server.network.proxy_protocol import ProxiedArrival, is_proxy

        if not is_proxy(address, self.proxies):
            return False
        ProxiedArrival(self, descriptor, address)
        return True

    def arrived(self, descriptor: int, address: str) -> bool:
        """Somebody is there, whose address is known; whether there is room for one more."""
        links, strangers = self.server.links, self.server.strangers
        if not strangers.admits(address):
            sockets.close(descriptor)
            return False
        if len(links) >= self.server.config.limits.connections_max or strangers.take_files():
            strangers.refuse(address)
            sockets.close(descriptor)
            return False
        self.connect(descriptor, address)
        return True

    def connect(self, descriptor: int, address: str) -> None:
        try:
            link = self.new_link(descriptor, address)
        except Exception:  # others are to be served in this turn
            log.exception("a bug keeps %s from connecting", address)
            sockets.close(descriptor)
            return
        self.server.connected(link)
        if not link.held & HELD_CLOSED:
            link.start()

    def new_link(self, descriptor: int, address: str) -> Link:
        """The descriptor is the link's if all goes well."""
        if self.context is not None:
            from flintmq.server.network.tls import TlsLink

            return TlsLink(self.server, descriptor, address, self.context)
        link = Link(self.server, descriptor, address)
        if self.speaks_fast09:
            link.speak_fast09()
        return link

    def pause(self, error: OSError) -> None:
        """Out of descriptors or memory: trying again at once would only spin."""
        log.error("cannot accept connections: %s; trying again in a second", error.strerror)
        self.wait(PAUSE_S)

    def wait(self, pause_s: float) -> None:
        """Who connects meanwhile waits in the backlog of the system."""
        self.server.readiness.forget(self.socket.fileno())
        self.server.loop.call_later(pause_s, self.resume)

    def resume(self) -> None:
        if self.socket.fileno() >= 0:
            self.server.readiness.listen(self.socket.fileno(), self)


def bound(host: str, port: int) -> socket.socket:
    """A listening socket on one address."""
    # For text Python loads the rules of international names, which takes milliseconds.
    name = host.encode() if host.isascii() else host
    family, kind, protocol, _, address = socket.getaddrinfo(
        name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        # Those that it accepts inherit both.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if sys.platform == "linux" and is_loopback(str(address[0])):
            # Within a machine there is no path to be gentle to: BBR and others would only pace themselves.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
        listener.bind(address)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener
