"""A checkpoint voids all older topology, so nothing of it may reach the disk before what replaces that."""

from __future__ import annotations

import copy
import random

from flintmq.storage.journal.journal import Journal
from flintmq.storage.options import JournalOptions

from .journal_history import DIRECTORY, SimulatedClock, Told
from .simulated_disk import SECTOR, SimulatedDisk


class LastSectorDisk(SimulatedDisk):
    """Keeps a copy of itself before each sync; losing power there leaves the last sector of each file."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self.moments: list[SimulatedDisk] = []

    def sync(self, handle: int) -> None:
        moments, self.moments = self.moments, []
        moments.append(copy.deepcopy(self))
        self.moments = moments
        super().sync(handle)

    def lose_power(self) -> None:
        for file in self._names.values():
            for at, data in file.unsynced[-1:]:
                if data is not None:
                    start = max(at, (at + len(data) - 1) // SECTOR * SECTOR)
                    file.durable.extend(bytes(max(0, at + len(data) - len(file.durable))))
                    file.durable[start : at + len(data)] = data[start - at :]
            file.unsynced = []
            file.visible = bytearray(file.durable)
        self._handles.clear()


def recovered_keys(disk: SimulatedDisk) -> dict[bytes, bytes]:
    told = Told()
    options = JournalOptions(threaded=False, segment_octets=8192)
    Journal.open(DIRECTORY, disk, options, SimulatedClock(random.Random(1))).recover(told)
    return told.keys


def test_no_key_is_lost_while_a_checkpoint_is_written() -> None:
    disk = LastSectorDisk(random.Random(1))
    clock = SimulatedClock(random.Random(1))
    options = JournalOptions(threaded=False, segment_octets=8192, rewrite_delay_ms=0)
    journal = Journal.open(DIRECTORY, disk, options, clock)
    journal.recover(Told())
    for n in range(30):
        journal.put_value(b"key%02d" % n, b"value" * 10)
    journal.commit_now()
    keys = dict(journal.values)
    for _ in range(40):
        journal.append_settle(1, journal.append_entry((1,), b"", bytes(1000)))
    journal.commit_now()
    disk.moments.clear()
    for _ in range(20):
        clock.now_s += 1
        journal.tick()
    assert journal.reclaimer.checkpoint_sequence, "a checkpoint was written"
    assert disk.moments
    for moment in disk.moments:
        assert isinstance(moment, LastSectorDisk)
        moment.lose_power()
        assert recovered_keys(moment) == keys
    disk.kill()
    assert recovered_keys(disk) == keys


def test_a_journal_at_rest_writes_no_checkpoint_after_the_other() -> None:
    """Where segments that hold no values are two thirds empty, and the values fill most of a segment."""
    disk = SimulatedDisk(random.Random(1))
    clock = SimulatedClock(random.Random(1))
    options = JournalOptions(threaded=False, segment_octets=8192, rewrite_delay_ms=0)
    journal = Journal.open(DIRECTORY, disk, options, clock)
    journal.recover(Told())
    entries = [journal.append_entry((1,), b"", bytes(800)) for _ in range(40)]
    for n in range(60):
        journal.put_value(b"key%02d" % n, b"value" * 15)
    for _ in range(10):
        journal.append_settle(1, journal.append_entry((1,), b"", bytes(1000)))
    for at, sequence in enumerate(entries):
        if at % 3:
            journal.append_settle(1, sequence)
    journal.commit_now()
    written = []
    for _ in range(60):
        clock.now_s += 1
        journal.tick()
        written.append(journal.next_sequence)
    assert journal.reclaimer.checkpoint_sequence, "a checkpoint was written"
    assert written[-20] == written[-1], "the journal writes and writes"
    assert sum(segment.end for segment in journal.segments.values()) < 6 * 8192
