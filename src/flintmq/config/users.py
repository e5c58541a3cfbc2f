"""Who may log in, and what they may do: [users.NAME]."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated

from flintmq import checks
from flintmq.config.policies import name_pattern
from flintmq.config.tables import NO_TABLE, SECRET, Section, check_virtual_host, checked, section, table
from flintmq.errors import ConfigFault

USER_TAGS = ("administrator", "monitoring", "management", "policymaker", "impersonator")
PASSWORD_OCTETS_MAX = 1024


class PermissionSettings(Section):
    """[users.NAME.permissions."VHOST"]: regular expressions over names; an empty one grants nothing."""

    configure: Annotated[str, name_pattern] = ""
    write: Annotated[str, name_pattern] = ""
    read: Annotated[str, name_pattern] = ""


ALL_PERMISSIONS = PermissionSettings(configure=".*", write=".*", read=".*")


class UserSettings(Section):
    """[users.NAME]: one who may log in, by a password in plain or hashed by `flintmq hash-password`."""

    password: Annotated[str | None, checks.text(PASSWORD_OCTETS_MAX), SECRET] = None
    password_hash: Annotated[str | None, checks.text(512), SECRET] = None
    tags: Annotated[tuple[str, ...], checks.texts(checks.one_of(*USER_TAGS, quote='"'))] = ()
    # None: true for the user called guest, whose password the whole world knows, false for others.
    loopback_only: Annotated[bool | None, checks.switch] = None
    permissions: Mapping[str, PermissionSettings] = NO_TABLE

    def __repr__(self) -> str:
        """Without what is secret."""
        return f"{type(self).__name__}(tags={self.tags}, permissions={self.permissions})"


class DefaultUser(UserSettings):
    """The user guest of settings that name no users: no setting, so that it can change at run time.

    It is never equal to a user of the settings, whatever that one may do.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DefaultUser) and super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        return not self == other


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
        named[name] = user._replace(permissions=permissions)
    return MappingProxyType(named)


def _permissions(value: object, user: str, virtual_hosts: Sequence[str]) -> Mapping[str, PermissionSettings]:
    granted: dict[str, PermissionSettings] = {}
    for virtual_host, given in table(value, f"{user}.permissions").items():
        where = f'{user}.permissions."{virtual_host}"'
        if virtual_host in PermissionSettings._fields and not isinstance(given, Mapping):
            raise ConfigFault(
                f"{user}.permissions.{virtual_host} stands for no virtual host; each has a table of its own: "
                f'permissions."{virtual_hosts[0]}" = {{ configure = ".*", write = ".*", read = ".*" }}'
            )
        check_virtual_host(virtual_host, virtual_hosts, where)
        granted[virtual_host] = section(PermissionSettings, given, where)
    return MappingProxyType(granted)
