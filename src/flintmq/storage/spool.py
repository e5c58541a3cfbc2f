"""Payloads too large for memory: one file each, written as they arrive, read as they leave.

    open_spool -> append ... append -> finish -> Journal.append_spooled(owners, header, spool)

The entry's record holds a reference to the file in place of the payload:

    0                8                16       20       24
    +----------------+----------------+--------+--------+
    | spool number   | octets         | crc32c |   0    |
    +----------------+----------------+--------+--------+

The file is synced before the record that names it, so whoever finds the record finds the file.
A file that no live record names is a leftover, and recovery removes it.

There may be more spools than a process may have files open: clients send bodies on all their channels at
once, and leave others unread. `OpenSpools` has descriptors of the spools that were written or read last, and
each of the others opens its file again when it is needed. The journal's writer has some more, of spools that
it is to sync. Whoever reads a spool has a `SpoolReader`, which keeps the file in being until it is closed.
"""

from __future__ import annotations

import errno
import logging
import os
import struct
from collections import deque
from typing import Protocol

from flintmq.errors import StorageFault
from flintmq.storage import crc32c
from flintmq.storage.disk import Disk

log = logging.getLogger("flintmq.storage")

_REFERENCE = struct.Struct("<QQII")
REFERENCE_OCTETS = _REFERENCE.size
# The keys of values that name a spool which is no entry's yet begin with it, the values with a reference.
STAGED = b"f"
_SUFFIX = ".spool"
_COPY_OCTETS = 1 << 20
# Files deleted at a time: some milliseconds.
DISCARDED_MAX = 256
# Descriptors of spools: of those written or read last, and as many that wait to be synced.
OPEN_MAX = 64
# Attempts to read a body that has to be copied before it is confirmed, one a second: nobody else's messages
# reach the disk meanwhile.
READS_FAILED_MAX = 5


def spool_name(number: int) -> str:
    return f"{number:020d}{_SUFFIX}"


def spool_number(name: str) -> int | None:
    """The number of the spool that a file name means, or None."""
    stem = name.removesuffix(_SUFFIX)
    return int(stem) if stem != name and len(stem) == 20 and stem.isdigit() else None


class SpoolUser(Protocol):
    """Has a descriptor of a spool, and opens another one when it needs it."""

    def rest(self) -> None:
        """The descriptor goes."""


class OpenSpools:
    """Those that have a descriptor, in the order in which they were used; on the thread of the loop."""

    def __init__(self) -> None:
        self.users: dict[SpoolUser, None] = {}
        self.is_removal_failing = False  # which was told
        self.unreadable: dict[str, str] = {}  # why, by path; each was told

    def use(self, user: SpoolUser) -> None:
        """It is written or read now; the one that was not for the longest time has to rest."""
        self.users.pop(user, None)
        self.users[user] = None
        if len(self.users) > OPEN_MAX:
            next(iter(self.users)).rest()

    def leave(self, user: SpoolUser) -> None:
        self.users.pop(user, None)

    def cannot_read(self, path: str, failure: OSError) -> None:
        """The disk does not give a body now: its queue waits and tries again."""
        if path not in self.unreadable:
            self.unreadable[path] = f"{path}: {failure.strerror or failure}"
            log.error("%s: its message waits until it can be read", self.unreadable[path])

    def can_read(self, path: str) -> None:
        if path in self.unreadable:
            del self.unreadable[path]
            log.warning("%s can be read again", path)

    def remove_file(self, disk: Disk, path: str) -> None:
        """The file that nobody needs goes; if the disk refuses, the next start removes it."""
        self.unreadable.pop(path, None)
        try:
            disk.delete(path)
        except FileNotFoundError:
            # One that was staged and got no part has none; whoever has taken another away has done the work.
            pass
        except OSError as failure:
            if not self.is_removal_failing:
                log.warning("%s stays until the next start: %s", path, failure.strerror or failure)
            self.is_removal_failing = True
            return
        self.is_removal_failing = False


class Spool:
    """One payload on disk."""

    def __init__(
        self,
        disk: Disk,
        path: str,
        number: int,
        open_spools: OpenSpools,
        octets: int = 0,
        crc: int = 0,
    ) -> None:
        self.disk = disk
        self.path = path
        self.number = number
        self.open_spools = open_spools
        self.handle = -1
        self.octets = octets
        self.crc = crc
        self.finished = False
        self.holders = 1
        # The entry that holds it.
        self.sequence = 0
        self.secured = False
        # A sync failed and the octets did not survive it.
        self.lost = False
        self._doubtful = False
        self._reads_failed = 0
        # Why it is not the body of a message any more.
        self.damage = ""
        # Where the disk last failed to read it; -1: nowhere.
        self.failed_at = -1
        # Octets that were read last, from the beginning on, and their checksum.
        self.checked = (0, 0)

    def append(self, chunk: bytes) -> None:
        """Write the next octets; a fault if the disk does not take them, and the spool is to be discarded."""
        if self.finished:
            raise AssertionError("a finished spool takes no more")
        try:
            if self.handle < 0:
                self.handle = self.disk.open(self.path)
            self.open_spools.use(self)
            self.disk.write(self.handle, self.octets, chunk)
        except OSError as failure:
            raise StorageFault(f"cannot write {self.path}: {failure.strerror or failure}") from failure
        self.crc = crc32c.extend(self.crc, chunk)
        self.octets += len(chunk)

    def finish(self) -> None:
        """That was all of it."""
        self.finished = True

    def read(self, at: int, count: int) -> bytes:
        """Octets from anywhere in it; fewer at the end."""
        count = min(count, max(0, self.octets - at))
        if self.handle >= 0:
            return self.disk.read(self.handle, at, count)
        handle = self.open_to_read()
        try:
            return self.disk.read(handle, at, count)
        finally:
            self.disk.let_go(handle)

    def open_to_read(self) -> int:
        return self.disk.open_to_read(self.path)

    def look(self) -> str:
        """Why its file is not the body any more, as far as a look tells; an OSError if the disk fails now."""
        if self.damage:
            return self.damage
        try:
            why = self._look()
        except OSError as failure:
            self.open_spools.cannot_read(self.path, failure)
            raise
        self.open_spools.can_read(self.path)
        return why

    def _look(self) -> str:
        try:
            handle = self.open_to_read()
        except FileNotFoundError:
            return f"{self.path} is missing"
        try:
            if self.disk.size(handle) < self.octets:
                return f"{self.path} is cut short"
            if self.failed_at >= 0:
                self.disk.read(handle, self.failed_at, 1)
                self.failed_at = -1
        finally:
            self.disk.let_go(handle)
        return ""

    def share(self) -> Spool:
        """One more holds it, and has to discard it too."""
        self.holders += 1
        return self

    def discard(self) -> None:
        """A holder lets go; the last one closes and deletes."""
        self.holders -= 1
        if self.holders == 0:
            self.rest()
            self.open_spools.remove_file(self.disk, self.path)

    def rest(self) -> None:
        """Its descriptor goes; what is still to be written or synced opens another one."""
        self.open_spools.leave(self)
        if self.handle >= 0:
            handle, self.handle = self.handle, -1
            if not self.disk.let_go(handle):
                self._doubtful = True  # the close may have told of a write that failed

    def secure(self) -> None:
        """Sync it, on the writer's thread. After a failed sync only a copy elsewhere can be trusted."""
        if self.secured:
            return
        if self.handle < 0:
            self._open_again()
        if not self._doubtful:
            try:
                self.disk.sync(self.handle)
                self.secured = True
                self.rest()
                return
            except OSError:
                self._doubtful = True
        self._write_elsewhere()
        if self.lost:
            raise OSError(errno.EIO, f"{self.path} was lost by a failed sync")
        self.rest()

    def _open_again(self) -> None:
        """A failure to write what was written before may have been told to nobody: sees what is there."""
        was_doubtful, self._doubtful = self._doubtful, True
        try:
            self.handle = self.disk.open(self.path)
        except FileNotFoundError:
            self.lost = True
            raise OSError(errno.EIO, f"{self.path} was removed before it was synced") from None
        self._doubtful = was_doubtful or not self.verify()

    def _write_elsewhere(self) -> None:
        """Copy what can still be read into a fresh file, if it is what was appended."""
        other = self.path + ".copy"
        handle = self.disk.open(other, create=True)
        try:
            self.lost = not self._copy_to(handle)
            if not self.lost:
                self.disk.sync(handle)
                self.disk.rename(other, self.path)
                handle, self.handle = self.handle, handle
                self.secured = True
        finally:
            self.disk.let_go(handle)
            if not self.secured:
                self.open_spools.remove_file(self.disk, other)

    def _copy_to(self, handle: int) -> bool:
        """Whether all of it is there. The journal waits for it, so it is read a few times and no more."""
        crc = 0
        for at in range(0, self.octets, _COPY_OCTETS):
            try:
                chunk = self.read(at, _COPY_OCTETS)
            except OSError:
                self._reads_failed += 1
                if self._reads_failed < READS_FAILED_MAX:
                    raise
                return False
            crc = crc32c.extend(crc, chunk)
            self.disk.write(handle, at, chunk)
        return crc == self.crc

    def reference(self) -> bytes:
        if not self.finished:
            raise AssertionError("an entry refers to a finished spool")
        return self.staged_reference()

    def staged_reference(self) -> bytes:
        """To what there is of it by now."""
        return _REFERENCE.pack(self.number, self.octets, self.crc, 0)

    def verify(self) -> bool:
        """Read all of it and compare with the checksum it was stored under."""
        crc = 0
        for at in range(0, self.octets, _COPY_OCTETS):
            crc = crc32c.extend(crc, self.read(at, _COPY_OCTETS))
        return crc == self.crc


class SpoolReader:
    """Reads one spool from its beginning to its end, as somebody else takes it.

    The checksum is computed on the way. It is compared before the last octets are handed on, so nobody gets a
    whole body that is not the one that was stored. Several readers may read it one after the other, each from
    where the last one ended. Of what is read in another order nothing is compared.
    """

    def __init__(self, spool: Spool) -> None:
        self.spool = spool.share()
        self.octets = spool.octets
        self._wanted_crc = spool.crc  # of so many octets: a staged one may grow
        self._disk = spool.disk
        self._handle = -1
        self._checked = 0  # octets that the checksum so far is of
        self._crc = 0

    def read(self, at: int, count: int) -> bytes:
        """Exactly so many octets; a fault if the disk does not give them, or not those that were stored."""
        try:
            if self._handle < 0:
                self._handle = self.spool.open_to_read()
            self.spool.open_spools.use(self)
            chunk = self._disk.read(self._handle, at, count)
        except OSError as failure:
            self.spool.failed_at = at
            raise StorageFault(f"cannot read {self.spool.path}: {failure.strerror or failure}") from failure
        if len(chunk) != count:
            raise StorageFault(f"{self.spool.path} is cut short")
        self._check(at, chunk)
        return chunk

    def _check(self, at: int, chunk: bytes) -> None:
        if at != self._checked:
            self._checked, self._crc = self.spool.checked
            if at != self._checked:
                return
        self._crc = crc32c.extend(self._crc, chunk)
        self._checked += len(chunk)
        if self._checked == self.octets and self._crc != self._wanted_crc:
            self.spool.damage = f"{self.spool.path} is not what was stored: its checksum is wrong"
            raise StorageFault(self.spool.damage)

    def rest(self) -> None:
        self.spool.open_spools.leave(self)
        if self._handle >= 0:
            handle, self._handle = self._handle, -1
            self._disk.let_go(handle)

    def close(self) -> None:
        if self._checked < self.octets:
            self.spool.checked = (self._checked, self._crc)
        self.rest()
        self.spool.discard()


class SpoolStore:
    """The spools of one journal: those that entries hold, and those on their way to deletion."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        # The journal's epoch, then a count: no two files that are there have the same number.
        self.epoch = 1
        self._opened = 0
        self._open_spools = OpenSpools()
        # By the sequence of the entry.
        self.adopted: dict[int, Spool] = {}
        # Those that wait with a descriptor for the journal's writer, which syncs them in this order.
        self._unsynced: deque[Spool] = deque()
        # Let go; deleted once the given sequence is synced.
        self._leaving: deque[tuple[int, Spool]] = deque()
        # By their numbers: those that grow in parts, see staging_files.py.
        self.staged: dict[int, Spool] = {}
        # Somebody copies the files: none of them goes meanwhile.
        self.is_held = False

    def open(self) -> Spool:
        number, path = self._next()
        spool = Spool(self._disk, path, number, self._open_spools)
        spool.handle = self._disk.open(path, create=True)
        self._open_spools.use(spool)
        return spool

    def stage(self) -> Spool:
        """One that a value is to name; it has no file yet."""
        number, path = self._next()
        self.staged[number] = spool = Spool(self._disk, path, number, self._open_spools)
        return spool

    def _next(self) -> tuple[int, str]:
        self._opened += 1
        number = self.epoch << 32 | self._opened
        return number, os.path.join(self._directory, spool_name(number))

    def adopt(self, sequence: int, spool: Spool) -> None:
        """An entry holds it. Its descriptor is the writer's from now on, or goes."""
        is_the_writers = bool(spool.sequence)  # another entry holds it already
        spool.sequence = sequence
        self.adopted[sequence] = spool
        if is_the_writers or spool.handle < 0:
            return
        unsynced = self._unsynced
        while unsynced and unsynced[0].handle < 0:
            unsynced.popleft()
        if len(unsynced) < OPEN_MAX:
            self._open_spools.leave(spool)
            unsynced.append(spool)
        else:
            spool.rest()

    def let_go(self, sequence: int, settled: int) -> None:
        """The entry died; the file goes when that is safe."""
        spool = self.adopted.pop(sequence, None)
        if spool is not None:
            self._leaving.append((settled, spool))

    def let_go_staged(self, number: int, settled: int) -> None:
        """No value names it any more; the file goes when that is safe, unless an entry shares it."""
        self._leaving.append((settled, self.staged.pop(number)))

    def synced(self, sequence: int) -> None:
        """Files that nobody needs any more go, some at a time; the journal calls again."""
        if self.is_held:
            return
        for _ in range(DISCARDED_MAX):
            if not self._leaving or self._leaving[0][0] > sequence:
                return
            self._leaving.popleft()[1].discard()

    def unreadable(self) -> list[str]:
        """Bodies that the disk does not give now: which, and why."""
        return [*self._open_spools.unreadable.values()]

    def named(self) -> list[Spool]:
        """The spools that records on disk may name."""
        staged = [spool for spool in self.staged.values() if spool.octets]
        return [*self.adopted.values(), *[spool for _, spool in self._leaving if spool.octets], *staged]

    def reopen(self, sequence: int, reference: bytes) -> None:
        """Take up the spool that a recovered entry names; a fault if it is not whole."""
        if len(reference) != _REFERENCE.size:
            raise StorageFault(f"entry {sequence} has a malformed reference to a spool")
        spool = self._found(f"entry {sequence}", reference)
        spool.finished = spool.secured = True
        self.adopt(sequence, spool)

    def reopen_staged(self, value: bytes) -> Spool | None:
        """Take up the spool that a recovered value names, if it names one; a fault if it is not whole."""
        if len(value) < _REFERENCE.size:
            raise StorageFault("a staged content has a malformed reference to a spool")
        number, octets, _, _ = _REFERENCE.unpack_from(value)
        if not number:
            return None
        # It may have no file yet, and be all that is left of its epoch: its name must not be used again.
        self.epoch = max(self.epoch, (number >> 32) + 1)
        if octets:
            spool = self._found("a staged content", value[: _REFERENCE.size])
        else:
            path = os.path.join(self._directory, spool_name(number))
            spool = Spool(self._disk, path, number, self._open_spools)
        self.staged[number] = spool
        return spool

    def _found(self, whose: str, reference: bytes) -> Spool:
        number, octets, crc, _ = _REFERENCE.unpack(reference)
        path = os.path.join(self._directory, spool_name(number))
        try:
            handle = self._disk.open(path)
        except FileNotFoundError as failure:
            raise StorageFault(f"{whose} names {spool_name(number)}, which is missing") from failure
        try:
            if self._disk.size(handle) < octets:
                raise StorageFault(f"{whose} names {spool_name(number)}, which is cut short")
        finally:
            self._disk.let_go(handle)
        return Spool(self._disk, path, number, self._open_spools, octets, crc)

    def remove_leftovers(self) -> int:
        """Delete files that no entry names; returns how many."""
        held = {spool.number for spool in self.adopted.values()} | self.staged.keys()
        removed = 0
        for name in self._disk.list(self._directory):
            number = spool_number(name)
            if name.endswith(_SUFFIX + ".copy"):
                self._disk.delete(os.path.join(self._directory, name))
            if number is not None and number not in held:
                self._disk.delete(os.path.join(self._directory, name))
                removed += 1
        return removed

    def epochs(self) -> list[int]:
        """The epochs in which the spools on disk were opened."""
        numbers = [spool_number(name) for name in self._disk.list(self._directory)]
        return [number >> 32 for number in numbers if number is not None]

    def octets(self) -> int:
        """What the live ones take on the disk."""
        return sum(spool.octets for spool in [*self.adopted.values(), *self.staged.values()])

    def close(self) -> None:
        for spool in self.adopted.values():
            spool.rest()
        for _, spool in self._leaving:
            spool.rest()
        for spool in self.staged.values():
            spool.rest()
        self.adopted.clear()
        self.staged.clear()
        self._leaving.clear()
