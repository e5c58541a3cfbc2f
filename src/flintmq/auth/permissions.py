"""What a user may do in one virtual host: three regular expressions over resource names.

    configure   declare and delete exchanges and queues
    write       publish to an exchange, bind a queue, unbind it
    read        consume, get and purge a queue, bind from an exchange

The meaning is RabbitMQ's, so that definitions carry over: a pattern matches anywhere in the name unless
it is anchored, an empty pattern grants nothing, and the nameless exchange is asked for as `amq.default`.
Permissions on routing keys of topic exchanges would be a fourth method here, asked after `may_write`.
"""

from __future__ import annotations

from collections.abc import Callable

from flintmq.config import PermissionSettings
from flintmq.name_pattern import NamePattern

# Decisions kept for one pattern. A name has at most 255 octets, so a full cache is under 1 MiB.
DECISIONS_MAX = 1024
NAMELESS_EXCHANGE = "amq.default"


class Permissions:
    """The three patterns, compiled, with the decisions made so far. Never changes: a change is a new one."""

    __slots__ = ("may_configure", "may_read", "may_write", "settings")

    def __init__(self, settings: PermissionSettings) -> None:
        self.settings = settings
        self.may_configure: Callable[[str], bool] = _Decisions(settings.configure)
        self.may_write: Callable[[str], bool] = _Decisions(settings.write)
        self.may_read: Callable[[str], bool] = _Decisions(settings.read)


class _Decisions:
    """One pattern and what it said about the names asked for last."""

    __slots__ = ("_made", "_pattern")

    def __init__(self, pattern: str) -> None:
        self._pattern = NamePattern(pattern) if pattern else None
        self._made: dict[str, bool] = {}

    def __call__(self, name: str) -> bool:
        decision = self._made.get(name)
        if decision is None:
            if len(self._made) >= DECISIONS_MAX:
                self._made.clear()
            decision = self._pattern is not None and self._pattern.matches(name or NAMELESS_EXCHANGE)
            self._made[name] = decision
        return decision
