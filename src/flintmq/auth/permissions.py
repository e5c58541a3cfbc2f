"""What a user may do in one virtual host: three regular expressions over resource names.

    configure   declare and delete exchanges and queues
    write       publish to an exchange, bind a queue, unbind it
    read        consume, get and purge a queue, bind from an exchange

The meaning is RabbitMQ's, so that definitions carry over: a pattern matches anywhere in the name unless
it is anchored, an empty pattern grants nothing, and the nameless exchange is asked for as `amq.default`.
Permissions on routing keys of topic exchanges are asked after `may_write` and `may_read`, if there are any.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from flintmq.config import PermissionSettings
from flintmq.patterns.name_pattern import NamePattern, PatternFault

# Decisions kept for one pattern. A name has at most 255 octets, so a full cache is under 1 MiB.
DECISIONS_MAX = 1024
NAMELESS_EXCHANGE = "amq.default"
CLIENT_ID = "{client_id}"
# In no virtual host, or for no routing keys.
NO_PERMISSIONS: Mapping[Any, Any] = MappingProxyType({})
# Clients whose patterns are kept, for each user and exchange.
CLIENT_IDS_MAX = 64
# Letters that mean something in a pattern.
SPECIAL = frozenset("\\.^$*+?{}[]|()")


class Permissions:
    """The three patterns, compiled, with the decisions made so far. Never changes: a change is a new one."""

    __slots__ = ("may_configure", "may_read", "may_write", "settings")

    def __init__(self, settings: PermissionSettings) -> None:
        self.settings = settings
        self.may_configure: Callable[[str], bool] = _Decisions(settings.configure)
        self.may_write: Callable[[str], bool] = _Decisions(settings.write)
        self.may_read: Callable[[str], bool] = _Decisions(settings.read)


class TopicPermissions:
    """What a user may write to and read from a topic exchange: patterns over routing keys.

    {username}, {vhost} and {client_id} in a pattern stand for names, letter by letter. A pattern with
    {client_id} matches nothing for a client that has not given one.
    """

    __slots__ = ("_made", "_names", "read", "write")

    def __init__(self, write: str, read: str, user: str, virtual_host: str) -> None:
        self.write = write
        self.read = read
        self._names = {"{username}": user, "{vhost}": virtual_host}
        self._made: dict[tuple[str, str], _Decisions] = {}
        for pattern in (write, read):  # a PatternFault, if there is one, comes now
            self._decisions(pattern, "")

    def may_write(self, key: str, client_id: str | None) -> bool:
        return self._may(self.write, key, client_id)

    def may_read(self, key: str, client_id: str | None) -> bool:
        return self._may(self.read, key, client_id)

    def heeds_clients(self) -> bool:
        """Whether clients of one user may use different keys."""
        return CLIENT_ID in self.write or CLIENT_ID in self.read

    def _may(self, pattern: str, key: str, client_id: str | None) -> bool:
        if CLIENT_ID not in pattern:
            return self._decisions(pattern, "").of(key)
        try:
            return bool(client_id) and self._decisions(pattern, client_id or "").of(key)
        except PatternFault:  # the client has given itself an id that makes the pattern too long
            return False

    def _decisions(self, pattern: str, client_id: str) -> _Decisions:
        made = self._made.get((pattern, client_id))
        if made is None:
            if len(self._made) >= CLIENT_IDS_MAX:
                self._made.clear()
            text = pattern
            for name, value in (*self._names.items(), (CLIENT_ID, client_id)):
                text = text.replace(name, literal(value))
            made = self._made[pattern, client_id] = _Decisions(text)
        return made


def literal(text: str) -> str:
    """A pattern that matches this text alone."""
    return "".join([f"\\{letter}" if letter in SPECIAL else letter for letter in text])


class _Decisions:
    """One pattern and what it said about the names asked for last."""

    __slots__ = ("_made", "_pattern")

    def __init__(self, pattern: str) -> None:
        self._pattern = NamePattern(pattern) if pattern else None
        self._made: dict[str, bool] = {}

    def __call__(self, name: str) -> bool:
        """About an exchange or a queue."""
        return self.of(name or NAMELESS_EXCHANGE)

    def of(self, text: str) -> bool:
        decision = self._made.get(text)
        if decision is None:
            if len(self._made) >= DECISIONS_MAX:
                self._made.clear()
            decision = self._made[text] = self._pattern is not None and self._pattern.matches(text)
        return decision
