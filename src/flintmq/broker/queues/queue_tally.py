"""How often something happened to a queue that does not happen to each message.

What happens to each one is counted by the queue itself (`settled_count`, `unasked`), and how many have come
follows from positions: a queue that has nothing of the kind below has no tally.
"""

from __future__ import annotations


class QueueTally:
    """Counts since the queue is in memory."""

    __slots__ = (
        "dead_lettered",
        "dropped",
        "expired",
        "gets",
        "gets_unasked",
        "lost",
        "overflowed",
        "redeliveries",
        "refused",
        "rejected",
        "requeued",
    )

    def __init__(self) -> None:
        self.gets = 0  # by basic.get, to be acked
        self.gets_unasked = 0  # by basic.get with no-ack
        self.redeliveries = 0
        self.rejected = 0
        self.requeued = 0
        self.expired = 0
        self.dead_lettered = 0  # dead of whatever reason, with an exchange for dead letters
        self.dropped = 0  # the same without one
        self.refused = 0  # publishes, as the queue was full
        self.overflowed = 0  # dropped as there were too many, with or without an exchange for dead letters
        self.lost = 0  # that the disk did not give back

    def died(self, count: int, reason: str, has_exchange: bool) -> None:
        if reason == "expired":
            self.expired += count
        elif reason == "maxlen":
            self.overflowed += count
        if has_exchange:
            self.dead_lettered += count
        else:
            self.dropped += count
