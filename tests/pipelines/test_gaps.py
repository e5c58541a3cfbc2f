"""What is told of a feed's numbers, however they come in batches."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flintmq.pipelines.gaps import FeedState, Gap


def as_runs(numbers: list[int]) -> list[tuple[int, int, int]]:
    made: list[list[int]] = []
    for number in sorted(numbers):
        if made and number - made[-1][1] <= 1:
            made[-1][2] += number == made[-1][1]
            made[-1][1] = number
        else:
            made.append([number, number, 0])
    return [(first, last, repeated) for first, last, repeated in made]


def told(batches: list[list[int]], patience_ms: int = 0) -> list[Gap]:
    state, found = FeedState(), []
    for now_ms, batch in enumerate(batches):
        found += state.take(as_runs(batch), now_ms) + state.expire(now_ms, patience_ms)
    return found + state.expire(1 << 40, patience_ms)


def test_gaps() -> None:
    assert told([[1, 2, 5], [6, 9]]) == [Gap("gap", 3, 4), Gap("gap", 7, 8)]
    assert told([[5, 6], [7]]) == [], "what came before the first is not known"


def test_patience() -> None:
    assert told([[1, 5], [2, 3, 4], [6]], patience_ms=2) == [], "it came in time, by another road"
    assert told([[1, 5], [3]], patience_ms=2) == [Gap("gap", 2, 2), Gap("gap", 4, 4)]
    assert told([[1, 5], [6], [7], [3]], patience_ms=1) == [Gap("gap", 2, 4), Gap("late", 3, 3)]


def test_repeats_and_restarts() -> None:
    assert told([[1, 2, 2, 3]]) == [Gap("late", 1, 3)]
    assert told([[1, 2, 3], [2]]) == [Gap("late", 2, 2)]
    assert told([[7, 8, 9], [1, 2], [3, 5]]) == [Gap("restart", 1, 2), Gap("gap", 4, 4)]


@given(st.sets(st.integers(2, 60), min_size=1), st.randoms(use_true_random=False), st.integers(1, 7))
def test_gaps_are_what_never_came(came: set[int], chance: object, size: int) -> None:
    numbers = sorted(came)
    chance.shuffle(numbers)  # type: ignore[attr-defined]
    first, last = min(came), max(came)
    batches = [[first], *(numbers[at : at + size] for at in range(0, len(numbers), size))]
    found = [gap for gap in told(batches, patience_ms=1000) if gap.kind == "gap"]
    missed = sorted(number for gap in found for number in range(gap.first, gap.last + 1))
    assert missed == sorted(set(range(first, last + 1)) - came)
    assert sum(gap.missing for gap in found) == len(missed)


def test_runs_of_a_task() -> None:
    import pyarrow

    from flintmq.pipelines.gaps import runs

    feeds, numbers = ["b", "a", "a", "b", "a", "a"], [7, 1, 2, 8, 2, 5]
    batches = [
        pyarrow.RecordBatch.from_arrays(
            [pyarrow.array(feeds[at:end]), pyarrow.array(numbers[at:end])], names=["f", "n"]
        )
        for at, end in ((0, 4), (4, 6))
    ]
    (made,) = runs(iter(batches))
    rows = sorted(zip(*(made.column(place).to_pylist() for place in range(4)), strict=True))
    assert rows == [("a", 1, 2, 1), ("a", 5, 5, 0), ("b", 7, 8, 0)]
