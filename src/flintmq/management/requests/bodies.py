"""Bodies of requests that are on their way: how much of them this process holds, of all and of one user."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from flintmq.management.requests.faults import Unavailable

# Four of the largest bodies at a time, and two of one user.
HELD_BYTES_MAX = 134_217_728
USER_BYTES_MAX = 67_108_864


class Bodies:
    """Octets held, by the name of the user who sends them."""

    def __init__(self) -> None:
        self.held: Counter[str] = Counter()

    @contextmanager
    def gathering(self, user: str) -> Iterator[Callable[[int], None]]:
        """For one body: a function that is told of each piece, and raises if there is no room for it."""
        gathered = 0

        def grow(octets: int) -> None:
            nonlocal gathered
            is_full = self.held.total() + octets > HELD_BYTES_MAX
            if is_full or self.held[user] + octets > USER_BYTES_MAX:
                raise Unavailable("too many large bodies at a time: try again")
            gathered += octets
            self.held[user] += octets

        try:
            yield grow
        finally:
            self.held[user] -= gathered
            if not self.held[user]:
                del self.held[user]
