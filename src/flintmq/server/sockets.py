"""Reading and writing a connected socket that does not block, by its descriptor.

A twin: sockets.pxd holds the same two functions in C for compiled modules, where neither "not now" nor
"gone" costs an exception.
"""

from __future__ import annotations

import os

NOT_NOW = -1
GONE = -2


def receive(descriptor: int, buffer: bytearray, start: int) -> int:
    """Reads into `buffer` from `start` on; the number of octets, 0 at the end, NOT_NOW or GONE."""
    try:
        return os.readv(descriptor, [memoryview(buffer)[start:]])
    except (BlockingIOError, InterruptedError):
        return NOT_NOW
    except OSError:
        return GONE


def send(descriptor: int, buffer: bytearray, start: int, end: int) -> int:
    """Writes what it can of `buffer[start:end]`; the number of octets, NOT_NOW or GONE."""
    try:
        return os.write(descriptor, memoryview(buffer)[start:end])
    except (BlockingIOError, InterruptedError):
        return NOT_NOW
    except OSError:
        return GONE
