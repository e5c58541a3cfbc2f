"""What recovery has found damaged, until a broker has rescued what the damage has left.

Recovery mends the files, so that the next one finds nothing wrong with them. But a queue may have lost its
record, and only a broker that knows of damage keeps the messages of such a queue. So the losses are noted in
a file, a line for each, before anything is mended; it goes when all that was rescued is safe. A start that
comes between, after a kill or after `flintmq journal repair`, finds the note and does the same.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flintmq.storage.disk import Disk

NAME = "damage.noted"


def write(disk: Disk, directory: str, losses: list[str]) -> list[str]:
    """Adds these losses, safe when it returns; those that were noted before, but for the same."""
    noted = read(disk, directory)
    known, found = set(noted), set(losses)
    new = [line for line in losses if line not in known]
    if new:
        octets = "".join([f"{line}\n" for line in noted + new]).encode()
        handle = disk.open(os.path.join(directory, NAME), create=True)
        try:
            disk.write(handle, 0, octets)
            disk.sync(handle)
        finally:
            disk.let_go(handle)
        disk.sync_directory(directory)
    return [line for line in noted if line not in found]


def read(disk: Disk, directory: str) -> list[str]:
    """What is noted; the last line may be cut short, if nothing was mended after that.

    A note that cannot be read, as root has made it for instance, counts all the same.
    """
    if NAME not in disk.list(directory):
        return []
    try:
        handle = disk.open_to_read(os.path.join(directory, NAME))
        try:
            return disk.read(handle, 0, disk.size(handle)).decode(errors="replace").splitlines()
        finally:
            disk.let_go(handle)
    except OSError as error:
        return [f"{NAME} cannot be read: {error.strerror or error}"]


def remove(disk: Disk, directory: str) -> None:
    """All is rescued and safe, and was told."""
    if NAME in disk.list(directory):
        disk.delete(os.path.join(directory, NAME))
        disk.sync_directory(directory)
