"""What is written, and where: [storage] and [log]."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Annotated, Literal

from flintmq import checks
from flintmq.config.tables import Section
from flintmq.errors import NotRegularFile

if TYPE_CHECKING:
    from pathlib import Path

SyncPolicy = Literal["always", "interval", "never"]
LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["text", "json"]

# What becomes of a file that is full.
ROTATE_BYTES = checks.size(0, 2**40)  # 0: it is never full
ROTATE_COUNT = checks.whole(0, 1000)
AUDIT_EVENTS = ("login", "access", "administration", "topology", "settings")


def path(value: object) -> Path:
    if not isinstance(value, str) or not value or "\0" in value:
        raise checks.expected("a path")
    import pathlib  # by whoever names a file: it takes a millisecond to load

    return pathlib.Path(value).expanduser()


def unreadable(error: OSError, which: str) -> str:
    """Why a file that the settings need cannot be read, and what to look at: the path, or who may read it."""
    advice = "let the user that the broker runs as read it"
    if not isinstance(error, PermissionError):
        advice = f"check {which}"
    return f"cannot be read: {error.strerror or error}; {advice}"


def opened_at_once(file: Path | str) -> int:
    """A descriptor to read a regular file; raises NotRegularFile for anything else, or an OSError.

    To open a FIFO waits for somebody who writes to it, and so would the whole broker.
    """
    descriptor = os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotRegularFile(f"{file}: not a regular file")
    return descriptor


class Storage(Section):
    """[storage]: the journal. Without a directory everything lives in memory and ends with the process."""

    directory: Annotated[Path | None, path] = None
    sync: Annotated[SyncPolicy, checks.one_of("always", "interval", "never", quote='"')] = "always"
    sync_interval_ms: Annotated[int, checks.whole(1, 60_000)] = 100


class Log(Section):
    """[log]: what is written to standard error, or to a file."""

    level: Annotated[LogLevel, checks.one_of("debug", "info", "warning", "error", quote='"')] = "info"
    file: Annotated[Path | None, path] = None
    format: Annotated[LogFormat, checks.one_of("text", "json", quote='"')] = "text"
    rotate_bytes: Annotated[int, ROTATE_BYTES] = 0
    rotate_count: Annotated[int, ROTATE_COUNT] = 5
    # A turn of the event loop that takes so long is a span of OpenTelemetry; 0: none.
    turn_span_ms: Annotated[int, checks.whole(0, 60_000)] = 0


class Audit(Section):
    """[audit]: who did what, from where, allowed or refused. Without a file there is none."""

    file: Annotated[Path | None, path] = None
    events: Annotated[tuple[str, ...], checks.texts(checks.one_of(*AUDIT_EVENTS, quote='"'))] = AUDIT_EVENTS
    rotate_bytes: Annotated[int, ROTATE_BYTES] = 64 * 2**20
    rotate_count: Annotated[int, ROTATE_COUNT] = 10
