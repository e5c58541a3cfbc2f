"""Who asks: logins by password, by session cookie, and what a user may see.

The broker checks passwords, as those of AMQP. A password that was right is remembered for some seconds, by a
keyed digest, unless the user has changed meanwhile; so is a token. What a user may do is asked anew with each
request, but for a fraction of a second.

A session is for browsers: its cookie cannot be read by scripts and is sent by pages of this origin alone, and
what changes something takes its token in a header as well, which no other page knows. That of a user whom a
back end knows keeps the password in memory: only the back end can say that the user may still log in.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import logging
import secrets
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request

from flintmq.client.core.errors import ServiceError
from flintmq.clock import Clock
from flintmq.management.broker_state.broker_link import BrokerLink
from flintmq.management.requests.faults import Forbidden, NotAuthorised, Unavailable

log = logging.getLogger("flintmq.management")

REMEMBERED_S = 30.0
REMEMBERED_MAX = 1024
FRESH_S = 0.2
# Logins that wait for the broker at a time, of all peers and of one address: more are told to come again. A
# hash takes the broker up to a tenth of a second.
WAITING_MAX = 64
PEER_WAITING_MAX = 16
SESSION_S = 8 * 3600.0
SESSIONS_MAX = 1024
# Of one user: one more ends the oldest of the same user, so that nobody logs others out.
USER_SESSIONS_MAX = 32
COOKIE = "flintmq_session"
CSRF_HEADER = "x-csrf-token"
CREDENTIALS_BYTES_MAX = 8192

# What each tag brings, as flintmq.auth has it.
_LEVELS = {
    "administrator": frozenset(("administrator", "monitoring", "policymaker", "management")),
    "monitoring": frozenset(("monitoring", "management")),
    "policymaker": frozenset(("policymaker", "management")),
    "management": frozenset(("management",)),
}


@dataclass(frozen=True)
class Identity:
    """A user as of now."""

    user: str
    tags: tuple[str, ...]
    sees_all: bool
    virtual_hosts: frozenset[str]
    changes: int
    login: str  # another one when sessions of before are over: the password was changed, the user replaced
    visitor: int = 0  # the number of one whom a back end knows, and not the broker itself

    def has(self, level: str) -> bool:
        return not level or any(level in _LEVELS.get(tag, ()) for tag in self.tags)

    def sees(self, virtual_host: str) -> bool:
        return self.sees_all or virtual_host in self.virtual_hosts


NOBODY = Identity("", (), False, frozenset(), 0, "")


@dataclass
class Session:
    user: str
    login: str
    csrf: str
    until_s: float
    # Name and password of a visitor, for the back end to say again who that is; others are asked about.
    shown: tuple[str, bytes] | None = field(default=None, repr=False)


class Identities:
    """Logins and sessions of this process."""

    def __init__(self, link: BrokerLink, clock: Clock) -> None:
        self.link = link
        self.clock = clock
        self.key = secrets.token_bytes(32)
        # By digest: who it was then, and until when.
        self.remembered: dict[bytes, tuple[Identity, float]] = {}
        # By name and number of a visitor.
        self.known: dict[tuple[str, int], tuple[Identity, float]] = {}
        self.sessions: dict[str, Session] = {}
        # Logins that wait for the broker, by the address of the peer.
        self.waiting: Counter[str] = Counter()
        self.attempts = 0
        self.failures = 0

    async def of(self, request: Request, changes: bool) -> Identity:
        """Who sent the request; a NotAuthorised unless somebody has logged in."""
        header = request.headers.get("authorization", "")
        scheme, _, given = header.partition(" ")
        if scheme.lower() == "basic":
            name, password = basic(given)
            return await self.login(name, password, peer_of(request))
        if scheme.lower() == "bearer":
            return await self.login(None, token_in(given), peer_of(request))
        token = request.cookies.get(COOKIE)
        if token:
            return await self.of_session(token, request, changes)
        raise NotAuthorised("Login failed")

    async def of_session(self, token: str, request: Request, changes: bool) -> Identity:
        session = self.sessions.get(token)
        if session is None or session.until_s < self.clock.monotonic_s():
            self.sessions.pop(token, None)
            raise NotAuthorised("the session is over: log in again")
        if changes and not hmac.compare_digest(
            request.headers.get(CSRF_HEADER, "").encode(), session.csrf.encode()
        ):
            raise Forbidden(f"the header {CSRF_HEADER} must hold the token of the session")
        if session.shown is not None:
            try:
                return await self.login(*session.shown, peer_of(request))
            except NotAuthorised:
                self.sessions.pop(token, None)
                raise
        identity = await self.current(session.user)
        if identity.login != session.login:
            self.sessions.pop(token, None)
            raise NotAuthorised("the password was changed: log in again")
        return identity

    def begin_session(self, identity: Identity, name: str, password: bytes) -> tuple[str, Session]:
        """For one who has logged in by this name and password."""
        own = [token for token, session in self.sessions.items() if session.user == identity.user]
        if len(own) >= USER_SESSIONS_MAX:
            del self.sessions[own[0]]
        elif len(self.sessions) >= SESSIONS_MAX:
            del self.sessions[next(iter(self.sessions))]
        token = secrets.token_urlsafe(32)
        until_s = self.clock.monotonic_s() + SESSION_S
        csrf = secrets.token_urlsafe(32)
        shown = (name, password) if identity.visitor else None
        session = Session(identity.user, identity.login, csrf, until_s, shown)
        self.sessions[token] = session
        return token, session

    async def login(self, name: str | None, password: bytes, peer_address: str) -> Identity:
        """By name and password; without a name by a token, which has the name."""
        mark = self.mark(name, password, peer_address)
        known = self.remembered.get(mark)
        if known is not None:
            was, until_s = known
            if until_s > self.clock.monotonic_s():
                # One who is gone, or whose token has ended, is looked at anew.
                with suppress(NotAuthorised):
                    identity = await self.current(was.user, was.visitor)
                    # `changes` begins anew with a user of the same name: `login` tells both apart.
                    if (identity.changes, identity.login) == (was.changes, was.login):
                        return identity
            self.remembered.pop(mark, None)
        identity = await self.verify(name, password, peer_address)
        if len(self.remembered) >= REMEMBERED_MAX:
            del self.remembered[next(iter(self.remembered))]
        self.remembered[mark] = (identity, self.clock.monotonic_s() + REMEMBERED_S)
        return identity

    async def verify(self, name: str | None, password: bytes, peer_address: str) -> Identity:
        """By the broker."""
        shown: dict[str, Any] = {"token": password} if name is None else {"user": name, "password": password}
        with self.place(peer_address):
            self.attempts += 1
            reply = await self.link.ask(
                "management.authenticate", {**shown, "peer-address": peer_address}, among=self.link.logins
            )
        if "refused" not in reply.results:
            return self.keep(reply.results)
        self.failures += 1
        log.warning("login refused for %s over HTTP: %r", peer_address, reply.results["refused"])
        # The pause is for this peer alone: it takes no place that others could use.
        await asyncio.sleep(_whole(reply.results, "pause-ms") / 1000)
        raise NotAuthorised("Login failed")

    @contextmanager
    def place(self, peer_address: str) -> Iterator[None]:
        """One of the logins that wait for the broker."""
        if self.waiting.total() >= WAITING_MAX or self.waiting[peer_address] >= PEER_WAITING_MAX:
            raise Unavailable("too many logins at a time: try again")
        self.waiting[peer_address] += 1
        try:
            yield
        finally:
            self.waiting[peer_address] -= 1
            if not self.waiting[peer_address]:
                del self.waiting[peer_address]

    async def current(self, user: str, visitor: int = 0) -> Identity:
        """What the user may do now."""
        known = self.known.get((user, visitor))
        if known is not None and known[1] > self.clock.monotonic_s():
            return known[0]
        try:
            reply = await self.link.ask(
                "management.identity",
                {"user": user, "visitor": visitor},
                among=self.link.visits if visitor else None,
            )
        except ServiceError:
            raise NotAuthorised("Login failed") from None
        return self.keep(reply.results)

    def keep(self, results: Mapping[str, Any]) -> Identity:
        tags, hosts = results["tags"], results["virtual-hosts"]
        assert isinstance(tags, list)
        assert isinstance(hosts, list)
        identity = Identity(
            str(results["user"]),
            tuple(tags),
            results["sees-all"] is True,
            frozenset(hosts),
            _whole(results, "changes"),
            str(results["login"]),
            _whole(results, "visitor"),
        )
        if len(self.known) >= REMEMBERED_MAX:
            self.known.clear()
        self.known[identity.user, identity.visitor] = (identity, self.clock.monotonic_s() + FRESH_S)
        return identity

    def forget(self) -> None:
        """Something about users has changed."""
        self.known.clear()

    def mark(self, name: str | None, password: bytes, peer_address: str) -> bytes:
        named = b"token" if name is None else b"user " + name.encode()
        parts = (named, password, peer_address.encode())
        said = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
        return hashlib.blake2b(said, key=self.key, digest_size=32).digest()


def _whole(results: Mapping[str, Any], name: str) -> int:
    found = results.get(name, 0)
    return found if isinstance(found, int) else 0


def basic(given: str) -> tuple[str, bytes]:
    """Name and password of an Authorization header."""
    if len(given) > CREDENTIALS_BYTES_MAX:
        raise NotAuthorised("Login failed")
    try:
        octets = base64.b64decode(given.strip(), validate=True)
        name, apart, password = octets.partition(b":")
        if not apart:
            raise NotAuthorised("Login failed")
        return name.decode(), password
    except (binascii.Error, UnicodeDecodeError, ValueError):
        raise NotAuthorised("Login failed") from None


def token_in(given: str) -> bytes:
    """The token of an Authorization header."""
    octets = given.strip().encode()
    if not 0 < len(octets) <= CREDENTIALS_BYTES_MAX:
        raise NotAuthorised("Login failed")
    return octets


def peer_of(request: Request) -> str:
    """The address of the other end of the socket: no header is believed."""
    return "" if request.client is None else request.client.host
