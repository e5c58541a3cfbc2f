"""Brokers with little memory, loads that ask for much, and what has to hold all the while."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from broker_process import BrokerProcess
from peer import Peer, encode_frame

from flintmq.wire import amqp, methods
from flintmq.wire.methods import decode_method, encode_method
from flintmq.wire.properties import BasicProperties, encode_properties

MIB = 1 << 20
LIMIT_BYTES = 200 * MIB
# Whatever clients do, memory stays under one and a half times the limit.
BAR_BYTES = 300 * MIB
# What the broker may work before a bystander has its answer, at the 99th percentile: 50 ms, or so many times
# what an answer takes when there is nothing else to do. A machine that is slow, or shared, is so for both.
WAIT_S = 0.050
WAIT_ANSWERS = 500
# Beside other work `make test` allows four times as much: a pass without a bound is longer than that too.
WAIT_FACTOR = float(os.environ.get("MEMORY_WAIT_FACTOR", "1"))
# A load is over when the broker takes nothing more of it for so long.
STALL_S = 1.0
NORMAL_TIMEOUT_S = 30.0


class Bystander:
    """See bystander.py."""

    def __init__(self, port: int, pid: int) -> None:
        command = [sys.executable, str(Path(__file__).with_name("bystander.py")), str(port), str(pid)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        word, quiet_s = self.process.stdout.readline().split()
        assert word == "ready"
        self.quiet_s = float(quiet_s)

    def waits_s(self) -> list[tuple[float, float]]:
        """Of each answer, what the broker ran for and what it slept for."""
        out, _ = self.process.communicate("", timeout=120)
        return [(ran_s, slept_s) for ran_s, slept_s in json.loads(out)]


def percentile_s(waits_s: list[float], share: float) -> float:
    return sorted(waits_s)[min(int(len(waits_s) * share), len(waits_s) - 1)]


class Watched(BrokerProcess):
    """A broker with a limit of 200 MiB, a bystander beside it, and connections that load it."""

    def __init__(self, directory: Path, has_store: bool, settings: str) -> None:
        file = directory / "flintmq.toml"
        file.write_text(f"[limits]\nmemory_high_bytes = {LIMIT_BYTES}\n{settings}")
        options = ["--data", str(directory / "data")] if has_store else []
        super().__init__("--config", str(file), *options)
        self.loads = ExitStack()
        self.bystander = Bystander(self.port, self.process.pid)

    def status_kib(self, name: str) -> int:
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(name + ":"))

    def rss_bytes(self) -> int:
        return self.status_kib("VmRSS") << 10

    def peak_bytes(self) -> int:
        return self.status_kib("VmHWM") << 10

    def connect(self, version: str = "0-9-1") -> Peer:
        """A connection that ends with the load, with channel 1."""
        peer = Peer.connect(self.port, version)
        peer.socket.settimeout(30.0)
        self.loads.callback(peer.abort)
        peer.open(1)
        return peer

    def connect_quickly(self) -> Peer:
        """The same without a word read: for thousands of them."""
        peer = Peer(self.port)
        self.loads.callback(peer.abort)
        peer.raw(peer.header)
        peer.send(
            0,
            methods.ConnectionStartOk(
                client_properties={}, mechanism="PLAIN", response=b"\0guest\0guest", locale="en_US"
            ),
            methods.ConnectionTuneOk(channel_max=2047, frame_max=131_072, heartbeat=0),
            methods.ConnectionOpen(virtual_host="/"),
        )
        peer.send(1, methods.ChannelOpen())
        return peer

    def drop_loads(self) -> None:
        self.loads.close()

    def becomes_normal(self) -> None:
        """With the load gone, memory is below the limit again and whoever publishes is served."""
        deadline_s = time.monotonic() + NORMAL_TIMEOUT_S
        while self.rss_bytes() > LIMIT_BYTES * 0.9:
            assert time.monotonic() < deadline_s, f"{self.rss_bytes() >> 20} MiB are still in use"
            time.sleep(0.05)  # the process is looked at from outside: there is no event to wait for
        while not self.serves_publishers():  # the broker may still have to notice
            assert time.monotonic() < deadline_s, "who publishes is not served"
            time.sleep(0.05)

    def serves_publishers(self) -> bool:
        """Whether a message is taken and confirmed, if need be when an alarm has ended."""
        with Peer.connect(self.port, capabilities=()) as peer:
            peer.socket.settimeout(NORMAL_TIMEOUT_S)
            peer.open(1)
            peer.call(1, methods.ConfirmSelect())
            peer.send(1, methods.QueueDeclare(queue="normal", exclusive=True))
            found = decode_method(amqp.VERSION_0_9_1, peer.frame_of(1).payload)
            if isinstance(found, methods.ChannelClose):
                assert found.reply_code == amqp.RESOURCE_ERROR, found
                return False  # memory has been short until now, or is once more
            peer.publish(1, b"as ever", key="normal")
            peer.expect(1, methods.BasicAck)
            return True

    def check(self) -> None:
        """Memory has never been above the bar, and the bystander was served."""
        waits_s = self.bystander.waits_s()
        ran_s = percentile_s([ran for ran, _ in waits_s], 0.99)
        whole_s = percentile_s([ran + slept for ran, slept in waits_s], 0.99)
        bar_s = WAIT_FACTOR * max(WAIT_S, WAIT_ANSWERS * self.bystander.quiet_s)
        peak = self.peak_bytes()
        said = (
            f"peak {peak >> 20} MiB, at the 99th percentile of {len(waits_s)} answers to the bystander "
            f"the broker was at work for {ran_s * 1e3:.1f} ms of {bar_s * 1e3:.1f}, "
            f"and took {whole_s * 1e3:.1f} ms"
        )
        sys.stdout.write(said + "\n")
        assert peak < BAR_BYTES, said
        assert ran_s < bar_s, said

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.loads.close()
        if self.bystander.process.poll() is None:
            self.bystander.process.kill()
            self.bystander.process.wait()
        super().__exit__(kind, error, trace)


def publication(
    body: bytes,
    exchange: str = "",
    key: str = "",
    channel: int = 1,
    mandatory: bool = False,
    **properties: object,
) -> bytes:
    """The frames of one publish."""
    method = methods.BasicPublish(exchange=exchange, routing_key=key, mandatory=mandatory)
    octets = encode_properties(BasicProperties(**properties))  # type: ignore[arg-type]
    header = b"\0\x3c\0\0" + len(body).to_bytes(8, "big") + octets
    frames = encode_frame(amqp.FRAME_METHOD, channel, encode_method(amqp.VERSION_0_9_1, method))
    frames += encode_frame(amqp.FRAME_HEADER, channel, header)
    for start in range(0, len(body), 131_064):
        frames += encode_frame(amqp.FRAME_BODY, channel, body[start : start + 131_064])
    return frames


def pour(peer: Peer, portions: Iterable[bytes], stall_s: float = STALL_S) -> int:
    """Sends until all is sent or the broker takes no more; the octets that it took."""
    sent = 0
    peer.socket.settimeout(stall_s)
    try:
        for portion in portions:
            view = memoryview(portion)
            while view:
                size = peer.socket.send(view)
                sent += size
                view = view[size:]
    except (TimeoutError, ConnectionError):
        pass
    return sent


def deafen(peer: Peer) -> None:
    """As little as possible of what comes is kept by the kernel: the rest is the broker's."""
    peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)


def discard(peer: Peer, quiet_s: float) -> int:
    """Reads until nothing has come for so long; the octets that came."""
    received = 0
    peer.socket.settimeout(quiet_s)
    try:
        while size := len(peer.socket.recv(1 << 20)):
            received += size
    except (TimeoutError, ConnectionError):
        pass
    return received
