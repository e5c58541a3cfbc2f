"""Queues over time: depths and counters of each queue that changes, for an hour.

Every few seconds the queues of each virtual host are looked at: a tick. A queue has a point at each tick at
which it had changed; until its next point the values of the last one hold.

    ticks     |   |   |   |   |   |      of a virtual host
    points    *   *           *   *      of a queue that did not change between the second and the fifth tick

The last ten minutes have all ticks. Of each minute before them the last tick is kept, and the last point.
"""

from __future__ import annotations

import asyncio
import logging
from array import array
from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Hashable, Iterable
from typing import NamedTuple

from flintmq.client.core.errors import ClientError, ServiceError
from flintmq.clock import Clock
from flintmq.management.broker_state import shapes
from flintmq.management.broker_state.samples import EVERY_S
from flintmq.management.broker_state.snapshots import Snapshots
from flintmq.snapshot_rows import QueueRow
from flintmq.wire import amqp

log = logging.getLogger("flintmq.management")

# Ten minutes of ticks, an hour of minutes, and one more of each, whose values hold until the next one.
FINE = 121
COARSE = 61
SLOT_MS = 60_000
# Queues with a history. A point is eleven numbers of 8 octets: 1,000 x (121 + 61) x 88 octets are 16 MB.
QUEUES_MAX = 1000
# A look takes a hundredth of the time at most, unless that would make looks rarer than one in a minute.
SELDOM = 100
PAUSE_S_MAX = 60.0
# Queues that are gone through before requests have their turn: half a millisecond.
TURN_QUEUES = 4096


class Now(NamedTuple):
    """When queues were looked at last, by a clock that never leaps, and by the one on the wall."""

    time_ms: int
    wall_ms: int

    def on_wall_ms(self, time_ms: int) -> int:
        """An earlier time by the clock on the wall as that goes now: it may have been set meanwhile."""
        return self.wall_ms - (self.time_ms - time_ms)


class Counts(NamedTuple):
    """What is kept of a queue at one time."""

    ready: int
    unacked: int
    delayed: int
    ack: int
    deliver: int
    deliver_no_ack: int
    get: int
    get_no_ack: int
    publish: int
    redeliver: int

    @classmethod
    def of(cls, row: QueueRow) -> Counts:
        stats = shapes.QUEUE_STATS
        return cls(row.ready, row.unacked, row.delayed, *(stats[name](row) for name in STATS))

    def stats(self) -> dict[str, int]:
        """As in message_stats."""
        taken = self.deliver + self.deliver_no_ack + self.get + self.get_no_ack
        return {**dict(zip(STATS, self[DEPTHS:], strict=True)), "deliver_get": taken, "get_empty": 0}

    def depths(self) -> dict[str, int]:
        return {
            "messages": self.ready + self.unacked,
            "messages_delayed": self.delayed,
            "messages_ready": self.ready,
            "messages_unacknowledged": self.unacked,
        }


WIDTH = len(Counts._fields)
# Depths come first, then what message_stats have.
DEPTHS = Counts._fields.index("ack")
STATS = Counts._fields[DEPTHS:]


class Points:
    """Counts at times, the oldest first; of more than `most` the oldest go."""

    __slots__ = ("most", "times_ms", "values")

    def __init__(self, most: int) -> None:
        self.most = most
        self.times_ms = array("q")
        self.values = array("q")

    def add(self, time_ms: int, counts: Counts) -> None:
        self.times_ms.append(time_ms)
        self.values.extend(counts)
        if len(self.times_ms) > self.most:
            del self.times_ms[0]
            del self.values[:WIDTH]

    def drop_last(self) -> None:
        del self.times_ms[-1]
        del self.values[-WIDTH:]

    def at(self, time_ms: int) -> Counts | None:
        """Those that held at a time; None if that was before the first ones."""
        place = bisect_right(self.times_ms, time_ms) - 1
        return None if place < 0 else Counts._make(self.values[place * WIDTH : (place + 1) * WIDTH])


class QueuePast:
    """The points of one queue."""

    __slots__ = ("coarse", "fine")

    def __init__(self) -> None:
        self.fine = Points(FINE)
        self.coarse = Points(COARSE)

    def add(self, time_ms: int, counts: Counts) -> None:
        self.fine.add(time_ms, counts)
        if is_same_minute(self.coarse.times_ms, time_ms):
            self.coarse.drop_last()
        self.coarse.add(time_ms, counts)

    @property
    def changed_ms(self) -> int:
        return self.fine.times_ms[-1]

    def at(self, time_ms: int) -> Counts | None:
        return self.fine.at(time_ms) or self.coarse.at(time_ms)


def is_same_minute(times_ms: array[int], time_ms: int) -> bool:
    """Whether the last of some times lies in the minute of another."""
    return bool(times_ms) and times_ms[-1] // SLOT_MS == time_ms // SLOT_MS


class HostPast:
    """The ticks of one virtual host, in milliseconds, and its queues as they were at the last one."""

    def __init__(self) -> None:
        self.fine: deque[int] = deque(maxlen=FINE)
        self.coarse: deque[int] = deque(maxlen=COARSE)
        self.rows: dict[Hashable, QueueRow] = {}

    def add(self, time_ms: int) -> None:
        self.fine.append(time_ms)
        if self.coarse and self.coarse[-1] // SLOT_MS == time_ms // SLOT_MS:
            self.coarse.pop()
        self.coarse.append(time_ms)

    def has_begun_anew(self, row: QueueRow, now: Now) -> bool:
        """Whether a queue was declared again after the last tick; `row` is how the queue is `now`."""
        was = self.rows.get(row.name)
        is_later = bool(self.fine) and now.time_ms > self.fine[-1]
        return is_later and was is not None and shapes.has_begun_anew(row, was)

    def ticks(self, now: Now, age_s: float, incr_s: float, most: int) -> list[int]:
        """Newest first, `incr_s` apart, as far back as `age_s`; `now` is one where the last is not new."""
        oldest_ms = now.time_ms - 1000 * age_s
        apart_ms = 1000 * (incr_s - EVERY_S / 2)
        found: list[int] = []
        if not self.fine or now.time_ms - self.fine[-1] >= 1000 * EVERY_S / 2:
            found.append(now.time_ms)
        minutes = (time_ms for time_ms in reversed(self.coarse) if time_ms < self.fine[0])
        for ticks in (reversed(self.fine), minutes):
            for time_ms in ticks:
                if time_ms < oldest_ms or len(found) >= most:
                    return found
                if not found or found[-1] - time_ms >= apart_ms:
                    found.append(time_ms)
        return found


class QueueHistory:
    """The past of all queues."""

    def __init__(
        self, snapshots: Snapshots, hosts: Callable[[], Awaitable[Iterable[str]]], clock: Clock
    ) -> None:
        self.snapshots = snapshots
        self.names_of_hosts = hosts
        self.clock = clock
        self.hosts: dict[str, HostPast] = {}
        # By virtual host and name; the one that has been unchanged longest first.
        self.queues: OrderedDict[tuple[str, str], QueuePast] = OrderedDict()
        self.round_ms = 0  # when the last round over the virtual hosts began
        self.round_before_ms = 0

    async def watch(self) -> None:
        """Looks at the queues for ever."""
        await look_for_ever(self.clock, self.take, "queues")

    async def take(self) -> None:
        """One round: a tick of each virtual host."""
        hosts = await self.names_of_hosts()
        self.round_before_ms, self.round_ms = self.round_ms, self.now_ms()
        for host in hosts:
            snapshot = self.snapshots.queues(host)
            try:
                rows = await snapshot.renewed()
            except ServiceError as error:
                if error.code == amqp.NOT_FOUND:
                    continue  # deleted a moment ago
                raise
            await self.note(host, rows, round(1000 * snapshot.taken_s))
        self.forget_hosts(frozenset(hosts))

    def now_ms(self) -> int:
        return round(1000 * self.clock.monotonic_s())

    def now_of(self, time_s: float) -> Now:
        """The time of a snapshot, which is what there is now."""
        time_ms = round(1000 * time_s)
        return Now(time_ms, self.clock.wall_ms() - (self.now_ms() - time_ms))

    async def note(self, host: str, rows: dict[Hashable, QueueRow], time_ms: int) -> None:
        """Adds points of the queues that have changed; those that are gone are forgotten."""
        past = self.hosts.setdefault(host, HostPast())
        before = past.rows
        before_ms = past.fine[-1] if past.fine else 0
        for number, (name, row) in enumerate(rows.items(), 1):
            was = before.get(name)
            if row is not was:
                self.note_queue((host, str(name)), row, time_ms, was, before_ms)
            if number % TURN_QUEUES == 0:
                await asyncio.sleep(0)
        for key in [key for key in self.queues if key[0] == host and key[1] not in rows]:
            del self.queues[key]
        past.add(time_ms)
        past.rows = rows

    def note_queue(
        self, key: tuple[str, str], row: QueueRow, time_ms: int, was: QueueRow | None, before_ms: int
    ) -> None:
        if was is not None and shapes.has_begun_anew(row, was):
            self.queues.pop(key, None)
            was = None
        counts = Counts.of(row)
        past = self.queues.get(key)
        if past is not None:
            if past.at(time_ms) != counts:
                past.add(time_ms, counts)
                self.queues.move_to_end(key)
            return
        held = None if was is None else Counts.of(was)
        has_changed = held is not None and held != counts
        if len(self.queues) < QUEUES_MAX or (has_changed and self.make_room()):
            past = self.queues[key] = QueuePast()
            if has_changed and held is not None:
                past.add(before_ms, held)
            past.add(time_ms, counts)

    def make_room(self) -> bool:
        """The queue that has been unchanged longest goes, unless it has changed in this round or the last."""
        key, past = next(iter(self.queues.items()))
        if past.changed_ms >= self.round_before_ms:
            return False
        del self.queues[key]
        return True

    def forget_hosts(self, known: frozenset[str]) -> None:
        for gone in self.hosts.keys() - known:
            del self.hosts[gone]
            for key in [key for key in self.queues if key[0] == gone]:
                del self.queues[key]

    def ticks(self, host: str, now: Now, age_s: float, incr_s: float, most: int) -> list[int]:
        """Times that samples of a virtual host's queues are told of."""
        return self.hosts.get(host, HostPast()).ticks(now, age_s, incr_s, most)

    def points(self, host: str, row: QueueRow, now: Now, ticks: list[int]) -> list[tuple[int, Counts]]:
        """The counts of a queue at ticks, with the time on the wall; `row` is how the queue is `now`."""
        past = self.queues.get((host, row.name))
        if past is not None and self.hosts[host].has_begun_anew(row, now):
            past = None
        found: list[tuple[int, Counts]] = []
        for time_ms in ticks:
            if time_ms >= now.time_ms:
                counts: Counts | None = Counts.of(row)
            else:
                counts = None if past is None else past.at(time_ms)
            if counts is None:
                break
            found.append((now.on_wall_ms(time_ms), counts))
        return found


async def look_for_ever(clock: Clock, take: Callable[[], Awaitable[None]], what: str) -> None:
    """Takes one look after the other, with pauses. A link that is lost is told once, until it is back."""
    is_lost = False
    took_before_s = 0.0
    while True:
        began_s = clock.monotonic_s()
        try:
            await take()
            is_lost = False
        except ClientError as error:
            if not is_lost:
                log.error("no look at %s: %s", what, error)
            is_lost = True
        except Exception:
            log.exception("a bug keeps %s from being looked at", what)
        took_s = clock.monotonic_s() - began_s
        # One look that took long on a busy machine makes the next one no later.
        await asyncio.sleep(pause_s(min(took_s, took_before_s)))
        took_before_s = took_s


def pause_s(took_s: float) -> float:
    """Until the next look, by how long one takes."""
    return min(max(EVERY_S, SELDOM * took_s), PAUSE_S_MAX)
