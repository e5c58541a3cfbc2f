"""Distributed transactions of the sync client: branches of one channel, and commits of many at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flintmq.client.core import dtx
from flintmq.client.core.dtx import Committed, InDoubt, Xid

if TYPE_CHECKING:
    from flintmq.client.sync.channel import Channel


class Branches:
    """What a channel can do with branches. A call whose answer is lost is not repeated: `recover` tells."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self._core = channel.core
        self._connection = channel.connection

    def start(self, xid: Xid, *, join: bool = False, resume: bool = False) -> None:
        """What the channel publishes and settles from now on belongs to the branch."""
        self._connection.run(lambda: dtx.start(self._core, xid, join, resume), repeat=False)

    def end(self, xid: Xid, *, fail: bool = False, suspend: bool = False) -> None:
        """The channel's work for the branch is done (or failed, or suspended)."""
        self._connection.run(lambda: dtx.end(self._core, xid, fail, suspend), repeat=False)

    def prepare(self, xid: Xid) -> bool:
        """The branch is safe on disk when it returns; False if there was nothing in it."""
        return self._connection.run(lambda: dtx.prepare(self._core, xid), repeat=False)

    def commit(self, xid: Xid, *, one_phase: bool = False) -> None:
        self._connection.run(lambda: dtx.commit(self._core, xid, one_phase), repeat=False)

    def rollback(self, xid: Xid) -> None:
        self._connection.run(lambda: dtx.rollback(self._core, xid), repeat=False)

    def forget(self, xid: Xid) -> None:
        """Drops the record of a branch that an operator completed."""
        self._connection.run(lambda: dtx.forget(self._core, xid), repeat=False)

    def set_timeout(self, xid: Xid, timeout_s: int) -> None:
        """An unprepared branch is rolled back after so long."""
        self._connection.run(lambda: dtx.set_timeout(self._core, xid, timeout_s), repeat=False)

    def recover(self) -> list[InDoubt]:
        """The branches that wait for their commit or rollback."""
        return self._connection.run(lambda: dtx.recover(self._core))

    def commit_many(
        self,
        xids: Sequence[Xid],
        *,
        rollback: Sequence[Xid] = (),
        marker: str = "",
        marker_number: int = 0,
    ) -> Committed:
        """Commits prepared branches, all or none; with a marker only once, however often it is asked."""
        return self._connection.ask(dtx.commit_many(xids, rollback, marker, marker_number))

    def rollback_many(self, xids: Sequence[Xid]) -> None:
        self._connection.ask(dtx.rollback_many(xids))

    def marker_number(self, marker: str) -> int | None:
        """The highest number that was committed under the marker; None for none."""
        return self._connection.ask(dtx.marker_number(marker))
