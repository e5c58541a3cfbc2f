"""A file on its way through a broker while the sender, the receiver and the broker are killed with -9.

    python tools/file_kills.py --bytes 8GiB --kills 20 --seed 1 [--way class] [--directory DIR]
    python tools/file_kills.py --bytes 1MiB --kills 0 --at published --at acked

It goes by `flintmq file send` and `flintmq file receive`, or by the file class of AMQP 0-9 (`--way class`).

The three run as processes of their own. At moments that the seed decides one of them is killed, and started
again; `--at` names points of the transfer at which the sender or the receiver is killed besides, once each:

    sender      ... publish ---> published ---> the file is deleted ---> deleted
    receiver    ... the file is put in place ---> placed ---> ack ---> acked, or unheard

At `unheard` the receiver lives on, but loses its connection before it hears of its ack. At the end the file
has to be there, once, with the same SHA-256; no octet may have been sent twice but those of a part that was
under way at a kill; none of the processes may have taken more than 256 MB. Each process of the transfer notes
what it sends and gets in a file. Status 1, and what is wrong, if anything is. That includes a process that
ends too early, and a transfer that does not end: then the state of each process is told, with its stack.
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import FileIO
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from peer import Gone, Peer

from flintmq.checks import size
from flintmq.cli import main as flintmq
from flintmq.cli.files.file_sender import PART_BYTES
from flintmq.cli.files.patient_connection import PatientConnection
from flintmq.client import connect
from flintmq.client.core.errors import ClientError, ConnectFailed, ConnectionLost
from flintmq.wire import amqp, methods
from flintmq.wire.properties import FileProperties, encode_properties

MIB = 1 << 20
MEMORY_BYTES_MAX = 256 * 10**6
QUEUE = "files"
LOOK_S = 0.01
# Between looks that ask the broker, or read all that was noted.
LOOK_WELL_S = 0.2
LIMIT_S = 3600.0
# While nothing seems to happen, a process may be summing up the file: 8 GiB take a minute.
QUIET_S = 300.0
# For a process to write its stack.
STACK_S = 10.0
STACK_LINES = 40
ROLES = ("broker", "sender", "receiver")
POINTS = ("published", "deleted", "placed", "acked", "unheard")
WAYS = ("class", "command")


class NoEnd(Exception):
    """The transfer has failed, or does not come to its end."""


@dataclass
class Round:
    """One file, and all that happened on its way."""

    directory: Path
    octets: int
    kills: int
    seed: int
    way: str
    points: list[str] = field(default_factory=list)
    limit_s: float = LIMIT_S
    quiet_s: float = QUIET_S
    port: int = 0
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    peak_bytes: dict[str, int] = field(default_factory=dict)
    killed: list[str] = field(default_factory=list)
    is_left_waiting: bool = False
    began_s: float = field(default_factory=time.monotonic)
    looked_s: float = 0.0
    happened: object = None
    happened_s: float = field(default_factory=time.monotonic)

    def run(self) -> list[str]:
        """What is wrong; nothing if all is well."""
        chance = random.Random(self.seed)
        sent = self.make_file(chance)
        with socket.socket() as held:
            # While the broker is down, nobody else gets its port: not by chance, nor to connect from.
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            held.bind(("127.0.0.1", 0))
            self.port = held.getsockname()[1]
            if sys.platform != "linux":
                held.close()  # two sockets cannot have the same port there
            try:
                self.transfer(chance)
            except NoEnd as error:
                return [str(error), *self.who_waits()]
            finally:
                for process in self.processes.values():
                    process.kill()
                    process.wait()
        return self.faults(sent)

    def transfer(self, chance: random.Random) -> None:
        self.start("broker")
        self.declare()
        for role in ("sender", "receiver"):
            self.start(role)
        self.kill_by_chance(chance)
        self.wait_for_end()

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
        given = ["--log", str(self.directory / f"{role}.log"), "--limit", str(self.limit_s)]
        for point in self.points:
            given += ["--at", point]
        if self.way == "class":
            return [__file__, *given, "--", "class", role, str(self.port), str(self.directory)]
        options = ["--url", f"amqp://localhost:{self.port}", "--patience", "300", "--json"]
        words = {
            "sender": ["send", str(self.directory / "out"), "--to", QUEUE, "--delete"],
            "receiver": ["receive", QUEUE, str(self.directory / "in"), "--count", "1"],
        }
        return [__file__, *given, "--", "file", *words[role], *options]

    def start(self, role: str) -> None:
        with (self.directory / f"{role}.err").open("ab") as said:
            # SIGABRT has it write its stacks: see `who_waits`.
            command = [sys.executable, "-X", "faulthandler", *self.command(role)]
            self.processes[role] = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said)

    def declare(self) -> None:
        while True:
            self.check()
            try:
                with (
                    connect(f"amqp://localhost:{self.port}", recovery=None) as connection,
                    connection.channel() as channel,
                ):
                    channel.queue(QUEUE, durable=True)
                return
            except ConnectFailed:
                time.sleep(LOOK_WELL_S)

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
            # A sender that is done has ended.
            role = chance.choice([role for role in ROLES if self.processes[role].poll() is None])
            process = self.processes[role]
            self.look_at(role)
            process.send_signal(signal.SIGKILL)
            if process.wait() == -signal.SIGKILL:
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
        """Whether both ends are done; raises if one of the three has failed, or nothing happens any more."""
        for role in ROLES:
            self.look_at(role)
        is_over = True
        for role in ("sender", "receiver"):
            status = self.processes[role].poll()
            if status == -signal.SIGKILL and not self.is_left_waiting:
                self.killed.append(role)  # at one of the points
                self.start(role)
                status = None
            is_over = is_over and status is not None
        self.check()
        return is_over

    def check(self) -> None:
        for role, process in self.processes.items():
            status = process.poll()
            is_fine = status is None
            if role != "broker":  # one that was killed at a point is started again at the next look
                is_fine = status in (None, 0, -signal.SIGKILL) or self.is_left_waiting
            if not is_fine:
                raise NoEnd(f"the {role} ended with status {status}")
        if len(self.killed) > self.kills + len(self.points):
            raise NoEnd(f"somebody else kills: {self.killed}")
        now_s = time.monotonic()
        if now_s - self.looked_s < LOOK_WELL_S:
            return
        self.looked_s = now_s
        happened = (self.progress(), len(self.killed), [each.poll() for each in self.processes.values()])
        if happened != self.happened:
            self.happened, self.happened_s = happened, now_s
        if now_s - self.happened_s > self.quiet_s:
            raise NoEnd(f"it does not end: nothing has happened for {self.quiet_s:.0f} s")
        if now_s - self.began_s > self.limit_s:
            raise NoEnd(f"it does not end within {self.limit_s:.0f} s")

    def wait_for_end(self) -> None:
        asked_s = 0.0
        while not self.is_over():
            if time.monotonic() - asked_s > LOOK_WELL_S:
                if self.is_acked():
                    self.is_left_waiting = True
                    self.processes["receiver"].kill()
                    self.processes["receiver"].wait()
                asked_s = time.monotonic()
            time.sleep(LOOK_S)

    def is_acked(self) -> bool:
        """A receiver that never heard of its ack waits for another file, which never comes.

        It was killed itself, or by the class its connection broke: then the broker cannot tell it.
        """
        is_unheard = self.way == "class" and ("broker" in self.killed or "unheard" in self.points)
        if not (is_unheard or "receiver" in self.killed) or self.processes["sender"].poll() is None:
            return False
        if not (self.directory / "in" / "file.bin").exists():
            return False
        try:
            told = self.queue_info()
        except (ConnectFailed, ConnectionLost):
            return False
        return not told["messages-ready"] and not told["messages-unacked"]

    def queue_info(self) -> dict[str, Any]:
        with connect(f"amqp://localhost:{self.port}", recovery=None) as connection:
            return dict(connection.request("queue.info", {"queue": QUEUE}).results)

    # Where it stands when it does not end

    def who_waits(self) -> list[str]:
        """What is there, and what each process does; those that still run end by it."""
        files = sorted(path for path in self.directory.rglob("*") if path.is_file())
        shown = [
            f"{path.relative_to(self.directory)} {path.stat().st_size}"
            for path in files
            if "data" not in path.relative_to(self.directory).parts[:1]
        ]
        try:
            queue = str(self.queue_info())
        except (ClientError, OSError) as error:
            queue = f"not known, {error!r}"
        return [
            f"{self.progress()} octets of {2 * self.octets} went; killed were {self.killed}",
            f"files: {', '.join(shown)}",
            f"the queue: {queue:.1000}",
            # The broker last: the others see its end, and do something else then.
            *[self.state_of(role) for role in reversed(ROLES) if role in self.processes],
        ]

    def state_of(self, role: str) -> str:
        process = self.processes[role]
        state = f"ended with status {process.poll()}"
        if process.poll() is None:
            state = "runs"
            process.send_signal(signal.SIGABRT)
            try:
                process.wait(STACK_S)
            except subprocess.TimeoutExpired:
                state = "runs, and does not write its stack"
        said = (self.directory / f"{role}.err").read_text(errors="replace").splitlines()[-STACK_LINES:]
        parts = noted(self.directory / f"{role}.log")[-1:]
        return "\n    ".join([f"the {role} {state}; its last part: {parts}; it says:", *said])

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
        if list(self.directory.glob("*.part")):
            faults.append("the same content came under two identifiers")
        if list((self.directory / "out").iterdir()):
            faults.append("the file that was sent was not deleted")
        for role in ("sender", "receiver"):
            log = noted(self.directory / f"{role}.log")
            twice = sum(length for _, length in log) - self.octets
            if twice > len(self.killed) * PART_BYTES:  # the part, or block, that was under way at each kill
                faults.append(f"{role}: {twice} octets twice, {len(self.killed)} kills")
            for before, after in pairwise(log):
                if after[0] < before[0]:
                    faults.append(f"{role}: went back to {after[0]} from the part at {before[0]}")
        faults += [
            f"{role} took {peak // 10**6} MB"
            for role, peak in self.peak_bytes.items()
            if peak > MEMORY_BYTES_MAX
        ]
        return faults


# By the file class: a file.open behind each block tells the sender that the block has arrived.


class Points:
    """Where a process of the transfer is killed, once in a round."""

    def __init__(self, directory: Path, chosen: list[str]) -> None:
        self.directory = directory
        self.chosen = chosen

    def is_due(self, point: str) -> bool:
        mark = self.directory / f"{point}.reached"
        if point not in self.chosen or mark.exists():
            return False
        mark.touch()
        return True

    def reach(self, point: str) -> None:
        if self.is_due(point):
            os.kill(os.getpid(), signal.SIGKILL)


def connected(port: int, limit_s: float) -> Peer:
    """A connection on which silence is no fault; one that a busy broker refuses counts as lost."""
    try:
        peer = Peer.connect(port, "0-9", heartbeat_s=0)
    except AssertionError as error:
        raise Gone(str(error)) from error
    peer.socket.settimeout(limit_s)
    return peer


class Sender:
    """Sends the file by the file class, from where the broker has it."""

    def __init__(self, port: int, directory: Path, log: str, points: Points, limit_s: float) -> None:
        self.port = port
        self.file = directory / "out" / "file.bin"
        self.note = noting(log)
        self.points = points
        self.limit_s = limit_s

    def run(self) -> None:
        if not self.file.exists():
            return  # a sender that was killed then has deleted it, as it was published
        with connected(self.port, self.limit_s) as peer:
            peer.open(1)
            size = self.file.stat().st_size
            with self.file.open("rb") as stream:
                while (staged := self.staged(peer, size)) < size:
                    stream.seek(staged)
                    self.stage(peer, staged, stream.read(PART_BYTES))
            self.stage(peer, size, b"")  # brings the properties, if all was staged by another connection
            peer.send(1, methods.FilePublish(identifier="file", routing_key=QUEUE))
            peer.call(1, methods.QueueDeclare(queue=QUEUE, passive=True))  # all before it is done
            # What was published is safe when an identifier that is all there is told as such.
            self.staged(peer, size)
        self.points.reach("published")
        self.file.unlink()
        self.points.reach("deleted")

    def staged(self, peer: Peer, size: int) -> int:
        """How much the broker has, on disk."""
        opened = peer.call(1, methods.FileOpen(identifier="file", content_size=size))
        return int(opened.staged_size)

    def stage(self, peer: Peer, at: int, block: bytes) -> None:
        self.note(at, len(block))
        peer.send(1, methods.FileStage())
        head = amqp.CLASS_FILE.to_bytes(2, "big") + bytes(2) + len(block).to_bytes(8, "big")
        peer.frame(amqp.FRAME_HEADER, 1, head + encode_properties(FileProperties(filename=self.file.name)))
        payload_max = peer.frame_bytes_max - 8
        for start in range(0, len(block), payload_max):
            peer.frame(amqp.FRAME_BODY, 1, block[start : start + payload_max])


class Receiver:
    """Receives the file by the file class, and keeps the part that it has."""

    def __init__(self, port: int, directory: Path, log: str, points: Points, limit_s: float) -> None:
        self.port = port
        self.folder = directory / "in"
        self.note = noting(log)
        self.points = points
        self.limit_s = limit_s
        self.folder.mkdir(exist_ok=True)

    def run(self) -> None:
        with connected(self.port, self.limit_s) as peer:
            peer.open(1)
            peer.call(1, methods.FileConsume(queue=QUEUE))
            opened = peer.expect(1, methods.FileOpen)
            part = self.folder.parent / f"{opened.identifier}.part"
            done = part.with_suffix(".done")
            with self.staged(part, done, opened.content_size) as stream:
                delivered = self.take(peer, stream, opened)
            done.touch()
            if part.exists():
                os.replace(part, self.folder / "file.bin")
            self.points.reach("placed")
            peer.send(1, methods.FileAck(delivery_tag=delivered.delivery_tag))
            peer.call(1, methods.QueueDeclare(queue=QUEUE, passive=True))
            self.points.reach("acked")
            if self.points.is_due("unheard"):
                raise Gone("as if the answer had been lost")

    @contextmanager
    def staged(self, part: Path, done: Path, size: int) -> Iterator[FileIO | None]:
        """The part that is there; None if a receiver before this one has put the file in place already."""
        if done.exists() and not part.exists():
            yield None
            return
        with part.open("ab", buffering=0) as stream:
            yield stream

    def take(self, peer: Peer, part: FileIO | None, opened: methods.FileOpen) -> methods.FileDeliver:
        """Adds to the part what is missing in it, block by block, until the file is delivered."""
        size = opened.content_size
        said: object = opened
        while not isinstance(said, methods.FileDeliver):
            assert said == opened, said
            at = size if part is None else os.fstat(part.fileno()).st_size
            peer.send(1, methods.FileOpenOk(staged_size=at))
            peer.expect(1, methods.FileStage)
            end = at + int.from_bytes(peer.frame_of(1).payload[4:12], "big")
            self.note(at, end - at)  # also what is on its way yet: the broker sends it, whoever gets it
            while at < end:
                octets = peer.frame_of(1).payload
                assert part is not None
                part.write(octets)
                at += len(octets)
            said = methods.decode_method(amqp.VERSION_0_9, peer.frame_of(1).payload)
        return said


def by_class(role: str, port: int, directory: Path, log: str, points: Points, limit_s: float) -> int:
    """Tries again for as long as the connection is lost; whatever else goes wrong ends it."""
    end = Sender if role == "sender" else Receiver
    transfer = end(port, directory, log, points, limit_s)
    until_s = time.monotonic() + limit_s
    while time.monotonic() < until_s:
        try:
            transfer.run()
            return 0
        except (Gone, ConnectionError, TimeoutError) as error:
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


def note_parts(path: str, points: Points) -> None:
    """From here on each part that this process sends or gets is noted, and it is killed at the points."""
    note = noting(path)
    whole = PatientConnection.request
    unlink = Path.unlink

    def request(
        self: PatientConnection,
        service: str,
        arguments: dict[str, Any],
        body: bytes = b"",
        wait_s: float = 0.0,
    ) -> Any:
        if service == "staging.append":
            note(arguments["offset"], len(body))
        if service == "lease.ack":
            points.reach("placed")
        reply = whole(self, service, arguments, body, wait_s)
        if service == "lease.content" and reply.body:
            note(arguments["offset"], len(reply.body))
        if service == "staging.publish":
            points.reach("published")
        if service == "lease.ack":
            points.reach("acked")
            if points.is_due("unheard"):
                raise ConnectionLost("as if the answer had been lost")
        return reply

    def deleted(self: Path, missing_ok: bool = False) -> None:
        unlink(self, missing_ok)
        if self.name == "file.bin":
            points.reach("deleted")

    PatientConnection.request = request  # type: ignore[method-assign]
    Path.unlink = deleted  # type: ignore[method-assign]


def options_of() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bytes", type=size(1, 1 << 50), default=8 << 30)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--at", action="append", choices=POINTS, default=[], help="kill there, once")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--way", choices=WAYS, default="command")
    parser.add_argument("--directory", metavar="DIR", help="for the files, three times their size")
    parser.add_argument("--limit", type=float, default=LIMIT_S, metavar="S", help="the longest that it takes")
    parser.add_argument(
        "--quiet", type=float, default=QUIET_S, metavar="S", help="the longest that nothing happens"
    )
    parser.add_argument("--log", metavar="FILE", help=argparse.SUPPRESS)
    parser.add_argument("words", nargs="*", help=argparse.SUPPRESS)
    return parser.parse_args()


def end_of_transfer(options: argparse.Namespace) -> int:
    """The sender or the receiver."""
    points = Points(Path(options.log).parent, options.at)
    if options.words[0] == "class":
        _, role, port, directory = options.words
        return by_class(role, int(port), Path(directory), options.log, points, options.limit)
    note_parts(options.log, points)
    return flintmq(options.words)


def main() -> int:
    options = options_of()
    if options.log:
        return end_of_transfer(options)
    with tempfile.TemporaryDirectory(prefix="flintmq-files-", dir=options.directory) as directory:
        one = Round(
            Path(directory),
            options.bytes,
            options.kills,
            options.seed,
            options.way,
            options.at,
            options.limit,
            options.quiet,
        )
        faults = one.run()
        peaks = ", ".join(f"{role} {peak // 10**6} MB" for role, peak in sorted(one.peak_bytes.items()))
        kills = ", ".join(f"{role} {one.killed.count(role)}" for role in ROLES)
        took_s = time.monotonic() - one.began_s
        print(f"{options.bytes:,} octets in {took_s:.0f} s; kills: {kills}; peaks: {peaks}")
        for role in ("sender", "receiver"):
            twice = sum(length for _, length in noted(Path(directory) / f"{role}.log")) - options.bytes
            print(f"{role}: {twice:,} octets twice")
    for fault in faults:
        print(f"WRONG: {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
