"""Sends files as messages, in parts that the broker stages, and goes on after a break where it came to.

    file ---> SHA-256, size ---> staging.open ---> staging.append, 1 MiB each ---> staging.publish ---> done
                                      ^                     |
                                      +--- the connection, the broker or this process ends

A content is named by what the file is and where it goes: its octets, its name, its time of change, the
exchange and the routing key. Whoever sends the same file to the same place goes on with the same content,
also in another process; what is published already is not sent again.
"""

from __future__ import annotations

import hashlib
import json
import mimetypes
import os
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import google_crc32c

from flintmq.cli.files.patient_connection import PatientConnection
from flintmq.cli.files.text_conversion import TextConversion
from flintmq.cli.output import statuses
from flintmq.cli.output.statuses import CommandFault

PART_BYTES = 1_048_576
# While memory is short, the broker takes no larger requests than this.
PART_BYTES_MIN = 32_768
READ_BYTES = 262_144
# A file that changes while it is sent is begun anew so often.
CHANGES_MAX = 3
CONTENT_TOO_LARGE = 311

FILENAME = "x-filename"
SHA256 = "x-sha256"
MODIFIED_MS = "x-modified-ms"

Told = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class OutgoingFile:
    """A file, and the name under which it is sent."""

    path: Path
    name: str


@dataclass(frozen=True, slots=True)
class Summary:
    """What a file is, as it is sent."""

    size: int
    sha256: str
    crc32c: int
    modified_ns: int


def files_of(paths: Iterable[str], unreadable: Callable[[OSError], None]) -> list[OutgoingFile]:
    """The files that are named, and all below the folders that are, under names relative to these.

    Links to files are files, links to folders are not followed. Folders that cannot be read are told.
    """
    found = []
    for given in paths:
        path = Path(given)
        if path.is_dir():
            inside = sorted(files_below(path, unreadable))
            found += [OutgoingFile(each, each.relative_to(path).as_posix()) for each in inside]
        elif path.is_file():
            found.append(OutgoingFile(path, path.name))
        else:
            raise CommandFault(f"{path}: there is no such file or folder", statuses.NOT_FOUND)
    return found


def files_below(folder: Path, unreadable: Callable[[OSError], None]) -> Iterator[Path]:
    """All files that are not hidden."""
    for above, folders, names in os.walk(folder, onerror=unreadable):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            path = Path(above, name)
            if name.startswith("."):
                continue
            try:
                is_file = path.is_file()
            except OSError as error:  # of a folder that may be listed and not entered
                unreadable(error)
                continue
            if is_file:
                yield path


def is_hidden(path: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(folder).parts)


class FileSender:
    """Sends files to one exchange and routing key."""

    def __init__(
        self, broker: PatientConnection, exchange: str, routing_key: str, conversion: TextConversion | None
    ) -> None:
        self.broker = broker
        self.exchange = exchange
        self.routing_key = routing_key
        self.conversion = conversion
        self.part_bytes = PART_BYTES
        self.sent_bytes = 0  # all that has left, with what was sent twice
        self.asked = ""  # the content that was to be published last: its answer may have been lost

    def send(self, file: OutgoingFile, again: bool, told: Told) -> int | None:
        """Sends one file; its size as it was sent, None if it was sent before."""
        for _ in range(CHANGES_MAX):
            summary = self.summary(file)
            identifier = self.identifier(file, summary)
            if again:
                self.broker.patiently(lambda: self.forget_published(identifier))  # noqa: B023
            is_new = self.broker.patiently(lambda: self.transfer(file, summary, identifier, told))  # noqa: B023
            if is_new is not None:
                return summary.size if is_new else None
        raise CommandFault(f"{file.path}: it changes while it is sent; try again when it is at rest")

    def summary(self, file: OutgoingFile) -> Summary:
        digest, crc, size = hashlib.sha256(), 0, 0
        modified_ns = file.path.stat().st_mtime_ns
        for part in self.parts(file):
            digest.update(part)
            crc = google_crc32c.extend(crc, part)
            size += len(part)
        return Summary(size, digest.hexdigest(), crc, modified_ns)

    def parts(self, file: OutgoingFile) -> Iterator[bytes]:
        """The octets of the file as they are sent."""
        octets = read_parts(file.path, 0)
        return octets if self.conversion is None else self.conversion.convert(octets, str(file.path))

    def rest(self, file: OutgoingFile, offset: int) -> Iterator[bytes]:
        """The same from an offset on."""
        if self.conversion is None:
            yield from read_parts(file.path, offset)
            return
        for part in self.parts(file):
            if offset < len(part):
                yield part[offset:]
            offset = max(0, offset - len(part))

    def identifier(self, file: OutgoingFile, summary: Summary) -> str:
        """The same for the same file to the same place."""
        what = [summary.sha256, summary.size, summary.modified_ns, file.name, self.exchange, self.routing_key]
        return "file-" + hashlib.sha256(json.dumps(what).encode()).hexdigest()

    def forget_published(self, identifier: str) -> None:
        if self.broker.request("staging.open", {"identifier": identifier}).results["published"]:
            self.broker.request("staging.delete", {"identifier": identifier})

    def transfer(self, file: OutgoingFile, summary: Summary, identifier: str, told: Told) -> bool | None:
        """Sends what is missing, publishes: True; False if that was done before, None if the file changed."""
        found = self.broker.request("staging.open", {"identifier": identifier, "size": summary.size}).results
        if found["published"]:
            is_own, self.asked = identifier == self.asked, ""
            return is_own
        offset: Any = found["staged"]
        for part in whole_parts(self.rest(file, offset), lambda: self.part_bytes):
            if offset + len(part) > summary.size:
                self.give_up(identifier)
                return None
            self.append(identifier, offset, part)
            offset += len(part)
            told(offset)
        crc: Any = self.broker.request("staging.open", {"identifier": identifier}).results["crc32c"]
        if offset != summary.size or crc != summary.crc32c:
            self.give_up(identifier)
            return None
        arguments: dict[str, Any] = {
            "identifier": identifier,
            "exchange": self.exchange,
            "routing-key": self.routing_key,
            "properties": properties_of(file, summary),
            "crc32c": summary.crc32c,
        }
        self.asked = identifier
        self.broker.request("staging.publish", arguments)
        self.asked = ""
        return True

    def append(self, identifier: str, offset: int, part: bytes) -> None:
        """One part; in smaller ones where the broker takes no larger requests now."""
        from flintmq.client.core.errors import ServiceError

        try:
            self.sent_bytes += len(part)
            self.broker.request("staging.append", {"identifier": identifier, "offset": offset}, part)
        except ServiceError as error:
            if error.code != CONTENT_TOO_LARGE or len(part) <= PART_BYTES_MIN:
                raise
            self.part_bytes = PART_BYTES_MIN
            for at in range(0, len(part), PART_BYTES_MIN):
                self.append(identifier, offset + at, part[at : at + PART_BYTES_MIN])

    def give_up(self, identifier: str) -> None:
        """What is staged is not what the file was when its checksum was made."""
        self.broker.request("staging.delete", {"identifier": identifier})


def properties_of(file: OutgoingFile, summary: Summary) -> dict[str, Any]:
    headers = {
        FILENAME: file.name,
        SHA256: summary.sha256,
        MODIFIED_MS: summary.modified_ns // 1_000_000,
    }
    kind, encoding = mimetypes.guess_type(file.name)
    return {
        "content-type": kind or "application/octet-stream",
        **({"content-encoding": encoding} if encoding else {}),
        "message-id": str(uuid.uuid4()),
        "headers": headers,
    }


def read_parts(path: Path, offset: int) -> Iterator[bytes]:
    with path.open("rb", buffering=0) as stream:
        stream.seek(offset)
        while part := stream.read(READ_BYTES):
            yield part


def whole_parts(parts: Iterable[bytes], part_bytes: Callable[[], int]) -> Iterator[bytes]:
    """The same octets in parts of one size, but the last."""
    gathered = bytearray()
    for part in parts:
        gathered += part
        while len(gathered) >= (most := part_bytes()):
            yield bytes(gathered[:most])
            del gathered[:most]
    if gathered:
        yield bytes(gathered)


def set_aside(file: OutgoingFile, folder: Path) -> None:
    """Moves a file that was sent to a folder, under the name that it was sent by."""
    target = folder / file.name
    target.parent.mkdir(parents=True, exist_ok=True)
    os.replace(file.path, target)
