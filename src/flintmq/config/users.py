"""Who may log in, and what they may do: [users.NAME]."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from flintmq import checks
from flintmq.config.policies import pattern
from flintmq.config.tables import check_virtual_host, checked, secret, section, setting, table
from flintmq.errors import ConfigFault

USER_TAGS = ("administrator", "monitoring", "management", "policymaker", "impersonator")
PASSWORD_OCTETS_MAX = 1024


@dataclass(frozen=True, slots=True)
class PermissionSettings:
    """[users.NAME.permissions."VHOST"]: regular expressions over names; an empty one grants nothing."""

    configure: str = setting("", pattern)
    write: str = setting("", pattern)
    read: str = setting("", pattern)


ALL_PERMISSIONS = PermissionSettings(configure=".*", write=".*", read=".*")


@dataclass(frozen=True, slots=True)
class UserSettings:
    """[users.NAME]: one who may log in, by a password in plain or hashed by `flintmq hash-password`."""

    password: str | None = secret(checks.text(PASSWORD_OCTETS_MAX))
    password_hash: str | None = secret(checks.text(512))
    tags: tuple[str, ...] = setting((), checks.texts(checks.one_of(*USER_TAGS, quote='"')))
    # None: true for the user called guest, whose password the whole world knows, false for others.
    loopback_only: bool | None = setting(None, checks.switch)
    permissions: Mapping[str, PermissionSettings] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class DefaultUser(UserSettings):
    """The user guest of settings that name no users: no setting, so that it can change at run time."""


def guest_alone(virtual_hosts: Iterable[str]) -> Mapping[str, UserSettings]:
    permissions = MappingProxyType(dict.fromkeys(virtual_hosts, ALL_PERMISSIONS))
    guest = DefaultUser(password="guest", tags=("administrator",), permissions=permissions)
    return MappingProxyType({"guest": guest})


def read_users(value: object, virtual_hosts: Sequence[str]) -> Mapping[str, UserSettings]:
    named: dict[str, UserSettings] = {}
    for name, given in table(value, "users").items():
        where = f"users.{name}"
        checked(name, "users: a name", checks.text())
        user = section(UserSettings, given, where, apart=("permissions",))
        if (user.password is None) == (user.password_hash is None):
            raise ConfigFault(f"{where}: give either password or password_hash, and only one of them")
        permissions = _permissions(given.get("permissions", {}), where, virtual_hosts)
        named[name] = replace(user, permissions=permissions)
    return MappingProxyType(named)


def _permissions(value: object, user: str, virtual_hosts: Sequence[str]) -> Mapping[str, PermissionSettings]:
    granted: dict[str, PermissionSettings] = {}
    for virtual_host, given in table(value, f"{user}.permissions").items():
        where = f'{user}.permissions."{virtual_host}"'
        check_virtual_host(virtual_host, virtual_hosts, where)
        granted[virtual_host] = section(PermissionSettings, given, where)
    return MappingProxyType(granted)
