"""What happened in a virtual host so far: counts of channels and connections that are closed, of queues
and of channels.

A channel counts for itself while it is open (`Channel.publishes` and others), and so does the link of a
connection: the sum of both is what a
virtual host has seen since the broker started.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.queues.queue_survey import QueueMarks, QueueSums

if TYPE_CHECKING:
    from collections.abc import Callable

    from flintmq.broker.channels.channel import Channel

# Counts that a channel keeps, and of channels that are closed their virtual host: each since its start.
COUNTED = (
    "publishes",
    "confirmed",
    "returns",
    "unrouted",
    "delivery_tag",
    "unasked",
    "gets",
    "gets_unasked",
    "gets_empty",
    "acks",
    "redeliveries",
)


class QueueCounts:
    """What many queues held together when they were last counted, for those who ask soon after."""

    __slots__ = ("counted_ms", "sums", "waiting")

    def __init__(self) -> None:
        self.sums: QueueSums | None = None
        self.counted_ms = 0  # when the count began
        self.waiting: list[Callable[[], None]] | None = None  # for the end of a count, while there is one


class HostTally:
    """Counts since the broker started."""

    __slots__ = (
        "channels_closed",
        "channels_opened",
        "of_channels",
        "queue_counts",
        "queue_marks",
        "queues_created",
        "queues_declared",
        "queues_deleted",
        "received_octets",
        "sent_octets",
    )

    def __init__(self) -> None:
        self.of_channels = [0] * len(COUNTED)
        self.channels_opened = 0
        self.channels_closed = 0
        self.queues_created = 0
        self.queues_declared = 0
        self.queues_deleted = 0
        self.received_octets = 0  # by connections that are closed
        self.sent_octets = 0
        self.queue_counts = QueueCounts()
        self.queue_marks = QueueMarks()  # by which a watcher's next look finds the queues that have changed

    def connection_closed(self, received: int, sent: int) -> None:
        """A connection that has received and sent so many octets counts no more."""
        self.received_octets += received
        self.sent_octets += sent

    def closed(self, channel: Channel) -> None:
        """The channel counts no more."""
        self.channels_closed += 1
        counts = counts_of(channel)
        if any(counts):
            self.of_channels = [sum(pair) for pair in zip(self.of_channels, counts, strict=True)]


def counts_of(channel: Channel) -> tuple[int, ...]:
    """As COUNTED has them."""
    return (
        channel.publishes,
        channel.confirms.confirmed,
        channel.returns,
        channel.unrouted,
        channel.delivery_tag,
        channel.unasked,
        channel.gets,
        channel.gets_unasked,
        channel.gets_empty,
        channel.acks,
        channel.redeliveries,
    )
