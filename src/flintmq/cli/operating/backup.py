"""`flintmq backup TARGET` of a broker that runs, and `flintmq restore BACKUP DIR`.

The broker keeps its files as they are (broker/services/backup_services.py). This process, on the same
machine, copies them. Each side may die: the broker lets go of the files when the connection ends, and a copy
without its manifest is no backup.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any

from flintmq.cli.local.journal import DAMAGED, holder_of
from flintmq.cli.operating import running_broker
from flintmq.cli.operating.queues import told
from flintmq.cli.output import tables
from flintmq.cli.output.statuses import CommandFault
from flintmq.clock import Clock
from flintmq.errors import StorageFault
from flintmq.storage import backup as backups
from flintmq.storage.backup import BackupFile, Manifest
from flintmq.storage.disk import Disk
from flintmq.storage.inspection.journal_inspection import check
from flintmq.storage.inspection.stream_inspection import check_streams

if TYPE_CHECKING:
    from flintmq.client import Connection

Row = dict[str, Any]

# How often the broker is told that the copy goes on.
RENEWED_S = 10.0
# How often the room on the broker's own disk is looked at, in octets written.
LOOKED_OCTETS = 16 << 20


def add(command: str, parser: argparse.ArgumentParser) -> None:
    if command == "backup":
        running_broker.add_options(parser)
        parser.add_argument(
            "target",
            metavar="TARGET",
            help="a new directory, or a new archive if it ends in .tar, on the broker's machine",
        )
        parser.set_defaults(run=backup)
    else:
        parser.add_argument("backup", metavar="BACKUP", help="what `flintmq backup` has made")
        parser.add_argument("directory", metavar="DIR", help="a new data directory, for serve --data")
        parser.set_defaults(run=restore)
    tables.add_options(parser)


def backup(options: argparse.Namespace) -> int:
    target = os.path.abspath(options.target)
    require_parent(target)
    disk = Disk()
    with backups.writing(disk, target) as writer:
        with running_broker.connected(options) as connection:
            manifest = Copy(connection, disk, target).make(writer)
            connection.request("backup.end")
        # An archive is checked when it is a data directory again, and read once more by `finish`.
        damage = damage_in(disk, writer.data) if isinstance(writer, backups.DirectoryWriter) else []
        writer.finish(manifest)
    facts = {"backup": target, **facts_of(manifest), "damaged": bool(damage)}
    told(options, facts, f"{target}: {described(manifest)}")
    return tell_damage(damage)


class Copy:
    """The files of a running broker on their way into a backup."""

    def __init__(self, connection: Connection, disk: Disk, target: str) -> None:
        self.connection = connection
        self.disk = disk
        self.clock = Clock()
        self.begun: Row = dict(connection.request("backup.begin").results)
        self.directory = str(self.begun["directory"])
        self.require_directory()
        self.parent = os.path.dirname(target)
        self.is_same_disk = os.stat(self.parent).st_dev == os.stat(self.directory).st_dev
        self.least = int(self.begun["disk-bytes-free-min"]) if self.is_same_disk else 0
        self.done = 0
        self.looked_at = 0
        self.renewed_s = self.clock.monotonic_s()
        self.progress: tables.Progress | None = None

    def require_directory(self) -> None:
        """A fault unless the broker's directory is the one that this machine has under that name."""
        try:
            holder = holder_of(self.directory)
        except StorageFault:
            holder = ""
        if holder != str(self.begun["process"]):
            raise CommandFault(
                f"the broker keeps its data in {self.directory} of its own machine, which is not this one or "
                "not for this user: run flintmq backup there, as the user that the broker runs as"
            )

    def require_room(self) -> None:
        free = self.disk.free_octets(self.parent)
        needed = int(self.begun["octets"])
        if free < needed + self.least:
            besides = (
                f", and the broker needs {tables.size(self.least)} on the same disk" if self.least else ""
            )
            raise CommandFault(
                f"{self.parent} has {tables.size(free)} free, and the backup takes {tables.size(needed)}"
                f"{besides}"
            )

    def make(self, writer: backups.DirectoryWriter | backups.ArchiveWriter) -> Manifest:
        """Copies everything, and says what there is."""
        self.require_room()
        files: list[BackupFile] = []
        with tables.Progress("copying octets", int(self.begun["octets"])) as self.progress:
            for row in running_broker.rows_of(self.connection, "backup.files"):
                added = self.add(writer, row["name"], row["octets"])
                if added is not None:
                    files.append(added)
        slots: dict[str, list[bytes]] = {}
        for row in running_broker.rows_of(self.connection, "backup.notes"):
            slots.setdefault(row["name"], []).append(bytes(row["slot"]))
        for name, of_one in slots.items():
            files.append(writer.add(name, backups.source_of(b"".join(of_one), name)))
        return Manifest(str(self.begun["version"]), int(self.begun["now-ms"]), tuple(files))

    def add(
        self, writer: backups.DirectoryWriter | backups.ArchiveWriter, name: str, octets: int
    ) -> BackupFile | None:
        path = os.path.join(self.directory, *name.split("/"))
        backups.check_name(name, self.directory)
        try:
            with backups.opened(self.disk, path, octets, self.advance) as source:
                return writer.add(name, source)
        except FileNotFoundError:
            if not octets:
                return None  # the broker makes it anew
            # Why, the broker says: it has given the backup up.
            self.connection.request("backup.renew")
            raise

    def advance(self, count: int) -> None:
        """So much more was read."""
        self.done += count
        if self.progress is not None:
            self.progress.tell(self.done)
        if self.least and self.done - self.looked_at >= LOOKED_OCTETS:
            self.looked_at = self.done
            if self.disk.free_octets(self.parent) < self.least:
                raise CommandFault(
                    f"less than {tables.size(self.least)} are left on the broker's disk, and its publishers "
                    "would be blocked: the backup was stopped and removed"
                )
        if self.clock.monotonic_s() - self.renewed_s >= RENEWED_S:
            self.connection.request("backup.renew")
            self.renewed_s = self.clock.monotonic_s()


def require_parent(target: str) -> None:
    parent = os.path.dirname(target)
    if not os.path.isdir(parent):
        raise CommandFault(f"{parent}: there is no such directory to put {os.path.basename(target)} into")


def restore(options: argparse.Namespace) -> int:
    target = os.path.abspath(options.directory)
    require_parent(target)
    disk = Disk()
    progress = tables.Progress("restoring octets")
    done = 0

    def begin(manifest: Manifest | None) -> None:
        octets = manifest.octets if manifest is not None else os.path.getsize(options.backup)
        free = disk.free_octets(os.path.dirname(target))
        progress.total = octets
        if free < octets:
            raise CommandFault(
                f"{os.path.dirname(target)} has {tables.size(free)} free, and the backup takes "
                f"{tables.size(octets)}"
            )

    def advance(count: int) -> None:
        nonlocal done
        done += count
        progress.tell(done)

    with progress:
        manifest = backups.restore(disk, os.path.abspath(options.backup), target, begin, advance)
    damage = damage_in(disk, target)
    facts = {"directory": target, **facts_of(manifest), "damaged": bool(damage)}
    told(options, facts, f"{target}: {described(manifest)}; to start it: flintmq serve --data {target}")
    return tell_damage(damage)


def damage_in(disk: Disk, directory: str) -> list[str]:
    """What `flintmq journal check` finds wrong; nothing if all is sound."""
    result = check(directory, disk)
    streams = check_streams(directory, disk)
    if result.sound and not any(report.damaged for report in streams):
        return []
    return [*result.lines(), *[line for report in streams if report.damaged for line in report.lines()]]


def tell_damage(lines: list[str]) -> int:
    if not lines:
        return 0
    print("flintmq: the copy is whole, and damaged as the data directory was:", file=sys.stderr)
    for line in lines:
        print(f"  {tables.printable(line)}", file=sys.stderr)
    return DAMAGED


def facts_of(manifest: Manifest) -> Row:
    return {"files": len(manifest.files), "octets": manifest.octets, "taken_ms": manifest.taken_ms}


def described(manifest: Manifest) -> str:
    from datetime import UTC, datetime

    when = datetime.fromtimestamp(manifest.taken_ms / 1000, UTC)
    return (
        f"{len(manifest.files):,} files, {tables.size(manifest.octets)}, as of {when:%Y-%m-%d %H:%M:%S} UTC"
    )
