"""One line of the log for each thing that happened, whatever clients call theirs.

    2026-01-31 12:00:00,000 WARNING connection of guest@::1 closed: NOT_FOUND - no queue 'a\\x1b[2J' ...
        Traceback ...                                what belongs to a line is indented beneath it

Names of queues, users, services and the like are a client's own text. Control codes in it could take over
a terminal, and a line break could pass for a line that the broker wrote: whatever does not print is shown
as Python would write it.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from flintmq.errors import ConfigFault

FORMAT = "%(asctime)s %(levelname)s %(message)s"
INDENT = "    "


class LogLines(logging.Formatter):
    """The format of the broker's log."""

    def __init__(self) -> None:
        super().__init__(FORMAT)

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = escaped(record.message)
        return super().formatMessage(record)

    def format(self, record: logging.LogRecord) -> str:
        first, *others = super().format(record).split("\n")
        return "\n".join([first, *[INDENT + escaped(line) for line in others]])


class LogOutput:
    """Where the log goes: to a file that may be moved away while it is written, or to standard error."""

    def __init__(self, file: Path | None) -> None:
        self.file = file
        try:
            self.handler: logging.StreamHandler = (  # type: ignore[type-arg]
                logging.StreamHandler(sys.stderr)
                if file is None
                else logging.FileHandler(file, encoding="utf-8")
            )
        except OSError as error:
            raise ConfigFault(f'log.file = "{file}" cannot be written: {error.strerror}') from None
        self.handler.setFormatter(LogLines())

    def reopen(self) -> bool:
        """Goes on in a new file of that name, if the log is a file; raises and goes on in the old one."""
        if self.file is None:
            return False
        stream = self.file.open("a", encoding="utf-8")
        former = self.handler.setStream(stream)
        if former is not None:
            former.close()
        return True


def escaped(text: str) -> str:
    """The text with whatever does not print, and whatever would turn the direction of writing, in escapes."""
    if text.isprintable():
        return text
    return "".join([each if each.isprintable() else ascii(each)[1:-1] for each in text])
