"""Receives messages of a queue as files, in parts, and goes on after a break where it came to.

    queue.lease ---> lease.content, 1 MiB each ---> DIR/.flintmq/KEY.part ---> DIR/NAME ---> lease.ack
                          ^                |              |
                          |                |              +--- KEY.done names the target while it is made
                          +----------------+ the connection, the broker or this process ends

The lease keeps the message for this receiver until it is acked. The part that is there says how far the
transfer came. KEY is of the message: its message-id and checksum, or its number in the lease where it lacks
one of these, as others may use an id twice. A receiver that is killed behind the renaming and before the ack
finds KEY.done and no part, and acks. A receiver whose connection breaks before it hears of its ack asks the
broker how far its lease is acked.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path, PurePosixPath
from typing import Any

from flintmq.cli.files.file_sender import FILENAME, MODIFIED_MS, READ_BYTES, SHA256
from flintmq.cli.files.patient_connection import PatientConnection
from flintmq.cli.files.text_conversion import TextConversion
from flintmq.cli.output.statuses import CommandFault
from flintmq.errors import FlintError

PART_BYTES = 1_048_576
LEASE_MS = 600_000
WAIT_MS = 10_000
PARTS = ".flintmq"
NAME_OCTETS_MAX = 255
PATH_OCTETS_MAX = 1024
# What is longer is no suffix to keep where a name is numbered.
SUFFIX_OCTETS_MAX = 32
# A transfer whose checksum is wrong is begun anew so often.
ATTEMPTS_MAX = 2

Told = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class IncomingFile:
    """A message that becomes a file."""

    number: int
    size: int
    key: str
    name: str
    sha256: str
    modified_ms: int


@dataclass(slots=True)
class AskedAck:
    """An ack that the broker has not answered yet."""

    file: IncomingFile
    target: str
    epoch: int
    claims: int = 0  # of the lease since, each of which makes an epoch


class WrongChecksum(Exception):
    """The octets are not those that were sent."""


class FileReceiver:
    """Takes the messages of one queue, one after the other, into one folder."""

    def __init__(
        self,
        broker: PatientConnection,
        queue: str,
        folder: Path,
        conversion: TextConversion | None,
        overwrite: bool,
    ) -> None:
        self.broker = broker
        self.queue = queue
        self.folder = folder
        self.parts = folder / PARTS
        self.conversion = conversion
        self.overwrite = overwrite
        where = f"{socket.gethostname()}\0{folder.resolve()}\0{queue}"
        self.reader = "file-receive-" + hashlib.sha256(where.encode("utf-8", "surrogateescape")).hexdigest()
        self.epoch = 0
        self.epoch_made = 0  # the connection under which the lease was claimed
        self.asked: AskedAck | None = None
        self.received_bytes = 0  # all that has come, with what came twice
        try:
            self.parts.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CommandFault(f"{error.filename}: cannot be made: {error.strerror}") from error

    def receive(self, wait_ms: int, told: Told) -> tuple[str, int] | None:
        """Receives the next file: its path below the folder and its size; None if nothing comes meanwhile."""
        for attempt in range(ATTEMPTS_MAX):
            try:
                return self.broker.patiently(lambda: self.transfer(wait_ms, told))
            except WrongChecksum as wrong:
                if attempt == ATTEMPTS_MAX - 1:
                    raise CommandFault(
                        f"{wrong}: the checksum is not that of the file that was sent, twice: the message "
                        f"stays in queue {self.queue!r}"
                    ) from None
            except FlintError:
                raise  # of the connection, which may be an OSError too
            except OSError as error:
                place = error.filename or self.folder
                raise CommandFault(
                    f"{place}: {error.strerror or error}: the message stays in queue {self.queue!r}, "
                    f"and what has come of it in {self.parts}"
                ) from error
        raise AssertionError("each attempt returns or raises")

    def transfer(self, wait_ms: int, told: Told) -> tuple[str, int] | None:
        if self.asked is not None and self.was_acked(self.asked):
            return self.acked(self.asked.file, self.asked.target)
        number = self.lease(wait_ms)
        if number is None:
            return None
        file = self.described(number)
        target = self.done_target(file)
        if target is None:
            with self.part(file).open("ab", buffering=0) as part:
                self.fetch(file, part, told)
                os.fsync(part.fileno())
            self.check(file)
            target = self.free_name(file)
            self.note_done(file, target)
        if self.part(file).exists():
            self.put_in_place(file, target)
        self.asked = AskedAck(file, target, self.epoch)
        self.ask("lease.ack", through=file.number)
        return self.acked(file, target)

    def acked(self, file: IncomingFile, target: str) -> tuple[str, int]:
        self.asked = None
        self.done(file).unlink(missing_ok=True)
        return target, file.size

    # The lease

    def lease(self, wait_ms: int) -> int | None:
        """The number of the message that is next, claimed by this receiver alone."""
        results = self.leased(1, wait_ms)
        return int(results["first"]) if results["last"] >= results["first"] else None

    def was_acked(self, asked: AskedAck) -> bool:
        """Whether the broker did what was asked before the connection broke; takes no message.

        A lease that has expired counts its messages as acked too, and has made an epoch of its own.
        """
        asked.claims += 1
        results = self.leased(0, 0)
        is_own = results["epoch"] - asked.epoch <= asked.claims
        return bool(is_own and results["acked"] >= asked.file.number)

    def leased(self, rows_max: int, wait_ms: int) -> Any:
        given = {"queue": self.queue, "consumer": self.reader, "max-rows": rows_max, "timeout-ms": LEASE_MS}
        if self.broker.open is None or self.epoch_made != self.broker.made:
            self.epoch = 0
        which = {"epoch": self.epoch} if self.epoch else {"claim": True}
        asked = {**given, **which, "wait-ms": min(wait_ms, WAIT_MS)}
        results: Any = self.broker.request("queue.lease", asked, wait_s=WAIT_MS / 1000).results
        self.epoch, self.epoch_made = results["epoch"], self.broker.made
        return results

    def ask(self, service: str, **arguments: Any) -> Any:
        given = {name.replace("_", "-"): value for name, value in arguments.items()}
        which = {"queue": self.queue, "consumer": self.reader, "epoch": self.epoch}
        return self.broker.request(service, {**which, **given})

    def described(self, number: int) -> IncomingFile:
        results = self.ask("lease.content", number=number, max_bytes=0).results
        properties: dict[str, Any] = results["properties"]
        headers: dict[str, Any] = properties.get("headers") or {}
        given = headers.get(SHA256)
        sha256 = given.lower() if isinstance(given, str) else ""
        identity = f"{results['creation-id']} {number}"
        if sha256 and properties.get("message-id"):
            identity = f"{properties['message-id']} {sha256}"
        key = hashlib.sha256(f"{identity} {results['size']}".encode("utf-8", "surrogateescape")).hexdigest()
        modified_ms = headers.get(MODIFIED_MS)
        return IncomingFile(
            number,
            results["size"],
            key,
            safe_name(headers.get(FILENAME)) or f"message-{key[:16]}",
            sha256,
            modified_ms if isinstance(modified_ms, int) and 0 <= modified_ms < 1 << 50 else 0,
        )

    # Octets

    def part(self, file: IncomingFile) -> Path:
        return self.parts / f"{file.key}.part"

    def done(self, file: IncomingFile) -> Path:
        return self.parts / f"{file.key}.done"

    def fetch(self, file: IncomingFile, part: FileIO, told: Told) -> None:
        """Adds to the part what is missing in it."""
        at = os.fstat(part.fileno()).st_size
        if at > file.size:
            part.truncate(0)
            at = 0
        while at < file.size:
            octets = self.ask("lease.content", number=file.number, offset=at, max_bytes=PART_BYTES).body
            if not octets:
                raise CommandFault(f"{file.name}: the broker has only {at} of {file.size} octets")
            self.received_bytes += len(octets)
            write_all(part, octets)
            at += len(octets)
            told(at, file.size)

    def check(self, file: IncomingFile) -> None:
        """Raises, and the part is gone, unless it is what was sent; where no checksum came, all is."""
        if not file.sha256:
            return
        digest = hashlib.sha256()
        for octets in read_all(self.part(file)):
            digest.update(octets)
        if digest.hexdigest() != file.sha256:
            self.part(file).unlink()
            raise WrongChecksum(file.name)

    # The file

    def done_target(self, file: IncomingFile) -> str | None:
        """The name that a receiver before this one has chosen, if it came so far."""
        try:
            found = json.loads(self.done(file).read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return None
        name = found.get("target") if isinstance(found, dict) else None
        return name if isinstance(name, str) and safe_name(name) == name else None

    def note_done(self, file: IncomingFile, target: str) -> None:
        noted = self.done(file)
        draft = noted.with_suffix(".draft")
        write_synced(draft, [json.dumps({"target": target}).encode()])
        os.replace(draft, noted)
        sync_folder(self.parts)

    def free_name(self, file: IncomingFile) -> str:
        """The name of the message, or one beside it if there is such a file."""
        name = PurePosixPath(file.name)
        parent = (self.folder / name).parent
        above = [self.folder / each for each in name.parents]
        is_blocked = any(os.path.lexists(each) and not each.is_dir() for each in above)
        if is_blocked or not parent.resolve().is_relative_to(self.folder.resolve()):
            name = PurePosixPath(name.name)  # a file is in the way, or a link leads out of the folder
        count = 2
        chosen = name
        while (self.folder / chosen).is_dir() or ((self.folder / chosen).exists() and not self.overwrite):
            chosen = name.with_name(numbered(name.name, count))
            count += 1
        return chosen.as_posix()

    def put_in_place(self, file: IncomingFile, target: str) -> None:
        path = self.folder / target
        path.parent.mkdir(parents=True, exist_ok=True)
        part = self.part(file)
        if self.conversion is not None:
            draft = part.with_suffix(".text")
            write_synced(draft, self.conversion.convert(read_all(part), target))
            os.replace(draft, path)
            self.stamp(file, path)
            self.sync_folders(target)
            part.unlink()
            return
        self.stamp(file, part)
        os.replace(part, path)
        self.sync_folders(target)

    def sync_folders(self, target: str) -> None:
        """Those above a file that has come, as they may be new."""
        for above in PurePosixPath(target).parents:
            sync_folder(self.folder / above)

    def stamp(self, file: IncomingFile, path: Path) -> None:
        """The time of change is that of the file that was sent."""
        if file.modified_ms:
            os.utime(path, ns=(file.modified_ms * 1_000_000, file.modified_ms * 1_000_000))


def safe_name(given: object) -> str:
    """The name below the folder, empty if what is given cannot be one."""
    if not isinstance(given, str) or not 0 < len(given.encode("utf-8", "replace")) <= PATH_OCTETS_MAX:
        return ""
    parts = given.replace("\\", "/").split("/")
    for part in parts:
        is_long = len(part.encode("utf-8", "replace")) > NAME_OCTETS_MAX
        if part in ("", ".", "..") or is_long or not part.isprintable():
            return ""
        if part[1:] == ":" or (os.name == "nt" and ":" in part):
            return ""  # a drive, or there a stream of another file
    return "" if parts[0] == PARTS else "/".join(parts)


def numbered(name: str, count: int) -> str:
    """The name with a number, not longer than a name may be."""
    suffix = PurePosixPath(name).suffix
    if len(suffix.encode()) > SUFFIX_OCTETS_MAX:
        suffix = ""
    end = f"~{count}{suffix}"
    stem = name.removesuffix(suffix).encode()[: NAME_OCTETS_MAX - len(end.encode())]
    return stem.decode("utf-8", "ignore") + end


def write_all(stream: FileIO, octets: bytes) -> None:
    """A disk that is nearly full takes some octets, and says that it is full when the others come."""
    rest = memoryview(octets)
    while rest:
        rest = rest[stream.write(rest) :]


def read_all(path: Path) -> Iterator[bytes]:
    with path.open("rb", buffering=0) as stream:
        while octets := stream.read(READ_BYTES):
            yield octets


def write_synced(path: Path, parts: Any) -> None:
    with path.open("wb", buffering=0) as stream:
        for part in parts:
            write_all(stream, part)
        os.fsync(stream.fileno())


def sync_folder(path: Path) -> None:
    if os.name != "posix":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
