"""Taking, reading, writing and closing sockets that do not block, by their descriptors.

A twin: sockets.pxd holds the same functions in C for compiled modules, where neither "not now" nor "gone"
costs an exception, and a socket needs no object.
"""

from __future__ import annotations

import contextlib
import os
import socket

NOT_NOW = -1
GONE = -2


def accept(listener: socket.socket) -> tuple[int, str] | None:
    """The next connection's descriptor and its peer's address; None if there is none now."""
    try:
        connected, address = listener.accept()
    except (BlockingIOError, InterruptedError, ConnectionAbortedError):
        return None
    connected.setblocking(False)
    return connected.detach(), address[0]


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


def is_there(descriptor: int) -> bool:
    """Whether the peer has not closed or reset, as far as one can tell without reading."""
    try:
        with socket.fromfd(descriptor, socket.AF_INET, socket.SOCK_STREAM) as copy:
            return copy.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b""
    except (BlockingIOError, InterruptedError):
        return True
    except OSError:
        return False


def end_sending(descriptor: int) -> None:
    """Tells the peer that no more comes; what it sends can still be read."""
    with (
        contextlib.suppress(OSError),  # it is gone, as the next read will tell
        socket.fromfd(descriptor, socket.AF_INET, socket.SOCK_STREAM) as copy,
    ):
        copy.shutdown(socket.SHUT_WR)


def close(descriptor: int) -> None:
    os.close(descriptor)
