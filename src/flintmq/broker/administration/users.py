"""Users: added, changed and deleted while the broker runs.

A user of the settings is fixed. The user guest, whom a broker has whose settings name no users, is not: guest
may be changed and deleted like a user that was added.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from flintmq.auth.passwords import parse_hash
from flintmq.auth.user import Tag, User
from flintmq.broker.administration import records
from flintmq.broker.administration.faults import fixed, missing, unfit
from flintmq.config import NAME_OCTETS_MAX, DefaultUser

if TYPE_CHECKING:
    from flintmq.auth.passwords import PasswordHash
    from flintmq.auth.users import Users
    from flintmq.broker.administration.records import FoundRecords, Records
    from flintmq.clock import Clock
    from flintmq.config import Config
    from flintmq.wire.tables import FieldTable, FieldValue

log = logging.getLogger("flintmq.administration")

LIFE_BITS = 62


class AdministeredUsers:
    """The users that may log in, as administrators see them."""

    def __init__(self, config: Config, users: Users, written: Records, clock: Clock) -> None:
        self.config = config
        self.users = users
        self.records = written
        self.clock = clock
        self.lives: dict[str, int] = {}  # of those that were added, by name
        self.taken_over: dict[str, int] = {}  # the lives of those that settings have taken over at the start
        users.on_renewed = self.hash_renewed

    def after(self, name: str) -> Iterator[User]:
        """The users behind a name, in the order of names."""
        return (self.find(each) for each in self.users.names.after(name or None))

    def name_portions(self) -> Iterator[list[str]]:
        """All names, as many at a time as one step of a chore looks at. Users may come and go meanwhile."""
        last: str | None = None
        while names := list(islice(self.users.names.after(last), records.FORGOTTEN_AT_ONCE)):
            yield names
            last = names[-1]

    def find(self, name: str) -> User:
        user = self.users.get(name)
        if user is None:
            raise missing("user", name)
        return user

    def is_fixed(self, name: str) -> bool:
        settings = self.config.users.get(name)
        return settings is not None and not isinstance(settings, DefaultUser)

    def is_default(self, name: str) -> bool:
        return isinstance(self.config.users.get(name), DefaultUser)

    def life_of(self, name: str) -> int:
        return self.lives.get(name, 0)

    def is_taken_over(self, name: str, value: FieldTable) -> bool:
        """Whether a record of the journal belongs to a user that the settings have taken over."""
        return value.get("life", 0) == self.taken_over.get(name)

    # Changes

    def check_new(self, name: str) -> None:
        """Raises unless a user of this name may be added."""
        if not 0 < len(name.encode("utf-8", "surrogatepass")) <= NAME_OCTETS_MAX:
            raise unfit(f"the name of a user has 1 to {NAME_OCTETS_MAX} octets")
        if not name.isprintable():
            raise unfit("the name of a user has printable letters alone")
        if self.users.get(name) is not None:
            raise unfit(f"user '{name}' is there already")

    def changeable(self, name: str) -> User:
        user = self.find(name)
        if self.is_fixed(name):
            raise fixed(f"user '{name}'")
        return user

    def add(self, name: str, password_hash: PasswordHash | None, tags: Iterable[Tag]) -> User:
        """A new user, without any permissions."""
        self.check_new(name)
        user = User(name, password_hash, frozenset(tags), is_loopback_only=name == "guest")
        life = self.clock.random.getrandbits(LIFE_BITS) + 1
        user.life = life
        self.put(user, life)
        self.users.put(user)
        self.lives[name] = life
        return user

    def set_password(self, name: str, password_hash: PasswordHash | None) -> None:
        """Open connections stay; the next login takes the new password."""
        user = self.changeable(name)
        changed = User(name, password_hash, user.tags, is_loopback_only=user.is_loopback_only)
        self.put(changed, self.life_of(name))
        self.users.change_password(name, password_hash)

    def hash_renewed(self, user: User) -> None:
        """The password of a user is kept in another way; that of the settings is theirs to say."""
        if not self.is_fixed(user.name):
            self.put(user, self.life_of(user.name))

    def set_tags(self, name: str, tags: Iterable[Tag]) -> None:
        user = self.changeable(name)
        tags = frozenset(tags)
        changed = User(name, user.password_hash, tags, is_loopback_only=user.is_loopback_only)
        self.put(changed, self.life_of(name))
        self.users.change_tags(name, tags)

    def forget(self, name: str) -> None:
        """The user is gone from the journal; the caller takes the user away from who is logged in."""
        self.changeable(name)
        identity: FieldTable = {"name": name}
        if self.is_default(name):
            self.records.put(records.USER, identity, {"deleted": True})
        else:
            self.records.delete(records.USER, identity)
        self.lives.pop(name, None)

    def give_up(self, name: str) -> None:
        """The settings name a user whom somebody has added: it is theirs from now on."""
        self.records.delete(records.USER, {"name": name})
        self.lives.pop(name, None)

    def put(self, user: User, life: int) -> None:
        tags: list[FieldValue] = [str(tag) for tag in sorted(user.tags)]
        value: FieldTable = {
            "hash": "" if user.password_hash is None else user.password_hash.text(),
            "tags": tags,
            "loopback-only": user.is_loopback_only,
            "life": life,
        }
        self.records.put(records.USER, {"name": user.name}, value)

    # Recovery

    def restore(self, found: FoundRecords) -> None:
        for identity, value in found.of(records.USER):
            name = identity.get("name")
            if not isinstance(name, str):
                log.error("a user of the journal is left out: it has no name")
            elif self.is_fixed(name):
                log.warning("user %r is set by the settings: the one added at run time is left out", name)
                life = value.get("life", 0)
                if isinstance(life, int) and life:  # else guest, who is back when the settings name no users
                    self.taken_over[name] = life
                    self.give_up(name)
            elif value.get("deleted") is True:
                if self.users.get(name) is not None:
                    self.users.delete(name)
            else:
                self.restore_one(name, value)

    def restore_one(self, name: str, value: FieldTable) -> None:
        written, tags, life = value.get("hash"), value.get("tags"), value.get("life")
        if life == 0 and not self.is_default(name):
            log.warning("user %r is left out: the settings name users, and not this one", name)
            return
        if not (isinstance(written, str) and isinstance(tags, list) and isinstance(life, int)):
            log.error("user %r is left out: the record of it is not well formed", name)
            return
        try:
            password_hash = parse_hash(written) if written else None
            known = frozenset(Tag(str(tag)) for tag in tags)
        except ValueError as error:
            log.error("user %r is left out: %s", name, error)
            return
        user = User(name, password_hash, known, is_loopback_only=value.get("loopback-only") is True)
        user.life = life
        default = self.users.get(name)
        if default is not None and not life:
            user.permissions = default.permissions  # guest, changed at run time
        self.users.put(user)
        if life:
            self.lives[name] = life
