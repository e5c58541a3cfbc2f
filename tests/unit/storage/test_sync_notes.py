"""Everything that was promised is there, or recovery says loudly what is not; and a check agrees."""

from __future__ import annotations

import errno
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from flintmq.cli.local import journal as command
from flintmq.clock import Clock
from flintmq.storage.disk import Disk
from flintmq.storage.inspection import journal_inspection
from flintmq.storage.inspection.stream_inspection import check_streams
from flintmq.storage.journal.journal import Journal
from flintmq.storage.options import JournalOptions
from flintmq.storage.streams.log import StreamOptions
from flintmq.storage.streams.store import StreamStore
from flintmq.storage.sync_notes import SEGMENT, SLOT_OCTETS, STREAM, Notes, Promise, Promises

from .test_journal import Told, opened
from .test_stream_log import append, bodies, fill, numbered, open_store

ENTRIES = 12
# The last chunk, and the last two records of the journal.
SWEPT_OCTETS = 96


def journal_sample(directory: Path, is_orderly: bool) -> None:
    """A segment of three batches, the last of them with a group."""
    journal, _, _ = opened(directory)
    for number in range(ENTRIES):
        if number == ENTRIES - 2:
            journal.begin_group()
        journal.append_entry((1,), b"%d" % number, b"payload")
        if number % 4 == 3 and number < ENTRIES - 1:
            journal.commit_now()
    journal.commit_group()
    journal.commit_now()
    end(journal.close, directory, is_orderly)


def stream_sample(directory: Path, is_orderly: bool) -> None:
    """A stream of three chunks of four."""
    store = open_store(directory)
    fill(store, store.create(1, StreamOptions()), ENTRIES, per_batch=4)
    end(store.close, directory, is_orderly)


def end(close: Callable[[], None], directory: Path, is_orderly: bool) -> None:
    """Closed, or as kill -9 leaves it: copied before, since a close must be to end the threads."""
    if is_orderly:
        close()
        return
    copy = directory.with_name("killed")
    shutil.copytree(directory, copy)
    close()
    shutil.rmtree(directory)
    copy.rename(directory)


def each_flip(path: Path, start: int, end: int) -> list[bytes]:
    """The file with one bit flipped: in each octet at the end of a range, in some of the others."""
    octets = path.read_bytes()
    changed = []
    for at in [*range(start, end - SWEPT_OCTETS, 29), *range(end - SWEPT_OCTETS, end)]:
        flipped = bytearray(octets)
        flipped[at] ^= 1 << at % 8
        changed.append(bytes(flipped))
    return changed


def each_cut(path: Path, start: int, end: int) -> list[bytes]:
    return [path.read_bytes()[:at] for at in range(start, end, 17)]


@pytest.mark.parametrize("is_orderly", [True, False])
@pytest.mark.parametrize("harm", [each_flip, each_cut])
def test_whatever_happens_to_the_end_of_the_journal_is_told(
    tmp_path: Path, is_orderly: bool, harm: Callable[[Path, int, int], list[bytes]]
) -> None:
    sample = tmp_path / "sample"
    sample.mkdir()
    journal_sample(sample, is_orderly)
    path = next(sample.glob("*.segment"))
    used = journal_inspection.check(str(sample)).segments[-1].end
    silent = 0
    for octets in harm(path, 64, used):
        place = tmp_path / "data"
        shutil.copytree(sample, place)
        (place / path.name).write_bytes(octets)
        checked = journal_inspection.check(str(place))
        status, lines = command.verify(str(place))
        journal, told, report = opened(place)
        journal.close()
        assert checked.sound == (not report.damaged), "the check and the start disagree"
        assert status == (1 if report.damaged else 0)
        if report.damaged:
            assert any(path.name in line for line in lines)
            assert any("damage in" in line for line in report.losses())
        if len(told.entries) < ENTRIES:
            assert report.damaged, "lost in silence"
        silent += not report.damaged
        again, told_again, clean = opened(place)
        again.close()
        assert not clean.damaged, "told twice"
        assert told_again.entries == told.entries
        shutil.rmtree(place)
    # But for padding there is no octet that does not matter.
    assert silent < 20


@pytest.mark.parametrize("is_orderly", [True, False])
@pytest.mark.parametrize("harm", [each_flip, each_cut])
def test_whatever_happens_to_the_end_of_a_stream_is_told(
    tmp_path: Path, is_orderly: bool, harm: Callable[[Path, int, int], list[bytes]]
) -> None:
    sample = tmp_path / "sample"
    sample.mkdir()
    stream_sample(sample, is_orderly)
    path = next(sample.glob("streams/*/*.segment"))
    for octets in harm(path, 0, path.stat().st_size):
        place = tmp_path / "data"
        shutil.copytree(sample, place)
        (place / path.relative_to(sample)).write_bytes(octets)
        checked = check_streams(str(place))
        store = open_store(place)
        log, report = store.open(1, StreamOptions())
        found = bodies(log)
        assert bool(checked[0].damaged) == bool(report.damaged), "the check and the start disagree"
        assert log.end == ENTRIES, "offsets that were promised are given again"
        if len(found) < ENTRIES:
            assert report.damaged, "lost in silence"
            assert report.lost[0][1] - report.lost[0][0] == ENTRIES - len(found)
            if found == numbered(0, len(found)) and octets[report.octets - 8 :]:
                assert list((place / "streams").glob("*/*.damaged"))
        append(log, b"next")
        store.commit_now()
        assert bodies(log) == [*found, b"next"]
        store.close()
        store = open_store(place)
        log, report = store.open(1, StreamOptions())
        assert not report.damaged, "told twice"
        assert bodies(log) == [*found, b"next"]
        assert log.end == ENTRIES + 1
        store.close()
        assert not check_streams(str(place))[0].damaged
        shutil.rmtree(place)


def test_a_torn_tail_behind_what_was_promised_is_not_called_damage(tmp_path: Path) -> None:
    sample = tmp_path / "data"
    sample.mkdir()
    journal_sample(sample, False)
    stream_sample(sample, False)
    path = next(sample.glob("*.segment"))
    end = journal_inspection.check(str(sample)).segments[-1].end
    with path.open("r+b") as file:
        file.seek(end)
        file.write(b"half of a batch that was never synced   ")
    stream = next(sample.glob("streams/*/*.segment"))
    stream.write_bytes(stream.read_bytes() + b"FLSC half of a chunk that was never synced")
    assert command.verify(str(sample))[0] == 0
    journal, told, report = opened(sample)
    journal.close()
    assert (report.losses(), len(told.entries)) == ([], ENTRIES)
    assert report.torn_octets
    store = open_store(sample)
    log, stream_report = store.open(1, StreamOptions())
    store.close()
    assert (stream_report.damaged, log.end) == ([], ENTRIES)
    assert stream_report.torn_octets


@pytest.mark.parametrize("what", ["streams", "streams/0000000000000001", "segment"])
def test_a_stream_that_is_missing_goes_on_behind_what_was_promised(tmp_path: Path, what: str) -> None:
    stream_sample(tmp_path, True)
    journal_sample(tmp_path, True)
    if what == "segment":
        next(tmp_path.glob("streams/*/*.segment")).unlink()
    else:
        shutil.rmtree(tmp_path / what)
    status, lines = command.verify(str(tmp_path))
    assert status == 1
    assert any("offsets 0 to 12 are lost: 12 messages" in line for line in lines)
    store = open_store(tmp_path)
    log, report = store.open(1, StreamOptions())
    assert report.lost == [(0, ENTRIES)]
    assert (log.first, log.end) == (ENTRIES, ENTRIES)
    append(log, b"new")
    store.commit_now()
    store.close()
    store = open_store(tmp_path)
    log, report = store.open(1, StreamOptions())
    assert (report.damaged, log.first, log.end) == ([], ENTRIES, ENTRIES + 1)
    store.close()
    assert command.verify(str(tmp_path))[0] == 0


def test_the_oldest_segment_of_a_stream_is_missed_unless_retention_took_it(tmp_path: Path) -> None:
    options = StreamOptions(segment_octets=2000)
    store = open_store(tmp_path)
    fill(store, store.create(1, options), 300)
    store.close()
    oldest, second = sorted(tmp_path.glob("streams/*/*.segment"))[:2]
    oldest.unlink()
    first = int(second.stem)
    store = open_store(tmp_path)
    log, report = store.open(1, options)
    assert report.lost == [(0, first)]
    store.close()
    store = open_store(tmp_path)
    shorter = StreamOptions(segment_octets=2000, octets_max=3000)
    log, report = store.open(1, shorter)
    assert (report.damaged, log.first > first) == ([], True)
    store.close()
    store = open_store(tmp_path)
    log, report = store.open(1, shorter)
    assert not report.damaged
    store.close()


def test_a_missing_segment_of_the_journal_is_told_once(tmp_path: Path) -> None:
    journal_sample(tmp_path, True)
    next(tmp_path.glob("*.segment")).unlink()
    checked = journal_inspection.check(str(tmp_path))
    assert not checked.sound
    assert "0000000000000001.segment is missing: 13 records are lost" in checked.lines()
    journal, told, report = opened(tmp_path)
    assert report.losses() == ["0000000000000001.segment is missing: 13 records are lost"]
    assert told.entries == []
    assert journal.append_entry((1,), b"", b"") == 14, "the number of a lost entry is given again"
    journal.commit_now()
    journal.forget_damage()
    journal.close()
    journal, _, report = opened(tmp_path)
    assert report.losses() == []
    journal.close()
    assert journal_inspection.check(str(tmp_path)).sound


def test_directories_without_notes_open_as_before(tmp_path: Path) -> None:
    """As an earlier FlintMQ has written them."""
    journal_sample(tmp_path, True)
    stream_sample(tmp_path, True)
    for name in ("segments.promised", "streams.promised"):
        (tmp_path / name).unlink()
    assert command.verify(str(tmp_path))[0] == 0
    journal, told, report = opened(tmp_path)
    assert (len(told.entries), report.losses()) == (ENTRIES, [])
    journal.close()
    store = open_store(tmp_path)
    log, stream_report = store.open(1, StreamOptions())
    assert (bodies(log), stream_report.damaged) == (numbered(0, ENTRIES), [])
    store.close()
    assert (tmp_path / "segments.promised").exists()
    assert (tmp_path / "streams.promised").exists()


def test_notes_are_not_believed_once_a_flintmq_without_them_has_been_there(tmp_path: Path) -> None:
    journal_sample(tmp_path, True)
    stream_sample(tmp_path, True)
    old = {name: (tmp_path / name).read_bytes() for name in ("segments.promised", "streams.promised")}
    for _ in range(2):
        journal, _, _ = opened(tmp_path)
        journal.append_entry((1,), b"later", b"")
        journal.commit_now()
        journal.close()
        store = open_store(tmp_path)
        log, _ = store.open(1, StreamOptions())
        fill(store, log, 4)
        store.close()
    for name, octets in old.items():
        (tmp_path / name).write_bytes(octets)
    for each in list(tmp_path.glob("*.segment"))[:1]:
        each.unlink()
    assert journal_inspection.check(str(tmp_path)).sound
    journal, _, report = opened(tmp_path)
    assert not report.losses()
    journal.close()


def test_a_note_that_is_damaged_is_left_out_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal_sample(tmp_path, True)
    path = tmp_path / "segments.promised"
    for at in range(64, 128, 3):
        octets = bytearray(path.read_bytes())
        octets[at] ^= 1 << at % 8
        path.write_bytes(octets)
        caplog.clear()
        notes = Notes(bytes(octets))
        assert notes.of(SEGMENT, 1) is None
        journal, told, report = opened(tmp_path)
        assert "notes cannot be read" in caplog.text
        assert (len(told.entries), report.losses()) == (ENTRIES, [])
        journal.close()
    assert Notes(path.read_bytes()).of(SEGMENT, 1) is not None
    assert path.stat().st_size == 4096, "it grows at each start"


def test_notes_outlive_the_process_and_their_slots_are_used_again(tmp_path: Path) -> None:
    path = str(tmp_path / "notes")
    promises = Promises(Disk(), path)
    promises.begin(3, [])
    for number in range(1, 200):
        promises.note(Promise(STREAM, number, 0, number, 1))
    size = (tmp_path / "notes").stat().st_size
    for number in range(1, 150):
        promises.forget(STREAM, number)
    for number in range(1000, 1100):
        promises.note(Promise(STREAM, number, 5, number, 1))
    promises.note(Promise(STREAM, 7, 0, 9, 1))  # too late: it is being removed
    promises.tell_time(1234)
    promises.tell_time(1000)
    assert (tmp_path / "notes").stat().st_size == size
    found = Promises(Disk(), path).found
    assert found.all_of(STREAM).keys() == {*range(150, 200), *range(1000, 1100)}
    assert (found.epoch, found.time_ms, found.unreadable_at) == (3, 1234, [])
    promises.close()


class Watched(Disk):
    """Notes which threads write."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: set[str] = set()

    def write(self, handle: int, at: int, octets: bytes | bytearray | memoryview) -> None:
        self.threads.add(threading.current_thread().name)
        super().write(handle, at, octets)


def test_the_thread_of_the_broker_writes_no_note_of_the_journal(tmp_path: Path) -> None:
    """A write may take seconds where the disk is slow, and everybody would wait for it."""
    disk = Watched()
    woken = threading.Event()
    journal = Journal.open(str(tmp_path), disk, JournalOptions(), wake=woken.set)
    journal.recover(Told())
    assert journal.promises is not None
    later_ms = journal.now_ms() + 1_000_000
    disk.threads.clear()
    for _ in range(3):
        journal.append_entry((1,), b"head", b"payload")
        journal.commit_now()
    journal.now_ms = lambda: later_ms
    woken.clear()
    journal.tick()
    while journal.promises.time_ms != later_ms:
        assert woken.wait(20)
        woken.clear()
        journal.tick()
    noted = journal.promises.held(SEGMENT, next(iter(journal.segments)))
    assert noted is not None
    assert noted.mark == 3
    assert disk.threads
    assert threading.current_thread().name not in disk.threads
    journal.close()


def test_the_thread_of_the_broker_writes_no_note_of_a_stream(tmp_path: Path) -> None:
    disk = Watched()
    store = StreamStore(str(tmp_path / "streams"), disk, JournalOptions(), Clock())
    log = store.create(1, StreamOptions(segment_octets=4096, octets_max=8192))
    disk.threads.clear()
    fill(store, log, 2000, per_batch=100)
    assert log.first > 0  # some of it is gone again
    assert store.promises is not None
    noted = store.promises.held(STREAM, 1)
    assert noted is not None
    assert noted.end == 2000
    assert disk.threads == {"stream-writer"}
    store.close()


class Refusing(Disk):
    is_refusing = False

    def write(self, handle: int, at: int, octets: bytes | bytearray | memoryview) -> None:
        if self.is_refusing:
            raise OSError(28, "No space left on device")
        super().write(handle, at, octets)


def test_a_disk_that_refuses_a_note_is_told_once_and_gets_it_with_the_next_sync(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = Refusing()
    promises = Promises(disk, str(tmp_path / "notes"))
    promises.begin(1, [])
    disk.is_refusing = True
    promises.note(Promise(STREAM, 1, 0, 5, 1))
    promises.note(Promise(STREAM, 1, 0, 6, 1))
    assert caplog.text.count("cannot be written") == 1
    with pytest.raises(OSError, match="No space"):
        promises.sync()
    disk.is_refusing = False
    promises.sync()
    assert Promises(disk, str(tmp_path / "notes")).found.of(STREAM, 1) == Promise(STREAM, 1, 0, 6, 1)
    promises.close()


class Unsyncable(Disk):
    """Drops what a failed sync should have written, as a kernel does: no later sync writes it by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.unsynced: dict[int, bytes] = {}
        self.synced: dict[int, bytes] = {}
        self.failures_left = 0

    def write(self, handle: int, at: int, octets: bytes | bytearray | memoryview) -> None:
        for start in range(0, len(octets), SLOT_OCTETS):
            self.unsynced[at + start] = bytes(octets[start : start + SLOT_OCTETS])
        super().write(handle, at, octets)

    def sync(self, handle: int) -> None:
        lost, self.unsynced = self.unsynced, {}
        if self.failures_left:
            self.failures_left -= 1
            raise OSError(errno.EIO, "Input/output error")
        self.synced |= lost


def test_a_note_is_gone_from_the_disk_when_forgetting_it_succeeds_after_a_sync_has_failed(
    tmp_path: Path,
) -> None:
    disk = Unsyncable()
    promises = Promises(disk, str(tmp_path / "notes"))
    promises.begin(1, [Promise(SEGMENT, 1, 1, 64, 1), Promise(SEGMENT, 2, 2, 64, 2)])
    assert Notes(on_disk(disk)).all_of(SEGMENT).keys() == {1, 2}
    disk.failures_left = 1
    with pytest.raises(OSError, match="Input/output"):
        promises.forget(SEGMENT, 1)
    promises.forget(SEGMENT, 1)
    assert Notes(on_disk(disk)).all_of(SEGMENT) == {2: Promise(SEGMENT, 2, 2, 64, 2)}
    promises.close()


def test_a_note_is_gone_from_the_disk_when_forgetting_it_succeeds_after_a_write_was_refused(
    tmp_path: Path,
) -> None:
    disk = Refusing()
    promises = Promises(disk, str(tmp_path / "notes"))
    promises.begin(1, [Promise(SEGMENT, 1, 1, 64, 1)])
    disk.is_refusing = True
    with pytest.raises(OSError, match="No space"):
        promises.forget(SEGMENT, 1)
    disk.is_refusing = False
    promises.forget(SEGMENT, 1)
    assert Promises(disk, str(tmp_path / "notes")).found.of(SEGMENT, 1) is None
    promises.close()


def on_disk(disk: Unsyncable) -> bytes:
    return b"".join(octets for _, octets in sorted(disk.synced.items()))
