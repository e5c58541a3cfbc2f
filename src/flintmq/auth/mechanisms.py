"""SASL mechanisms, sans-IO: the octets of connection.start-ok and secure-ok in, what comes next out.

    start(response) / answer(response) -> Challenge      send connection.secure, then answer()
                                       -> Verification   slow work, then its outcome
                                       -> Accepted | Refused

    PLAIN       authorization identity | NUL | user | NUL | password
    AMQPLAIN    a field table without its leading length: LOGIN and PASSWORD

A mechanism of more steps (SCRAM), or one that trusts a certificate (EXTERNAL), is one more class here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from flintmq.auth.users import Accepted, Refused, Users, Verification
from flintmq.errors import ConnectionFault, PeerFault
from flintmq.reply_codes import ACCESS_REFUSED
from flintmq.wire.tables import decode_table

# A user of 255 octets, a password of 1024, their names and types in the table: far less than this.
RESPONSE_OCTETS_MAX = 4096


@dataclass(frozen=True, slots=True)
class Challenge:
    """Octets for connection.secure; the response belongs in `answer`."""

    octets: bytes


Step = Challenge | Verification | Accepted | Refused


class Mechanism(Protocol):
    """One login in progress."""

    name: str

    def start(self, response: bytes) -> Step:
        """Take the response of connection.start-ok."""

    def answer(self, response: bytes) -> Step:
        """Take the response to the last Challenge."""


class _Passwords:
    """What PLAIN and AMQPLAIN share: one response with a name and a password in it, no challenge."""

    name = ""

    def __init__(self, users: Users, peer_address: str) -> None:
        self._users = users
        self._peer_address = peer_address

    def start(self, response: bytes) -> Step:
        if len(response) > RESPONSE_OCTETS_MAX:
            return Refused(f"{self.name} response of {len(response)} octets, {RESPONSE_OCTETS_MAX} allowed")
        found = self._credentials(response)
        if isinstance(found, Refused):
            return found
        name, password = found
        return self._users.login(name, password, self._peer_address)

    def answer(self, response: bytes) -> Step:
        return Refused(f"{self.name} has no second step")

    def _credentials(self, response: bytes) -> tuple[str, bytes] | Refused:
        raise NotImplementedError


class Plain(_Passwords):
    """PLAIN (RFC 4616); acting for somebody else is not offered."""

    name = "PLAIN"

    def _credentials(self, response: bytes) -> tuple[str, bytes] | Refused:
        parts = response.split(b"\0")
        if len(parts) != 3:
            return Refused("PLAIN response is not three texts with NUL between them")
        acting_for, name, password = parts
        if acting_for not in (b"", name):
            return Refused("PLAIN response asks to act for another user")
        try:
            return name.decode(), password
        except UnicodeDecodeError:
            return Refused("PLAIN user name is not UTF-8")


class AmqPlain(_Passwords):
    """AMQPLAIN: what the clients of 0-8 and 0-9 send."""

    name = "AMQPLAIN"

    def _credentials(self, response: bytes) -> tuple[str, bytes] | Refused:
        octets = len(response).to_bytes(4, "big") + response
        try:
            table, _ = decode_table(octets, 0, len(octets), "it")
        except PeerFault as fault:
            return Refused(f"AMQPLAIN response is no field table: {fault.text}")
        # A long string that is not UTF-8 comes as bytes: that may be a password, but no name.
        name, password = table.get("LOGIN"), table.get("PASSWORD")
        if isinstance(name, str) and isinstance(password, str):
            return name, password.encode()
        if isinstance(name, str) and isinstance(password, bytes):
            return name, password
        return Refused("AMQPLAIN response lacks LOGIN or PASSWORD as text")


# In the order in which connection.start offers them.
MECHANISMS: dict[str, Callable[[Users, str], Mechanism]] = {Plain.name: Plain, AmqPlain.name: AmqPlain}


def mechanisms_offered() -> str:
    """The list for connection.start."""
    return " ".join(MECHANISMS)


def mechanism(name: str, users: Users, peer_address: str) -> Mechanism:
    """A new login by the mechanism that connection.start-ok names, for a peer at `peer_address`."""
    chosen = MECHANISMS.get(name)
    if chosen is None:
        raise ConnectionFault(
            ACCESS_REFUSED,
            f"no SASL mechanism '{name[:32]}' here, choose from: {mechanisms_offered()}",
        )
    return chosen(users, peer_address)


def login_refused(name: str) -> ConnectionFault:
    """What the peer hears of any refused login, whatever the reason was."""
    return ConnectionFault(ACCESS_REFUSED, f"login by {name} refused; the log of the broker has the reason")
