"""Looking into a queue without disturbing it, and moving what is in it.

    place      ... 17  18  19 | 20  21  22  23 ... | 40 41 ...
                   returned   |  ready (a ring)    |  paged tail, read from disk

A message keeps its place while it waits, so `after` a place is where the next look goes on. Messages that
are handed out are not seen.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from itertools import islice
from typing import TYPE_CHECKING

from flintmq.broker.messages import entry_number
from flintmq.broker.queues.priority_queue import LANE_SHIFT, PriorityQueue
from flintmq.errors import ServiceFault, StorageFault, UnreadableFault
from flintmq.wire import amqp, traits
from flintmq.wire.stream import HeldBody

if TYPE_CHECKING:
    from flintmq.broker.channels.channel import Channel
    from flintmq.broker.exchanges.router import Router
    from flintmq.broker.messages.message import Message
    from flintmq.broker.queues.consumer_selector import ConsumerSelector
    from flintmq.broker.queues.delivery import Delivery
    from flintmq.broker.queues.queue import Queue
    from flintmq.storage.streams.log import StreamLog
    from flintmq.wire.columns import Octets
    from flintmq.wire.stream import Body

log = logging.getLogger("flintmq.services")

BEFORE_ALL = -(1 << 62)
# What one step of a search takes out or passes by: some milliseconds.
PORTION = 1024
PORTION_BYTES = 4_194_304
# What one step reads of a large body: a fraction of a millisecond.
PIECE_BYTES = 262_144
# Of messages that came back so many are asked for their octets: for others the mean of these is taken.
SAMPLED = 64
NOTHING_HELD = (0, 0, 0)


def browse(queue: Queue, after: int) -> Iterator[tuple[int, Message, bool]]:
    """Place, message and whether it was delivered before, from the first place behind `after` on."""
    for lane in queue.parts():
        yield from browse_lane(lane, after)


def take_selected(queue: Queue, selection: ConsumerSelector, after: int) -> tuple[Delivery | None, int, bool]:
    """The first message behind a place that is selected, out of the queue.

    Looks at a portion of the queue. Beside the message come the place to go on behind, and whether there may
    be more to look at.
    """
    octets = 0
    for looked_at, (place, message, _) in enumerate(browse(queue, after)):
        if looked_at == PORTION or octets > PORTION_BYTES:
            return None, after, True
        octets += len(message.content)
        after = place
        is_selected = selection.accepts(message)
        octets += selection.octets()
        if is_selected:
            delivery = queue.take_at(place, message)
            if delivery is not None:
                return delivery, after, True
    return None, after, False


def entered(queue: Queue) -> int:
    """How many messages came to the queue since the broker runs, with those that a restart found in it."""
    if queue.is_stream:
        log: StreamLog = queue.log  # type: ignore[attr-defined]
        return log.end
    if not isinstance(queue, PriorityQueue):
        return end_of(queue)
    ends = {**queue.places, **{rank: end_of(lane) for rank, lane in queue.lanes.items()}}
    return sum(end - ((queue.priority_max - rank) << LANE_SHIFT) for rank, end in ends.items())


def end_of(lane: Queue) -> int:
    """The place behind the last message."""
    return lane.position + lane.ready.count + lane.tail.count + lane.tail.holes


def held(queue: Queue) -> tuple[int, int, int]:
    """Octets of what is ready in memory, the number of messages that lie on disk only, and their octets.

    In memory headers are counted, on disk bodies alone, of a stream its log. Takes no look at each message.
    """
    if queue.is_stream:
        log: StreamLog = queue.log  # type: ignore[attr-defined]
        return 0, len(log), log.octets
    if not queue.message_count():
        return NOTHING_HELD
    ready_bytes = paged = paged_bytes = 0
    for lane in queue.parts():
        returned = held_of_returned(lane)
        ready_bytes += lane.ready_bytes + returned[0]
        paged += lane.tail.count + returned[1]
        paged_bytes += lane.tail.octets + returned[2]
    return ready_bytes, paged, paged_bytes


def held_of_returned(lane: Queue) -> tuple[int, int, int]:
    """The same of what came back to the queue; where that is much, it is estimated by some of it."""
    count = len(lane.returned)
    if not count:
        return NOTHING_HELD
    asked = lane.returned if count <= SAMPLED else lane.returned[:: count // SAMPLED]
    size = sum([len(each.message.content) for each in asked if each.message is not None])
    paged = [each.paged.body_size for each in asked if each.paged is not None]
    return size * count // len(asked), len(paged) * count // len(asked), sum(paged) * count // len(asked)


def browse_lane(queue: Queue, after: int) -> Iterator[tuple[int, Message, bool]]:
    for index in range(queue.returned_after(after) - 1, -1, -1):
        delivery = queue.returned[index]
        message = message_of(queue, delivery)
        if message is not None:
            yield delivery.position, message, delivery.redeliveries > 0
    place = max(queue.position, after + 1)
    while place - queue.position < queue.ready.count:
        message = queue.ready.at(place - queue.position)
        if message is not None:
            yield place, message, False
        place += 1
    yield from browse_tail(queue, queue.position + queue.ready.count, place)


def oldest_ms(queue: Queue) -> int | None:
    """When the oldest message that waits in the queue came; None if there is none, or nobody has noted it."""
    return oldest(queue)[0]


def oldest(queue: Queue) -> tuple[int | None, int]:
    """When the oldest message came, as oldest_ms has it, and the expiration in ms that it carries, or -1.

    Reads at most one message of each priority from disk, and leaves it there.
    """
    if queue.is_stream:
        log: StreamLog = queue.log  # type: ignore[attr-defined]
        return log.first_time_ms, -1
    heads = [message for lane in queue.parts() if (message := first_of(lane)) is not None]
    noted = [(message.arrived_ms, message.lifetime_ms) for message in heads if message.arrived_ms]
    return min(noted, default=(None, -1))


def first_message(queue: Queue) -> Message | None:
    """The first message that waits in the queue, wherever it lies."""
    return next((found for lane in queue.parts() if (found := first_of(lane)) is not None), None)


def first_of(queue: Queue) -> Message | None:
    """The message that is handed out next, without bringing any back from the paged tail."""
    if queue.returned:
        try:
            return message_of(queue, queue.returned[-1])
        except UnreadableFault:
            return None
    for index in range(queue.ready.count):
        message: Message | None = queue.ready.at(index)
        if message is not None:
            return message
    if queue.store is None or not queue.tail.count:
        return None
    try:
        for messages in queue.tail.read(queue.store, 0):
            for message in messages:
                if message is not None:
                    return message
    except UnreadableFault:
        return None  # what is known of the queue is told all the same
    return None


def message_of(queue: Queue, delivery: Delivery) -> Message | None:
    """The message of what came back; one that lies on disk stays there, and is None if it is lost."""
    if delivery.paged is None or queue.store is None:
        return delivery.message
    return queue.store.load([delivery.paged.entry])[0]


def browse_tail(queue: Queue, first: int, place: int) -> Iterator[tuple[int, Message, bool]]:
    """What lies on disk, of which `first` is the place of the first."""
    if queue.store is None or not queue.tail.count:
        return
    for messages in queue.tail.read(queue.store, place - first):
        for message in messages:
            if message is not None:
                is_marked = (
                    entry_number.is_in_journal(message.entry)
                    and entry_number.sequence_of(message.entry) <= queue.marked
                )
                yield place, message, is_marked or place in queue.tail_redeliveries
            place += 1


def whole_body(
    channel: Channel, message: Message, bytes_max: int
) -> Generator[None, None, list[Octets] | None]:
    """The body in pieces, a large one from its file, some in each step; None if it is larger than
    `bytes_max`, or lost."""
    if not message.traits & traits.SPOOLED:
        return [memoryview(message.content)[message.header_size :]]  # a copy of all would be as much again
    reader = channel.body_of(message)
    if reader is None:
        return None
    pieces: list[Octets] = []
    with closing(reader):
        if reader.octets > bytes_max:
            return None
        try:
            for at in range(0, reader.octets, PIECE_BYTES):
                pieces.append(reader.read(at, min(PIECE_BYTES, reader.octets - at)))
                yield
        except StorageFault as fault:
            log.error("the body of a message cannot be shown: %s", fault)
            return None
    return pieces


def is_within(wanted: bytes, pieces: list[Octets]) -> bool:
    """Whether a body contains these octets, which may begin in one piece and end in the next."""
    if not wanted:
        return True
    before = b""
    for each in pieces:
        piece = bytes(each)
        if wanted in piece or wanted in before + piece[: len(wanted) - 1]:
            return True
        before = (before + piece)[-(len(wanted) - 1) :] if len(wanted) > 1 else b""
    return False


def body_reader(channel: Channel, message: Message) -> Body:
    """The body, to be read in parts; a fault if the disk has lost it."""
    if not message.traits & traits.SPOOLED:
        return HeldBody(message.content, message.header_size)
    reader = channel.body_of(message)
    if reader is None:
        raise ServiceFault(
            amqp.INTERNAL_ERROR, "the body of the message is lost: the disk does not give it back"
        )
    return reader


def obstacle(router: Router, message: Message, target: Queue) -> str:
    """What keeps the message from being copied or moved to the target; "" if nothing does."""
    if message.traits & traits.SPOOLED:
        return "the next message is a large one, whose body is a file of its own"
    if target.is_stream and router.is_too_large(message):
        return f"the next message is too large for stream '{target.name}'"
    if router.is_refused(message, [target]):
        return f"queue '{target.name}' is full"
    return ""


def copy(router: Router, source: Queue, target: Queue, after: int, limit: int) -> tuple[int, int, str]:
    """Puts copies of up to `limit` messages at the end of another queue.

    How many, the last one's place, and what has ended it before its limit, if anything has. All of them or,
    after a crash, none: it is one group of the journal.
    """
    found = [(place, message) for place, message, _ in islice(browse(source, after), limit)]
    copied = 0
    with grouped(router):
        for place, message in found:
            why = obstacle(router, message, target)
            if why:
                return copied, after, why
            router.forward(message.twin(), [target])
            copied += 1
            after = place
    return copied, after, ""


def move(router: Router, source: Queue, target: Queue, limit: int) -> tuple[int, str]:
    """Moves up to `limit` messages from the head of one queue to the end of another.

    How many, and what has ended it before its limit, if anything has. All of them or, after a crash, none:
    it is one group of the journal.
    """
    moved = 0
    with grouped(router):
        while moved < limit:
            message = source.head()
            if message is None:
                break
            why = obstacle(router, message, target)
            if why:
                return moved, why
            delivery = source.take()
            if delivery is None:
                break
            if delivery.message is not message:
                # Those before it had expired, and died of being looked at.
                message = delivery.message
                why = "" if message is None else obstacle(router, message, target)
                if message is None or why:
                    source.give_back(delivery)
                    return moved, why
            try:
                router.forward(message.twin(), [target])
                source.settle(message)
            except Exception:
                source.give_back(delivery)  # where it was: it may be there twice, but never nowhere
                raise
            moved += 1
    return moved, ""


@contextmanager
def grouped(router: Router) -> Iterator[None]:
    """What is written meanwhile is recovered whole or not at all; what goes to streams is there before."""
    store = router.store
    if store is None:
        yield
        return
    with store.journal.group():
        yield
        router.secure_streams()
