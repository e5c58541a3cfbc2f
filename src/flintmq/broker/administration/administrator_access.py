"""The way in for administrators: a change that would leave nobody who can administer is refused.

A way in is a user with the tag `administrator`, and a virtual host that the user may enter and ask from:
`write` matches amq.system there, and no limit keeps the user out. Whoever means it gives `force`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from flintmq.auth.permissions import Permissions
from flintmq.auth.user import Tag
from flintmq.broker.administration.faults import unfit
from flintmq.broker.administration.limits import CHANNELS, CONNECTIONS, HOST, USER

if TYPE_CHECKING:
    from flintmq.auth.user import User
    from flintmq.auth.users import Users
    from flintmq.broker.administration.limits import AdministeredLimits, Owner
    from flintmq.config import PermissionSettings

REQUESTS = "amq.system"
# Limits of which 0 lets nobody in.
CLOSING = (CONNECTIONS, CHANNELS)

# Whether a way is gone after the change: of a user, into a virtual host.
Lost = Callable[["User", str], bool]


class AdministratorAccess:
    """Knows by which users and virtual hosts somebody can administer the broker."""

    def __init__(self, users: Users, virtual_hosts: Mapping[str, object], limits: AdministeredLimits) -> None:
        self.users = users
        self.virtual_hosts = virtual_hosts
        self.limits = limits

    def all(self) -> Iterator[tuple[User, str]]:
        for user in self.users:
            if Tag.ADMINISTRATOR in user.tags and not self.is_shut((USER, user.name)):
                for host, granted in user.permissions.items():
                    is_open = host in self.virtual_hosts and not self.is_shut((HOST, host))
                    if is_open and granted.may_write(REQUESTS):
                        yield user, host

    def is_any(self) -> bool:
        return next(self.all(), None) is not None

    def is_shut(self, owner: Owner, changed: Mapping[Owner, Mapping[str, int]] | None = None) -> bool:
        """Whether a limit lets nobody in, as it is or as it is `changed`."""
        limits = {**self.limits.of.get(owner, {}), **(changed or {}).get(owner, {})}
        return any(limits.get(each) == 0 for each in CLOSING)

    def keep(self, lost: Lost, what: str) -> None:
        """Raises 406 if the change would take the last way in away; if there is none, it takes nothing."""
        is_any = False
        for user, host in self.all():
            if not lost(user, host):
                return
            is_any = True
        if is_any:
            raise unfit(f"{what} would leave no administrator who can get in: give force to do it anyway")

    def is_kept(
        self,
        tags: Mapping[str, frozenset[Tag]],
        permissions: Mapping[str, Mapping[str, PermissionSettings]],
        limits: Mapping[Owner, Mapping[str, int]],
    ) -> bool:
        """Whether there is a way in after all of these are set, or there was none before.

        Permissions are by user and virtual host.
        """
        if not self.is_any():
            return True
        for name in {*tags, *[user.name for user in self.users]}:
            user = self.users.get(name)
            own = frozenset() if user is None else user.tags
            if Tag.ADMINISTRATOR not in tags.get(name, own) or self.is_shut((USER, name), limits):
                continue
            known = {} if user is None else user.permissions
            granted = {host: each for host, each in known.items() if host in self.virtual_hosts}
            granted |= {host: Permissions(each) for host, each in permissions.get(name, {}).items()}
            for host, each in granted.items():
                if each.may_write(REQUESTS) and not self.is_shut((HOST, host), limits):
                    return True
        return False

    # What takes ways in away

    def keep_without_user(self, name: str, what: str) -> None:
        self.keep(lambda user, _: user.name == name, what)

    def keep_without_host(self, name: str, what: str) -> None:
        self.keep(lambda _, host: host == name, what)

    def keep_without_permission(self, name: str, virtual_host: str, who: str) -> None:
        what = f"{who}: to keep user '{name}' from asking in virtual host '{virtual_host}'"
        self.keep(lambda user, host: (user.name, host) == (name, virtual_host), what)

    def keep_under_permission(
        self, name: str, virtual_host: str, settings: PermissionSettings, who: str
    ) -> None:
        if not Permissions(settings).may_write(REQUESTS):
            self.keep_without_permission(name, virtual_host, who)

    def keep_under_limit(self, owner: Owner, limit: str, value: int, who: str) -> None:
        if value == 0 and limit in CLOSING:
            what = f"{who}: {limit} 0 of {owner[0]} '{owner[1]}'"
            keep = self.keep_without_user if owner[0] == USER else self.keep_without_host
            keep(owner[1], what)
