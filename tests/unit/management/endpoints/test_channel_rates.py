"""Rates of channels, from what was counted at an earlier look."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from types import SimpleNamespace
from typing import Any

from flintmq.management.broker_state.client_watch import Past
from flintmq.management.endpoints.queues_and_connections import channel_rows
from flintmq.snapshot_rows import ChannelRow

OPENED = ChannelRow._make([7, 1, "/", "guest", 0, 0, 0, 0, 0, False, False, True, 0, "", *[0] * 11])


def rate_of_publishes(now: ChannelRow, *, earlier: ChannelRow) -> float:
    """As a list tells it five seconds after the earlier look."""

    async def current(rows: dict[Hashable, Any]) -> dict[Hashable, Any]:
        return rows

    past: Past[ChannelRow] = Past()
    past.add(100.0, {(7, 1): earlier})
    snapshots = SimpleNamespace(
        channels=SimpleNamespace(taken_s=105.0, current=lambda: current({(7, 1): now})),
        connections=SimpleNamespace(current=lambda: current({})),
    )
    context = SimpleNamespace(snapshots=snapshots, client_watch=SimpleNamespace(channels=past), node="node")
    call: Any = SimpleNamespace(context=context, identity=SimpleNamespace(sees_all=True))
    listing = asyncio.run(channel_rows(call, None))
    (row,) = listing.rows
    return float(listing.shape(row)["message_stats"]["publish_details"]["rate"])


def test_publishes_are_counted_from_the_earlier_look() -> None:
    assert rate_of_publishes(OPENED._replace(publishes=30), earlier=OPENED._replace(publishes=20)) == 2.0


def test_a_number_that_was_used_again_counts_from_0() -> None:
    """A client opens a channel for each request: the one before had the same number."""
    assert rate_of_publishes(OPENED._replace(publishes=10), earlier=OPENED._replace(publishes=500)) == 2.0
    # The new channel has published more already, and acked less.
    before = OPENED._replace(publishes=5, acks=9)
    assert rate_of_publishes(OPENED._replace(publishes=10), earlier=before) == 2.0
