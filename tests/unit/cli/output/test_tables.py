"""Tables, amounts, questions and progress of the commands."""

from __future__ import annotations

import argparse
import io
import sys

import pytest

from flintmq.cli.operating import top
from flintmq.cli.output import tables
from flintmq.cli.output.statuses import CommandFault
from flintmq.clock import Clock


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_numbers_are_on_the_right_and_text_on_the_left() -> None:
    rows = [{"name": "a", "count": 5, "on": True}, {"name": "long name", "count": 1234, "on": False}]
    assert list(tables.lines_of(rows, ("name", "count", "on"), None)) == [
        "name       count  on",
        "a              5  yes",
        "long name   1234  -",
    ]


def test_wide_letters_take_two_cells() -> None:
    rows = [{"name": "队列", "count": 5}, {"name": "orders", "count": 12}, {"name": "e\u0301te", "count": 1}]
    assert list(tables.lines_of(rows, ("name", "count"), None)) == [
        "name    count",
        "队列        5",
        "orders     12",
        "e\u0301te         1",
    ]
    assert tables.fitted("队列队列", 6, right=False) == "队列… "


def test_a_table_fits_the_terminal() -> None:
    rows = [{"name": "n" * 50, "count": 12345678, "text": "t" * 30}]
    for width in (40, 60, 80):
        lines = list(tables.lines_of(rows, ("name", "count", "text"), width))
        assert max(map(len, lines)) <= width
        assert "12345678" in lines[1]  # numbers are never cut
    assert list(tables.lines_of(rows, ("name",), None))[1] == "n" * 50


def test_a_picture_of_top_fits_the_terminal() -> None:
    info = {"version": "1", "uptime-ms": 5, "virtual-host": "/", "connections": 1, "channels": 1}
    info |= {"consumers": 1, "memory-bytes": 1, "memory-bytes-high": 2}
    row = {"consumers": 0, "messages-unacked": 0}
    before = {**row, "name": "q" * 90, "messages-entered": 10, "messages-ready": 5}
    after = {**row, "name": "q" * 90, "messages-entered": 30, "messages-ready": 15}
    rows = [top.rated(after, before, 2.0)] * 30
    assert (rows[0]["in_rate"], rows[0]["out_rate"]) == (10.0, 5.0)
    lines = list(top.screen(info, rows, "in_rate", 60, 24))
    assert len(lines) == 24
    assert max(map(len, lines)) <= 60
    assert lines[-1] == "and 14 more"


def test_top_shows_what_waits_for_a_retry_where_something_does() -> None:
    info = {"version": "1", "uptime-ms": 5, "virtual-host": "/", "connections": 1, "channels": 1}
    info |= {"consumers": 1, "memory-bytes": 1, "memory-bytes-high": 2}
    told = {"name": "q", "consumers": 0, "messages-unacked": 0, "messages-entered": 9, "messages-ready": 9}
    waits = {**told, "messages-ready": 2, "messages-delayed": 7}
    for row, is_shown in ((told, False), (waits, True)):
        lines = list(top.screen(info, [top.rated(row, told, 2.0)], "in_rate", 120, 24))
        assert f"delayed {7 if is_shown else 0}" in lines[3]
        assert "out 0/s" in lines[3]  # what waits has not gone
        assert ("delayed" in lines[-2]) is is_shown


def test_top_shows_long_queues_before_empty_ones_where_nothing_moves() -> None:
    info = {"version": "1", "uptime-ms": 5, "virtual-host": "/", "connections": 1, "channels": 1}
    info |= {"consumers": 1, "memory-bytes": 1, "memory-bytes-high": 2}
    row = {"consumers": 0, "messages-unacked": 0, "messages-entered": 9}
    waiting = {"empty": 0, "long": 9000, "moves": 1, "short": 3}
    rows = [top.rated({**row, "name": name, "messages-ready": n}, None, 2.0) for name, n in waiting.items()]
    rows[2]["in_rate"] = 5.0
    lines = list(top.screen(info, rows, "in_rate", 80, 24))
    assert [line.split()[0] for line in lines[-4:]] == ["moves", "long", "short", "empty"]


def test_the_first_picture_of_top_has_no_rates() -> None:
    info = {"version": "1", "uptime-ms": 5, "virtual-host": "/", "connections": 1, "channels": 1}
    info |= {"consumers": 1, "memory-bytes": 1, "memory-bytes-high": 2}
    row = {"name": "q", "consumers": 0, "messages-unacked": 0, "messages-entered": 9, "messages-ready": 4}
    lines = list(top.screen(info, [top.rated(row, None, 2.0)], "in_rate", 80, 24))
    assert lines[3] == "ready 4  unacked 0  delayed 0  in -/s  out -/s"
    assert lines[-1].split() == ["q", "4", "0", "0", "-", "-", "-"]


def test_a_table_in_a_very_narrow_terminal() -> None:
    """What cannot be narrower is wider than the terminal, and the loop ends."""
    rows = [{"name": "n" * 50, "text": "t" * 50}]
    assert list(tables.lines_of(rows, ("name", "text"), 5)) == [
        "name      text",
        "nnnnnnn…  ttttttt…",
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        ("", "-"),
        ({}, "-"),
        (0, "0"),
        (True, "yes"),
        (2.25, "2.2"),
        (["a", "b"], "a, b"),
        ({"x": 1}, '{"x": 1}'),
        ("a\x1b[31m\nb", "a\\x1b[31m\\nb"),
        (b"a\xff", "a\\xff"),
    ],
)
def test_cells(value: object, text: str) -> None:
    assert tables.cell(value) == text


def test_json_of_octets() -> None:
    assert tables.plain({"a": b"text", "b": [b"\xff"], "c": "\udcff"}) == {
        "a": "text",
        "b": [{"base64": "/w=="}],
        "c": "\\xff",
    }


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (None, "-"),
        (0, "0.0 s"),
        (9_940, "9.9 s"),
        (59_999, "59 s"),
        (61_000, "1 min 1 s"),
        (3_600_000, "1 h 0 min"),
        (90_000_000, "1 d 1 h"),
    ],
)
def test_ages(milliseconds: int | None, text: str) -> None:
    assert tables.age(milliseconds) == text


@pytest.mark.parametrize(
    ("octets", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 40, "5.0 TiB")]
)
def test_sizes(octets: int, text: str) -> None:
    assert tables.size(octets) == text


@pytest.mark.parametrize(("answer", "goes_on"), [("yes\n", True), ("Y\n", True), ("\n", False), ("", False)])
def test_a_question_at_a_terminal(answer: str, goes_on: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    asked = io.StringIO()
    monkeypatch.setattr(sys, "stderr", asked)
    options = argparse.Namespace(yes=False)
    if goes_on:
        tables.confirm(options, "all will be lost")
    else:
        with pytest.raises(CommandFault, match="nothing was done"):
            tables.confirm(options, "all will be lost")
    assert asked.getvalue() == "all will be lost. Type yes to go on: "


def test_progress_at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter((0.0, 0.1, 1.0, 1.01))
    monkeypatch.setattr(Clock, "monotonic_s", lambda clock: next(times))
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    with tables.Progress("moving", 4000) as progress:
        progress.tell(10)  # too soon to tell
        assert shown.getvalue() == ""
        progress.tell(1000)
        assert shown.getvalue() == "\r\x1b[Kmoving: 1,000 of 4,000, 1,000/s, 3.0 s left"
        progress.tell(1010)  # told just before
    assert shown.getvalue().endswith("left\r\x1b[K")


def test_a_list_is_not_sorted_by_what_is_no_column(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    tables.add_options(parser, is_list=True)
    rows = [{"name": "a", "messages-ready": 1}, {"name": "b", "messages-ready": 2}]
    assert tables.show(rows, ["name"], parser.parse_args(["--sort", "messages-ready"])) == 0
    assert capsys.readouterr().out.split() == ["name", "b", "a"]
    with pytest.raises(CommandFault, match=r"--sort ready: expected one of name, messages_ready"):
        tables.show(rows, ["name"], parser.parse_args(["--sort", "ready"]))
    assert tables.show([], ["name"], parser.parse_args(["--sort", "ready"])) == 0  # knows no columns


def test_a_count_is_no_larger_than_a_count_can_be() -> None:
    assert tables.whole("7") == 7
    for text in ("-1", "x", "9" * 30):
        with pytest.raises(argparse.ArgumentTypeError, match="expected a whole number"):
            tables.whole(text)
