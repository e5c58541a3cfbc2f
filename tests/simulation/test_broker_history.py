"""As many histories of a whole broker as the time allows; a failure names its seed and how to see it again.

FLINTMQ_SIMULATION_S says how long; `python -m tests.simulation.run` is for long runs.
"""

from __future__ import annotations

import os
import time

import pytest

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


def test_the_same_seed_is_the_same_history() -> None:
    def files(seed: int) -> dict[str, bytes]:
        history = BrokerHistory(seed)
        history.run(40)
        return {name: history.disk.content(f"/data/{name}") for name in history.disk.list("/data")}

    first = files(7)
    assert first == files(7)
    assert first != files(8)
