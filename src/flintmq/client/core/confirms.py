"""Which of the published messages are safe: the ledger of a channel with publisher confirms.

    tags     1 2 3 4 5 6 7 8 9        of the present life of the channel, as the server counts
             ^^^^^ ^   ^
             |     |   settled out of order (`beyond`)
             |     settled_through
    numbers  the publishes of the channel since it was first opened: what the application is told

Each publish is a Segment of rows. It is kept until all of its tags are settled, so that it can be sent
again, or named, when the connection is lost meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from flintmq.client.core.batch import Rows, total_bytes
from flintmq.client.core.errors import ChannelClosed, ClientError, PublishFailed
from flintmq.client.core.message import Message
from flintmq.client.core.pending import Pending
from flintmq.errors import ConnectionFault
from flintmq.wire import amqp

# Returned messages that nobody asked for yet; further ones are counted and dropped.
RETURNED_MAX = 10_000
# Publishing waits when so much is on its way and not confirmed: it is kept in memory until then.
UNCONFIRMED_BYTES_MAX = 67_108_864
UNCONFIRMED_MESSAGES_MAX = 1_000_000


class Segment:
    """Rows that were published with consecutive tags."""

    __slots__ = ("body_bytes", "first", "first_tag", "nacked", "numbers", "pending", "rows")

    def __init__(self, first_tag: int, numbers: Sequence[int], rows: Rows, pending: Pending | None) -> None:
        self.first_tag = first_tag
        self.first = numbers[0]  # stays when only some of the rows are sent again
        self.numbers = numbers
        self.rows = rows
        self.pending = pending
        self.nacked: list[int] = []
        self.body_bytes = total_bytes(rows.bodies)


class Ledger:
    """The confirms of one channel."""

    def __init__(self, told: Callable[[], None]) -> None:
        self.told = told  # called when something was settled
        self.next_tag = 1
        self.settled_through = 0
        self.beyond: set[int] = set()
        self.segments: deque[Segment] = deque()
        self.published = 0
        self.unconfirmed_bytes = 0
        self.nacked: list[int] = []
        self.unknown: list[int] = []
        self.returned: list[Message] = []
        self.returned_dropped = 0
        self.ended_by: ClientError | None = None  # why the channel is gone

    @property
    def outstanding(self) -> int:
        """Messages that are neither confirmed nor refused yet."""
        return self.next_tag - 1 - self.settled_through - len(self.beyond)

    def is_full(self) -> bool:
        return self.unconfirmed_bytes > UNCONFIRMED_BYTES_MAX or self.outstanding > UNCONFIRMED_MESSAGES_MAX

    def add(self, rows: Rows, pending: Pending | None = None) -> int:
        """The rows are about to be sent; the number of the first."""
        count = len(rows.bodies)
        first = self.published + 1
        segment = Segment(self.next_tag, range(first, first + count), rows, pending)
        self.published += count
        self._append(segment)
        return first

    def _append(self, segment: Segment) -> None:
        self.segments.append(segment)
        self.next_tag += len(segment.numbers)
        self.unconfirmed_bytes += segment.body_bytes

    def settle(self, tag: int, multiple: bool, refused: bool) -> None:
        """basic.ack or basic.nack came."""
        if tag == 0 and multiple:
            tag = self.next_tag - 1
        if not 0 < tag < self.next_tag:
            raise ConnectionFault(amqp.PRECONDITION_FAILED, f"a confirm of {tag}, which was not published")
        if refused:
            self._note_refused(tag, multiple)
        if multiple:
            if tag > self.settled_through:
                self.settled_through = tag
                if self.beyond:
                    self.beyond = {each for each in self.beyond if each > tag}
        elif tag > self.settled_through:
            self.beyond.add(tag)
        while self.settled_through + 1 in self.beyond:
            self.settled_through += 1
            self.beyond.remove(self.settled_through)
        while self.segments:
            segment = self.segments[0]
            if segment.first_tag + len(segment.numbers) - 1 > self.settled_through:
                break
            self.segments.popleft()
            self._end(segment)
        self.told()

    def stir(self) -> None:
        """Whoever waits for a confirm looks whether there is still something to wait for."""
        for segment in self.segments:
            if segment.pending is not None and segment.pending.told is not None:
                segment.pending.told()

    def _note_refused(self, tag: int, multiple: bool) -> None:
        start = self.settled_through + 1 if multiple else tag
        for segment in self.segments:
            last = segment.first_tag + len(segment.numbers) - 1
            for each in range(max(start, segment.first_tag), min(tag, last) + 1):
                if each > self.settled_through and each not in self.beyond:
                    segment.nacked.append(segment.numbers[each - segment.first_tag])

    def _end(self, segment: Segment) -> None:
        self.unconfirmed_bytes -= segment.body_bytes
        if segment.pending is None:
            self.nacked += segment.nacked
        elif segment.nacked:
            segment.pending.fail(failure(segment.first, segment.nacked, [], self._returned_of(segment)))
        else:
            returned = self._returned_of(segment)
            if returned:
                segment.pending.fail(failure(segment.first, [], [], returned))
            else:
                segment.pending.resolve(segment.first)

    def note_returned(self, message: Message) -> None:
        if len(self.returned) < RETURNED_MAX:
            self.returned.append(message)
        else:
            self.returned_dropped += 1

    def _returned_of(self, segment: Segment) -> list[Message]:
        """Those of the segment. A single message is known by its body; many take all there are."""
        if not self.returned:
            return []
        if len(segment.rows.bodies) > 1:
            taken, self.returned = self.returned, []
            return taken
        for place, message in enumerate(self.returned):
            if message.body == segment.rows.bodies[0]:
                del self.returned[place]
                return [message]
        return []

    def take_failure(self) -> PublishFailed | None:
        """What went wrong since it was asked for last."""
        if not (self.nacked or self.unknown or self.returned):
            return None
        made = failure(1, self.nacked, self.unknown, self.returned, self.returned_dropped)
        if self.unknown and isinstance(self.ended_by, ChannelClosed):
            made = PublishFailed(
                f"{len(self.unknown)} messages were on their way when the channel was closed, and may have "
                f"arrived: {self.ended_by}",
                self.nacked,
                self.unknown,
                self.returned,
            )
            made.__cause__ = self.ended_by
        self.nacked, self.unknown, self.returned, self.returned_dropped = [], [], [], 0
        return made

    def _unsettled(self, segment: Segment) -> list[int]:
        """Indexes of the rows whose fate is unknown."""
        first = segment.first_tag
        return [
            index
            for index in range(max(0, self.settled_through + 1 - first), len(segment.numbers))
            if first + index not in self.beyond
        ]

    def start_again(self, resend: bool) -> list[Rows]:
        """The channel has a new life: what to publish again, in order. Without `resend` it is reported."""
        old, self.segments = self.segments, deque()
        unsettled = [(segment, self._unsettled(segment)) for segment in old]
        self.next_tag, self.settled_through, self.beyond, self.unconfirmed_bytes = 1, 0, set(), 0
        again: list[Rows] = []
        for segment, indexes in unsettled:
            numbers = [segment.numbers[index] for index in indexes]
            if resend and indexes:
                rows = segment.rows.pick(indexes)
                renewed = Segment(self.next_tag, numbers, rows, segment.pending)
                renewed.nacked = segment.nacked
                renewed.first = segment.first
                self._append(renewed)
                again.append(rows)
            elif segment.pending is None:
                self.nacked += segment.nacked
                self.unknown += numbers
            else:
                segment.pending.fail(failure(segment.first, segment.nacked, numbers, []))
        return again

    def abandon(self, error: ClientError) -> None:
        """The channel is gone for good."""
        self.ended_by = error
        for segment in self.segments:
            if segment.pending is None:
                self.unknown += [segment.numbers[index] for index in self._unsettled(segment)]
            else:
                segment.pending.fail(error)
        self.segments.clear()
        self.settled_through, self.beyond, self.unconfirmed_bytes = self.next_tag - 1, set(), 0


def failure(
    first: int, nacked: Sequence[int], unknown: Sequence[int], returned: Sequence[Message], dropped: int = 0
) -> PublishFailed:
    """The error that names them all."""
    reasons = []
    if nacked:
        reasons.append(f"{len(nacked)} messages were refused by the broker; publish them again later")
    if unknown:
        reasons.append(
            f"{len(unknown)} messages were on their way when the connection was lost, and may have arrived"
        )
    if returned:
        route = f"exchange {returned[0].exchange!r} with routing key {returned[0].routing_key!r}"
        reasons.append(
            f"{len(returned) + dropped} messages were returned, no queue is bound to {route}; bind one"
        )
    return PublishFailed("; ".join(reasons), nacked, unknown, returned, first)
