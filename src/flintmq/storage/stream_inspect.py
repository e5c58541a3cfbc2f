"""What the streams of a data directory hold, for people: every chunk is checked, nothing is changed."""

from __future__ import annotations

import os

from .disk import Disk
from .stream_recovery import Found, StreamReport, find_segments, hole, leave_out_abandoned, promised_by
from .stream_store import is_number


def check_streams(directory: str, disk: Disk | None = None) -> list[StreamReport]:
    """A report on each stream of a data directory."""
    disk = disk or Disk()
    if "streams" not in disk.list_directories(directory):
        return []
    streams = os.path.join(directory, "streams")
    names = [name for name in disk.list_directories(streams) if is_number(name)]
    return [checked(disk, os.path.join(streams, name), int(name)) for name in names]


def checked(disk: Disk, directory: str, number: int) -> StreamReport:
    report = StreamReport(number)
    found = [each for each in find_segments(disk, directory, trust_indexes=False) if each.file_octets]
    leave_out_abandoned(found)
    promised = max([promised_by(each) for each in found], default=0)
    report.segments = len(found)
    report.octets = sum([each.file_octets for each in found])
    report.first = report.end = min([each.segment.first_offset for each in found], default=0)
    for each in found:
        if not walked(each, promised, report):
            break
    report.end = max(report.end, promised)
    return report


def walked(found: Found, promised: int, report: StreamReport) -> bool:
    """Follows the chunks of one segment; False where a torn end begins."""
    end = 0
    for position, head in found.chunks or []:
        if head.first_offset < report.end:
            continue
        if hole(report.end, head.first_offset, promised, report):
            return False
        report.end = head.end_offset
        report.epoch = max(report.epoch, head.epoch)
        end = position + head.size
    report.torn_octets += found.file_octets - end if end else 0
    return True
