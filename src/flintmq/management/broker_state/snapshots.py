"""What is known of queues, connections and all else: rows of the broker, taken in portions, and kept a while.

As long as there is little, each request takes a new snapshot, which costs the broker some milliseconds at
most. Where that takes longer, what is known is told at once while a new snapshot is on its way, and no more
than a tenth of the time goes into taking snapshots. Of queues, of which there may be 100,000, the broker
tells those alone that have changed since the snapshot before. Of queues two earlier snapshots are kept for
rates; rates of the rest come from looks of the process itself (client_watch.py).
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

from flintmq.client.core.errors import ClientError, ServiceError
from flintmq.clock import Clock
from flintmq.management.broker_state.broker_link import BrokerLink
from flintmq.snapshot_rows import (
    BindingRow,
    ChannelRow,
    ConnectionRow,
    ConsumerRow,
    ExchangeRow,
    OctetsRow,
    QueueRow,
    rows_in,
)
from flintmq.wire import amqp

log = logging.getLogger("flintmq.management")

# Rows that are asked for at a time, which take the broker about a millisecond. After the first few portions
# the broker has a pause between two.
PORTION = 512
PORTIONS_AT_ONCE = 4
PAUSE_S = 0.003
# A snapshot that took longer is not taken for each request.
QUICK_S = 0.05
# Asked for again within this time, a quick one is told again.
SAME_S = 0.05
# A slow one is taken so many times as seldom as it takes long.
SELDOM = 10
# Rates are those since the older one of two earlier snapshots, which are at least this far apart.
APART_S = 5.0

Row = TypeVar("Row")


class Snapshot(Generic[Row]):
    """All rows of one kind, by what identifies each."""

    def __init__(
        self,
        link: BrokerLink,
        clock: Clock,
        kind: str,
        make: Callable[[Any], Row],
        key: Callable[[Row], Hashable] | None,
        virtual_host: str = "",
    ) -> None:
        self.link = link
        self.clock = clock
        self.kind = kind
        self.make = make
        self.key = key
        self.virtual_host = virtual_host
        self.rows: dict[Hashable, Row] = {}
        self.taken_s = -1e9
        self.took_s = 0.0
        # Changes over HTTP are numbered: the last one, the last that the snapshot under way sees, and the
        # last that the rows have.
        self.change = 1
        self.change_begun = 0
        self.change_shown = 0
        self.taking: asyncio.Task[None] | None = None
        self.following: asyncio.Task[None] | None = None  # begins when `taking` is done
        self.failure: ClientError | None = None

    @property
    def is_stale(self) -> bool:
        """Whether something was changed since the rows were taken."""
        return self.change_shown != self.change

    @property
    def is_on_its_way(self) -> bool:
        return self.following is not None or (self.taking is not None and not self.taking.done())

    async def current(self) -> dict[Hashable, Row]:
        """The rows as they are now, or were a moment ago."""
        now_s = self.clock.monotonic_s()
        age_s = now_s - self.taken_s
        if age_s < SAME_S and not self.is_stale:
            return self.rows
        if self.took_s > QUICK_S and not self.is_stale:
            if age_s > SELDOM * self.took_s:
                self.begin()
            return self.rows
        return await self.renewed()

    async def renewed(self) -> dict[Hashable, Row]:
        """The rows of a new snapshot, or of the one that is on its way."""
        await asyncio.shield(self.begin())
        if self.failure is not None:
            raise self.failure
        return self.rows

    def begin(self) -> asyncio.Task[None]:
        """A new snapshot, unless one is on its way that has begun since the last change."""
        if self.following is not None:
            return self.following
        if self.taking is None or self.taking.done():
            self.change_begun = self.change
            self.taking = asyncio.get_running_loop().create_task(self.take())
        elif self.change_begun != self.change:
            self.following = asyncio.get_running_loop().create_task(self.take_after(self.taking))
            return self.following
        return self.taking

    async def take_after(self, earlier: asyncio.Task[None]) -> None:
        await asyncio.wait([earlier])
        self.taking, self.following = self.following, None
        self.change_begun = self.change
        await self.take()

    async def gather(self) -> dict[Hashable, Row]:
        """All rows, portion by portion."""
        rows: dict[Hashable, Row] = {}
        arguments: dict[str, Any] = {"kind": self.kind, "limit": PORTION}
        if self.virtual_host:
            arguments["virtual-host"] = self.virtual_host
        while True:
            reply = await self.link.ask("management.snapshot", arguments, place=self.link.watch)
            for values in rows_in(reply.body):
                row = self.make(values)
                key = len(rows) if self.key is None else self.key(row)
                known = self.rows.get(key)
                # Who keeps earlier rows keeps those of idle clients once.
                rows[key] = known if known == row and known is not None else row
            if "next" not in reply.results:
                return rows
            arguments["after"] = reply.results["next"]
            if len(rows) >= PORTIONS_AT_ONCE * PORTION:
                await asyncio.sleep(PAUSE_S)

    async def take(self) -> None:
        began_s = self.clock.monotonic_s()
        try:
            rows = await self.gather()
        except ServiceError as error:
            if error.code != amqp.NOT_FOUND:
                log.error("a snapshot of %s failed: %s", self.kind, error)
            self.failure = error
            self.change_shown = 0
            return
        except ClientError as error:
            log.error("a snapshot of %s failed: %s", self.kind, error)
            self.failure = error
            self.change_shown = 0
            return
        self.failure = None
        now_s = self.clock.monotonic_s()
        self.replaced()
        self.rows = rows
        self.change_shown = self.change_begun
        self.taken_s = now_s
        self.took_s = now_s - began_s

    def replaced(self) -> None:
        """New rows are about to take the place of those that there are."""

    def changed(self) -> None:
        """Whoever asks from now on gets a new one."""
        self.change += 1


class QueueSnapshot(Snapshot[QueueRow]):
    """The queues of a virtual host. After the first time the broker is asked for those that have changed."""

    def __init__(self, link: BrokerLink, clock: Clock, virtual_host: str) -> None:
        super().__init__(link, clock, "queues", QueueRow._make, lambda row: row.name, virtual_host)
        self.names: list[str] = []  # of `rows`, in order
        self.since = 0  # the pass in which the last snapshot began; 0: there is none
        # Earlier ones: the time, and the rows.
        self.older: tuple[float, dict[Hashable, QueueRow]] | None = None
        self.oldest: tuple[float, dict[Hashable, QueueRow]] | None = None

    def replaced(self) -> None:
        if self.taken_s > 0 and (self.older is None or self.taken_s - self.older[0] >= APART_S):
            self.oldest, self.older = self.older, (self.taken_s, self.rows)

    def earlier(self) -> tuple[float, dict[Hashable, QueueRow]] | None:
        """The time and the rows that rates are counted from."""
        for chosen in (self.older, self.oldest):
            if chosen is not None and self.taken_s - chosen[0] >= APART_S / 5:
                return chosen
        return None

    async def gather(self) -> dict[Hashable, QueueRow]:
        rows: dict[Hashable, QueueRow] = dict(self.rows) if self.since else {}
        names = self.names if self.since else []
        is_same = bool(self.since)  # no queue has come or gone
        began, after, portions = 0, "", 0
        until: str | None = ""
        while until is not None:
            found, until, changed = await self.portion(after, self.since)
            began = began or found["pass"]
            if gone := {name for name in found.get("gone", ()) if name in rows}:
                is_same = False
                names = [name for name in names if name not in gone]
                for name in gone:
                    del rows[name]
            new = sum(row.name not in rows for row in changed)
            is_same = is_same and not new
            if self.since and len(between(names, after, until)) + new != found["count"]:
                # One more is gone: the whole portion tells which.
                is_same = False
                _, until, changed = await self.portion(after, 0)
                for name in between(names, after, until):
                    rows.pop(name, None)
            rows.update((row.name, row) for row in changed)
            after = until or ""
            portions += 1
            if portions > PORTIONS_AT_ONCE:
                await asyncio.sleep(PAUSE_S)
        if not is_same:
            rows = dict(sorted(rows.items()))
            self.names = [str(name) for name in rows]
        self.since = began
        return rows

    async def portion(self, after: str, since: int) -> tuple[dict[str, Any], str | None, list[QueueRow]]:
        """What the broker says of a portion, where that ends, and rows of some of its queues."""
        arguments: dict[str, Any] = {"virtual-host": self.virtual_host, "since": since, "after": after}
        reply = await self.link.ask("management.changed-queues", arguments, place=self.link.watch)
        found: dict[str, Any] = reply.results
        return found, found.get("next"), [QueueRow._make(values) for values in rows_in(reply.body)]


def between(names: list[str], after: str, until: str | None) -> list[str]:
    """Of names in order those behind `after`, up to `until`."""
    end = len(names) if until is None else bisect_right(names, until)
    return names[bisect_right(names, after) if after else 0 : end]


class Snapshots:
    """The snapshots of all kinds; those of virtual hosts come when they are asked for, and go unasked for."""

    def __init__(self, link: BrokerLink, clock: Clock) -> None:
        self.link = link
        self.clock = clock
        self.of_hosts: dict[tuple[str, str], Snapshot[Any]] = {}
        self.connections: Snapshot[ConnectionRow] = Snapshot(
            link, clock, "connections", ConnectionRow._make, lambda row: row.number
        )
        self.octets: Snapshot[OctetsRow] = Snapshot(
            link, clock, "octets", OctetsRow._make, lambda row: row.number
        )
        self.channels: Snapshot[ChannelRow] = Snapshot(
            link, clock, "channels", ChannelRow._make, lambda row: (row.connection, row.number)
        )
        self.consumers: Snapshot[ConsumerRow] = Snapshot(
            link, clock, "consumers", ConsumerRow._make, lambda row: (row.connection, row.channel, row.tag)
        )

    def queues(self, virtual_host: str) -> QueueSnapshot:
        found = self.of_host("queues", virtual_host)
        assert isinstance(found, QueueSnapshot)
        return found

    def exchanges(self, virtual_host: str) -> Snapshot[ExchangeRow]:
        return self.of_host("exchanges", virtual_host)

    def bindings(self, virtual_host: str) -> Snapshot[BindingRow]:
        return self.of_host("bindings", virtual_host)

    def of_host(self, kind: str, virtual_host: str) -> Snapshot[Any]:
        found = self.of_hosts.get((kind, virtual_host))
        if found is None:
            self.forget_failed()
            found = self.of_hosts[kind, virtual_host] = self.made(kind, virtual_host)
        return found

    def made(self, kind: str, virtual_host: str) -> Snapshot[Any]:
        if kind == "queues":
            return QueueSnapshot(self.link, self.clock, virtual_host)
        if kind == "exchanges":
            name: Callable[[ExchangeRow], Hashable] = lambda row: row.name  # noqa: E731
            return Snapshot(self.link, self.clock, kind, ExchangeRow._make, name, virtual_host)
        return Snapshot(self.link, self.clock, kind, BindingRow._make, None, virtual_host)

    def forget_failed(self) -> None:
        """Who may see all virtual hosts may ask for any name, of which most are none."""
        for key, snapshot in list(self.of_hosts.items()):
            if snapshot.failure is not None and snapshot.taken_s < 0 and not snapshot.is_on_its_way:
                del self.of_hosts[key]

    def changed(self, of_messages: bool) -> None:
        """Something was changed over HTTP: whoever asks next is to see it. Of messages alone slow snapshots
        are told as they are."""
        for snapshot in (*self.of_hosts.values(), self.connections, self.channels, self.consumers):
            if not of_messages or snapshot.took_s <= QUICK_S:
                snapshot.changed()

    def forget_hosts(self, known: frozenset[str]) -> None:
        for kind, virtual_host in list(self.of_hosts):
            if virtual_host not in known:
                del self.of_hosts[kind, virtual_host]
