"""How many descriptors clients may take, and how many the broker asks for."""

from __future__ import annotations

import os

import pytest

from flintmq.server import descriptors


@pytest.mark.parametrize(
    ("most", "own", "left"),
    [(64, 25, 23), (100, 25, 50), (4096, 25, 3047), (65_536, 25, 64_487), (64, 60, 1)],
)
def test_clients_leave_what_is_open_and_room_for_files(
    most: int, own: int, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(descriptors, "count", lambda: own)
    assert descriptors.left_to_connections(most) == left


def test_descriptors_that_are_open_are_counted() -> None:
    before = descriptors.count()
    if not before:
        pytest.skip("the system does not tell")
    reading, writing = os.pipe()
    assert descriptors.count() == before + 2
    os.close(reading)
    os.close(writing)
