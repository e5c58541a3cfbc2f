"""A broker that takes as much as the tests declare, with a bystander beside them."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from broker_process import BrokerProcess
from peer import Peer, encode_frame
from stalls.bystander import Bystander

from flintmq.wire import amqp, methods
from flintmq.wire.methods import Method, encode_method

# How many there are of what an operation is dear for.
FEW, MANY = 10_000, 100_000
WAIT_MS_MAX = 100.0
# A stall comes each time; what a busy machine adds does not.
TRIES = 3

SETTINGS = """
[limits]
queues_per_virtual_host_max = 10_000_000
exchanges_per_virtual_host_max = 10_000_000
bindings_per_virtual_host_max = 10_000_000
consumers_per_channel_max = 1_000_000
consumers_per_connection_max = 1_000_000

# Whoever has a password takes 40 ms to log in, thousands who have none take some seconds.
[auth]
mechanisms = ["PLAIN", "ANONYMOUS"]
anonymous_user = "ann"

[users.guest]
password = "guest"
tags = ["administrator"]
permissions."/" = { configure = ".*", write = ".*", read = ".*" }

[users.mallory]
password = "mallory"
permissions."/" = { configure = "^(a+)+$", write = "^(a|a)*$", read = "(x+x+)+y" }
"""


class Scene:
    """A broker, one who makes work for it, and a bystander."""

    def __init__(self, broker: BrokerProcess, bystander: Bystander) -> None:
        self.broker = broker
        self.bystander = bystander
        self.peers: list[Peer] = []
        self.sockets: list[socket.socket] = []
        self.peer = self.connect()

    def connect(self, **wishes: str) -> Peer:
        """Another connection with channel 1 open."""
        peer = Peer.connect(self.broker.port, **wishes)
        peer.socket.settimeout(60)
        peer.open(1)
        self.peers.append(peer)
        return peer

    def send(self, peer: Peer, sent: Iterator[Method], channel: int = 1) -> None:
        """Many methods that ask for no answer, in large pieces; they have been read when it returns."""
        piece = bytearray()
        for method in sent:
            payload = encode_method(amqp.VERSION_0_9_1, method)
            piece += encode_frame(amqp.FRAME_METHOD, channel, payload)
            if len(piece) > 1_000_000:
                peer.raw(bytes(piece))
                piece.clear()
        peer.raw(bytes(piece))
        self.settle(peer, channel)

    def settle(self, peer: Peer, channel: int = 1) -> None:
        """The broker has read all that the peer has sent."""
        peer.call(channel, methods.BasicQos(prefetch_count=0))

    def publish(
        self,
        peer: Peer,
        count: int,
        key: str,
        body: bytes = b"x" * 16,
        exchange: str = "",
        **properties: object,
    ) -> None:
        """The same message many times, transient unless `properties` say otherwise."""
        with peer.together():
            peer.publish(1, body, exchange=exchange, key=key, **properties)
            assert peer.held is not None
            once = bytes(peer.held)
            peer.held.clear()
        at_once = max(1, 1_000_000 // len(once))
        for start in range(0, count, at_once):
            peer.raw(once * min(at_once, count - start))
        self.settle(peer)

    def end(self) -> None:
        for peer in self.peers:
            peer.abort()
        for client in self.sockets:
            client.close()
        self.bystander.end()


@contextmanager
def staged(directory: Path) -> Iterator[Scene]:
    settings = directory / "settings.toml"
    settings.write_text(SETTINGS)
    with ExitStack() as stack:
        data = stack.enter_context(TemporaryDirectory(dir=directory))
        broker = stack.enter_context(BrokerProcess("--config", str(settings), "--data", data))
        bystander = Bystander(broker.port, broker.process.pid)
        stack.callback(bystander.end)
        scene = Scene(broker, bystander)
        stack.callback(scene.end)
        yield scene


Prepare = Callable[[Scene, int], Callable[[], None]]


def longest_wait_ms(prepare: Prepare, count: int, directory: Path) -> float:
    """The longest wait of a bystander beside what `prepare` returns, the best of some tries."""
    best_ms = float("inf")
    for _ in range(TRIES):
        with staged(directory) as scene:
            work = prepare(scene, count)
            with scene.bystander.watching():
                work()
            best_ms = min(best_ms, scene.bystander.longest_ms)
        if best_ms < WAIT_MS_MAX / 2:
            break
    return best_ms
