"""When the identities of connections end: tokens are good until a time.

Thousands of connections come and go within the life of a token. Those that end in the same second share an
alarm, and one that has gone leaves nothing behind but that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

log = logging.getLogger("flintmq.auth")

# Connections that one step ends: some 50 microseconds each.
ENDED_AT_ONCE = 8


def all_at_once(steps: Iterator[None]) -> None:
    for _ in steps:
        pass


class Expiries:
    """What is to be called when, by whom it concerns."""

    def __init__(self) -> None:
        # Calls back at a time, in milliseconds since 1970.
        self.at: Callable[[int, Callable[[], None]], object] = lambda due_ms, callback: None
        # Takes the steps of what is done in portions; a broker has other work between them.
        self.begin: Callable[[Iterator[None]], None] = all_at_once
        self._by_second: dict[int, dict[object, Callable[[], None]]] = {}
        self._seconds: dict[object, int] = {}

    def add(self, whom: object, due_ms: int, callback: Callable[[], None]) -> None:
        """Calls back at `due_ms` or within a second after it, unless told otherwise before."""
        self.discard(whom)
        second = -(-due_ms // 1000)
        due = self._by_second.get(second)
        if due is None:
            due = self._by_second[second] = {}
            self.at(second * 1000, lambda: self.begin(self._expired(second)))
        due[whom] = callback
        self._seconds[whom] = second

    def discard(self, whom: object) -> None:
        second = self._seconds.pop(whom, None)
        if second is not None:
            self._by_second[second].pop(whom, None)

    def __len__(self) -> int:
        return len(self._seconds)

    def _expired(self, second: int) -> Iterator[None]:
        """Ends them, some in each step. Who goes or is renewed before its turn is no longer there then."""
        due = self._by_second[second]
        ended = 0
        while due:
            whom, callback = next(iter(due.items()))
            self.discard(whom)
            try:
                callback()
            except Exception:  # the others end all the same
                log.exception("a bug leaves a connection open whose token has expired")
            ended += 1
            if ended % ENDED_AT_ONCE == 0:
                yield None
        del self._by_second[second]
