"""How far recovery has come is told where it takes long, and only there."""

from __future__ import annotations

import logging

import pytest

from flintmq.server.data_directory import Progress

# Recovery reads twice: the two passes over one segment, which even an empty journal has.
ONE_SEGMENT = 2 * 33_554_432


@pytest.mark.parametrize(("total", "lines"), [(ONE_SEGMENT, 0), (1 << 30, 10)])
def test_progress_is_told_of_large_journals_alone(
    total: int, lines: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    progress = Progress()
    for step in range(1, 101):
        progress.tell(total * step // 100, total)
    assert len(caplog.records) == lines
