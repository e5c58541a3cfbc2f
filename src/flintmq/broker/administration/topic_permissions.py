"""Topic permissions: which routing keys of a topic exchange users may write and read, changed at run time.

They narrow down what permissions on names allow. A user without topic permissions for an exchange may use all
of its routing keys. The settings have none, so that none are fixed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from flintmq.auth.permissions import TopicPermissions
from flintmq.broker.administration import records
from flintmq.broker.administration.faults import missing, unfit
from flintmq.config import NAME_OCTETS_MAX
from flintmq.patterns.name_pattern import PatternFault

if TYPE_CHECKING:
    from flintmq.auth.user import User
    from flintmq.broker.administration.permissions import AdministeredPermissions
    from flintmq.broker.administration.records import FoundRecords
    from flintmq.wire.tables import FieldTable

log = logging.getLogger("flintmq.administration")

Place = tuple[str, str]  # virtual host, exchange


class AdministeredTopicPermissions:
    """The topic permissions of all users, which narrow down their permissions."""

    def __init__(self, permissions: AdministeredPermissions) -> None:
        self.permissions = permissions
        self.accounts = permissions.accounts
        self.users = permissions.users
        self.records = permissions.records
        self.require_host = permissions.require_host
        self.changed = permissions.changed

    def of_user(self, user: User) -> list[tuple[Place, TopicPermissions]]:
        return sorted(user.topic_permissions.items(), key=lambda each: each[0])

    def set(self, name: str, virtual_host: str, exchange: str, write: str, read: str) -> None:
        """The exchange need not exist yet."""
        self.accounts.find(name)
        self.require_host(virtual_host)
        if not 0 < len(exchange.encode("utf-8", "surrogatepass")) <= NAME_OCTETS_MAX:
            raise unfit(f"exchange: expected 1 to {NAME_OCTETS_MAX} octets")
        for what, patterns in (("write", (write, "")), ("read", ("", read))):
            try:
                TopicPermissions(*patterns, name, virtual_host)
            except PatternFault as fault:
                raise unfit(f"{what}: expected a regular expression ({fault})") from None
        allowed = TopicPermissions(write, read, name, virtual_host)
        self.put(name, (virtual_host, exchange), write, read)
        self.users.restrict_topics(name, virtual_host, exchange, allowed)
        self.changed(virtual_host)

    def clear(self, name: str, virtual_host: str, exchange: str) -> None:
        user = self.accounts.find(name)
        self.require_host(virtual_host)
        if (virtual_host, exchange) not in user.topic_permissions:
            raise missing(f"topic permission of user '{name}' for exchange", exchange)
        self.forget(name, (virtual_host, exchange))
        self.changed(virtual_host)

    def forget(self, name: str, place: Place) -> None:
        self.records.delete(records.TOPIC_PERMISSION, identity_of(name, place))
        self.users.restrict_topics(name, *place, None)

    def forget_user(self, name: str, places: list[Place]) -> Iterator[None]:
        """The user is gone; a new one of that name may have been given some meanwhile."""

        def is_needed(identity: FieldTable) -> bool:
            user = self.users.get(name)
            place = identity["virtual-host"], identity["exchange"]
            return user is not None and place in user.topic_permissions

        identities = [identity_of(name, place) for place in places]
        return self.records.forget(records.TOPIC_PERMISSION, identities, is_needed)

    def keep(self, user: User) -> None:
        """The settings have taken the user over: what narrowed it down narrows down theirs."""
        for place, allowed in user.topic_permissions.items():
            self.put(user.name, place, allowed.write, allowed.read)

    def put(self, name: str, place: Place, write: str, read: str) -> None:
        value: FieldTable = {"write": write, "read": read, "life": self.accounts.life_of(name)}
        self.records.put(records.TOPIC_PERMISSION, identity_of(name, place), value)

    def forget_host(self, virtual_host: str) -> Iterator[None]:
        for names in self.accounts.name_portions():
            for name in names:
                user = self.users.get(name)
                if user is not None and user.topic_permissions:
                    yield from self.forget_places(user, virtual_host)
            yield

    def forget_places(self, user: User, virtual_host: str) -> Iterator[None]:
        places = [place for place in user.topic_permissions if place[0] == virtual_host]
        if places:
            identities = [identity_of(user.name, place) for place in places]
            yield from self.records.forget(records.TOPIC_PERMISSION, identities, lambda _: False)
            if self.users.get(user.name) is user:  # else it was deleted meanwhile
                self.users.lift_topics(user.name, virtual_host)

    def restore(self, found: FoundRecords) -> None:
        """After the users. What belongs to nobody leaves the journal."""
        for identity, value in found.of(records.TOPIC_PERMISSION):
            key = [identity.get(each) for each in ("user", "virtual-host", "exchange")]
            texts = [each for each in [*key, value.get("write"), value.get("read")] if isinstance(each, str)]
            if len(texts) < 5:
                log.error("a topic permission is left out: the record of it is not well formed")
                continue
            name, virtual_host, exchange, write, read = texts
            if self.accounts.is_taken_over(name, value):
                self.put(name, (virtual_host, exchange), write, read)
                self.restore_one(name, virtual_host, exchange, write, read)
            elif self.permissions.is_of_another(name, value):
                self.records.delete(records.TOPIC_PERMISSION, identity)
            elif self.users.get(name) is None:
                log.warning("a topic permission of user %r is left out: see the settings", name)
            else:
                self.restore_one(name, virtual_host, exchange, write, read)

    def restore_one(self, name: str, virtual_host: str, exchange: str, write: str, read: str) -> None:
        try:
            allowed = TopicPermissions(write, read, name, virtual_host)
        except PatternFault as fault:
            # To do without would allow more than was meant.
            log.error("topic permission of user %r for %r: %s; it allows nothing", name, exchange, fault)
            allowed = TopicPermissions("", "", name, virtual_host)
        self.users.restrict_topics(name, virtual_host, exchange, allowed)


def identity_of(name: str, place: Place) -> FieldTable:
    virtual_host, exchange = place
    return {"user": name, "virtual-host": virtual_host, "exchange": exchange}
