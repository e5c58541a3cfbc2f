"""A start that fails while the journal is open already says why, and nothing else."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flintmq.clock import Clock
from flintmq.config import Config
from flintmq.server import server
from flintmq.server.data_directory import recovered_broker
from flintmq.storage.disk import Disk
from flintmq.storage.options import JournalOptions


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


class NoisyDisk(Disk):
    """Counts what is open; reads of files with this end fail."""

    def __init__(self) -> None:
        super().__init__()
        self.open_ones: set[int] = set()
        self.unreadable = ""

    def open(self, path: str, create: bool = False) -> int:
        handle = super().open(path, create)
        self.open_ones.add(handle)
        return handle

    def open_to_read(self, path: str) -> int:
        handle = super().open_to_read(path)
        self.open_ones.add(handle)
        return handle

    def close(self, handle: int) -> None:
        self.open_ones.discard(handle)
        super().close(handle)

    def read(self, handle: int, at: int, count: int) -> bytes:
        if self.unreadable and str(self.path_of(handle)).endswith(self.unreadable):
            raise OSError(errno.EIO, "Input/output error")
        return super().read(handle, at, count)


@pytest.mark.parametrize("unreadable", [".segment", "segments.promised", "streams.promised"])
def test_a_start_that_fails_leaves_the_directory_to_the_next_one(tmp_path: Path, unreadable: str) -> None:
    disk = NoisyDisk()
    options = JournalOptions(threaded=False)

    def start() -> None:
        broker, _ = recovered_broker(Config(), Clock(), lambda: None, str(tmp_path), disk, options)
        assert broker.store is not None
        assert broker.streams is not None
        broker.store.journal.put_value(b"", b"")
        broker.streams.close()
        broker.store.close()

    start()
    assert not disk.open_ones
    disk.unreadable = unreadable
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output error"):
            start()
    assert not disk.open_ones
    disk.unreadable = ""
    start()
