"""The collector of garbage of a broker: how much it looks at in one go."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from flintmq.server.process.lifecycle import collect_in_rounds


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_rounds_are_small_where_somebody_sends_little() -> None:
    collect_in_rounds(False)
    alone = gc.get_threshold()
    collect_in_rounds(True)
    waited = gc.get_threshold()
    assert waited[0] * 10 == alone[0]
    # What has stayed is looked at again as seldom as before: that takes long.
    assert waited[0] * waited[1] == alone[0] * alone[1]
