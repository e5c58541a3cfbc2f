"""A directory that knows passwords and groups: the user's own bind proves the password.

    user_dn = "uid={username},ou=people,dc=example"   bind as that, with the password
    group_base, group_filter                          the groups of the user, looked for as the user
    [[auth.ldap.groups]]                              tags and permissions of the members of a group

What a user may do is found at the login and kept for `cache_s`; a connection keeps it until it ends.
"""

from __future__ import annotations

import math
import ssl
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from flintmq.auth.backend import BackendFault, Identity, Login, LoginBackend
from flintmq.auth.permissions import Permissions
from flintmq.auth.user import Tag
from flintmq.config import PermissionSettings
from flintmq.errors import ConfigFault

if TYPE_CHECKING:
    from flintmq.clock import Clock
    from flintmq.config import LdapAuth

# Groups of one user that are looked at.
GROUPS_MAX = 1000
INVALID_CREDENTIALS = 49


class LdapBackend(LoginBackend):
    """Binds as the user, and looks for groups."""

    can_renew = False

    def __init__(self, settings: LdapAuth, clock: Clock) -> None:
        self._settings = settings
        self.timeout_s = settings.timeout_s
        self.cache_s = settings.cache_s
        try:
            self._ldap3 = import_module("ldap3")
            self._names = import_module("ldap3.utils.dn")
            self._filters = import_module("ldap3.utils.conv")
            self._errors = import_module("ldap3.core.exceptions")
        except ImportError:
            raise ConfigFault("auth.ldap: a directory needs ldap3: pip install 'flintmq[ldap]'") from None
        authority = None if settings.authority is None else str(settings.authority)
        if authority is not None and settings.authority is not None and not settings.authority.is_file():
            raise ConfigFault(f'auth.ldap.authority = "{authority}": cannot be read; check the path')
        self._tls = self._ldap3.Tls(validate=ssl.CERT_REQUIRED, ca_certs_file=authority)

    def authenticate(self, login: Login) -> Identity | None:
        # A bind without a password is anonymous, and succeeds with anybody's name.
        if not login.password or "\0" in login.name:
            return None
        try:
            password = login.password.decode()
        except UnicodeDecodeError:
            return None
        user_dn = self._settings.user_dn.replace("{username}", self._names.escape_rdn(login.name))
        try:
            connection = self._bound(user_dn, password)
            if connection is None:
                return None
            try:
                groups = self._groups(connection, login.name, user_dn)
            finally:
                connection.unbind()
        except (self._errors.LDAPException, OSError) as error:
            raise BackendFault(f"{self._settings.url}: {type(error).__name__}: {error}") from None
        return self._identity(login.name, groups)

    def _bound(self, user_dn: str, password: str) -> Any:
        """A connection as the user; None if the password is wrong."""
        # ldap3 takes whole seconds; who waits for the answer gives up in time by itself.
        ldap3, seconds = self._ldap3, math.ceil(self._settings.timeout_s)
        server = ldap3.Server(self._settings.url, tls=self._tls, connect_timeout=seconds, get_info=ldap3.NONE)
        connection = ldap3.Connection(
            server, user_dn, password, receive_timeout=seconds, auto_referrals=False, read_only=True
        )
        if self._settings.start_tls and not connection.start_tls():
            raise BackendFault(f"{self._settings.url} does not start TLS")
        if connection.bind():
            return connection
        result = connection.result
        connection.unbind()
        if result.get("result") == INVALID_CREDENTIALS:
            return None
        raise BackendFault(f"{self._settings.url} answers with {result.get('description')}")

    def _groups(self, connection: Any, name: str, user_dn: str) -> set[str]:
        settings = self._settings
        if settings.group_base is None or not settings.groups:
            return set()
        escape = self._filters.escape_filter_chars
        asked = settings.group_filter.replace("{user_dn}", escape(user_dn))
        asked = asked.replace("{username}", escape(name))
        found = connection.search(
            settings.group_base, asked, attributes=[self._ldap3.NO_ATTRIBUTES], size_limit=GROUPS_MAX
        )
        if not found and connection.result.get("result") != 0:
            raise BackendFault(f"{settings.url} answers with {connection.result.get('description')}")
        return {self._normal(each["dn"]) for each in connection.response if "dn" in each}

    def _identity(self, name: str, groups: set[str]) -> Identity:
        tags: set[Tag] = set()
        granted: dict[str, list[PermissionSettings]] = {}
        for group in self._settings.groups:
            if self._normal(group.dn) in groups:
                tags |= {Tag(tag) for tag in group.tags}
                for virtual_host, permissions in group.permissions.items():
                    granted.setdefault(virtual_host, []).append(permissions)
        allowed = {host: Permissions(joined(each)) for host, each in granted.items()}
        return Identity(name, frozenset(tags), MappingProxyType(allowed))

    def _normal(self, dn: str) -> str:
        """A distinguished name in the one way in which it is compared."""
        try:
            parts = self._names.parse_dn(dn, strip=True)
            return ",".join(f"{kind}={value}" for kind, value, _ in parts).lower()
        except self._errors.LDAPInvalidDnError:
            return dn.lower()


def joined(granted: list[PermissionSettings]) -> PermissionSettings:
    """What any of several permissions allows."""

    def either(patterns: list[str]) -> str:
        return "|".join(dict.fromkeys(f"(?:{each})" for each in patterns if each))

    return PermissionSettings(
        configure=either([each.configure for each in granted]),
        write=either([each.write for each in granted]),
        read=either([each.read for each in granted]),
    )
