"""What HANDLE QUERY has listed of a destination, so that HANDLE BROWSE finds it.

A listed message has a number of its own, counted by the handle from 0 on: places in a queue have more than
the 32 bits of a message number. A query from 0 begins a new listing.
"""

from __future__ import annotations

from collections.abc import Generator
from itertools import islice
from typing import TYPE_CHECKING

from flintmq.broker.matching.late_binding import counted_selector
from flintmq.broker.queues.consumer_selector import ConsumerSelector, selector_of
from flintmq.broker.services import browsing
from flintmq.errors import ChannelFault
from flintmq.wire import amqp

if TYPE_CHECKING:
    from flintmq.broker.messages.message import Message
    from flintmq.broker.queues.queue import Queue

# Messages in one INDEX, some 10 octets each, and how many are looked at in one portion: a millisecond.
LISTED_MAX = 1024
LOOKED_MAX = 128
# Numbers that the handles of a connection may use in their listings: some 40 octets each.
NUMBERS_MAX = 65_536

# What is done in portions, and has come of it: numbers, and whether there are more behind them.
Looking = Generator[None, None, tuple[list[int], bool]]


class Listing:
    """What one handle has listed of one queue."""

    __slots__ = ("looked", "places", "queue")

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.places: list[int] = []  # by number
        self.looked = -(1 << 62)  # the last place that was looked at

    def list_on(self, first: int, selector: str) -> Looking:
        """Numbers of messages from `first` on."""
        if not selector:
            return self.look_on(first, None)
        return self.look_on(first, selector_of(counted_selector(selector, self.queue.pass_work)))

    def look_on(self, first: int, selection: ConsumerSelector | None) -> Looking:
        if first < len(self.places):  # told before: they may be gone, and then are not found
            return list(range(first, min(len(self.places), first + LISTED_MAX))), True
        numbers: list[int] = []
        while not self.queue.deleted:
            looked_at = octets = 0
            for place, message, _ in islice(browsing.browse(self.queue, self.looked), LOOKED_MAX):
                if len(numbers) == LISTED_MAX:
                    return numbers, True
                is_selected = selection is None or selection.accepts(message)
                if selection is not None:
                    octets += selection.octets()
                if is_selected:
                    if len(self.places) == NUMBERS_MAX:
                        text = f"{NUMBERS_MAX} messages are listed: begin anew, and use a selector"
                        raise ChannelFault(amqp.RESOURCE_ERROR, text)
                    numbers.append(len(self.places))
                    self.places.append(place)
                self.looked = place
                looked_at += 1
                if octets > browsing.PIECE_BYTES:
                    break
            if looked_at < LOOKED_MAX and octets <= browsing.PIECE_BYTES:
                break
            yield None
        return numbers, False

    def find(self, number: int) -> tuple[Message, bool] | None:
        """The message of a number, and whether it was delivered before; None if it is there no more."""
        if number >= len(self.places) or self.queue.deleted:
            return None
        wanted = self.places[number]
        for lane in self.queue.parts():
            for place, message, is_redelivered in browsing.browse_lane(lane, wanted - 1):
                if place == wanted:
                    return message, is_redelivered
                break
        return None


def message_list(numbers: list[int]) -> bytes:
    """As HANDLE INDEX has it: "0 5 9 15-40 80"."""
    parts: list[str] = []
    at = 0
    while at < len(numbers):
        last = at
        while last + 1 < len(numbers) and numbers[last + 1] == numbers[last] + 1:
            last += 1
        parts.append(str(numbers[at]) if last == at else f"{numbers[at]}-{numbers[last]}")
        at = last + 1
    return " ".join(parts).encode()
