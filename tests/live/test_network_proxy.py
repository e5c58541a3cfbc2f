"""The proxy of the tests: each fault happens at its place, and nowhere else."""

from __future__ import annotations

import errno
import itertools
import select
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from broker_process import BrokerProcess
from network_proxy import (
    TO_BROKER,
    TO_CLIENT,
    Action,
    Call,
    Cut,
    Delay,
    Fault,
    NetworkProxy,
    StopReading,
    Swallow,
    Throttle,
)
from peer import HEADERS, Gone, Peer, encode_frame

from flintmq.wire import amqp, methods
from flintmq.wire.methods import encode_method

HEADER = HEADERS["0-9-1"]
EACH = [
    encode_frame(amqp.FRAME_METHOD, 1, encode_method(amqp.VERSION_0_9_1, method))
    for method in (methods.ChannelOpen(), methods.ChannelFlow(), methods.BasicAck())
]
FRAMES = b"".join(EACH)
SAID = HEADER + FRAMES
ENDS = list(itertools.accumulate(map(len, (HEADER, *EACH))))


class Echo:
    """A server that keeps what it reads, and says what it is told to."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]

    def accept(self) -> socket.socket:
        self.listener.settimeout(10)
        accepted, _ = self.listener.accept()
        accepted.settimeout(10)
        return accepted


@pytest.fixture
def server() -> Iterator[Echo]:
    made = Echo()
    with made.listener:
        yield made


@pytest.fixture
def proxy(server: Echo) -> Iterator[NetworkProxy]:
    with NetworkProxy(server.port) as made:
        yield made


def connected(proxy: NetworkProxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=10)


def take(end: socket.socket, size: int) -> bytes:
    """So many octets, as they come."""
    octets = b""
    while len(octets) < size and (more := end.recv(size - len(octets))):
        octets += more
    return octets


def read_all(end: socket.socket) -> tuple[bytes, str]:
    """What comes, and how it ends."""
    octets = b""
    try:
        while more := end.recv(65_536):
            octets += more
    except ConnectionResetError:
        return octets, "rst"
    return octets, "fin"


@pytest.mark.parametrize("octet", range(len(SAID)))
def test_a_cut_before_any_octet_passes_those_before_it(server: Echo, proxy: NetworkProxy, octet: int) -> None:
    proxy.plan(Fault(TO_BROKER, Cut(), octet=octet))
    with connected(proxy) as client, server.accept() as accepted:
        client.sendall(SAID)
        assert read_all(accepted) == (SAID[:octet], "fin")
        assert read_all(client) == (b"", "fin")


@pytest.mark.parametrize("frame", [1, 2, 3, 4])
@pytest.mark.parametrize("edge", ["before", "within", "after"])
def test_a_cut_at_a_frame(server: Echo, proxy: NetworkProxy, frame: int, edge: str) -> None:
    proxy.plan(Fault(TO_BROKER, Cut(), frame=frame, edge=edge))
    start, end = ([0, *ENDS][frame - 1], ENDS[frame - 1])
    passed = {"before": start, "within": (start + end) // 2, "after": end}[edge]
    with connected(proxy) as client, server.accept() as accepted:
        for octet in SAID:  # in the smallest pieces
            client.sendall(bytes((octet,)))
        assert read_all(accepted) == (SAID[:passed], "fin")


def test_a_fault_of_the_other_direction_and_of_a_method(server: Echo, proxy: NetworkProxy) -> None:
    proxy.plan(Fault(TO_CLIENT, Cut("rst"), method="basic.ack"))
    with connected(proxy) as client, server.accept() as accepted:
        client.sendall(SAID)
        assert take(accepted, len(SAID)) == SAID
        accepted.sendall(FRAMES)
        octets, end = read_all(client)
        assert end == "rst"
        assert (EACH[0] + EACH[1]).startswith(octets)  # a reset may take what was on its way along
        assert [each.name for each in proxy.passed()[TO_CLIENT]] == ["channel.open", "channel.flow"]


def test_faults_are_counted_from_when_they_are_given(server: Echo, proxy: NetworkProxy) -> None:
    with connected(proxy) as client, server.accept() as accepted:
        client.sendall(SAID)
        assert take(accepted, len(SAID)) == SAID
        proxy.strike(Fault(TO_BROKER, Cut(), frame=2))
        client.sendall(FRAMES)
        assert read_all(accepted) == (EACH[0], "fin")
        proxy.wait_for_fault()


def test_without_a_fault_all_passes_and_an_end_is_an_end(server: Echo, proxy: NetworkProxy) -> None:
    many = FRAMES * 20_000
    with connected(proxy) as client, server.accept() as accepted:
        sender = threading.Thread(target=lambda: client.sendall(HEADER + many))
        sender.start()
        assert take(accepted, 8 + len(many)) == HEADER + many
        sender.join()
        client.shutdown(socket.SHUT_WR)
        assert accepted.recv(1) == b""
        accepted.sendall(FRAMES)  # the other direction lives
        assert take(client, len(FRAMES)) == FRAMES
        accepted.close()
        assert client.recv(1) == b""


def test_what_is_not_amqp_passes_as_it_is(server: Echo, proxy: NetworkProxy) -> None:
    proxy.plan(Fault(TO_CLIENT, Cut(), octet=4))
    with connected(proxy) as client, server.accept() as accepted:
        client.sendall(b"\x16\x03\x01 hello")
        assert take(accepted, 9) == b"\x16\x03\x01 hello"
        accepted.sendall(b"secret")
        assert read_all(client) == (b"secr", "fin")


@pytest.mark.parametrize(("keep", "hears"), [("broker", False), ("client", True)])
def test_half_open(server: Echo, proxy: NetworkProxy, keep: str, hears: bool) -> None:
    with connected(proxy) as client, server.accept() as accepted:
        client.sendall(HEADER)
        assert take(accepted, 8) == HEADER
        proxy.cut(keep=keep)
        gone, kept = (accepted, client) if hears else (client, accepted)
        assert gone.recv(1) == b""
        kept.sendall(FRAMES)  # goes nowhere
        assert not select.select([kept], [], [], 0.2)[0]
        proxy.drop()
        assert read_all(kept) == (b"", "rst")


@pytest.mark.parametrize(("action", "is_taken"), [(Swallow(), True), (StopReading(), False)])
def test_black_holes(server: Echo, proxy: NetworkProxy, action: Action, is_taken: bool) -> None:
    proxy.plan(Fault(TO_BROKER, action, frame=2))
    with connected(proxy) as client, server.accept() as accepted:
        client.sendall(HEADER)
        assert accepted.recv(8) == HEADER
        client.settimeout(1.0)
        size = 0
        try:
            while size < 40_000_000:
                size += client.send(FRAMES * 1000)
        except TimeoutError:
            assert not is_taken
        else:
            assert is_taken
        proxy.wait_for_fault()
        accepted.sendall(FRAMES)  # the hole has two sides
        assert not select.select([accepted, client], [], [], 0.2)[0]


def test_a_delay_and_a_slow_network(server: Echo, proxy: NetworkProxy) -> None:
    proxy.plan(Fault(TO_BROKER, Delay(0.3), frame=2), Fault(TO_BROKER, Throttle(1000), frame=4, edge="after"))
    with connected(proxy) as client, server.accept() as accepted:
        began_s = time.monotonic()
        client.sendall(SAID)
        assert accepted.recv(8) == HEADER
        assert take(accepted, len(FRAMES)) == FRAMES
        assert time.monotonic() - began_s >= 0.3
        began_s = time.monotonic()
        client.sendall(FRAMES * 10)
        assert take(accepted, 10 * len(FRAMES)) == FRAMES * 10
        assert 0.3 < time.monotonic() - began_s < 3


def test_a_delay_within_a_frame_happens_once(server: Echo, proxy: NetworkProxy) -> None:
    proxy.plan(
        Fault(TO_BROKER, Delay(0.05), frame=2, edge="within"), Fault(TO_BROKER, Cut(), frame=3, edge="before")
    )
    with connected(proxy) as client, server.accept() as accepted:
        client.sendall(SAID)
        assert read_all(accepted) == (SAID[: ENDS[1]], "fin")
        assert len(proxy.faults) == 2


def test_refused_for_a_time(server: Echo, proxy: NetworkProxy) -> None:
    proxy.refuse()
    with pytest.raises(OSError, match="refused") as refused:
        connected(proxy)
    assert refused.value.errno == errno.ECONNREFUSED
    proxy.refuse(for_s=0.1)
    deadline_s = time.monotonic() + 10
    while True:
        try:
            connected(proxy).close()
            break
        except ConnectionRefusedError:
            assert time.monotonic() < deadline_s


def test_a_target_that_is_gone_is_a_reset_and_another_can_take_its_place(
    server: Echo, proxy: NetworkProxy
) -> None:
    target, proxy.target = proxy.target, 1
    with pytest.raises(ConnectionResetError), connected(proxy) as client:
        client.recv(1)
    proxy.target = target
    with connected(proxy) as client, server.accept() as accepted:
        client.sendall(HEADER)
        assert accepted.recv(8) == HEADER


def test_a_deed_at_a_frame(server: Echo, proxy: NetworkProxy) -> None:
    seen: list[str] = []
    proxy.plan(Fault(TO_BROKER, Call(lambda: seen.append("frame 3")), frame=3))
    with connected(proxy) as client, server.accept() as accepted:
        client.sendall(SAID)
        assert take(accepted, len(SAID)) == SAID
    assert seen == ["frame 3"]


def test_a_broker_behind_it() -> None:
    with BrokerProcess() as broker, NetworkProxy(broker.port) as proxy, Peer.connect(proxy.port) as peer:
        peer.open(1)
        peer.call(1, methods.QueueDeclare(queue="q"))
        peer.publish(1, b"x" * 300_000, key="q")
        found = peer.get(1, "q")
        assert found is not None
        assert found[1].body == b"x" * 300_000
        proxy.strike(Fault(TO_CLIENT, Cut(), method="queue.declare-ok"))
        peer.send(1, methods.QueueDeclare(queue="made"))
        with pytest.raises(Gone):
            peer.expect(1, methods.QueueDeclareOk)
        with Peer.connect(proxy.port) as second:
            second.open(1)
            assert second.call(1, methods.QueueDeclare(queue="made", passive=True)).message_count == 0
            second.call(1, methods.QueueDelete(queue="q"))
            second.send(1, methods.QueueDeclare(queue="q", passive=True))
            second.expect_channel_close(1, amqp.NOT_FOUND)
