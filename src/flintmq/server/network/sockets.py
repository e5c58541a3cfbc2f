"""Finding, taking, reading, writing and closing sockets that do not block, by their descriptors.

A twin: sockets.pxd holds the same functions in C for compiled modules, where neither "not now" nor "gone"
costs an exception, and a socket needs no object.

Windows takes the descriptor of a socket in socket calls alone: there the objects are held here.
"""

from __future__ import annotations

import contextlib
import os
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import select

NOT_NOW = -1
GONE = -2

# Whether sockets are read and written by their descriptors.
BY_DESCRIPTOR = hasattr(os, "readv")
_held: dict[int, socket.socket] = {}


def ready(epoll: select.epoll, most: int) -> list[tuple[int, int]]:
    """Descriptors that have something to read or room to write now, so many at most, each with its events."""
    return epoll.poll(0, most)


def accept(listener: socket.socket) -> tuple[int, str] | None:
    """The next connection's descriptor and its peer's address; None if there is none now."""
    try:
        connected, address = listener.accept()
    except (BlockingIOError, InterruptedError, ConnectionAbortedError):
        return None
    connected.setblocking(False)
    return taken(connected), address[0]


def released(descriptor: int) -> socket.socket:
    """The socket as an object, which is the caller's from now on."""
    return _held.pop(descriptor, None) or socket.socket(fileno=descriptor)


def taken(connected: socket.socket) -> int:
    """The descriptor of a socket whose object nobody needs any more."""
    if BY_DESCRIPTOR:
        return connected.detach()
    _held[connected.fileno()] = connected
    return connected.fileno()


def receive(descriptor: int, buffer: bytearray, start: int, end: int) -> int:
    """Reads into `buffer[start:end]`; the number of octets, 0 at the end, NOT_NOW or GONE."""
    try:
        if not BY_DESCRIPTOR:
            return _held[descriptor].recv_into(memoryview(buffer)[start:end])
        return os.readv(descriptor, [memoryview(buffer)[start:end]])
    except (BlockingIOError, InterruptedError):
        return NOT_NOW
    except OSError:
        return GONE


def send(descriptor: int, buffer: bytearray, start: int, end: int) -> int:
    """Writes what it can of `buffer[start:end]`; the number of octets, NOT_NOW or GONE."""
    try:
        if not BY_DESCRIPTOR:
            return _held[descriptor].send(memoryview(buffer)[start:end])
        return os.write(descriptor, memoryview(buffer)[start:end])
    except (BlockingIOError, InterruptedError):
        return NOT_NOW
    except OSError:
        return GONE


def is_there(descriptor: int) -> bool:
    """Whether the peer has not closed or reset, as far as one can tell without reading."""
    try:
        if not BY_DESCRIPTOR:
            held = _held.get(descriptor)  # one that was released has an owner who is told
            return held is None or held.recv(1, socket.MSG_PEEK) != b""
        with socket.fromfd(descriptor, socket.AF_INET, socket.SOCK_STREAM) as copy:
            return copy.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b""
    except (BlockingIOError, InterruptedError):
        return True
    except OSError:
        return False


def end_sending(descriptor: int) -> None:
    """Tells the peer that no more comes; what it sends can still be read."""
    with contextlib.suppress(OSError):  # it is gone, as the next read will tell
        if not BY_DESCRIPTOR:
            _held[descriptor].shutdown(socket.SHUT_WR)
            return
        with socket.fromfd(descriptor, socket.AF_INET, socket.SOCK_STREAM) as copy:
            copy.shutdown(socket.SHUT_WR)


def close(descriptor: int) -> None:
    if BY_DESCRIPTOR:
        os.close(descriptor)
    else:
        _held.pop(descriptor).close()
