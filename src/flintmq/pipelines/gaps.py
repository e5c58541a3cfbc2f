"""Dropout measured: the sequence numbers that a feed should have sent and that never came.

Each batch is first made small where it is read: rows become runs of consecutive numbers.

    1 2 3 5 6 6 9   ->   1-3, 5-6, 9-9 (one twice)

Runs of a feed then meet what is known of it: the number expected next, and the holes below it that may
still be filled by rows on other roads. A hole that stays open for longer than the patience is a gap.

| kind | first, last | missing |
|---|---|---|
| gap | the numbers that did not come | how many |
| late | numbers that came after their gap was told, or a second time | 0 |
| restart | the feed began anew with these | 0 |
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas
    import pyarrow
    from pyspark.sql import DataFrame

RUNS_SCHEMA = "feed STRING, first BIGINT, last BIGINT, repeated BIGINT"
GAPS_SCHEMA = "feed STRING, kind STRING, first BIGINT, last BIGINT, missing BIGINT, at TIMESTAMP"
STATE_SCHEMA = "next BIGINT, holes STRING"
PATIENCE_MS = 2_000
# A hole is some 40 octets of state; beyond this many the oldest is told at once.
HOLES_MAX = 10_000
# Told when a feed's numbers begin again at or below this one.
FIRST_NUMBER = 1


@dataclass
class Gap:
    kind: str
    first: int
    last: int

    @property
    def missing(self) -> int:
        return self.last - self.first + 1 if self.kind == "gap" else 0


@dataclass
class FeedState:
    """What is known of one feed. `holes` are [first, last, when it was noticed], by number."""

    next: int | None = None
    holes: list[list[int]] = field(default_factory=list)

    def take(self, runs: Iterable[tuple[int, int, int]], now_ms: int) -> list[Gap]:
        """Runs (first, last, repeated) by number; what has to be told at once."""
        told: list[Gap] = []
        for first, last, repeated in runs:
            if repeated:
                told.append(Gap("late", first, last))
            if self.next is None:
                self.next = last + 1
            elif first >= self.next:
                if first > self.next:
                    self.holes.append([self.next, first - 1, now_ms])
                self.next = last + 1
            elif last < self.next and first <= FIRST_NUMBER and not self._is_open(first):
                told.extend(Gap("gap", hole[0], hole[1]) for hole in self.holes)
                told.append(Gap("restart", first, last))
                self.holes, self.next = [], last + 1
            else:
                told.extend(self._fill(first, min(last, self.next - 1)))
                self.next = max(self.next, last + 1)
        return told

    def _is_open(self, number: int) -> bool:
        return any(first <= number <= last for first, last, _ in self.holes)

    def _fill(self, first: int, last: int) -> list[Gap]:
        """Takes the numbers out of the holes; those that were in none are late."""
        kept: list[list[int]] = []
        filled = 0
        for hole in self.holes:
            low, high = max(first, hole[0]), min(last, hole[1])
            if low > high:
                kept.append(hole)
                continue
            filled += high - low + 1
            if hole[0] < low:
                kept.append([hole[0], low - 1, hole[2]])
            if high < hole[1]:
                kept.append([high + 1, hole[1], hole[2]])
        self.holes = kept
        return [] if filled == last - first + 1 else [Gap("late", first, last)]

    def expire(self, now_ms: int, patience_ms: int) -> list[Gap]:
        """The holes that were open for long enough, or are too many, as gaps."""
        excess = len(self.holes) - HOLES_MAX
        over = [
            place < excess or noticed_ms + patience_ms <= now_ms
            for place, (_, _, noticed_ms) in enumerate(self.holes)
        ]
        told = [
            Gap("gap", hole[0], hole[1]) for hole, is_over in zip(self.holes, over, strict=True) if is_over
        ]
        self.holes = [hole for hole, is_over in zip(self.holes, over, strict=True) if not is_over]
        return told


def runs(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """Rows (feed, sequence) of a task as runs; no Python object is made of a row."""
    import numpy
    import pyarrow

    table = pyarrow.Table.from_batches(list(batches), schema=None) if batches is not None else None
    assert table is not None
    feeds = table.column(0).combine_chunks().dictionary_encode()
    codes = feeds.indices.to_numpy(zero_copy_only=False)
    numbers = table.column(1).to_numpy()
    order = numpy.lexsort((numbers, codes))
    codes, numbers = codes[order], numbers[order]
    steps = numpy.diff(numbers)
    same_feed = numpy.diff(codes) == 0
    starts = numpy.flatnonzero(numpy.concatenate(([True], ~same_feed | (steps > 1))))
    ends: Any = numpy.append(starts[1:], len(numbers)) - 1
    repeated = numpy.concatenate(([0], numpy.cumsum(same_feed & (steps == 0))))
    yield pyarrow.RecordBatch.from_arrays(
        [
            feeds.dictionary.take(pyarrow.array(codes[starts])),
            pyarrow.array(numbers[starts]),
            pyarrow.array(numbers[ends]),
            pyarrow.array(repeated[ends] - repeated[starts]),
        ],
        names=["feed", "first", "last", "repeated"],
    )


def _runs_of_task(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    held = [batch for batch in batches if batch.num_rows]
    if held:
        yield from runs(iter(held))


class FollowFeed:
    """The step of Spark's state for one feed and batch. Pickles: it goes to executors."""

    def __init__(self, patience_ms: int) -> None:
        self.patience_ms = patience_ms

    def __call__(
        self, key: tuple[Any, ...], frames: Iterator[pandas.DataFrame], state: Any
    ) -> Iterator[pandas.DataFrame]:
        import pandas

        known = FeedState()
        if state.exists:
            number, holes = state.get
            known = FeedState(number, json.loads(holes))
        now_ms = state.getCurrentProcessingTimeMs()
        told: list[Gap] = []
        if not state.hasTimedOut:
            rows = pandas.concat(list(frames)).sort_values("first")
            told = known.take(
                zip(rows["first"].tolist(), rows["last"].tolist(), rows["repeated"].tolist(), strict=True),
                now_ms,
            )
        told += known.expire(now_ms, self.patience_ms)
        state.update((known.next, json.dumps(known.holes)))
        if known.holes:
            state.setTimeoutDuration(max(1, known.holes[0][2] + self.patience_ms - now_ms))
        yield pandas.DataFrame(
            {
                "feed": [key[0]] * len(told),
                "kind": [gap.kind for gap in told],
                "first": [gap.first for gap in told],
                "last": [gap.last for gap in told],
                "missing": [gap.missing for gap in told],
                "at": pandas.to_datetime([now_ms] * len(told), unit="ms"),
            }
        )


def gaps(frames: Mapping[str, DataFrame], arguments: Mapping[str, Any]) -> DataFrame:
    """For a pipeline: `arguments` name the columns feed and sequence, and patience_ms."""
    from pyspark.sql.streaming.state import GroupStateTimeout

    (frame,) = frames.values()
    feed, sequence = arguments.get("feed", "feed"), arguments.get("sequence", "seq")
    small = frame.selectExpr(f"CAST({feed} AS STRING) AS feed", f"CAST({sequence} AS BIGINT) AS seq")
    small = small.filter("feed IS NOT NULL AND seq IS NOT NULL")
    return (
        small.mapInArrow(_runs_of_task, RUNS_SCHEMA)
        .groupBy("feed")
        .applyInPandasWithState(
            FollowFeed(int(arguments.get("patience_ms", PATIENCE_MS))),
            GAPS_SCHEMA,
            STATE_SCHEMA,
            "append",
            GroupStateTimeout.ProcessingTimeTimeout,
        )
    )
