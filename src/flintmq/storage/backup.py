"""A backup: the files of a data directory as they were at one moment, and a manifest that vouches for them.

    NAME/data/0000000000000001.segment      as in a data directory
    NAME/data/streams/...
    NAME/backup.json                        the manifest, written last: each file, its size and its CRC-32C

NAME.tar has the same as members of an archive, in the same order. Either is written as NAME.part and gets
its name when all of it is synced. So what has the name is whole, and what a killed process leaves has no
manifest.
"""

from __future__ import annotations

import io
import json
import os
import re
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from flintmq.errors import StorageFault
from flintmq.storage import crc32c
from flintmq.storage.disk import Disk

FORMAT = 1
MANIFEST = "backup.json"
DATA = "data"
ARCHIVE_SUFFIX = ".tar"
PART_SUFFIX = ".part"
COPIED_OCTETS = 1 << 20
# Of a manifest: 100 octets for each file, so some millions of files.
MANIFEST_OCTETS_MAX = 1 << 29
# The year 10000, which no date can tell.
TAKEN_MS_MAX = 253_402_300_800_000

# The files of a data directory. A backup may come from anywhere: no other name is written.
_NAME = re.compile(
    r"\d{16}\.segment|\d{20}\.spool|hand-outs|(segments|streams)\.promised|streams/\d{16}/\d{20}\.(segment|index)",
    re.ASCII,
)

Advance = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class BackupFile:
    """A file of a backup."""

    name: str
    octets: int
    crc32c: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a backup holds, and of when it is."""

    version: str
    taken_ms: int
    files: tuple[BackupFile, ...]

    @property
    def octets(self) -> int:
        return sum([each.octets for each in self.files])

    def encode(self) -> bytes:
        files = [{"name": each.name, "octets": each.octets, "crc32c": each.crc32c} for each in self.files]
        found = {"format": FORMAT, "version": self.version, "taken_ms": self.taken_ms, "files": files}
        return json.dumps(found, indent=1).encode()


def decoded(octets: bytes, where: str) -> Manifest:
    """The manifest in these octets; a fault if it is none."""
    try:
        found: Any = json.loads(octets)
        if found["format"] != FORMAT:
            raise StorageFault(
                f"{where}: a backup of format {found['format']}, this FlintMQ knows format {FORMAT}: "
                "restore it with the FlintMQ that made it"
            )
        files = [
            BackupFile(str(each["name"]), int(each["octets"]), int(each["crc32c"])) for each in found["files"]
        ]
        manifest = Manifest(str(found["version"]), int(found["taken_ms"]), tuple(files))
        if not 0 <= manifest.taken_ms < TAKEN_MS_MAX:
            raise ValueError(f"taken_ms is {manifest.taken_ms}")
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise StorageFault(
            f"{where}: {MANIFEST} cannot be read ({error!r}): no backup, or a damaged one"
        ) from None
    for each in manifest.files:
        check_name(each.name, where)
    return manifest


def check_name(name: str, where: str) -> None:
    if not _NAME.fullmatch(name):
        raise StorageFault(
            f"{where} holds {name!r}, which is no file of a data directory: nothing was restored"
        )


class Source:
    """Reads the octets of one file, and counts and sums them up as they pass."""

    def __init__(self, read: Callable[[int, int], bytes], octets: int, path: str, advance: Advance) -> None:
        self._read = read
        self._advance = advance
        self.octets = octets
        self.path = path
        self.at = 0
        self.crc32c = 0

    def read(self, count: int) -> bytes:
        """Up to so many octets, none at the end; a fault if the file ends sooner."""
        count = min(count, self.octets - self.at, COPIED_OCTETS)
        if count <= 0:
            return b""
        chunk = self._read(self.at, count)
        if len(chunk) != count:
            raise StorageFault(
                f"{self.path} is cut short: {self.octets} octets expected, {self.at + len(chunk)} found"
            )
        self.crc32c = crc32c.extend(self.crc32c, chunk)
        self.at += count
        self._advance(count)
        return chunk


@contextmanager
def opened(disk: Disk, path: str, octets: int, advance: Advance) -> Iterator[Source]:
    """The first octets of a file, all of it for 0."""
    handle = disk.open_to_read(path)
    try:
        yield Source(
            lambda at, count: disk.read(handle, at, count), octets or disk.size(handle), path, advance
        )
    finally:
        disk.let_go(handle)


def refuse_existing(disk: Disk, path: str, part: str) -> None:
    if disk.exists(path):
        raise StorageFault(f"{path} is there already: nothing is written over; give another name")
    if disk.exists(part):
        raise StorageFault(
            f"{part} is there: another copy is being made, or one did not end; remove it if none is"
        )


# Files below a directory


class Tree:
    """A directory that files are copied into, each synced."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self.disk = disk
        self.directory = directory
        self.made: dict[str, None] = {}
        self.make(directory)

    def make(self, directory: str) -> None:
        if directory not in self.made:
            self.disk.make_directory(directory)
            self.made[directory] = None

    def add(self, name: str, source: Source) -> None:
        folder = self.directory
        for each in name.split("/")[:-1]:
            folder = os.path.join(folder, each)
            self.make(folder)
        path = os.path.join(self.directory, *name.split("/"))
        handle = self.disk.open(path, create=True)
        try:
            while chunk := source.read(COPIED_OCTETS):
                self.disk.write(handle, source.at - len(chunk), chunk)
            self.disk.sync(handle)
        finally:
            self.disk.let_go(handle)

    def sync(self) -> None:
        """The names are safe when this returns."""
        for directory in self.made:
            self.disk.sync_directory(directory)


def remove_tree(disk: Disk, directory: str) -> None:
    """Best effort: what cannot be removed is without a manifest, and so no backup."""
    for name in disk.list_directories(directory):
        remove_tree(disk, os.path.join(directory, name))
    for name in disk.list(directory):
        disk.delete(os.path.join(directory, name))
    disk.remove_directory(directory)


# Writing


class DirectoryWriter:
    """A backup that is a directory."""

    def __init__(self, disk: Disk, path: str) -> None:
        self.disk = disk
        self.path = path
        self.part = path + PART_SUFFIX
        refuse_existing(disk, path, self.part)
        self.tree = Tree(disk, self.part)
        self.data = os.path.join(self.part, DATA)
        self.tree.make(self.data)

    def add(self, name: str, source: Source) -> BackupFile:
        self.tree.add(f"{DATA}/{name}", source)
        return BackupFile(name, source.at, source.crc32c)

    def finish(self, manifest: Manifest) -> None:
        octets = manifest.encode()
        self.tree.add(MANIFEST, source_of(octets))
        self.tree.sync()
        self.disk.rename(self.part, self.path)
        self.disk.sync_directory(os.path.dirname(self.path))

    def abandon(self) -> None:
        remove_tree(self.disk, self.part)


class ArchiveWriter:
    """A backup that is a tar archive."""

    def __init__(self, disk: Disk, path: str) -> None:
        self.disk = disk
        self.path = path
        self.part = path + PART_SUFFIX
        refuse_existing(disk, path, self.part)
        self.handle = disk.open(self.part, create=True)
        self.at = 0
        self.archive = tarfile.open(  # noqa: SIM115 - closed by `finish`
            fileobj=self, mode="w|", format=tarfile.GNU_FORMAT
        )  # type: ignore[call-overload]

    def write(self, octets: bytes) -> int:
        """For the archive. It writes once more when it is collected: then the handle may be another file."""
        if self.handle >= 0:
            self.disk.write(self.handle, self.at, octets)
        self.at += len(octets)
        return len(octets)

    def add(self, name: str, source: Source) -> BackupFile:
        self.put(f"{DATA}/{name}", source)
        return BackupFile(name, source.at, source.crc32c)

    def put(self, name: str, source: Source) -> None:
        member = tarfile.TarInfo(name)
        member.size = source.octets
        member.mode = 0o600
        self.archive.addfile(member, source)

    def finish(self, manifest: Manifest) -> None:
        octets = manifest.encode()
        self.put(MANIFEST, source_of(octets))
        self.archive.close()
        self.disk.sync(self.handle)
        verify_archive(self.disk, self.part, manifest)
        self.disk.rename(self.part, self.path)
        self.disk.sync_directory(os.path.dirname(self.path))
        self.close()

    def abandon(self) -> None:
        self.close()
        self.disk.delete(self.part)

    def close(self) -> None:
        if self.handle >= 0:
            handle, self.handle = self.handle, -1
            self.disk.let_go(handle)


def source_of(octets: bytes, name: str = MANIFEST) -> Source:
    return Source(lambda at, count: octets[at : at + count], len(octets), name, lambda count: None)


def writer_of(disk: Disk, path: str) -> DirectoryWriter | ArchiveWriter:
    """An archive if the name says so, else a directory."""
    if path.endswith(ARCHIVE_SUFFIX):
        return ArchiveWriter(disk, path)
    return DirectoryWriter(disk, path)


@contextmanager
def writing(disk: Disk, path: str) -> Iterator[DirectoryWriter | ArchiveWriter]:
    """With it: a new backup, of which nothing stays unless it was finished."""
    writer = writer_of(disk, path)
    try:
        yield writer
    except BaseException:
        writer.abandon()
        raise


# Reading


Files = Iterator[tuple[str, Source]]


def files_of_directory(disk: Disk, path: str, advance: Advance) -> tuple[Manifest, Files]:
    """The manifest and the files of a backup that is a directory."""
    if MANIFEST not in disk.list(path):
        raise StorageFault(
            f"{path} is no finished backup: there is no {MANIFEST} in it, which is written last; "
            "nothing was restored"
        )
    with opened(disk, os.path.join(path, MANIFEST), 0, lambda count: None) as source:
        manifest = decoded(read_whole(source), path)

    def files() -> Files:
        for each in manifest.files:
            place = os.path.join(path, DATA, *each.name.split("/"))
            try:
                with opened(disk, place, each.octets, advance) as source:
                    yield each.name, source
            except FileNotFoundError:
                raise StorageFault(f"{place} is missing from the backup: nothing was restored") from None

    return manifest, files()


def read_whole(source: Source) -> bytes:
    if source.octets > MANIFEST_OCTETS_MAX:
        raise StorageFault(f"{source.path} has {source.octets} octets, too much for a manifest")
    parts = []
    while chunk := source.read(COPIED_OCTETS):
        parts.append(chunk)
    return b"".join(parts)


class Archive:
    """A backup that is a tar archive, read from its start to its end: the manifest is the last member."""

    def __init__(self, disk: Disk, path: str, advance: Advance) -> None:
        self.disk = disk
        self.path = path
        self.advance = advance
        self.manifest: Manifest | None = None

    def files(self) -> Files:
        """All files; `manifest` is there when they have ended, or there is a fault."""
        handle = self.disk.open_to_read(self.path)
        try:
            with tarfile.open(fileobj=Reader(self.disk, handle), mode="r|") as archive:
                for member in archive:
                    source = self.source_of(archive, member)
                    if member.name == MANIFEST:
                        self.manifest = decoded(read_whole(source), self.path)
                    else:
                        folder, _, name = member.name.partition("/")
                        check_name(name if folder == DATA else member.name, self.path)
                        yield name, source
        except tarfile.TarError as error:
            raise self.unfinished(str(error)) from None
        finally:
            self.disk.let_go(handle)
        if self.manifest is None:
            raise self.unfinished(f"there is no {MANIFEST} in it, which is written last")

    def source_of(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> Source:
        content = archive.extractfile(member) if member.type == tarfile.REGTYPE else None
        if content is None or self.manifest is not None:
            raise StorageFault(f"{self.path}: {member.name!r} is no part of a backup; nothing was restored")

        def read(at: int, count: int) -> bytes:
            try:
                return content.read(count)
            except tarfile.TarError as error:
                raise self.unfinished(str(error)) from None

        return Source(read, member.size, member.name, self.advance)

    def unfinished(self, why: str) -> StorageFault:
        return StorageFault(f"{self.path} is no finished backup: {why}; nothing was restored")


class Reader(io.RawIOBase):
    """An open file, for what reads from its start to its end."""

    def __init__(self, disk: Disk, handle: int) -> None:
        self.disk = disk
        self.handle = handle
        self.place = 0

    def read(self, count: int = -1) -> bytes:
        chunk = self.disk.read(self.handle, self.place, count)
        self.place += len(chunk)
        return chunk


def verify_archive(disk: Disk, path: str, manifest: Manifest) -> None:
    """Reads an archive again, and compares."""
    found: dict[str, BackupFile] = {}
    for name, source in Archive(disk, path, lambda count: None).files():
        while source.read(COPIED_OCTETS):
            pass
        found[name] = BackupFile(name, source.at, source.crc32c)
    compare(found, manifest, path)


def compare(found: dict[str, BackupFile], manifest: Manifest, where: str) -> None:
    """A fault unless the files are those of the manifest."""
    for each in manifest.files:
        if found.pop(each.name, None) != each:
            raise StorageFault(
                f"{where}: {each.name} is damaged or missing: it is not what the manifest says"
            )
    if found:
        raise StorageFault(f"{where} holds {next(iter(found))}, which the manifest does not know")


def restore(
    disk: Disk, path: str, target: str, begin: Callable[[Manifest | None], None], advance: Advance
) -> Manifest:
    """Makes a data directory of a backup; there is none unless everything is as the manifest says."""
    part = target + PART_SUFFIX
    if disk.exists(target) and (not disk.is_directory(target) or disk.list(target)):
        raise StorageFault(
            f"{target} is there already, and not empty: nothing is written over; give another name"
        )
    if disk.exists(part):
        raise StorageFault(
            f"{part} is there: another restore is under way, or one did not end; remove it if none is"
        )
    if not disk.exists(path):
        raise StorageFault(f"{path}: there is no such backup")
    archive: Archive | None = None
    manifest: Manifest | None = None
    if disk.is_directory(path):
        manifest, files = files_of_directory(disk, path, advance)
    else:
        archive = Archive(disk, path, advance)
        files = archive.files()
    begin(manifest)
    disk.make_directory(part)
    try:
        tree = Tree(disk, part)
        found: dict[str, BackupFile] = {}
        for name, source in files:
            tree.add(name, source)
            found[name] = BackupFile(name, source.at, source.crc32c)
        manifest = archive.manifest if archive is not None else manifest
        assert manifest is not None
        compare(found, manifest, path)
        tree.sync()
        disk.rename(part, target)
        disk.sync_directory(os.path.dirname(target))
    except BaseException:
        remove_tree(disk, part)
        raise
    return manifest
