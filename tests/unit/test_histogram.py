"""Counts of values in buckets."""

from __future__ import annotations

from flintmq.histogram import Histogram


def test_a_value_is_in_the_first_bucket_that_holds_it() -> None:
    histogram = Histogram(100, 2, 3)
    for value_us in (-5, 0, 100, 101, 200, 400, 401, 10**12):
        histogram.note(value_us)
    bounds, counts, sum_us = histogram.told()
    assert bounds == [100, 200, 400]
    assert counts == [3, 2, 1, 2]
    assert sum_us == 100 + 101 + 200 + 400 + 401 + 10**12
