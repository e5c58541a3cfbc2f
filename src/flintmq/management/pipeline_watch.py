"""Pipelines that ran and have died or failed: the broker is told of each, and tells it as an event."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from flintmq.client.core.errors import ClientError
from flintmq.pipelines.run import status

if TYPE_CHECKING:
    from pathlib import Path

    from flintmq.management.requests.context import Context
    from flintmq.wire.tables import FieldTable

log = logging.getLogger("flintmq.management")

EVERY_S = 2.0
DEAD = (status.DIED, status.FAILED)
# Pipelines that are looked at, and those of one look that are told of: the others come with the next.
PIPELINES_MAX = 1000
TOLD_MAX = 20
REASON_LETTERS_MAX = 1000


class PipelineWatch:
    """What the last look found. A pipeline that was dead before the first look is no news."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.has_looked = False
        self.dead: dict[str, int] = {}  # when each began that was told of, or was dead at the first look

    def look(self) -> list[tuple[str, str, str]]:
        """Name, state and last error of those that have died since."""
        found = status.read_all(self.directory)[:PIPELINES_MAX]
        news: list[tuple[str, str, str]] = []
        dead: dict[str, int] = {}
        for each in found:
            if each.state not in DEAD:
                continue
            is_known = not self.has_looked or self.dead.get(each.name) == each.started_ms
            if not is_known and len(news) >= TOLD_MAX:
                continue
            dead[each.name] = each.started_ms
            if not is_known:
                errors = [flow.last_error for flow in each.flows.values() if flow.last_error]
                news.append((each.name, each.state, (errors or [""])[0][:REASON_LETTERS_MAX]))
        self.has_looked = True
        self.dead = dead
        return news


async def follow(context: Context) -> None:
    """For ever, if the settings say where pipelines tell how they do."""
    if context.pipelines is None:
        return
    watch = PipelineWatch(context.pipelines)
    while True:
        try:
            for name, state, reason in await asyncio.to_thread(watch.look):
                arguments: FieldTable = {"pipeline": name, "state": state, "reason": reason}
                await context.link.ask("management.pipeline-ended", arguments)
        except (ClientError, OSError) as error:
            log.error("a pipeline that has ended is not told of: %s", error)
        await asyncio.sleep(EVERY_S)
