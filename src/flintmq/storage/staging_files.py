"""Files of contents that come in parts, over as many connections as it takes.

    extend(part) ---> written and synced by a thread ---> told(error) ---> the owner notes size and checksum
                      |<- octets behind the noted size count for nothing ->|

Such a file is a spool of the journal (spool.py) from its first octet on, so that a content that is whole
becomes the payload of an entry without being copied. The journal names it by a value whose key begins with
STAGED and which begins with a reference to the spool: recovery keeps what is named.

A file at rest holds no descriptor. A part that the disk did not take leaves the file as it was noted: what
was written of the part is overwritten by the next one. A sync that failed concerns that part alone, as all
before it was synced, and the part is written again as a whole.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from flintmq.storage import crc32c
from flintmq.storage.journal.writer import Worker
from flintmq.storage.options import SyncPolicy

if TYPE_CHECKING:
    from flintmq.storage.journal.journal import Journal
    from flintmq.storage.spool import Spool

Told = Callable[[OSError | None], None]


class StagingFiles:
    """The staged spools of one journal, and the thread that writes them."""

    def __init__(self, journal: Journal, wake: Callable[[], None] | None) -> None:
        self.journal = journal
        self.wake = wake
        self.syncs = journal.options.sync is SyncPolicy.ALWAYS
        self.worker: Worker | None = None  # begun by the first part

    def create(self) -> Spool:
        """An empty one; its file comes with the first part."""
        return self.journal.spools.stage()

    def find(self, number: int) -> Spool | None:
        """One that recovery has found."""
        return self.journal.spools.staged.get(number)

    def extend(self, spool: Spool, part: bytes, told: Told) -> None:
        """Adds a part behind what is noted; `told` is called by `collect` when it is on disk, or is not.

        One part at a time: the next one when this one is told.
        """
        if self.worker is None:
            self.worker = Worker("staging-writer", self.wake, self.journal.options.threaded)
        self.worker.submit(partial(self._write, spool, part), partial(self._written, spool, part, told))
        if not self.journal.options.threaded:
            self.worker.collect()

    def _write(self, spool: Spool, part: bytes) -> None:
        """On the thread."""
        disk = spool.disk
        handle = disk.open(spool.path, create=True)
        try:
            disk.write(handle, spool.octets, part)
            if self.syncs:
                disk.sync(handle)
                if not spool.octets:
                    disk.sync_directory(os.path.dirname(spool.path))
        except OSError:
            # Others may need the room that half a part takes.
            with suppress(OSError):
                disk.truncate(handle, spool.octets)
            raise
        finally:
            is_closed = disk.let_go(handle)
        if not is_closed and not self.syncs:
            raise OSError(errno.EIO, "the close may have told of a write that failed", spool.path)

    def _written(self, spool: Spool, part: bytes, told: Told, error: OSError | None) -> None:
        if error is None:
            spool.crc = crc32c.extend(spool.crc, part)
            spool.octets += len(part)
        told(error)

    def hand_over(self, spool: Spool) -> None:
        """Nothing more will be added: an entry of the journal is about to name it."""
        spool.finish()
        if self.syncs:
            spool.secured = True
        elif spool.handle < 0:
            # The journal's writer syncs it before the entry, by this descriptor.
            spool.handle = spool.disk.open(spool.path)

    def let_go(self, spool: Spool) -> None:
        """The value that named it has been changed or deleted by the newest record."""
        self.journal.spools.let_go_staged(spool.number, self.journal.next_sequence - 1)

    def collect(self) -> None:
        """Takes notice of what the thread has done."""
        if self.worker is not None:
            self.worker.collect()

    def close(self) -> None:
        """Ends the thread; what it has written is noted."""
        if self.worker is not None:
            self.worker.close()
            self.worker.collect()
