"""Brokers that die and come back on the same data directory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from broker_process import BrokerProcess
from peer import Peer

from flintmq.wire import methods

Start = Callable[..., "Life"]


class Life(BrokerProcess):
    """One run of a broker on a data directory, from its start to SIGTERM or SIGKILL."""

    def __init__(self, data: Path, settings: str = "") -> None:
        file = data.parent / "flintmq.toml"
        file.write_text(settings)
        super().__init__("--data", str(data), "--config", str(file))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for reader in self.readers:
            reader.join()

    def connect(self) -> Peer:
        peer = Peer.connect(self.port, heartbeat_s=0)
        peer.open(1)
        return peer

    def rss_octets(self) -> int:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * 4096

    def said_text(self) -> str:
        with self.said:
            return "\n".join(self.lines)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def start(data: Path) -> Iterator[Start]:
    """Starts a broker on the test's data directory; whatever still runs at the end is killed."""
    lives: list[Life] = []

    def begin(settings: str = "", directory: Path | None = None) -> Life:
        life = Life(directory or data, settings)
        lives.append(life)
        return life

    yield begin
    for life in lives:
        if life.process.poll() is None:
            life.kill()


@pytest.fixture
def journal(data: Path) -> Callable[[str], subprocess.CompletedProcess[str]]:
    """`flintmq journal TASK` on the test's data directory."""

    def run(task: str, directory: Path | None = None) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "flintmq", "journal", task, str(directory or data)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    return run


@pytest.fixture
def publish() -> Callable[..., None]:
    """Publishes persistent messages with confirms and waits until all are promised."""

    def send(peer: Peer, queue: str, bodies: list[bytes], **properties: object) -> None:
        peer.call(1, methods.ConfirmSelect())
        for body in bodies:
            peer.publish(1, body, key=queue, **{"delivery_mode": 2, **properties})
        confirmed = 0
        while confirmed < len(bodies):
            ack = peer.expect(1, methods.BasicAck)
            confirmed = ack.delivery_tag if ack.multiple else confirmed + 1

    return send


@pytest.fixture
def drain() -> Callable[[Peer, str], list[tuple[bytes, bool]]]:
    """Takes all there is in a queue: bodies, and whether they were marked redelivered."""

    def take(peer: Peer, queue: str) -> list[tuple[bytes, bool]]:
        count = peer.call(1, methods.QueueDeclare(queue=queue, passive=True)).message_count
        peer.call(1, methods.BasicConsume(queue=queue, consumer_tag="drain", no_ack=True))
        taken = []
        for _ in range(count):
            method, content = peer.delivery(1)
            taken.append((content.body, bool(method.redelivered)))
        peer.call(1, methods.BasicCancel(consumer_tag="drain"))
        return taken

    return take
