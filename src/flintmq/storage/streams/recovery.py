"""What a stream's directory holds, made into a log again.

Full segments with a true index are taken as it tells; the others, among them always the newest, are read
whole. Whatever lies before the highest `safe before` of all chunks was promised once:

    a hole before that      damage: reported, left where it is, and skipped by readers
    a hole behind it        a torn end: this and all that follows was never promised, and is not there

Nothing comes behind the last chunk, so what was promised is noted outside of them too (sync_notes.py).
If the end is missing that was promised, what is left in its place is set aside in a file `*.damaged`, and the
offsets go on behind it: what consumers have stored never points into newer messages.

A torn end is cut off, segments behind it are removed, and those that hold nothing: their offsets would meet
those of others. Nothing else is changed: appending goes on in a new segment.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from flintmq.storage.streams.chunk import CHUNK_OCTETS, MAGIC, ChunkHead, checked_chunk, decode_head
from flintmq.storage.streams.segment import COPY_SUFFIX, StreamSegment, index_name, offset_of, segment_name
from flintmq.storage.streams.stream_octets import CHUNK_HEAD
from flintmq.storage.sync_notes import STREAM, Notes, Promise

if TYPE_CHECKING:
    from flintmq.storage.disk import Disk
    from flintmq.storage.streams.log import StreamLog


DAMAGED_SUFFIX = ".damaged"


class StreamReport:
    """What was found of one stream."""

    def __init__(self, number: int, known: set[tuple[int, int]] | None = None) -> None:
        self.number = number
        self.segments = 0
        self.first = 0
        self.end = 0
        self.octets = 0
        self.epoch = 0
        self.torn_octets = 0
        self.damaged: list[str] = []
        self.set_aside: list[str] = []
        self.lost: list[tuple[int, int]] = []  # offsets, told now for the first time
        self.lost_earlier: list[tuple[int, int]] = []  # and what was told before
        self.promised = 0  # all before this offset was
        self.known = known or set()  # offsets that earlier starts have told of

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
        for first, end in self.lost_earlier:
            text.append(f"stream {self.number}: offsets {first} to {end} were lost earlier")
        text.extend(f"stream {self.number}: {line}" for line in self.damaged)
        text.extend(f"stream {self.number}: set aside: {name}" for name in self.set_aside)
        return text

    def lose(self, first: int, end: int, why: str = "damaged") -> None:
        """Offsets that were promised, and are not there."""
        if (first, end) in self.known:
            self.lost_earlier.append((first, end))
            return
        self.lost.append((first, end))
        self.damaged.append(f"{why}, offsets {first} to {end} are lost: {end - first} messages")


class FoundSegment:
    """A segment file as it is: trusted by its index, or read chunk by chunk."""

    def __init__(
        self,
        segment: StreamSegment,
        file_octets: int,
        chunks: list[tuple[int, ChunkHead]] | None,
        is_indexed: bool = False,
    ) -> None:
        self.segment = segment
        self.file_octets = file_octets
        self.chunks = chunks  # None: trusted
        self.is_indexed = is_indexed  # there is a true index, which a start trusts


def report_on(number: int, notes: Notes) -> StreamReport:
    """What is to be filled; it knows what was told before."""
    return StreamReport(number, known=notes.gaps(number))


def recover_log(log: StreamLog, notes: Notes) -> StreamReport:
    """Fills an empty log with what lies in its directory."""
    report = report_on(log.number, notes)
    remove_copies(log.store.disk, log.directory)
    every = find_segments(log.store.disk, log.directory, trust_indexes=True)
    # One that was created and never written to tells nothing.
    found = [each for each in every if each.file_octets]
    empty = [each.segment for each in every if not each.file_octets]
    promise = promise_for(found, notes, log.number)
    dropped = [each for each in found if is_dropped(each, promise)]
    found = [each for each in found if not is_dropped(each, promise)]
    useless = fold(log, found, report, promise)
    if report.lost and report.lost[-1][1] == log.end:
        keep_damaged(log, found, useless, report)
    for segment in reversed([*empty, *[each.segment for each in dropped], *useless]):
        remove_segment(log.store.disk, log.directory, segment)
    # What a killed process had written may not be on the disk yet, and is promised from now on.
    synced = 0 if promise is None else promise.end
    for each in found:
        if each.segment.octets and (each.chunks is not None or each.segment.end_offset > synced):
            cut_and_sync(log.store.disk, log.directory, each)
    if found:
        log.store.disk.sync_directory(log.directory)
    return report


def miss_log(log: StreamLog, notes: Notes) -> StreamReport:
    """A stream without a directory: nothing was ever written to it, or it is lost."""
    report = report_on(log.number, notes)
    fold(log, [], report, promise_for([], notes, log.number), "its directory is missing")
    return report


def promise_for(found: list[FoundSegment], notes: Notes, number: int) -> Promise | None:
    """What is noted of a stream, unless a FlintMQ that keeps no notes has written to it since."""
    promise = notes.of(STREAM, number)
    newest = max([head.epoch for each in found for _, head in each.chunks or []], default=0)
    return None if promise is None or newest > promise.mark else promise


def is_dropped(found: FoundSegment, promise: Promise | None) -> bool:
    """Whether retention was about to remove the segment: it notes what is to stay before that."""
    return promise is not None and found.segment.first_offset < promise.first


def keep_damaged(
    log: StreamLog, found: list[FoundSegment], useless: list[StreamSegment], report: StreamReport
) -> None:
    """What is about to be cut off at the end was promised: it is kept for people to look at."""
    disk = log.store.disk
    for each in found:
        at = 0 if each.segment in useless else each.segment.octets
        if each.chunks is None or at >= each.file_octets:
            continue
        name = f"{each.segment.first_offset:020d}-{at}{DAMAGED_SUFFIX}"
        source = disk.open_to_read(os.path.join(log.directory, each.segment.name))
        try:
            octets = disk.read(source, at, each.file_octets - at)
        finally:
            disk.let_go(source)
        handle = disk.open(os.path.join(log.directory, name), create=True)
        try:
            disk.write(handle, 0, octets)
            disk.sync(handle)
        finally:
            disk.let_go(handle)
        report.set_aside.append(os.path.join(os.path.basename(log.directory), name))
    disk.sync_directory(log.directory)


def cut_and_sync(disk: Disk, directory: str, found: FoundSegment) -> None:
    """A torn end, or what was written again elsewhere, must not come back when its offsets are given anew."""
    handle = disk.open(os.path.join(directory, found.segment.name))
    try:
        if found.chunks is not None and found.segment.octets < found.file_octets:
            disk.truncate(handle, found.segment.octets)
        disk.sync(handle)
    finally:
        disk.let_go(handle)


def remove_copies(disk: Disk, directory: str) -> None:
    """Copies that were not finished when the broker was killed."""
    for name in disk.list(directory):
        if name.endswith(COPY_SUFFIX):
            disk.delete(os.path.join(directory, name))


def remove_segment(disk: Disk, directory: str, segment: StreamSegment) -> None:
    names = disk.list(directory)
    for name in (index_name(segment.first_offset), segment.name):
        if name in names:
            disk.delete(os.path.join(directory, name))


def find_segments(disk: Disk, directory: str, trust_indexes: bool) -> list[FoundSegment]:
    names = disk.list(directory)
    offsets = sorted(offset for offset in map(offset_of, names) if offset is not None)
    found = []
    for index, first in enumerate(offsets):
        following = offsets[index + 1] if index + 1 < len(offsets) else None
        handle = disk.open_to_read(os.path.join(directory, segment_name(first)))
        try:
            size = disk.size(handle)
            segment = None
            if following is not None and index_name(first) in names:
                segment = indexed(disk, directory, first, size)
                if segment is not None and segment.end_offset != following:
                    segment = None
            if segment is not None and trust_indexes:
                found.append(FoundSegment(segment, size, None))
            else:
                chunks = read_chunks(disk, handle, size)
                found.append(FoundSegment(StreamSegment(first), size, chunks, segment is not None))
        finally:
            disk.let_go(handle)
    return found


def indexed(disk: Disk, directory: str, first: int, file_octets: int) -> StreamSegment | None:
    handle = disk.open_to_read(os.path.join(directory, index_name(first)))
    try:
        octets = disk.read(handle, 0, disk.size(handle))
    finally:
        disk.let_go(handle)
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


def fold(
    log: StreamLog,
    found: list[FoundSegment],
    report: StreamReport,
    promise: Promise | None = None,
    why: str = "damaged",
) -> list[StreamSegment]:
    """One run of offsets from all that was found; the segments that are no part of it."""
    useless = []
    leave_out_abandoned(found)
    expected = begin_run(found, report, promise, why)
    is_cut = False
    for each in found:
        segment = each.segment
        report.octets += each.file_octets
        if each.chunks is None and not is_cut:
            is_cut = hole(expected, segment.first_offset, report)
            if not is_cut:
                expected = segment.end_offset
        for position, head in each.chunks or []:
            log.epoch = max(log.epoch, head.epoch + 1)
            if is_cut or head.first_offset < expected:
                continue
            is_cut = hole(expected, head.first_offset, report)
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
    if found and not is_cut and not holds(found[-1]):
        useless.append(found[-1].segment)
    end_run(log, expected, report, promise, why)
    return useless


def begin_run(found: list[FoundSegment], report: StreamReport, promise: Promise | None, why: str) -> int:
    """Where the offsets of a stream begin; notes what was promised of it."""
    report.promised = max([promised_by(each) for each in found], default=0)
    if promise is not None:
        report.promised = max(report.promised, promise.end)
    if not found:
        return 0 if promise is None else promise.first
    first = found[0].segment.first_offset
    # What lies before the oldest segment has gone by retention, if it was promised; else it never was there.
    expected = min(first, report.promised)
    if expected < first and not holds(found[0]):
        expected = first
    # Retention notes what it drops before it does.
    if promise is not None and promise.first < expected:
        report.lose(promise.first, expected, why)
    return expected


def end_run(log: StreamLog, expected: int, report: StreamReport, promise: Promise | None, why: str) -> None:
    """The log goes on behind what is there, and behind all that was promised."""
    if expected < report.promised:
        report.lose(expected, report.promised, why)
        report.torn_octets = 0
    log.end = max(expected, report.promised)
    log.next_chunk_offset = log.end
    if promise is not None:
        log.epoch = max(log.epoch, promise.mark + 1)
    if log.segments:
        log.builder.last_time_ms = log.segments[-1].last_time_ms
    report.segments = len(log.segments)
    report.first = log.first
    report.end = log.end
    report.epoch = log.epoch


def holds(found: FoundSegment) -> bool:
    return found.chunks is None or bool(found.chunks)


def leave_out_abandoned(found: list[FoundSegment]) -> None:
    """Chunks with offsets that a later segment begins with or holds: the disk failed once, and they moved."""
    limit: int | None = None
    for each in reversed(found):
        if each.chunks is not None and limit is not None:
            each.chunks = [(at, head) for at, head in each.chunks if head.first_offset < limit]
        if holds(each) or each.is_indexed:
            limit = each.segment.first_offset


def promised_by(found: FoundSegment) -> int:
    """The offset before which all was promised, as far as this segment tells."""
    if found.chunks is None:
        return found.segment.end_offset
    return max([head.safe_before for _, head in found.chunks], default=0)


def hole(expected: int, first: int, report: StreamReport) -> bool:
    """Whether the log ends here, since what is missing was never promised; damage is noted."""
    if first <= expected:
        return False
    if expected >= report.promised:
        return True
    report.lose(expected, first)
    return False
