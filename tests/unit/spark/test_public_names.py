"""What programs import from flintmq.spark is there: the names are looked up only when they are asked for."""

from __future__ import annotations

import pytest

import flintmq.spark


@pytest.mark.parametrize("name", flintmq.spark.__all__)
def test_each_name_is_found(name: str) -> None:
    assert callable(getattr(flintmq.spark, name))


def test_other_names_are_not() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = flintmq.spark.no_such_name
