"""What the connector raises. Spark shows users the last line of an exception, so each is one plain sentence:
what is wrong, with which queue or option, and what to do about it. None quotes a password."""

from __future__ import annotations

from flintmq.errors import FlintError


class AmqpError(FlintError):
    """Anything that ends a query or a job on purpose."""


class BadOption(AmqpError, ValueError):
    """An option is unknown, missing or wrong."""


class AmqpRefused(AmqpError):
    """The broker refuses, and would again: a login, a name that is not there, a right that is missing."""


class DataLost(AmqpError):
    """Rows that the query still wants are gone from the broker."""


class TakenOver(AmqpError):
    """Another query reads a queue by now under the name of this one: a second try would only take it back."""


class MadeAgain(AmqpError):
    """The queue that a feed knows is another one by now: its driver makes another feed for it."""

    def __init__(self, queue: str) -> None:
        super().__init__(f"Queue {queue!r} was made again while a batch was planned; start the query again.")
