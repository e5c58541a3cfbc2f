"""A start that fails while the journal is open already says why, and nothing else."""

from __future__ import annotations

import asyncio
import errno
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flintmq.build import build
from flintmq.clock import Clock
from flintmq.config import Config
from flintmq.errors import NO_MEMORY, NO_THREAD
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


# The command with a system that starts so many threads, or gives no memory to a journal.
FEW_THREADS = """
import sys, threading
from flintmq.cli import main

left = {threads}
start = threading._start_new_thread

def starting(*arguments, **named):
    global left
    left -= 1
    if left < 0:
        raise RuntimeError("can't start new thread")
    return start(*arguments, **named)

threading._start_new_thread = starting
sys.exit(main({words}))
"""
NO_ROOM = """
import sys
from flintmq.cli import main
from flintmq.storage.journal.journal import Journal

def refuse(*_, **__):
    raise MemoryError

Journal.open = refuse
sys.exit(main({words}))
"""


def refusal(program: str) -> tuple[int, str]:
    done = subprocess.run([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True, timeout=60)
    lines = [line for line in done.stderr.splitlines() if " INFO " not in line]
    return done.returncode, "\n".join(lines)


@pytest.mark.parametrize("threads", range(4))
def test_a_start_without_threads_is_one_line(threads: int, tmp_path: Path) -> None:
    words = ["serve", "--port", "0", "--data", str(tmp_path)]
    status, said = refusal(FEW_THREADS.format(threads=threads, words=words))
    assert (status, said.split(";")[0]) == (1, "flintmq: the system starts no more threads")
    assert NO_THREAD in said


@pytest.mark.skipif(build() == "compiled", reason="compiled classes cannot be changed")
def test_a_start_without_memory_is_one_line(tmp_path: Path) -> None:
    words = ["serve", "--port", "0", "--data", str(tmp_path)]
    assert refusal(NO_ROOM.format(words=words)) == (1, f"flintmq: {NO_MEMORY}")
