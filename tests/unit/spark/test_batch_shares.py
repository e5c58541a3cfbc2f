"""How much a batch takes, and how it is cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flintmq.spark.feeds.batch_shares import Span, share_bytes, share_rows, split

SPANS = st.lists(st.integers(0, 500), min_size=1, max_size=8).map(
    lambda sizes: [Span(f"q{index}", 7, 7 + size) for index, size in enumerate(sizes)]
)


@given(SPANS, st.integers(1, 2000))
def test_rows_are_shared_and_never_too_many(spans: list[Span], rows_max: int) -> None:
    shared = share_rows(spans, rows_max)
    total = sum(span.rows for span in spans)
    assert sum(span.rows for span in shared) <= min(rows_max, total)
    assert [span.queue for span in shared] == [span.queue for span in spans]
    assert all(
        cut.start == whole.start and cut.end <= whole.end for cut, whole in zip(shared, spans, strict=True)
    )
    waiting = [span for span in spans if span.rows]
    if rows_max >= len(waiting):
        assert all(cut.rows for cut, whole in zip(shared, spans, strict=True) if whole.rows)


@given(SPANS, st.integers(1, 100_000), st.integers(1, 90))
def test_bytes_are_shared_and_something_is_always_taken(spans: list[Span], bytes_max: int, size: int) -> None:
    def bytes_of(queue: str, start: int, end: int) -> int:
        return sum(size + number % 13 for number in range(start, end))

    shared = share_bytes(spans, bytes_max, bytes_of)
    taken = sum(bytes_of(span.queue, span.start, span.end) for span in shared)
    rows = sum(span.rows for span in shared)
    assert taken <= bytes_max or rows == 1
    assert rows or not sum(span.rows for span in spans)


def test_a_limit_of_bytes_is_used_well() -> None:
    def bytes_of(queue: str, start: int, end: int) -> int:
        return 100 * (end - start)

    (cut,) = share_bytes([Span("q", 0, 1_000_000)], 5_000_000, bytes_of)
    assert 46_000 <= cut.rows <= 50_000


@given(SPANS, st.integers(1, 40))
def test_a_split_covers_everything_once(spans: list[Span], count: int) -> None:
    pieces = split(spans, count)
    for span in spans:
        numbers = [
            number
            for piece in pieces
            if piece.queue == span.queue
            for number in range(piece.start, piece.end)
        ]
        assert numbers == list(range(span.start, span.end))
    assert all(piece.rows for piece in pieces)


def test_one_queue_is_split_to_the_number_asked_for() -> None:
    assert [piece.rows for piece in split([Span("q", 0, 10)], 4)] == [2, 3, 2, 3]
    assert split([Span("q", 0, 10)], None) == [Span("q", 0, 10)]
