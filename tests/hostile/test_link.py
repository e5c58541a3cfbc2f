"""A link whose socket fails at the worst moment, on an event loop that only takes notes."""

from __future__ import annotations

import socket
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from conversation import House

from flintmq.broker.broker import Broker
from flintmq.server.event_loop.pass_scheduler import PassScheduler
from flintmq.server.network.link import Link
from flintmq.server.network.readiness import LoopReadiness
from flintmq.server.sessions.session import Session


class Loop:
    """Knows who waits to read and to write."""

    broker: Broker

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


class Pair:
    """A link's socket and its other end, with little room between them."""

    def __init__(self) -> None:
        near, self.far = socket.socketpair()
        for end in (near, self.far):
            end.setblocking(False)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        self.descriptor = near.detach()

    def drain(self) -> int:
        try:
            return len(self.far.recv(1 << 20))
        except BlockingIOError:
            return 0


@pytest.fixture
def loop(house: House) -> Loop:
    loop = Loop()
    loop.broker = house.broker
    return loop


def made(loop: Loop, pair: Pair) -> Link:
    broker = loop.broker
    server: Any = SimpleNamespace(
        scheduler=PassScheduler(loop, broker, 65536),  # type: ignore[arg-type]
        broker=broker,
        loop=loop,
        readiness=LoopReadiness(loop),  # type: ignore[arg-type]
        gone=lambda link: None,
        after_write=lambda: None,
        new_session=partial(Session, broker),
    )
    link = Link(server, pair.descriptor, "127.0.0.1")
    link.start()
    return link


def test_a_reset_while_output_waits_leaves_nobody_on_the_descriptor(loop: Loop) -> None:
    """The system gives the number to the next connection, and the loop must not know it any more."""
    pair = Pair()
    link = made(loop, pair)
    link.output.write(bytes(1_000_000))
    link.flush()
    assert loop.writers == {pair.descriptor}
    pair.far.close()
    link.writable()
    assert (loop.readers, loop.writers) == (set(), set())


def test_a_writer_waits_only_while_there_is_something_to_write(loop: Loop) -> None:
    pair = Pair()
    link = made(loop, pair)
    link.output.write(bytes(1_000_000))
    link.flush()
    assert loop.writers == {pair.descriptor}
    while link.output.pending():
        assert loop.writers == {pair.descriptor}
        assert pair.drain()
        link.writable()
    assert loop.writers == set()
    assert loop.readers == {pair.descriptor}
    link.drop()
    pair.far.close()
