"""Stream logs on a disk that tears, rots, fills and fails."""

from __future__ import annotations

import pytest

from .stream_history import run_seed

SEEDS = 400
PORTION = 100


@pytest.mark.parametrize("first", range(0, SEEDS, PORTION))
def test_promises_hold(first: int) -> None:
    assert sum(run_seed(seed) for seed in range(first, first + PORTION)) > PORTION
