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

from flintmq.client.core.batch import Rows, header_frame_bytes, publish_frame, row_head, total_bytes
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
MANDATORY = 1  # the flag of basic.publish


class Segment:
    """Rows that were published with consecutive tags."""

    __slots__ = (
        "body_bytes",
        "first",
        "first_tag",
        "messages",
        "nacked",
        "numbers",
        "pending",
        "places",
        "returned",
        "rows",
    )

    def __init__(self, first_tag: int, numbers: Sequence[int], rows: Rows, pending: Pending | None) -> None:
        self.first_tag = first_tag
        self.first = numbers[0]  # stays when only some of the rows are sent again
        self.numbers = numbers
        self.rows = rows
        self.pending = pending
        self.nacked: list[int] = []
        self.returned: list[int] = []
        self.messages: list[Message] = []  # those that came back
        self.places: dict[tuple[bytes, bytes], list[int]] | None = None
        self.body_bytes = total_bytes(rows.bodies)

    @property
    def last_tag(self) -> int:
        return self.first_tag + len(self.numbers) - 1

    def is_waited_for(self) -> bool:
        return self.pending is not None and not self.pending.abandoned and not self.pending.done

    def find(self, head: bytes, body: bytes, is_settled: Callable[[int], bool]) -> int:
        """The index of the first row that reads like this, is not settled and was not found before, or -1."""
        rows = self.rows
        if self.places is None:
            self.places = {}
            for index in reversed(range(len(rows.bodies))):
                row = (rows.head if rows.heads is None else rows.heads[index], rows.bodies[index])
                self.places.setdefault(row, []).append(index)
        indexes = self.places.get((head, body))
        while indexes:
            index = indexes.pop()
            if not is_settled(self.first_tag + index):
                return index
        return -1


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
        self.untold = Untold()
        self.ended_by: ClientError | None = None  # why the channel is gone
        self._gone = 0  # segments that have left
        self._found_at = 0  # the segment of the latest return, counted from the first ever

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

    def is_settled(self, tag: int) -> bool:
        return tag <= self.settled_through or tag in self.beyond

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
            if segment.last_tag > self.settled_through:
                break
            self.segments.popleft()
            self._gone += 1
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
            for each in range(max(start, segment.first_tag), min(tag, segment.last_tag) + 1):
                if not self.is_settled(each):
                    segment.nacked.append(segment.numbers[each - segment.first_tag])

    def _end(self, segment: Segment) -> None:
        self.unconfirmed_bytes -= segment.body_bytes
        self._tell(segment, [])

    def _tell(self, segment: Segment, unknown: Sequence[int], cause: ClientError | None = None) -> None:
        """The fate of a segment, to who waits for it, or to who asks for the channel's confirms next."""
        pending = segment.pending
        is_bad = segment.nacked or unknown or segment.returned
        if pending is None or not segment.is_waited_for():
            if is_bad:
                self.untold.add(segment.nacked, unknown, segment.returned, segment.messages)
        elif is_bad:
            made = failure(
                segment.first, segment.nacked, unknown, segment.messages, segment.returned, cause=cause
            )
            made.__cause__ = cause
            pending.fail(made)
        else:
            pending.resolve(segment.first)

    def note_returned(self, message: Message) -> None:
        """A return carries no number: it is that of the first message on its way that reads the same.

        Exchange, routing key, properties and body are compared. The search begins where the last one ended,
        as messages come back in the order in which they were published.
        """
        split = 1 + message.route[0]
        exchange, key = message.route[:split], message.route[split:]
        start = max(0, self._found_at - self._gone)
        for place in (*range(start, len(self.segments)), *range(min(start, len(self.segments)))):
            segment = self.segments[place]
            number = segment.rows.number
            method = publish_frame(number, exchange, key, MANDATORY)
            head = row_head(number, amqp.CLASS_BASIC, method, message.property_octets)
            index = segment.find(head, message.body, self.is_settled)
            if index >= 0:
                self._found_at = self._gone + place
                found = segment.numbers[index]
                if found not in segment.returned[-1:]:
                    segment.returned.append(found)
                if len(segment.messages) < RETURNED_MAX:
                    segment.messages.append(message)
                return
        self.untold.add([], [], [], [message])
        self.untold.unmatched += 1

    def keep(self, told: PublishFailed) -> None:
        """A failure that its caller never saw."""
        self.untold.add(told.nacked, told.unknown, told.returned_numbers, told.returned)

    def take_failure(self) -> PublishFailed | None:
        """What went wrong and was told to nobody."""
        untold, self.untold = self.untold, Untold()
        if untold.is_empty():
            return None
        cause = self.ended_by if untold.unknown else None
        made = failure(
            1,
            untold.nacked,
            untold.unknown,
            untold.messages,
            untold.returned,
            untold.unmatched,
            cause=cause,
        )
        if isinstance(cause, ChannelClosed):
            made.args = (f"{made}: {cause}",)
        made.__cause__ = cause
        return made

    def has_something_to_tell(self) -> bool:
        return bool(self.segments) or not self.untold.is_empty()

    def _unsettled(self, segment: Segment) -> list[int]:
        """Indexes of the rows whose fate is unknown."""
        first = segment.first_tag
        return [
            index
            for index in range(max(0, self.settled_through + 1 - first), len(segment.numbers))
            if first + index not in self.beyond
        ]

    def start_again(self, resend: bool, frame_bytes_max: int) -> list[Rows]:
        """The channel has a new life: what to publish again, in order.

        Without `resend` all of it is reported; with it, what has headers that do not fit a frame any more.
        """
        old, self.segments = self.segments, deque()
        unsettled = [(segment, self._unsettled(segment)) for segment in old]
        self._gone += len(old)
        self.next_tag, self.settled_through, self.beyond, self.unconfirmed_bytes = 1, 0, set(), 0
        again: list[Rows] = []
        for segment, indexes in unsettled:
            if resend and indexes and largest_header(segment.rows) <= frame_bytes_max:
                rows = segment.rows.pick(indexes)
                numbers = [segment.numbers[index] for index in indexes]
                renewed = Segment(self.next_tag, numbers, rows, segment.pending)
                renewed.nacked, renewed.first = segment.nacked, segment.first
                # What came back and was not confirmed is published again, and comes back again.
                sent_again = set(numbers)
                renewed.returned = [each for each in segment.returned if each not in sent_again]
                renewed.messages = segment.messages[: len(renewed.returned)]
                self._append(renewed)
                again.append(rows)
            else:
                self._tell(segment, self._unknown(segment, indexes))
        return again

    def _unknown(self, segment: Segment, indexes: Sequence[int]) -> list[int]:
        """The numbers of those indexes, but for what came back: that is no secret."""
        returned = set(segment.returned)
        return [segment.numbers[index] for index in indexes if segment.numbers[index] not in returned]

    def abandon(self, error: ClientError) -> None:
        """The channel is gone for good."""
        self.ended_by = error
        segments, self.segments = self.segments, deque()
        unsettled = [self._unsettled(segment) for segment in segments]
        self._gone += len(segments)
        self.settled_through, self.beyond, self.unconfirmed_bytes = self.next_tag - 1, set(), 0
        for segment, indexes in zip(segments, unsettled, strict=True):
            self._tell(segment, self._unknown(segment, indexes), error)


class Untold:
    """Outcomes that nobody waited for, kept for who asks next."""

    def __init__(self) -> None:
        self.nacked: list[int] = []
        self.unknown: list[int] = []
        self.returned: list[int] = []
        self.messages: list[Message] = []
        self.unmatched = 0  # came back, and read like nothing that was on its way

    def add(
        self,
        nacked: Sequence[int],
        unknown: Sequence[int],
        returned: Sequence[int],
        messages: Sequence[Message],
    ) -> None:
        self.nacked += nacked
        self.unknown += unknown
        self.returned += returned
        self.messages += messages[: RETURNED_MAX - len(self.messages)]

    def is_empty(self) -> bool:
        return not (self.nacked or self.unknown or self.returned or self.unmatched)


def largest_header(rows: Rows) -> int:
    """The octets of the longest header frame."""
    if rows.heads is None:
        return header_frame_bytes(rows.head)
    return max(map(header_frame_bytes, rows.heads), default=0)


def failure(
    first: int,
    nacked: Sequence[int],
    unknown: Sequence[int],
    returned: Sequence[Message],
    returned_numbers: Sequence[int],
    unmatched: int = 0,
    unsent: Sequence[int] = (),
    cause: ClientError | None = None,
) -> PublishFailed:
    """The error that names them all; `cause` is why their channel is gone."""
    reasons = []
    if nacked:
        reasons.append(f"{len(nacked)} messages were refused by the broker; publish them again later")
    if unknown:
        end = "channel was closed" if isinstance(cause, ChannelClosed) else "connection was lost"
        reasons.append(f"{len(unknown)} messages were on their way when the {end}, and may have arrived")
    if returned_numbers or unmatched:
        count = len(returned_numbers) + unmatched
        route = ""
        if returned:
            route = f" exchange {returned[0].exchange!r} with routing key {returned[0].routing_key!r}"
        reasons.append(f"{count} messages were returned, no queue is bound to{route}; bind one")
    if unsent:
        reasons.append(f"{len(unsent)} messages were not sent")
    return PublishFailed("; ".join(reasons), nacked, unknown, returned, first, returned_numbers, unsent)
