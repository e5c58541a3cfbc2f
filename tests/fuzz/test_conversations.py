"""A little of what tools/fuzz.py does for hours, so that it stays able to."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

TOOLS = str(Path(__file__).resolve().parent.parent.parent / "tools")
if TOOLS not in sys.path:
    sys.path.insert(0, TOOLS)

import fuzz  # noqa: E402 - found in tools/

FRAMES = 10_000


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_hostile_conversations_end_in_faults_and_nothing_else(seed: int) -> None:
    fuzzer = fuzz.Fuzzer(seed)
    while fuzzer.frames < FRAMES:
        fuzzer.converse()
    # It got somewhere: clients were closed for many reasons, and channels too.
    assert len(fuzzer.faults) > 5


def test_a_seed_is_the_same_conversation_each_time() -> None:
    told = []
    for _ in range(2):
        fuzzer = fuzz.Fuzzer(7)
        for _ in range(3):
            fuzzer.converse()
        told.append((fuzzer.frames, dict(fuzzer.faults), fuzzer.said))
    assert told[0] == told[1]


def test_it_finds_what_is_not_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception of the broker ends the run with status 1."""

    def broken(self: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(fuzz.House, "finish_pass", broken)
    monkeypatch.setattr(sys, "argv", ["fuzz", "--frames", "100"])
    assert fuzz.main() == 1
