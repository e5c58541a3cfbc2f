"""Permissions: what users may configure, write and read in each virtual host, changed while the broker runs.

Permissions that the settings give to a user are fixed. A user of the settings may be given others, in virtual
hosts of which the settings say nothing for that user.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from types import MappingProxyType
from typing import TYPE_CHECKING

from flintmq.auth.permissions import Permissions
from flintmq.auth.user import User
from flintmq.broker.administration import records
from flintmq.broker.administration.faults import fixed, missing, unfit
from flintmq.config import PermissionSettings, guest_alone
from flintmq.patterns.name_pattern import NamePattern, PatternFault

if TYPE_CHECKING:
    from flintmq.broker.administration.records import FoundRecords, Records
    from flintmq.broker.administration.users import AdministeredUsers
    from flintmq.config import Config
    from flintmq.wire.tables import FieldTable

log = logging.getLogger("flintmq.administration")


class AdministeredPermissions:
    """The permissions of all users. `changed` is told of virtual hosts where kept decisions may be wrong."""

    def __init__(
        self,
        accounts: AdministeredUsers,
        written: Records,
        require_host: Callable[[str], None],
        changed: Callable[[str], None],
    ) -> None:
        self.accounts = accounts
        self.users = accounts.users
        self.records = written
        self.require_host = require_host
        self.changed = changed

    def of_user(self, user: User) -> Iterator[tuple[str, Permissions]]:
        return iter(sorted(user.permissions.items()))

    def check(self, name: str, virtual_host: str, settings: PermissionSettings) -> None:
        """Raises unless they can be set."""
        self.accounts.find(name)
        self.require_host(virtual_host)
        self.require_changeable(name, virtual_host)
        check_patterns(settings)

    def set(self, name: str, virtual_host: str, settings: PermissionSettings) -> None:
        """The user has these permissions there, in place of any others."""
        self.check(name, virtual_host, settings)
        value: FieldTable = {
            "configure": settings.configure,
            "write": settings.write,
            "read": settings.read,
            "life": self.accounts.life_of(name),
        }
        self.records.put(records.PERMISSION, identity_of(name, virtual_host), value)
        self.users.grant(name, virtual_host, settings)
        self.changed(virtual_host)

    def check_there(self, name: str, virtual_host: str) -> None:
        """Raises unless there is one that can be cleared."""
        user = self.accounts.find(name)
        self.require_host(virtual_host)
        if virtual_host not in user.permissions:
            raise missing(f"permission of user '{name}' in virtual host", virtual_host)
        self.require_changeable(name, virtual_host)

    def clear(self, name: str, virtual_host: str) -> None:
        """The user may no longer use the virtual host; open connections are refused what they ask for."""
        self.check_there(name, virtual_host)
        self.forget(name, virtual_host)
        self.users.revoke(name, virtual_host)
        self.changed(virtual_host)

    def forget(self, name: str, virtual_host: str) -> None:
        """Takes it out of the journal."""
        identity = identity_of(name, virtual_host)
        if self.is_default(name, virtual_host):
            self.records.put(records.PERMISSION, identity, {"cleared": True})
        else:
            self.records.delete(records.PERMISSION, identity)

    def is_default(self, name: str, virtual_host: str) -> bool:
        """Whether the broker would grant it without any settings."""
        return (
            self.accounts.is_default(name)
            and not self.accounts.life_of(name)
            and virtual_host in self.accounts.config.users[name].permissions
        )

    def is_fixed(self, name: str, virtual_host: str) -> bool:
        """Whether the settings say what the user may do there."""
        return self.accounts.is_fixed(name) and virtual_host in self.accounts.config.users[name].permissions

    def require_changeable(self, name: str, virtual_host: str) -> None:
        if self.is_fixed(name, virtual_host):
            raise fixed(f"what user '{name}' may do in virtual host '{virtual_host}'")

    def keep_others(self, old: Config, user: User) -> None:
        """A user of the settings that changes keeps what was granted at run time, where they say nothing.

        What was granted where they say something now is over: it must not be back when they say nothing.
        """
        known, before = self.users.get(user.name), old.users.get(user.name)
        if known is None:
            return
        fixed_before = {} if before is None else before.permissions
        others = {host: each for host, each in known.permissions.items() if host not in fixed_before}
        for virtual_host in others.keys() & user.permissions.keys():
            self.records.delete(records.PERMISSION, identity_of(user.name, virtual_host))
        user.permissions = MappingProxyType({**others, **user.permissions})
        user.topic_permissions = known.topic_permissions

    def forget_user(self, name: str, virtual_hosts: list[str]) -> Iterator[None]:
        """The user is gone; a new one of that name may have been given permissions meanwhile."""

        def is_needed(identity: FieldTable) -> bool:
            user, virtual_host = self.users.get(name), str(identity["virtual-host"])
            is_granted = user is not None and virtual_host in user.permissions
            return is_granted and not self.is_fixed(name, virtual_host)

        identities = [identity_of(name, virtual_host) for virtual_host in virtual_hosts]
        return self.records.forget(records.PERMISSION, identities, is_needed)

    def forget_host(self, virtual_host: str) -> Iterator[None]:
        """The virtual host is gone, and must not come back with the permissions of its namesake."""
        for names in self.accounts.name_portions():
            for name in names:
                user = self.users.get(name)
                if user is not None and virtual_host in user.permissions:
                    self.forget(name, virtual_host)
                    self.users.revoke(name, virtual_host)
            yield

    # Recovery

    def restore(self, found: FoundRecords) -> None:
        """After the users. What belongs to nobody leaves the journal."""
        for identity, value in found.of(records.PERMISSION):
            name, virtual_host = identity.get("user"), identity.get("virtual-host")
            if not isinstance(name, str) or not isinstance(virtual_host, str):
                log.error("a permission of the journal is left out: the record of it is not well formed")
                continue
            if self.is_of_another(name, value):
                log.warning("a permission of user %r is dropped: another user of that name had it", name)
                self.records.delete(records.PERMISSION, identity)
            elif self.is_fixed(name, virtual_host) and name not in guest_alone(()):
                log.warning(
                    "the permission of user %r in %r is dropped: the settings have one", name, virtual_host
                )
                self.records.delete(records.PERMISSION, identity)
            elif self.users.get(name) is None or self.is_fixed(name, virtual_host):
                # What was changed of guest is to hold again when the settings name no users.
                log.warning(
                    "the permission of user %r in %r is left out: see the settings", name, virtual_host
                )
            elif value.get("cleared") is True:
                self.users.revoke(name, virtual_host)
            else:
                self.restore_one(name, virtual_host, value)

    def is_of_another(self, name: str, value: FieldTable) -> bool:
        """Whether the record belongs to another user of that name; users of the settings have no life."""
        return value.get("life", 0) != self.accounts.life_of(name)

    def restore_one(self, name: str, virtual_host: str, value: FieldTable) -> None:
        patterns = [value.get(each) for each in ("configure", "write", "read")]
        configure, write, read = [each if isinstance(each, str) else "" for each in patterns]
        try:
            self.users.grant(name, virtual_host, PermissionSettings(configure, write, read))
        except PatternFault as fault:
            log.error("a permission of user %r in %r is left out: %s", name, virtual_host, fault)


def identity_of(name: str, virtual_host: str) -> FieldTable:
    return {"user": name, "virtual-host": virtual_host}


def check_patterns(settings: PermissionSettings) -> None:
    """Raises unless each pattern can be searched for."""
    for what in ("configure", "write", "read"):
        check_pattern(what, getattr(settings, what))


def check_pattern(what: str, pattern: str) -> None:
    try:
        NamePattern(pattern)
    except PatternFault as fault:
        raise unfit(f"{what}: expected a regular expression ({fault})") from None
