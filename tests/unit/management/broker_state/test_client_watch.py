"""Looks at clients: which one a rate is counted from, and since when a consumer waits for its own acks."""

from __future__ import annotations

from typing import Any

from flintmq.clock import Clock
from flintmq.management.broker_state.client_watch import ClientWatch, Past
from flintmq.snapshot_rows import ChannelRow, ConsumerRow

CHANNEL = ChannelRow._make([7, 1, "/", "guest", 1, 2, 0, 2, 0, False, False, True, 5, "q", *[0] * 11])
CONSUMER = ConsumerRow(7, 1, "/", "guest", "tag", "q", False, False, 2, 2, b"", True, 0, 5)
KEY = (7, 1, "tag")


class Stepped(Clock):
    now_s = 1000.0

    def monotonic_s(self) -> float:
        return self.now_s


def watch() -> tuple[ClientWatch, Stepped]:
    nobody: Any = None
    clock = Stepped()
    return ClientWatch(nobody, nobody, nobody, clock), clock


def look(watching: ClientWatch, consumer: ConsumerRow, channel: ChannelRow) -> float:
    """How long the consumer has waited, after a look."""
    watching.note_waits({KEY: consumer}, {(7, 1): channel})
    return watching.waited_s(KEY, consumer, channel)


def test_a_rate_is_counted_from_the_last_look_that_is_not_too_near() -> None:
    past: Past[int] = Past()
    assert past.before(100.0) is None
    past.add(100.0, {"a": 1})
    assert past.before(101.0) is None
    assert past.before(102.5) == (2.5, {"a": 1})
    past.add(105.0, {"a": 2})
    assert past.before(106.0) == (6.0, {"a": 1})
    assert past.before(108.0) == (3.0, {"a": 2})


def test_looks_too_near_to_each_other_and_rows_never_taken_are_not_kept() -> None:
    past: Past[int] = Past(10.0)
    past.add(-1e9, {})
    assert past.before(100.0) is None
    past.add(100.0, {"a": 1})
    past.add(100.0, {"a": 1})
    past.add(109.0, {"a": 2})
    past.add(110.0, {"a": 3})
    assert past.before(110.0) == (10.0, {"a": 1})
    assert past.before(120.0) == (10.0, {"a": 3})


def test_a_consumer_waits_as_long_as_it_holds_the_same_and_acks_nothing() -> None:
    watching, clock = watch()
    assert look(watching, CONSUMER, CHANNEL) == 0
    clock.now_s += 5
    assert look(watching, CONSUMER, CHANNEL) == 5
    clock.now_s += 20
    assert look(watching, CONSUMER, CHANNEL) == 25
    # What is asked for between two looks counts: it has acked meanwhile.
    acked = CHANNEL._replace(acks=1)
    assert watching.waited_s(KEY, CONSUMER._replace(oldest_unacked=6), acked) == 0
    assert watching.waited_s(KEY, CONSUMER._replace(unacked=1, oldest_unacked=0), CHANNEL) == 0
    assert look(watching, CONSUMER._replace(oldest_unacked=6), acked) == 0
    watching.note_waits({}, {})
    assert watching.waits == {}


def test_a_message_that_was_forgotten_holds_back_nobody_who_acks_others() -> None:
    watching, clock = watch()
    look(watching, CONSUMER, CHANNEL)
    clock.now_s += 30
    assert look(watching, CONSUMER, CHANNEL._replace(acks=100)) == 0


def test_nobody_is_told_to_ack_nothing_on_a_shared_channel_that_acks() -> None:
    """Nobody can tell which of its consumers it was."""
    watching, clock = watch()
    shared = CHANNEL._replace(consumers=2)
    look(watching, CONSUMER, shared)
    clock.now_s += 30
    assert watching.waited_s(KEY, CONSUMER, shared._replace(acks=179)) == 0
    assert look(watching, CONSUMER, shared._replace(acks=179)) == 0
    clock.now_s += 30
    assert look(watching, CONSUMER, shared._replace(acks=179)) == 30


def test_the_prefetch_of_a_channel_holds_its_consumers_back() -> None:
    watching, clock = watch()
    unlimited = CONSUMER._replace(prefetch_count=0, oldest_unacked=0)
    look(watching, unlimited, CHANNEL)
    clock.now_s += 5
    assert look(watching, unlimited, CHANNEL) == 0
    limited = CHANNEL._replace(global_prefetch_count=2)
    look(watching, unlimited, limited)
    clock.now_s += 5
    assert look(watching, unlimited, limited) == 5
    # One without acks takes whatever comes.
    assert look(watching, CONSUMER._replace(no_ack=True), limited) == 0
