"""What commands print: tables for people, JSON for scripts, questions before something is lost, progress.

A table is as wide as its contents, and no wider than the terminal: the widest columns of text are cut. Where
the output is no terminal nothing is cut. Text of clients is shown without what would take over a terminal.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any, TextIO

from flintmq.amounts import NOTHING
from flintmq.amounts import age as age
from flintmq.amounts import size as size
from flintmq.cli.output import statuses
from flintmq.cli.output.statuses import CommandFault

GAP = "  "
CUT = "…"
# No column of text is cut shorter than this.
CELL_WIDTH_MIN = 8
AMOUNT_MAX = 1e9
# Above columns of numbers, which no long title should widen.
TITLES = {
    "messages_ready": "ready",
    "messages_unacked": "unacked",
    "messages_delayed": "delayed",
    "prefetch_count": "prefetch",
    "destination_type": "kind",
}
# A command that ends sooner tells nothing of its progress.
PROGRESS_AFTER_S = 0.5
PROGRESS_EACH_S = 0.1

Row = dict[str, Any]


def add_options(parser: argparse.ArgumentParser, *, is_list: bool = False) -> None:
    group = parser.add_argument_group("output")
    group.add_argument("--json", action="store_true", help="JSON in the place of a table")
    if is_list:
        group.add_argument("--columns", metavar="A,B", help="these columns; ? lists them")
        group.add_argument(
            "--sort", metavar="A", help="by this column, the largest first; --sort=-A: the smallest first"
        )
        group.add_argument("--no-headers", action="store_true", help="rows alone")


def show(rows: Iterable[Row], columns: Sequence[str], options: argparse.Namespace) -> int:
    """Prints rows as the options ask for, with these columns unless others are chosen."""
    found = [{key.replace("-", "_"): value for key, value in row.items()} for row in rows]
    chosen = list(columns)
    known = list(dict.fromkeys([*columns, *(key for row in found for key in row)]))
    if options.columns is not None:
        if options.columns == "?":
            print("\n".join(known))
            return 0
        chosen = [each.strip().replace("-", "_") for each in options.columns.split(",")]
        for each in chosen:
            if each not in known:
                raise CommandFault(f"--columns {each}: expected some of {', '.join(known)}", statuses.USAGE)
    if options.sort is not None:
        # An empty list does not know all of its columns.
        if found and options.sort.removeprefix("-").replace("-", "_") not in known:
            raise CommandFault(f"--sort {options.sort}: expected one of {', '.join(known)}", statuses.USAGE)
        found = in_order(found, options.sort)
    if options.json:
        print_json(
            found if options.columns is None else [{key: row.get(key) for key in chosen} for row in found]
        )
        return 0
    for line in lines_of(found, chosen, width_of(sys.stdout), with_headers=not options.no_headers):
        print(line)
    return 0


def in_order(rows: list[Row], column: str) -> list[Row]:
    """The largest first; the smallest first with a minus in front. Rows without a value come last."""
    name = column.removeprefix("-").replace("-", "_")
    there = [row for row in rows if row.get(name) is not None]
    is_number = all(isinstance(row[name], int | float) for row in there)
    there.sort(
        key=lambda row: row[name] if is_number else cell(row[name]), reverse=not column.startswith("-")
    )
    return there + [row for row in rows if row.get(name) is None]


def matching(rows: Iterable[Row], pattern: str | None, column: str) -> Iterable[Row]:
    """Rows whose name fits a pattern of the shell; all without one."""
    if pattern is None:
        return rows
    return (row for row in rows if fnmatchcase(str(row.get(column, "")), pattern))


def add_pattern(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pattern", nargs="?", metavar="PATTERN", help="names that fit, such as 'orders.*'")


# Tables


def width_of(stream: TextIO) -> int | None:
    """Letters in a line of the terminal; None where there is none."""
    if not stream.isatty():
        return None
    import shutil

    return shutil.get_terminal_size().columns


def lines_of(
    rows: Sequence[Row], columns: Sequence[str], width: int | None, *, with_headers: bool = True
) -> Iterable[str]:
    cells = [[cell(row.get(name)) for name in columns] for row in rows]
    titles = [TITLES.get(name, name.replace("_", " ")) for name in columns]
    numeric = [
        all(is_numeric(row.get(name)) for row in rows) and any(row.get(name) is not None for row in rows)
        for name in columns
    ]
    shown = [titles, *cells] if with_headers else cells
    widths = [max((cells_of(line[at]) for line in shown), default=0) for at in range(len(columns))]
    if width is not None:
        narrow(widths, numeric, width)
    for line in shown:
        parts = [fitted(text, widths[at], right=numeric[at]) for at, text in enumerate(line)]
        yield GAP.join(parts).rstrip()


def narrow(widths: list[int], numeric: list[bool], width: int) -> None:
    """Takes from the widest columns of text until the line fits, or no column can give more."""
    over = sum(widths) + len(GAP) * (len(widths) - 1) - width
    while over > 0:
        able = [at for at in range(len(widths)) if not numeric[at] and widths[at] > CELL_WIDTH_MIN]
        if not able:
            return
        widest = max(able, key=lambda at: widths[at])
        second = max((widths[at] for at in able if widths[at] < widths[widest]), default=CELL_WIDTH_MIN)
        taken = min(over, max(1, widths[widest] - max(second, CELL_WIDTH_MIN)))
        widths[widest] -= taken
        over -= taken


def fitted(text: str, width: int, *, right: bool) -> str:
    if cells_of(text) > width:
        text = text[:width]  # no need to measure all of a long one
        while text and cells_of(text) > width - 1:
            text = text[:-1]
        text += CUT
    padding = " " * (width - cells_of(text))
    return padding + text if right else text + padding


def cells_of(text: str) -> int:
    """How many cells of a terminal the text takes: two for a wide letter, none for a mark upon another."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        for letter in text
    )


def is_numeric(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def cell(value: Any) -> str:
    """One value in a table."""
    if value is None or value == "" or value == {} or value == []:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else NOTHING
    if isinstance(value, float):
        return f"{value:,.1f}"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, bytes):
        return printable(value.decode("utf-8", "backslashreplace"))
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return printable(", ".join(value))
    if isinstance(value, list | dict):
        return printable(json.dumps(plain(value), ensure_ascii=False))
    return printable(str(value))


def printable(text: str) -> str:
    """Without what would take over a terminal, or break a line."""
    return "".join([each if each.isprintable() else ascii(each)[1:-1] for each in text])


def show_facts(facts: Row, options: argparse.Namespace) -> None:
    """One thing: a name and a value in each line."""
    if options.json:
        print_json({key.replace("-", "_"): value for key, value in facts.items()})
        return
    width = max(map(len, facts), default=0)
    for name, value in facts.items():
        print(f"{name.replace('_', ' ').replace('-', ' '):<{width}}{GAP}{cell(value)}")


def print_json(value: Any) -> None:
    print(json_text(value, indent=2))


def json_text(value: Any, **form: Any) -> str:
    """JSON for standard output, with escapes of JSON in a charset that lacks letters; to a terminal also for
    what would take it over."""
    text = json.dumps(plain(value), ensure_ascii=not says_all(sys.stdout), **form)
    if not sys.stdout.isatty():
        return text
    return "".join([each if each.isprintable() or each == "\n" else json.dumps(each)[1:-1] for each in text])


def says_all(stream: TextIO) -> bool:
    """Whether the charset of a stream has every letter. A stream in memory has no charset, and lacks none."""
    return (stream.encoding or "utf-8").lower().replace("-", "").startswith("utf")


def plain(value: Any) -> Any:
    """What JSON can say of a value: octets as text, or as base64 where they are none."""
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, bytes | bytearray | memoryview):
        octets = bytes(value)
        try:
            return octets.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(octets).decode()}
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    if value is None or isinstance(value, bool | int | float):
        return value
    return str(value)


# Numbers of options


def whole(text: str) -> int:
    """For argparse: a count, 0 or more."""
    try:
        found = int(text)
    except ValueError:
        found = -1
    if not 0 <= found <= sys.maxsize:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number, 0 or more")
    return found


def amount(text: str) -> float:
    """For argparse: seconds or a rate, 0 or more."""
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found < AMOUNT_MAX:  # neither NaN nor infinity
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number, 0 or more")
    return found


# Questions and progress


def add_yes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-y", "--yes", action="store_true", help="ask nothing; needed where nobody can answer"
    )


def confirm(options: argparse.Namespace, what: str) -> None:
    """Asks before something is lost; without a terminal --yes has to say it."""
    if options.yes:
        return
    if not sys.stdin.isatty():
        raise CommandFault(f"{what}: --yes is needed, as there is no terminal to ask at", statuses.USAGE)
    sys.stderr.write(f"{what}. Type yes to go on: ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandFault("nothing was done", statuses.FAILED)


class Progress:
    """A line on standard error that tells how far a long work is, where that is a terminal."""

    def __init__(self, what: str, total: int | None = None) -> None:
        from flintmq.clock import Clock

        self.what = what
        self.total = total
        self.clock = Clock()
        self.begun_s = self.clock.monotonic_s()
        self.next_s = self.begun_s + PROGRESS_AFTER_S
        self.is_shown = False

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def tell(self, done: int) -> None:
        now_s = self.clock.monotonic_s()
        if now_s < self.next_s or not sys.stderr.isatty():
            return
        self.next_s = now_s + PROGRESS_EACH_S
        share = f" of {self.total:,}" if self.total else ""
        rate = done / (now_s - self.begun_s)
        left = f", {age((self.total - done) / rate * 1000)} left" if self.total and rate else ""
        sys.stderr.write(f"\r\x1b[K{self.what}: {done:,}{share}, {rate:,.0f}/s{left}")
        sys.stderr.flush()
        self.is_shown = True


def is_coloured(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
