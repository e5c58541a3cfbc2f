"""Many short lives of one journal on real files, threads on: all that was appended outlives a clean close.

Which thread comes first is up to the machine, so a seed fixes what is asked for and not what happens:
run many, on a busy machine. FLINTMQ_LIVES=1000:3000 runs these seeds and no others.
"""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path

import pytest

from flintmq.storage.disk import SystemDisk
from flintmq.storage.journal.journal import Journal
from flintmq.storage.options import JournalOptions, SyncPolicy

from .journal_history import Told

LIVES = 12


class Lives:
    """One directory, opened and closed again and again, and what must be in it."""

    def __init__(self, seed: int, directory: Path) -> None:
        self.chance = random.Random(seed)
        self.directory = str(directory)
        self.keys: dict[bytes, bytes] = {}
        self.entries: dict[int, set[int]] = {}
        self.stamp = 0
        self.synced = 0
        self.woken = threading.Event()

    def run(self) -> None:
        for life in range(LIVES):
            self.live(life)
        journal = self.open("the end")
        journal.close()

    def open(self, life: object) -> Journal:
        options = JournalOptions(
            sync=self.chance.choice((*[SyncPolicy.ALWAYS] * 3, SyncPolicy.INTERVAL, SyncPolicy.NEVER)),
            sync_interval_ms=1,
            segment_octets=self.chance.choice((4096, 4096, 16_384)),
            spare_segments=self.chance.choice((0, 1, 2)),
            rewrite_step_octets=self.chance.choice((64, 512, 65_536)),
            rewrite_delay_ms=0,
        )
        journal = Journal.open(self.directory, SystemDisk(), options, wake=self.woken.set)
        told = Told()
        report = journal.recover(told)
        assert report.damaged == [], f"life {life}: {report.lines()}"
        assert told.keys == self.keys, f"life {life}: topology differs"
        assert {sequence: set(owners) for sequence, owners, _, _ in told.entries} == self.entries, (
            f"life {life}: entries differ"
        )
        journal.on_synced = self.on_synced
        journal.on_damage = self.on_damage
        self.synced = journal.synced_sequence
        return journal

    def on_synced(self, sequence: int) -> None:
        self.synced = sequence

    def on_damage(self, segment: int, sequences: list[int]) -> None:
        raise AssertionError(f"damage in segment {segment}: {sequences}")

    def live(self, life: int) -> None:
        journal = self.open(life)
        for _ in range(self.chance.choice((0, 1, 3, 10, 40))):
            self.turn(journal)
        journal.close()

    def turn(self, journal: Journal) -> None:
        """What a broker does between two looks at its sockets."""
        for _ in range(self.chance.choice((0, 1, 1, 5, 20))):
            self.ask(journal)
        way = self.chance.random()
        if way < 0.5:
            journal.end_batch()
        elif way < 0.7:
            journal.tick()
        elif way < 0.8:
            journal.flush_settles()
            last = journal.next_sequence - 1
            journal.commit_now()
            assert self.synced >= last, "commit_now left something out"
        if self.chance.random() < 0.3:
            self.woken.wait(0.002)
        self.woken.clear()
        journal.collect()

    def ask(self, journal: Journal) -> None:
        way = self.chance.random()
        self.stamp += 1
        if way < 0.25:
            key = b"key%d" % self.chance.randrange(12)
            self.keys[key] = b"value%d" % self.stamp * self.chance.choice((1, 1, 30))
            journal.put_value(key, self.keys[key])
        elif way < 0.35:
            key = b"key%d" % self.chance.randrange(12)
            self.keys.pop(key, None)
            journal.delete_value(key)
        elif way < 0.65 or not self.entries:
            owners = tuple(self.chance.sample(range(1, 5), self.chance.choice((1, 2))))
            payload = bytes(self.chance.choice((10, 100, 1500)))
            self.entries[journal.append_entry(owners, b"h", payload)] = set(owners)
        else:
            sequence = self.chance.choice(list(self.entries)[: self.chance.choice((3, 100))])
            owner = self.entries[sequence].pop()
            assert journal.append_settle(owner, sequence)
            if not self.entries[sequence]:
                del self.entries[sequence]


def seeds() -> range:
    first, last = map(int, os.environ.get("FLINTMQ_LIVES", "0:20").split(":"))
    return range(first, last)


@pytest.mark.timeout(3600)
def test_a_clean_close_loses_nothing(tmp_path: Path) -> None:
    for seed in seeds():
        directory = tmp_path / str(seed)
        try:
            Lives(seed, directory).run()
        except AssertionError as failure:
            raise AssertionError(f"seed {seed}: {failure}") from failure
