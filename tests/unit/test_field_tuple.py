"""A tuple whose values have names."""

from __future__ import annotations

import copy
import pickle

import pytest

from flintmq.field_tuple import FieldTuple


class Point(FieldTuple):
    x: int
    y: int = 2
    label: str = ""

    @property
    def sum(self) -> int:
        return self.x + self.y


class Place(Point):
    """Has the fields of its base."""


def test_values_are_given_by_place_and_by_name() -> None:
    assert Point(1, 3, "a") == Point(label="a", y=3, x=1) == (1, 3, "a")
    assert Point(1) == Point(x=1) == (1, 2, "")
    assert (Point(5).x, Point(5).y, Point(5).label, Point(5).sum) == (5, 2, "", 7)
    assert Point._fields == ("x", "y", "label")
    assert Point._field_defaults == {"y": 2, "label": ""}


def test_a_class_without_fields_of_its_own_has_those_of_its_base() -> None:
    assert Place(1, label="b") == (1, 2, "b")
    assert repr(Place(1)) == "Place(x=1, y=2, label='')"


def test_a_copy_is_equal_and_of_the_same_class() -> None:
    for copied in (copy.copy, copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))):
        found = copied(Point(1, 3, "a"))
        assert found == Point(1, 3, "a")
        assert type(found) is Point
    assert Point(1)._replace(y=9) == (1, 9, "")
    assert hash(Point(1)) == hash(Point(1, 2))


def test_what_cannot_be_changed_or_is_not_there_is_refused() -> None:
    with pytest.raises(AttributeError):
        Point(1).x = 2  # type: ignore[misc]
    with pytest.raises(TypeError, match="Point lacks x"):
        Point(y=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="Point has no z"):
        Point(1, z=1)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="longer"):
        Point(1, 2, "", 4)  # type: ignore[call-arg]
