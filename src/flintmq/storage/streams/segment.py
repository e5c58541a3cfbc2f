"""One file of a stream's log, and its sparse index.

00000000000000004711.segment    chunks one behind the other; the name is the offset it begins with
00000000000000004711.index      where some of them lie: written when the segment is full, made anew when lost
00000000000000004711.segment.copy    a segment whose file was removed, until all of it is written again

index   0      4         8       16    24       32           40          48      52
        +------+---------+-------+-----+--------+------------+-----------+-------+-----+-------------
        | FLSI | version | first | end | octets | first time | last time | count | crc | entries ...
        +------+---------+-------+-----+--------+------------+-----------+-------+-----+-------------
entry   first offset u64 | first time ms u64 | position u64                 of a chunk every 64 KiB
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right

from flintmq.storage import layout
from flintmq.storage.streams.chunk import ChunkHead

SEGMENT_SUFFIX = ".segment"
INDEX_SUFFIX = ".index"
COPY_SUFFIX = ".copy"
INDEX_MAGIC = b"FLSI"
INDEX_VERSION = 1
# A search reads so much of the log at most: 1,024 entries of 24 octets for a segment of 64 MiB.
INDEX_EVERY_OCTETS = 65_536

_HEAD = struct.Struct("<4sIQQQQQII")
_ENTRY = struct.Struct("<QQQ")


class StreamIndex:
    """Where some chunks of a segment lie, by offset and by time."""

    __slots__ = ("offsets", "positions", "times_ms")

    def __init__(self) -> None:
        self.offsets = array("Q")
        self.times_ms = array("Q")
        self.positions = array("Q")

    def note(self, head: ChunkHead, position: int) -> None:
        """A chunk was added; it gets an entry if the last one is far enough behind."""
        if not self.positions or position - self.positions[-1] >= INDEX_EVERY_OCTETS:
            self.offsets.append(head.first_offset)
            self.times_ms.append(head.first_time_ms)
            self.positions.append(position)

    def cut(self, position: int) -> None:
        """What lies from there on is gone."""
        kept = bisect_left(self.positions, position)
        del self.offsets[kept:], self.times_ms[kept:], self.positions[kept:]

    def position_of(self, offset: int) -> int:
        """Where to begin looking for an offset."""
        found = bisect_right(self.offsets, offset)
        return self.positions[found - 1] if found else 0

    def position_of_time(self, time_ms: int) -> int:
        """Where to begin looking for the first message of this time or later."""
        found = bisect_left(self.times_ms, time_ms)
        return self.positions[found - 1] if found else 0


class StreamSegment:
    """A segment as the running log knows it: `end_offset` and `octets` tell what in it is safe."""

    __slots__ = (
        "dropped",
        "end_offset",
        "first_offset",
        "first_time_ms",
        "handle",
        "index",
        "is_created",
        "is_indexed",
        "last_time_ms",
        "octets",
        "planned_octets",
        "planned_since_ms",
        "sealed",
    )

    def __init__(self, first_offset: int) -> None:
        self.first_offset = first_offset
        self.end_offset = first_offset
        self.octets = 0
        self.first_time_ms = 0
        self.last_time_ms = 0
        # With what is on its way to the disk.
        self.planned_octets = 0
        self.planned_since_ms = 0
        self.handle = -1  # for writing; the writer's
        self.is_created = False  # has its file, which is opened again where there is no handle
        self.index: StreamIndex | None = StreamIndex()  # None: to be read from its file
        self.is_indexed = False  # the index has its file
        self.sealed = False  # nothing more is added
        self.dropped = False  # its file goes

    @property
    def name(self) -> str:
        return segment_name(self.first_offset)

    def note(self, head: ChunkHead, position: int) -> None:
        """A chunk in it is safe."""
        if self.index is not None:
            self.index.note(head, position)
        if not self.octets:
            self.first_time_ms = head.first_time_ms
        self.last_time_ms = head.last_time_ms
        self.octets = position + head.size
        self.end_offset = head.end_offset

    def cut(self, head: ChunkHead, position: int) -> None:
        """This chunk and those behind it were promised, but a failed sync may have taken them."""
        self.octets = position
        self.end_offset = head.first_offset
        self.last_time_ms = head.first_time_ms
        self.is_indexed = False
        if self.index is not None:
            self.index.cut(position)

    def settle_plan(self) -> None:
        """What is not safe by now will be written elsewhere, or is not there."""
        self.planned_octets = self.octets
        self.sealed = True

    def encode_index(self) -> bytes:
        index = self.index or StreamIndex()
        entries = b"".join(
            [_ENTRY.pack(*each) for each in zip(index.offsets, index.times_ms, index.positions, strict=True)]
        )
        head = [
            INDEX_MAGIC,
            INDEX_VERSION,
            self.first_offset,
            self.end_offset,
            self.octets,
            self.first_time_ms,
            self.last_time_ms,
            len(index.offsets),
        ]
        blank = _HEAD.pack(*head, 0) + entries
        return _HEAD.pack(*head, layout.crc_read(0, blank, 0, len(blank))) + entries

    @staticmethod
    def decode_index(octets: bytes, first_offset: int, file_octets: int) -> StreamSegment | None:
        """The full segment that an index file tells of; None if it is not its true index."""
        if len(octets) < _HEAD.size:
            return None
        magic, version, first, end, size, first_ms, last_ms, count, crc = _HEAD.unpack_from(octets)
        if magic != INDEX_MAGIC or version != INDEX_VERSION or first != first_offset or size > file_octets:
            return None
        if len(octets) != _HEAD.size + count * _ENTRY.size:
            return None
        blank = octets[: _HEAD.size - 4] + bytes(4) + octets[_HEAD.size :]
        if layout.crc_read(0, blank, 0, len(blank)) != crc:
            return None
        segment = StreamSegment(first_offset)
        index = StreamIndex()
        for offset, time_ms, position in _ENTRY.iter_unpack(octets[_HEAD.size :]):
            index.offsets.append(offset)
            index.times_ms.append(time_ms)
            index.positions.append(position)
        segment.index = index
        segment.end_offset = end
        segment.octets = size
        segment.first_time_ms = first_ms
        segment.last_time_ms = last_ms
        segment.is_indexed = True
        segment.settle_plan()
        return segment


def segment_name(first_offset: int) -> str:
    return f"{first_offset:020d}{SEGMENT_SUFFIX}"


def index_name(first_offset: int) -> str:
    return f"{first_offset:020d}{INDEX_SUFFIX}"


def offset_of(name: str) -> int | None:
    """The offset that a segment's file name means, or None."""
    stem = name.removesuffix(SEGMENT_SUFFIX)
    if stem == name or len(stem) != 20 or not stem.isdigit():
        return None
    return int(stem)
