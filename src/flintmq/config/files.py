"""What is written, and where: [storage] and [log]."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from flintmq import checks
from flintmq.config.tables import setting

SyncPolicy = Literal["always", "interval", "never"]
LogLevel = Literal["debug", "info", "warning", "error"]


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
