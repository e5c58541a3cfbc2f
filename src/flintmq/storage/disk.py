"""The one seam to the disk: everything storage does to files goes through a Disk.

The simulation puts a disk in its place that loses, tears, reorders and refuses; so nothing here
may be clever. Files are known by handles, names by paths. Failures are OSError, as the system gave them.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sys
import tempfile

from flintmq.errors import StorageFault

# One write of zeros while a segment is prepared: large enough for full speed, small enough that
# a journal sync waiting behind it on the device waits a few milliseconds at most.
PREWRITE_OCTETS = 1 << 20


class Disk:
    """Files on a real file system."""

    def make_directory(self, path: str) -> None:
        os.makedirs(path, mode=0o700, exist_ok=True)

    def list_directories(self, path: str) -> list[str]:
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))

    def list(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def remove_directory(self, path: str) -> None:
        os.rmdir(path)

    def make_temporary_directory(self, prefix: str) -> str:
        return tempfile.mkdtemp(prefix=prefix)

    def open(self, path: str, create: bool = False) -> int:
        flags = os.O_RDWR | os.O_CLOEXEC
        return os.open(path, flags | os.O_CREAT if create else flags, 0o600)

    def open_to_read(self, path: str) -> int:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def close(self, handle: int) -> None:
        os.close(handle)

    def size(self, handle: int) -> int:
        return os.fstat(handle).st_size

    def read(self, handle: int, at: int, count: int) -> bytes:
        """Up to `count` octets; fewer only at the end of the file."""
        octets = os.pread(handle, count, at)
        if len(octets) == count or not octets:
            return octets
        parts = [octets]
        read = len(octets)
        while read < count:
            octets = os.pread(handle, count - read, at + read)
            if not octets:
                break
            parts.append(octets)
            read += len(octets)
        return b"".join(parts)

    def write(self, handle: int, at: int, octets: bytes | bytearray | memoryview) -> None:
        view = memoryview(octets)
        written = os.pwrite(handle, view, at)
        while written < len(view):
            written += os.pwrite(handle, view[written:], at + written)

    def sync(self, handle: int) -> None:
        if sys.platform == "darwin":
            # fsync there leaves the octets in the drive's own memory.
            fcntl.fcntl(handle, fcntl.F_FULLFSYNC)
        else:
            os.fdatasync(handle)

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
            os.close(handle)

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def delete(self, path: str) -> None:
        os.unlink(path)

    def sync_directory(self, path: str) -> None:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def free_octets(self, path: str) -> int:
        state = os.statvfs(path)
        return state.f_bavail * state.f_frsize

    def lock(self, path: str) -> int:
        """Hold the lock file for as long as the handle is open; the kernel lets go when we die."""
        handle = self.open(path, create=True)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as failure:
            holder = self.read(handle, 0, 64).decode("ascii", "replace").strip() or "unknown"
            os.close(handle)
            if failure.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            raise StorageFault(
                f"{os.path.dirname(path)} is in use by process {holder}: "
                "one data directory serves one process; stop that one or choose another directory"
            ) from failure
        # Written over what is there, then cut: on a full disk that takes no new room.
        holder_line = f"{os.getpid()}\n".encode("ascii")
        self.write(handle, 0, holder_line)
        os.ftruncate(handle, len(holder_line))
        return handle
