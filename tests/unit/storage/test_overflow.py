"""Transient entries on disk: paged, reclaimed, and gone at the next start."""

from __future__ import annotations

from pathlib import Path

from flintmq.storage.disk import Disk
from flintmq.storage.journal.overflow import Overflow
from flintmq.storage.options import JournalOptions

OPTIONS = JournalOptions(threaded=False, segment_octets=1 << 16, rewrite_delay_ms=0)


def test_entries_come_back_until_the_next_start(tmp_path: Path) -> None:
    overflow = Overflow.open(str(tmp_path), Disk(), OPTIONS)
    sequences = [overflow.append_entry((1,), b"h", b"%d" % n) for n in range(5000)]
    overflow.end_batch()
    overflow.collect()
    assert overflow.read_entries(sequences) == [(b"h", b"%d" % n) for n in range(5000)]
    overflow.close()
    overflow = Overflow.open(str(tmp_path), Disk(), OPTIONS)
    assert list(tmp_path.glob("*.segment")) == []
    assert overflow.append_entry((1,), b"", b"") == 1
    overflow.close()


class CountingDisk(Disk):
    """Counts what is read."""

    reads = 0
    octets = 0

    def read(self, handle: int, at: int, size: int) -> bytes:
        self.reads += 1
        self.octets += size
        return super().read(handle, at, size)


def test_no_more_is_read_ahead_than_is_wanted(tmp_path: Path) -> None:
    """A queue loads some dozens of small messages at a time: a megabyte for these would be read in vain."""
    disk = CountingDisk()
    overflow = Overflow.open(str(tmp_path), disk, OPTIONS)
    sequences = [overflow.append_entry((1,), b"h", b"%d" % n) for n in range(5000)]
    overflow.end_batch()
    overflow.collect()
    disk.reads = disk.octets = 0
    wanted = [*range(100, 164), *range(4000, 4064), 3, 2]
    assert overflow.read_entries([sequences[n] for n in wanted]) == [(b"h", b"%d" % n) for n in wanted]
    assert disk.octets < 20_000  # 130 records of some 50 octets
    assert 4 <= disk.reads <= 6  # a run may lie in two segments
    overflow.close()


def test_what_is_let_go_leaves_the_disk(tmp_path: Path) -> None:
    overflow = Overflow.open(str(tmp_path), Disk(), OPTIONS)
    for _ in range(20):
        for sequence in [overflow.append_entry((1,), b"", bytes(1000)) for _ in range(100)]:
            overflow.append_settle(1, sequence)
        overflow.end_batch()
        overflow.collect()
    for _ in range(50):
        overflow.tick()
    assert sum(path.stat().st_size for path in tmp_path.glob("*.segment")) <= 2 * OPTIONS.segment_octets
    overflow.close()
