"""What operators look into: the journal, the log, the audit log, and why somebody may do something."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flintmq.management.broker_state import shapes
from flintmq.management.broker_state.log_tail import Tail, tail
from flintmq.management.requests.faults import BadRequest, HttpFault, NotFound
from flintmq.management.requests.routes import ADMINISTRATOR, MONITORING, Call, endpoint

LINES_MAX = 1000
LEVELS = ("debug", "info", "warning", "error", "critical")
# Where the level of a line stands: behind the time.
LEVEL_WITHIN = 80


@endpoint("GET", "/api/flintmq/journal", MONITORING)
async def journal(call: Call) -> dict[str, Any]:
    """The journal: its segments and octets, how far it is synced, and what is wrong with it."""
    reply = await call.context.link.ask("management.journal")
    found: dict[str, Any] = shapes.plain(reply.results)
    return found


@endpoint("GET", "/api/flintmq/why", query=("user", "vhost", "operation", "name", "other"))
async def why(call: Call) -> dict[str, Any]:
    """Whether a user may do something and why: about oneself, or about anybody for administrators."""
    arguments = {
        "user": call.query("user", call.identity.user),
        "virtual-host": call.query("vhost", "/"),
        "operation": call.query("operation", "publish"),
        "name": call.query("name"),
        "other": call.query("other"),
    }
    found: dict[str, Any] = shapes.plain(await call.ask("permission.explain", arguments))
    return found


@endpoint("GET", "/api/flintmq/audit", ADMINISTRATOR, query=("limit", "user", "event", "outcome", "contains"))
async def audit(call: Call) -> dict[str, Any]:
    """The last entries of the audit log, the newest first."""
    wanted = {name: call.query(name) for name in ("user", "event", "outcome") if call.query(name)}
    contains = call.query("contains")

    def is_wanted(line: str) -> bool:
        if contains not in line:
            return False
        entry = entry_of(line)
        return entry is not None and all(entry.get(name) == value for name, value in wanted.items())

    path = call.context.audit_file
    found = await tail_of(call, path, "there is no audit log: the settings name no audit.file", is_wanted)
    return {"entries": [entry_of(line) for line in found.lines], "more": found.more}


def entry_of(line: str) -> dict[str, Any] | None:
    """A line of the audit log; None for what was cut, or is none of the broker's."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


@endpoint("GET", "/api/flintmq/log", ADMINISTRATOR, query=("limit", "level", "contains"))
async def log_lines(call: Call) -> dict[str, Any]:
    """The last lines of the broker's log, the newest first: of `level` and above."""
    contains, least = call.query("contains"), call.query("level", "debug").lower()
    if least not in LEVELS:
        raise BadRequest(f"level must be one of {', '.join(LEVELS)}")
    shown = LEVELS[LEVELS.index(least) :]
    marks = [mark for level in shown for mark in (f" {level.upper()} ", f'"level": "{level}"')]

    def is_wanted(line: str) -> bool:
        if contains not in line:
            return False
        head = line[:LEVEL_WITHIN]
        return least == "debug" or any(mark in head for mark in marks)

    why = "the log goes to standard error: the settings name no log.file"
    found = await tail_of(call, call.context.log_file, why, is_wanted)
    return {"lines": found.lines, "more": found.more}


async def tail_of(call: Call, path: str | None, absent: str, is_wanted: Callable[[str], bool]) -> Tail:
    """Read by a thread, one at a time: others have their turn meanwhile."""
    most = call.number("limit", 100, 1, LINES_MAX)
    if path is None:
        raise NotFound(absent)
    async with call.context.reading:
        try:
            return await asyncio.to_thread(tail, Path(path), most, is_wanted)
        except FileNotFoundError:
            raise NotFound(f"{path} is not there") from None
        except OSError as error:
            raise HttpFault(f"{path} cannot be read: {error.strerror}") from None
