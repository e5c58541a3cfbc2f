"""A start that fails while the journal is open already says why, and nothing else."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Any

import pytest

from flintmq.clock import Clock
from flintmq.config import Config
from flintmq.server import server


def test_threads_of_the_journal_that_speak_too_late_are_not_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(config: Config, clock: Clock, wake: Callable[[], None]) -> None:
        wake()
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(server, "open_broker", fail)

    async def start() -> list[dict[str, Any]]:
        faults: list[dict[str, Any]] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: faults.append(context))
        with pytest.raises(OSError, match="Too many open files"):
            server.Server(Config(), Clock(), loop)
        await asyncio.sleep(0)
        return faults

    assert asyncio.run(start()) == []
