"""The journal on a real disk: append, promise, recover, reclaim."""

from __future__ import annotations

import errno
import os
import random
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flintmq.clock import MovableClock
from flintmq.errors import StorageFault, UnreadableFault
from flintmq.storage.disk import Commit, Disk
from flintmq.storage.inspection.journal_inspection import check
from flintmq.storage.journal.journal import BEHIND_OCTETS, Journal
from flintmq.storage.journal.overflow import Overflow
from flintmq.storage.journal.reclaim import ObligedSegments
from flintmq.storage.journal.report import RecoveryReport
from flintmq.storage.journal.segment import Segment
from flintmq.storage.options import JournalOptions, SyncPolicy

SMALL = JournalOptions(threaded=False, segment_octets=1 << 16, rewrite_delay_ms=0)


class Told:
    """What recovery told."""

    def __init__(self) -> None:
        self.keys: dict[bytes, bytes] = {}
        self.entries: list[tuple[int, tuple[int, ...], bytes, int]] = []

    def value(self, key: bytes, octets: bytes) -> None:
        self.keys[key] = octets

    def entry(self, sequence: int, owners: tuple[int, ...], header: bytes, payload_octets: int) -> None:
        self.entries.append((sequence, owners, header, payload_octets))

    def progress(self, done_octets: int, total_octets: int) -> None:
        assert 0 <= done_octets <= total_octets


def opened(
    directory: Path, options: JournalOptions = SMALL, wake: Callable[[], None] | None = None
) -> tuple[Journal, Told, RecoveryReport]:
    journal = Journal.open(str(directory), Disk(), options, wake=wake)
    told = Told()
    return journal, told, journal.recover(told)


def settle_down(journal: Journal) -> None:
    """Let reclaiming finish."""
    for _ in range(400):
        journal.tick()
        journal.tidier.collect(wait=True)
        journal.commit_now()


def test_what_is_committed_is_recovered_in_order(tmp_path: Path) -> None:
    journal, told, _ = opened(tmp_path)
    assert told.entries == []
    first = journal.append_entry((1,), b"head", b"payload")
    second = journal.append_entry((1, 2), b"", b"")
    journal.put_value(b"queue", b"one")
    journal.put_value(b"queue", b"two")
    journal.put_value(b"gone", b"x")
    journal.delete_value(b"gone")
    journal.commit_now()
    journal.close()
    journal, told, report = opened(tmp_path)
    assert told.entries == [(first, (1,), b"head", 7), (second, (1, 2), b"", 0)]
    assert told.keys == {b"queue": b"two"}
    assert (report.entries, report.keys, report.damaged, report.torn_octets) == (2, 1, [], 0)
    assert journal.read_entry(first) == (b"head", b"payload")
    assert journal.append_entry((1,), b"", b"") > second
    journal.close()


def test_the_first_segment_is_small_as_no_file_is_prepared_for_it(tmp_path: Path) -> None:
    options = JournalOptions(threaded=False, segment_octets=4 << 20)
    journal, _, _ = opened(tmp_path, options)
    spare_octets = []
    for octets in (b"at the start", bytes(1 << 20)):
        journal.append_entry((1,), b"", octets)
        spare_octets.append(sum(path.stat().st_size for path in tmp_path.glob("spare.*")))
        journal.commit_now()
        journal.tick()
        journal.tidier.collect(wait=True)
    first, second = sorted(tmp_path.glob("*.segment"))
    assert (first.stat().st_size, second.stat().st_size) == (1 << 20, 4 << 20)
    assert spare_octets[1] == 4 << 20  # which the second was
    journal.close()


def test_a_steady_flow_writes_into_the_files_of_segments_that_were_dropped(tmp_path: Path) -> None:
    """To prepare a file is to write its octets once more, with a sync for each mebibyte."""

    class CountedDisk(Disk):
        prewritten = 0

        def prewrite(self, path: str, size: int) -> None:
            self.prewritten += 1
            super().prewrite(path, size)

    disk = CountedDisk()
    journal = Journal.open(str(tmp_path), disk, JournalOptions(threaded=False, segment_octets=1 << 20))
    journal.recover(Told())
    settle_down(journal)
    for number in range(1000):
        if number == 200:
            disk.prewritten = 0
        entry = journal.append_entry((1,), b"", bytes(10_000))
        journal.commit_now()
        journal.append_settle(1, entry)
        journal.commit_now()
        journal.tidier.collect()
    assert journal.next_segment > 9
    assert disk.prewritten == 0
    journal.close()


def test_a_backlog_has_a_file_prepared_for_its_next_segment(tmp_path: Path) -> None:
    journal, _, _ = opened(tmp_path, JournalOptions(threaded=False, segment_octets=1 << 20))
    spares = []
    for _ in range(300):
        segments = journal.next_segment
        before = list(tmp_path.glob("spare.*"))
        journal.append_entry((1,), b"", bytes(10_000))
        if journal.next_segment > segments:
            spares.append(len(before))
        journal.commit_now()
        journal.tidier.collect()
    assert spares == [1] * len(spares)
    assert len(spares) > 2
    journal.close()


@pytest.mark.parametrize("ends", [Journal.close, Journal.abandon])
def test_nothing_is_written_once_the_journal_is_closed(
    tmp_path: Path, ends: Callable[[Journal], None]
) -> None:
    """The prepared file took the place of the last segment, and all in it was lost."""
    journal, _, _ = opened(tmp_path, JournalOptions(threaded=False, segment_octets=1 << 20))
    kept = []
    while journal.next_segment < 3 or not list(tmp_path.glob("spare.*")):
        kept.append(journal.append_entry((1,), b"", bytes(10_000)))
        journal.commit_now()
        journal.tidier.collect()
    ends(journal)
    files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    journal.append_entry((1,), b"", b"too late")
    journal.end_batch()
    journal.collect()
    journal.tick()
    with pytest.raises(StorageFault, match="closed"):
        journal.commit_now()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == files
    journal, told, report = opened(tmp_path)
    assert [entry[0] for entry in told.entries] == kept
    assert not report.damaged
    journal.close()


def test_a_prepared_file_never_takes_the_place_of_a_segment(tmp_path: Path) -> None:
    """A segment that is written to and has no open file any more is left, and its batch goes elsewhere."""
    journal, _, _ = opened(tmp_path, JournalOptions(threaded=False, segment_octets=1 << 20))
    kept = []
    while journal.next_segment < 3 or not list(tmp_path.glob("spare.*")):
        kept.append(journal.append_entry((1,), b"", bytes(10_000)))
        journal.commit_now()
        journal.tidier.collect()
    current = journal.segments[journal.next_segment - 1]
    handle, current.handle = current.handle, -1
    os.close(handle)
    kept.append(journal.append_entry((1,), b"", b"at the end"))
    journal.commit_now()
    journal.close()
    journal, told, report = opened(tmp_path)
    assert [entry[0] for entry in told.entries] == kept
    assert not report.damaged
    journal.close()


class AwayDisk(Disk):
    """A file server that does not answer while it is away."""

    is_away = False

    def insist(self) -> None:
        if self.is_away:
            raise OSError(errno.EIO, "Input/output error")

    def is_there(self, path: str, handle: int) -> bool:
        self.insist()
        return super().is_there(path, handle)

    def write(self, handle: int, at: int, octets: bytes | bytearray | memoryview) -> None:
        self.insist()
        super().write(handle, at, octets)

    def commit(self, commit: Commit, path: str, lock: int) -> tuple[int, bool]:
        self.insist()
        return super().commit(commit, path, lock)


def promised(journal: Journal) -> list[int]:
    """What the journal has promised since, in the order of its words."""
    told: list[int] = []
    journal.on_synced = told.append
    return told


def test_a_disk_that_is_away_for_a_moment_costs_nothing(tmp_path: Path) -> None:
    disk = AwayDisk()
    journal = Journal.open(str(tmp_path), disk, JournalOptions(threaded=False, retry_interval_ms=0))
    journal.recover(Told())
    alarms: list[str] = []
    journal.on_alarm = alarms.append
    told = promised(journal)
    entries = []
    for is_away in (False, True, False):
        disk.is_away = is_away
        entries += [journal.append_entry((1,), b"", b"x") for _ in range(3)]
        journal.end_batch()
        journal.collect()
        assert not is_away or max(told) < entries[-1]
    journal.tick()
    settle_down(journal)
    assert told[-1] >= entries[-1]
    assert "cannot be reached: Input/output error" in alarms[0]
    assert journal.alarm == ""
    journal.close()
    journal, found, _ = opened(tmp_path)
    assert [entry[0] for entry in found.entries] == entries
    journal.close()


def test_a_close_that_fails_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []

    def close(handle: int, close: Callable[[int], None] = os.close) -> None:
        path = os.readlink(f"/proc/self/fd/{handle}")
        close(handle)
        if path.endswith(".segment"):
            closed.append(path)
            raise OSError(errno.EDQUOT, "Disk quota exceeded")

    options = JournalOptions(threaded=False, spare_segments=0, segment_octets=1 << 16)
    journal, _, _ = opened(tmp_path, options)
    told = promised(journal)
    monkeypatch.setattr(os, "close", close)
    entries = []
    for _ in range(200):
        entries.append(journal.append_entry((1,), b"", bytes(10_000)))
        journal.end_batch()
        journal.collect()
    journal.close()
    monkeypatch.undo()
    assert told[-1] >= entries[-1]
    assert closed
    journal, found, _ = opened(tmp_path, options)
    assert [entry[0] for entry in found.entries] == entries
    journal.close()


def test_a_writer_without_memory_tries_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal, _, _ = opened(tmp_path, JournalOptions(retry_interval_ms=0))
    told = promised(journal)
    write = journal.writer.write
    calls = []

    def fail_twice(*given: Any) -> None:
        calls.append(given)
        if len(calls) < 3:
            raise MemoryError("no octets left")
        write(*given)

    monkeypatch.setattr(journal.writer, "write", fail_twice)
    alarms: list[str] = []
    journal.on_alarm = alarms.append
    entry = journal.append_entry((1,), b"", b"x")
    with pytest.raises(StorageFault, match="MemoryError: no octets left"):
        journal.commit_now()
    assert not told
    assert "MemoryError: no octets left" in alarms[0]
    journal.tick()
    settle_down(journal)
    assert told[-1] >= entry
    assert journal.alarm == ""
    journal.close()


def test_a_failed_sync_of_the_directory_does_not_keep_segments(tmp_path: Path) -> None:
    class DirectoryDisk(Disk):
        failures = 2
        has_removed = False

        def rename(self, old: str, new: str) -> None:
            super().rename(old, new)
            self.has_removed = self.has_removed or old.endswith(".segment")

        def sync_directory(self, path: str) -> None:
            if self.failures and self.has_removed:
                self.failures -= 1
                self.has_removed = False
                raise OSError(errno.EIO, "Input/output error")
            super().sync_directory(path)

    disk = DirectoryDisk()
    options = JournalOptions(threaded=False, segment_octets=1 << 16, rewrite_delay_ms=0)
    journal = Journal.open(str(tmp_path), disk, options)
    journal.recover(Told())
    for _ in range(200):
        entry = journal.append_entry((1,), b"", bytes(10_000))
        journal.commit_now()
        journal.append_settle(1, entry)
        journal.commit_now()
        journal.tick()
    settle_down(journal)
    assert disk.failures == 0
    assert len(list(tmp_path.glob("*.segment"))) < 5
    assert len(list(tmp_path.glob("spare.*"))) < 3
    assert journal.alarm == ""
    journal.close()


def test_a_settled_entry_is_not_recovered(tmp_path: Path) -> None:
    journal, _, _ = opened(tmp_path)
    shared = journal.append_entry((1, 2), b"", b"shared")
    alone = journal.append_entry((1,), b"", b"alone")
    assert journal.append_settle(1, shared)
    assert journal.append_settle(1, alone)
    assert not journal.append_settle(1, alone)
    assert not journal.append_settle(9, shared)
    journal.commit_now()
    journal.close()
    _, told, _ = opened(tmp_path)
    assert [(sequence, owners) for sequence, owners, _, _ in told.entries] == [(shared, (2,))]


def test_an_entry_can_be_read_before_it_is_written(tmp_path: Path) -> None:
    journal, _, _ = opened(tmp_path)
    sequence = journal.append_entry((1,), b"h", b"p")
    assert journal.read_entry(sequence) == (b"h", b"p")
    journal.commit_now()
    assert journal.read_entries([sequence]) == [(b"h", b"p")]
    journal.append_settle(1, sequence)
    with pytest.raises(StorageFault, match="no entry"):
        journal.read_entry(sequence)
    journal.close()


def test_a_group_without_its_commit_is_dropped(tmp_path: Path) -> None:
    journal, _, _ = opened(tmp_path)
    before = journal.append_entry((1,), b"", b"before")
    journal.begin_group()
    journal.append_entry((1,), b"", b"in the group")
    journal.append_settle(1, before)
    journal.flush_settles()
    journal.commit_now()
    journal.close()
    journal, told, report = opened(tmp_path)
    assert [sequence for sequence, _, _, _ in told.entries] == [before]
    assert report.groups_dropped == 1
    journal.begin_group()
    after = journal.append_entry((1,), b"", b"after")
    journal.append_settle(1, before)
    journal.commit_group()
    journal.commit_now()
    journal.close()
    _, told, report = opened(tmp_path)
    assert [sequence for sequence, _, _, _ in told.entries] == [after]
    assert report.groups_dropped == 0


class Bug(Exception):
    pass


def fail_in_group(journal: Journal) -> None:
    with journal.group():
        journal.append_entry((1,), b"", b"inside")
        raise Bug


def test_a_group_is_closed_by_an_exception_and_has_what_came_before_it(tmp_path: Path) -> None:
    journal, _, _ = opened(tmp_path)
    with pytest.raises(Bug):
        fail_in_group(journal)
    inside = journal.next_sequence - 2  # the last one is the end of the group
    assert not journal.in_group()
    after = journal.append_entry((1,), b"", b"after")
    journal.commit_now()
    journal.close()
    _, told, report = opened(tmp_path)
    assert [sequence for sequence, _, _, _ in told.entries] == [inside, after]
    assert report.groups_dropped == 0


def test_a_group_inside_a_group_is_part_of_it(tmp_path: Path) -> None:
    journal, _, _ = opened(tmp_path)
    with journal.group() as outer:
        first = journal.append_entry((1,), b"", b"first")
        with pytest.raises(Bug):
            fail_in_group(journal)
        second = journal.next_sequence - 1
        assert journal.in_group()
        third = journal.append_entry((1,), b"", b"third")
    assert outer.sequence > third
    journal.commit_now()
    journal.close()
    _, told, _ = opened(tmp_path)
    assert [sequence for sequence, _, _, _ in told.entries] == [first, second, third]


def test_topology_that_is_too_large_leaves_the_old_one(tmp_path: Path) -> None:
    journal, _, _ = opened(tmp_path)
    journal.put_value(b"key", b"old")
    with pytest.raises(StorageFault, match="too large"), journal.group():
        journal.put_value(b"key", bytes(1 << 30))
    assert journal.values == {b"key": b"old"}
    assert journal.value_octets == 6
    journal.commit_now()
    journal.close()
    _, told, _ = opened(tmp_path)
    assert told.keys == {b"key": b"old"}


def test_a_group_without_an_end_that_was_synced_is_a_loss_and_is_told(tmp_path: Path) -> None:
    """No crash leaves this: what was synced behind it was promised."""
    journal, _, _ = opened(tmp_path)
    before = journal.append_entry((1,), b"", b"before")
    journal.begin_group()
    lost = [journal.append_entry((1,), b"", b"in the group") for _ in range(3)]
    journal.commit_now()
    lost.append(journal.append_entry((1,), b"", b"of the group too, since it has no end"))
    journal.commit_now()
    journal.close()
    checked = check(str(tmp_path))
    assert checked.records_dropped == lost
    assert not checked.sound
    assert any("4 synced records" in line for line in checked.lines())
    _, told, report = opened(tmp_path)
    assert [sequence for sequence, _, _, _ in told.entries] == [before]
    assert report.records_dropped == lost
    assert report.losses()[0] in report.lines()
    assert check(str(tmp_path)).sound, "told once, by whoever dropped them"


def test_a_group_torn_off_by_a_crash_is_no_loss(tmp_path: Path) -> None:
    journal, _, _ = opened(tmp_path)
    journal.append_entry((1,), b"", b"before")
    journal.commit_now()
    journal.begin_group()
    journal.append_entry((1,), b"", b"in the group")
    journal.commit_now()
    journal.close()
    (tmp_path / "segments.promised").unlink()  # the power failed before it was synced
    assert check(str(tmp_path)).sound
    _, _, report = opened(tmp_path)
    assert report.groups_dropped == 1
    assert report.losses() == []


def test_a_group_larger_than_a_segment_is_whole(tmp_path: Path) -> None:
    journal, _, _ = opened(tmp_path)
    journal.append_entry((1,), b"", bytes(40_000))
    journal.begin_group()
    sequences = [journal.append_entry((1,), b"", bytes([n]) * 9_000) for n in range(30)]
    journal.commit_group()
    journal.commit_now()
    journal.close()
    journal, told, _ = opened(tmp_path)
    assert [sequence for sequence, _, _, _ in told.entries][1:] == sequences
    assert [payload[:1] for _, payload in journal.read_entries(sequences)] == [bytes([n]) for n in range(30)]
    journal.close()


def test_one_directory_serves_one_process(tmp_path: Path) -> None:
    journal, _, _ = opened(tmp_path)
    with pytest.raises(StorageFault, match=f"in use by process {os.getpid()}"):
        Journal.open(str(tmp_path), Disk())
    journal.close()
    opened(tmp_path)[0].close()


def test_the_writer_thread_reports_what_is_synced(tmp_path: Path) -> None:
    woken = threading.Event()
    journal, _, _ = opened(tmp_path, JournalOptions(segment_octets=1 << 16), woken.set)
    synced: list[int] = []
    journal.on_synced = synced.append
    last = 0
    for _ in range(5):
        last = journal.append_entry((1,), b"", b"x" * 100)
        journal.end_batch()
    while not synced or synced[-1] < last:
        assert woken.wait(10)
        woken.clear()
        journal.collect()
    assert synced == sorted(synced)
    journal.close()
    assert len(opened(tmp_path)[1].entries) == 5


@pytest.mark.parametrize("policy", list(SyncPolicy))
def test_every_policy_survives_a_clean_end(tmp_path: Path, policy: SyncPolicy) -> None:
    journal, _, _ = opened(tmp_path, JournalOptions(threaded=False, segment_octets=1 << 16, sync=policy))
    for n in range(3000):
        journal.append_entry((1,), b"", b"%d" % n)
        if n % 100 == 0:
            journal.end_batch()
            journal.collect()
    journal.close()
    assert len(opened(tmp_path)[1].entries) == 3000


def test_disk_use_follows_the_live_data(tmp_path: Path) -> None:
    journal, _, _ = opened(tmp_path)
    kept = []
    for round_number in range(40):
        sequences = [journal.append_entry((1,), b"h", b"x" * 500) for _ in range(100)]
        journal.commit_now()
        # One of each hundred stays: it must not pin the rest.
        kept.append(sequences.pop(round_number))
        assert journal.settle_many(1, sequences) == 99
        journal.commit_now()
    settle_down(journal)
    assert journal.disk_octets() < 2 * journal.live_octets() + 2 * SMALL.segment_octets
    on_disk = sum(path.stat().st_size for path in tmp_path.glob("*.segment"))
    assert on_disk <= 2 * journal.live_octets() + 2 * SMALL.segment_octets
    assert [payload for _, payload in journal.read_entries(kept)] == [b"x" * 500] * 40
    journal.close()
    assert [sequence for sequence, _, _, _ in opened(tmp_path)[1].entries] == kept


def test_topology_does_not_pin_dead_segments(tmp_path: Path) -> None:
    journal, _, _ = opened(tmp_path)
    for n in range(5000):
        journal.put_value(b"key%d" % (n % 10), b"%d" % n)
        journal.delete_value(b"key%d" % ((n + 5) % 10))
        journal.append_settle(1, journal.append_entry((1,), b"", b"x" * 100))
        if n % 50 == 0:
            journal.commit_now()
    expected = dict(journal.values)
    settle_down(journal)
    assert journal.disk_octets() <= 3 * SMALL.segment_octets
    journal.close()
    _, told, _ = opened(tmp_path)
    assert told.keys == expected
    assert told.entries == []


def test_a_spooled_payload_survives_and_goes_with_its_entry(tmp_path: Path) -> None:
    journal, _, _ = opened(tmp_path)
    spool = journal.open_spool()
    for n in range(10):
        spool.append(bytes([n]) * 1000)
    spool.finish()
    forgotten = journal.open_spool()
    forgotten.append(b"never stored")
    sequence = journal.append_spooled((1,), b"h", spool)
    journal.commit_now()
    journal.close()
    journal, told, report = opened(tmp_path)
    assert told.entries == [(sequence, (1,), b"h", 10_000)]
    assert report.spools_removed == 1
    again = journal.spool_of(sequence)
    assert again is not None
    assert again.read(1990, 20) == b"\x01" * 10 + b"\x02" * 10
    assert again.verify()
    assert journal.read_entry(sequence) == (b"h", b"")
    journal.append_settle(1, sequence)
    journal.commit_now()
    assert list(tmp_path.glob("*.spool")) == []
    journal.close()


def test_an_entry_too_large_for_a_segment_gets_its_own(tmp_path: Path) -> None:
    journal, _, _ = opened(tmp_path)
    large = journal.append_entry((1,), b"", b"L" * 300_000)
    small = journal.append_entry((1,), b"", b"s")
    journal.commit_now()
    journal.close()
    journal, _, _ = opened(tmp_path)
    assert journal.read_entries([large, small]) == [(b"", b"L" * 300_000), (b"", b"s")]
    journal.close()


def test_an_entry_without_owners_is_refused(tmp_path: Path) -> None:
    journal, _, _ = opened(tmp_path)
    with pytest.raises(ValueError, match="owners"):
        journal.append_entry((), b"", b"")
    with pytest.raises(ValueError, match="owners"):
        journal.append_entry((1, 1), b"", b"")
    journal.close()


class CountedDisk(Disk):
    """Says how much is free."""

    free = 1 << 40

    def free_octets(self, path: str) -> int:
        return self.free


def test_a_file_of_another_size_is_no_spare(tmp_path: Path) -> None:
    """A segment that was made larger for one record gives its room back when the disk is short of it."""
    disk = CountedDisk()
    options = JournalOptions(threaded=False, segment_octets=1 << 16, disk_free_octets_min=1000)
    journal = Journal.open(str(tmp_path), disk, options)
    journal.recover(Told())
    settle_down(journal)
    large = journal.append_entry((1,), b"head", b"x" * 1_000_000)
    settle_down(journal)
    disk.free = 0
    settle_down(journal)
    journal.append_entry((1,), b"head", b"y" * 60_000)  # takes the spare, and none is made in its place
    settle_down(journal)
    assert max(file.stat().st_size for file in tmp_path.iterdir()) > 1_000_000
    journal.append_settle(1, large)
    settle_down(journal)
    assert max(file.stat().st_size for file in tmp_path.iterdir()) < 1_000_000
    journal.close()


def test_the_overflow_names_the_data_directory_whose_disk_is_full(tmp_path: Path) -> None:
    disk = CountedDisk()
    options = JournalOptions(threaded=False, segment_octets=1 << 16, disk_free_octets_min=1000)
    overflow = Overflow.open(str(tmp_path / "overflow"), disk, options)
    disk.free = 0
    overflow.journal.require_free(1 << 21)
    assert overflow.journal.alarm.startswith(f"{tmp_path} has 0 octets free, less than the ")
    overflow.journal.close()


def test_the_room_that_must_be_free_is_changed_while_the_journal_is_open(tmp_path: Path) -> None:
    disk = CountedDisk()
    options = JournalOptions(threaded=False, segment_octets=1 << 16, disk_free_octets_min=1000)
    journal = Journal.open(str(tmp_path), disk, options)
    journal.recover(Told())
    disk.free = 1 << 20
    journal.require_free(1 << 21)
    assert "1048576 octets free, less than the 2097152" in journal.alarm
    journal.require_free(1 << 19)
    assert not journal.alarm
    journal.limit_batch(1000)
    assert journal.behind_octets == 1000
    journal.limit_batch(1 << 40)
    assert journal.behind_octets == BEHIND_OCTETS, "it may grow again"
    journal.close()


def test_a_portion_of_a_backlog_costs_its_own_octets(tmp_path: Path) -> None:
    class CountedDisk(Disk):
        octets = 0

        def read(self, handle: int, at: int, count: int) -> bytes:
            read = super().read(handle, at, count)
            self.octets += len(read)
            return read

    disk = CountedDisk()
    journal = Journal.open(str(tmp_path), disk, JournalOptions(threaded=False))
    journal.recover(Told())
    sequences = [journal.append_entry((1,), b"h", bytes(1000)) for _ in range(2000)]
    journal.commit_now()
    disk.octets = 0
    portions = [journal.read_entries(sequences[at : at + 100]) for at in range(0, 2000, 100)]
    assert portions == [[(b"h", bytes(1000))] * 100] * 20
    assert disk.octets < 2000 * 1100
    assert journal.entry_octets(sequences[0]) >= 1000
    assert journal.entry_octets(sequences[-1] + 1) == 0, "there is none"
    journal.close()


class UnreadableDisk(Disk):
    refuses_reads = False

    def read(self, handle: int, at: int, count: int) -> bytes:
        if self.refuses_reads:
            raise OSError(errno.EIO, "Input/output error")
        return super().read(handle, at, count)


def test_a_segment_that_cannot_be_read_is_tidied_up_when_it_can_be(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = UnreadableDisk()
    clock = MovableClock()
    journal = Journal.open(str(tmp_path), disk, SMALL, clock)
    journal.recover(Told())
    sequences = [journal.append_entry((1,), b"", bytes(1000)) for _ in range(300)]
    journal.commit_now()
    disk.refuses_reads = True
    for sequence in sequences:
        if sequence % 50:
            journal.append_settle(1, sequence)
    settle_down(journal)
    assert journal.alarm == ""
    assert caplog.text.count("cannot be read: Input/output error") == 1
    segments = len(list(tmp_path.glob("*.segment")))
    disk.refuses_reads = False
    clock.ahead_s += 60
    settle_down(journal)
    assert len(list(tmp_path.glob("*.segment"))) < segments
    kept = [sequence for sequence in sequences if not sequence % 50]
    assert journal.read_entries(kept) == [(b"", bytes(1000))] * 6
    journal.close()


@pytest.mark.parametrize("is_idle", [False, True])
def test_what_is_in_a_file_that_was_removed_is_copied_and_nothing_is_promised_there(
    tmp_path: Path, is_idle: bool, caplog: pytest.LogCaptureFixture
) -> None:
    journal = Journal.open(str(tmp_path), Disk(), JournalOptions(threaded=False))
    journal.recover(Told())
    journal.put_value(b"key", b"value")
    before = [journal.append_entry((1,), b"h", b"before %d" % number) for number in range(20)]
    journal.commit_now()
    (file,) = tmp_path.glob("*.segment")
    file.unlink()
    after = [] if is_idle else [journal.append_entry((1,), b"h", b"after")]
    if not is_idle:
        journal.commit_now()
    for _ in range(20):
        journal.tick()
        journal.end_batch()
    assert "was removed while the broker uses it" in caplog.text
    assert not journal.alarm
    files = tmp_path.with_name(tmp_path.name + "-copy")
    shutil.copytree(tmp_path, files)
    told = Told()
    again = Journal.open(str(files), Disk(), JournalOptions(threaded=False))
    again.recover(told)
    assert [again.read_entry(each)[1] for each in before] == [b"before %d" % n for n in range(20)]
    assert [again.read_entry(each)[1] for each in after] == [b"after"][: len(after)]
    assert again.values[b"key"] == b"value"
    again.close()
    journal.close()


def filled(journal: Journal, segments: int) -> list[int]:
    """Entries in so many segments and some more, a commit for every twenty."""
    entries: list[int] = []
    while len(journal.segments) <= segments:
        entries += [journal.append_entry((1,), b"h", b"%1000d" % (len(entries) + n)) for n in range(20)]
        journal.commit_now()
    return entries


def payloads(journal: Journal, entries: list[int]) -> list[int]:
    return [int(journal.read_entry(each)[1]) for each in entries]


@pytest.mark.parametrize("way", ["many segments are read", "reads fail", "nobody reads"])
def test_the_last_handle_of_a_removed_segment_stays_open_until_its_entries_are_copied(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("flintmq.storage.journal.reader.HANDLES_MAX", 2)
    disk = UnreadableDisk()
    clock = MovableClock()
    journal = Journal.open(str(tmp_path), disk, SMALL, clock)
    journal.recover(Told())
    journal.put_value(b"key", b"value")
    entries = filled(journal, 5)
    journal.read_entry(entries[0])
    min(tmp_path.glob("*.segment")).unlink()
    if way == "many segments are read":
        assert payloads(journal, entries) == list(range(len(entries)))
    elif way == "reads fail":
        disk.refuses_reads = True
        with pytest.raises(UnreadableFault):
            journal.read_entry(entries[0])
        settle_down(journal)
        disk.refuses_reads = False
    clock.ahead_s += 60
    settle_down(journal)
    assert caplog.text.count("was removed while the broker uses it") == 1
    assert payloads(journal, entries) == list(range(len(entries)))
    files = tmp_path.with_name(tmp_path.name + "-copy")
    shutil.copytree(tmp_path, files)
    again, _, report = opened(files)
    assert not report.damaged
    assert payloads(again, entries) == list(range(len(entries)))
    assert again.values == {b"key": b"value"}
    again.close()
    journal.close()


def test_a_removed_segment_that_is_put_back_after_it_was_copied_goes_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A start would bring messages back from it that are settled since."""
    clock = MovableClock()
    journal = Journal.open(str(tmp_path), Disk(), SMALL, clock)
    journal.recover(Told())
    entries = filled(journal, 5)
    journal.read_entry(entries[0])
    file = min(tmp_path.glob("*.segment"))
    file.rename(tmp_path / "away")
    for _ in range(3):
        clock.ahead_s += 60
        settle_down(journal)
    assert 1 not in journal.segments
    (tmp_path / "away").rename(file)
    for _ in range(3):
        clock.ahead_s += 60
        settle_down(journal)
    assert not file.exists()
    assert caplog.text.count("was put back: it is removed") == 1
    assert payloads(journal, entries) == list(range(len(entries)))
    journal.close()


def test_a_removed_segment_that_nobody_has_open_is_told_and_the_values_in_it_are_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = MovableClock()
    journal = Journal.open(str(tmp_path), Disk(), SMALL, clock)
    journal.recover(Told())
    journal.put_value(b"key", b"value")
    entries = filled(journal, 3)
    file = min(tmp_path.glob("*.segment"))
    file.rename(tmp_path / "away")
    settle_down(journal)
    clock.ahead_s += 60
    settle_down(journal)
    assert caplog.text.count("it was removed: its messages wait until it can be read") == 1
    assert list(journal.reader.unreadable) == [1]
    files = tmp_path.with_name(tmp_path.name + "-copy")
    shutil.copytree(tmp_path, files)
    again, _, _ = opened(files)
    assert again.values == {b"key": b"value"}
    again.close()
    (tmp_path / "away").rename(file)
    clock.ahead_s += 60
    settle_down(journal)
    assert not journal.reader.unreadable
    assert payloads(journal, entries) == list(range(len(entries)))
    journal.close()


def test_a_file_that_is_put_back_is_read_as_any_other(tmp_path: Path) -> None:
    journal, _, _ = opened(tmp_path)
    entries = filled(journal, 3)
    journal.read_entry(entries[0])
    file = min(tmp_path.glob("*.segment"))
    file.rename(tmp_path / "away")
    journal.reader.close_one(1)
    assert list(journal.reader.removed) == [1]
    (tmp_path / "away").rename(file)
    journal.tick()
    assert not journal.reader.removed
    assert not journal.victims
    assert payloads(journal, entries) == list(range(len(entries)))
    journal.close()


def test_without_syncs_a_removed_segment_does_not_keep_others_from_being_dropped(tmp_path: Path) -> None:
    journal = Journal.open(str(tmp_path), Disk(), SMALL._replace(sync=SyncPolicy.NEVER), MovableClock())
    journal.recover(Told())
    entries = filled(journal, 3)
    journal.victims.append(1)
    settle_down(journal)
    moved = max(number for number, segment in journal.segments.items() if segment.moved)
    more = filled(journal, len(journal.segments) + 1)
    assert payloads(journal, entries) == list(range(len(entries)))
    (tmp_path / f"{moved:016d}.segment").unlink()
    journal.reader.close_one(moved)
    assert list(journal.reader.removed) == [moved]
    journal.victims.append(2)
    settle_down(journal)
    assert not journal.alarm
    assert not journal.victims
    assert not journal.reader.removed
    assert not (tmp_path / f"{2:016d}.segment").exists()
    assert payloads(journal, entries) == list(range(len(entries)))
    assert payloads(journal, more) == list(range(len(more)))
    journal.close()


class PartlyUnreadableDisk(Disk):
    unreadable = ""

    def read(self, handle: int, at: int, count: int) -> bytes:
        if self.unreadable and str(self.path_of(handle)).endswith(self.unreadable):
            raise OSError(errno.EIO, "Input/output error")
        return super().read(handle, at, count)


@pytest.mark.parametrize("kept_every", [0, 50])
def test_a_segment_that_cannot_be_read_does_not_keep_the_room_of_others(
    tmp_path: Path, kept_every: int
) -> None:
    disk = PartlyUnreadableDisk()
    clock = MovableClock()
    journal = Journal.open(str(tmp_path), disk, SMALL, clock)
    journal.recover(Told())
    first, *others = [journal.append_entry((1,), b"", bytes(1000)) for _ in range(300)]
    journal.commit_now()
    disk.unreadable = f"{1:016d}.segment"
    journal.settle_many(1, others)
    settle_down(journal)
    kept: list[int] = []
    for _ in range(10):
        sequences = [journal.append_entry((1,), b"", bytes(1000)) for _ in range(300)]
        journal.commit_now()
        kept += sequences[::kept_every] if kept_every else []
        journal.settle_many(1, [each for each in sequences if each not in kept])
        settle_down(journal)
        clock.ahead_s += 60
        settle_down(journal)
    assert 1 in journal.segments
    assert len(list(tmp_path.glob("*.segment"))) < 12
    assert journal.read_entries(kept) == [(b"", bytes(1000))] * len(kept)
    disk.unreadable = ""
    clock.ahead_s += 60
    settle_down(journal)
    assert not journal.victims
    assert journal.read_entries([first, *kept]) == [(b"", bytes(1000))] * (1 + len(kept))
    journal.close()
    journal, told, _ = opened(tmp_path)
    assert [sequence for sequence, *_ in told.entries] == [first, *kept]
    journal.close()


def test_victims_that_can_be_read_do_not_wait_for_one_that_cannot_be(tmp_path: Path) -> None:
    disk = PartlyUnreadableDisk()
    clock = MovableClock()
    journal = Journal.open(str(tmp_path), disk, SMALL, clock)
    journal.recover(Told())
    entries = filled(journal, 4)
    disk.unreadable = f"{1:016d}.segment"
    journal.victims += [1, 2]
    for _ in range(4):
        settle_down(journal)
        clock.ahead_s += 60
    assert journal.victims == [1]
    assert 1 in journal.segments
    assert 2 not in journal.segments
    disk.unreadable = ""
    settle_down(journal)
    assert not journal.victims
    assert payloads(journal, entries) == list(range(len(entries)))
    journal.close()


def test_the_search_behind_damage_goes_on_in_the_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To look at every place of a megabyte would hold up everybody for seconds."""
    options = JournalOptions(
        threaded=False, spare_segments=0, rewrite_delay_ms=0, segment_octets=1 << 20, rewrite_step_octets=4096
    )
    journal = Journal.open(str(tmp_path), Disk(), options)
    journal.recover(Told())
    lost: list[int] = []
    journal.on_damage = lambda _, entries: lost.extend(entries)
    entries = []
    while len(journal.segments) < 4:
        entries += [journal.append_entry((1,), b"h", bytes(1000)) for _ in range(100)]
        journal.end_batch()
        journal.collect()
    victim = sorted(journal.segments)[1]
    with (tmp_path / f"{victim:016d}.segment").open("r+b") as file:
        file.seek(1 << 19)
        file.write(os.urandom(1 << 17))
    for number, entry in enumerate(entries):
        journal.index.locate(entry)
        if journal.index.found_location >> 32 != victim or number % 4:
            journal.append_settle(1, entry)
    journal.end_batch()
    journal.collect()
    views: list[int] = []
    view = journal.reader.view

    def counted(segment: int, at: int, size: int) -> tuple[bytes, int]:
        views[-1] += 1
        return view(segment, at, size)

    monkeypatch.setattr(journal.reader, "view", counted)
    for _ in range(5000):
        views.append(0)
        journal.tick()
        if victim not in journal.segments:
            break
    assert victim not in journal.segments
    assert 20 < len(lost) < 40
    assert len(set(lost)) == len(lost)
    assert max(views) < 3000
    journal.close()


@pytest.mark.parametrize("spares", [0, 1])
def test_the_alarm_stays_on_until_a_file_as_large_as_the_refused_one_is_taken(
    tmp_path: Path, spares: int
) -> None:
    """A limit on the size of files takes small ones: else the alarm would go and come with each of them."""

    class LimitedDisk(Disk):
        most = 1 << 30
        trials = 0

        def reserve(self, handle: int, size: int) -> None:
            if size > self.most:
                raise OSError(errno.EFBIG, "File too large")
            super().reserve(handle, size)

        def prewrite(self, path: str, size: int) -> None:
            self.trials += 1
            if size > self.most:
                raise OSError(errno.EFBIG, "File too large")
            super().prewrite(path, size)

    disk = LimitedDisk()
    clock = MovableClock()
    options = JournalOptions(threaded=False, segment_octets=4 << 20, spare_segments=spares)
    journal = Journal.open(str(tmp_path), disk, options, clock)
    disk.most = 2 << 20
    told: list[bool] = []
    journal.on_alarm = lambda _: told.append(True)
    journal.on_clear = lambda: told.append(False)
    journal.recover(Told())

    def publish(seconds: int) -> None:
        for _ in range(seconds):
            journal.append_entry((1,), b"h", bytes(300_000))
            journal.end_batch()
            for _ in range(4):
                clock.ahead_s += 0.25
                journal.tick()

    publish(20)
    assert True in told
    assert False not in told[told.index(True) :]
    assert disk.trials <= 6
    disk.most = 1 << 30
    publish(10)
    assert told[-1] is False
    assert told.count(False) == 1
    assert journal.synced_sequence == journal.next_sequence - 1
    journal.close()


def test_the_segments_that_a_settle_must_outlive_are_found_by_their_ranges() -> None:
    chance = random.Random(1)
    for _ in range(200):
        segments: dict[int, Segment] = {}
        first = 1
        for number in range(1, chance.randrange(2, 30)):
            segments[number] = made = Segment(number, 4096)
            made.first_sequence = max(1, first - chance.choice((0, 0, 0, 5)))  # an abandoned one before it
            first += chance.randrange(1, 40)
            made.last_sequence = first - 1
            made.moved = chance.choice((0, 0, 0, 1))
        victim = Segment(99, 4096)
        victim.obliges = dict.fromkeys(chance.sample(range(1, 40), 20), 16)
        obliged = ObligedSegments(victim, segments)
        for _ in range(20):
            start = chance.randrange(1, first + 10)
            end = start + chance.choice((1, 1, 50))
            wanted = {
                number
                for number in victim.obliges
                if number in segments and (segments[number].moved or segments[number].may_hold(start, end))
            }
            assert {*obliged.holding(start, end), *obliged.moved} == wanted
