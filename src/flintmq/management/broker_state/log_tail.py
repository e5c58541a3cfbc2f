"""The last lines of a log that is rotated, read from its end: so much of it, and no more.

log, log.1, log.2 ...    the newest line first, whatever the size of the files
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

BLOCK_BYTES = 65_536
# Read for one request, some hundredths of a second of work.
READ_BYTES_MAX = 8_388_608
LINE_BYTES_MAX = 16_384
# A line that begins so belongs to the one before it: those of a traceback do.
INDENT = "    "
# Of the lines that belong to one, the last ones.
CONTINUED_MAX = 200


@dataclass
class Tail:
    """What was found. There may be more where reading ended before the beginning of the log."""

    lines: list[str]
    more: bool = False


def tail(path: Path, most: int, is_wanted: Callable[[str], bool]) -> Tail:
    """The last lines that are wanted, the newest first. FileNotFoundError if there is no such log.

    What belongs to a line, such as a traceback, stands behind it, and is looked at with it.
    """
    found = Tail([])
    continued: list[str] = []
    room = READ_BYTES_MAX
    number = 0
    file = path
    while True:
        for octets, left in lines_backwards(file, room):
            room = left
            line = octets[:LINE_BYTES_MAX].decode("utf-8", "replace")
            if not line:
                continue  # behind the last end of a line, or where the room ends
            if line.startswith(INDENT):
                if len(continued) < CONTINUED_MAX:
                    continued.append(line)
                continue
            if continued:
                line = "\n".join([line, *reversed(continued)])
                continued = []
            if is_wanted(line):
                if len(found.lines) == most:
                    found.more = True
                    return found
                found.lines.append(line)
        if room <= 0:
            found.more = True
            return found
        number += 1
        file = path.with_name(f"{path.name}.{number}")
        if not file.exists():
            return found


def lines_backwards(path: Path, room: int) -> Iterator[tuple[bytes, int]]:
    """The lines of a file from its end, each with the octets that may still be read."""
    with path.open("rb") as file:
        place = file.seek(0, os.SEEK_END)
        rest = b""
        while place and room > 0:
            size = min(BLOCK_BYTES, place, room)
            place -= size
            room -= size
            file.seek(place)
            first, *others = (file.read(size) + rest).split(b"\n")
            for line in reversed(others):
                yield line, room
            rest = first[-READ_BYTES_MAX:]
        if not place:
            yield rest, room
        else:
            yield b"", room
