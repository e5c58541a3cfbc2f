"""Heartbeats as a client sees them: frames come at least twice in an interval, over several of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise

import pytest
from live.serving import Serving
from peer import Gone, Peer

from flintmq.wire import amqp, methods

INTERVAL_S = 2
WATCHED_S = 5.0
# What the machine may be late by, with other tests on it.
LATE_S = 0.5


@pytest.fixture(scope="module")
def serving() -> Iterator[Serving]:
    serving = Serving()
    try:
        yield serving
    finally:
        assert serving.stop() == 0


def arrivals(peer: Peer) -> list[float]:
    """When frames came, from now until the time is over; the first of them is now."""
    times = [time.monotonic()]
    while times[-1] - times[0] < WATCHED_S:
        peer.next_frame()
        times.append(time.monotonic())
        peer.frame(amqp.FRAME_HEARTBEAT, 0)
    return times


def listen(peer: Peer) -> None:
    """For ever, without a word."""
    while True:
        peer.next_frame()


def longest_gap_s(times: list[float]) -> float:
    return max(later - earlier for earlier, later in pairwise(times))


def test_an_idle_connection_hears_something_twice_in_an_interval(serving: Serving) -> None:
    with Peer.connect(serving.port, heartbeat_s=INTERVAL_S) as peer:
        times = arrivals(peer)
        assert longest_gap_s(times) <= INTERVAL_S / 2 + LATE_S
        # Lateness does not add up.
        assert len(times) - 1 >= WATCHED_S / (INTERVAL_S / 2) - 1


def test_an_answer_does_not_put_off_the_next_heartbeat(serving: Serving) -> None:
    """A frame sent right after a heartbeat leaves half an interval until the next."""
    with Peer.connect(serving.port, heartbeat_s=INTERVAL_S) as peer:
        peer.open(1)
        times = [time.monotonic()]
        while times[-1] - times[0] < WATCHED_S:
            if peer.next_frame().kind == amqp.FRAME_HEARTBEAT:
                peer.send(1, methods.ChannelFlow(active=True))
            times.append(time.monotonic())
        assert longest_gap_s(times) <= INTERVAL_S / 2 + LATE_S


def test_a_peer_that_says_nothing_is_dropped(serving: Serving) -> None:
    with Peer.connect(serving.port, heartbeat_s=1) as peer:
        began = time.monotonic()
        with pytest.raises(Gone):
            listen(peer)
        assert 2 <= time.monotonic() - began <= 3 + 10 * LATE_S
