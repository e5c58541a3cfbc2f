"""The stream class: many consumers with a rate each, and more published than they may have.

    python benchmarks/stream_class.py                        100,000 messages a second to 100 consumers
    python benchmarks/stream_class.py --fanout               the same from 1,000 publishes to all of them
    python benchmarks/stream_class.py --seconds 30 --rate 20000

Each consumer has a queue, a connection and a rate in octets a second of its own. Messages are published
evenly over time, by one connection of AMQP 0-9, with two priorities in turn. When all has been published and
nothing waits any more, what was delivered and what the broker says it has dropped must come to all that was
published, in every queue; and no consumer may have had more than its rate.
"""

from __future__ import annotations

import argparse
import selectors
import socket
import struct
import sys
import tempfile
import threading
import time
from pathlib import Path

import brokers
from brokers import Broker

from flintmq.client import Connection, connect
from flintmq.wire import methods
from flintmq.wire.fields import encode_shortstr
from flintmq.wire.methods import Method, encode_method

VERSION = 9
EXCHANGE = "amq.fanout"
SLICE_S = 0.01
# What a consumer may have had at once beside its rate: see BURST_MS in broker/queues/consumer_terms.py.
BURST_S = 0.1
_FRAME = struct.Struct(">BHI")


def frame(kind: int, payload: bytes, channel: int = 1) -> bytes:
    return _FRAME.pack(kind, channel, len(payload)) + payload + b"\xce"


def name_of(number: int) -> str:
    return f"stream.{number:03}"


class Peer:
    """A connection of AMQP 0-9 with one channel."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""
        self.socket.sendall(b"AMQP\x01\x01\x00\x09")
        self.expect(methods.ConnectionStart)
        login = methods.ConnectionStartOk(mechanism="PLAIN", response=b"\0guest\0guest", locale="en_US")
        self.send(login, 0)
        self.expect(methods.ConnectionTune)
        self.send(methods.ConnectionTuneOk(channel_max=1, frame_max=131_072, heartbeat=0), 0)
        self.send(methods.ConnectionOpen(virtual_host="/"), 0)
        self.expect(methods.ConnectionOpenOk)
        self.send(methods.ChannelOpen())
        self.expect(methods.ChannelOpenOk)

    def send(self, method: Method, channel: int = 1) -> None:
        self.socket.sendall(frame(1, encode_method(VERSION, method), channel))

    def expect(self, kind: type[Method]) -> None:
        wanted = kind.CLASS_ID.to_bytes(2, "big") + kind.METHOD_ID.to_bytes(2, "big")
        while True:
            if len(self.buffer) >= 7:
                size = _FRAME.unpack_from(self.buffer)[2]
                if len(self.buffer) >= size + 8:
                    payload, self.buffer = self.buffer[7 : 7 + size], self.buffer[size + 8 :]
                    if payload[:4] != wanted:
                        raise SystemExit(f"instead of {kind.NAME} came {payload[:90]!r}")
                    return
            octets = self.socket.recv(65536)
            if not octets:
                raise SystemExit("the broker has closed the connection")
            self.buffer += octets


class Receivers(threading.Thread):
    """All consumers. Deliveries have one size, so that octets are counted, and the last one is looked at."""

    def __init__(self, port: int, count: int, rate: int, delivery_bytes: int) -> None:
        super().__init__(daemon=True)
        self.delivery_bytes = delivery_bytes
        self.octets = [0] * count
        self.tails = [b""] * count
        self.is_over = False
        self.selector = selectors.DefaultSelector()
        self.peers = []
        for number in range(count):
            peer = Peer(port)
            peer.send(methods.StreamQos(consume_rate=rate))
            peer.expect(methods.StreamQosOk)
            peer.send(methods.StreamConsume(queue=name_of(number), consumer_tag="c"))
            peer.expect(methods.StreamConsumeOk)
            self.selector.register(peer.socket, selectors.EVENT_READ, number)
            self.peers.append(peer)

    def run(self) -> None:
        buffer = bytearray(1 << 20)
        while not self.is_over:
            for key, _ in self.selector.select(0.1):
                size = key.fileobj.recv_into(buffer)  # type: ignore[union-attr]
                if not size:
                    raise SystemExit("the broker has closed the connection of a consumer")
                self.octets[key.data] += size
                self.tails[key.data] = (self.tails[key.data] + bytes(buffer[max(0, size - 256) : size]))[
                    -256:
                ]

    def delivered(self, number: int) -> int:
        """How many messages a consumer got; its last delivery tag must say the same."""
        count, rest = divmod(self.octets[number], self.delivery_bytes)
        at = self.tails[number].rfind(b"\x00\x50\x00\x3c\x01c")
        tag = int.from_bytes(self.tails[number][at + 6 : at + 14], "big") if at >= 0 else 0
        if rest or tag != count:
            raise SystemExit(f"consumer {number}: {self.octets[number]} octets, and the last tag is {tag}")
        return count


def content(body: bytes, priority: int) -> bytes:
    """Header and body frame of a stream message."""
    header = b"\x00\x50\x00\x00" + len(body).to_bytes(8, "big") + b"\x10\x00" + bytes((priority,))
    return frame(2, header) + frame(3, body)


def delivery_bytes(body: bytes, exchange: str) -> int:
    """What a delivery takes on the wire."""
    method = b"\x00\x50\x00\x3c\x01c" + bytes(8) + encode_shortstr(exchange) + encode_shortstr(name_of(0))
    return len(frame(1, method) + content(body, 0))


def block(number: int, options: argparse.Namespace, body: bytes) -> bytes:
    """One message for each queue, as octets: one publish to all of them, or one to each."""
    to_each = [("", name_of(each)) for each in range(options.consumers)]
    keys = [(EXCHANGE, "")] if options.fanout else to_each
    return b"".join(
        frame(1, encode_method(VERSION, methods.StreamPublish(exchange=exchange, routing_key=key)))
        + content(body, number % 2)
        for exchange, key in keys
    )


def publish(port: int, options: argparse.Namespace, body: bytes) -> tuple[int, float]:
    """How many messages were published to each queue, and how long it took."""
    peer = Peer(port)
    blocks = [block(number, options, body) for number in range(2)]
    wanted = options.messages // options.consumers * options.seconds
    start = time.monotonic()
    sent = 0
    while sent < wanted:
        due = min(wanted, int((time.monotonic() - start) * options.messages / options.consumers) + 1)
        while sent < due:
            peer.socket.sendall(blocks[sent % 2])
            sent += 1
        time.sleep(max(0.0, SLICE_S - (time.monotonic() - start) % SLICE_S))
    # An answer comes behind all that was published.
    peer.send(methods.StreamQos())
    peer.expect(methods.StreamQosOk)
    return sent, time.monotonic() - start


def counts(connection: Connection, number: int) -> tuple[int, int]:
    """What waits in a queue, and what it has dropped."""
    found = connection.request("queue.info", {"queue": name_of(number)}).results
    return int(str(found["messages-ready"])), int(str(found["messages-dropped"]))


def run(broker: Broker, options: argparse.Namespace) -> int:
    body = bytes(options.body_bytes)
    with (
        connect(f"amqp://guest:guest@127.0.0.1:{broker.port}") as connection,
        connection.channel() as channel,
    ):
        for number in range(options.consumers):
            channel.queue(name_of(number), arguments={"x-max-length": options.backlog})
            channel.bind_queue(name_of(number), EXCHANGE)
        exchange = EXCHANGE if options.fanout else ""
        receivers = Receivers(broker.port, options.consumers, options.rate, delivery_bytes(body, exchange))
        receivers.start()
        cpu_s, begun = broker.cpu_seconds(), time.monotonic()
        sent, seconds = publish(broker.port, options, body)
        cpu_s = broker.cpu_seconds() - cpu_s
        while any(counts(connection, number)[0] for number in range(options.consumers)):
            time.sleep(0.2)
        elapsed = time.monotonic() - begun
        time.sleep(0.5)  # what was sent last is on its way
        receivers.is_over = True
        receivers.join()
        delivered = [receivers.delivered(number) for number in range(options.consumers)]
        dropped = [counts(connection, number)[1] for number in range(options.consumers)]
    wrong = [number for number in range(options.consumers) if delivered[number] + dropped[number] != sent]
    allowed = int(options.rate * (elapsed + BURST_S)) // max(1, len(body)) + 2
    hasty = [number for number in range(options.consumers) if options.rate and delivered[number] > allowed]
    offered = sent * options.consumers
    print(f"offered     {offered:>12,} messages of {len(body)} octets, {offered / seconds:,.0f} a second")
    print(f"delivered   {sum(delivered):>12,} to {options.consumers} consumers of {options.rate:,} octets/s")
    print(f"dropped     {sum(dropped):>12,}, as queue.info says")
    print(f"difference  {sum(delivered) + sum(dropped) - offered:>12,}, in {len(wrong)} queues")
    print(
        f"over rate   {len(hasty):>12,} consumers; at most {max(delivered):,} of {allowed:,} messages allowed"
    )
    print(f"processor   {cpu_s / seconds:>12.2f} of a core while messages were published")
    return 1 if wrong or hasty else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--broker-command", default=brokers.FLINTMQ_COMMAND)
    parser.add_argument("--messages", type=int, default=100_000, help="a second, to all queues together")
    parser.add_argument("--consumers", type=int, default=100)
    parser.add_argument("--rate", type=int, default=50_000, help="of each consumer, octets a second; 0: none")
    parser.add_argument("--backlog", type=int, default=200, help="messages that a queue keeps")
    parser.add_argument("--body-bytes", type=int, default=100)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--fanout", action="store_true", help="each publish goes to all queues")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="flintmq-stream-class-") as folder,
        brokers.flintmq(options.broker_command, Path(folder) / "broker") as broker,
    ):
        return run(broker, options)


if __name__ == "__main__":
    sys.exit(main())
