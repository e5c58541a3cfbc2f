"""The records on their way to the disk: one buffer, cut into pieces that each go to one segment.

    buffer   | head? BATCH record record ... | head BATCH record ...      | free
    pieces   |<- segment 7, offset 81,920  ->|<- segment 8, offset 0    ->|

Every piece begins with a BATCH record that tells what had been synced before; a piece at offset 0
begins with the segment's head. A batch is filled by one thread, then handed to the writer whole.
"""

from __future__ import annotations

from flintmq.storage import layout
from flintmq.storage.journal import record
from flintmq.storage.journal.segment import Segment
from flintmq.storage.spool import Spool

# Room for a turn of small entries without growing.
BUFFER_OCTETS = 1 << 20
BATCH_RECORD_OCTETS = layout.RECORD_HEAD + 8
# Kept free in a segment, so that its END fits even if that takes a piece of its own.
END_OCTETS = BATCH_RECORD_OCTETS + layout.RECORD_HEAD


class Piece:
    """Octets `start` to `end` of the buffer belong at `at` of the segment."""

    __slots__ = ("at", "end", "segment", "start")

    def __init__(self, segment: Segment, at: int, start: int) -> None:
        self.segment = segment
        self.at = at
        self.start = start
        self.end = start


class Batch:
    """A buffer, its fill and its pieces."""

    __slots__ = ("buffer", "fill", "last_sequence", "pieces", "spools")

    def __init__(self) -> None:
        self.buffer = bytearray(BUFFER_OCTETS)
        self.fill = 0
        self.last_sequence = 0
        self.pieces: list[Piece] = []
        # Spools that must be secured before the records that name them are written.
        self.spools: list[Spool] = []

    def clear(self) -> None:
        """Ready to be filled again; a buffer that one huge batch blew up is let go."""
        if len(self.buffer) > 8 * BUFFER_OCTETS:
            self.buffer = bytearray(BUFFER_OCTETS)
        self.fill = 0
        self.pieces = []
        self.spools = []

    def grow(self, room: int) -> int:
        """A larger buffer: at least `room` free octets."""
        larger = bytearray(max(2 * len(self.buffer), self.fill + room))
        larger[: self.fill] = memoryview(self.buffer)[: self.fill]
        self.buffer = larger
        return 0

    def start_piece(self, segment: Segment, head: bytes, sequence: int, synced: int) -> None:
        """Open a piece at the segment's end; `head` is the segment's own, or empty."""
        if self.fill + len(head) + BATCH_RECORD_OCTETS > len(self.buffer):
            self.grow(len(head) + BATCH_RECORD_OCTETS)
        self.pieces.append(Piece(segment, 0 if head else segment.end, self.fill))
        layout.put_octets(self.buffer, self.fill, head)
        self.fill += len(head)
        length = BATCH_RECORD_OCTETS
        body = record.write_head(self.buffer, self.fill, length, sequence, layout.BATCH, 0, 0)
        layout.put_u64(self.buffer, body, synced)
        self.fill = record.seal(self.buffer, self.fill, length, segment.seed)
        segment.end += length

    def end_segment(self, segment: Segment, sequence: int) -> None:
        """The open piece ends with the segment's END."""
        if self.fill + layout.RECORD_HEAD > len(self.buffer):
            self.grow(layout.RECORD_HEAD)
        record.write_head(self.buffer, self.fill, layout.RECORD_HEAD, sequence, layout.END, 0, 0)
        self.fill = record.seal(self.buffer, self.fill, layout.RECORD_HEAD, segment.seed)
        segment.end += layout.RECORD_HEAD

    def end_piece(self) -> None:
        if self.pieces:
            self.pieces[-1].end = self.fill

    def octets_at(self, segment: int, at: int, count: int) -> bytes | None:
        """What will lie at `at` of a segment, if it is still here."""
        for piece in self.pieces:
            end = self.fill if piece is self.pieces[-1] else piece.end
            if piece.segment.number == segment and piece.at <= at < piece.at + end - piece.start:
                start = piece.start + at - piece.at
                return bytes(memoryview(self.buffer)[start : min(start + count, end)])
        return None
