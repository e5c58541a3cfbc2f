"""What the streams of a data directory hold, for people: every chunk is checked, nothing is changed.

`repair_streams` does what a start would do.
"""

from __future__ import annotations

import os

from flintmq.clock import Clock
from flintmq.storage.disk import Disk
from flintmq.storage.options import JournalOptions
from flintmq.storage.streams.log import StreamOptions
from flintmq.storage.streams.recovery import (
    FoundSegment,
    StreamReport,
    begin_run,
    find_segments,
    hole,
    is_dropped,
    leave_out_abandoned,
    promise_for,
    report_on,
)
from flintmq.storage.streams.store import PROMISES_NAME, StreamStore, is_number
from flintmq.storage.sync_notes import STREAM, Notes, read_notes


def check_streams(directory: str, disk: Disk | None = None) -> list[StreamReport]:
    """A report on each stream of a data directory."""
    disk = disk or Disk()
    path = os.path.join(directory, PROMISES_NAME)
    # Before the files, which may be growing: what is noted now is in them then.
    notes = read_notes(disk, path)
    streams = os.path.join(directory, "streams")
    names = disk.list_directories(streams) if "streams" in disk.list_directories(directory) else []
    there = {int(name) for name in names if is_number(name)}
    # And once more: a stream that is gone by now may have been deleted, after its note.
    noted = notes.all_of(STREAM).keys() & read_notes(disk, path).all_of(STREAM).keys()
    reports = []
    for number in sorted(there | noted):
        if number in there:
            reports.append(checked(disk, os.path.join(streams, f"{number:016d}"), number, notes))
        else:
            reports.append(missing(number, notes))
    return reports


def repair_streams(directory: str, disk: Disk | None = None) -> list[StreamReport]:
    """Do what a start would do, and say what was done."""
    disk = disk or Disk()
    lock = disk.lock(os.path.join(directory, "lock"))
    try:
        options = JournalOptions(threaded=False)
        store = StreamStore(os.path.join(directory, "streams"), disk, options, Clock())
        noted = store.promises.found.all_of(STREAM) if store.promises is not None else {}
        numbers = sorted({*store.numbers(), *noted})
        reports = [store.open(number, StreamOptions())[1] for number in numbers]
        store.close()
    finally:
        disk.let_go(lock)
    return reports


def missing(number: int, notes: Notes) -> StreamReport:
    """A stream that was promised and has no directory."""
    report = report_on(number, notes)
    promise = promise_for([], notes, number)
    report.first = report.end = begin_run([], report, promise, "")
    end_report(report, "its directory is missing")
    return report


def checked(disk: Disk, directory: str, number: int, notes: Notes) -> StreamReport:
    report = report_on(number, notes)
    found = [each for each in find_segments(disk, directory, trust_indexes=False) if each.file_octets]
    promise = promise_for(found, notes, number)
    found = [each for each in found if not is_dropped(each, promise)]
    leave_out_abandoned(found)
    report.segments = len(found)
    report.octets = sum([each.file_octets for each in found])
    report.end = begin_run(found, report, promise, "damaged")
    report.first = min([each.segment.first_offset for each in found], default=report.end)
    for each in found:
        if not walked(each, report):
            break
    end_report(report, "damaged")
    return report


def end_report(report: StreamReport, why: str) -> None:
    if report.end < report.promised:
        report.lose(report.end, report.promised, why)
        report.torn_octets = 0
        report.end = report.promised


def walked(found: FoundSegment, report: StreamReport) -> bool:
    """Follows the chunks of one segment; False where a torn end begins."""
    end = 0
    for position, head in found.chunks or []:
        if head.first_offset < report.end:
            continue
        if hole(report.end, head.first_offset, report):
            return False
        report.end = head.end_offset
        report.epoch = max(report.epoch, head.epoch)
        end = position + head.size
    report.torn_octets += found.file_octets - end if end else 0
    return True
