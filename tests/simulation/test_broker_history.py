"""As many histories of a whole broker as the time allows; a failure names its seed and how to see it again.

FLINTMQ_SIMULATION_S says how long; `python -m tests.simulation.run` is for long runs.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress

import pytest

from flintmq.broker.exchanges.delayed_exchange import DelayedExchange
from flintmq.broker.messages.message import Message
from flintmq.broker.services.browsing import grouped
from flintmq.errors import StorageFault, UnreadableFault

from .broker_history import BrokerHistory, run_seed

SEEDS_LEAST = 200
TIME_S = float(os.environ.get("FLINTMQ_SIMULATION_S", "30"))
STEPS = 80


@pytest.mark.timeout(3600)
def test_no_promise_of_the_broker_is_broken() -> None:
    started = time.monotonic()
    seed = lives = 0
    while seed < SEEDS_LEAST or time.monotonic() - started < TIME_S:
        lives += run_seed(seed, STEPS)
        seed += 1
    assert lives > 2 * seed, "hardly anything crashed"


def run_seeds(seeds: range) -> None:
    """Until one fails: which of them comes upon a fault changes with the broker."""
    for seed in seeds:
        run_seed(seed, 40)


def test_the_same_seed_is_the_same_history() -> None:
    def files(seed: int) -> dict[str, bytes]:
        history = BrokerHistory(seed)
        history.run(40)
        return {name: history.disk.content(f"/data/{name}") for name in history.disk.list("/data")}

    first = files(7)
    assert first == files(7)
    assert first != files(8)


def test_power_that_fails_inside_a_delayed_release() -> None:
    """A full queue hands out at once what it gets by that: nobody hears of it, and it is lost nowhere."""
    run_seed(2_083_019, 40)


def test_power_that_tears_the_portions_of_a_large_commit() -> None:
    """The end of the branch was there without what had been handed over before it."""
    run_seed(3_206_959, 80)


def test_power_that_fails_while_a_branch_is_handed_over() -> None:
    """A consumer that waits gets at once what lives for a moment: nobody hears of it."""
    run_seed(20_540, 80)


def test_a_branch_that_is_there_twice_after_damage() -> None:
    """The end of the first of that name was lost: what it had locked was in nobody's hands."""
    run_seed(702_704, 80)


def test_the_expired_of_two_channels_that_come_back() -> None:
    """Those of the first were at the head for a moment, and died; others live behind those of the second."""
    run_seed(23_537, 80)
    run_seed(30_310, 80)


def test_what_expired_behind_the_head_stays_there_when_a_short_message_comes() -> None:
    run_seed(21_014, 80)


def test_a_broker_that_drops_delayed_messages_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = DelayedExchange.send

    def send_some(self: DelayedExchange, entry: int, waited: Message) -> bool:
        return sent(self, entry, waited) if len(waited.content) % 3 else True

    monkeypatch.setattr(DelayedExchange, "send", send_some)
    with pytest.raises(AssertionError, match="is gone"):
        run_seeds(range(3_000_000, 3_000_100))


def test_a_broker_that_drops_them_only_when_the_power_fails_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def let_go_first(self: DelayedExchange, entries: list[int], copies_max: int) -> None:
        store = self.router.store
        try:
            messages = store.load(entries)
        except UnreadableFault:
            self.put_off_all(entries)
            return
        for entry in entries:
            store.settle(self.number, entry)
        with suppress(StorageFault):
            store.journal.commit_now()
        with grouped(self.router):
            while entries:
                self.send(entries.pop(), messages.pop())

    monkeypatch.setattr(DelayedExchange, "release", let_go_first)
    with pytest.raises(AssertionError, match=r"is neither in later nor|of later is lost"):
        run_seeds(range(3_001_500, 3_003_000))


def test_power_that_fails_while_a_virtual_host_is_deleted() -> None:
    """What was let go of its messages may have reached the disk, and that it is being deleted may not."""
    run_seed(902_078, 80)
