"""Streams over AMQP 0-9-1: confirmed publishing and reading, on FlintMQ and RabbitMQ in turns; bulk reads.

    python benchmarks/streams.py                      publish, read and fetch, three rounds
    python benchmarks/streams.py --rounds 5 --count 300000 --body-bytes 100 --without-rabbitmq

One connection publishes `--count` messages with up to `--window` unconfirmed ones; then one reads all of
them from the first, with a prefetch of `--prefetch` and an ack for every quarter of it; then (FlintMQ) one
connection reads them all by stream.fetch. All deliveries have the same size, so the reader counts octets, and
looks into the last one: its tag and its offset must be those of the last message.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import socket
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import brokers
from brokers import Broker

BATCH = 250
FRAME_MAX = 131_072
FETCH_OCTETS = 8 << 20
_FRAME = struct.Struct(">BHI")


def shortstr(text: str) -> bytes:
    return bytes((len(text),)) + text.encode()


def longstr(octets: bytes) -> bytes:
    return struct.pack(">I", len(octets)) + octets


def table(**entries: str | int) -> bytes:
    """A field table of texts and numbers; underscores in names stand for hyphens."""
    parts = []
    for name, value in entries.items():
        encoded = (
            b"S" + longstr(value.encode()) if isinstance(value, str) else b"l" + struct.pack(">q", value)
        )
        parts.append(shortstr(name.replace("_", "-")) + encoded)
    return longstr(b"".join(parts))


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return _FRAME.pack(kind, channel, len(payload)) + payload + b"\xce"


def method(class_id: int, method_id: int, payload: bytes = b"", channel: int = 1) -> bytes:
    return frame(1, channel, struct.pack(">HH", class_id, method_id) + payload)


class Peer:
    """A connection with one channel, just enough of AMQP for these loads."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = bytearray()
        self.socket.sendall(b"AMQP\x00\x00\x09\x01")
        self.expect(10, 10)
        start_ok = table() + shortstr("PLAIN") + longstr(b"\0guest\0guest") + shortstr("en_US")
        self.socket.sendall(method(10, 11, start_ok, 0))
        self.expect(10, 30)
        self.socket.sendall(method(10, 31, struct.pack(">HIH", 1, FRAME_MAX, 0), 0))
        self.socket.sendall(method(10, 40, shortstr("/") + b"\0\0", 0))
        self.expect(10, 41)
        self.ask(20, 10, b"\0", 11)

    def next_frame(self) -> tuple[int, bytes]:
        while True:
            if len(self.buffer) >= 7:
                kind, _, size = _FRAME.unpack_from(self.buffer)
                if len(self.buffer) >= size + 8:
                    payload = bytes(memoryview(self.buffer)[7 : 7 + size])
                    del self.buffer[: size + 8]
                    return kind, payload
            self.receive()

    def receive(self) -> None:
        octets = self.socket.recv(1 << 20)
        if not octets:
            raise SystemExit("the broker has closed the connection")
        self.buffer += octets

    def expect(self, class_id: int, method_id: int) -> bytes:
        while True:
            kind, payload = self.next_frame()
            if kind != 1:
                continue
            found = struct.unpack_from(">HH", payload)
            if found == (class_id, method_id):
                return payload[4:]
            if found in ((20, 40), (10, 50)):
                raise SystemExit(f"refused: {payload[6:90]!r}")

    def ask(self, class_id: int, method_id: int, payload: bytes, answer: int) -> bytes:
        self.socket.sendall(method(class_id, method_id, payload))
        return self.expect(class_id, answer)

    def declare_stream(self, name: str) -> None:
        arguments = table(x_queue_type="stream")
        self.ask(50, 10, b"\0\0" + shortstr(name) + b"\x02" + arguments, 11)

    def delete(self, name: str) -> None:
        self.ask(50, 40, b"\0\0" + shortstr(name) + b"\0", 41)
        self.socket.close()


def publish(broker: Broker, stream: str, count: int, body: bytes, window: int) -> float:
    """Seconds until the last of them is confirmed."""
    peer = Peer(broker.port)
    peer.ask(85, 10, b"\0", 11)
    header = struct.pack(">HHQHB", 60, 0, len(body), 0x1000, 2)
    one = method(60, 40, b"\0\0" + shortstr("") + shortstr(stream) + b"\0")
    one += frame(2, 1, header) + frame(3, 1, body)
    batch = one * BATCH
    sent = confirmed = 0
    started = time.perf_counter()
    while confirmed < count:
        while sent < count and sent + BATCH - confirmed <= window:
            peer.socket.sendall(batch)
            sent += BATCH
        peer.receive()
        while len(peer.buffer) >= 21:
            class_id, method_id, tag, multiple = struct.unpack_from(">HHQB", peer.buffer, 7)
            if (class_id, method_id) != (60, 80):
                raise SystemExit(f"not a confirm: {bytes(peer.buffer[:40])!r}")
            confirmed = tag if multiple else confirmed + 1
            del peer.buffer[:21]
    took = time.perf_counter() - started
    peer.socket.close()
    return took


def read(broker: Broker, stream: str, count: int, body: bytes, prefetch: int) -> float:
    """Seconds from the subscription to the last delivery."""
    peer = Peer(broker.port)
    peer.ask(60, 10, struct.pack(">IHB", 0, prefetch, 0), 11)
    consume = b"\0\0" + shortstr(stream) + shortstr("t") + b"\0" + table(x_stream_offset="first")
    started = time.perf_counter()
    peer.ask(60, 20, consume, 21)
    while len(peer.buffer) < 400:
        peer.receive()
    size = delivery_size(peer.buffer)
    received = len(peer.buffer)
    last = bytes(peer.buffer)
    every = max(1, prefetch // 4)
    acked = 0
    view = memoryview(bytearray(1 << 20))
    while received < size * count:
        whole = received // size
        if whole - acked >= every:
            acked = whole
            peer.socket.sendall(method(60, 80, struct.pack(">QB", acked, 1)))
        taken = peer.socket.recv_into(view)
        if not taken:
            raise SystemExit("the broker has closed the connection")
        received += taken
        last = (last + bytes(view[:taken]))[-2 * size :]
    took = time.perf_counter() - started
    check_last(last[-size:], count, body)
    peer.socket.close()
    return took


def delivery_size(octets: bytearray) -> int:
    """Of the method, header and body frame at the beginning."""
    at = 0
    for _ in range(3):
        at += 8 + _FRAME.unpack_from(octets, at)[2]
    return at


def check_last(octets: bytes, count: int, body: bytes) -> None:
    tag = struct.unpack_from(">Q", octets, 7 + 4 + 2)[0]
    name_at = octets.index(b"x-stream-offset")
    offset = struct.unpack_from(">q", octets, name_at + 16)[0]
    if tag != count or offset != count - 1 or not octets.endswith(body + b"\xce"):
        raise SystemExit(f"the last delivery has tag {tag} and offset {offset}, not {count} and {count - 1}")


def ask(peer: Peer, stream: str, start: int, end: int) -> None:
    """One stream.fetch."""
    headers = table(**{"stream": stream, "from": start, "to": end, "max-bytes": FETCH_OCTETS})
    properties = struct.pack(">H", 0x2200) + headers + shortstr("amq.rabbitmq.reply-to")
    asking = method(60, 40, b"\0\0" + shortstr("amq.system") + shortstr("stream.fetch") + b"\0")
    peer.socket.sendall(asking + frame(2, 1, struct.pack(">HHQ", 60, 0, 0) + properties))


def fetch(broker: Broker, stream: str, count: int, body_bytes: int) -> tuple[float, float]:
    """Seconds of the clock, and of this process, to read all of it in columns."""
    from flintmq.wire.columns import Columns

    peer = Peer(broker.port)
    peer.ask(60, 20, b"\0\0" + shortstr("amq.rabbitmq.reply-to") + shortstr("r") + b"\x02" + table(), 21)
    started, started_cpu = time.perf_counter(), time.process_time()
    # Ranges of about a reply each, and always one more asked for than has come.
    rows = FETCH_OCTETS // (body_bytes + 64)
    for start in range(0, min(count, 2 * rows), rows):
        ask(peer, stream, start, min(start + rows, count))
    total = 0
    for start in range(0, count, rows):
        found = Columns(content(peer))
        if found.count == 0 or found.numbers("offset")[0] != start:
            raise SystemExit(f"fetch from {start} gave {found.count} messages from {found.first_offset}")
        total += found.count
        if start + 2 * rows < count:
            ask(peer, stream, start + 2 * rows, min(start + 3 * rows, count))
    took, cpu = time.perf_counter() - started, time.process_time() - started_cpu
    if total != count:
        raise SystemExit(f"fetched {total} of {count}")
    peer.socket.close()
    return took, cpu


def content(peer: Peer) -> bytearray:
    """The body of the next delivery."""
    peer.expect(60, 60)
    _, header = peer.next_frame()
    size = struct.unpack_from(">Q", header, 4)[0]
    body = bytearray()
    pending = peer.buffer
    view = memoryview(bytearray(1 << 20))
    while len(body) < size:
        at = 0
        while len(body) < size and len(pending) - at >= 7:
            frame_size = _FRAME.unpack_from(pending, at)[2]
            if len(pending) - at < frame_size + 8:
                break
            body += memoryview(pending)[at + 7 : at + 7 + frame_size]
            at += frame_size + 8
        del pending[:at]
        if len(body) < size:
            pending += view[: peer.socket.recv_into(view)]
    return body


@contextlib.contextmanager
def contenders(options: argparse.Namespace, folder: Path) -> Iterator[list[Broker]]:
    with contextlib.ExitStack() as stack:
        tested = [stack.enter_context(brokers.flintmq(options.broker_command, folder / "flintmq"))]
        if not options.without_rabbitmq and brokers.RABBITMQ_SERVER.exists():
            tested.append(stack.enter_context(brokers.rabbitmq(folder / "rabbitmq")))
        yield tested


def run(options: argparse.Namespace, folder: Path) -> None:
    body = bytes(options.body_bytes)
    count = options.count // BATCH * BATCH
    rates: dict[tuple[str, str], list[float]] = {}
    with contenders(options, folder) as tested:
        for round_number in range(options.rounds):
            for broker in tested:
                stream = f"bench-{round_number}"
                owner = Peer(broker.port)
                owner.declare_stream(stream)
                before = broker.cpu_seconds()
                note(rates, broker, "publish", count / publish(broker, stream, count, body, options.window))
                middle = broker.cpu_seconds()
                note(rates, broker, "publish, CPU us/msg", (middle - before) / count * 1e6)
                note(rates, broker, "read", count / read(broker, stream, count, body, options.prefetch))
                note(rates, broker, "read, CPU us/msg", (broker.cpu_seconds() - middle) / count * 1e6)
                if broker is tested[0] and not options.without_fetch:
                    before = broker.cpu_seconds()
                    took, cpu = fetch(broker, stream, count, len(body))
                    note(rates, broker, "fetch", count / took)
                    note(rates, broker, "fetch, CPU us/msg", (broker.cpu_seconds() - before) / count * 1e6)
                    note(rates, broker, "fetch, client rows/CPU s", count / cpu)
                owner.delete(stream)
        show(rates, tested)


def note(rates: dict[tuple[str, str], list[float]], broker: Broker, what: str, value: float) -> None:
    rates.setdefault((what, broker.name), []).append(value)


def show(rates: dict[tuple[str, str], list[float]], tested: list[Broker]) -> None:
    for what in dict.fromkeys(what for what, _ in rates):
        medians = [statistics.median(rates[what, each.name]) for each in tested if (what, each.name) in rates]
        cells = [
            f"{each.name} {value:,.2f}" if value < 100 else f"{each.name} {value:,.0f}"
            for each, value in zip(tested, medians, strict=False)
        ]
        ratio = ""
        if len(medians) == 2:
            factor = medians[1] / medians[0] if "CPU" in what else medians[0] / medians[1]
            ratio = f"{factor:.1f}x"
        print(f"{what:28}", "  ".join(cells), ratio, sep="  ")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--broker-command", default=brokers.FLINTMQ_COMMAND)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--body-bytes", type=int, default=100)
    parser.add_argument("--window", type=int, default=10_000)
    parser.add_argument("--prefetch", type=int, default=10_000)
    parser.add_argument("--without-rabbitmq", action="store_true")
    parser.add_argument("--without-fetch", action="store_true")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="flintmq-streams-bench-"))
    try:
        run(options, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
