"""A directory against a sorted list."""

from __future__ import annotations

import random

import pytest

from flintmq import ordered_names
from flintmq.ordered_names import OrderedNames


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordered_names, "PART_ITEMS_MAX", 8)


@pytest.mark.parametrize("seed", range(20))
def test_is_like_a_sorted_set(seed: int) -> None:
    chance = random.Random(seed)
    names: OrderedNames[str] = OrderedNames()
    model: set[str] = set()
    for _ in range(800):
        name = f"{chance.randrange(200):03}"
        if chance.random() < 0.55:
            names.add(name)
            model.add(name)
        else:
            names.discard(name)
            model.discard(name)
        assert list(names) == sorted(model)
        assert len(names) == len(model)
        assert names.ends == [part[-1] for part in names.parts]
        assert all(0 < len(part) <= 8 for part in names.parts)
        place = f"{chance.randrange(220):03}"
        assert list(names.after(place)) == sorted(each for each in model if each > place)
    assert list(names.after(None)) == sorted(model)
    walked: list[str] = []
    while portion := names.portion(walked[-1] if walked else None, 5):
        assert len(portion) <= 5
        walked += portion
    assert walked == sorted(model)


def test_items_have_places() -> None:
    items: OrderedNames[tuple[int, str]] = OrderedNames(lambda item: item[0])
    for number in range(100):
        items.add((number, "x"))
    items.discard((50, "another"))
    assert [number for number, _ in items.after(48)][:3] == [49, 51, 52]


def test_what_comes_in_order_fills_parts_whole() -> None:
    numbers: OrderedNames[int] = OrderedNames()
    for number in range(80):
        numbers.add(number)
    assert [len(part) for part in numbers.parts] == [8] * 10


def test_what_comes_in_order_is_appended() -> None:
    appended: OrderedNames[int] = OrderedNames()
    added: OrderedNames[int] = OrderedNames()
    for number in range(5000):
        appended.append(number)
        added.add(number)
    assert list(appended) == list(added) == list(range(5000))
    assert list(appended.after(2999)) == list(range(3000, 5000))
    appended.discard(4999)
    appended.append(5001)
    assert list(appended.after(4997)) == [4998, 5001]
