"""Users whom a back end knows, and who have logged in over HTTP.

A connection over AMQP has its user with it. Requests over HTTP come one by one: between two of them the user
is kept here, under a number that the management process names in the place of a password.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flintmq.auth.user import User

# Some hundred octets each; the management process remembers fewer logins and sessions.
VISITORS_MAX = 4096


class Visitors:
    """Of too many the one goes who has asked for nothing for longest: that one has to log in again."""

    def __init__(self) -> None:
        self._by_number: dict[int, User] = {}
        self._last = 0

    def __len__(self) -> int:
        return len(self._by_number)

    def enter(self, user: User) -> int:
        if len(self._by_number) >= VISITORS_MAX:
            del self._by_number[next(iter(self._by_number))]
        self._last += 1
        self._by_number[self._last] = user
        return self._last

    def find(self, number: int, name: str, now_ms: int | None = None) -> User | None:
        """The user of that number, unless the number is another user's or the token has ended by `now_ms`."""
        user = self._by_number.pop(number, None)
        if user is None:
            return None
        is_over = now_ms is not None and user.expires_ms is not None and user.expires_ms <= now_ms
        if not is_over:
            self._by_number[number] = user  # as the last one
        return None if is_over or user.name != name else user
