"""A disk that forgets, tears, reorders, rots, fills up and fails, all from one seed.

What is written is visible at once and durable after a sync. A crash keeps, of all unsynced writes
and name changes, a random part: whole sectors of some writes, in any combination. A failed sync
drops the pages that it should have written and says nothing about it afterwards; so may a failed close.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from flintmq.storage.disk import Disk

SECTOR = 512
# What is never synced is promised to nobody, and relied on while the process lives: no close takes it.
NEVER_SYNCED = ("/data/overflow/", "/data/hand-outs")


class PowerLost(BaseException):
    """The machine went dark in the middle of something; nothing of ours may catch it."""


class _File:
    def __init__(self) -> None:
        self.visible = bytearray()
        self.durable = bytearray()
        # Unsynced changes since the last sync: (offset, octets), or a truncation (size, None).
        self.unsynced: list[tuple[int, bytes | None]] = []


class SimulatedDisk(Disk):
    """One directory tree in memory, with faults."""

    def __init__(self, chance: random.Random, capacity_octets: int = 1 << 40) -> None:
        self.chance = chance
        self.capacity_octets = capacity_octets
        self.sync_failures_left = 0
        self.write_failures_left = 0
        self.close_failures_left = 0
        # What fails to be closed may lose what was written and not synced.
        self.closes_lose = False
        self.reads_fail = False
        # Somebody is to know of each read that fails.
        self.when_unread: Callable[[], None] = lambda: None
        # Files below this directory take no writes.
        self.broken_directory = ""
        # After so many further changes the power goes; None: it stays.
        self.power_left: int | None = None
        self.synced = 0
        self.syncs_failed = 0
        # A sync has failed since the last crash, and what it should have written may be gone.
        self.pages_dropped = False
        self._names: dict[str, _File] = {}
        self._durable_names: dict[str, _File] = {}
        self._handles: dict[int, _File] = {}
        self._next_handle = 3
        self._locked: set[str] = set()
        self._removed: set[str] = set()  # directories of which the disk does not know it yet

    # The seam

    def make_directory(self, path: str) -> None:
        pass

    def list_directories(self, path: str) -> list[str]:
        inside = [name.removeprefix(path + "/") for name in self._names if name.startswith(path + "/")]
        return sorted({name.partition("/")[0] for name in inside if "/" in name})

    def list(self, path: str) -> list[str]:
        return sorted(os.path.basename(name) for name in self._names if os.path.dirname(name) == path)

    def remove_directory(self, path: str) -> None:
        self._draw_power()
        self._removed.add(path)

    def make_temporary_directory(self, prefix: str) -> str:
        return "/" + prefix + "0"

    def open(self, path: str, create: bool = False) -> int:
        file = self._names.get(path)
        if file is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self._draw_power()
            file = _File()
            self._names[path] = file
        self._next_handle += 1
        self._handles[self._next_handle] = file
        return self._next_handle

    def open_to_read(self, path: str) -> int:
        return self.open(path)

    def close(self, handle: int) -> None:
        file = self._handles.pop(handle)
        if not self.close_failures_left:
            return
        self.close_failures_left -= 1
        is_kept = any(self._is_below(file, path) for path in NEVER_SYNCED)
        if self.closes_lose and file.unsynced and not is_kept:
            self._keep_some(file)
            file.visible = bytearray(file.durable)
        raise OSError(errno.EIO, "simulated failure to close")

    def size(self, handle: int) -> int:
        return len(self._handles[handle].visible)

    def read(self, handle: int, at: int, count: int) -> bytes:
        if self.reads_fail:
            self.when_unread()
            raise OSError(errno.EIO, "simulated failure to read")
        return bytes(self._handles[handle].visible[at : at + count])

    def write(self, handle: int, at: int, octets: bytes | bytearray | memoryview) -> None:
        data = bytes(octets)
        file = self._handles[handle]
        if self.power_left == 0:
            self._apply(file, at, data[: self.chance.randrange(len(data) + 1)])
        self._draw_power()
        if self._is_broken(file):
            raise OSError(errno.EIO, "simulated failure of a directory")
        if self.write_failures_left:
            self.write_failures_left -= 1
            # Part of it may have arrived all the same.
            self._apply(file, at, data[: self.chance.randrange(len(data) + 1)])
            raise OSError(errno.EIO, "simulated write failure")
        self._grow(file, at + len(data))
        self._apply(file, at, data)

    def sync(self, handle: int) -> None:
        file = self._handles[handle]
        self._draw_power()
        if self.sync_failures_left:
            self.sync_failures_left -= 1
            self.syncs_failed += 1
            self.pages_dropped = True
            self._keep_some(file)
            file.visible = bytearray(file.durable)
            raise OSError(errno.EIO, "simulated sync failure")
        file.durable = bytearray(file.visible)
        file.unsynced = []
        self.synced += 1

    def is_there(self, path: str, handle: int) -> bool:
        return self._names.get(path) is self._handles[handle]

    def reserve(self, handle: int, size: int) -> None:
        file = self._handles[handle]
        self._grow(file, size)
        if len(file.visible) < size:
            file.visible.extend(bytes(size - len(file.visible)))
            file.unsynced.append((size, None))

    def truncate(self, handle: int, size: int) -> None:
        file = self._handles[handle]
        del file.visible[size:]
        file.unsynced.append((size, None))

    def prewrite(self, path: str, size: int) -> None:
        handle = self.open(path, create=True)
        try:
            self.write(handle, 0, bytes(size))
            self.sync(handle)
        finally:
            self.let_go(handle)

    def rename(self, old: str, new: str) -> None:
        self._draw_power()
        self._names[new] = self._names.pop(old)

    def delete(self, path: str) -> None:
        if path not in self._names:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        self._draw_power()
        del self._names[path]

    def sync_directory(self, path: str) -> None:
        self._draw_power()
        here = {name: file for name, file in self._names.items() if os.path.dirname(name) == path}
        elsewhere = {n: f for n, f in self._durable_names.items() if os.path.dirname(n) != path}
        self._durable_names = {**elsewhere, **here}
        for gone in [each for each in self._removed if os.path.dirname(each) == path]:
            self._removed.discard(gone)
            # With all that was in it; files of another one that has its name by now are others.
            for name, file in list(self._durable_names.items()):
                if os.path.dirname(name) == gone and self._names.get(name) is not file:
                    del self._durable_names[name]

    def free_octets(self, path: str) -> int:
        return max(0, self.capacity_octets - self.used_octets())

    def lock(self, path: str) -> int:
        return self.open(path, create=True)

    # Faults

    def _draw_power(self) -> None:
        if self.power_left is None:
            return
        if self.power_left == 0:
            self.power_left = None
            raise PowerLost
        self.power_left -= 1

    @contextmanager
    def sound(self) -> Iterator[None]:
        """Whoever looks at the files inside is not of the history."""
        fails, self.reads_fail = self.reads_fail, False
        try:
            yield
        finally:
            self.reads_fail = fails

    def _is_broken(self, file: _File) -> bool:
        return bool(self.broken_directory) and self._is_below(file, self.broken_directory + "/")

    def _is_below(self, file: _File, path: str) -> bool:
        return any(each is file for name, each in self._names.items() if name.startswith(path))

    def used_octets(self) -> int:
        return sum(len(file.visible) for file in self._names.values())

    def crash(self) -> None:
        """Power is lost: handles are gone, and of what was not synced a random part is kept."""
        self._handles.clear()
        self.pages_dropped = False
        names: dict[str, _File] = {}
        for name in sorted({*self._names, *self._durable_names}):
            before, after = self._durable_names.get(name), self._names.get(name)
            file = before if before is after else self.chance.choice((before, after))
            if file is not None and file not in names.values():
                names[name] = file
        for name, file in self._durable_names.items():
            # A rename is one or the other, never neither.
            if file not in names.values() and file in self._names.values():
                names[name] = file
        self._names = names
        self._durable_names = dict(names)
        self._removed.clear()
        for file in names.values():
            self._keep_some(file)
            file.visible = bytearray(file.durable)
        self.sync_failures_left = 0
        self.write_failures_left = 0
        self.close_failures_left = 0
        self.reads_fail = False
        self.broken_directory = ""

    def kill(self) -> None:
        """Only the process dies: everything written is there."""
        self._handles.clear()
        self.pages_dropped = False

    def flip_bit(self, path: str, at: int, bit: int) -> None:
        """The medium rots."""
        file = self._names[path]
        file.visible[at] ^= 1 << bit
        if at < len(file.durable):
            file.durable[at] ^= 1 << bit

    def content(self, path: str) -> bytes:
        return bytes(self._names[path].visible)

    def _grow(self, file: _File, size: int) -> None:
        more = size - len(file.visible)
        if more > 0 and self.used_octets() + more > self.capacity_octets:
            raise OSError(errno.ENOSPC, "simulated full disk")

    def _apply(self, file: _File, at: int, data: bytes) -> None:
        if len(file.visible) < at:
            file.visible.extend(bytes(at - len(file.visible)))
        file.visible[at : at + len(data)] = data
        file.unsynced.append((at, data))

    def _keep_some(self, file: _File) -> None:
        """Bring a random choice of sectors of the unsynced writes to the medium, in any order."""
        changes, file.unsynced = file.unsynced, []
        way = self.chance.randrange(4)
        if way == 0 or not changes:
            return
        for at, data in changes:
            if data is None:
                if self.chance.random() < 0.5:
                    _resize(file.durable, at)
                continue
            start = at
            while start < at + len(data):
                end = min(at + len(data), (start // SECTOR + 1) * SECTOR)
                if way == 1 or self.chance.random() < 0.7:
                    if len(file.durable) < end:
                        file.durable.extend(bytes(end - len(file.durable)))
                    file.durable[start:end] = data[start - at : end - at]
                elif way == 2:
                    break
                start = end


def _resize(octets: bytearray, size: int) -> None:
    if len(octets) > size:
        del octets[size:]
    else:
        octets.extend(bytes(size - len(octets)))
