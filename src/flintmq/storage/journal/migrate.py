"""From an older journal format to the present one, before anything is read.

A change of the format raises layout.FORMAT_VERSION by one and adds a step here, from the version
before it. A step rewrites the directory through the disk's seam and must be safe to repeat: it
writes new files beside the old ones, syncs them, and only then renames.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from flintmq.errors import StorageFault
from flintmq.storage import layout
from flintmq.storage.disk import Disk
from flintmq.storage.journal.segment import format_version, segment_number

# From the version that is the key to the next one.
STEPS: dict[int, Callable[[Disk, str], None]] = {}


def oldest_version(disk: Disk, directory: str) -> int:
    """The oldest format in the directory; the present one if there is nothing to read."""
    oldest = layout.FORMAT_VERSION
    for name in disk.list(directory):
        number = segment_number(name)
        if number is None:
            continue
        handle = disk.open_to_read(os.path.join(directory, name))
        try:
            version = format_version(disk.read(handle, 0, layout.SEGMENT_HEAD), number)
        finally:
            disk.let_go(handle)
        if version:
            oldest = min(oldest, version)
    return oldest


def migrate(disk: Disk, directory: str) -> int:
    """Bring the directory to the present format; returns the number of steps taken."""
    taken = 0
    while (version := oldest_version(disk, directory)) < layout.FORMAT_VERSION:
        step = STEPS.get(version)
        if step is None:
            raise StorageFault(
                f"{directory} has journal format {version}, too old for this FlintMQ: "
                "start a FlintMQ of the time once, it brings the journal forward; nothing was changed"
            )
        step(disk, directory)
        taken += 1
    return taken
