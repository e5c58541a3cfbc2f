"""A tally counts items, and is as small as its content allows."""

from __future__ import annotations

import pytest

from flintmq.broker.matching import counted_set as tally


def test_one_item_is_its_own_tally() -> None:
    item = object()
    assert tally.add(None, item) is item
    assert tally.remove(item, item) is None


def test_counts_repeated_items() -> None:
    item = object()
    twice = tally.add(tally.add(None, item), item)
    assert tally.size(twice) == 1
    once = tally.remove(twice, item)
    assert once is item


def test_shrinks_to_the_last_item() -> None:
    first, second = object(), object()
    both = tally.add(tally.add(None, first), second)
    assert tally.size(both) == 2
    assert tally.remove(both, first) is second


def test_a_last_item_added_twice_keeps_its_count() -> None:
    first, second = object(), object()
    left = tally.remove(tally.add(tally.add(tally.add(None, first), second), second), first)
    assert tally.size(left) == 1
    assert tally.remove(left, second) is second


def test_collects_in_the_order_of_adding() -> None:
    items = [object() for _ in range(5)]
    counted = None
    for item in items:
        counted = tally.add(counted, item)
    found: dict[object, object] = {}
    tally.collect(counted, found)
    assert list(found) == items
    assert tally.size(None) == 0
    tally.collect(None, found)
    assert list(found) == items


def test_removing_what_was_never_added_is_an_error() -> None:
    item = object()
    for counted in (None, object(), {object(): 1, object(): 1}):
        with pytest.raises(KeyError):
            tally.remove(counted, item)
