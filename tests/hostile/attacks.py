"""What hostile clients do to a broker, each as much of it as is asked for.

`ATTACKS` has them by name, with the size of a real attack and one for tests of every day. An attack ends when
all of it has been sent; connections that it holds open are closed by whoever called it.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import socket
import subprocess
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from peer import Gone, Peer, encode_frame

from flintmq.wire import amqp, methods
from flintmq.wire.methods import Method, encode_method
from flintmq.wire.tables import FieldTable

HEADER = b"AMQP\x00\x00\x09\x01"
# Sockets that an attacker holds at a time: its own descriptors are limited too.
HELD_MAX = 12_000
# Names and words that a log, a terminal or an administrator's eye may take for something else.
EVIL = "x\r\n2026-01-01 00:00:00,000 INFO forged line\x1b[2J\x1b]0;title\x07\u202e\u2028\x00y"

SETTINGS = """
[users.guest]
password = "guest"
tags = ["administrator"]
permissions."/" = { configure = ".*", write = ".*", read = ".*" }

[users.mallory]
password = "mallory"
loopback_only = true
permissions."/" = { configure = "^(a+)+$", write = "^(a|a)*$|^amq", read = "(x+x+)+y" }
"""


@dataclass
class Target:
    """A broker that is attacked, and what the attackers hold."""

    port: int
    tls_port: int
    sockets: deque[socket.socket] = field(default_factory=deque)
    peers: list[Peer] = field(default_factory=list)

    def peer(self, **wishes: str) -> Peer:
        """A client of the broker, with channel 1 open, that stays until the attack is over."""
        peer = Peer.connect(self.port, **wishes)
        peer.socket.settimeout(120)
        self.peers.append(peer)
        peer.open(1)
        return peer

    def reach(self, number: int, port: int | None = None, octets: bytes = b"") -> socket.socket:
        """A socket from one of many addresses of this machine, which may not be connected yet."""
        while len(self.sockets) >= HELD_MAX:
            self.sockets.popleft().close()
        client = socket.socket()
        client.setblocking(False)
        client.bind((f"127.1.{number // 250 % 250}.{number % 250 + 1}", 0))
        with contextlib.suppress(BlockingIOError):
            client.connect(("127.0.0.1", port or self.port))
        if octets:
            with contextlib.suppress(OSError):
                client.send(octets)
        self.sockets.append(client)
        return client

    def close(self) -> None:
        for client in self.sockets:
            client.close()
        for peer in self.peers:
            peer.abort()


def method_frame(channel: int, method: Method) -> bytes:
    return encode_frame(amqp.FRAME_METHOD, channel, encode_method(amqp.VERSION_0_9_1, method))


def pour(peer: Peer, frames: Iterator[bytes], channel: int = 1) -> None:
    """Sends all, in large pieces, and waits until the broker has read it."""
    piece = bytearray()
    for frame in frames:
        piece += frame
        if len(piece) > 200_000:
            peer.raw(bytes(piece))
            piece.clear()
    peer.raw(bytes(piece))
    peer.call(channel, methods.BasicQos(prefetch_count=0))


def publish(key: str, properties: bytes = b"\x00\x00", exchange: str = "", body: bytes = b"x") -> bytes:
    """A message as three frames; `properties` are flags and what they announce."""
    header = b"\x00\x3c\x00\x00" + len(body).to_bytes(8, "big") + properties
    octets = method_frame(1, methods.BasicPublish(exchange=exchange, routing_key=key))
    octets += encode_frame(amqp.FRAME_HEADER, 1, header)
    return octets + (encode_frame(amqp.FRAME_BODY, 1, body) if body else b"")


def with_headers(table: bytes) -> bytes:
    """Properties of a message with these octets as its header table."""
    return b"\x20\x00" + len(table).to_bytes(4, "big") + table


def start_ok(user: bytes, password: bytes, mechanism: str = "PLAIN") -> bytes:
    response = b"\0" + user + b"\0" + password
    return method_frame(0, methods.ConnectionStartOk(mechanism=mechanism, response=response, locale="en_US"))


# Before login


def half_open(target: Target, size: int) -> None:
    """Connections that say nothing, from thousands of addresses."""
    for number in range(size):
        target.reach(number)


def slow_loris(target: Target, size: int) -> None:
    """Connections that say one octet at a time of a login that never ends."""
    octets = HEADER + start_ok(b"guest", b"x" * 2000)
    clients = [target.reach(number) for number in range(size)]
    for at in range(40):
        for client in clients:
            with contextlib.suppress(OSError):
                client.send(octets[at : at + 1])


def tls_garbage(target: Target, size: int) -> None:
    """What is no TLS, what begins as TLS and is none, and hellos that stop in the middle."""
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
    for number in range(size):
        octets = (os.urandom(500), hello + os.urandom(501), hello, b"")[number % 4]
        client = target.reach(number, target.tls_port)
        with selectors.DefaultSelector() as selector:
            selector.register(client, selectors.EVENT_WRITE)
            if selector.select(0.2):
                with contextlib.suppress(OSError):
                    client.send(octets)


def renegotiation(target: Target, size: int) -> None:
    """Clients of TLS 1.2 that ask to negotiate anew."""
    openssl = shutil.which("openssl")
    assert openssl is not None, "the command openssl is needed"
    for _ in range(size):
        command = [openssl, "s_client", "-tls1_2", "-connect", f"127.0.0.1:{target.tls_port}"]
        subprocess.run(command, input=b"R\nR\nR\nR\nQ\n", capture_output=True, timeout=30, check=False)


def wrong_passwords(addresses: int) -> Callable[[Target, int], None]:
    """Logins with wrong passwords, all at once, from so many addresses."""

    def attack(target: Target, size: int) -> None:
        waiting: deque[socket.socket] = deque()
        for number in range(size):
            octets = HEADER + start_ok(b"guest", b"wrong%d" % number)
            client = target.reach(number % addresses)
            waiting.append(client)
            with selectors.DefaultSelector() as selector:
                selector.register(client, selectors.EVENT_WRITE)
                if selector.select(0.05):
                    with contextlib.suppress(OSError):
                        client.send(octets)

    return attack


def log_injection(target: Target, size: int) -> None:
    """Names with line breaks and control codes wherever the log may tell them."""
    for number in range(size):
        client = target.reach(number)
        client.setblocking(True)
        client.settimeout(5)
        with contextlib.suppress(OSError):
            evil = EVIL.replace("\0", "").encode()
            client.sendall(HEADER + start_ok(evil, b"x", "PLAIN" if number % 2 else EVIL[:60]))
    for _ in range(min(size, 20)):
        peer = target.peer()
        with contextlib.suppress(Gone, AssertionError):
            peer.call(1, methods.QueueDeclare(queue=EVIL, passive=True))


# After login


def bomb(fields: int, digits: int = 5) -> bytes:
    """A message with so many headers, to an exchange that looks at headers."""
    table = b"".join(bytes((digits + 1,)) + b"h%0*dt\x01" % (digits, number) for number in range(fields))
    return publish("k", with_headers(table), "amq.headers")


def header_bombs(fields: int, digits: int = 5) -> Callable[[Target, int], None]:
    """Messages with so many headers to an exchange that looks at headers."""

    def attack(target: Target, size: int) -> None:
        peer = target.peer()
        peer.call(1, methods.QueueDeclare(queue="bombs", arguments={"x-max-length": 10}))
        for number in range(200):
            arguments: FieldTable = {"x-match": "all", f"h{number}": number, "other": "x"}
            binding = methods.QueueBind(queue="bombs", exchange="amq.headers", arguments=arguments)
            peer.call(1, binding)
        octets = bomb(fields, digits)
        pour(peer, (octets for _ in range(size)))

    return attack


def too_many_headers(target: Target, size: int) -> None:
    """Messages with more headers than are taken, each on a channel that is closed for it."""
    peer = target.peer()
    octets = bomb(13_000)
    for _ in range(size):
        peer.raw(octets)
        peer.expect(1, methods.ChannelClose)
        peer.send(1, methods.ChannelCloseOk())
        peer.open(1)


def deep_tables(target: Target, size: int) -> None:
    """Tables in tables and lists in lists, as deep as a frame holds."""
    nested = b""
    while len(nested) < 120_000:
        nested = b"\x01tF" + len(nested).to_bytes(4, "big") + nested
    lists = b""
    while len(lists) < 120_000:
        lists = b"A" + len(lists).to_bytes(4, "big") + lists
    lists = b"\x01t" + lists
    for number in range(size):
        peer = target.peer()
        with contextlib.suppress(Gone, AssertionError, ConnectionError):
            if number % 2:
                octets = publish("k", with_headers(nested if number % 4 == 1 else lists), "amq.headers")
                pour(peer, iter([octets]))
            else:
                declare = encode_method(amqp.VERSION_0_9_1, methods.QueueDeclare(queue="deep"))[:-4]
                table = nested if number % 4 else lists
                payload = declare + len(table).to_bytes(4, "big") + table
                pour(peer, iter([encode_frame(amqp.FRAME_METHOD, 1, payload)]))
        target.peers.remove(peer)
        peer.abort()


def giant_bodies(target: Target, size: int) -> None:
    """Bodies announced as half a gigabyte, of which one octet comes, on many channels."""
    peer = target.peer()
    for channel in range(2, size + 2):
        peer.open(channel)
    for channel in range(2, size + 2):
        header = b"\x00\x3c\x00\x00" + (512 * 2**20).to_bytes(8, "big") + b"\x00\x00"
        octets = method_frame(channel, methods.BasicPublish(routing_key="none"))
        octets += encode_frame(amqp.FRAME_HEADER, channel, header)
        peer.raw(octets + encode_frame(amqp.FRAME_BODY, channel, b"x"))
    peer.call(1, methods.BasicQos(prefetch_count=0))


def channel_churn(target: Target, size: int) -> None:
    peer = target.peer()
    for _ in range(size // 500):
        octets = method_frame(2, methods.ChannelOpen()) + method_frame(2, methods.ChannelClose())
        peer.raw(octets * 500)
        for _ in range(500):
            peer.expect(2, methods.ChannelOpenOk)
            peer.expect(2, methods.ChannelCloseOk)


def queue_churn(target: Target, size: int) -> None:
    peer = target.peer()

    def frames() -> Iterator[bytes]:
        for number in range(size):
            yield method_frame(1, methods.QueueDeclare(queue=f"churn{number % 500}", no_wait=True))
            yield method_frame(1, methods.QueueDelete(queue=f"churn{number % 500}", no_wait=True))

    pour(peer, frames())


def binding_churn(target: Target, size: int) -> None:
    peer = target.peer()
    peer.call(1, methods.QueueDeclare(queue="bound"))

    def frames() -> Iterator[bytes]:
        for number in range(size):
            key = f"a.{number % 1000}.#"
            binding = methods.QueueBind(queue="bound", exchange="amq.topic", routing_key=key, no_wait=True)
            yield method_frame(1, binding)
            if number % 2:
                yield publish(f"a.{number}.b", exchange="amq.topic")

    pour(peer, frames())
    peer.call(1, methods.QueueDelete(queue="bound"))


def topic_hashes(target: Target, size: int) -> None:
    """Bindings of many hashes and keys of many words: each could match in very many ways."""
    peer = target.peer()
    peer.call(1, methods.QueueDeclare(queue="hashes", arguments={"x-max-length": 10}))
    for number in range(100):
        key = ".".join(["#"] * (number % 60 + 1) + ["x", "#", "*", "#"] * 5 + [f"end{number}"])
        peer.call(1, methods.QueueBind(queue="hashes", exchange="amq.topic", routing_key=key))
    octets = publish(".".join(["x"] * 120), exchange="amq.topic")
    pour(peer, (octets for _ in range(size)))


def patterns(target: Target, size: int) -> None:
    """Names that a backtracking matcher would try to match in as many ways as there are stars."""
    name = "a" * 200 + "!"
    for _ in range(size):
        peer = target.peer(user="mallory", password="mallory")
        for method in (
            methods.QueueDeclare(queue=name),
            methods.BasicGet(queue="x" * 200),
            methods.ExchangeDeclare(exchange=name, type="direct"),
        ):
            with contextlib.suppress(AssertionError):
                peer.call(1, method)
            with contextlib.suppress(AssertionError):
                peer.send(1, methods.ChannelCloseOk())
                peer.open(1)
        target.peers.remove(peer)
        peer.abort()


def unacked(target: Target, size: int) -> None:
    """A consumer that takes all and acknowledges nothing."""
    peer = target.peer()
    peer.call(1, methods.QueueDeclare(queue="hoard"))
    pour(peer, (publish("hoard") for _ in range(size)))
    peer.call(1, methods.BasicConsume(queue="hoard"))
    for _ in range(size):
        peer.delivery(1)
    peer.call(1, methods.QueueDelete(queue="hoard"))


@dataclass(frozen=True)
class Attack:
    run: Callable[[Target, int], None]
    size: int  # of a real one
    small: int  # 0: not for every day


ATTACKS = {
    "half-open handshakes": Attack(half_open, 100_000, 3000),
    "slow loris": Attack(slow_loris, 4000, 200),
    "header bombs": Attack(header_bombs(2000), 1000, 20),
    "header bombs above 64 KiB": Attack(header_bombs(2000, 40), 500, 10),
    "too many headers": Attack(too_many_headers, 500, 10),
    "deep tables": Attack(deep_tables, 200, 4),
    "giant declared bodies": Attack(giant_bodies, 2000, 100),
    "channel churn": Attack(channel_churn, 50_000, 1000),
    "queue churn": Attack(queue_churn, 50_000, 1000),
    "binding churn": Attack(binding_churn, 50_000, 1000),
    "#.#.#.# topics": Attack(topic_hashes, 20_000, 200),
    "backtracking patterns": Attack(patterns, 200, 3),
    "unacked hoarding": Attack(unacked, 500_000, 5000),
    "TLS garbage": Attack(tls_garbage, 5000, 100),
    "TLS renegotiation": Attack(renegotiation, 50, 2),
    "log injection": Attack(log_injection, 500, 20),
    "wrong passwords, one address": Attack(wrong_passwords(1), 10_000, 200),
    "wrong passwords, many addresses": Attack(wrong_passwords(5000), 10_000, 200),
}
