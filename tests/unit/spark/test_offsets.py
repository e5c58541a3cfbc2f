"""The offsets of a query, above all those of its first batch."""

from __future__ import annotations

import pytest

from flintmq.spark.errors import AmqpError
from flintmq.spark.feeds.offsets import Progress, Report, lag, metrics


def test_the_end_of_the_first_batch_says_where_it_began() -> None:
    initial = Progress.of({"initial": "latest"})
    end = initial.follow({"ticks": 120}, {"ticks": 100}, None, {})
    again = Progress.of(end.json())
    # A new process that replays the batch has a symbolic start and this end, and nothing else.
    assert Progress.of({"initial": "latest"}).begin_of("ticks", again) == 100
    assert end.json() == {"queues": {"ticks": {"0": 120}}, "start": {"ticks": {"0": 100}}}


def test_later_batches_begin_where_the_last_one_ended() -> None:
    first = Progress.of({"queues": {"ticks": {"0": 120}}, "start": {"ticks": {"0": 100}}})
    second = first.follow({"ticks": 150}, {}, None, {})
    assert first.begin_of("ticks", second) == 120
    assert second.json() == {"queues": {"ticks": {"0": 150}}}


def test_a_queue_that_a_pattern_finds_later_carries_its_start() -> None:
    first = Progress.of({"queues": {"a": {"0": 5}}})
    end = first.follow({"a": 6, "b": 30}, {"b": 10}, "spark-1", {})
    assert Progress.of(end.json()).consumer == "spark-1"
    assert first.begin_of("b", end) == 10
    assert first.begin_of("a", end) == 5


def test_what_retention_took_is_skipped_in_the_replay_too() -> None:
    start = Progress.of({"queues": {"a": {"0": 5}}})
    end = start.follow({"a": 40}, {"a": 30}, None, {})
    assert start.begin_of("a", Progress.of(end.json())) == 30


@pytest.mark.parametrize(
    "given", [{}, {"queues": 3}, {"queues": {"a": {"1": 2}}}, {"queues": {"a": {"0": "x"}}}]
)
def test_an_offset_of_another_source_is_told(given: dict[str, object]) -> None:
    with pytest.raises(AmqpError, match="checkpoint"):
        Progress.of(given)


def test_lag_of_a_progress_report() -> None:
    source = {
        "endOffset": '{"queues": {"a": {"0": 5}}}',
        "latestOffset": {"queues": {"a": {"0": 9}}},
    }
    assert lag(source) == {"a": 4}
    assert lag({"endOffset": None, "latestOffset": None}) == {}


def test_ids_of_queues_are_carried_along() -> None:
    first = Progress.of({"queues": {"a": {"0": 5}}})
    assert first.ids == {}  # of an older version
    end = first.follow({"a": 6}, {}, None, {"a": "01", "b": "02"})
    assert end.json()["ids"] == {"a": "01", "b": "02"}
    assert Progress.of(end.json()) == end
    assert end.follow({"a": 7}, {"a": 0}, None, {"a": "03"}).ids == {"a": "03", "b": "02"}


def test_metrics_of_a_progress_report() -> None:
    report = Report({"a": 9}, {"rows": 5, "retries": 1}).json()
    source = {"endOffset": '{"queues": {"a": {"0": 5}}}', "latestOffset": report}
    assert metrics(source) == {"rows": 5, "retries": 1, "lag": 4}
    assert metrics({"endOffset": None, "latestOffset": None}) == {"lag": 0}
