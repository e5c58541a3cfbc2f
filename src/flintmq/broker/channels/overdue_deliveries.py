"""Deliveries that the broker has taken back from a client that did not settle them in time.

To settle such a delivery late is no mistake; to settle one that never was is answered with 406.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.errors import ChannelFault
from flintmq.wire import amqp

if TYPE_CHECKING:
    from flintmq.broker.channels.channel import Channel
    from flintmq.broker.queues.consumer import Consumer


class OverdueDeliveries:
    """Deliveries of one channel that were taken back: to settle them late is no mistake."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.tags: dict[int, Consumer | None] = {}

    def add(self, tag: int, consumer: Consumer | None) -> None:
        self.tags[tag] = consumer
        if consumer is not None:
            self.channel.unacked.outstanding += 1
            consumer.outstanding += 1

    def forgive(self, tag: int, multiple: bool) -> bool:
        """Whether `tag` names any of them; their credit is free again."""
        named = [tag]
        if multiple:
            self.channel.virtual_host.pass_work.copies += len(self.tags)  # a look at each takes as long
            named = [each for each in self.tags if not tag or each <= tag]
        found = [each for each in named if each in self.tags]
        for each in found:
            consumer = self.tags.pop(each)
            if consumer is not None:
                self.channel.unacked.outstanding -= 1
                consumer.outstanding -= 1
                consumer.wake()
        if found:
            self.channel.wake_parked()
        return bool(found)


def unknown_tag(tag: int, what: str = "basic.ack") -> ChannelFault:
    method_id = {"basic.ack": 80, "basic.reject": 90, "basic.nack": 120}.get(what, 0)
    return ChannelFault(amqp.PRECONDITION_FAILED, f"unknown delivery tag {tag}", 60, method_id)
