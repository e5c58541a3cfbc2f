"""Lines of the log that no client can forge."""

from __future__ import annotations

import logging
import sys

import pytest

from flintmq.server.log_lines import LogLines, escaped


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
