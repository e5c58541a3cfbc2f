"""What the server tells of itself to whoever asks broker.info."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Any

from flintmq.clock import Clock
from flintmq.config import Config, Listen, Storage
from flintmq.server.server import Server


def test_of_many_files_that_cannot_be_read_the_first_are_told(tmp_path: Path) -> None:
    failure = OSError(errno.EIO, "Input/output error " + "x" * 200)

    async def condition() -> dict[str, Any]:
        config = Config()._replace(listen=Listen(("127.0.0.1",), 0), storage=Storage(directory=tmp_path))
        server = Server(config, Clock(), asyncio.get_running_loop())
        try:
            assert server.broker.store is not None
            journal = server.broker.store.journal
            before = server.condition()
            assert (before["unreadable"], before["unreadable-count"]) == ([], 0)
            for number in range(24):
                journal.spools._open_spools.cannot_read(str(tmp_path / "spool" / f"{number}.body"), failure)
            return server.condition()
        finally:
            await server.stop(0.1)

    found = asyncio.run(condition())
    assert found["unreadable-count"] == 24
    assert len(found["unreadable"]) == 8
    assert found["unreadable"][0].startswith("spool/0.body: Input/output error ")
    assert max(map(len, found["unreadable"])) <= 120
