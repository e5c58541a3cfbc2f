"""Back ends of identities: those who know users that the broker itself does not know.

    [auth] backends = ["internal", "http", "ldap/internal", "mine"]

`internal` are the users of the settings and of administration. A distribution adds a back end of its own
by an entry point of the group flintmq.auth_backends: the name is what the settings call it, the object a
function that takes the table [auth.NAME] and returns a Backend, or raises a ConfigFault.

Every method of a back end runs on a thread beside the broker's. It may block for as long as `timeout_s`:
whoever waits is refused then, whatever comes later. What it says is kept for `cache_s`.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

from flintmq.auth.permissions import NO_PERMISSIONS, Permissions, TopicPermissions
from flintmq.errors import ConfigFault
from flintmq.field_tuple import FieldTuple

if TYPE_CHECKING:
    from flintmq.auth.user import Tag
    from flintmq.clock import Clock
    from flintmq.config import Auth

GROUP = "flintmq.auth_backends"
# Those that come with the broker: the module of each is loaded when the settings name it.
BUILT_IN = {
    "http": "flintmq.auth.backends.http:HttpBackend",
    "ldap": "flintmq.auth.backends.ldap:LdapBackend",
    "oauth": "flintmq.auth.backends.oauth:OauthBackend",
}

TopicMap = Mapping[tuple[str, str], TopicPermissions]


class BackendFault(Exception):
    """The back end is away, too slow, or has said something that means nothing. The text is for the log."""


class WrongLogin(BackendFault):
    """The login is wrong, which is the same as None. The text says why, for the log."""


class Login(FieldTuple):
    """Somebody who wants to come in; without a password if something else has proven the name."""

    name: str
    password: bytes | None
    peer_address: str

    def __repr__(self) -> str:
        """Without the password."""
        return f"Login(name={self.name!r}, peer_address={self.peer_address!r})"


class Identity(FieldTuple):
    """Somebody whom a back end knows."""

    name: str
    tags: frozenset[Tag] = frozenset()
    # By virtual host. None: the back end is asked about each thing that the user wants to do.
    permissions: Mapping[str, Permissions] | None = NO_PERMISSIONS
    topic_permissions: TopicMap = NO_PERMISSIONS
    expires_ms: int | None = None  # since 1970: the end of a token


class Backend(Protocol):
    """What the broker asks of a back end. A fault of any kind is a refusal, and a line of the log."""

    timeout_s: float
    cache_s: float
    # Whether connection.update-secret renews what a login has brought.
    can_renew: bool

    def authenticate(self, login: Login) -> Identity | None:
        """Who this is; None or WrongLogin if the login is wrong, any other fault if nobody can tell."""

    def may_enter(self, identity: Identity, virtual_host: str, peer_address: str) -> bool:
        """Whether connection.open may name the virtual host; asked where `permissions` is None."""

    def may(self, identity: Identity, virtual_host: str, kind: str, name: str, operation: str) -> bool:
        """Whether the user may configure, write or read an "exchange" or "queue"."""

    def may_use_topic(
        self, identity: Identity, virtual_host: str, exchange: str, operation: str, routing_key: str
    ) -> bool:
        """Whether the user may write or read with a routing key of a topic exchange."""


class LoginBackend:
    """A back end whose logins bring all that a user may do: it is asked nothing later, and allows nothing."""

    def may_enter(self, identity: Identity, virtual_host: str, peer_address: str) -> bool:
        return False

    def may(self, identity: Identity, virtual_host: str, kind: str, name: str, operation: str) -> bool:
        return False

    def may_use_topic(
        self, identity: Identity, virtual_host: str, exchange: str, operation: str, routing_key: str
    ) -> bool:
        return False


def backend(name: str, auth: Auth, clock: Clock) -> Backend:
    """The back end that the settings call `name`."""
    if name in BUILT_IN:
        module, _, made_by = BUILT_IN[name].partition(":")
        return cast(Backend, getattr(import_module(module), made_by)(getattr(auth, name), clock))
    from importlib.metadata import entry_points  # slow to load, and few need it

    found = list(entry_points(group=GROUP, name=name))
    if not found:
        known = ", ".join(["internal", *BUILT_IN, *sorted({each.name for each in entry_points(group=GROUP)})])
        raise ConfigFault(f"auth.backends: there is no back end '{name}'; installed are {known}")
    try:
        make: Any = found[0].load()
        return cast(Backend, make(dict(auth.others.get(name, {}))))
    except ConfigFault as fault:
        raise ConfigFault(f"auth.{name}: {fault}") from None
    except Exception as error:
        raise ConfigFault(
            f"auth.backends: '{name}' cannot be loaded: {type(error).__name__}: {error}"
        ) from None
