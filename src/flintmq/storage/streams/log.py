"""The log of one stream: appended chunks on their way to segments, and the segments themselves.

    builder | pending | in flight | segments: what is safe ........ first offset
    filling   full      written    ^ end: readers see what lies before it

Everything here happens on one thread and touches the disk only to read. `take` lays out what was appended,
as writes for the writer; `commit` takes note that they are safe; `lay_out_anew` is for when they are not.
Retention drops whole segments from the old end, never the newest.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import deque
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from flintmq.errors import StorageFault
from flintmq.field_tuple import FieldTuple
from flintmq.storage.streams.chunk import FILTER_OCTETS_MIN, Chunk, ChunkBuilder
from flintmq.storage.streams.segment import StreamIndex, StreamSegment, index_name

if TYPE_CHECKING:
    from flintmq.storage.streams.store import StreamStore

# Segments of which the index is in memory, next to the newest: 24 KiB each.
INDEXES_KEPT = 4
# Segments that retention drops at a time: some milliseconds. The others go with the next look.
DROPPED_MAX = 512
SEGMENT_OCTETS = 67_108_864
SEGMENT_OCTETS_MIN = 65_536


class StreamOptions(FieldTuple):
    """How one stream is kept."""

    segment_octets: int = SEGMENT_OCTETS
    octets_max: int | None = None
    age_max_ms: int | None = None
    filter_octets: int = FILTER_OCTETS_MIN


class StreamWrite(NamedTuple):
    """A chunk and its place."""

    segment: StreamSegment
    position: int
    chunk: Chunk


class StreamLog:
    """One stream on disk."""

    __slots__ = (
        "builder",
        "deleted",
        "directory",
        "end",
        "epoch",
        "loaded",
        "next_chunk_offset",
        "number",
        "options",
        "pending",
        "pending_octets",
        "proven",
        "recent",
        "recent_octets",
        "segments",
        "store",
    )

    def __init__(self, store: StreamStore, number: int, directory: str, options: StreamOptions) -> None:
        self.store = store
        self.number = number
        self.directory = directory
        self.options = options
        self.builder = ChunkBuilder(options.filter_octets)
        self.epoch = 1
        self.end = 0  # the first offset that is not safe yet
        self.proven = 0  # all before it was promised, and a chunk on disk says so
        self.next_chunk_offset = 0
        self.pending: list[Chunk] = []
        self.pending_octets = 0  # not safe yet, but for those in the builder
        self.segments: list[StreamSegment] = []
        self.loaded: deque[StreamSegment] = deque()  # full ones whose index is in memory
        self.recent: list[Chunk] = []  # the newest safe chunks: those who follow closely need no disk
        self.recent_octets = 0
        self.deleted = False

    @property
    def first(self) -> int:
        """The oldest offset that is there; `end` when nothing is.

        After a sync that failed, what readers have seen is there although it has to be written again.
        """
        if self.segments:
            return min(self.segments[0].first_offset, self.end)
        return min(self.pending[0].first_offset, self.end) if self.pending else self.end

    @property
    def first_time_ms(self) -> int | None:
        """When the oldest message that is there came."""
        return self.segments[0].first_time_ms if self.segments and self.segments[0].octets else None

    @property
    def octets(self) -> int:
        return sum([segment.octets for segment in self.segments])

    def __len__(self) -> int:
        return sum([segment.end_offset - segment.first_offset for segment in self.segments])

    # Appending

    def begin_chunk(self) -> None:
        """A message is about to be the first of a chunk."""
        self.store.dirty[self] = None

    def seal(self) -> None:
        """The chunk is full, or its batch ends."""
        if self.builder.count:
            chunk = self.builder.finish(self.next_chunk_offset, self.epoch, self.end)
            self.next_chunk_offset = chunk.end_offset
            self.pending.append(chunk)
            self.pending_octets += len(chunk.octets)

    def take(self) -> list[StreamWrite]:
        """All that was appended, each chunk with its place."""
        self.seal()
        pending, self.pending = self.pending, []
        writes = []
        for chunk in pending:
            segment = self.segment_for(chunk)
            writes.append(StreamWrite(segment, segment.planned_octets, chunk))
            segment.planned_octets += len(chunk.octets)
        return writes

    def segment_for(self, chunk: Chunk) -> StreamSegment:
        """The newest segment, or a new one where that is full or has become old."""
        options = self.options
        if self.segments:
            newest = self.segments[-1]
            is_full = newest.planned_octets + len(chunk.octets) > options.segment_octets
            if options.age_max_ms is not None and newest.planned_octets:
                # Else a slow stream would keep what is long out of age with what is not.
                age_ms = chunk.head.first_time_ms - newest.planned_since_ms
                is_full = is_full or age_ms > options.age_max_ms // 4
            if not newest.sealed and not (is_full and newest.planned_octets):
                return newest
            newest.sealed = True
        segment = StreamSegment(chunk.first_offset)
        segment.planned_since_ms = chunk.head.first_time_ms
        self.segments.append(segment)
        return segment

    def commit(self, writes: list[StreamWrite]) -> None:
        """These writes are safe: readers may see them."""
        for write in writes:
            write.segment.note(write.chunk.head, write.position)
            self.pending_octets -= len(write.chunk.octets)
            self.proven = max(self.proven, write.chunk.head.safe_before)
            if write.chunk.first_offset >= self.end:  # else it was promised before the disk failed
                self.end = write.chunk.end_offset
                self.recent.append(write.chunk)
                self.recent_octets += len(write.chunk.octets)
        for segment in self.segments[-2 - len(writes) :]:
            if segment.sealed and not segment.is_indexed and segment.planned_octets == segment.octets:
                self.finish_segment(segment)

    def finish_segment(self, segment: StreamSegment) -> None:
        """The segment is full and safe: its index gets a file, its handle is closed."""
        self.index_of(segment)
        segment.is_indexed = True
        self.keep_loaded(segment)
        self.store.write_index(self, segment)

    def lay_out_anew(self, writes: list[StreamWrite]) -> list[StreamSegment]:
        """The disk has failed these: they get other places. Returns segments that hold nothing else."""
        writes = [write for write in writes if not write.segment.dropped]
        for write in writes:
            segment = write.segment
            if write.position < segment.octets:
                segment.cut(write.chunk.head, write.position)
            if write.chunk.first_offset < self.end:
                self.pending_octets += len(write.chunk.octets)
            segment.settle_plan()
        self.pending = [write.chunk for write in writes] + self.pending
        if self.segments:
            self.segments[-1].settle_plan()
        empty = [segment for segment in self.segments if not segment.octets]
        self.segments = [segment for segment in self.segments if segment.octets]
        return empty

    def trim_recent(self, octets_max: int) -> int:
        """Lets go of all but so much of the newest; how much that was."""
        gone = 0
        count = 0
        while self.recent_octets - gone > octets_max and count < len(self.recent):
            gone += len(self.recent[count].octets)
            count += 1
        del self.recent[:count]
        self.recent_octets -= gone
        return gone

    # Retention

    def retain(self, now_ms: int) -> list[StreamSegment]:
        """Drops segments that are too old or too much, some of them where there are very many.

        The caller has their files removed.
        """
        options = self.options
        dropped: list[StreamSegment] = []
        octets = 0 if options.octets_max is None else self.octets
        for oldest, next_one in pairwise(self.segments):
            if not next_one.octets or len(dropped) == DROPPED_MAX:
                break
            too_much = options.octets_max is not None and octets > options.octets_max
            too_old = options.age_max_ms is not None and oldest.last_time_ms < now_ms - options.age_max_ms
            # Recovery must be able to tell what retention has dropped from what was never there.
            if not (too_much or too_old) or oldest.end_offset > self.proven:
                break
            octets -= oldest.octets
            oldest.dropped = True
            dropped.append(oldest)
        if dropped:
            del self.segments[: len(dropped)]
            first = self.segments[0].first_offset
            stale = [chunk for chunk in self.recent if chunk.first_offset < first]
            del self.recent[: len(stale)]
            self.recent_octets -= sum([len(chunk.octets) for chunk in stale])
        return dropped

    # Finding

    def segment_of(self, offset: int) -> StreamSegment | None:
        """The segment that holds an offset, or the first one after it."""
        found = bisect_right(self.segments, offset, key=_end_offset)
        while found < len(self.segments):
            if self.segments[found].octets:
                return self.segments[found]
            found += 1
        return None

    def segment_after(self, segment: StreamSegment) -> StreamSegment | None:
        return self.segment_of(max(segment.end_offset, segment.first_offset + 1))

    def index_of(self, segment: StreamSegment) -> StreamIndex:
        if segment.index is None:
            segment.index = self.load_index(segment)
            self.keep_loaded(segment)
        return segment.index

    def load_index(self, segment: StreamSegment) -> StreamIndex:
        path = os.path.join(self.directory, index_name(segment.first_offset))
        try:
            found = StreamSegment.decode_index(
                self.store.read_file(path), segment.first_offset, segment.octets
            )
        except OSError:
            found = None  # made anew from the segment, as if there had never been one
        if found is not None and found.index is not None and found.end_offset == segment.end_offset:
            return found.index
        from flintmq.storage.streams.cursor import StreamCursor

        index = StreamIndex()
        cursor = StreamCursor(self, segment.first_offset)
        cursor.place(segment, 0)
        for chunk in cursor.chunks_in(segment):
            index.note(chunk.head, cursor.chunk_position)
        return index

    def keep_loaded(self, segment: StreamSegment) -> None:
        self.loaded.append(segment)
        if len(self.loaded) > INDEXES_KEPT:
            self.loaded.popleft().index = None

    def octets_between(self, start: int, end: int) -> int:
        """About how much lies between two offsets, by the index."""
        octets = 0
        for segment in self.segments:
            if segment.end_offset <= start or segment.first_offset >= end:
                continue
            index = self.index_of(segment)
            low = index.position_of(start) if start > segment.first_offset else 0
            high = index.position_of(end) if end < segment.end_offset else segment.octets
            octets += max(high - low, 0)
        return octets

    def read(self, segment: StreamSegment, at: int, size: int) -> bytes:
        """Safe octets of a segment; fewer only at its end."""
        if segment.dropped:
            raise StorageFault(f"segment {segment.name} of stream {self.number} is gone")
        return self.store.read(self, segment, at, min(size, segment.octets - at))


def _end_offset(segment: StreamSegment) -> int:
    return segment.end_offset
