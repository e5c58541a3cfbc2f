"""Several calls of the system in a row, for a thread that writes beside one that is busy.

A twin: file_calls.pxd holds the same in C for compiled modules. Between the calls it asks for no lock of the
interpreter, for each of which a thread may wait until the busy one pauses.
"""

from __future__ import annotations

import errno
import os
import time

DONE = 0
NOT_WRITTEN = 1
NOT_SYNCED = 2
NOT_THERE = 3
NOT_NOTED = 4


def commit(
    handle: int,
    at: int,
    buffer: bytearray,
    start: int,
    end: int,
    path: bytes,
    device: int,
    number: int,
    notes: int,
    note_at: int,
    note: bytes,
) -> tuple[int, int, int]:
    """Write and sync `buffer[start:end]`, see that the path leads to the file of this number, write the note.

    Returns which step failed, its errno (0 where the path leads elsewhere), and the microseconds of the sync.
    """
    step = NOT_WRITTEN
    sync_us = 0
    try:
        write_all(handle, at, memoryview(buffer)[start:end])
        step = NOT_SYNCED
        began_ns = time.monotonic_ns()
        os.fdatasync(handle)
        sync_us = (time.monotonic_ns() - began_ns) // 1000
        step = NOT_THERE
        found = os.stat(path)
        if (found.st_dev, found.st_ino) != (device, number):
            return NOT_THERE, 0, sync_us
        step = NOT_NOTED
        write_all(notes, note_at, memoryview(note))
    except OSError as failure:
        leads_nowhere = step == NOT_THERE and failure.errno in (errno.ENOENT, errno.ENOTDIR)
        return step, 0 if leads_nowhere else failure.errno or errno.EIO, sync_us
    return DONE, 0, sync_us


def write_all(handle: int, at: int, octets: memoryview) -> None:
    while octets:
        written = os.pwrite(handle, octets, at)
        at += written
        octets = octets[written:]
