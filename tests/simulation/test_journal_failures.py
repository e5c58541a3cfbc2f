"""Failing writes and syncs, on a simulated disk: never a false promise, and it goes on by itself."""

from __future__ import annotations

import random

import pytest

from flintmq.errors import StorageFault
from flintmq.storage.journal.journal import Journal
from flintmq.storage.options import JournalOptions, SyncPolicy

from .journal_history import DIRECTORY, SimulatedClock, Told
from .simulated_disk import SimulatedDisk


class Bench:
    """A journal on a simulated disk, with what it told."""

    def __init__(self, capacity_octets: int = 1 << 40) -> None:
        chance = random.Random(1)
        self.disk = SimulatedDisk(chance, capacity_octets)
        self.clock = SimulatedClock(chance)
        self.synced: list[int] = []
        self.alarms: list[str] = []
        self.options = JournalOptions(threaded=False, segment_octets=8192, retry_interval_ms=100)
        self.reopen()

    def fill(self) -> list[int]:
        """Append until the disk takes no more."""
        appended = []
        while not self.journal.alarm.startswith("cannot write"):
            appended.append(self.journal.append_entry((1,), b"", bytes(1000)))
            self.journal.end_batch()
            self.journal.collect()
        return appended

    def reopen(self) -> None:
        self.journal = Journal.open(DIRECTORY, self.disk, self.options, self.clock)
        self.journal.on_synced = self.synced.append
        self.journal.on_alarm = self.alarms.append
        self.journal.on_clear = lambda: self.alarms.append("")
        self.told = Told()
        self.journal.recover(self.told)


def test_a_failed_sync_is_written_again_elsewhere() -> None:
    bench = Bench()
    first = bench.journal.append_entry((1,), b"", b"first")
    bench.journal.commit_now()
    bench.disk.sync_failures_left = 1
    second = bench.journal.append_entry((1,), b"", b"second")
    bench.journal.commit_now()
    assert bench.synced == [first, second]
    assert [bool(alarm) for alarm in bench.alarms] == [True, False]
    assert len(bench.journal.segments) == 2
    bench.disk.crash()
    bench.reopen()
    assert [sequence for sequence, _, _, _ in bench.told.entries] == [first, second]


def test_a_full_disk_stalls_tells_and_resumes() -> None:
    bench = Bench(capacity_octets=40_000)
    appended = bench.fill()
    with pytest.raises(StorageFault, match="full disk"):
        bench.journal.commit_now()
    promised = bench.synced[-1]
    assert appended[-1] > promised
    assert "full disk" in bench.alarms[-1]
    assert bench.journal.read_entry(appended[-1]) == (b"", bytes(1000))
    bench.disk.capacity_octets = 1 << 40
    bench.clock.now_s += 1
    bench.journal.tick()
    assert bench.synced[-1] >= appended[-1]
    assert bench.alarms[-1] == ""
    bench.disk.crash()
    bench.reopen()
    assert [sequence for sequence, _, _, _ in bench.told.entries] == appended


def test_the_alarm_comes_while_there_is_room_to_let_go() -> None:
    bench = Bench(capacity_octets=60_000)
    appended = []
    while not bench.alarms:
        appended.append(bench.journal.append_entry((1,), b"", bytes(1000)))
        bench.journal.commit_now()
    assert "cannot prepare a segment" in bench.alarms[0]
    needed_mib = 2 * bench.journal.options.segment_octets / 2**20
    assert bench.alarms[0].endswith(f"the journal needs {needed_mib:g} MiB free to go on")
    for sequence in appended:
        bench.journal.append_settle(1, sequence)
    bench.journal.commit_now()
    for _ in range(20):
        bench.clock.now_s += 1
        bench.journal.tick()
        bench.journal.end_batch()
    assert bench.alarms[-1] == ""
    assert bench.disk.used_octets() <= 3 * 8192


def test_low_space_raises_the_alarm_before_it_is_too_late() -> None:
    bench = Bench(capacity_octets=100_000)
    bench.journal.close()
    bench.options = JournalOptions(threaded=False, segment_octets=8192, disk_free_octets_min=60_000)
    bench.reopen()
    while not bench.alarms:
        bench.journal.append_entry((1,), b"", bytes(1000))
        bench.journal.end_batch()
        bench.journal.tick()
    assert "less than the 60000 of disk_free_bytes_min" in bench.alarms[0]
    bench.disk.capacity_octets = 1 << 40
    bench.journal.tick()
    assert bench.alarms[-1] == ""


def test_a_spool_that_a_failed_sync_took_is_given_up() -> None:
    bench = Bench()
    lost: list[int] = []
    bench.journal.on_damage = lambda segment, sequences: lost.extend(sequences)
    spool = bench.journal.open_spool()
    spool.append(b"x" * 10_000)
    spool.finish()
    bench.disk.sync_failures_left = 1
    bench.disk.chance = random.Random(0)
    kept = bench.journal.append_entry((1,), b"", b"kept")
    gone = bench.journal.append_spooled((1,), b"", spool)
    bench.journal.commit_now()
    assert bench.synced[-1] >= gone
    held = {sequence for sequence in (kept, gone) if bench.journal.holds(sequence)}
    assert held == {kept, gone} - set(lost)
    bench.disk.crash()
    bench.reopen()
    assert {sequence for sequence, _, _, _ in bench.told.entries} == held


def test_what_is_appended_while_a_batch_is_in_flight_is_written_at_the_end() -> None:
    bench = Bench()
    first = bench.journal.append_entry((1,), b"", b"first")
    bench.journal.end_batch()  # written, and not collected yet
    second = bench.journal.append_entry((1,), b"", b"second")
    bench.journal.close()
    bench.disk.crash()
    bench.reopen()
    assert [sequence for sequence, _, _, _ in bench.told.entries] == [first, second]


def test_commit_now_waits_for_what_was_appended_while_a_batch_was_in_flight() -> None:
    bench = Bench()
    bench.journal.append_entry((1,), b"", b"first")
    bench.journal.end_batch()
    second = bench.journal.append_entry((1,), b"", b"second")
    bench.journal.commit_now()
    assert bench.synced[-1] == second


@pytest.mark.parametrize("policy", ["always", "interval", "never"])
def test_a_disk_that_fails_at_the_end_is_told(policy: str) -> None:
    bench = Bench()
    bench.journal.close()
    bench.options = JournalOptions(threaded=False, segment_octets=8192, sync=SyncPolicy(policy))
    bench.reopen()
    bench.journal.append_entry((1,), b"", b"first")
    bench.disk.sync_failures_left = 5
    with pytest.raises(StorageFault, match="simulated sync failure"):
        bench.journal.close()


@pytest.mark.parametrize("cut", range(1, 32))
def test_a_file_may_end_anywhere(cut: int) -> None:
    """The reserved size may be lost with the power: then the file ends where some write did."""
    bench = Bench()
    first = bench.journal.append_entry((1,), b"", b"first")
    bench.journal.commit_now()
    bench.journal.append_entry((1,), b"", b"second")
    bench.journal.commit_now()
    newest = max(name for name in bench.disk.list(DIRECTORY) if name.endswith(".segment"))
    handle = bench.disk.open(f"{DIRECTORY}/{newest}")
    end = len(bench.disk.content(f"{DIRECTORY}/{newest}").rstrip(b"\0"))
    bench.disk.truncate(handle, end - cut)
    bench.disk.kill()
    bench.reopen()
    assert [sequence for sequence, _, _, _ in bench.told.entries] == [first]


def test_a_rewrite_that_a_kill_cut_short_is_no_damage() -> None:
    bench = Bench()
    bench.options = JournalOptions(threaded=False, segment_octets=8192, rewrite_step_octets=1)
    bench.journal.close()
    bench.reopen()
    appended = [bench.journal.append_entry((1,), b"", bytes(1000)) for _ in range(40)]
    bench.journal.commit_now()
    for sequence in appended[::2]:
        bench.journal.append_settle(1, sequence)
    bench.journal.end_batch()
    while not any(segment.moved for segment in bench.journal.segments.values()):
        bench.clock.now_s += 1
        bench.journal.tick()
    bench.disk.kill()
    bench.reopen()
    assert bench.journal.victims
    damaged: list[int] = []
    bench.journal.on_damage = lambda segment, sequences: damaged.append(segment)
    while bench.journal.victims:
        bench.clock.now_s += 1
        bench.journal.tick()
    assert damaged == []
    assert [sequence for sequence in appended if bench.journal.holds(sequence)] == appended[1::2]


def test_while_it_is_held_nothing_goes_to_the_disk() -> None:
    bench = Bench()
    first = bench.journal.append_entry((1,), b"", b"first")
    bench.journal.commit_now()
    bench.journal.append_entry((1,), b"", b"second")
    bench.journal.hold("somebody is not ready")
    with pytest.raises(StorageFault, match="somebody is not ready"):
        bench.journal.commit_now()
    bench.clock.now_s += 10
    bench.journal.tick()
    assert bench.synced == [first]
    bench.disk.kill()
    bench.reopen()
    assert [sequence for sequence, _, _, _ in bench.told.entries] == [first]


def test_a_group_that_is_open_at_the_release_goes_to_the_disk_whole() -> None:
    bench = Bench()
    bench.journal.hold("somebody is not ready")
    bench.journal.append_entry((1,), b"", b"first")
    bench.journal.begin_group()
    second = bench.journal.append_entry((1,), b"", b"second")
    syncs = bench.disk.synced
    bench.journal.release()
    assert bench.disk.synced == syncs
    last = bench.journal.commit_group()
    bench.journal.commit_now()
    assert bench.synced == [last]
    bench.disk.crash()
    bench.reopen()
    assert [sequence for sequence, _, _, _ in bench.told.entries][-1] == second


def test_a_batch_that_fails_meanwhile_waits_too() -> None:
    bench = Bench()
    first = bench.journal.append_entry((1,), b"", b"first")
    bench.disk.sync_failures_left = 1
    bench.journal.end_batch()
    second = bench.journal.append_entry((1,), b"", b"second")
    bench.journal.hold("somebody is not ready")
    bench.journal.collect()  # of the failure
    bench.clock.now_s += 10
    bench.journal.tick()
    assert bench.synced == []
    bench.journal.release()
    bench.journal.collect()
    assert bench.synced == [second]
    bench.disk.crash()
    bench.reopen()
    assert [sequence for sequence, _, _, _ in bench.told.entries] == [first, second]


def synced_by_interval() -> Bench:
    bench = Bench()
    bench.journal.close()
    bench.options = JournalOptions(
        threaded=False, segment_octets=8192, sync=SyncPolicy.INTERVAL, sync_interval_ms=100
    )
    bench.reopen()
    return bench


def test_what_was_promised_before_is_synced_in_time_while_it_is_held() -> None:
    bench = synced_by_interval()
    first = bench.journal.append_entry((1,), b"", b"first")
    bench.journal.commit_now()
    assert bench.synced == [first]
    second = bench.journal.append_entry((1,), b"", b"second")
    bench.journal.hold("somebody is not ready")
    bench.clock.now_s += 1
    bench.journal.tick()
    bench.disk.crash()
    bench.reopen()
    assert [sequence for sequence, _, _, _ in bench.told.entries] == [first]
    assert second == first + 1


@pytest.mark.parametrize("fails", [False, True])
def test_it_goes_on_after_a_sync_while_it_was_held(fails: bool) -> None:
    bench = synced_by_interval()
    first = bench.journal.append_entry((1,), b"", b"first")
    bench.journal.commit_now()
    second = bench.journal.append_entry((1,), b"", b"second")
    bench.journal.hold("somebody is not ready")
    bench.clock.now_s += 1
    bench.disk.sync_failures_left = int(fails)
    bench.journal.tick()
    bench.journal.release()
    third = bench.journal.append_entry((1,), b"", b"third")
    bench.journal.close()
    bench.disk.crash()
    bench.reopen()
    assert [sequence for sequence, _, _, _ in bench.told.entries] == [first, second, third]
