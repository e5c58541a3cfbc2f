"""What is written, and where: [storage] and [log]."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from flintmq import checks
from flintmq.config.tables import setting

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
    return Path(value).expanduser()


@dataclass(frozen=True, slots=True)
class Storage:
    """[storage]: the journal. Without a directory everything lives in memory and ends with the process."""

    directory: Path | None = setting(None, path)
    sync: SyncPolicy = setting("always", checks.one_of("always", "interval", "never", quote='"'))
    sync_interval_ms: int = setting(100, checks.whole(1, 60_000))


@dataclass(frozen=True, slots=True)
class Log:
    """[log]: what is written to standard error, or to a file."""

    level: LogLevel = setting("info", checks.one_of("debug", "info", "warning", "error", quote='"'))
    file: Path | None = setting(None, path)
    format: LogFormat = setting("text", checks.one_of("text", "json", quote='"'))
    rotate_bytes: int = setting(0, ROTATE_BYTES)
    rotate_count: int = setting(5, ROTATE_COUNT)
    # A turn of the event loop that takes so long is a span of OpenTelemetry; 0: none.
    turn_span_ms: int = setting(0, checks.whole(0, 60_000))


@dataclass(frozen=True, slots=True)
class Audit:
    """[audit]: who did what, from where, allowed or refused. Without a file there is none."""

    file: Path | None = setting(None, path)
    events: tuple[str, ...] = setting(AUDIT_EVENTS, checks.texts(checks.one_of(*AUDIT_EVENTS, quote='"')))
    rotate_bytes: int = setting(64 * 2**20, ROTATE_BYTES)
    rotate_count: int = setting(10, ROTATE_COUNT)
