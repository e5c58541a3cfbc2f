"""SASL mechanisms, sans-IO: the octets of connection.start-ok and secure-ok in, what comes next out.

start(response) / answer(response) -> Challenge      send connection.secure, then answer()
                                   -> Verification   slow work, then its outcome
                                   -> Accepted | Refused

PLAIN          authorization identity | NUL | user | NUL | password, which may be a token
AMQPLAIN       a field table without its leading length: LOGIN and PASSWORD
EXTERNAL       the user whom the certificate names that TLS has verified
SCRAM-SHA-256  two challenges: scram.py
ANONYMOUS      the user whom the settings name
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from flintmq.auth import certificates
from flintmq.auth.users import BUSY, Accepted, Refused, Verification
from flintmq.errors import ConnectionFault, PeerFault
from flintmq.field_tuple import FieldTuple
from flintmq.reply_codes import ACCESS_REFUSED
from flintmq.scram import ScramFault, ScramKeys, ServerExchange
from flintmq.wire.tables import decode_table

if TYPE_CHECKING:
    from flintmq.auth.authentication import Authentication
    from flintmq.auth.user import User
    from flintmq.scram import LateKeys

# A user of 255 octets, a password of 1024, their names and types in the table: far less than this.
RESPONSE_OCTETS_MAX = 4096
# What a token may add to that.
TOKEN_OCTETS_MAX = 65_536
# The keys of no password.
NO_KEYS = bytes(32)


class Challenge(FieldTuple):
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


class OneResponse:
    """What mechanisms without a challenge share."""

    name = ""

    def __init__(
        self, authentication: Authentication, peer_address: str, certificate: dict[str, Any] | None
    ) -> None:
        self.authentication = authentication
        self.peer_address = peer_address
        self.certificate = certificate

    def start(self, response: bytes) -> Step:
        most = RESPONSE_OCTETS_MAX
        if self.authentication.takes_tokens:
            most += TOKEN_OCTETS_MAX
        if len(response) > most:
            return Refused(f"{self.name} response of {len(response)} octets, {most} allowed")
        return self.taken(response)

    def answer(self, response: bytes) -> Step:
        return Refused(f"{self.name} has no second step")

    def taken(self, response: bytes) -> Step:
        raise NotImplementedError


class Plain(OneResponse):
    """PLAIN (RFC 4616); acting for somebody else is not offered."""

    name = "PLAIN"

    def taken(self, response: bytes) -> Step:
        parts = response.split(b"\0")
        if len(parts) != 3:
            return Refused("PLAIN response is not three texts with NUL between them")
        acting_for, name, password = parts
        if acting_for not in (b"", name):
            return Refused("PLAIN response asks to act for another user")
        try:
            return self.authentication.login(name.decode(), password, self.peer_address)
        except UnicodeDecodeError:
            return Refused("PLAIN user name is not UTF-8")


class AmqPlain(OneResponse):
    """AMQPLAIN: what the clients of 0-8 and 0-9 send."""

    name = "AMQPLAIN"

    def taken(self, response: bytes) -> Step:
        octets = len(response).to_bytes(4, "big") + response
        try:
            table, _ = decode_table(octets, 0, len(octets), "it")
        except PeerFault as fault:
            return Refused(f"AMQPLAIN response is no field table: {fault.text}")
        # A long string that is not UTF-8 comes as bytes: that may be a password, but no name.
        name, password = table.get("LOGIN"), table.get("PASSWORD")
        if isinstance(password, str):
            password = password.encode()
        if not isinstance(name, str) or not isinstance(password, bytes):
            return Refused("AMQPLAIN response lacks LOGIN or PASSWORD as text")
        return self.authentication.login(name, password, self.peer_address)


class External(OneResponse):
    """EXTERNAL (RFC 4422): TLS has verified a certificate, and the certificate names the user."""

    name = "EXTERNAL"

    def taken(self, response: bytes) -> Step:
        if self.certificate is None:
            why = "the client has shown no certificate"
            return Refused(f"EXTERNAL: {why}", told=why)
        try:
            name = certificates.user_of(self.certificate, self.authentication.settings.certificate_user)
        except ValueError as error:
            return Refused(f"EXTERNAL: {error}", told=str(error))
        # Some clients send their name, some nothing.
        if response not in (b"", name.encode()):
            return Refused(f"EXTERNAL response asks to act for another user than {name!r}")
        return self.authentication.trusted(name, self.peer_address)


class Anonymous(OneResponse):
    """ANONYMOUS (RFC 4505): whoever comes is the user that the settings name."""

    name = "ANONYMOUS"

    def taken(self, response: bytes) -> Step:
        name = self.authentication.settings.anonymous_user
        if name is None:
            return Refused("ANONYMOUS: the settings name no user")
        return self.authentication.trusted(name, self.peer_address)


class ScramSha256(OneResponse):
    """SCRAM-SHA-256: a user that is not there, or has no keys, is asked and refused like others."""

    name = "SCRAM-SHA-256"

    def __init__(
        self, authentication: Authentication, peer_address: str, certificate: dict[str, Any] | None
    ) -> None:
        super().__init__(authentication, peer_address, certificate)
        self.exchange: ServerExchange | None = None
        self.keys: ScramKeys | LateKeys | None = None
        self.user: User | None = None  # whose keys these are
        self.password_changes = 0
        self.outcome: Accepted | Verification | None = None  # which follows the client's last word

    def taken(self, response: bytes) -> Step:
        try:
            exchange = self.exchange = ServerExchange(response)
        except ScramFault as fault:
            return Refused(f"SCRAM-SHA-256: {fault}")
        users = self.authentication.users
        keys = self.keys = self.authentication.scram_keys(exchange.name)
        if keys is None:
            iterations = users.policy.settings.scram_iterations
            return Challenge(exchange.challenge(users.salt_of_nobody(exchange.name), iterations))
        user = self.user = users.get(exchange.name)
        self.password_changes = 0 if user is None else user.password_changes
        return Challenge(exchange.challenge(keys.salt, keys.iterations))

    def answer(self, response: bytes) -> Step:
        if self.outcome is not None:
            return self.outcome if not response else Refused("SCRAM-SHA-256: there is nothing left to say")
        if self.exchange is None or len(response) > RESPONSE_OCTETS_MAX:
            return Refused(f"SCRAM-SHA-256 response of {len(response)} octets out of turn")
        try:
            self.exchange.take(response)
        except ScramFault as fault:
            return Refused(f"SCRAM-SHA-256 of user {self.exchange.name!r}: {fault}", self.exchange.name)
        return ProofVerification(self, self.exchange)

    def unchecked(self, why: str) -> Refused:
        """The server has given up: nobody knows whether the proof is right."""
        name = "" if self.exchange is None else self.exchange.name
        return Refused(f"the proof of user {name!r} is not checked: {why}", name, BUSY, True)

    def proven(self, keys: ScramKeys | None) -> Challenge | Refused:
        """The proof was looked at; with `keys` it is right."""
        exchange, users = self.exchange, self.authentication.users
        if exchange is None:
            return Refused("SCRAM-SHA-256: no login is in progress")
        user = users.get(exchange.name)
        if user is not None and self.keys is None:
            return Refused(
                f"user {user.name!r} has no keys for SCRAM-SHA-256 yet: they are made when the password is "
                "set, or at the next login by PLAIN"
            )
        if user is None or keys is None:
            known = "wrong password for user" if user is not None else "no user"
            return Refused(f"{known} {exchange.name!r}", exchange.name)
        if user is not self.user or user.password_changes != self.password_changes:
            return Refused(f"user {user.name!r} was changed during the login")
        step = self.authentication.proven(user.name, self.peer_address)
        if isinstance(step, Refused):
            return step
        self.outcome = step
        return Challenge(exchange.signature(keys))


class ProofVerification(Verification):
    """The proof of SCRAM; slow where the keys have to be derived yet."""

    __slots__ = ("_exchange", "_keys", "_login")

    def __init__(self, login: ScramSha256, exchange: ServerExchange) -> None:
        self._login = login
        self._exchange = exchange
        self._keys = login.keys

    def run(self) -> ScramKeys | None:
        """The keys, if the proof is right."""
        keys = ScramKeys(b"", 0, NO_KEYS, NO_KEYS) if self._keys is None else self._keys.keys()
        return keys if self._exchange.is_proven(keys) and self._keys is not None else None

    def finish(self, found: ScramKeys | str | None) -> Any:
        if isinstance(found, str):
            return self._login.unchecked(found)
        return self._login.proven(found)


MECHANISMS: dict[str, type[OneResponse]] = {
    each.name: each for each in (Plain, AmqPlain, External, ScramSha256, Anonymous)
}


def mechanism(
    name: str,
    authentication: Authentication,
    peer_address: str,
    certificate: dict[str, Any] | None = None,
) -> Mechanism:
    """A new login by the mechanism that connection.start-ok names, for a peer at `peer_address`."""
    if name not in authentication.settings.mechanisms:
        offered = authentication.mechanisms_offered()
        raise ConnectionFault(ACCESS_REFUSED, f"no SASL mechanism '{name[:32]}' here, choose from: {offered}")
    return MECHANISMS[name](authentication, peer_address, certificate)
