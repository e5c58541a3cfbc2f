"""Connections, channels, consumers and exchanges over time: looks by the clock of this process, whoever asks.

Rates are counted from a look some seconds ago to what is known now. So the first who asks is told of rates,
and two tools that ask do not disturb each other. A look asks the broker for counts alone; those of clients
that are idle are kept once for all looks.

    looks     |     |     |     |        every five seconds, less often where a look takes long
    a rate          *-----------+*       from a look to now, half of that time apart or more

A look also tells since when a consumer whose prefetch is full has acked nothing.
"""

from __future__ import annotations

import marshal
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from typing import Generic, NamedTuple, TypeVar

from flintmq.clock import Clock
from flintmq.management.broker_state.broker_link import BrokerLink, unless_gone
from flintmq.management.broker_state.queue_history import look_for_ever
from flintmq.management.broker_state.samples import EVERY_S
from flintmq.management.broker_state.snapshots import Snapshots
from flintmq.snapshot_rows import ChannelRow, ConsumerRow, OctetsRow
from flintmq.wire.tables import FieldTable

# The last look may be too near to count a rate from: then the one before it tells.
LOOKS = 2

Row = TypeVar("Row")


class Past(Generic[Row]):
    """Rows of the last looks, by what identifies each, with the times of the looks.

    Looks are `apart_s` apart or more: once there are two, one of them is so much older than whatever follows.
    """

    def __init__(self, apart_s: float = EVERY_S / 2) -> None:
        self.apart_s = apart_s
        self.looks: deque[tuple[float, Mapping[Hashable, Row]]] = deque(maxlen=LOOKS)

    def add(self, time_s: float, rows: Mapping[Hashable, Row]) -> None:
        """Keeps rows of a time, unless they were never taken (before 0), or too near to the last look."""
        if time_s >= 0 and (not self.looks or time_s - self.looks[-1][0] >= self.apart_s):
            self.looks.append((time_s, rows))

    def before(self, time_s: float) -> tuple[float, Mapping[Hashable, Row]] | None:
        """The look that rows of a time are compared with: how many seconds before it was, and its rows."""
        for then_s, rows in reversed(self.looks):
            if time_s - then_s >= self.apart_s:
                return time_s - then_s, rows
        return None


class Passed(NamedTuple):
    """Messages through the exchanges of a virtual host, by name: in and out."""

    time_s: float
    counts: dict[str, tuple[int, int]]


class Wait(NamedTuple):
    """What a consumer with a full prefetch looked like, and since when."""

    oldest_unacked: int
    acks: int
    since_s: float


class ClientWatch:
    """The looks."""

    def __init__(
        self,
        link: BrokerLink,
        snapshots: Snapshots,
        hosts: Callable[[], Awaitable[Iterable[str]]],
        clock: Clock,
    ) -> None:
        self.link = link
        self.snapshots = snapshots
        self.names_of_hosts = hosts
        self.clock = clock
        self.octets: Past[OctetsRow] = Past()
        self.channels: Past[ChannelRow] = Past()
        self.exchanges: Past[Passed] = Past()  # by virtual host
        self.waits: dict[Hashable, Wait] = {}

    async def watch(self) -> None:
        """Looks for ever."""
        await look_for_ever(self.clock, self.take, "clients")

    async def take(self) -> None:
        """One look."""
        snapshots = self.snapshots
        octets = await snapshots.octets.renewed()
        self.octets.add(snapshots.octets.taken_s, octets)
        channels = await snapshots.channels.renewed()
        self.channels.add(snapshots.channels.taken_s, channels)
        self.note_waits(await snapshots.consumers.renewed(), channels)
        began_s = self.clock.monotonic_s()
        exchanges: dict[Hashable, Passed] = {}
        for host in await self.names_of_hosts():
            with unless_gone():
                exchanges[host] = await self.passed(host)
        self.exchanges.add(began_s, exchanges)

    async def passed(self, host: str) -> Passed:
        """Messages through each exchange of a virtual host now."""
        asked: FieldTable = {"virtual-host": host}
        reply = await self.link.ask("management.exchange-counts", asked, place=self.link.watch)
        return Passed(self.clock.monotonic_s(), marshal.loads(reply.body))

    def passed_before(self, host: str, now: Passed) -> tuple[float, dict[str, tuple[int, int]]] | None:
        """How many seconds before `now` the counts are that rates are counted from, and these counts."""
        before = self.exchanges.before(now.time_s)
        if before is None:
            return None
        seconds, hosts = before
        then = hosts.get(host)  # a virtual host that was not there yet had counted nothing
        return (seconds, {}) if then is None else (now.time_s - then.time_s, then.counts)

    def note_waits(
        self, consumers: Mapping[Hashable, ConsumerRow], channels: Mapping[Hashable, ChannelRow]
    ) -> None:
        """Consumers that hold what they held at the look before have waited since then, or longer."""
        now_s = self.clock.monotonic_s()
        found: dict[Hashable, Wait] = {}
        for key, row in consumers.items():
            channel = channels.get((row.connection, row.channel))
            if channel is None or not is_full(row, channel):
                continue
            # On a channel with other consumers nobody can tell whose messages were acked: none of them waits.
            wait = Wait(row.oldest_unacked, channel.acks, now_s)
            known = self.waits.get(key)
            found[key] = known if known is not None and known[:2] == wait[:2] else wait
        self.waits = found

    def waited_s(self, key: Hashable, row: ConsumerRow, channel: ChannelRow | None) -> float:
        """For how long a consumer has waited for its own acks, as it is now; 0 for one that does not."""
        wait = self.waits.get(key)
        if wait is None or channel is None or not is_full(row, channel):
            return 0.0
        if (wait.oldest_unacked, wait.acks) != (row.oldest_unacked, channel.acks):
            return 0.0
        return self.clock.monotonic_s() - wait.since_s


def is_full(row: ConsumerRow, channel: ChannelRow) -> bool:
    """Whether a consumer may take nothing before something is acked."""
    if row.no_ack:
        return False
    if row.prefetch_count and row.unacked >= row.prefetch_count:
        return True
    return bool(channel.global_prefetch_count) and channel.unacked >= channel.global_prefetch_count
