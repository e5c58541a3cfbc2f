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
