"""One file of the journal, and the account of what is still needed in it.

    0          8         12        16        24        32        40         48            56
    +----------+---------+---------+---------+---------+---------+----------+-------------+---------+
    | FLINTMQJ | version |  64     | number  |  epoch  | first   | previous | previous    | 0 | crc |
    |          |   u32   |  u32    |         |         | sequence| number   | end         |   |     |
    +----------+---------+---------+---------+---------+---------+----------+-------------+---------+

The head tells where the segment before it ends, so octets that were written there but never
promised (an abandoned batch) are not read. Records follow the head, each at a multiple of 8.

A segment may be dropped when nothing in it is needed any more:
    live entries    none whose newest copy lies here
    settles         `obliges`: segments on disk whose entries were let go by records here
    values          none younger than the last finished checkpoint
and only once what made it so is itself synced (`touched`).
"""

from __future__ import annotations

import struct

from flintmq.errors import StorageFault
from flintmq.storage import layout
from flintmq.storage.journal import record

_HEAD = struct.Struct("<8sIIQQQQQII")
_MAGIC = b"FLINTMQJ"
_SUFFIX = ".segment"


class SegmentHead:
    """What the first 64 octets of a segment say."""

    def __init__(
        self, number: int, epoch: int, first_sequence: int, previous: int, previous_end: int
    ) -> None:
        self.number = number
        self.epoch = epoch
        self.first_sequence = first_sequence
        self.previous = previous
        self.previous_end = previous_end

    def encode(self) -> bytes:
        octets = _HEAD.pack(
            _MAGIC,
            layout.FORMAT_VERSION,
            layout.SEGMENT_HEAD,
            self.number,
            self.epoch,
            self.first_sequence,
            self.previous,
            self.previous_end,
            0,
            0,
        )
        crc = layout.crc_read(record.seed_of(self.number), octets, 0, layout.SEGMENT_HEAD - 4)
        return octets[:-4] + struct.pack("<I", crc)

    @staticmethod
    def decode(octets: bytes, number: int) -> SegmentHead | None:
        """None if this is not the true head of segment `number`; a newer format is a fault."""
        if len(octets) < layout.SEGMENT_HEAD:
            return None
        magic, version, _, found, epoch, first, previous, previous_end, _, crc = _HEAD.unpack_from(octets)
        if crc != layout.crc_read(record.seed_of(number), octets, 0, layout.SEGMENT_HEAD - 4):
            return None
        if magic != _MAGIC or found != number:
            return None
        if version > layout.FORMAT_VERSION:
            raise StorageFault(
                f"segment {number} has journal format {version}, this FlintMQ knows up to "
                f"{layout.FORMAT_VERSION}: start the newer FlintMQ that wrote it; nothing was changed"
            )
        if version < layout.FORMAT_VERSION:
            raise StorageFault(f"segment {number} has journal format {version} and was not migrated")
        return SegmentHead(number, epoch, first, previous, previous_end)


def format_version(octets: bytes, number: int) -> int:
    """The format of a segment with a true head, else 0. The head keeps its shape in every format."""
    if len(octets) < layout.SEGMENT_HEAD or not octets.startswith(_MAGIC):
        return 0
    crc = layout.crc_read(record.seed_of(number), octets, 0, layout.SEGMENT_HEAD - 4)
    return layout.get_u32(octets, 8) if crc == layout.get_u32(octets, layout.SEGMENT_HEAD - 4) else 0


def segment_name(number: int) -> str:
    return f"{number:016d}{_SUFFIX}"


def segment_number(name: str) -> int | None:
    """The number of the segment that a file name means, or None."""
    stem = name.removesuffix(_SUFFIX)
    if stem == name or len(stem) != 16 or not stem.isdigit():
        return None
    return int(stem)


class Segment:
    """A segment as the running journal knows it."""

    __slots__ = (
        "abandoned",
        "appendable",
        "capacity",
        "end",
        "first_sequence",
        "handle",
        "last_sequence",
        "live_octets",
        "moved",
        "number",
        "obliges",
        "previous",
        "previous_end",
        "recyclable",
        "safe",
        "sealed",
        "seed",
        "touched",
        "value_sequence",
    )

    def __init__(self, number: int, capacity: int, previous: int = 0, previous_end: int = 0) -> None:
        self.number = number
        self.capacity = capacity
        self.previous = previous
        self.previous_end = previous_end
        self.seed = record.seed_of(number)
        self.handle = -1
        self.end = layout.SEGMENT_HEAD
        # Where appending stops: what is left is for the END.
        self.appendable = capacity
        # The file goes on behind `end` with octets that were never promised; only the next
        # segment's head says so, until the file is cut.
        self.abandoned = False
        self.sealed = False
        # Sealed, and all of it synced.
        self.safe = False
        # The file has the size of all, so another life as a spare is worth it.
        self.recyclable = True
        # Entries here (but for moved ones) have names in this range; 0: still open.
        self.first_sequence = 0
        self.last_sequence = 0
        self.live_octets = 0
        # Segment number -> octets of settle records here that must outlive that segment.
        self.obliges: dict[int, int] = {}
        # Records here that are newer copies of entries: their settles name sequences of other segments.
        self.moved = 0
        # The newest record of a value or a checkpoint here.
        self.value_sequence = 0
        # The sequence that has to be synced before what was let go here is surely let go.
        self.touched = 0

    def abandon(self, end: int, last_sequence: int) -> None:
        """A sync failed: only what lies before `end` is known to be here."""
        self.end = end
        self.last_sequence = last_sequence
        self.sealed = self.safe = self.abandoned = True
        self.recyclable = False

    def may_hold(self, first: int, end: int) -> bool:
        """Could an entry with a name in this range have been appended here?"""
        return end > self.first_sequence and (self.last_sequence == 0 or first <= self.last_sequence)

    def needed_octets(self) -> int:
        """Octets that a rewrite would have to copy."""
        return self.live_octets + sum(self.obliges.values())
