"""The one seam to the disk: everything storage does to files goes through a Disk.

The simulation puts a disk in its place that loses, tears, reorders and refuses; so nothing here
may be clever. Files are known by handles, names by paths. Failures are OSError, as the system gave them.

Windows has no pread, no way to sync a directory, and deletes no file that is open.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
import sys
import threading

from flintmq import clock
from flintmq.errors import StorageFault
from flintmq.storage import file_calls
from flintmq.storage.file_lock import try_lock

log = logging.getLogger("flintmq.storage")

# One write of zeros while a segment is prepared: large enough for full speed, small enough that
# a journal sync waiting behind it on the device waits a few milliseconds at most.
PREWRITE_OCTETS = 1 << 20

# What only one kind of system knows. Without O_BINARY Windows would write line ends of its own.
# With O_NONBLOCK a pipe in the place of a file is opened without waiting for its other end.
OPEN_FLAGS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
DIRECTORY_FLAGS = getattr(os, "O_DIRECTORY", 0)

if sys.platform == "win32":
    # A handle has one place in its file, for all threads.
    _place = threading.Lock()

    def read_at(handle: int, count: int, at: int) -> bytes:
        with _place:
            os.lseek(handle, at, os.SEEK_SET)
            return os.read(handle, count)

    def write_at(handle: int, octets: memoryview, at: int) -> int:
        with _place:
            os.lseek(handle, at, os.SEEK_SET)
            return os.write(handle, octets)

else:
    read_at = os.pread
    write_at = os.pwrite


class Commit:
    """Octets `start` to `end` of a buffer for one file, and the note for another one that they are safe."""

    __slots__ = ("at", "buffer", "end", "handle", "note", "note_at", "notes", "start")

    def __init__(
        self,
        handle: int,
        at: int,
        buffer: bytearray,
        start: int,
        end: int,
        notes: int,
        note_at: int,
        note: bytes,
    ) -> None:
        self.handle = handle
        self.at = at
        self.buffer = buffer
        self.start = start
        self.end = end
        self.notes = notes
        self.note_at = note_at
        self.note = note


class Disk:
    """Files on a real file system."""

    is_close_failing = False  # which was told

    def __init__(self) -> None:
        self.undeleted: set[str] = set()  # which were open when they should have gone
        self.identities: dict[int, tuple[int, int]] = {}  # device and number of those asked for

    def make_directory(self, path: str) -> None:
        os.makedirs(path, mode=0o700, exist_ok=True)

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def list_directories(self, path: str) -> list[str]:
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))

    def list(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def remove_directory(self, path: str) -> None:
        os.rmdir(path)

    def make_temporary_directory(self, prefix: str) -> str:
        import tempfile  # by whoever needs one: it takes a millisecond to load

        return tempfile.mkdtemp(prefix=prefix)

    def open(self, path: str, create: bool = False) -> int:
        flags = os.O_RDWR | OPEN_FLAGS
        return as_file(path, os.open(path, flags | os.O_CREAT if create else flags, 0o600))

    def open_to_read(self, path: str) -> int:
        return as_file(path, os.open(path, os.O_RDONLY | OPEN_FLAGS))

    def close(self, handle: int) -> None:
        self.identities.pop(handle, None)  # before another file gets the handle
        os.close(handle)

    def let_go(self, handle: int) -> bool:
        """Closes a file that is synced, was only read or is given up; whether that went well.

        A failure is told once. However the close ends, the number may belong to another file or to a socket
        afterwards: whoever has kept it forgets it before.
        """
        try:
            self.close(handle)
        except OSError as failure:
            if not self.is_close_failing:
                log.error("a file could not be closed properly: %s", failure.strerror or failure)
            self.is_close_failing = True
            return False
        self.is_close_failing = False
        return True

    def size(self, handle: int) -> int:
        return os.fstat(handle).st_size

    def read(self, handle: int, at: int, count: int) -> bytes:
        """Up to `count` octets; fewer only at the end of the file."""
        try:
            octets = read_at(handle, count, at)
            if len(octets) == count or not octets:
                return octets
            parts = [octets]
            read = len(octets)
            while read < count:
                octets = read_at(handle, count - read, at + read)
                if not octets:
                    break
                parts.append(octets)
                read += len(octets)
        except OSError as failure:
            raise OSError(failure.errno, failure.strerror, self.path_of(handle)) from failure
        return b"".join(parts)

    def write(self, handle: int, at: int, octets: bytes | bytearray | memoryview) -> None:
        view = memoryview(octets)
        try:
            written = write_at(handle, view, at)
            while written < len(view):
                written += write_at(handle, view[written:], at + written)
        except OSError as failure:
            raise OSError(failure.errno, failure.strerror, self.path_of(handle)) from failure

    def sync(self, handle: int) -> None:
        try:
            if sys.platform == "darwin":
                import fcntl

                # fsync there leaves the octets in the drive's own memory.
                fcntl.fcntl(handle, fcntl.F_FULLFSYNC)
            elif sys.platform == "win32":
                os.fsync(handle)
            else:
                os.fdatasync(handle)
        except OSError as failure:
            raise OSError(failure.errno, failure.strerror, self.path_of(handle)) from failure

    def commit(self, commit: Commit, path: str, held: int) -> tuple[int, bool]:
        """Write and sync; if the path still leads to the file that is `held` open, write the note.

        Returns the microseconds that the sync took, and whether the note is written.
        """
        self.write(commit.handle, commit.at, memoryview(commit.buffer)[commit.start : commit.end])
        began_us = clock.monotonic_us()
        self.sync(commit.handle)
        sync_us = clock.monotonic_us() - began_us
        self.insist_on(path, held)
        try:
            self.write(commit.notes, commit.note_at, commit.note)
        except OSError:
            return sync_us, False
        return sync_us, True

    def path_of(self, handle: int) -> str | None:
        """What an open file is called, where the system tells."""
        try:
            return os.readlink(f"/proc/self/fd/{handle}")
        except OSError:
            return None

    def is_there(self, path: str, handle: int) -> bool:
        """Whether the open file is still the one that the path leads to."""
        identity = self.identity_of(handle)
        try:
            found = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return (found.st_dev, found.st_ino) == identity

    def insist_on(self, path: str, handle: int) -> None:
        """What is written beside a file that is gone, or another one by now, would not be found again."""
        if not self.is_there(path, handle):
            raise removed(path)

    def identity_of(self, handle: int) -> tuple[int, int]:
        """Device and number of an open file."""
        identity = self.identities.get(handle)
        if identity is None:
            opened = os.fstat(handle)
            identity = self.identities[handle] = (opened.st_dev, opened.st_ino)
        return identity

    def reserve(self, handle: int, size: int) -> None:
        """Take the room now, so that a full disk shows here and not in the middle of a batch."""
        if not hasattr(os, "posix_fallocate"):
            os.ftruncate(handle, size)
            return
        try:
            os.posix_fallocate(handle, 0, size)
        except OSError as failure:
            if failure.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                raise
            os.ftruncate(handle, size)

    def truncate(self, handle: int, size: int) -> None:
        os.ftruncate(handle, size)

    def prewrite(self, path: str, size: int) -> None:
        """A file of zeros whose blocks exist and are synced: writing into it later syncs cheaply."""
        handle = self.open(path, create=True)
        try:
            zeros = bytes(min(size, PREWRITE_OCTETS))
            for at in range(0, size, len(zeros)):
                self.write(handle, at, zeros[: size - at])
                self.sync(handle)
        finally:
            self.let_go(handle)

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    def delete(self, path: str) -> None:
        if sys.platform == "win32":
            self.delete_closed(path)
        else:
            os.unlink(path)

    def delete_closed(self, path: str) -> None:
        """As Windows has it: what is open stays until a later call finds it closed, or for the next start."""
        self.undeleted.add(path)
        for each in list(self.undeleted):
            try:
                os.unlink(each)
            except PermissionError:
                continue
            except FileNotFoundError:
                self.undeleted.remove(each)
                if each == path:
                    raise
            else:
                self.undeleted.remove(each)

    def sync_directory(self, path: str) -> None:
        if sys.platform == "win32":
            return  # NTFS writes names down in its own journal
        handle = os.open(path, os.O_RDONLY | DIRECTORY_FLAGS | OPEN_FLAGS)
        try:
            os.fsync(handle)
        except OSError as failure:
            raise OSError(failure.errno, failure.strerror, path) from failure
        finally:
            self.let_go(handle)

    def free_octets(self, path: str) -> int:
        if hasattr(os, "statvfs"):
            volume = os.statvfs(path)
            return volume.f_bavail * volume.f_frsize
        import shutil  # Windows

        return shutil.disk_usage(path).free

    def lock(self, path: str) -> int:
        """Hold the lock file for as long as the handle is open; the kernel lets go when we die."""
        handle = self.open(path, create=True)
        try:
            if not try_lock(handle):
                holder = self.read(handle, 0, 64).decode("ascii", "replace").strip() or "unknown"
                raise StorageFault(
                    f"{os.path.dirname(path)} is in use by process {holder}: "
                    "one data directory serves one process; stop that one or choose another directory"
                )
            # Written over what is there, then cut: on a full disk that takes no new room.
            holder_line = f"{os.getpid()}\n".encode("ascii")
            self.write(handle, 0, holder_line)
            os.ftruncate(handle, len(holder_line))
        except (OSError, StorageFault):
            self.let_go(handle)
            raise
        return handle


class SystemDisk(Disk):
    """The same, and commits without a pause for the interpreter between their steps.

    What watches or refuses single steps builds on Disk.
    """

    def commit(self, commit: Commit, path: str, held: int) -> tuple[int, bool]:
        if sys.platform != "linux":
            return super().commit(commit, path, held)  # no fdatasync, or not the one that is meant
        device, number = self.identity_of(held)
        failed, error, sync_us = file_calls.commit(
            commit.handle,
            commit.at,
            commit.buffer,
            commit.start,
            commit.end,
            os.fsencode(path),
            device,
            number,
            commit.notes,
            commit.note_at,
            commit.note,
        )
        if failed == file_calls.DONE:
            return sync_us, True
        if failed == file_calls.NOT_NOTED:
            return sync_us, False
        if failed != file_calls.NOT_THERE:
            raise OSError(error, os.strerror(error), self.path_of(commit.handle))
        if error:
            raise OSError(error, os.strerror(error), path)
        raise removed(path)


def as_file(path: str, handle: int) -> int:
    """The handle, unless it is that of a directory or a pipe: these fail at the first read, unnamed."""
    try:
        mode = os.fstat(handle).st_mode
    except OSError:
        os.close(handle)
        raise
    if not stat.S_ISDIR(mode) and not stat.S_ISFIFO(mode):
        return handle
    os.close(handle)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    raise OSError(errno.EINVAL, "it is a pipe, and no file", path)


def removed(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, "it was removed", os.path.dirname(path))
