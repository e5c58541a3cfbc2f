"""A user: name, password hash, tags, permissions by virtual host.

There is one object for each user, which `Users` changes in place: every session, channel and request of the
user sees the change with its next operation.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from flintmq.auth.passwords import PasswordHash
from flintmq.auth.permissions import NO_PERMISSIONS, Permissions, TopicPermissions


class Tag(StrEnum):
    """What a user may do beyond messaging, in the management API, and who may send in the name of others."""

    ADMINISTRATOR = "administrator"
    MONITORING = "monitoring"
    MANAGEMENT = "management"
    POLICYMAKER = "policymaker"
    IMPERSONATOR = "impersonator"


# A tag brings those below it: an administrator may do all, and whoever has any of the first four may look at
# their own. To send in the name of others takes the tag `impersonator` itself, as in RabbitMQ.
_IMPLIED = {
    Tag.ADMINISTRATOR: frozenset(Tag) - {Tag.IMPERSONATOR},
    Tag.MONITORING: frozenset({Tag.MONITORING, Tag.MANAGEMENT}),
    Tag.POLICYMAKER: frozenset({Tag.POLICYMAKER, Tag.MANAGEMENT}),
    Tag.MANAGEMENT: frozenset({Tag.MANAGEMENT}),
    Tag.IMPERSONATOR: frozenset({Tag.IMPERSONATOR}),
}


class User:
    """One who may log in. Compared by identity: a user that was deleted and added again is another one."""

    __slots__ = (
        "backend",
        "changes",
        "expires_ms",
        "is_loopback_only",
        "life",
        "name",
        "password_changes",
        "password_hash",
        "permissions",
        "tags",
        "topic_permissions",
    )

    def __init__(
        self,
        name: str,
        password_hash: PasswordHash | None = None,
        tags: frozenset[Tag] = frozenset(),
        permissions: Mapping[str, Permissions] = NO_PERMISSIONS,
        is_loopback_only: bool = False,
        topic_permissions: Mapping[tuple[str, str], TopicPermissions] = NO_PERMISSIONS,
        life: int = 0,
        backend: str = "",
        expires_ms: int | None = None,
    ) -> None:
        self.name = name
        self.password_hash = password_hash
        self.tags = tags
        self.permissions = permissions
        self.is_loopback_only = is_loopback_only
        # By virtual host and exchange; an exchange that is not named here is not restricted by routing keys.
        self.topic_permissions = topic_permissions
        # Tells users of one name apart: 0 for those of the settings, a number drawn for those added at run
        # time.
        self.life = life
        self.backend = backend  # the back end that knows the user; without one it is the broker itself
        self.expires_ms = expires_ms  # since 1970, for one who came by a token
        self.changes = 0  # made so far, of any kind: what was told of the user before may be wrong by now
        # After each of these a login of before is good no more, nor is one that is in progress.
        self.password_changes = 0

    def __repr__(self) -> str:
        return f"User({self.name!r}, tags={self.tags})"

    def has_tag(self, tag: Tag) -> bool:
        """Whether the user has `tag`, or one that brings it."""
        return any(tag in _IMPLIED[own] for own in self.tags)

    def may_enter(self, virtual_host: str) -> bool:
        """Whether connection.open may name this virtual host: any permission in it will do."""
        return virtual_host in self.permissions

    def renew(self, other: User) -> None:
        """Takes over what a new login has brought: tags, permissions, and until when they are good."""
        self.tags = other.tags
        self.permissions = other.permissions
        self.topic_permissions = other.topic_permissions
        self.expires_ms = other.expires_ms
        self.changes += 1

    def may_come_from(self, peer_address: str) -> bool:
        return not self.is_loopback_only or is_loopback(peer_address)


# Known without being taken apart, which costs as much as the rest of a login.
USUAL_LOOPBACK = frozenset(("127.0.0.1", "::1"))


def is_loopback(address: str) -> bool:
    """Whether `address` is 127.0.0.0/8 or ::1, or the former written as an IPv6 address."""
    if address in USUAL_LOOPBACK:
        return True
    import ipaddress  # by others than the usual ones: it takes a millisecond to load

    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    return parsed.is_loopback
