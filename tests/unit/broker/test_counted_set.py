"""A counted set counts items, and is as small as its content allows."""

from __future__ import annotations

import pytest

from flintmq.broker.matching import counted_set


def test_one_item_is_its_own_counted_set() -> None:
    item = object()
    assert counted_set.add(None, item) is item
    assert counted_set.remove(item, item) is None


def test_counts_repeated_items() -> None:
    item = object()
    twice = counted_set.add(counted_set.add(None, item), item)
    assert counted_set.size(twice) == 1
    once = counted_set.remove(twice, item)
    assert once is item


def test_shrinks_to_the_last_item() -> None:
    first, second = object(), object()
    both = counted_set.add(counted_set.add(None, first), second)
    assert counted_set.size(both) == 2
    assert counted_set.remove(both, first) is second


def test_a_last_item_added_twice_keeps_its_count() -> None:
    first, second = object(), object()
    left = counted_set.remove(
        counted_set.add(counted_set.add(counted_set.add(None, first), second), second), first
    )
    assert counted_set.size(left) == 1
    assert counted_set.remove(left, second) is second


def test_collects_in_the_order_of_adding() -> None:
    items = [object() for _ in range(5)]
    counted = None
    for item in items:
        counted = counted_set.add(counted, item)
    found: dict[object, object] = {}
    counted_set.collect(counted, found)
    assert list(found) == items
    assert counted_set.size(None) == 0
    counted_set.collect(None, found)
    assert list(found) == items


def test_removing_what_was_never_added_is_an_error() -> None:
    item = object()
    for counted in (None, object(), {object(): 1, object(): 1}):
        with pytest.raises(KeyError):
            counted_set.remove(counted, item)
