"""A link whose socket fails at the worst moment, on an event loop that only takes notes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from flintmq.broker.broker import Broker
from flintmq.clock import Clock
from flintmq.config import Config
from flintmq.server.link import Link


class Loop:
    """Knows who waits to read and to write."""

    def __init__(self) -> None:
        self.readers: set[int] = set()
        self.writers: set[int] = set()

    def add_reader(self, descriptor: int, *_: object) -> None:
        self.readers.add(descriptor)

    def add_writer(self, descriptor: int, *_: object) -> None:
        self.writers.add(descriptor)

    def remove_reader(self, descriptor: int) -> None:
        self.readers.discard(descriptor)

    def remove_writer(self, descriptor: int) -> None:
        self.writers.discard(descriptor)


class Socket:
    """Takes `room` octets, then blocks, and is reset when told so."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.is_reset = False

    def fileno(self) -> int:
        return 7

    def send(self, octets: memoryview) -> int:
        if self.is_reset:
            raise ConnectionResetError
        if not self.room:
            raise BlockingIOError
        taken = min(self.room, len(octets))
        self.room -= taken
        return taken

    def close(self) -> None:
        self.room = 0


@pytest.fixture
def loop() -> Loop:
    return Loop()


def made(loop: Loop, sock: Socket) -> Link:
    hang_ups = SimpleNamespace(watch=lambda *_: None, forget=lambda *_: None)
    server: Any = SimpleNamespace(
        outbox=[],
        broker=Broker(Config(), Clock()),
        loop=loop,
        hang_ups=hang_ups,
        gone=lambda link: None,
        after_write=lambda: None,
    )
    link = Link(server, sock, "127.0.0.1")  # type: ignore[arg-type]
    link.start()
    return link


def test_a_reset_while_output_waits_leaves_nobody_on_the_descriptor(loop: Loop) -> None:
    """The system gives the number to the next connection, and the loop must not know it any more."""
    sock = Socket(10)
    link = made(loop, sock)
    link.output.write(bytes(100))
    link.flush()
    assert loop.writers == {7}
    sock.is_reset = True
    link.writable()
    assert (loop.readers, loop.writers) == (set(), set())


def test_a_writer_waits_only_while_there_is_something_to_write(loop: Loop) -> None:
    sock = Socket(10)
    link = made(loop, sock)
    link.output.write(bytes(100))
    link.flush()
    sock.room = 20
    link.writable()
    assert loop.writers == {7}
    sock.room = 1000
    link.writable()
    assert loop.writers == set()
    assert link.output.pending() == 0
    assert loop.readers == {7}
