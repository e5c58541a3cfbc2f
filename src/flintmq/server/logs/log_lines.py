"""One line of the log for each thing that happened, whatever clients call theirs.

    2026-01-31 12:00:00,000 WARNING connection of guest@::1 closed: NOT_FOUND - no queue 'a\\x1b[2J' ...
        Traceback ...                                what belongs to a line is indented beneath it

Names of queues, users, services and the like are a client's own text. Control codes in it could take over
a terminal, and a line break could pass for a line that the broker wrote: whatever does not print is shown
as Python would write it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from flintmq.errors import ConfigFault
from flintmq.server.logs.rotated_file import NotSetAside, RotatedFile

if TYPE_CHECKING:
    from flintmq.config import Log

INDENT = "    "


class LogLines(logging.Formatter):
    """The format of the broker's log.

    A line is written for each connection that opens. logging's own format costs three times as much: it looks
    at the clock's text anew, and fills in a template that it has parsed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.second = -1
        self.second_text = ""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{self.formatTime(record)} {record.levelname} {escaped(record.getMessage())}"
        if not (record.exc_info or record.exc_text or record.stack_info):
            return line
        if record.exc_info and not record.exc_text:
            record.exc_text = self.formatException(record.exc_info)
        parts = [part for part in (record.exc_text, record.stack_info) if part]
        others = "\n".join(parts).split("\n")
        return "\n".join([line, *[INDENT + escaped(each) for each in others]])

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        """The local time of the record, of which most lines share the second with the line before."""
        second = int(record.created)
        if second != self.second:
            self.second_text = time.strftime(self.default_time_format, time.localtime(second))
            self.second = second
        return f"{self.second_text},{int(record.msecs):03d}"


def leave_out_unused() -> None:
    """Tells logging not to look up what no line shows: the caller, thread and process of a record."""
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None  # the switch that logging documents for this


class JsonLines(logging.Formatter):
    """The log as JSON: one object in a line, with nothing in it that does not print."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC)
        line = {
            "time": moment.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info and not record.exc_text:
            record.exc_text = self.formatException(record.exc_info)
        if record.exc_text:
            line["exception"] = record.exc_text
        if record.stack_info:
            line["stack"] = record.stack_info
        return json.dumps(line)


class LogHandler(logging.StreamHandler[Any]):
    """Tells of a log that cannot be written in one line on standard error, until a line is written again.

    logging's own handler writes a traceback there for each line.
    """

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self.has_failed = False  # with the line that is being written
        self.is_failing = False

    def emit(self, record: logging.LogRecord) -> None:
        self.has_failed = False
        super().emit(record)
        self.is_failing = self.has_failed

    def handleError(self, record: logging.LogRecord) -> None:
        error = sys.exception()
        if not isinstance(error, OSError):
            super().handleError(record)
            return
        self.has_failed = True
        if self.is_failing or self.stream is sys.stderr or sys.stderr is None:
            return
        reason = error.strerror or error
        text = f"the log file cannot be written, and lines of it are lost: {reason}"
        if isinstance(error, NotSetAside):
            text = f"the log file is full, and goes on, as it cannot be set aside: {reason}"
        with contextlib.suppress(OSError):  # then nobody is there to be told
            sys.stderr.write(f"flintmq: {text}\n")
            sys.stderr.flush()


class LogOutput:
    """Where the log goes: to a file that may be moved away while it is written, or to standard error."""

    def __init__(self, settings: Log) -> None:
        self.file: RotatedFile | None = None
        try:
            if settings.file is not None:
                self.file = RotatedFile(settings.file, settings.rotate_bytes, settings.rotate_count)
        except OSError as error:
            raise ConfigFault(f'log.file = "{settings.file}" cannot be written: {error.strerror}') from None
        self.handler = LogHandler(self.file or sys.stderr)
        self.handler.setFormatter(JsonLines() if settings.format == "json" else LogLines())

    def reopen(self) -> bool:
        """Goes on in a new file of that name, if the log is a file; raises and goes on in the old one."""
        if self.file is None:
            return False
        self.handler.acquire()
        try:
            self.file.reopen()
        finally:
            self.handler.release()
        return True


def escaped(text: str) -> str:
    """The text with whatever does not print, and whatever would turn the direction of writing, in escapes."""
    if text.isprintable():
        return text
    return "".join([each if each.isprintable() else ascii(each)[1:-1] for each in text])
