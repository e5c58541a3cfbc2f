"""Messages per second by AMQP/Fast 0.8 and 0.9 and by 0-9-1 Basic, in turns: one queue, no acks.

    python benchmarks/fast_protocol.py --size 16 --seconds 3 --rounds 3
    python benchmarks/fast_protocol.py --broker "flintmq serve --port {port} --fast09-port {fast09} ..."

One thread sends octets that were made before, another counts those that come: all messages have the same
size on the wire, so that the clients cost next to nothing. The last lines have the rate of each AMQP/Fast as
a part of that of Basic, by medians, and the processor time of the broker for each message.
"""

from __future__ import annotations

import argparse
import socket
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

from brokers import Broker, flintmq, free_port

from flintmq.client import connect as connect_basic
from flintmq.client.fast.core import FastCore
from flintmq.client.fast09.core import Fast09Core
from flintmq.wire import amqp, methods
from flintmq.wire.fast import commands, message_head
from flintmq.wire.fast.message_head import MessageHead
from flintmq.wire.fast09 import frames as frames09
from flintmq.wire.fast09.methods import encode as encode09
from flintmq.wire.fast09.methods import method as method09
from flintmq.wire.methods import encode_method

# What is sent at once: some thousand messages.
CHUNK_BYTES = 262_144
READ_BYTES = 1_048_576
QUEUE = "fast"


class FastPair:
    """Two connections of AMQP/Fast: one sends, one consumes."""

    name = "fast"

    def __init__(self, port: int, size: int) -> None:
        self.sender = self.opened(port)
        self.receiver = self.opened(port)
        self.receiver.sendall(commands.encode(commands.HandleConsume(1, 0, 1, no_ack=True)))
        head = message_head.encode(MessageHead(size))
        send = commands.encode(commands.HandleSend(1, 0, len(head) + size))
        notify = commands.encode(commands.HandleNotify(1, 0, len(head) + size, dest_name=QUEUE))
        self.message = send + head + bytes(size)
        self.delivered_bytes = len(notify) + len(head) + size

    def opened(self, port: int) -> socket.socket:
        core = FastCore("guest", "guest", "/", "", 0)
        made = socket.create_connection(("127.0.0.1", port))
        while not core.is_open:
            made.sendall(core.take_output())
            core.receive(made.recv(READ_BYTES))
        made.sendall(commands.encode(commands.ChannelOpen(1)))
        opening = commands.HandleOpen(1, 1, 1, producer=True, consumer=True, dest_name=QUEUE)
        made.sendall(commands.encode(opening))
        return made

    def close(self) -> None:
        self.sender.close()
        self.receiver.close()


class Fast09Pair:
    """The same by AMQP/Fast 0.9, which has a port of its own."""

    name = "fast09"

    def __init__(self, port: int, size: int) -> None:
        self.sender = self.opened(port)
        self.receiver = self.opened(port)
        consume = method09("jms.consume", queue=QUEUE, auto_ack=True)
        self.receiver.sendall(frames09.framed(frames09.METHOD, 1, encode09(consume, 0, 1)))
        self.receiver.recv(READ_BYTES)
        destination = bytes((len(QUEUE),)) + QUEUE.encode()
        header = b"\x06\x00" + size.to_bytes(8, "big") + b"\x02\x00" + destination
        content = frames09.framed(frames09.HEADER, 1, header) + frames09.framed(frames09.BODY, 1, bytes(size))
        publish = method09("jms.publish", proxy="")
        deliver = method09("jms.deliver", delivery_tag=1, proxy="", queue=QUEUE)
        self.message = frames09.framed(frames09.METHOD, 1, encode09(publish, 0, 0)) + content
        self.delivered_bytes = len(frames09.framed(frames09.METHOD, 1, encode09(deliver, 0, 0)) + content)

    def opened(self, port: int) -> socket.socket:
        core = Fast09Core("guest", "guest", "/", "", 0)
        made = socket.create_connection(("127.0.0.1", port))
        while not core.is_open:
            made.sendall(core.take_output())
            core.receive(made.recv(READ_BYTES))
        opening = method09("channel.open")
        made.sendall(frames09.framed(frames09.METHOD, 1, encode09(opening, 0, 1)))
        made.recv(READ_BYTES)
        return made

    def close(self) -> None:
        self.sender.close()
        self.receiver.close()


class BasicPair:
    """The same by 0-9-1."""

    name = "basic"

    def __init__(self, port: int, size: int) -> None:
        self.sender = self.opened(port)
        self.receiver = self.opened(port)
        consume = methods.BasicConsume(queue=QUEUE, consumer_tag="c", no_ack=True, no_wait=True)
        self.receiver.sendall(frame(1, 1, encode_method(amqp.VERSION_0_9_1, consume)))
        publish = encode_method(amqp.VERSION_0_9_1, methods.BasicPublish(exchange="", routing_key=QUEUE))
        header = amqp.CLASS_BASIC.to_bytes(2, "big") + bytes(2) + size.to_bytes(8, "big") + bytes(2)
        content = frame(2, 1, header) + frame(3, 1, bytes(size))
        deliver = encode_method(
            amqp.VERSION_0_9_1,
            methods.BasicDeliver(consumer_tag="c", delivery_tag=1, exchange="", routing_key=QUEUE),
        )
        self.message = frame(1, 1, publish) + content
        self.delivered_bytes = len(frame(1, 1, deliver) + content)

    def opened(self, port: int) -> socket.socket:
        made = socket.create_connection(("127.0.0.1", port))
        version = amqp.VERSION_0_9_1
        start_ok = methods.ConnectionStartOk(
            client_properties={}, mechanism="PLAIN", response=b"\0guest\0guest", locale="en_US"
        )
        made.sendall(b"AMQP\x00\x00\x09\x01")
        made.recv(READ_BYTES)
        made.sendall(frame(1, 0, encode_method(version, start_ok)))
        made.recv(READ_BYTES)
        tune_ok = methods.ConnectionTuneOk(channel_max=1, frame_max=131_072, heartbeat=0)
        made.sendall(frame(1, 0, encode_method(version, tune_ok)))
        made.sendall(frame(1, 0, encode_method(version, methods.ConnectionOpen(virtual_host="/"))))
        made.recv(READ_BYTES)
        made.sendall(frame(1, 1, encode_method(version, methods.ChannelOpen())))
        made.recv(READ_BYTES)
        return made

    def close(self) -> None:
        self.sender.close()
        self.receiver.close()


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return bytes((kind,)) + channel.to_bytes(2, "big") + len(payload).to_bytes(4, "big") + payload + b"\xce"


def measured(broker: Broker, pair: FastPair | Fast09Pair | BasicPair, seconds: float) -> tuple[float, float]:
    """Messages that arrived in a second, and microseconds of the broker's processor time for each."""
    chunk = pair.message * max(1, CHUNK_BYTES // len(pair.message))
    is_over = threading.Event()

    def send() -> None:
        while not is_over.is_set():
            try:
                pair.sender.sendall(chunk)
            except OSError:
                return

    sender = threading.Thread(target=send)
    sender.start()
    buffer = bytearray(READ_BYTES)
    pair.receiver.settimeout(30)
    pair.receiver.recv_into(buffer)  # it has begun
    began_s, began_cpu_s, received = time.perf_counter(), broker.cpu_seconds(), 0
    while (took_s := time.perf_counter() - began_s) < seconds:
        received += pair.receiver.recv_into(buffer)
    cpu_s = broker.cpu_seconds() - began_cpu_s
    is_over.set()
    pair.sender.shutdown(socket.SHUT_RDWR)
    sender.join()
    messages = received / pair.delivered_bytes
    return messages / took_s, 1_000_000 * cpu_s / messages


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--size", type=int, default=16, help="octets of a body (16)")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement (3)")
    parser.add_argument("--rounds", type=int, default=3, help="in which each has its turn (3)")
    parser.add_argument(
        "--broker",
        default="{python} -m flintmq serve --port {port} --fast09-port {fast09} --data {directory}",
        help="the command that runs it",
    )
    options = parser.parse_args()
    rates: dict[str, list[tuple[float, float]]] = {"fast": [], "fast09": [], "basic": []}
    fast09_port = free_port()
    command = options.broker.replace("{fast09}", str(fast09_port))
    with (
        tempfile.TemporaryDirectory() as directory,
        flintmq(command, Path(directory) / "broker") as broker,
    ):
        url = f"amqp://guest:guest@127.0.0.1:{broker.port}/"
        for _ in range(options.rounds):
            for kind in (FastPair, Fast09Pair, BasicPair):
                port = fast09_port if kind is Fast09Pair else broker.port
                with connect_basic(url) as connection, connection.channel() as channel:
                    channel.queue(QUEUE)
                    pair = kind(port, options.size)
                    rate, cpu_us = measured(broker, pair, options.seconds)
                    pair.close()
                    channel.delete_queue(QUEUE)
                rates[kind.name].append((rate, cpu_us))
                print(f"{kind.name:6} {rate:12,.0f} messages/s  {cpu_us:6.3f} us of the broker", flush=True)
    medians = {
        name: [statistics.median(column) for column in zip(*found, strict=True)]
        for name, found in rates.items()
    }
    for name in ("fast", "fast09"):
        rate_part = medians[name][0] / medians["basic"][0]
        cpu_part = medians[name][1] / medians["basic"][1]
        print(f"{name} / basic: {rate_part:.2f} of the rate, {cpu_part:.2f} of the processor time")
    return 0


if __name__ == "__main__":
    sys.exit(main())
