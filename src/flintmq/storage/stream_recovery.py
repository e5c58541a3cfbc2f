"""What a stream's directory holds, made into a log again.

Full segments with a true index are taken as it tells; the others, among them always the newest, are read
whole. Whatever lies before the highest `safe before` of all chunks was promised once:

    a hole before that      damage: reported, left where it is, and skipped by readers
    a hole behind it        a torn end: this and all that follows was never promised, and is not there

A torn end is cut off, segments behind it are removed, and those that hold nothing: their offsets would meet
those of others. Nothing else is changed: appending goes on in a new segment.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .stream_chunk import CHUNK_OCTETS, MAGIC, ChunkHead, checked_chunk, decode_head
from .stream_octets import CHUNK_HEAD
from .stream_segment import StreamSegment, index_name, offset_of, segment_name

if TYPE_CHECKING:
    from .disk import Disk
    from .stream_log import StreamLog


@dataclass(slots=True)
class StreamReport:
    """What was found of one stream."""

    number: int
    segments: int = 0
    first: int = 0
    end: int = 0
    octets: int = 0
    epoch: int = 0
    torn_octets: int = 0
    damaged: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """For people."""
        text = [
            f"stream {self.number}: offsets {self.first} to {self.end} in {self.segments} segments, "
            f"{self.octets} octets, epoch {self.epoch}"
        ]
        if self.torn_octets:
            text.append(
                f"stream {self.number}: torn end of {self.torn_octets} octets: none of it was promised"
            )
        text.extend(f"stream {self.number}: {line}" for line in self.damaged)
        return text


@dataclass(slots=True)
class Found:
    """A segment file as it is: trusted by its index, or read chunk by chunk."""

    segment: StreamSegment
    file_octets: int
    chunks: list[tuple[int, ChunkHead]] | None  # None: trusted


def recover_log(log: StreamLog) -> StreamReport:
    """Fills an empty log with what lies in its directory."""
    report = StreamReport(log.number)
    every = find_segments(log.store.disk, log.directory, trust_indexes=True)
    # One that was created and never written to tells nothing.
    found = [each for each in every if each.file_octets]
    empty = [each.segment for each in every if not each.file_octets]
    for segment in reversed([*empty, *fold(log, found, report)]):
        remove_segment(log.store.disk, log.directory, segment)
    # What a killed process had written may not be on the disk yet, and is promised from now on.
    for each in found:
        if each.chunks is not None and each.segment.octets:
            cut_and_sync(log.store.disk, log.directory, each)
    if found:
        log.store.disk.sync_directory(log.directory)
    return report


def cut_and_sync(disk: Disk, directory: str, found: Found) -> None:
    """A torn end, or what was written again elsewhere, must not come back when its offsets are given anew."""
    handle = disk.open(os.path.join(directory, found.segment.name))
    try:
        if found.segment.octets < found.file_octets:
            disk.truncate(handle, found.segment.octets)
        disk.sync(handle)
    finally:
        disk.close(handle)


def remove_segment(disk: Disk, directory: str, segment: StreamSegment) -> None:
    names = disk.list(directory)
    for name in (index_name(segment.first_offset), segment.name):
        if name in names:
            disk.delete(os.path.join(directory, name))


def find_segments(disk: Disk, directory: str, trust_indexes: bool) -> list[Found]:
    names = disk.list(directory)
    offsets = sorted(offset for offset in map(offset_of, names) if offset is not None)
    found = []
    for index, first in enumerate(offsets):
        following = offsets[index + 1] if index + 1 < len(offsets) else None
        handle = disk.open_to_read(os.path.join(directory, segment_name(first)))
        try:
            size = disk.size(handle)
            segment = None
            if trust_indexes and following is not None and index_name(first) in names:
                segment = indexed(disk, directory, first, size)
                if segment is not None and segment.end_offset != following:
                    segment = None
            if segment is not None:
                found.append(Found(segment, size, None))
            else:
                chunks = read_chunks(disk, handle, size)
                found.append(Found(StreamSegment(first), size, chunks))
        finally:
            disk.close(handle)
    return found


def indexed(disk: Disk, directory: str, first: int, file_octets: int) -> StreamSegment | None:
    handle = disk.open_to_read(os.path.join(directory, index_name(first)))
    try:
        octets = disk.read(handle, 0, disk.size(handle))
    finally:
        disk.close(handle)
    return StreamSegment.decode_index(octets, first, file_octets)


def read_chunks(disk: Disk, handle: int, size: int) -> list[tuple[int, ChunkHead]]:
    """Every true chunk of a file, with its position."""
    chunks: list[tuple[int, ChunkHead]] = []
    at = 0
    window, window_at = b"", 0
    while size - at >= CHUNK_HEAD:
        if at - window_at + CHUNK_HEAD > len(window):
            window, window_at = disk.read(handle, at, 4 * CHUNK_OCTETS), at
        head = decode_head(window, at - window_at)
        if head is not None and at + head.size <= size:
            if at - window_at + head.size > len(window):
                window, window_at = disk.read(handle, at, max(head.size, 4 * CHUNK_OCTETS)), at
            if checked_chunk(window, at - window_at) is not None:
                chunks.append((at, head))
                at += head.size
                continue
        # The next place where a head may be: all of them are at multiples of 8.
        magic = window.find(MAGIC, at - window_at + 8)
        while magic >= 0 and (window_at + magic) % 8:
            magic = window.find(MAGIC, magic + 1)
        at = window_at + magic if magic >= 0 else max(at + 8, (window_at + len(window) - 3) & ~7)
    return chunks


def fold(log: StreamLog, found: list[Found], report: StreamReport) -> list[StreamSegment]:
    """One run of offsets from all that was found; the segments that are no part of it."""
    useless = []
    leave_out_abandoned(found)
    promised = max([promised_by(each) for each in found], default=0)
    # What lies before the oldest segment has gone by retention, if it was promised; else it never was there.
    expected = min(found[0].segment.first_offset, promised) if found else 0
    if found and expected < found[0].segment.first_offset and not holds(found[0]):
        expected = found[0].segment.first_offset
    is_cut = False
    for each in found:
        segment = each.segment
        report.octets += each.file_octets
        if each.chunks is None and not is_cut:
            is_cut = hole(expected, segment.first_offset, promised, report)
            if not is_cut:
                expected = segment.end_offset
        for position, head in each.chunks or []:
            log.epoch = max(log.epoch, head.epoch + 1)
            if is_cut or head.first_offset < expected:
                continue
            is_cut = hole(expected, head.first_offset, promised, report)
            if not is_cut:
                segment.note(head, position)
                expected = head.end_offset
                log.proven = max(log.proven, head.safe_before)
        if segment.octets and not (is_cut and each.chunks is None):
            segment.settle_plan()
            log.segments.append(segment)
            report.torn_octets += 0 if each.chunks is None else each.file_octets - segment.octets
        else:
            report.torn_octets += each.file_octets
            if segment.first_offset < expected or is_cut:
                useless.append(segment)  # else it may be what is left of damage
    log.end = max(expected, promised)
    log.next_chunk_offset = log.end
    if log.segments:
        log.builder.last_time_ms = log.segments[-1].last_time_ms
    report.segments = len(log.segments)
    report.first = log.first
    report.end = log.end
    report.epoch = log.epoch
    if found and not is_cut and not holds(found[-1]):
        useless.append(found[-1].segment)
    return useless


def holds(found: Found) -> bool:
    return found.chunks is None or bool(found.chunks)


def leave_out_abandoned(found: list[Found]) -> None:
    """Chunks with offsets that a later segment begins with or holds: the disk failed once, and they moved."""
    limit: int | None = None
    for each in reversed(found):
        if each.chunks is not None and limit is not None:
            each.chunks = [(at, head) for at, head in each.chunks if head.first_offset < limit]
        if holds(each):
            limit = each.segment.first_offset


def promised_by(found: Found) -> int:
    """The offset before which all was promised, as far as this segment tells."""
    if found.chunks is None:
        return found.segment.end_offset
    return max([head.safe_before for _, head in found.chunks], default=0)


def hole(expected: int, first: int, promised: int, report: StreamReport) -> bool:
    """Whether the log ends here, since what is missing was never promised; damage is noted."""
    if first <= expected:
        return False
    if expected >= promised:
        return True
    report.damaged.append(f"damaged, offsets {expected} to {first} are lost")
    return False
