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
from dataclasses import dataclass
from types import MappingProxyType

from flintmq.auth.passwords import NOBODY, PasswordHash, hash_password_quickly, parse_hash
from flintmq.auth.permissions import Permissions, TopicPermissions
from flintmq.auth.user import Tag, User
from flintmq.config import NAME_OCTETS_MAX, PASSWORD_OCTETS_MAX, Config, PermissionSettings, UserSettings
from flintmq.errors import ConfigFault
from flintmq.ordered_names import OrderedNames

# 32 octets of HMAC and a dict entry for each: under 2 MiB.
REMEMBERED_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Accepted:
    """The login is right."""

    user: User


@dataclass(frozen=True, slots=True)
class Refused:
    """The login is wrong. `reason` is for our log alone: the peer hears the same words every time."""

    reason: str


class Users:
    """All users by name."""

    def __init__(self) -> None:
        self.names: OrderedNames[str] = OrderedNames()
        self._named: dict[str, User] = {}
        self._key = secrets.token_bytes(32)
        self._remembered: dict[str, bytes] = {}

    @classmethod
    def from_config(cls, config: Config) -> Users:
        users = cls()
        for name, settings in config.users.items():
            users.put(configured_user(name, settings))
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
        self.names.add(user.name)
        self._changed(known)

    def delete(self, name: str) -> User:
        """Remove the user, who may do nothing from now on; KeyError if there is none."""
        user = self._named.pop(name)
        self.names.discard(name)
        user.password_hash = None
        user.tags = frozenset()
        user.permissions = MappingProxyType({})
        user.topic_permissions = MappingProxyType({})
        self._changed(user)
        return user

    def change_password(self, name: str, password_hash: PasswordHash | None) -> None:
        user = self._named[name]
        user.password_hash = password_hash
        self._changed(user)

    def change_tags(self, name: str, tags: Iterable[Tag]) -> None:
        user = self._named[name]
        user.tags = frozenset(tags)
        self._changed(user)

    def grant(self, name: str, virtual_host: str, settings: PermissionSettings) -> None:
        """Give the user these permissions in `virtual_host`, or raise a PatternFault."""
        user = self._named[name]
        user.permissions = MappingProxyType({**user.permissions, virtual_host: Permissions(settings)})
        self._changed(user)

    def revoke(self, name: str, virtual_host: str) -> None:
        """Take away all permissions in `virtual_host`, if there are any."""
        user = self._named[name]
        if virtual_host in user.permissions:
            left = {host: granted for host, granted in user.permissions.items() if host != virtual_host}
            user.permissions = MappingProxyType(left)
            self._changed(user)

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
        self._changed(user)

    def _changed(self, user: User) -> None:
        user.changes += 1
        self._remembered.pop(user.name, None)

    # -- logging in --------------------------------------------------------------------------------

    def login(self, name: str, password: bytes, peer_address: str) -> Accepted | Verification:
        """Accepted at once if this password was right before, else the work that will tell."""
        user = self._named.get(name)
        mark = self._mark(name, password)
        remembered = self._remembered.get(name)
        is_known = remembered is not None and hmac.compare_digest(mark, remembered)
        if user is not None and is_known and user.may_come_from(peer_address):
            return Accepted(user)
        return Verification(self, name, user, password, peer_address)

    def _mark(self, name: str, password: bytes) -> bytes:
        # The length first: else ("ab", "c") and ("a", "bc") were the same octets.
        encoded = name.encode("utf-8", "surrogatepass")
        said = len(encoded).to_bytes(4, "big") + encoded + password
        return hashlib.blake2b(said, key=self._key, digest_size=32).digest()

    def _remember(self, name: str, password: bytes) -> None:
        if name not in self._remembered and len(self._remembered) >= REMEMBERED_MAX:
            del self._remembered[next(iter(self._remembered))]
        self._remembered[name] = self._mark(name, password)


class Verification:
    """A password to be checked: `run` is slow and safe on any thread, `finish` belongs to the loop's."""

    __slots__ = ("_changes", "_hash", "_name", "_password", "_peer_address", "_user", "_users")

    def __init__(
        self, users: Users, name: str, user: User | None, password: bytes, peer_address: str
    ) -> None:
        self._users = users
        self._name = name
        self._user = user
        # As they are now: the user may change while another thread is at work.
        self._hash = None if user is None else user.password_hash
        self._changes = 0 if user is None else user.changes
        self._password = password
        self._peer_address = peer_address

    def run(self) -> bool:
        """Whether the password is right. Touches nothing shared."""
        known = NOBODY if self._hash is None else self._hash
        # An overlong password costs the same and is never right.
        matches = known.matches(self._password[:PASSWORD_OCTETS_MAX])
        return matches and known is not NOBODY and 0 < len(self._password) <= PASSWORD_OCTETS_MAX

    def finish(self, matches: bool) -> Accepted | Refused:
        """What `run` found, made into an answer, unless the user changed meanwhile."""
        user = self._user
        if user is None:
            return Refused(f"no user {self._name!r}")
        if not matches:
            return Refused(f"wrong password for user {user.name!r}")
        if user.changes != self._changes:
            return Refused(f"user {user.name!r} was changed during the login")
        if not user.may_come_from(self._peer_address):
            return Refused(f"user {user.name!r} may log in from this machine only, not {self._peer_address}")
        self._users._remember(user.name, self._password)
        return Accepted(user)

    def now(self) -> Accepted | Refused:
        """Both at once, where waiting does no harm."""
        return self.finish(self.run())


def configured_user(name: str, settings: UserSettings) -> User:
    """The user as the settings have it."""
    password_hash: PasswordHash
    if settings.password_hash is not None:
        try:
            password_hash = parse_hash(settings.password_hash)
        except ValueError as error:
            hint = "make one with `flintmq hash-password`"
            raise ConfigFault(f"users.{name}.password_hash: {error}; {hint}") from None
    else:
        password_hash = hash_password_quickly((settings.password or "").encode())
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
