"""Streams, leases and looks into queues of the async client: typed calls of the broker's services."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from flintmq.client.core import services
from flintmq.client.core.services import Glance, Leased, Offsets
from flintmq.wire.columns import Columns

if TYPE_CHECKING:
    from flintmq.client.aio.connection import Connection

FETCH_BYTES = 4_194_304


class Stream:
    """A stream queue, read by offset without disturbing anyone. To consume it, use Channel.consume with
    the argument x-stream-offset."""

    def __init__(self, connection: Connection, name: str) -> None:
        self.connection = connection
        self.name = name

    async def offsets(self, beyond: int | None = None, wait_s: float = 0.0) -> Offsets:
        """First and end offset; with `beyond` waits up to `wait_s` until the end is past it.

        The answer has `timeout_s` of the settings besides.
        """
        ask = services.stream_offsets(self.name, beyond, int(wait_s * 1000))
        return await self.connection.ask(ask, wait_s + self.connection.settings.timeout_s)

    async def offset_for_time(self, time_ms: int) -> int:
        """The offset of the first message that came at this time (ms since 1970) or later."""
        return await self.connection.ask(services.stream_offset_for_time(self.name, time_ms))

    async def bytes(self, start: int, end: int) -> int:
        """About how many octets offsets start..end-1 take."""
        return await self.connection.ask(services.stream_bytes(self.name, start, end))

    async def fetch(
        self,
        start: int,
        end: int,
        *,
        bytes_max: int = FETCH_BYTES,
        columns: tuple[str, ...] | None = None,
        creation_id: str = "",
    ) -> Columns:
        """Messages of offsets start..end-1, as many as fit `bytes_max`; `next_offset` goes on from there.

        With the creation id of `offsets` it is refused where the stream was made again since.
        """
        ask = services.stream_fetch(self.name, start, end, bytes_max, columns, creation_id)
        return await self.connection.ask(ask)


class Browser:
    """The messages that wait in a queue, looked at where they are: nothing is taken, nothing is marked."""

    def __init__(self, connection: Connection, queue: str) -> None:
        self.connection = connection
        self.queue = queue

    async def peek(
        self,
        *,
        after: int | None = None,
        limit: int = 100,
        selector: str = "",
        contains: str = "",
        bytes_max: int = FETCH_BYTES,
        columns: tuple[str, ...] | None = None,
    ) -> Glance:
        """One look, at a part of a long queue: go on `after` the `last` place while there is `more`."""
        ask = services.queue_peek(self.queue, after, limit, selector, contains, bytes_max, columns)
        return await self.connection.ask(ask)

    async def search(
        self, *, selector: str = "", contains: str = "", columns: tuple[str, ...] | None = None
    ) -> AsyncIterator[dict[str, Any]]:
        """All messages that fit, row by row, look after look to the end of the queue."""
        after: int | None = None
        while True:
            glance = await self.peek(after=after, selector=selector, contains=contains, columns=columns)
            for row in glance.columns.rows():
                yield row
            if not glance.more:
                return
            after = glance.last


class Lease:
    """Batches of a queue for one consumer name: fixed once taken, until acked or expired.

    The first `take` claims the name: whoever read under it before is refused from then on.
    """

    def __init__(self, connection: Connection, queue: str, consumer: str) -> None:
        self.connection = connection
        self.queue = queue
        self.consumer = consumer
        self.epoch = 0  # that of the claim

    async def take(
        self,
        start: int | None = None,
        *,
        rows_max: int = 100_000,
        bytes_max: int = 67_108_864,
        timeout_s: float = 60.0,
        wait_s: float = 0.0,
    ) -> Leased:
        """Leases what follows `start`, or the last ack; the same batch again if it was taken before.

        Waits up to `wait_s` for messages; the answer has `timeout_s` of the settings besides.
        """
        ask = services.queue_lease(
            self.queue,
            self.consumer,
            self.epoch,
            start,
            rows_max,
            bytes_max,
            int(timeout_s * 1000),
            int(wait_s * 1000),
        )
        leased = await self.connection.ask(ask, wait_s + self.connection.settings.timeout_s)
        self.epoch = leased.epoch
        return leased

    async def read(
        self,
        start: int,
        end: int,
        *,
        epoch: int | None = None,
        bytes_max: int = FETCH_BYTES,
        columns: tuple[str, ...] | None = None,
    ) -> Columns:
        """Messages (start, end] of the lease, as many as fit; go on after `next_offset - 1`."""
        chosen = self.epoch if epoch is None else epoch
        ask = services.lease_read(self.queue, self.consumer, chosen, start, end, bytes_max, columns)
        return await self.connection.ask(ask)

    async def ack(self, end: int, *, epoch: int | None = None) -> int:
        """All up to `end` are done with; how many that were."""
        chosen = self.epoch if epoch is None else epoch
        return await self.connection.ask(services.lease_ack(self.queue, self.consumer, chosen, end))

    async def renew(self, timeout_s: float = 60.0) -> None:
        """The lease holds so long from now on."""
        ask = services.lease_renew(self.queue, self.consumer, self.epoch, int(timeout_s * 1000))
        await self.connection.ask(ask)

    async def release(self) -> int:
        """Gives what is not acked back to the queue; how many messages that were. `take` claims anew."""
        epoch, self.epoch = self.epoch, 0
        return await self.connection.ask(services.lease_release(self.queue, self.consumer, epoch))
