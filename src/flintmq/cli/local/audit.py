"""`flintmq audit FILE`: the audit log of a broker, with the files that were set aside, as a table.

The log is read from its oldest line to its newest, one line at a time. Only the rows to be shown are kept.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import deque
from collections.abc import Iterator
from typing import Any

from flintmq.cli.output import statuses, tables
from flintmq.cli.output.statuses import CommandFault

COLUMNS = ("time", "event", "outcome", "user", "address", "virtual_host", "subject", "details")
SHOWN = 100
# What the broker writes is far shorter: texts are cut at 1,024 letters.
LINE_OCTETS_MAX = 1 << 20

Row = dict[str, Any]


def add(command: str, parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="what [audit] of the settings names")
    parser.add_argument("--user", metavar="U", help="what this user did")
    parser.add_argument("--address", metavar="A", help="what came from this address")
    parser.add_argument("--event", metavar="E", help="these events, such as login or 'user.*'")
    parser.add_argument("--refused", action="store_true", help="what was refused alone")
    parser.add_argument(
        "--limit", type=tables.whole, default=SHOWN, metavar="N", help=f"the newest so many ({SHOWN})"
    )
    tables.add_options(parser, is_list=True)
    parser.set_defaults(run=audit)


def audit(options: argparse.Namespace) -> int:
    unreadable = 0
    rows: deque[Row] = deque(maxlen=options.limit)
    for row in rows_of(files_of(options.file)):
        if row is None:
            unreadable += 1
        elif is_asked_for(row, options):
            rows.append(row)
    if not options.json:
        for row in rows:
            row["details"] = details_of(row)
    tables.show(rows, COLUMNS, options)
    if unreadable:
        print(f"flintmq: {unreadable} lines are no events and were left out", file=sys.stderr)
    return 0


def files_of(path: str) -> list[str]:
    """The log and those set aside from it, the oldest first."""
    if not os.path.isfile(path):
        raise CommandFault(
            f"{path}: there is no such file; [audit] of the settings names it", statuses.NOT_FOUND
        )
    directory, name = os.path.split(os.path.abspath(path))
    aside = [each.removeprefix(f"{name}.") for each in os.listdir(directory) if each.startswith(f"{name}.")]
    numbers = sorted((int(each) for each in aside if each.isascii() and each.isdigit()), reverse=True)
    return [*[f"{path}.{number}" for number in numbers], path]


def rows_of(files: list[str]) -> Iterator[Row | None]:
    """Each event; None for a line that is none."""
    for path in files:
        with open(path, "rb") as lines:
            while line := lines.readline(LINE_OCTETS_MAX):
                yield event_of(line)


def event_of(line: bytes) -> Row | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and "event" in found else None


def details_of(row: Row) -> str:
    """In one text: why it was refused, what was changed and to what, and how often the same came again."""
    found = [str(row["reason"])] if row.get("reason") else []
    arguments = row.get("arguments")
    if isinstance(arguments, dict):
        found += [f"{name}={tables.cell(value)}" for name, value in arguments.items() if value is not False]
    count = row.get("count")
    if isinstance(count, int) and count > 0:
        same = "the same " if row.get("repeated") else ""
        found.append(f"{same}{'once' if count == 1 else f'{count:,} times'} more")
    return "  ".join(found)


def is_asked_for(row: Row, options: argparse.Namespace) -> bool:
    if options.refused and row.get("outcome") != "refused":
        return False
    for name in ("user", "address"):
        wanted = getattr(options, name)
        if wanted is not None and row.get(name) != wanted:
            return False
    return options.event is None or bool(list(tables.matching([row], options.event, "event")))
