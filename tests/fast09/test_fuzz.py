"""A little of what tools/fuzz_fast09.py does for hours, so that it stays able to."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

TOOLS = str(Path(__file__).resolve().parent.parent.parent / "tools")
if TOOLS not in sys.path:
    sys.path.insert(0, TOOLS)

import fuzz_fast  # noqa: E402 - found in tools/
import fuzz_fast09  # noqa: E402

METHODS = 2000


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", [1, 2])
def test_hostile_conversations_end_in_faults_and_nothing_else(seed: int) -> None:
    fuzzer = fuzz_fast09.Fuzzer(seed)
    while fuzzer.commands < METHODS:
        fuzzer.converse()
    # It got somewhere: messages were delivered, and channels closed for many reasons.
    assert len(fuzzer.faults) > 5
    assert fuzzer.heard["jms.deliver"] > 10
    assert fuzzer.heard["channel.synch"] > 3


def test_it_finds_what_is_not_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception of the broker ends the run with status 1."""

    def broken(self: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(fuzz_fast.House, "finish_pass", broken)
    monkeypatch.setattr(sys, "argv", ["fuzz_fast09", "--commands", "100"])
    assert fuzz_fast.main(fuzz_fast09.Fuzzer) == 1
