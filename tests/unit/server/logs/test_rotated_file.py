"""A rotated file that somebody moves away, or that cannot be opened again: no line, no older file is lost."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TextIO

import pytest

from flintmq.clock import Clock
from flintmq.config import Audit
from flintmq.server.logs.audit_log import ADMINISTRATION, AuditLog
from flintmq.server.logs.rotated_file import NotSetAside, RotatedFile

LINE = "x" * 9 + "\n"
FULL = LINE * 5


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "broker.log"
    for number in (1, 2):
        path.with_name(f"broker.log.{number}").write_text(f"older {number}\n")
    return path


def full(path: Path, count: int = 3) -> RotatedFile:
    """A file in which there is no room for one more line."""
    file = RotatedFile(path, len(FULL), count)
    file.write(FULL)
    file.flush()
    return file


def kept(path: Path) -> dict[str, str]:
    return {each.name: each.read_text() for each in path.parent.iterdir()}


OLDER = {"broker.log.1": "older 1\n", "broker.log.2": "older 2\n"}
SHIFTED = {"broker.log.1": FULL, "broker.log.2": "older 1\n", "broker.log.3": "older 2\n"}


@pytest.mark.parametrize("count", [0, 3])
def test_a_file_that_was_moved_away_begins_anew_and_older_ones_stay(path: Path, count: int) -> None:
    file = full(path, count)
    path.rename(path.with_name("moved"))
    for _ in range(4):
        file.write(LINE)
    file.close()
    assert kept(path) == {**OLDER, "moved": FULL, "broker.log": LINE * 4}


def test_a_file_that_somebody_has_put_in_its_place_is_not_set_aside(path: Path) -> None:
    file = full(path)
    path.rename(path.with_name("moved"))
    path.write_text("new\n")
    file.write(LINE)
    file.close()
    assert kept(path) == {**OLDER, "moved": FULL, "broker.log": "new\n" + LINE}


def fail_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening fails the next time, as it does when the process has too many files."""
    opened = RotatedFile.opened
    faults = [OSError(24, "Too many open files")]

    def failing(self: RotatedFile, flags: int = 0) -> TextIO:
        if faults:
            raise faults.pop()
        return opened(self, flags)

    monkeypatch.setattr(RotatedFile, "opened", failing)


def test_an_open_that_fails_once_loses_no_line_and_no_older_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = full(path)
    fail_once(monkeypatch)
    with pytest.raises(NotSetAside):
        file.write("kept\n")
    for _ in range(4):
        file.write(LINE)
    file.close()
    assert kept(path) == {**SHIFTED, "broker.log.1": FULL + "kept\n", "broker.log": LINE * 4}


def test_a_file_that_cannot_be_moved_goes_on_and_older_ones_stay(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = full(path)
    replace = os.replace

    def refused(source: Path, target: Path) -> None:
        if source == path:
            raise PermissionError(1, "Operation not permitted")
        replace(source, target)

    monkeypatch.setattr(os, "replace", refused)
    for _ in range(6):
        with pytest.raises(NotSetAside):
            file.write(LINE)
    file.close()
    older = {"broker.log.2": "older 1\n", "broker.log.3": "older 2\n"}
    assert kept(path) == {**older, "broker.log": FULL + LINE * 6}


def test_the_audit_log_counts_no_line_as_lost_that_is_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "audit.log"
    audit = AuditLog(Audit(file=file, rotate_bytes=1000, rotate_count=9), Clock())
    fail_once(monkeypatch)
    for number in range(20):
        audit.note(ADMINISTRATION, "user.add", True, subject=str(number))
    audit.close()
    lines = [json.loads(line) for text in kept(file).values() for line in text.splitlines()]
    assert sorted(int(line["subject"]) for line in lines) == list(range(20))
    assert "the audit log cannot be set aside" in caplog.text


def test_a_fifo_that_nobody_reads_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "log"
    file = RotatedFile(path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(OSError, match="No such device or address"):
        file.reopen()
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    file.reopen()
    assert os.get_blocking(file.stream.fileno())
    file.write("a line\n")
    file.flush()
    assert os.read(reader, 100) == b"a line\n"
    os.close(reader)
    file.close()
