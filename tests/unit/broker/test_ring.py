"""The ring, compared with a deque."""

from __future__ import annotations

import gc
import random
from collections import deque

import pytest

from flintmq.broker.queues.ring import Ring


@pytest.mark.parametrize("seed", range(5))
def test_it_behaves_like_a_deque(seed: int) -> None:
    chance = random.Random(seed)
    ring, model = Ring(), deque[int | None]()
    for step in range(20_000):
        # Long tides, so that it grows, wraps and empties.
        rising = (step // 2500) % 2 == 0
        what = chance.random()
        if what < (0.7 if rising else 0.2):
            ring.push(step)
            model.append(step)
        elif what < 0.9 and model:
            assert ring.pop() == model.popleft()
        elif model:
            index = chance.randrange(len(model))
            assert ring.at(index) == model[index]
            ring.replace(index, None)
            model[index] = None
        assert ring.count == len(model)
    assert [ring.pop() for _ in range(ring.count)] == list(model)


def test_a_large_ring_may_be_emptied_and_used_again() -> None:
    ring = Ring()
    for _ in range(3):
        for item in range(10_000):
            ring.push(item)
        assert ring.count == 10_000
        assert [ring.pop() for _ in range(10_000)] == list(range(10_000))
        assert ring.count == 0


@pytest.mark.parametrize("seed", range(3))
def test_a_long_one_behaves_like_a_deque(seed: int) -> None:
    """What does not fit in the list lies in blocks, from which both ends are taken."""
    chance = random.Random(seed)
    ring, model = Ring(), deque[int | None]()
    for step in range(60):
        for item in range(chance.choice((0, 1, 900, 1024, 5000, 9000))):
            ring.push(item)
            model.append(item)
        for _ in range(min(len(model), chance.choice((0, 1, 1023, 8191, 8192, 12_000)))):
            assert ring.pop() == model.popleft()
        for _ in range(min(len(model), chance.choice((0, 1, 1024, 3000)))):
            assert ring.pop_last() == model.pop()
        for _ in range(50 if model else 0):
            index = chance.randrange(len(model))
            assert ring.at(index) == model[index]
            ring.replace(index, -step)
            model[index] = -step
        assert ring.count == len(model)
    assert [ring.at(index) for index in range(ring.count)] == list(model)
    assert [ring.pop() for _ in range(ring.count)] == list(model)


def test_nothing_of_a_long_one_is_moved_in_one_go() -> None:
    """To copy a list of half a million, and have the collector look at all of it anew, is milliseconds."""
    ring = Ring()
    for _ in range(500_000):
        ring.push(None)
    lists = [each for each in gc.get_referents(ring) if type(each) is list]
    lists += [each for part in lists for each in part if type(each) is list]
    assert sum(map(len, lists)) > 500_000
    assert max(map(len, lists)) <= 8192


def test_clear() -> None:
    ring = Ring()
    for item in range(100):
        ring.push(item)
    ring.clear()
    assert ring.count == 0
    ring.push("x")
    assert ring.at(0) == ring.pop() == "x"
