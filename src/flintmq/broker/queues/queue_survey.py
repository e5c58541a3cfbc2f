"""A look at many queues at once: what they hold together, and which of them have changed since a look before.

Whoever watches a broker asks for both each second, of thousands of queues of which most are at rest. A look
reads counters that the queues keep anyway: the path of a message does nothing for it. Compiled it takes a
fraction of a microsecond for each queue.

    Queue fields -> a number of 64 bits, its mark -> the same as at the look before? -> nothing to tell
                                                  \\-> another, or none: the row of the queue is made and told
"""

from __future__ import annotations

from collections.abc import Callable, Container

from flintmq.broker.messages.message import Message
from flintmq.broker.queues.delivery import Delivery
from flintmq.broker.queues.queue import Queue
from flintmq.broker.queues.queue_tally import QueueTally

# What a message that is ready takes in memory beside its content, and the number of one on disk.
READY_MESSAGE_BYTES = 160
PAGED_MESSAGE_BYTES = 8

# Of the hash FNV-1a, for 64 bits: for one of two numbers each step maps the other one to one.
MIX_START = 0xCBF29CE484222325
MIX_PRIME = 0x100000001B3
MIX_MASK = 0xFFFFFFFFFFFFFFFF

# Queues that are gone whose names are kept for the next look. Where more have gone, it compares all names.
GONE_MAX = 1024


class QueueSums:
    """What queues hold together; those whose names begin with `hidden` are left out."""

    __slots__ = (
        "consumers",
        "delayed",
        "hidden",
        "kept",
        "oldest_ms",
        "queues",
        "ready",
        "ready_bytes",
        "streams",
        "unacked",
    )

    def __init__(self, hidden: str) -> None:
        self.hidden = hidden
        self.queues = 0
        self.consumers = 0
        self.ready = 0
        self.streams = 0  # of the queues
        self.kept = 0  # of what is ready the messages of streams
        self.unacked = 0
        self.delayed = 0  # that wait for a retry
        self.ready_bytes = (
            0  # that messages take in memory, about: contents, objects, numbers of those on disk
        )
        self.oldest_ms = 0  # when the oldest message came that lies in memory; 0: there is none

    def add(self, queues: dict[str, Queue], names: list[str]) -> None:
        """Adds the queues of these names."""
        for name in names:
            if name.startswith(self.hidden):
                continue
            queue = queues[name]
            self.queues += 1
            self.consumers += len(queue.consumers)
            self.ready += queue.message_count()
            self.unacked += queue.unacked
            self.delayed += queue.waiting_count()
            if queue.is_stream:
                self.streams += 1
                self.kept += queue.message_count()
                continue
            if type(queue) is Queue:
                self.add_lane(queue)
            else:
                for lane in queue.parts():
                    self.add_lane(lane)

    def add_lane(self, lane: Queue) -> None:
        held = lane.ready.count + len(lane.returned)
        self.ready_bytes += (
            lane.ready_bytes + READY_MESSAGE_BYTES * held + PAGED_MESSAGE_BYTES * lane.tail.count
        )
        if held:
            oldest_ms = head_ms(lane)
            if oldest_ms and (not self.oldest_ms or oldest_ms < self.oldest_ms):
                self.oldest_ms = oldest_ms


def oldest_ms_of(queue: Queue) -> int:
    """When the oldest message of a queue came that lies in memory; 0: there is none.

    Where the first message lies on disk this is not known: the disk is not looked at.
    """
    found = 0
    if not queue.is_stream and queue.message_count():
        for lane in queue.parts():
            oldest_ms = head_ms(lane)
            if oldest_ms and (not found or oldest_ms < found):
                found = oldest_ms
    return found


def head_ms(lane: Queue) -> int:
    """When the first message of a lane came; 0 if it is not in memory, or nobody has noted it."""
    message: Message | None = None
    if lane.returned:
        delivery: Delivery = lane.returned[-1]
        message = delivery.message
    elif lane.ready.count:
        message = lane.ready.at(0)  # None for a hole
    return 0 if message is None else message.arrived_ms


class Mark:
    """What a queue looked like."""

    __slots__ = ("changed_in", "value")

    def __init__(self, value: int, changed_in: int) -> None:
        self.value = value
        self.changed_in = changed_in  # the pass in which a look found it changed


class QueueMarks:
    """Marks of the queues of a virtual host, of those that somebody has looked at."""

    __slots__ = ("gone", "known")

    def __init__(self) -> None:
        self.known: dict[str, Mark] = {}
        self.gone: dict[
            str, int
        ] = {}  # queues that had a mark, and the pass in which they went; oldest first

    def forget(self, name: str, now: int) -> None:
        """The queue goes in the pass `now`: one of the same name is another one."""
        if self.known.pop(name, None) is not None:
            self.gone.pop(name, None)
            self.gone[name] = now
            if len(self.gone) > GONE_MAX:
                del self.gone[next(iter(self.gone))]

    def gone_since(self, since: int) -> list[str]:
        """The last of those that have gone in the pass `since` or later; a new queue may have such a name."""
        return [name for name, gone_in in self.gone.items() if gone_in >= since]

    def changed(
        self, queues: list[Queue], since: int, now: int, mark_of_other: Callable[[Queue], int]
    ) -> list[Queue]:
        """Of these queues those that a look has found changed in the pass `since` or later.

        This is a look, too, in the pass `now`. Queues that are more than a plain one, streams and those with
        priorities, are marked by the caller, which knows their rows.
        """
        found: list[Queue] = []
        for queue in queues:
            value = plain_mark(queue) if type(queue) is Queue else mark_of_other(queue) & MIX_MASK
            mark = self.known.get(queue.name)
            if mark is None:
                self.known[queue.name] = mark = Mark(value, now)
            elif mark.value != value:
                mark.value = value
                mark.changed_in = now
            if mark.changed_in >= since:
                found.append(queue)
        return found


def shown_queues(
    queues: dict[str, Queue], names: list[str], hidden: str, departed: Container[int]
) -> list[Queue]:
    """The queues of these names, without hidden ones and those that are being taken apart."""
    found: list[Queue] = []
    for name in names:
        queue = queues[name]
        if queue.deleted or name.startswith(hidden):
            continue
        if not queue.exclusive or queue.owner not in departed:
            found.append(queue)
    return found


def plain_mark(queue: Queue) -> int:
    """Of all in a plain queue that its row tells and that can change. What came back counts by its number:
    some other count changes with each return."""
    mark = MIX_START
    mark = mixed(mark, len(queue.consumers))
    mark = mixed(mark, 1 if queue.active else 0)
    mark = mixed(mark, queue.unacked)
    mark = mixed(mark, queue.waiting_count())
    mark = mixed(mark, queue.waiting_returns())
    mark = mixed(mark, queue.settled_count)
    mark = mixed(mark, queue.unasked)
    mark = mixed(mark, queue.ready.count)
    mark = mixed(mark, queue.holes)
    mark = mixed(mark, len(queue.returned))
    mark = mixed(mark, queue.ready_bytes)
    mark = mixed(mark, queue.position)
    mark = mixed(mark, queue.tail.count)
    mark = mixed(mark, queue.tail.holes)
    mark = mixed(mark, queue.tail.octets)
    mark = mixed(mark, head_ms(queue))
    if queue.leases is not None:
        mark = mixed(mark, len(queue.leases))
    if queue.tally is not None:
        for count in counts_of(queue.tally):
            mark = mixed(mark, count)
    return mark


def mixed(mark: int, value: int) -> int:
    return ((mark ^ (value & MIX_MASK)) * MIX_PRIME) & MIX_MASK


def counts_of(tally: QueueTally) -> tuple[int, ...]:
    """What has seldom happened to a queue, in the order of its row."""
    return (
        tally.gets,
        tally.gets_unasked,
        tally.redeliveries,
        tally.rejected,
        tally.requeued,
        tally.expired,
        tally.dead_lettered,
        tally.dropped,
        tally.refused,
        tally.overflowed,
        tally.lost,
    )
