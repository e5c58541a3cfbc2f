"""The users of a broker, and how one of them logs in.

    login(name, password, peer) --known good--> Accepted
                                --else--------> Verification --run() on any thread--> finish() --> Accepted
                                                                                               |-> Refused

A password that was right once is remembered as an HMAC under a key of this process, one for each user,
so that thousands of connections per second pay for one scrypt. Every other login pays for it, whether
the user exists or not: a refusal looks the same and takes the same time.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable, Iterator
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from flintmq.auth.passwords import (
    KeyedHash,
    PasswordHash,
    PasswordPolicy,
    RabbitHash,
    parse_hash,
    plain_hash,
)
from flintmq.auth.permissions import Permissions, TopicPermissions
from flintmq.auth.user import Tag, User
from flintmq.auth.visitors import Visitors
from flintmq.config import NAME_OCTETS_MAX, PASSWORD_OCTETS_MAX, Config, PermissionSettings, UserSettings
from flintmq.errors import ConfigFault
from flintmq.field_tuple import FieldTuple
from flintmq.ordered_names import OrderedNames

if TYPE_CHECKING:
    from collections.abc import Callable

    from flintmq.scram import LateKeys, ScramKeys

# What a peer hears whose password was not checked.
BUSY = "too many logins wait, try again later"
# 32 octets of HMAC and a dict entry for each: under 2 MiB.
REMEMBERED_MAX = 10_000


class Accepted(FieldTuple):
    """The login is right."""

    user: User


class Refused:
    """The login is wrong. `reason` is for our log alone; the peer hears the same words every time.

    `told` is for the peer too: what it may know, as that it has shown no certificate.
    """

    __slots__ = ("is_fault", "reason", "told", "user")

    def __init__(self, reason: str, user: str = "", told: str = "", is_fault: bool = False) -> None:
        self.reason = reason
        self.user = user  # whose login it was to be, if it came that far
        self.told = told
        self.is_fault = is_fault  # a back end could not say whether it is wrong

    def said_by(self, place: str) -> Refused:
        """The same, with the name of the back end before the reason."""
        return Refused(f"{place}: {self.reason}", self.user, self.told, self.is_fault)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Refused) and (self.reason, self.told) == (other.reason, other.told)

    def __repr__(self) -> str:
        return f"Refused({self.reason!r}, told={self.told!r})"


class Verification:
    """Slow work that a login waits for: `run` is safe on any thread, `finish` belongs to the loop's."""

    __slots__ = ()

    is_remote = False  # whether other machines are asked, which may take long
    backend = ""  # whose they are
    timeout_s = 0.0  # then whoever waits is refused

    def run(self) -> Any:
        """What was found out. Touches nothing shared."""
        raise NotImplementedError

    def finish(self, found: Any) -> Accepted | Refused | Verification:
        """What `run` found, made into an answer or into more work; None if nobody waited for it."""
        raise NotImplementedError

    def now(self) -> Accepted | Refused:
        """All at once, where waiting does no harm."""
        step = self.finish(self.run())
        return step.now() if isinstance(step, Verification) else step


class Users:
    """All users by name."""

    def __init__(self, policy: PasswordPolicy | None = None) -> None:
        self.policy = policy or PasswordPolicy()
        self.on_renewed: Callable[[User], None] | None = None  # told of a password that is kept in a new way
        self.names: OrderedNames[str] = OrderedNames()
        self.visitors = Visitors()
        self._named: dict[str, User] = {}
        self._keyed = hashlib.blake2s(key=secrets.token_bytes(32), digest_size=32)
        self._remembered: dict[str, bytes] = {}

    @classmethod
    def from_config(cls, config: Config) -> Users:
        users = cls(password_policy(config))
        for name, settings in config.users.items():
            users.put(configured_user(name, settings, users.policy))
        return users

    def __iter__(self) -> Iterator[User]:
        return iter(self._named.values())

    def __len__(self) -> int:
        return len(self._named)

    def get(self, name: str) -> User | None:
        return self._named.get(name)

    # -- changes -----------------------------------------------------------------------------------

    def put(self, user: User) -> None:
        """Add `user`; one of that name that is there already takes over what it is."""
        if not 0 < len(user.name.encode()) <= NAME_OCTETS_MAX:
            raise ValueError(f"a user's name has 1 to {NAME_OCTETS_MAX} octets")
        known = self._named.setdefault(user.name, user)
        known.password_hash = user.password_hash
        known.tags = user.tags
        known.permissions = user.permissions
        known.is_loopback_only = user.is_loopback_only
        known.topic_permissions = user.topic_permissions
        known.life = user.life
        self.names.add(user.name)
        self._password_changed(known)

    def delete(self, name: str) -> User:
        """Remove the user, who may do nothing from now on; KeyError if there is none."""
        user = self._named.pop(name)
        self.names.discard(name)
        user.password_hash = None
        user.tags = frozenset()
        user.permissions = MappingProxyType({})
        user.topic_permissions = MappingProxyType({})
        self._password_changed(user)
        return user

    def change_password(self, name: str, password_hash: PasswordHash | None) -> None:
        user = self._named[name]
        user.password_hash = password_hash
        self._password_changed(user)

    def renew_hash(self, user: User, password_hash: PasswordHash) -> None:
        """The same password, kept in another way: whoever is logged in, or about to be, stays so."""
        user.password_hash = password_hash
        if self.on_renewed is not None:
            self.on_renewed(user)

    def change_tags(self, name: str, tags: Iterable[Tag]) -> None:
        user = self._named[name]
        user.tags = frozenset(tags)
        user.changes += 1

    def grant(self, name: str, virtual_host: str, settings: PermissionSettings) -> None:
        """Give the user these permissions in `virtual_host`, or raise a PatternFault."""
        user = self._named[name]
        user.permissions = MappingProxyType({**user.permissions, virtual_host: Permissions(settings)})
        user.changes += 1

    def revoke(self, name: str, virtual_host: str) -> None:
        """Take away all permissions in `virtual_host`, if there are any."""
        user = self._named[name]
        if virtual_host in user.permissions:
            left = {host: granted for host, granted in user.permissions.items() if host != virtual_host}
            user.permissions = MappingProxyType(left)
            user.changes += 1

    def restrict_topics(
        self, name: str, virtual_host: str, exchange: str, allowed: TopicPermissions | None
    ) -> None:
        """Restrict the user to these routing keys of the exchange, or to none in particular."""
        user = self._named[name]
        changed = dict(user.topic_permissions)
        if allowed is None:
            del changed[virtual_host, exchange]
        else:
            changed[virtual_host, exchange] = allowed
        user.topic_permissions = MappingProxyType(changed)
        user.changes += 1

    def lift_topics(self, name: str, virtual_host: str) -> None:
        """Restrict the user to no routing keys of any exchange of `virtual_host`."""
        user = self._named[name]
        left = {
            place: allowed for place, allowed in user.topic_permissions.items() if place[0] != virtual_host
        }
        user.topic_permissions = MappingProxyType(left)
        user.changes += 1

    def _password_changed(self, user: User) -> None:
        user.changes += 1
        user.password_changes += 1
        self._remembered.pop(user.name, None)

    # -- logging in --------------------------------------------------------------------------------

    def login(self, name: str, password: bytes, peer_address: str) -> Accepted | PasswordVerification:
        """Accepted at once if this password was right before, else the work that will tell."""
        user = self._named.get(name)
        mark = self._mark(name, password)
        remembered = self._remembered.get(name)
        is_known = remembered is not None and hmac.compare_digest(mark, remembered)
        if user is not None and is_known and user.may_come_from(peer_address):
            return Accepted(user)
        return PasswordVerification(self, name, user, password, peer_address)

    def trusted(self, name: str, peer_address: str) -> Accepted | Refused:
        """The login of one whom something else than a password has proven."""
        user = self._named.get(name)
        if user is None:
            return Refused(f"no user {name!r}", name)
        if not user.may_come_from(peer_address):
            return Refused(from_here_only(user, peer_address))
        return Accepted(user)

    def scram_keys(self, name: str) -> ScramKeys | LateKeys | None:
        """What SCRAM needs to know of the user's password, if it is kept."""
        user = self._named.get(name)
        kept = None if user is None else user.password_hash
        return kept.scram if isinstance(kept, KeyedHash) else None

    def salt_of_nobody(self, name: str) -> bytes:
        """A salt that looks like that of a user, and is the same each time."""
        return self._mark(name, b"salt")[:16]

    def _mark(self, name: str, password: bytes) -> bytes:
        mark = self._keyed.copy()
        # No text has the octet 255: without it ("ab", "c") and ("a", "bc") were the same octets.
        mark.update(name.encode("utf-8", "surrogatepass") + b"\xff" + password)
        return mark.digest()

    def remember(self, name: str, password: bytes) -> None:
        """The password is known to be right: the next login with it costs nothing."""
        if name not in self._remembered and len(self._remembered) >= REMEMBERED_MAX:
            del self._remembered[next(iter(self._remembered))]
        self._remembered[name] = self._mark(name, password)


class PasswordCheck(FieldTuple):
    """What a check of a password has found; `renewed` is what to keep of it from now on, if that changes."""

    is_right: bool
    renewed: PasswordHash | None = None


class PasswordVerification(Verification):
    """A password to be checked."""

    __slots__ = ("_hash", "_name", "_password", "_password_changes", "_peer_address", "_user", "_users")

    def __init__(
        self, users: Users, name: str, user: User | None, password: bytes, peer_address: str
    ) -> None:
        self._users = users
        self._name = name
        self._user = user
        # As they are now: the user may change while another thread is at work.
        self._hash = None if user is None else user.password_hash
        self._password_changes = 0 if user is None else user.password_changes
        self._password = password
        self._peer_address = peer_address

    def run(self) -> PasswordCheck:
        """Whether the password is right. Touches nothing shared."""
        policy = self._users.policy
        # An overlong password costs the same and is never right.
        password = self._password[:PASSWORD_OCTETS_MAX]
        known = self._hash
        if known is None or isinstance(plain_hash(known), RabbitHash):
            # A quick refusal would tell who exists, and which users have which kind of hash.
            policy.nobody.matches(password)
        is_right = known is not None and known.matches(password)
        if known is None or not is_right or not 0 < len(self._password) <= PASSWORD_OCTETS_MAX:
            return PasswordCheck(False)
        return PasswordCheck(True, policy.renewed(known, password))

    def finish(self, found: PasswordCheck | str | None) -> Accepted | Refused:
        """What `run` found, made into an answer, unless the password changed meanwhile.

        `found` is a text where the server has given up: nobody knows whether the password is right.
        """
        if found is None or isinstance(found, str):
            why = found or "nobody waited for it"
            return Refused(
                f"the password of user {self._name!r} is not checked: {why}", self._name, BUSY, True
            )
        user = self._user
        if user is None:
            return Refused(f"no user {self._name!r}", self._name)
        if not found.is_right:
            return Refused(f"wrong password for user {user.name!r}", self._name)
        if user.password_changes != self._password_changes:
            return Refused(f"user {user.name!r} was changed during the login")
        if not user.may_come_from(self._peer_address):
            return Refused(from_here_only(user, self._peer_address))
        if found.renewed is not None and user.password_hash is self._hash:
            self._users.renew_hash(user, found.renewed)
        self._users.remember(user.name, self._password)
        return Accepted(user)


def from_here_only(user: User, peer_address: str) -> str:
    return f"user {user.name!r} may log in from this machine only, not {peer_address}"


def password_policy(config: Config) -> PasswordPolicy:
    return PasswordPolicy(config.auth.passwords, "SCRAM-SHA-256" in config.auth.mechanisms)


def configured_user(name: str, settings: UserSettings, policy: PasswordPolicy) -> User:
    """The user as the settings have it."""
    password_hash: PasswordHash
    if settings.password_hash is not None:
        try:
            password_hash = parse_hash(settings.password_hash)
        except ValueError as error:
            hint = "make one with `flintmq hash-password`"
            raise ConfigFault(f"users.{name}.password_hash: {error}; {hint}") from None
    else:
        password_hash = policy.hash_quickly((settings.password or "").encode())
    is_loopback_only = settings.loopback_only
    return User(
        name=name,
        password_hash=password_hash,
        tags=frozenset(Tag(tag) for tag in settings.tags),
        permissions=MappingProxyType(
            {host: Permissions(granted) for host, granted in settings.permissions.items()}
        ),
        is_loopback_only=name == "guest" if is_loopback_only is None else is_loopback_only,
    )
