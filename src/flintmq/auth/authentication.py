"""Who somebody is: the mechanisms that are offered, and the chain of back ends that are asked.

    PLAIN, AMQPLAIN --> login(name, password) --> first back end --refused--> second --> Accepted | Refused
    EXTERNAL, ANONYMOUS --> trusted(name) ------/
    Bearer, over HTTP --> borne(token) --> those places of the chain that take tokens
    SCRAM-SHA-256 --> proven(name) --> those places of the chain where `internal` checks passwords
    connection.update-secret --> renewed(user, secret) --> the back end that the user came by

The users of the broker itself are the back end `internal` (users.py). Others run on threads of their own: a
step that is a Verification says so by `is_remote`. A login that a back end has allowed is kept for `cache_s`.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from flintmq.auth.asked_permissions import Answers, AskedHosts, AskedTopics
from flintmq.auth.backend import Backend, BackendFault, Identity, Login, WrongLogin, backend
from flintmq.auth.token_expiry import Expiries
from flintmq.auth.user import User
from flintmq.auth.users import Accepted, Refused, Users, Verification
from flintmq.config import NAME_OCTETS_MAX
from flintmq.config.auth import INTERNAL
from flintmq.errors import ConfigFault
from flintmq.field_tuple import FieldTuple

if TYPE_CHECKING:
    from flintmq.clock import Clock
    from flintmq.config import Auth
    from flintmq.scram import LateKeys, ScramKeys

log = logging.getLogger("flintmq.auth")

# Logins of back ends that are remembered: some hundred octets each.
REMEMBERED_MAX = 10_000

NO_NAME = f"a user's name has 1 to {NAME_OCTETS_MAX} octets of printable letters"

Outcome = Accepted | Refused
GoOn = Callable[[Outcome], "Outcome | Verification"]


class Place:
    """A place in the chain: "ldap/internal" has a back end for passwords, and another for what is allowed."""

    def __init__(self, authenticating: str, slash: str = "", authorizing: str = "") -> None:
        self.authenticating = authenticating
        self.authorizing = authorizing or authenticating

    def __str__(self) -> str:
        if self.authorizing == self.authenticating:
            return self.authenticating
        return f"{self.authenticating}/{self.authorizing}"


class Authentication:
    """All that decides who a peer is."""

    def __init__(self, settings: Auth, users: Users, clock: Clock) -> None:
        self.settings = settings
        self.users = users
        self.answers = Answers(clock.monotonic_s)
        self.expiries = Expiries()
        self._clock = clock
        self._offered = " ".join(settings.mechanisms)
        names = [name for name in settings.backend_names() if name != INTERNAL]
        self._backends: dict[str, Backend] = {name: backend(name, settings, clock) for name in names}
        self._chain = [Place(*each.partition("/")) for each in settings.backends]
        self._internal_places = [each for each in self._chain if each.authenticating == INTERNAL]
        self._is_internal = settings.backends == (INTERNAL,)  # nobody else knows users
        for place in self._chain:
            self._check(place)
        self._remembered: dict[tuple[str, bytes], tuple[Identity, float]] = {}
        self._key = secrets.token_bytes(32)
        self._token_places = [
            each
            for each in self._chain
            if each.authenticating != INTERNAL and self._backends[each.authenticating].can_renew
        ]
        self.takes_tokens = any(each.can_renew for each in self._backends.values())

    def _check(self, place: Place) -> None:
        """A user of another back end would be let in by the token, and stay when it has ended."""
        for name in (place.authenticating, place.authorizing):
            joined = place.authenticating != place.authorizing and name != INTERNAL
            if joined and self._backends[name].can_renew:
                raise ConfigFault(
                    f'auth.backends: "{place}": {name} takes tokens, which say what the user may do and '
                    f'until when; name it alone, as "{name}"'
                )

    def mechanisms_offered(self) -> str:
        """The list for connection.start.

        EXTERNAL is in it for those too who have shown no certificate: they hear that this is what is wrong.
        """
        return self._offered

    # Logging in

    def login(self, name: str, password: bytes, peer_address: str) -> Outcome | Verification:
        """Somebody with a password, or with a token in its place."""
        if self._is_internal:
            return self.users.login(name, password, peer_address)
        return self._tried(self._chain, Login(name, password, peer_address), [])

    def trusted(self, name: str, peer_address: str) -> Outcome | Verification:
        """Somebody whom something else than a password has proven."""
        return self._tried(self._chain, Login(name, None, peer_address), [])

    def scram_keys(self, name: str) -> ScramKeys | LateKeys | None:
        """The keys of a user whose password the broker itself may check."""
        return self.users.scram_keys(name) if self._internal_places else None

    def proven(self, name: str, peer_address: str) -> Outcome | Verification:
        """Somebody who has shown by these keys that the password is known."""
        return self._tried(self._internal_places, Login(name, None, peer_address), [])

    def borne(self, token: bytes, peer_address: str) -> Outcome | Verification:
        """Somebody with a token, which has the name. It is no password: nobody else is asked about it."""
        if not self._token_places:
            return Refused("a token, and no back end takes tokens: auth.backends")
        return self._tried(self._token_places, Login("", token, peer_address), [])

    def renewed(self, user: User, secret: bytes, peer_address: str) -> Outcome | Verification | None:
        """Whom the new secret of a user proves; None if the user needs none."""
        source = self._backends.get(user.backend)
        if source is None or not source.can_renew:
            return None
        return self._asked(user.backend, Login(user.name, secret, peer_address))

    def _tried(self, places: list[Place], login: Login, refusals: list[Refused]) -> Outcome | Verification:
        """The back end of the first place is asked, and those of the others if that one refuses."""
        place = places[0]
        step = self._asked(place.authenticating, login)
        if place.authorizing != place.authenticating:
            step = after(step, partial(self._authorized, place.authorizing, login))
        if len(places) == 1 and not refusals:
            return step
        return after(step, partial(self._next, places, login, refusals))

    def _next(
        self, places: list[Place], login: Login, refusals: list[Refused], outcome: Outcome
    ) -> Outcome | Verification:
        if isinstance(outcome, Accepted):
            return outcome
        refusals.append(outcome.said_by(str(places[0])))
        if len(places) > 1:
            return self._tried(places[1:], login, refusals)
        # A login that one back end refuses may be right at another that is away.
        is_fault = any(each.is_fault for each in refusals)
        return Refused("; ".join(each.reason for each in refusals), login.name, outcome.told, is_fault)

    def _authorized(self, name: str, login: Login, outcome: Outcome) -> Outcome | Verification:
        """One back end has checked the password, another knows what the user may do."""
        if isinstance(outcome, Refused):
            return outcome
        return self._asked(name, Login(outcome.user.name, None, login.peer_address))

    def _asked(self, name: str, login: Login) -> Outcome | Verification:
        if name == INTERNAL:
            if login.password is None:
                return self.users.trusted(login.name, login.peer_address)
            return self.users.login(login.name, login.password, login.peer_address)
        is_by_token = not login.name and self._backends[name].can_renew  # a token has the name
        if not is_by_token and not is_name(login.name):
            return Refused(NO_NAME)
        mark = self._mark(name, login)
        remembered = self._remembered.get((name, mark))
        if remembered is not None and self._clock.monotonic_s() < remembered[1]:
            return Accepted(self._user(name, remembered[0], login.peer_address))
        return BackendVerification(self, name, self._backends[name], login, mark)

    # What back ends have said

    def known(self, name: str, source: Backend, login: Login, mark: bytes, identity: Identity) -> Accepted:
        if len(self._remembered) >= REMEMBERED_MAX:
            del self._remembered[next(iter(self._remembered))]
        # A token says itself how long it is good, and is looked at each time.
        if identity.expires_ms is None:
            until_s = self._clock.monotonic_s() + source.cache_s
            self._remembered[name, mark] = (identity, until_s)
        return Accepted(self._user(name, identity, login.peer_address))

    def _user(self, name: str, identity: Identity, peer_address: str) -> User:
        user = User(identity.name, tags=identity.tags, backend=name, expires_ms=identity.expires_ms)
        if identity.permissions is None:
            hosts = AskedHosts(self.answers, name, self._backends[name], identity, peer_address)
            user.permissions = hosts
            user.topic_permissions = AskedTopics(hosts)
        else:
            user.permissions = identity.permissions
            user.topic_permissions = identity.topic_permissions
        return user

    def _mark(self, name: str, login: Login) -> bytes:
        """Who has said what, so that nobody can read it."""
        password = b"-" if login.password is None else b"+" + login.password
        parts = (name.encode(), login.name.encode("utf-8", "surrogatepass"), login.peer_address.encode())
        said = b"".join(len(each).to_bytes(4, "big") + each for each in parts) + password
        return hashlib.blake2b(said, key=self._key, digest_size=32).digest()


class BackendAnswer(FieldTuple):
    """What a back end has said of a login: nobody, or somebody, or why it has said nothing."""

    identity: Identity | None
    why: str = ""
    is_fault: bool = False


class BackendVerification(Verification):
    """A login that a back end is asked about."""

    __slots__ = ("_authentication", "_login", "_mark", "_source", "backend", "timeout_s")

    is_remote = True

    def __init__(
        self, authentication: Authentication, name: str, source: Backend, login: Login, mark: bytes
    ) -> None:
        self._authentication = authentication
        self.backend = name
        self._source = source
        self._login = login
        self._mark = mark
        self.timeout_s = source.timeout_s

    def run(self) -> BackendAnswer:
        try:
            return BackendAnswer(self._source.authenticate(self._login))
        except WrongLogin as wrong:
            return BackendAnswer(None, str(wrong))
        except BackendFault as fault:
            return BackendAnswer(None, str(fault), is_fault=True)
        except Exception as error:  # a plug-in may raise anything
            return BackendAnswer(None, f"{type(error).__name__}: {error}", is_fault=True)

    def finish(self, found: BackendAnswer | str | None) -> Outcome:
        """`found` is a text where the server has given up."""
        if not isinstance(found, BackendAnswer):
            found = BackendAnswer(None, found or "nobody waits for it", is_fault=True)
        if found.why or found.is_fault:
            why = f"user {self._login.name!r}: back end {self.backend}: {found.why}"
            return Refused(why, self._login.name, is_fault=found.is_fault)
        identity = found.identity
        if not isinstance(identity, Identity):
            return Refused(f"back end {self.backend} refuses user {self._login.name!r}", self._login.name)
        if not is_name(identity.name):
            return Refused(f"back end {self.backend} gives a user a name that is none: {NO_NAME}")
        return self._authentication.known(self.backend, self._source, self._login, self._mark, identity)


def is_name(name: str) -> bool:
    """Whether a user may be called that, as administration has it: no control codes, which others may split
    names at or cut them off."""
    return name.isprintable() and 0 < len(name.encode("utf-8", "surrogatepass")) <= NAME_OCTETS_MAX


class Then(Verification):
    """Work with something behind it, which is told the outcome and may have more work."""

    __slots__ = ("_go_on", "_step")

    def __init__(self, step: Verification, go_on: GoOn) -> None:
        self._step = step
        self._go_on = go_on

    @property
    def is_remote(self) -> bool:  # type: ignore[override]
        return self._step.is_remote

    @property
    def backend(self) -> str:  # type: ignore[override]
        return self._step.backend

    @property
    def timeout_s(self) -> float:  # type: ignore[override]
        return self._step.timeout_s

    def run(self) -> Any:
        return self._step.run()

    def finish(self, found: Any) -> Outcome | Verification:
        return after(self._step.finish(found), self._go_on)


def after(step: Outcome | Verification, go_on: GoOn) -> Outcome | Verification:
    """`go_on` has the outcome of the step, now or when it is there."""
    return Then(step, go_on) if isinstance(step, Verification) else go_on(step)
