"""A queue with priorities: one lane for each priority that has messages, the highest served first.

    lane 9   | ... |      lanes are queues without consumers of their own: each has its ring, its returned
    lane 5   | ........ |  messages and its paged tail; lanes share the lists of consumers, the rules and the
    lane 0   | .. |        values of duplicates with the queue

A lane that is empty is let go; only its next position is remembered, so that messages that come back find
their places. Positions of a higher lane are all below those of a lower one, as it is looked at first.
"""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING

from flintmq.broker.messages.message import Message
from flintmq.broker.queues.delivery import Delivery
from flintmq.broker.queues.queue import Queue
from flintmq.broker.scheduling.pass_work import PassWork
from flintmq.wire.tables import FieldTable

if TYPE_CHECKING:
    from flintmq.broker.queues.paged_tail import PagedTail
    from flintmq.broker.queues.queue_rules import Given
    from flintmq.broker.queues.stream_backlog import StreamBacklog
    from flintmq.broker.store.store import Store

# 2**47 messages can go through a lane before its positions reach those of the next.
LANE_SHIFT = 47
# Deduplication values of purged messages that all lanes together forget one by one; more go all at once.
FORGOTTEN_MAX = 512


class PriorityQueue(Queue):
    """Made by x-max-priority; messages of a higher priority than that count as of the highest."""

    __slots__ = ("lanes", "places", "priority_max", "ranks")

    def __init__(
        self,
        name: str,
        pass_work: PassWork,
        durable: bool,
        exclusive: bool,
        auto_delete: bool,
        arguments: FieldTable,
        owner: int,
        store: Store | None = None,
        number: int = 0,
    ) -> None:
        super().__init__(name, pass_work, durable, exclusive, auto_delete, arguments, owner, store, number)
        priority_max = arguments.get("x-max-priority")
        self.priority_max: int = priority_max if isinstance(priority_max, int) else 0
        self.lanes: dict[int, Queue] = {}
        self.ranks: list[int] = []  # the priorities of the lanes there are, lowest first
        self.places: dict[int, int] = {}  # the next position of those that are empty

    def rank_of(self, message: Message) -> int:
        return self.rank_by(message.traits)

    def rank_by(self, found: int) -> int:
        """The rank of a message with these traits."""
        priority = found >> 8 & 0xFF
        return priority if priority < self.priority_max else self.priority_max

    def lane(self, rank: int) -> Queue:
        lane = self.lanes.get(rank)
        if lane is None:
            lane = Queue(
                self.name,
                self.pass_work,
                self.durable,
                self.exclusive,
                self.auto_delete,
                self.arguments,
                self.owner,
                self.store,
                self.number,
            )
            lane.dirty = True  # a lane is never part of the pass work by itself
            lane.consumers = self.consumers
            lane.active = self.active
            lane.rules = self.rules
            lane.duplicates = self.duplicates
            lane.handed_out = self.handed_out
            lane.position = self.places.get(rank, (self.priority_max - rank) << LANE_SHIFT)
            self.lanes[rank] = lane
            insort(self.ranks, rank)
        return lane

    def message_count(self) -> int:
        count = 0
        for lane in self.lanes.values():
            count += lane.message_count()
        return count

    def parts(self) -> list[Queue]:
        return [self.lanes[rank] for rank in reversed(self.ranks)]

    def append(self, message: Message) -> int:
        lane = self.lane(self.rank_of(message))
        if self.store is not None and not lane.tail.count and self.is_long():
            lane.page_out(message)
        else:
            lane.append(message)
        if self.selective:
            self.look_again(lane.position + lane.ready.count - 1)
        return 0

    def kept_count(self) -> int:
        count = 0
        for lane in self.lanes.values():
            count += lane.ready.count
        return count

    def page_last(self, message: Message) -> None:
        lane = self.lanes.get(self.rank_of(message))
        if lane is not None:
            lane.page_last(message)

    def is_long(self) -> bool:
        """Whether the lanes together hold as much in memory as a queue may."""
        if self.store is None:
            return False
        count = 0
        size = 0
        for lane in self.lanes.values():
            count += lane.ready.count
            size += lane.ready_bytes
        return count >= self.store.kept_messages or size >= self.store.kept_bytes

    def head(self) -> Message | None:
        while self.ranks:
            lane = self.lanes[self.ranks[-1]]
            message = lane.head()
            if message is not None:
                return message
            self.close_lane(self.ranks[-1])
        return None

    def close_lane(self, rank: int) -> None:
        self.places[rank] = self.lanes.pop(rank).position
        self.ranks.remove(rank)

    def draw(self) -> Delivery | None:
        if self.head() is None:
            return None
        lane = self.lanes[self.ranks[-1]]
        return lane.draw()

    def draw_found(self, position: int, message: Message) -> Delivery | None:
        lane = self.lanes.get(self.rank_of(message))
        return None if lane is None else lane.draw_found(position, message)

    def draw_lowest(self) -> Delivery | None:
        while self.ranks:
            lane = self.lanes[self.ranks[0]]
            if lane.head() is not None:
                return lane.draw()
            self.close_lane(self.ranks[0])
        return None

    def is_paged(self, message: Message) -> bool:
        lane = self.lane(self.rank_of(message))
        return lane.tail.count > 0

    def has_tail(self) -> bool:
        count = 0
        for lane in self.lanes.values():
            count += lane.tail.count
        return count > 0

    def note_stream(self, backlog: StreamBacklog, message: Message) -> None:
        lane = self.lane(self.rank_of(message))
        lane.note_stream(backlog, message)

    def draw_at(self, priority: int, position: int) -> Message | None:
        lane = self.lanes.get(min(priority, self.priority_max))
        return None if lane is None else lane.draw_at(priority, position)

    def put_back(self, deliveries: list[Delivery]) -> None:
        by_rank: dict[int, list[Delivery]] = {}
        for delivery in deliveries:
            if delivery.message is not None:
                by_rank.setdefault(self.rank_of(delivery.message), []).append(delivery)
            elif delivery.paged is not None:
                by_rank.setdefault(self.rank_by(delivery.paged.traits), []).append(delivery)
        for rank, backs in by_rank.items():
            lane = self.lane(rank)
            lane.put_back(backs)
            if self.selective:
                self.look_again(min([delivery.position for delivery in backs]))

    def dispatch_selectively(self) -> bool:
        more = False
        for rank in reversed(self.ranks):
            if self.active and not more:  # a lower lane comes when all of the higher one was looked at
                lane = self.lanes[rank]
                more = lane.dispatch_selectively()
        for rank in list(self.ranks):
            lane = self.lanes[rank]
            if not lane.message_count():
                self.close_lane(rank)
        return more

    def shed(self, most: int) -> int:
        shed = self.shed_leases(most)
        for lane in self.lanes.values():
            shed += lane.shed(most - shed)
        return shed

    def body_bytes(self) -> int:
        size = 0
        for lane in self.lanes.values():
            size += lane.body_bytes()
        return size

    def restore(self, tail: PagedTail, handed_out: int) -> None:
        """What recovery found of messages without a priority; see restore_lane for others."""
        self.handed_out = handed_out
        self.restore_lane(0, tail)

    def restore_lane(self, priority: int, tail: PagedTail) -> None:
        lane = self.lane(min(priority, self.priority_max))
        if lane.tail.count:
            for entry in tail:
                lane.tail.push(entry)
            lane.tail.octets += tail.octets
        else:
            lane.restore(tail, self.handed_out)

    def discount(self, message: Message) -> None:
        lane = self.lane(self.rank_of(message))
        lane.discount(message)

    def purge(self) -> int:
        waiting = [] if self.rules is None else self.rules.purge()
        if waiting:
            lane = self.lane(0)
            lane.returned = waiting + lane.returned
        is_long = self.has_tail() or self.message_count() > FORGOTTEN_MAX
        if is_long and self.duplicates is not None:
            self.duplicates.clear()
        count = 0
        for rank in list(self.ranks):
            lane = self.lanes[rank]
            lane.rules = None
            if is_long:
                lane.duplicates = None
            count += lane.purge()
            self.close_lane(rank)
        return count


def kind_of_queue(given: Given) -> type[Queue]:
    """Which kind of queue the arguments ask for."""
    return PriorityQueue if given.get("priority_max") else Queue
