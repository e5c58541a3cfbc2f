"""Spools beside each other: how many descriptors they have, and what becomes of octets that the disk lost."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from flintmq.errors import StorageFault
from flintmq.storage import spool as spools
from flintmq.storage.disk import Disk
from flintmq.storage.journal.journal import Journal
from flintmq.storage.options import JournalOptions
from flintmq.storage.spool import Spool, SpoolReader

from .test_journal import Told

MANY = 20


class CountingDisk(Disk):
    """Counts the spools that are open."""

    def __init__(self) -> None:
        super().__init__()
        self.open_ones: set[int] = set()
        self.most = 0

    def noted(self, path: str, handle: int) -> int:
        if path.endswith(".spool"):
            self.open_ones.add(handle)
            self.most = max(self.most, len(self.open_ones))
        return handle

    def open(self, path: str, create: bool = False) -> int:
        return self.noted(path, super().open(path, create))

    def open_to_read(self, path: str) -> int:
        return self.noted(path, super().open_to_read(path))

    def close(self, handle: int) -> None:
        self.open_ones.discard(handle)
        super().close(handle)


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spools, "OPEN_MAX", 4)


@pytest.fixture
def disk() -> CountingDisk:
    return CountingDisk()


@pytest.fixture
def journal(disk: CountingDisk, tmp_path: Path) -> Journal:
    journal = Journal.open(str(tmp_path), disk, JournalOptions(threaded=False))
    journal.recover(Told())
    return journal


def written(journal: Journal, count: int = MANY) -> list[Spool]:
    """So many bodies that came at the same time, part by part."""
    coming = [journal.open_spool() for _ in range(count)]
    for part in range(3):
        for number, each in enumerate(coming):
            each.append(bytes([number, part]) * 1000)
    for each in coming:
        each.finish()
    return coming


def body(number: int) -> bytes:
    return b"".join(bytes([number, part]) * 1000 for part in range(3))


def test_bodies_that_come_at_the_same_time_have_few_descriptors(journal: Journal, disk: CountingDisk) -> None:
    coming = written(journal)
    assert disk.most <= 5, "the one that is opened comes before another one rests"
    sequences = [journal.append_spooled((1,), b"h", each) for each in coming]
    journal.commit_now()
    assert disk.most <= 9, "as many more wait for the journal's writer"
    assert not disk.open_ones, "what is synced is at rest"
    for number, sequence in enumerate(sequences):
        kept = journal.spool_of(sequence)
        assert kept is not None
        assert kept.secured
        assert kept.read(0, 6000) == body(number)
    journal.close()


def test_bodies_that_are_read_at_the_same_time_have_few_descriptors(
    journal: Journal, disk: CountingDisk
) -> None:
    kept = written(journal)
    readers = [SpoolReader(each) for each in kept]
    parts = [b""] * MANY
    for at in range(0, 6000, 1500):
        for number, reader in enumerate(readers):
            parts[number] += reader.read(at, 1500)
    assert parts == [body(number) for number in range(MANY)]
    assert disk.most <= 5
    for reader in readers:
        reader.close()
    for each in kept:
        each.discard()
    assert not disk.open_ones
    journal.close()


def test_what_the_disk_lost_of_a_body_at_rest_is_not_promised(journal: Journal, tmp_path: Path) -> None:
    """An error in writing it may have been told to nobody, as no descriptor was open."""
    lost = written(journal)[0]
    assert lost.handle < 0
    octets = bytearray(Path(lost.path).read_bytes())
    octets[100] ^= 1
    Path(lost.path).write_bytes(octets)
    with pytest.raises(OSError, match="was lost by a failed sync"):
        lost.secure()
    assert not lost.secured
    journal.close()


def test_a_body_at_rest_that_cannot_be_read_is_looked_at_again(
    journal: Journal, disk: CountingDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next try does not take it for one that was seen to be whole."""
    at_rest = written(journal)[0]
    read = disk.read

    def failing(handle: int, at: int, count: int) -> bytes:
        raise OSError(errno.EIO, "the disk says no")

    monkeypatch.setattr(disk, "read", failing)
    with pytest.raises(OSError, match="the disk says no"):
        at_rest.secure()
    with pytest.raises(OSError, match="the disk says no"):
        at_rest.secure()
    assert not at_rest.secured
    monkeypatch.setattr(disk, "read", read)
    at_rest.secure()
    assert at_rest.secured
    journal.close()


def test_a_body_that_can_never_be_read_is_lost_alone_before_it_is_confirmed(
    disk: CountingDisk, tmp_path: Path
) -> None:
    journal = Journal.open(str(tmp_path), disk, JournalOptions(threaded=False, retry_interval_ms=0))
    journal.recover(Told())
    lost: list[int] = []
    journal.on_damage = lambda _, entries: lost.extend(entries)
    unreadable, *others = written(journal, 3)
    unreadable.rest()  # so that a failure to write it may have been told to nobody
    sequences = [journal.append_spooled((1,), b"h", each) for each in (unreadable, *others)]
    read = disk.read

    def failing(handle: int, at: int, count: int) -> bytes:
        if disk.path_of(handle) == unreadable.path:
            raise OSError(errno.EIO, "the disk says no")
        return read(handle, at, count)

    disk.read = failing  # type: ignore[method-assign]
    journal.end_batch()
    for _ in range(10):
        journal.tick()
    assert lost == sequences[:1]
    assert journal.synced_sequence == journal.next_sequence - 1
    assert not list(tmp_path.rglob("*.copy"))
    assert not journal.alarm
    journal.close()


def test_a_file_that_cannot_be_removed_is_told_once_and_holds_up_nobody(
    journal: Journal, disk: CountingDisk, caplog: pytest.LogCaptureFixture
) -> None:
    def refusing(path: str) -> None:
        raise OSError(errno.EIO, "Input/output error", path)

    delete, disk.delete = disk.delete, refusing  # type: ignore[method-assign]
    for each in written(journal, 3):
        journal.append_settle(1, journal.append_spooled((1,), b"h", each))
    journal.commit_now()
    journal.tick()
    assert caplog.text.count("stays until the next start: Input/output error") == 1
    disk.delete = delete  # type: ignore[method-assign]
    journal.close()


def test_a_body_at_rest_that_was_removed_is_lost_alone(journal: Journal) -> None:
    """The journal goes on: what waits to be synced with the body does not wait for ever."""
    removed = written(journal)[0]
    Path(removed.path).unlink()
    with pytest.raises(OSError, match="was removed before it was synced"):
        removed.secure()
    assert removed.lost
    journal.close()


def test_a_body_of_two_entries_stays_with_the_writer(journal: Journal, disk: CountingDisk) -> None:
    first, *others = written(journal, 4)
    journal.append_spooled((1,), b"h", first)
    for each in others:
        journal.append_spooled((1,), b"h", each)
    handle = first.handle
    journal.append_spooled((2,), b"h", first.share())
    assert first.handle == handle
    journal.commit_now()
    assert not disk.open_ones
    journal.close()


def test_a_close_that_fails_costs_no_body(
    journal: Journal, disk: CountingDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it may tell of was written to another descriptor than the next one: such a body is copied."""
    close, rename = disk.close, disk.rename
    copied: list[str] = []

    def failing(handle: int) -> None:
        is_spool = handle in disk.open_ones
        close(handle)
        if is_spool:
            raise OSError(errno.EDQUOT, "Disk quota exceeded")

    def counted(old: str, new: str) -> None:
        copied.append(new)
        rename(old, new)

    monkeypatch.setattr(disk, "close", failing)
    monkeypatch.setattr(disk, "rename", counted)
    coming = written(journal)
    sequences = [journal.append_spooled((1,), b"h", each) for each in coming]
    journal.commit_now()
    assert {each.path for each in coming[: MANY // 2]} <= set(copied), "those that were at rest"
    assert not disk.open_ones
    for number, sequence in enumerate(sequences):
        kept = journal.spool_of(sequence)
        assert kept is not None
        assert kept.secured
        assert kept.read(0, 6000) == body(number)
    journal.close()


def changed(path: str) -> None:
    octets = bytearray(Path(path).read_bytes())
    octets[100] ^= 1
    Path(path).write_bytes(octets)


def test_a_body_that_is_not_what_was_stored_is_never_handed_on_whole(journal: Journal) -> None:
    damaged = written(journal, 1)[0]
    changed(damaged.path)
    reader = SpoolReader(damaged)
    reader.read(0, 3000)
    reader.read(3000, 2999)
    with pytest.raises(StorageFault, match="its checksum is wrong"):
        reader.read(5999, 1)
    assert "its checksum is wrong" in damaged.damage
    reader.close()
    journal.close()


def test_a_body_that_is_read_in_several_goes_is_compared_at_its_end(journal: Journal) -> None:
    damaged = written(journal, 1)[0]
    changed(damaged.path)
    for at in (0, 2000):
        reader = SpoolReader(damaged)
        reader.read(at, 2000)
        reader.close()
    reader = SpoolReader(damaged)
    with pytest.raises(StorageFault, match="its checksum is wrong"):
        reader.read(4000, 2000)
    reader.close()
    journal.close()


def test_a_body_that_is_read_from_its_middle_comes_as_it_is(journal: Journal) -> None:
    good = written(journal, 1)[0]
    reader = SpoolReader(good)
    assert reader.read(3000, 3000) == body(0)[3000:]
    assert reader.read(0, 6000) == body(0)
    reader.close()
    journal.close()
