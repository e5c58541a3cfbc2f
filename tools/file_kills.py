"""A file on its way through a broker while the sender, the receiver and the broker are killed with -9.

    python tools/file_kills.py --bytes 8GiB --kills 20 --seed 1 [--way class] [--directory DIR]

It goes by `flintmq file send` and `flintmq file receive`, or by the file class of AMQP 0-9 (`--way class`).

The three run as processes of their own. At moments that the seed decides one of them is killed, and started
again. At the end the file has to be there, once, with the same SHA-256; no octet may have been sent twice but
those of a part that was under way at a kill; none of the processes may have taken more than 256 MB. Each
process of the transfer notes what it sends and gets in a file. Status 1, and what is wrong, if anything is.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from peer import Gone, Peer

from flintmq.checks import size
from flintmq.cli import main as flintmq
from flintmq.cli.file_sender import PART_BYTES
from flintmq.cli.patient_connection import PatientConnection
from flintmq.client import connect
from flintmq.client.core.errors import ConnectFailed, ConnectionLost
from flintmq.wire import amqp, methods
from flintmq.wire.properties import FileProperties, encode_properties

MIB = 1 << 20
MEMORY_BYTES_MAX = 256 * 10**6
QUEUE = "files"
LOOK_S = 0.01
OVER_S = 3600.0
ROLES = ("broker", "sender", "receiver")
# What may be sent twice for each kill: a part; by the file class what three parts and the sockets hold.
UNDER_WAY = {"command": PART_BYTES, "class": 12 * PART_BYTES}


@dataclass
class Round:
    """One file, and all that happened on its way."""

    directory: Path
    octets: int
    kills: int
    seed: int
    way: str
    port: int = 0
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    peak_bytes: dict[str, int] = field(default_factory=dict)
    killed: list[str] = field(default_factory=list)
    is_left_waiting: bool = False

    def run(self) -> list[str]:
        """What is wrong; nothing if all is well."""
        chance = random.Random(self.seed)
        sent = self.make_file(chance)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        try:
            self.start("broker")
            self.declare()
            for role in ("sender", "receiver"):
                self.start(role)
            self.kill_by_chance(chance)
            self.wait_for_end()
        finally:
            for process in self.processes.values():
                process.kill()
                process.wait()
        return self.faults(sent)

    def make_file(self, chance: random.Random) -> str:
        digest = hashlib.sha256()
        out = self.directory / "out"
        out.mkdir()
        with (out / "file.bin").open("wb") as stream:
            for at in range(0, self.octets, MIB):
                octets = chance.randbytes(min(MIB, self.octets - at))
                digest.update(octets)
                stream.write(octets)
        return digest.hexdigest()

    def command(self, role: str) -> list[str]:
        if role == "broker":
            data = str(self.directory / "data")
            return [
                "-m",
                "flintmq",
                "serve",
                "--port",
                str(self.port),
                "--data",
                data,
                "--log-level",
                "error",
            ]
        log = str(self.directory / f"{role}.log")
        if self.way == "class":
            return [__file__, "--log", log, "--", "class", role, str(self.port), str(self.directory)]
        options = ["--url", f"amqp://localhost:{self.port}", "--patience", "300", "--json"]
        words = {
            "sender": ["send", str(self.directory / "out"), "--to", QUEUE, "--delete"],
            "receiver": ["receive", QUEUE, str(self.directory / "in"), "--count", "1"],
        }
        return [__file__, "--log", log, "--", "file", *words[role], *options]

    def start(self, role: str) -> None:
        self.processes[role] = subprocess.Popen(
            [sys.executable, *self.command(role)], stdout=subprocess.DEVNULL, stderr=None
        )

    def declare(self) -> None:
        for _ in range(1000):
            try:
                with (
                    connect(f"amqp://localhost:{self.port}", recovery=None) as connection,
                    connection.channel() as channel,
                ):
                    channel.queue(QUEUE, durable=True)
                return
            except ConnectFailed:
                time.sleep(0.05)
        raise SystemExit("the broker does not start")

    def progress(self) -> int:
        """Octets that have been sent or received so far."""
        logs = [self.directory / f"{role}.log" for role in ("sender", "receiver")]
        return sum(length for log in logs for _, length in noted(log))

    def kill_by_chance(self, chance: random.Random) -> None:
        """Kills at moments that lie evenly over the octets of both ways, or soon after each other."""
        moments = sorted(chance.randrange(2 * self.octets) for _ in range(self.kills))
        for moment in moments:
            while self.progress() < moment and not self.is_over():
                time.sleep(LOOK_S)
            if self.is_over():
                return
            time.sleep(chance.random() * 0.05)
            role = chance.choice(ROLES)
            process = self.processes[role]
            self.look_at(role)
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.wait()
                self.killed.append(role)
                self.start(role)

    def look_at(self, role: str) -> None:
        """Notes the most memory that the process has had."""
        try:
            status = Path(f"/proc/{self.processes[role].pid}/status").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        if found:
            self.peak_bytes[role] = max(self.peak_bytes.get(role, 0), int(found[1]) * 1024)

    def is_over(self) -> bool:
        for role in ROLES:
            self.look_at(role)
        return self.processes["receiver"].poll() is not None and self.processes["sender"].poll() is not None

    def wait_for_end(self) -> None:
        until_s = time.monotonic() + OVER_S
        while not self.is_over():
            if time.monotonic() > until_s:
                raise SystemExit(f"it does not end: {self.progress()} octets of {2 * self.octets}")
            if self.is_acked():
                self.is_left_waiting = True
                self.processes["receiver"].kill()
                self.processes["receiver"].wait()
            time.sleep(LOOK_S)

    def is_acked(self) -> bool:
        """A receiver that was killed behind its ack waits for another file, which never comes."""
        if self.way == "class" or "receiver" not in self.killed or self.processes["sender"].poll() is None:
            return False
        if not (self.directory / "in" / "file.bin").exists():
            return False
        try:
            with connect(f"amqp://localhost:{self.port}", recovery=None) as connection:
                told = connection.request("queue.info", {"queue": QUEUE}).results
        except (ConnectFailed, ConnectionLost):
            return False
        return told["messages-ready"] == told["messages-unacked"] == 0

    def faults(self, sent: str) -> list[str]:
        faults = [
            f"the {role} ended with status {self.processes[role].returncode}"
            for role in ("sender", "receiver")
            if self.processes[role].returncode and not (role == "receiver" and self.is_left_waiting)
        ]
        files = [path for path in (self.directory / "in").rglob("*") if path.is_file()]
        if self.is_left_waiting:
            files = [path for path in files if path.suffix != ".done"]
        if [path.name for path in files] != ["file.bin"]:
            return [*faults, f"received are {[path.name for path in files]}"]
        if checksum(files[0]) != sent:
            faults.append("the file that was received is another one")
        if list((self.directory / "out").iterdir()):
            faults.append("the file that was sent was not deleted")
        for role in ("sender", "receiver"):
            log = noted(self.directory / f"{role}.log")
            twice = sum(length for _, length in log) - self.octets
            if twice > len(self.killed) * UNDER_WAY[self.way]:
                faults.append(f"{role}: {twice} octets twice, {len(self.killed)} kills")
        faults += [
            f"{role} took {peak // 10**6} MB"
            for role, peak in self.peak_bytes.items()
            if peak > MEMORY_BYTES_MAX
        ]
        return faults


# By the file class: a lost connection takes along what lies in its buffers and is not a whole part yet.


class Sender:
    """Sends the file by the file class, from where the broker has it."""

    def __init__(self, port: int, directory: Path, log: str) -> None:
        self.port = port
        self.file = directory / "out" / "file.bin"
        self.note = noting(log)

    def run(self) -> None:
        with Peer.connect(self.port, "0-9", heartbeat_s=0) as peer:
            peer.open(1)
            size = self.file.stat().st_size
            staged: int = peer.call(1, methods.FileOpen(identifier="file", content_size=size)).staged_size
            peer.send(1, methods.FileStage())
            head = amqp.CLASS_FILE.to_bytes(2, "big") + bytes(2) + (size - staged).to_bytes(8, "big")
            properties = FileProperties(filename=self.file.name)
            peer.frame(amqp.FRAME_HEADER, 1, head + encode_properties(properties))
            with self.file.open("rb") as stream:
                stream.seek(staged)
                while octets := stream.read(peer.frame_bytes_max - 8):
                    self.note(staged, len(octets))
                    peer.frame(amqp.FRAME_BODY, 1, octets)
                    staged += len(octets)
            peer.send(1, methods.FilePublish(identifier="file", routing_key=QUEUE))
            peer.call(1, methods.QueueDeclare(queue=QUEUE, passive=True))  # all before it is done
            # What was published is safe when an identifier that is all there is told as such.
            peer.call(1, methods.FileOpen(identifier="file", content_size=size))
        self.file.unlink()


class Receiver:
    """Receives the file by the file class, and keeps the part that it has."""

    def __init__(self, port: int, directory: Path, log: str) -> None:
        self.port = port
        self.folder = directory / "in"
        self.note = noting(log)
        self.folder.mkdir(exist_ok=True)

    def run(self) -> None:
        with Peer.connect(self.port, "0-9", heartbeat_s=0) as peer:
            peer.open(1)
            peer.socket.settimeout(OVER_S)
            peer.call(1, methods.FileConsume(queue=QUEUE))
            opened = peer.expect(1, methods.FileOpen)
            part = self.folder.parent / f"{opened.identifier}.part"
            with part.open("ab", buffering=0) as stream:
                at = os.fstat(stream.fileno()).st_size
                peer.send(1, methods.FileOpenOk(staged_size=at))
                peer.expect(1, methods.FileStage)
                header = peer.frame_of(1).payload
                assert int.from_bytes(header[4:12], "big") == opened.content_size - at
                while at < opened.content_size:
                    octets = peer.frame_of(1).payload
                    self.note(at, len(octets))
                    stream.write(octets)
                    at += len(octets)
            delivered = peer.expect(1, methods.FileDeliver)
            os.replace(part, self.folder / "file.bin")
            peer.send(1, methods.FileAck(delivery_tag=delivered.delivery_tag))
            peer.call(1, methods.QueueDeclare(queue=QUEUE, passive=True))


def by_class(role: str, port: int, directory: Path, log: str) -> int:
    """Tries again for as long as the connection is lost."""
    transfer = Sender(port, directory, log) if role == "sender" else Receiver(port, directory, log)
    until_s = time.monotonic() + OVER_S
    while time.monotonic() < until_s:
        try:
            transfer.run()
            return 0
        except (Gone, OSError, AssertionError) as error:
            print(f"{role}: {error!r:.200}", file=sys.stderr)
            time.sleep(0.2)
    return 1


def noting(log: str) -> Callable[[int, int], None]:
    handle = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    return lambda offset, length: void(os.write(handle, b"%d %d\n" % (offset, length)))


def void(_: int) -> None:
    """Nobody wants to know."""


def checksum(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def noted(log: Path) -> list[tuple[int, int]]:
    """Offset and length of each part; the last line may be half of one."""
    if not log.exists():
        return []
    lines = log.read_text().split("\n")[:-1]
    return [(int(offset), int(length)) for offset, length in (line.split() for line in lines)]


def note_parts(path: str) -> None:
    """From here on each part that this process sends or gets is noted."""
    note = noting(path)
    whole = PatientConnection.request

    def request(
        self: PatientConnection,
        service: str,
        arguments: dict[str, Any],
        body: bytes = b"",
        wait_s: float = 0.0,
    ) -> Any:
        if service == "staging.append":
            note(arguments["offset"], len(body))
        reply = whole(self, service, arguments, body, wait_s)
        if service == "lease.content" and reply.body:
            note(arguments["offset"], len(reply.body))
        return reply

    PatientConnection.request = request  # type: ignore[method-assign]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bytes", type=size(1, 1 << 50), default=8 << 30)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--way", choices=sorted(UNDER_WAY), default="command")
    parser.add_argument("--directory", metavar="DIR", help="for the files, three times their size")
    parser.add_argument("--log", metavar="FILE", help=argparse.SUPPRESS)
    parser.add_argument("words", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.log:
        if options.words[0] == "class":
            _, role, port, directory = options.words
            return by_class(role, int(port), Path(directory), options.log)
        note_parts(options.log)
        return flintmq(options.words)
    with tempfile.TemporaryDirectory(prefix="flintmq-files-", dir=options.directory) as directory:
        one = Round(Path(directory), options.bytes, options.kills, options.seed, options.way)
        began_s = time.monotonic()
        faults = one.run()
        peaks = ", ".join(f"{role} {peak // 10**6} MB" for role, peak in sorted(one.peak_bytes.items()))
        kills = ", ".join(f"{role} {one.killed.count(role)}" for role in ROLES)
        print(
            f"{options.bytes:,} octets in {time.monotonic() - began_s:.0f} s; kills: {kills}; peaks: {peaks}"
        )
        for role in ("sender", "receiver"):
            twice = sum(length for _, length in noted(Path(directory) / f"{role}.log")) - options.bytes
            print(f"{role}: {twice:,} octets twice")
    for fault in faults:
        print(f"WRONG: {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
