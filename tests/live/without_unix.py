"""`python without_unix.py ARGUMENTS`: the command `flintmq` where what only Unix has is hidden.

What Windows lacks is taken away (fcntl, epoll, readv, signals ...), what it does otherwise is done its way
(locks by msvcrt, no file is deleted while it is open, the event loop takes no signals), and Python says that
it runs there. It shows that the code gets by with that; it does not show what a real Windows does.
"""

from __future__ import annotations

# What these load must be loaded while Python still says where it runs.
import asyncio
import builtins
import concurrent.futures.thread
import ctypes
import errno
import fcntl
import multiprocessing
import os
import select
import selectors
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import types
from typing import Any

MODULES = ("fcntl", "resource", "termios", "tty", "pty", "pwd", "grp", "syslog", "uvloop")
LACKING: dict[types.ModuleType, list[str]] = {
    os: [
        "readv",
        "writev",
        "pread",
        "pwrite",
        "preadv",
        "pwritev",
        "fdatasync",
        "posix_fallocate",
        "statvfs",
        "sysconf",
        "sched_getaffinity",
        "sched_yield",
        "fork",
        "getuid",
        "geteuid",
        "O_CLOEXEC",
        "O_DIRECTORY",
        "O_NOFOLLOW",
        "pidfd_open",
        "sendfile",
        "fchmod",
        "chown",
    ],
    select: ["epoll", "poll"],
    socket: ["AF_UNIX", "MSG_DONTWAIT", "send_fds", "recv_fds"],
    signal: ["SIGHUP", "SIGUSR1", "SIGUSR2", "SIGQUIT", "SIGKILL", "SIGALRM", "SIGPIPE"],
}
LOADED = (concurrent.futures.thread, ctypes, multiprocessing, ssl, subprocess, tempfile)


def lock_like_windows() -> types.ModuleType:
    flock, exclusive = fcntl.flock, fcntl.LOCK_EX | fcntl.LOCK_NB

    def locking(handle: int, mode: int, count: int) -> None:
        assert os.lseek(handle, 0, os.SEEK_CUR) > 64, "nobody could read who holds the lock"
        try:
            flock(handle, exclusive)
        except BlockingIOError:
            raise PermissionError(errno.EACCES, "Permission denied") from None

    module = types.ModuleType("msvcrt")
    module.locking = locking  # type: ignore[attr-defined]
    module.LK_NBLCK = 2  # type: ignore[attr-defined]
    return module


def keep_what_is_open() -> None:
    """No file is deleted or replaced while this process has it open."""
    unlink, replace, readlink, listdir = os.unlink, os.replace, os.readlink, os.listdir

    def refuse(path: Any) -> None:
        wanted = os.path.realpath(path)
        for number in listdir("/proc/self/fd"):
            try:
                found = readlink(f"/proc/self/fd/{number}")
            except FileNotFoundError:  # that of the list itself
                continue
            if found == wanted:
                raise PermissionError(errno.EACCES, "The file is used by another process", path)

    def unlink_closed(path: Any, **options: Any) -> None:
        refuse(path)
        unlink(path, **options)

    def replace_closed(old: Any, new: Any, **options: Any) -> None:
        refuse(old)
        refuse(new)
        replace(old, new, **options)

    os.unlink = os.remove = unlink_closed  # type: ignore[assignment]
    os.replace = replace_closed  # type: ignore[assignment]

    def rename_new(old: Any, new: Any, **options: Any) -> None:
        if os.path.exists(new):
            raise FileExistsError(errno.EEXIST, "File exists", new)
        replace_closed(old, new, **options)

    os.rename = rename_new  # type: ignore[assignment]


def hide_proc() -> None:
    """There is no /proc."""
    opened, os_opened = builtins.open, os.open

    def refuse(path: Any) -> None:
        if str(path).startswith("/proc/"):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)

    def open_other(path: Any, *arguments: Any, **options: Any) -> Any:
        refuse(path)
        return opened(path, *arguments, **options)

    def os_open_other(path: Any, *arguments: Any, **options: Any) -> int:
        refuse(path)
        return os_opened(path, *arguments, **options)

    builtins.open = open_other
    os.open = os_open_other


def refuse_signals(self: object, number: int, callback: object, *arguments: object) -> None:
    raise NotImplementedError


def hide() -> None:
    msvcrt = lock_like_windows()
    pair, unix = socket.socketpair, socket.AF_UNIX
    socket.socketpair = lambda *_: pair(unix)  # type: ignore[assignment]
    usage, statvfs = shutil._ntuple_diskusage, os.statvfs  # type: ignore[attr-defined]

    def disk_usage(path: Any) -> Any:
        found = statvfs(path)
        return usage(found.f_blocks * found.f_frsize, 0, found.f_bavail * found.f_frsize)

    shutil.disk_usage = disk_usage
    selectors.DefaultSelector = selectors.SelectSelector  # type: ignore[misc]
    asyncio.SelectorEventLoop.add_signal_handler = refuse_signals  # type: ignore[method-assign, assignment]
    keep_what_is_open()
    hide_proc()
    for module, names in LACKING.items():
        for name in names:
            delattr(module, name)
    for name in MODULES:
        sys.modules[name] = None  # type: ignore[assignment]
    sys.modules["msvcrt"] = msvcrt
    sys.platform = "win32"


if __name__ == "__main__":
    hide()
    from flintmq.cli import main

    sys.exit(main(sys.argv[1:]))
