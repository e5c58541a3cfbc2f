"""Reading a stream's log from some offset on, chunk by chunk.

A cursor that follows closely is given the chunks that were just written, which all such share. One that is
further behind reads windows of the segments, each chunk with its checks; what does not check is reported,
and the cursor goes on behind it. One that retention has overtaken goes on with what there is.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Iterator

from flintmq.storage.streams.chunk import MAGIC, Chunk, checked_chunk, decode_head
from flintmq.storage.streams.log import StreamLog
from flintmq.storage.streams.segment import StreamSegment
from flintmq.storage.streams.stream_octets import CHUNK_HEAD

log = logging.getLogger("flintmq.storage")

# Read at once: a chunk of the usual size, or many small ones.
WINDOW_OCTETS = 262_144


class StreamCursor:
    """A place in a stream's log; the next chunk holds `offset`, or comes after it."""

    __slots__ = ("chunk_position", "log", "offset", "position", "segment", "window", "window_at")

    def __init__(self, log: StreamLog, offset: int) -> None:
        self.log = log
        self.seek(offset)

    def seek(self, offset: int) -> None:
        self.offset = offset
        self.segment: StreamSegment | None = None  # None: to be looked up
        self.position = 0
        self.chunk_position = 0  # of the chunk given last
        self.window = b""
        self.window_at = 0

    def place(self, segment: StreamSegment, position: int) -> None:
        self.segment = segment
        self.position = position
        self.window = b""
        self.window_at = position

    def next(self) -> Chunk | None:
        """The next chunk that is safe; None when there is none yet."""
        stream = self.log
        if self.offset >= stream.end:
            return None
        chunk = self.recent()
        if chunk is None:
            chunk = self.stored()
            if chunk is None:
                return None
        self.offset = chunk.end_offset
        return chunk

    def recent(self) -> Chunk | None:
        """The chunk with `offset`, if it is still in memory."""
        recent = self.log.recent
        if not recent or self.offset < recent[0].first_offset:
            return None
        chunk = recent[bisect_right(recent, self.offset, key=_first_offset) - 1]
        if self.segment is not None:
            self.seek(self.offset)
        return chunk if self.offset < chunk.end_offset else None

    def stored(self) -> Chunk | None:
        """The first chunk on disk that ends behind `offset`."""
        segment = self.segment
        if segment is None or segment.dropped:
            segment = self.log.segment_of(self.offset)
            if segment is None:
                return None
            self.place(segment, self.log.index_of(segment).position_of(self.offset))
        while segment is not None:
            for chunk in self.chunks_in(segment):
                if chunk.end_offset > self.offset:
                    return chunk
            segment = self.log.segment_after(segment)
            if segment is not None:
                self.place(segment, 0)
        return None

    def chunks_in(self, segment: StreamSegment) -> Iterator[Chunk]:
        """From `position` to the end of what is safe in the segment; past what is damaged."""
        while self.position < segment.octets:
            chunk = self.chunk_here(segment)
            if chunk is None:
                self.skip_damage(segment)
                continue
            self.chunk_position = self.position
            self.position += chunk.head.size
            yield chunk

    def chunk_here(self, segment: StreamSegment) -> Chunk | None:
        at = self.position - self.window_at
        if at < 0 or len(self.window) - at < CHUNK_HEAD:
            at = self.load_window(segment, WINDOW_OCTETS)
        head = decode_head(self.window, at)
        if head is None:
            return None
        if at + head.size > len(self.window):
            if self.position + head.size > segment.octets:
                return None
            at = self.load_window(segment, max(head.size, WINDOW_OCTETS))
        return checked_chunk(self.window, at)

    def load_window(self, segment: StreamSegment, size: int) -> int:
        self.window = self.log.read(segment, self.position, size)
        self.window_at = self.position
        return 0

    def skip_damage(self, segment: StreamSegment) -> None:
        """To the next true chunk of the segment, or to its end."""
        start = self.position
        self.position = next_chunk_position(self.log, segment, start + 8)
        self.window = b""
        self.window_at = self.position
        log.error(
            "stream %d: %d octets of %s at %d no longer read as they were written: skipped",
            self.log.number,
            self.position - start,
            segment.name,
            start,
        )


def next_chunk_position(stream: StreamLog, segment: StreamSegment, start: int) -> int:
    """Where the next head that checks lies, from `start` on; the end of the segment if nowhere."""
    at = start
    while at < segment.octets:
        window = stream.read(segment, at, WINDOW_OCTETS + CHUNK_HEAD)
        found = window.find(MAGIC)
        while found >= 0:
            if (at + found) % 8 == 0 and decode_head(window, found) is not None:
                return at + found
            found = window.find(MAGIC, found + 1)
        if len(window) <= WINDOW_OCTETS:
            break
        at += WINDOW_OCTETS
    return segment.octets


def offset_of_time(stream: StreamLog, time_ms: int) -> int:
    """The offset of the first message of this time or later; the end if there is none."""
    in_files = stream.first
    for segment in stream.segments:
        if not segment.octets:
            continue
        in_files = segment.end_offset
        if segment.last_time_ms < time_ms:
            continue
        cursor = StreamCursor(stream, segment.first_offset)
        cursor.place(segment, stream.index_of(segment).position_of_time(time_ms))
        for chunk in cursor.chunks_in(segment):
            if chunk.head.last_time_ms >= time_ms:
                return offset_in_chunk(chunk, time_ms)
    if in_files < stream.end:  # a sync has failed after readers saw the rest, which is written again
        if not stream.recent or stream.recent[0].first_offset > in_files:
            return in_files
        for chunk in stream.recent:
            if chunk.first_offset >= in_files and chunk.head.last_time_ms >= time_ms:
                return offset_in_chunk(chunk, time_ms)
    return stream.end


def offset_in_chunk(chunk: Chunk, time_ms: int) -> int:
    at = chunk.messages_at()
    offset: int = chunk.first_offset
    while int.from_bytes(chunk.octets[at + 8 : at + 16], "little") < time_ms:
        at += int.from_bytes(chunk.octets[at : at + 4], "little")
        offset += 1
    return offset


def _first_offset(chunk: Chunk) -> int:
    return chunk.first_offset
