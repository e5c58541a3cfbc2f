"""Lines of the log that no client can forge."""

from __future__ import annotations

import io
import json
import logging
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.config import Log
from flintmq.server.logs.log_lines import JsonLines, LogLines, LogOutput, escaped


def line_of(message: str, *arguments: object, exc_info: object = None) -> str:
    record = logging.LogRecord("flintmq.x", logging.INFO, "", 0, message, arguments, exc_info)  # type: ignore[arg-type]
    return LogLines().format(record)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("orders.größe 1 \\d", "orders.größe 1 \\d"),
        ("a\nb\r\tc", "a\\nb\\r\\tc"),
        ("\x1b[2J\x9b1m\x7f\0", "\\x1b[2J\\x9b1m\\x7f\\x00"),
        ("\u202eevil\u2028", "\\u202eevil\\u2028"),
        ("\udcff", "\\udcff"),
    ],
)
def test_what_does_not_print_is_escaped(text: str, shown: str) -> None:
    assert escaped(text) == shown
    line = line_of("no queue '%s'", text)
    assert line.endswith(f" INFO no queue '{shown}'")
    assert "\n" not in line


def test_a_traceback_is_indented_and_its_text_escaped() -> None:
    try:
        raise ValueError("text of a client\n2026-01-01 00:00:00,000 INFO forged\x1b[0m")
    except ValueError:
        line = line_of("a bug ends it", exc_info=sys.exc_info())
    first, *others = line.split("\n")
    assert first.endswith("INFO a bug ends it")
    assert others[0] == "    Traceback (most recent call last):"
    assert all(other.startswith("    ") for other in others)
    assert others[-1] == "    2026-01-01 00:00:00,000 INFO forged\\x1b[0m"


def json_line(message: str, *arguments: object, exc_info: object = None) -> str:
    record = logging.LogRecord("flintmq.x", logging.WARNING, "", 0, message, arguments, exc_info)  # type: ignore[arg-type]
    return JsonLines().format(record)


@given(st.text(st.characters(exclude_categories=()), max_size=60))
def test_a_line_of_json_is_one_object_that_prints(text: str) -> None:
    line = json_line("no queue '%s'", text)
    assert line.isascii()
    assert line.isprintable()
    found = json.loads(line)
    assert (found["level"], found["logger"]) == ("warning", "flintmq.x")
    assert found["message"] == f"no queue '{text}'"


def test_a_traceback_is_part_of_its_line_of_json() -> None:
    try:
        raise ValueError("text of a client\n\x1b[0m")
    except ValueError:
        line = json_line("a bug ends it", exc_info=sys.exc_info())
    assert "\n" not in line
    assert json.loads(line)["exception"].startswith("Traceback")


def logged(settings: Log, *messages: str) -> LogOutput:
    output = LogOutput(settings)
    for message in messages:
        output.handler.handle(logging.LogRecord("flintmq.x", logging.INFO, "", 0, message, (), None))
    return output


def test_a_log_file_is_set_aside_when_it_is_full(tmp_path: Path) -> None:
    file = tmp_path / "log"
    settings = Log(file=file, rotate_bytes=200, rotate_count=2, format="json")
    logged(settings, *[f"message {number} {'x' * 60}" for number in range(10)])
    assert sorted(each.name for each in tmp_path.iterdir()) == ["log", "log.1", "log.2"]
    assert "message 9" in json.loads(file.read_text())["message"]


def test_a_log_file_without_others_beside_it_begins_anew(tmp_path: Path) -> None:
    file = tmp_path / "log"
    logged(Log(file=file, rotate_bytes=200, rotate_count=0), *["y" * 90] * 10)
    assert file.stat().st_size <= 200
    assert [each.name for each in tmp_path.iterdir()] == ["log"]


def test_a_log_file_is_opened_again(tmp_path: Path) -> None:
    file = tmp_path / "log"
    output = logged(Log(file=file), "before")
    file.rename(tmp_path / "moved")
    assert output.reopen()
    output.handler.handle(logging.LogRecord("flintmq.x", logging.INFO, "", 0, "after", (), None))
    assert "after" in file.read_text()
    assert "before" in (tmp_path / "moved").read_text()
    assert not LogOutput(Log()).reopen()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a file that is always full")
def test_a_log_file_that_cannot_be_written_is_told_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    output = LogOutput(Log(file=Path("/dev/full")))
    log = logging.Logger("full")
    log.addHandler(output.handler)
    for _ in range(3):
        log.error("lost")
    assert capsys.readouterr().err == (
        "flintmq: the log file cannot be written, and lines of it are lost: No space left on device\n"
    )
    output.handler.stream = io.StringIO()
    log.error("written")
    output.handler.stream = output.file
    log.error("lost")
    assert capsys.readouterr().err.count("\n") == 1
    output.handler.stream = io.StringIO()
    log.error("%d", "a bug of ours has its traceback")
    assert "Traceback" in capsys.readouterr().err
