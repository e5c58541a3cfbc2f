"""The PROXY protocol: a proxy tells in front of all else whose connection it brings.

    version 1    PROXY TCP4 203.0.113.7 10.0.0.5 51234 5672 CR LF                    at most 107 octets
    version 2    | CR LF CR LF 0 CR LF Q U I T LF | 2 and command 1 | family 1 | length 2 | addresses, more |

Only configured addresses may speak it (listen.proxy_protocol_from), and these must: a header is never guessed
at. What is read is the header and not one octet more, so that whatever follows is the client's, TLS too.
"""

from __future__ import annotations

import ipaddress
import logging
import socket
from functools import lru_cache
from typing import TYPE_CHECKING

from flintmq.auth.failed_logins import UNKNOWN
from flintmq.auth.user import is_loopback
from flintmq.server.network import sockets

if TYPE_CHECKING:
    from flintmq.server.network.listener import Listener

log = logging.getLogger("flintmq.strangers")

WORD = b"PROXY "
LINE_OCTETS_MAX = 107
SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
HEAD_OCTETS = 16
# Addresses take 36 octets; what else proxies tell, such as the name of TLS, is short.
REST_OCTETS_MAX = 1024
LOCAL, PROXIED = 0x20, 0x21
# Families of version 2, with the octets of one address; two addresses and two ports follow each other.
TCP4, TCP6 = 0x11, 0x21
ADDRESS_OCTETS = {TCP4: 4, TCP6: 16}
UNSPECIFIED = (0x00, 0x31)  # and a stream of the proxy's own machine


class ProxyFault(Exception):
    """What a proxy said is no header of the PROXY protocol; the text says why."""


def missing(header: bytes) -> int:
    """How many octets the rest of a header has at least; 0 when it is whole."""
    if not (SIGNATURE.startswith(header[:12]) or WORD.startswith(header[:6])):
        raise ProxyFault("it does not begin as one")
    if len(header) < len(SIGNATURE):
        return len(SIGNATURE) - len(header)
    if header[:6] == WORD:
        if header.endswith(b"\r\n"):
            return 0
        if len(header) >= LINE_OCTETS_MAX:
            raise ProxyFault(f"no end of the line in {LINE_OCTETS_MAX} octets")
        return 1 if header.endswith(b"\r") or len(header) == LINE_OCTETS_MAX - 1 else 2
    if len(header) < HEAD_OCTETS:
        return HEAD_OCTETS - len(header)
    length = int.from_bytes(header[14:16], "big")
    if length > REST_OCTETS_MAX:
        raise ProxyFault(f"{length} octets of it are announced, {REST_OCTETS_MAX} are allowed")
    return HEAD_OCTETS + length - len(header)


def client_address(header: bytes) -> str | None:
    """The address of the client that a whole header names; None if it names none."""
    if header[:6] == WORD:
        return address_of_line(header)
    command, family = header[12], header[13]
    if command == LOCAL:
        return None
    if command != PROXIED:
        raise ProxyFault(f"version and command are {command:#04x}")
    if family in UNSPECIFIED:
        return None
    size = ADDRESS_OCTETS.get(family)
    if size is None:
        raise ProxyFault(f"family and transport are {family:#04x}")
    if len(header) < HEAD_OCTETS + 2 * size + 4:
        raise ProxyFault("it is too short for its addresses")
    return str(ipaddress.ip_address(header[HEAD_OCTETS : HEAD_OCTETS + size]))


def address_of_line(line: bytes) -> str | None:
    words = line[:-2].split(b" ")
    if words[1] == b"UNKNOWN":
        return None
    if len(words) != 6 or words[1] not in (b"TCP4", b"TCP6"):
        raise ProxyFault("it is not PROXY, TCP4 or TCP6, two addresses and two ports")
    kind = ipaddress.IPv4Address if words[1] == b"TCP4" else ipaddress.IPv6Address
    try:
        source, _ = (kind(word.decode("ascii")) for word in words[2:4])
        for word in words[4:]:
            if not word.isdigit() or str(int(word)).encode() != word or int(word) > 65535:
                raise ValueError
    except ValueError:  # also what is not ASCII
        raise ProxyFault("an address or a port of it is none") from None
    return str(source)


@lru_cache(maxsize=1024)
def is_proxy(address: str, networks: tuple[str, ...]) -> bool:
    """Whether who connects from the address has to speak the PROXY protocol."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    return any(parsed in ipaddress.ip_network(each) for each in networks)


class ProxiedArrival:
    """A connection of a proxy that has not told yet whom it is for."""

    def __init__(self, listener: Listener, descriptor: int, proxy: str) -> None:
        self.listener = listener
        self.server = listener.server
        self.proxy = proxy
        self.header = b""
        self.socket = sockets.released(descriptor)
        self.server.strangers.arriving[self] = None
        self.server.loop.add_reader(self.socket.fileno(), self.readable)
        timeout_s = self.server.config.limits.handshake_timeout_s
        self.timer = self.server.loop.call_later(timeout_s, self.refuse, "it took too long")

    def readable(self) -> None:
        try:
            size = missing(self.header)
            while size:
                octets = self.socket.recv(size)
                if not octets:
                    self.leave().close()
                    return
                self.header += octets
                size = missing(self.header)
            address = client_address(self.header)
        except (BlockingIOError, InterruptedError):
            return
        except ProxyFault as fault:
            self.refuse(str(fault))
            return
        except OSError:
            self.leave().close()
            return
        self.listener.arrived(sockets.taken(self.leave()), self.known_as(address))

    def known_as(self, address: str | None) -> str:
        """The client's address, as far as it means something here."""
        if address is None:
            return UNKNOWN
        if is_loopback(address) and not is_loopback(self.proxy):
            return self.proxy  # on the machine of the proxy, which is not this one
        return address

    def refuse(self, why: str) -> None:
        log.warning("no PROXY header from %s, which has to send one: %s", self.proxy, why)
        self.leave().close()

    def leave(self) -> socket.socket:
        """Lets go of the socket."""
        self.timer.cancel()
        self.server.loop.remove_reader(self.socket.fileno())
        self.server.strangers.arriving.pop(self, None)
        return self.socket
