"""A little of what tools/fuzz_logins.py does for hours, so that it stays able to."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

TOOLS = str(Path(__file__).resolve().parent.parent.parent / "tools")
if TOOLS not in sys.path:
    sys.path.insert(0, TOOLS)

import fuzz_logins  # noqa: E402 - found in tools/


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_hostile_logins_end_in_refusals_and_nothing_else(tmp_path: Path) -> None:
    fuzzer = fuzz_logins.LoginFuzzer(1, tmp_path)
    for _ in range(600):
        fuzzer.log_in()
    # It got somewhere: by each mechanism some were let in, and some were not.
    assert set(fuzzer.let_in) == {*fuzz_logins.NAMES, "token"}
    assert set(fuzzer.refused) == set(fuzz_logins.NAMES)


def test_it_finds_a_proof_that_is_taken_for_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flintmq.scram.ServerExchange.is_proven", lambda self, keys: True)
    monkeypatch.setattr(fuzz_logins, "NAMES", ("SCRAM-SHA-256",))
    monkeypatch.setattr(fuzz_logins, "CHANGED", 0.3)
    fuzzer = fuzz_logins.LoginFuzzer(1, tmp_path)
    with pytest.raises(AssertionError, match="came in by SCRAM"):
        goes_on(fuzzer)


def goes_on(fuzzer: fuzz_logins.LoginFuzzer) -> None:
    for _ in range(600):
        fuzzer.log_in()
