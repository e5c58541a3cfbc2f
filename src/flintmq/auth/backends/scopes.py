"""Scopes of a token as permissions, as RabbitMQ maps them.

    broker.read:VHOST/NAME              read queues and exchanges; `write` and `configure` likewise
    broker.write:VHOST/NAME/KEY         publish to a topic exchange with routing keys like this
    broker.tag:administrator            a tag of the user

`broker.` is the prefix of the settings, the resource server's id by default. In VHOST, NAME and KEY a `*`
stands for any letters. Other letters stand for themselves; a slash or star is written as %2F or %2A.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import cast
from urllib.parse import unquote

from flintmq.auth.permissions import NAMELESS_EXCHANGE, Permissions, TopicPermissions
from flintmq.auth.user import Tag
from flintmq.config import PermissionSettings

# Scopes that are looked at, of one token.
SCOPES_MAX = 1000
OPERATIONS = ("configure", "write", "read")
# Decisions kept for a token and an operation in a virtual host.
DECISIONS_MAX = 1024


class Wildcard:
    """A text in which `*` stands for any letters; matched in time that grows with the two lengths alone."""

    __slots__ = ("_parts",)

    def __init__(self, written: str) -> None:
        self._parts = [unquote(part) for part in written.split("*")]

    def matches(self, text: str) -> bool:
        first, *rest = self._parts
        if not rest:
            return text == first
        if len(text) < sum(map(len, self._parts)) or not text.startswith(first):
            return False
        *between, last = rest
        at, end = len(first), len(text) - len(last)
        if not text.endswith(last):
            return False
        for part in between:
            found = text.find(part, at, end)
            if found < 0:
                return False
            at = found + len(part)
        return at <= end


@dataclass(frozen=True, slots=True)
class Scope:
    """What a token allows in some virtual hosts."""

    operation: str
    virtual_host: Wildcard
    name: Wildcard
    key: Wildcard
    has_key: bool


class Scopes:
    """All scopes of a token that concern the broker."""

    def __init__(self, written: Iterable[str], prefix: str) -> None:
        self.tags: set[Tag] = set()
        self._allowing: list[Scope] = []
        for text in list(written)[:SCOPES_MAX]:
            if text.startswith(prefix):
                self._read(text.removeprefix(prefix))
        self.has_keys = any(each.has_key for each in self._allowing)

    def _read(self, text: str) -> None:
        operation, _, place = text.partition(":")
        if operation == "tag" and place in set(Tag):
            self.tags.add(Tag(place))
        parts = place.split("/")
        if operation in OPERATIONS and 2 <= len(parts) <= 3:
            host, name, key = map(Wildcard, (*parts, "*")[:3])
            self._allowing.append(Scope(operation, host, name, key, len(parts) == 3))

    def may_enter(self, virtual_host: str) -> bool:
        return any(each.virtual_host.matches(virtual_host) for each in self._allowing)

    def may(self, operation: str, virtual_host: str, name: str) -> bool:
        return any(self._matching(operation, virtual_host, name))

    def may_use_key(self, operation: str, virtual_host: str, name: str, key: str) -> bool:
        return any(each.key.matches(key) for each in self._matching(operation, virtual_host, name))

    def _matching(self, operation: str, virtual_host: str, name: str) -> Iterator[Scope]:
        for each in self._allowing:
            is_there = each.operation == operation and each.virtual_host.matches(virtual_host)
            if is_there and each.name.matches(name):
                yield each


class ScopePermissions(Permissions):
    """What a token allows in one virtual host."""

    __slots__ = ()

    def __init__(self, scopes: Scopes, virtual_host: str) -> None:
        super().__init__(PermissionSettings())
        self.may_configure = decided(lambda name: scopes.may("configure", virtual_host, name))
        self.may_write = decided(lambda name: scopes.may("write", virtual_host, name))
        self.may_read = decided(lambda name: scopes.may("read", virtual_host, name))


def decided(decide: Callable[[str], bool]) -> Callable[[str], bool]:
    """The decisions of a token, each made once."""
    made: dict[str, bool] = {}

    def may(name: str) -> bool:
        name = name or NAMELESS_EXCHANGE
        decision = made.get(name)
        if decision is None:
            if len(made) >= DECISIONS_MAX:
                made.clear()
            decision = made[name] = decide(name)
        return decision

    return may


class ScopeTopicPermissions(TopicPermissions):
    """Which routing keys of a topic exchange a token allows."""

    __slots__ = ("_exchange", "_scopes", "_virtual_host")

    def __init__(self, scopes: Scopes, virtual_host: str, exchange: str) -> None:
        super().__init__("", "", "", virtual_host)
        self._scopes = scopes
        self._virtual_host = virtual_host
        self._exchange = exchange

    def may_write(self, key: str, client_id: str | None) -> bool:
        return self._scopes.may_use_key("write", self._virtual_host, self._exchange, key)

    def may_read(self, key: str, client_id: str | None) -> bool:
        return self._scopes.may_use_key("read", self._virtual_host, self._exchange, key)


class ScopeHosts(Mapping[str, Permissions]):
    """The permissions of a token by virtual host."""

    def __init__(self, scopes: Scopes) -> None:
        self._scopes = scopes
        self._made: dict[str, ScopePermissions] = {}

    def __contains__(self, virtual_host: object) -> bool:
        return self._scopes.may_enter(cast(str, virtual_host))

    def __getitem__(self, virtual_host: str) -> ScopePermissions:
        made = self._made.get(virtual_host)
        if made is None:
            if virtual_host not in self:
                raise KeyError(virtual_host)
            self._made.clear()  # a connection is in one virtual host
            made = self._made[virtual_host] = ScopePermissions(self._scopes, virtual_host)
        return made

    def __iter__(self) -> Iterator[str]:
        return iter(())  # which virtual hosts there are is not known here

    def __len__(self) -> int:
        return 0


class ScopeTopics(Mapping[tuple[str, str], TopicPermissions]):
    """The topic permissions of a token."""

    def __init__(self, scopes: Scopes) -> None:
        self._scopes = scopes

    def __contains__(self, place: object) -> bool:
        return self._scopes.has_keys

    def __getitem__(self, place: tuple[str, str]) -> ScopeTopicPermissions:
        if not self._scopes.has_keys:
            raise KeyError(place)
        return ScopeTopicPermissions(self._scopes, *place)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __bool__(self) -> bool:
        return self._scopes.has_keys
