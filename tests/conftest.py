"""What holds for every test: the build it runs on, and that a busy machine fails none."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

import flintmq
from flintmq.build import build

# A deadline for each example measures how busy the machine is; the timeout of a test catches what hangs.
hypothesis.settings.register_profile("flintmq", deadline=None, print_blob=True)
hypothesis.settings.load_profile("flintmq")

SOURCES = Path(__file__).resolve().parent.parent / "src"


def build_mismatch(expected: str, running: str, package: Path) -> str | None:
    """Why the tests would not test the `expected` build; None if they would."""
    if expected not in ("compiled", "pure"):
        return f"FLINTMQ_EXPECT_BUILD={expected}: expected compiled or pure"
    if running != expected:
        return f"the tests should run on the {expected} build, but {package} is the {running} one"
    if expected == "compiled" and package.is_relative_to(SOURCES):
        return f"machine code lies in {package}; remove it and install the package instead"
    return None


def pytest_sessionstart(session: pytest.Session) -> None:
    expected = os.environ.get("FLINTMQ_EXPECT_BUILD")
    if expected is not None:
        reason = build_mismatch(expected, build(), Path(flintmq.__file__).resolve().parent)
        if reason is not None:
            pytest.exit(reason, returncode=pytest.ExitCode.USAGE_ERROR)


class LeftOpen(logging.Handler):
    """Hears of groups of the journal that a pass has found open, which a broker closes and goes on."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.heard: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if "was left open" in record.getMessage():
            self.heard.append(record.getMessage())


@pytest.fixture(autouse=True)
def groups_left_open() -> Iterator[list[str]]:
    """Fails a test in whose process a group was left open; one that wants that clears the list."""
    handler = LeftOpen()
    logger = logging.getLogger("flintmq.store")
    logger.addHandler(handler)
    yield handler.heard
    logger.removeHandler(handler)
    assert not handler.heard


def logging_now() -> dict[str, object]:
    """How the loggers that tests listen to are set."""
    found: dict[str, object] = {"logging.disable": logging.root.manager.disable}
    for name, logger in [("root", logging.root), *logging.root.manager.loggerDict.items()]:
        is_ours = name == "root" or name.partition(".")[0] == "flintmq"
        if is_ours and isinstance(logger, logging.Logger):
            found[name] = logger.level, logger.propagate, logger.disabled, frozenset(logger.handlers)
    return found


# As a logger is that has not been asked for before.
UNTOUCHED = (logging.NOTSET, True, False, frozenset[logging.Handler]())


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """Fails a test that leaves logging changed: the next one would not hear what it waits for."""
    before = logging_now()
    yield
    after = logging_now()
    changed = {name: found for name, found in after.items() if found != before.get(name, UNTOUCHED)}
    assert not changed
