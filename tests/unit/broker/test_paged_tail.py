"""The numbers of entries that lie on disk only: their order, and what they take in memory."""

from __future__ import annotations

import tracemalloc

from flintmq.broker.queues.paged_tail import RUN_ENTRIES, PagedTail

TAILS = 1000
# Of one without an entry, of which there is one for each durable queue.
EMPTY_BYTES_MAX = 200


def test_an_empty_tail_takes_little_memory() -> None:
    tracemalloc.start()
    try:
        tails = [PagedTail() for _ in range(TAILS)]
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(tails) == TAILS
    assert used / TAILS < EMPTY_BYTES_MAX


def test_entries_of_many_runs_come_in_their_order() -> None:
    tail = PagedTail()
    entries = range(1, 3 * RUN_ENTRIES + 10)
    for entry in entries:
        tail.push(entry)
    first = tail.take(RUN_ENTRIES + 5)
    tail.put_back(first[-10:])
    taken = first[:-10]
    while portion := tail.take(1000):
        taken += portion
    assert taken == list(entries)
    assert tail.count == 0


def test_what_is_put_back_in_large_portions_comes_first() -> None:
    tail = PagedTail()
    tail.push(1)
    tail.put_back(list(range(2, 2 + RUN_ENTRIES)))
    assert tail.take(3) == [2, 3, 4]
    assert list(tail)[-2:] == [RUN_ENTRIES + 1, 1]
