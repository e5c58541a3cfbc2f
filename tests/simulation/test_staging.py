"""Parts of a staged content on a disk that fails and loses power: what was told as staged is there."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

from flintmq.errors import StorageFault
from flintmq.storage.spool import STAGED, Spool, SpoolStore
from flintmq.storage.staging_files import StagingFiles

from . import staging_history
from .simulated_disk import PowerLost, SimulatedDisk
from .test_journal_failures import Bench

KEY = STAGED + b"one"
LIVES = 6
PARTS = 30


class Upload:
    """Sends one content in parts, over several lives of the broker."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.bench = Bench()
        self.bench.disk.chance = self.chance
        self.told = b""  # what an answer has said is staged
        self.files, self.spool = self.begin()

    def begin(self) -> tuple[StagingFiles, Spool]:
        journal = self.bench.journal
        files = StagingFiles(journal, None)
        value = self.bench.journal.values.get(KEY)
        if value is None:
            spool = files.create()
            assert self.told == b""
        else:
            found = files.find(int.from_bytes(value[:8], "little"))
            assert found is not None
            spool = found
        return files, spool

    def append(self) -> None:
        """One part, which the disk may not take."""
        disk, journal = self.bench.disk, self.bench.journal
        part = self.chance.randbytes(self.chance.randrange(1, 5000))
        draw = self.chance.random()
        disk.write_failures_left = int(draw < 0.1)
        disk.sync_failures_left = int(0.1 <= draw < 0.2)
        before = self.spool.octets
        failed: list[OSError | None] = []
        self.files.extend(self.spool, part, failed.append)
        if failed == [None]:
            self.sent = self.sent[:before] + part
            journal.put_value(KEY, self.spool.staged_reference())
        else:
            assert self.spool.octets == before
        try:
            journal.commit_now()
        except StorageFault:
            self.bench.clock.now_s += 1
            journal.tick()
            return
        self.told = self.sent[: self.spool.octets]

    def live(self) -> None:
        """Until the power goes, or the process is killed."""
        self.sent = self.spool.read(0, self.spool.octets) if self.spool.octets else b""
        assert self.sent.startswith(self.told)
        assert self.spool.verify()
        self.bench.disk.power_left = self.chance.randrange(6 * PARTS)
        with suppress(PowerLost):
            for _ in range(PARTS):
                self.append()
        disk = self.bench.disk
        disk.power_left = None
        disk.write_failures_left = disk.sync_failures_left = 0
        if self.chance.random() < 0.7:
            disk.crash()
        else:
            disk.kill()
        self.bench.reopen()
        self.files, self.spool = self.begin()


@pytest.mark.parametrize("seed", range(20))
def test_what_was_told_as_staged_is_there_after_a_crash(seed: int) -> None:
    upload = Upload(seed)
    for _ in range(LIVES):
        upload.live()
    assert upload.told


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_contents_are_staged_and_published_over_many_lives(first: int) -> None:
    for seed in range(first, first + 10):
        staging_history.run_seed(seed)


def test_the_name_of_a_content_without_a_file_is_not_given_again() -> None:
    """A crash may leave nothing else of an epoch than the record of a content that was opened."""
    disk = SimulatedDisk(random.Random(1))
    before = SpoolStore(disk, "/data")
    before.epoch = 2
    record = before.stage().staged_reference()
    after = SpoolStore(disk, "/data")
    after.epoch = 2
    found = after.reopen_staged(record)
    assert found is not None
    assert after.stage().path != found.path


@pytest.mark.parametrize("seed", [2039, 2532, 3536])
def test_two_contents_never_share_a_file(seed: int) -> None:
    staging_history.run_seed(seed)
