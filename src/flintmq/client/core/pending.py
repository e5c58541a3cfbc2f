"""An answer that is waited for, however the waiting is done.

The sync client reads the socket until `done`; the async one hangs a future on `told`. Work of several
calls is written once, as a generator that yields a Pending and is sent what it was resolved with.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeAlias, TypeVar

from flintmq.client.core.errors import ClientError

T = TypeVar("T")


class Pending:
    """One answer; resolved or failed once."""

    __slots__ = ("abandoned", "doing", "done", "error", "late_is_fine", "result", "then", "told")

    def __init__(self, doing: str, late_is_fine: bool = False) -> None:
        self.doing = doing
        self.late_is_fine = late_is_fine  # an answer after its time harms nobody: it is told apart by name
        self.done = False
        self.result: Any = None
        self.error: ClientError | None = None
        self.told: Callable[[], None] | None = None
        self.then: Callable[[Any], None] | None = None  # what the answer means, whether anybody waits or not
        self.abandoned = False  # nobody waits any more

    def resolve(self, result: Any) -> None:
        self._end(result, None)

    def fail(self, error: ClientError) -> None:
        self._end(None, error)

    def _end(self, result: Any, error: ClientError | None) -> None:
        if self.done:
            return
        self.done, self.result, self.error = True, result, error
        if error is None and self.then is not None:
            self.then(result)
        if self.told is not None:
            self.told()

    def outcome(self) -> Any:
        """What it was resolved with; raises what it failed with."""
        if self.error is not None:
            raise self.error
        return self.result


Steps: TypeAlias = Generator[Pending, Any, T]
