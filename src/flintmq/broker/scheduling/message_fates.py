"""What became of messages that no client got: dead by a reason, refused, lost. Counts since the start.

A message dies in a queue of its time (`expired`), of the queue's length (`maxlen`), of a client's
rejection (`rejected`) or of coming back too often (`delivery_limit`). Whether the queue names an exchange for
its dead letters is counted apart.
"""

from __future__ import annotations

REASONS = ("expired", "maxlen", "rejected", "delivery_limit")


class MessageFates:
    """Of all queues of one broker."""

    __slots__ = ("dropped", "lettered", "lost", "refused", "undelivered", "untold_events", "untraced")

    def __init__(self) -> None:
        # By reason: of queues with an exchange for dead letters, and of queues without.
        self.lettered = dict.fromkeys(REASONS, 0)
        self.dropped = dict.fromkeys(REASONS, 0)
        self.undelivered = 0  # dead letters that came to no queue
        self.refused = 0  # by full queues, each time, and by streams for which it was too large
        self.lost = 0  # that the disk did not give back
        # Copies that the firehose, and events that the exchange of events had no room for.
        self.untraced = 0
        self.untold_events = 0

    def died(self, count: int, reason: str, has_exchange: bool) -> None:
        (self.lettered if has_exchange else self.dropped)[reason] += count

    def told(self) -> dict[str, object]:
        """As plain values."""
        return {
            "lettered": self.lettered,
            "dropped": self.dropped,
            "undelivered": self.undelivered,
            "refused": self.refused,
            "lost": self.lost,
            "untraced": self.untraced,
            "untold_events": self.untold_events,
        }
