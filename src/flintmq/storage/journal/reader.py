"""Reading entries back: one, or a backlog with readahead.

A backlog is read in windows: entries that are wanted and lie close together in a segment come with one read
of up to WINDOW_OCTETS. Every record is checked again, so that a rotten sector is a fault and not a message.
"""

from __future__ import annotations

import logging
import os
from collections import OrderedDict

from flintmq.errors import StorageFault, UnreadableFault
from flintmq.reply_codes import RESOURCE_ERROR
from flintmq.storage import layout
from flintmq.storage.disk import Disk
from flintmq.storage.journal import record
from flintmq.storage.journal.segment import segment_name

# Large enough that a read costs its octets and not its call; four queues paging cost 4 MiB.
WINDOW_OCTETS = 1 << 20
# Between two entries that are wanted so much is read in vain: it costs as much as another read.
GAP_OCTETS = 1 << 14
# Under the usual limit of 1,024 descriptors, with the sockets having most of them.
HANDLES_MAX = 64
# A segment that the disk does not give is asked for again after so long: a disk that fails takes its time.
READ_AGAIN_S = 2.0

log = logging.getLogger("flintmq.journal")


class SegmentReader:
    """Octets of segment files, through a few open handles and one window."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._handles: OrderedDict[int, int] = OrderedDict()
        # Handles of segments whose files have no name any more: nobody could open these again.
        self.removed: dict[int, int] = {}
        self.window = b""
        self._window_segment = 0
        self._window_at = 0
        # Segments that the disk did not give: where, and why. Nobody but `try_again` asks the disk for them.
        self.unreadable: dict[int, tuple[int, str]] = {}
        self._again_s = 0.0

    def handle(self, segment: int) -> int:
        found = self._handles.get(segment)
        if found is not None:
            self._handles.move_to_end(segment)
            return found
        if segment in self.removed:
            return self.removed[segment]
        handle = self._disk.open_to_read(self._path(segment))
        self._handles[segment] = handle
        if len(self._handles) > HANDLES_MAX:
            self._let_go(*self._handles.popitem(last=False))
        return handle

    def _path(self, segment: int) -> str:
        return os.path.join(self._directory, segment_name(segment))

    def _let_go(self, segment: int, handle: int) -> None:
        """Closes a handle, unless it is all that leads to the file: then it stays open until `forget`."""
        if self.is_there(segment, handle):
            self._disk.let_go(handle)
        else:
            self.removed[segment] = handle

    def is_there(self, segment: int, handle: int) -> bool:
        """Whether the file could be opened again; if the disk does not tell, it could not be."""
        try:
            return self._disk.is_there(self._path(segment), handle)
        except OSError:
            return False

    def view(self, segment: int, at: int, size: int) -> tuple[bytes, int]:
        """Octets that contain the wanted ones, and where those begin: read ahead for what follows."""
        start = self.place_in_window(segment, at, size)
        if start < 0:
            self.read_window(segment, at, max(size, WINDOW_OCTETS))
            start = 0
        return self.window, start

    def place_in_window(self, segment: int, at: int, size: int) -> int:
        """Where the wanted octets begin in the window; -1 if it does not have them."""
        start = at - self._window_at
        if segment != self._window_segment or start < 0 or start + size > len(self.window):
            return -1
        return start

    def read_window(self, segment: int, at: int, size: int) -> None:
        """From now on the window has these octets, as far as the segment goes."""
        self.window = self._disk.read(self.handle(segment), at, size)
        self._window_segment = segment
        self._window_at = at

    def read_entries_at(self, segment: int, at: int, size: int) -> None:
        """As read_window. What the disk does not give now is a fault, told once; nothing of it is lost."""
        if segment not in self.unreadable:
            try:
                self.read_window(segment, at, size)
                return
            except OSError as failure:
                self.close_one(segment)
                self._cannot_read(segment, at, failure.strerror or str(failure))
        text = f"messages cannot be read now, and wait until they can be: {self.unreadable[segment][1]}"
        raise UnreadableFault(RESOURCE_ERROR, text)

    def _cannot_read(self, segment: int, at: int, why: str) -> None:
        self.unreadable[segment] = (at, f"{self._path(segment)}: {why}")
        log.error("%s: its messages wait until it can be read", self.unreadable[segment][1])

    def adopt(self, segment: int, handle: int) -> None:
        """Reads the segment by this handle from now on: its file has no name any more."""
        self.forget(segment)
        self.removed[segment] = handle

    def miss(self, segment: int) -> None:
        """The file has no name any more: what is open stays open, and else its messages wait for it."""
        handle = self._handles.pop(segment, None)
        if handle is not None:
            self._let_go(segment, handle)
        elif segment not in self.removed and segment not in self.unreadable:
            self._cannot_read(segment, layout.SEGMENT_HEAD, "it was removed")

    def found_again(self, segment: int) -> None:
        """The file has its name again."""
        self._handles[segment] = self.removed.pop(segment)

    def try_again(self, now_s: float) -> None:
        """Looks now and then whether the disk gives what it did not give before."""
        if now_s < self._again_s:
            return
        self._again_s = now_s + READ_AGAIN_S
        for segment, (at, _) in list(self.unreadable.items()):
            try:
                self._disk.read(self.handle(segment), at, layout.RECORD_HEAD)
            except OSError:
                self.close_one(segment)
                continue
            del self.unreadable[segment]
            log.warning("%s can be read again", self._path(segment))

    def release_window(self) -> None:
        self.window = b""
        self._window_segment = 0

    def forget(self, segment: int) -> None:
        """The file is about to go."""
        for handles in (self._handles, self.removed):
            handle = handles.pop(segment, None)
            if handle is not None:
                self._disk.let_go(handle)
        self.unreadable.pop(segment, None)
        self._leave_window(segment)

    def close_one(self, segment: int) -> None:
        """Its handle goes; the next read opens the file anew, if there is one to open."""
        handle = self._handles.pop(segment, None)
        if handle is not None:
            self._let_go(segment, handle)
        self._leave_window(segment)

    def _leave_window(self, segment: int) -> None:
        if self._window_segment == segment:
            self.release_window()

    def close(self) -> None:
        for handles in (self._handles, self.removed):
            while handles:
                self._disk.let_go(handles.popitem()[1])


def checked_entry(octets: bytes, at: int, size: int, segment: int, seed: int, sequence: int) -> int:
    """Is this the record of that entry? Returns where its header's length lies; a fault if it is not."""
    if len(octets) - at >= size and record.checked_length(octets, at, at + size, seed):
        kind = layout.get_u8(octets, at + 16)
        number_at = at + layout.RECORD_HEAD if kind == layout.MOVED else at + 8
        if kind in (layout.ENTRY, layout.MOVED) and layout.get_u64(octets, number_at) == sequence:
            return record.entry_header_at(octets, at)
    raise StorageFault(f"entry {sequence} in segment {segment} no longer reads as it was written")


def entry_parts(octets: bytes, at: int, header_at: int) -> tuple[bytes, bytes]:
    """Header and payload."""
    start = header_at + 4
    middle = start + layout.get_u32(octets, header_at)
    return octets[start:middle], octets[middle : at + layout.get_u32(octets, at + 4)]
