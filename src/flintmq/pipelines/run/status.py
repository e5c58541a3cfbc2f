"""What runs, and how: a small file for each pipeline in the state directory, written by its runner.

    STATE/pipelines/bars.json    what `flintmq pipeline status` shows
    STATE/pipelines/bars.lock    locked while it runs: a pipeline of one name runs once, and a file
                                 whose lock is free tells of one that has ended

STATE is FLINTMQ_STATE, or flintmq under XDG_STATE_HOME or ~/.local/state.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, TypeVar, get_type_hints

from flintmq.pipelines.errors import PipelineFailed
from flintmq.storage.file_lock import try_lock

STARTING, RUNNING, WAITING = "starting", "running", "waiting"
STOPPED, FINISHED, FAILED, DIED = "stopped", "finished", "failed", "died"
UNREADABLE = "unreadable"  # the file tells nothing; one such file must not hide the others
# Of a value that is wrong so much is told.
VALUE_CHARS_MAX = 64
_OVER = (STOPPED, FINISHED, FAILED)


def state_directory() -> Path:
    named = os.environ.get("FLINTMQ_STATE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "flintmq"


@dataclass
class FlowStatus:
    """How one flow does. Times are milliseconds since 1970."""

    state: str = STARTING
    batch: int = -1
    rows: int = 0
    rows_per_s: float = 0.0
    batch_ms: int = 0
    lag_rows: int | None = None
    lag_s: float | None = None
    restarts: int = 0
    last_error: str | None = None
    updated_ms: int = 0
    unrouted: int = 0  # rows written to an exchange that went to no queue, since the run began


@dataclass
class PipelineStatus:
    name: str
    file: str
    state: str = STARTING
    pid: int = 0
    started_ms: int = 0
    updated_ms: int = 0
    flows: dict[str, FlowStatus] = field(default_factory=dict)


Status = TypeVar("Status", FlowStatus, PipelineStatus)


class StatusFile:
    """The status of a pipeline that this process runs."""

    def __init__(self, directory: Path, status: PipelineStatus) -> None:
        self.status = status
        self.path = directory / "pipelines" / f"{status.name}.json"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._lock: IO[str] = open(  # noqa: SIM115 held until close
            self.path.with_suffix(".lock"), "w", encoding="utf-8"
        )
        if not try_lock(self._lock.fileno()):
            self._lock.close()
            raise PipelineFailed(
                f"pipeline {status.name!r} is running already; end it first, or give this one another name"
            )

    def write(self, now_ms: int) -> None:
        """Whoever reads it finds all of it, or what was there before."""
        self.status.updated_ms = now_ms
        fresh = self.path.with_suffix(".new")
        fresh.write_text(json.dumps(asdict(self.status), indent=1) + "\n", "utf-8")
        fresh.replace(self.path)

    def close(self) -> None:
        self._lock.close()


def read_all(directory: Path) -> list[PipelineStatus]:
    """Every pipeline that has run here; one whose file cannot be read says so in place of its own file."""
    found: list[PipelineStatus | None] = []
    for path in sorted((directory / "pipelines").glob("*.json")):
        try:
            found.append(read(directory, path.stem))
        except PipelineFailed as error:
            found.append(PipelineStatus(path.stem, str(error), UNREADABLE))
    return [status for status in found if status is not None]


def read(directory: Path, name: str) -> PipelineStatus | None:
    """A pipeline's status; None if it never ran here. One that ended without a word has died."""
    path = directory / "pipelines" / f"{name}.json"
    try:
        given: dict[str, Any] = json.loads(path.read_text("utf-8"))
        flows = {flow: checked(FlowStatus(**told)) for flow, told in given.pop("flows").items()}
        status = checked(PipelineStatus(**given, flows=flows))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise PipelineFailed(
            f"{path} is not a status that this version wrote: {type(error).__name__}: {error}; "
            "remove the file"
        ) from None
    except OSError as error:
        raise PipelineFailed(f"{path} cannot be read: {error.strerror}") from None
    if status.state not in _OVER and not _is_locked(path.with_suffix(".lock")):
        status.state = DIED
    return status


def checked(status: Status) -> Status:
    """TypeError unless each value has the type of its field."""
    for name, kind in get_type_hints(type(status)).items():
        value = getattr(status, name)
        if name == "flows" or isinstance(value, kind):
            continue
        if type(value) is not int or not isinstance(0.0, kind):  # a float may be written as a whole number
            raise TypeError(f"{name} is {value!r}"[:VALUE_CHARS_MAX])
    return status


def _is_locked(path: Path) -> bool:
    try:
        with open(path, encoding="utf-8") as lock:
            return not try_lock(lock.fileno(), shared=True)
    except FileNotFoundError:
        return False
