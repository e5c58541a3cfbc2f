"""A stream's log on a real disk: what is appended is read back from any place, damage stays where it is."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from flintmq.clock import Clock
from flintmq.storage.disk import Disk
from flintmq.storage.options import JournalOptions, SyncPolicy
from flintmq.storage.streams import store as stream_store
from flintmq.storage.streams.chunk import ChunkBuilder, checked_chunk, filter_bits
from flintmq.storage.streams.columns import fetch
from flintmq.storage.streams.cursor import StreamCursor, offset_of_time
from flintmq.storage.streams.log import StreamLog, StreamOptions
from flintmq.storage.streams.segment import COPY_SUFFIX, SEGMENT_SUFFIX
from flintmq.storage.streams.store import StreamStore
from flintmq.wire import columns

ROUTE = b"\x01x\x03key"
HEADER = b"\x00\x3c\x00\x00" + bytes(8) + b"\x00\x00"
OPTIONS = JournalOptions(threaded=False)


def open_store(path: Path) -> StreamStore:
    return StreamStore(str(path / "streams"), Disk(), OPTIONS, Clock())


def append(log: StreamLog, body: bytes, time_ms: int = 1000, value: bytes | None = None) -> None:
    if not log.builder.count:
        log.begin_chunk()
    log.builder.append(time_ms, ROUTE, HEADER + body, len(HEADER), 0, value)


def fill(store: StreamStore, log: StreamLog, count: int, per_batch: int = 10) -> None:
    first = log.end
    for number in range(first, first + count):
        append(log, b"%d" % number, 1000 + number)
        if (number + 1) % per_batch == 0:
            store.commit_now()
    store.commit_now()


def bodies(log: StreamLog, start: int = 0) -> list[bytes]:
    found = columns.Columns(fetch(log, start, 1 << 62, 1 << 30, columns.STANDARD)[0])
    return found.values("value")


def numbered(start: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, end)]


def test_everything_is_there_again_after_a_restart(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    log = store.create(7, StreamOptions(segment_octets=2000))
    fill(store, log, 500)
    assert len(log.segments) > 3
    store.close()
    store = open_store(tmp_path)
    log, report = store.open(7, StreamOptions(segment_octets=2000))
    assert (log.first, log.end, log.epoch) == (0, 500, 2)
    assert not report.damaged
    assert not report.torn_octets
    for start in (0, 1, 9, 10, 333, 499, 500):
        assert bodies(log, start) == numbered(start, 500)
    fill(store, log, 20)
    assert bodies(log) == numbered(0, 520)
    store.close()


def test_only_what_is_safe_is_read(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    log = store.create(1, StreamOptions())
    append(log, b"one")
    cursor = StreamCursor(log, 0)
    assert cursor.next() is None
    store.commit_now()
    chunk = cursor.next()
    assert chunk is not None
    assert (chunk.first_offset, chunk.end_offset) == (0, 1)
    assert cursor.next() is None
    store.close()


def test_offsets_by_time(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    log = store.create(1, StreamOptions(segment_octets=3000))
    fill(store, log, 300)
    store.shed()
    for number in (0, 1, 57, 299):
        assert offset_of_time(log, 1000 + number) == number
    assert offset_of_time(log, 0) == 0
    assert offset_of_time(log, 5000) == 300
    store.close()


def test_retention_keeps_the_newest_segment(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    log = store.create(1, StreamOptions(segment_octets=2000, octets_max=5000))
    fill(store, log, 1000)
    assert log.octets <= 7000
    assert 0 < log.first < 1000
    assert bodies(log) == numbered(log.first, 1000)
    assert log.octets_between(log.first, 1000) == log.octets
    names = Disk().list(log.directory)
    assert len([name for name in names if name.endswith(".segment")]) == len(log.segments)
    old = store.create(2, StreamOptions(segment_octets=2000, age_max_ms=1))
    fill(store, old, 200)  # with times of 1970
    store.tick()
    assert len(old.segments) <= 2
    assert old.end == 200
    store.close()


def test_retention_drops_very_many_segments_in_portions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flintmq.storage.streams.log.DROPPED_MAX", 3)
    store = open_store(tmp_path)
    log = store.create(1, StreamOptions(segment_octets=2000))
    fill(store, log, 1000)
    log.options = StreamOptions(segment_octets=2000, age_max_ms=1)  # all of them are of 1970
    before = len(log.segments)
    assert before > 8
    counts = []
    while len(log.segments) > 1:
        store.tick()
        counts.append(len(log.segments))
    assert counts == [*range(before - 3, 1, -3), 1]
    assert bodies(log) == numbered(log.first, 1000)
    assert len([name for name in Disk().list(log.directory) if name.endswith(".segment")]) == 1
    store.close()


def test_the_age_of_very_many_streams_is_looked_at_in_portions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flintmq.storage.streams.store.AGEING_MAX", 2)
    store = open_store(tmp_path)
    logs = [store.create(number, StreamOptions(segment_octets=2000)) for number in range(1, 6)]
    for log in logs:
        fill(store, log, 200)
        log.options = StreamOptions(segment_octets=2000, age_max_ms=1)
    left = []
    for _ in range(3):
        store.tick()
        left.append(sum(len(log.segments) > 1 for log in logs))
    assert left == [3, 1, 0]
    store.close()


@pytest.mark.parametrize("cut", [1, 30, 64, 100, 200])
def test_a_torn_end_is_cut(tmp_path: Path, cut: int) -> None:
    store = open_store(tmp_path)
    log = store.create(1, StreamOptions())
    fill(store, log, 30)
    store.close()
    (tmp_path / "streams.promised").unlink()  # as if the power had failed before the last sync
    path = tmp_path / "streams" / f"{1:016d}" / f"{0:020d}.segment"
    path.write_bytes(path.read_bytes()[:-cut])
    store = open_store(tmp_path)
    log, report = store.open(1, StreamOptions())
    assert report.torn_octets
    assert not report.damaged
    assert log.end == 20
    fill(store, log, 5, per_batch=5)
    assert bodies(log) == numbered(0, 25)
    store.close()


def test_damage_in_the_middle_is_reported_and_skipped(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    log = store.create(1, StreamOptions())
    fill(store, log, 50)
    sizes = [chunk.head.size for chunk in log.recent]
    store.close()
    path = tmp_path / "streams" / f"{1:016d}" / f"{0:020d}.segment"
    octets = bytearray(path.read_bytes())
    octets[sizes[0] + sizes[1] + 80] ^= 4  # in the third chunk of five
    path.write_bytes(octets)
    store = open_store(tmp_path)
    log, report = store.open(1, StreamOptions())
    assert report.damaged == ["damaged, offsets 20 to 30 are lost: 10 messages"]
    assert log.end == 50
    assert bodies(log) == numbered(0, 20) + numbered(30, 50)
    assert bodies(log, 25) == numbered(30, 50)
    store.close()


def test_damage_in_a_full_segment_is_found_by_readers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store(tmp_path)
    log = store.create(1, StreamOptions(segment_octets=1500))
    fill(store, log, 200)
    store.close()
    path = tmp_path / "streams" / f"{1:016d}" / f"{0:020d}.segment"
    octets = bytearray(path.read_bytes())
    octets[10] ^= 1
    path.write_bytes(octets)
    store = open_store(tmp_path)
    log, _ = store.open(1, StreamOptions())
    assert bodies(log) == numbered(10, 200)
    assert "no longer read as they were written" in caplog.text
    store.close()


def test_a_lost_index_is_made_anew(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    log = store.create(1, StreamOptions(segment_octets=1500))
    fill(store, log, 300)
    store.close()
    directory = tmp_path / "streams" / f"{1:016d}"
    for number, path in enumerate(sorted(directory.glob("*.index"))):
        if number % 2:
            path.unlink()
        else:
            path.write_bytes(path.read_bytes()[:-3])
    store = open_store(tmp_path)
    log, report = store.open(1, StreamOptions())
    assert not report.damaged
    assert bodies(log, 111) == numbered(111, 300)
    store.close()


def test_deleted_streams_leave_nothing(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    log = store.create(1, StreamOptions())
    fill(store, log, 10)
    append(log, b"on its way")
    store.forget(log)
    store.remove(log)
    store.commit_now()
    store.tick()
    assert store.numbers() == []
    again = store.create(1, StreamOptions())
    fill(store, again, 5)
    assert bodies(again) == numbered(0, 5)
    store.close()


def test_a_temporary_store_takes_its_directory_along() -> None:
    store = StreamStore(None, Disk(), OPTIONS, Clock())
    log = store.create(1, StreamOptions())
    fill(store, log, 10)
    directory = Path(store.directory)
    assert directory.exists()
    assert bodies(log) == numbered(0, 10)
    store.close()
    assert not directory.exists()


def test_columns_have_what_was_published(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    log = store.create(1, StreamOptions())
    table = b"\x00\x00\x00\x06\x01aI\x00\x00\x00\x07"[:4] + b"\x01aI\x00\x00\x00\x07"
    table = len(table[4:]).to_bytes(4, "big") + table[4:]
    with_headers = HEADER[:12] + b"\xa0\x00" + b"\x04text" + table
    log.begin_chunk()
    log.builder.append(5, b"\x00\x01q", with_headers + b"body", len(with_headers), 0, b"red")
    append(log, b"")
    store.commit_now()
    every = tuple(columns.OF_STREAMS.values())
    octets, count, first, following = fetch(log, 0, 9, 1 << 20, every)
    assert (count, first, following) == (2, 0, 2)
    rows = list(columns.Columns(octets).rows())
    assert rows[0] == {
        "offset": 0,
        "timestamp": 5000,
        "value": b"body",
        "routing_key": b"q",
        "exchange": b"",
        "headers": table,
        "properties": with_headers[12:],
    }
    assert rows[1]["headers"] == b""
    assert rows[1]["value"] == b""
    assert (rows[1]["exchange"], rows[1]["routing_key"]) == (b"x", b"key")
    store.close()


def test_fetch_stops_at_the_limit_but_gives_one(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    log = store.create(1, StreamOptions())
    for _ in range(20):
        append(log, bytes(1000))
    store.commit_now()
    octets, count, _, following = fetch(log, 3, 20, 5000, columns.STANDARD)
    assert count == 4
    assert following == 7
    assert len(octets) < 5500
    assert fetch(log, 3, 20, 1, columns.STANDARD)[1] == 1
    assert fetch(log, 20, 30, 1, columns.STANDARD)[1] == 0
    assert fetch(log, 5, 7, 1 << 20, columns.STANDARD)[1:] == (2, 5, 7)
    store.close()


def test_filters_of_chunks_hold_what_was_put_in() -> None:
    builder = ChunkBuilder(16)
    for value in (b"red", b"green", None):
        builder.append(1, ROUTE, HEADER, len(HEADER), 0, value)
    chunk = builder.finish(0, 1, 0)
    assert chunk.may_hold((b"red",))
    assert chunk.may_hold((b"blue", b"green"))
    absent = [b"%d" % number for number in range(1000)]
    assert sum(chunk.may_hold((value,)) for value in absent) < 20
    assert len(set(filter_bits(b"red", 255))) > 1


def test_what_is_no_chunk_is_refused() -> None:
    builder = ChunkBuilder(16)
    builder.append(1, ROUTE, HEADER + b"body", len(HEADER), 0, None)
    octets = builder.finish(0, 1, 0).octets
    assert checked_chunk(octets, 0) is not None
    for at in range(len(octets) - 8):
        changed = bytearray(octets)
        changed[at] ^= 1
        assert checked_chunk(bytes(changed), 0) is None, f"octet {at}"
    assert checked_chunk(octets[:-1], 0) is None


def test_a_stream_whose_directory_could_not_be_made_is_written_when_it_can(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    log = store.create(7, StreamOptions())
    obstacle = tmp_path / "streams" / f"{7:016d}"
    obstacle.write_text("")
    append(log, b"0")
    assert not store.commit_now()
    obstacle.unlink()
    assert store.commit_now()
    assert bodies(log) == [b"0"]
    store.close()


class WatchedDisk(Disk):
    """Knows which files are open for writing, and which have octets that are not synced."""

    def __init__(self) -> None:
        super().__init__()
        self.paths: dict[int, str] = {}
        self.read_paths: dict[int, str] = {}
        self.most = 0
        self.unsynced: set[str] = set()
        self.failing_syncs = 0
        self.failing_writes = 0

    def open(self, path: str, create: bool = False) -> int:
        handle = super().open(path, create)
        if path.endswith(SEGMENT_SUFFIX):
            self.paths[handle] = path
            self.most = max(self.most, len(self.paths))
        return handle

    def open_to_read(self, path: str) -> int:
        handle = super().open_to_read(path)
        self.read_paths[handle] = path
        return handle

    def close(self, handle: int) -> None:
        self.paths.pop(handle, None)
        self.read_paths.pop(handle, None)
        super().close(handle)

    def write(self, handle: int, at: int, octets: bytes | bytearray | memoryview) -> None:
        if handle in self.paths and self.failing_writes:
            self.failing_writes -= 1
            raise OSError(errno.ENOSPC, "the disk is full")
        super().write(handle, at, octets)
        if handle in self.paths:
            self.unsynced.add(self.paths[handle])

    def sync(self, handle: int) -> None:
        if handle in self.paths and self.failing_syncs:
            self.failing_syncs -= 1
            raise OSError(errno.EIO, "the disk says no")
        super().sync(handle)
        self.unsynced.discard(self.paths.get(handle) or self.read_paths.get(handle, ""))


@pytest.mark.parametrize("failing_syncs", [0, 1])
def test_many_streams_have_few_files_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing_syncs: int
) -> None:
    """In one batch too; what the one that is closed for another one has is synced before."""
    monkeypatch.setattr(stream_store, "WRITTEN_HANDLES_MAX", 4)
    disk = WatchedDisk()
    store = StreamStore(str(tmp_path / "streams"), disk, OPTIONS, Clock())
    logs = [store.create(number, StreamOptions(segment_octets=300)) for number in range(1, 21)]
    for batch in range(10):
        disk.failing_syncs = failing_syncs if batch == 5 else 0
        for log in logs:
            append(log, b"%d" % batch)
        assert store.commit_now()
        assert not disk.unsynced
    assert disk.most == 5
    for log in logs:
        assert len(log.segments) > 1
        assert bodies(log) == numbered(0, 10)
    store.close()
    store = open_store(tmp_path)
    for number in range(1, 21):
        log, report = store.open(number, StreamOptions(segment_octets=300))
        assert not report.damaged
        assert not report.torn_octets
        assert bodies(log) == numbered(0, 10)
    store.close()


class StoppedClock(Clock):
    now_s = 1000.0

    def monotonic_s(self) -> float:
        return self.now_s


def test_what_came_before_a_batch_that_failed_is_synced_when_it_is_due(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failed batch has closed its file: it is not one that was synced as it was closed for others."""
    monkeypatch.setattr(stream_store, "WRITTEN_HANDLES_MAX", 2)
    disk, clock = WatchedDisk(), StoppedClock()
    options = OPTIONS._replace(sync=SyncPolicy.INTERVAL)
    store = StreamStore(str(tmp_path / "streams"), disk, options, clock)
    log, other = store.create(1, StreamOptions()), store.create(2, StreamOptions())
    append(log, b"0")
    assert store.commit_now()
    disk.failing_writes = 1
    append(log, b"1")
    assert store.commit_now()
    assert not disk.failing_writes
    first, second = (str(Path(log.directory, segment.name)) for segment in log.segments)
    assert disk.unsynced == {first, second}
    clock.now_s += 1.0
    append(other, b"0")
    assert store.commit_now()
    assert not disk.unsynced
    assert bodies(log) == numbered(0, 2)
    store.close()


def test_a_stream_begins_where_it_did_while_it_is_written_again(tmp_path: Path) -> None:
    """A reader who asked for the first message then began after it."""
    disk, clock = WatchedDisk(), StoppedClock()
    options = OPTIONS._replace(sync=SyncPolicy.INTERVAL)
    store = StreamStore(str(tmp_path / "streams"), disk, options, clock)
    log = store.create(1, StreamOptions())
    append(log, b"0")
    assert store.commit_now()
    disk.failing_syncs, disk.failing_writes = 1, 100
    clock.now_s += 1.0
    store.tick()
    assert not store.commit_now()
    assert (log.first, log.end) == (0, 1)
    assert offset_of_time(log, 0) == 0
    assert bodies(log) == numbered(0, 1)
    disk.failing_writes = 0
    assert store.commit_now()
    assert (log.first, log.end) == (0, 1)
    assert bodies(log) == numbered(0, 1)
    store.close()


class UnclosableDisk(WatchedDisk):
    """Of segments that are written it tells at their close that something failed, as NFS does."""

    def __init__(self) -> None:
        super().__init__()
        self.failing_closes = 0
        self.closed_ones = 0

    def close(self, handle: int) -> None:
        is_written = handle in self.paths
        super().close(handle)
        if is_written:
            self.closed_ones += 1
            if self.failing_closes:
                self.failing_closes -= 1
                raise OSError(errno.EDQUOT, "Disk quota exceeded")


@pytest.mark.parametrize("failing_syncs", [1, 2, 3])
def test_a_close_that_fails_after_a_sync_that_failed_costs_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, failing_syncs: int
) -> None:
    """The number of the descriptor is not used again: it may be another file's by now, or a socket's."""
    disk = UnclosableDisk()
    clock = StoppedClock()
    store = StreamStore(str(tmp_path / "streams"), disk, OPTIONS, clock)
    log = store.create(1, StreamOptions())
    fill(store, log, 10)
    disk.failing_syncs = disk.failing_closes = failing_syncs
    append(log, b"10")
    store.commit_now()
    for number in range(11, 14):
        clock.now_s += 10
        append(log, b"%d" % number)
        store.tick()
        store.commit_now()
    assert not disk.failing_syncs
    assert not disk.failing_closes
    assert disk.closed_ones == failing_syncs
    assert bodies(log) == numbered(0, 14)
    assert store.safe_batch == store.batch - 1
    assert len([each for each in caplog.messages if "closed" in each]) == 1
    store.close()
    assert not disk.paths
    store = open_store(tmp_path)
    log, report = store.open(1, StreamOptions())
    assert bodies(log) == numbered(0, 14)
    assert not report.damaged
    store.close()


@pytest.mark.parametrize("why", ["full", "dropped", "deleted", "closed"])
def test_a_close_that_fails_forgets_the_descriptor(tmp_path: Path, why: str) -> None:
    disk = UnclosableDisk()
    store = StreamStore(str(tmp_path / "streams"), disk, OPTIONS, Clock())
    octets_max = 1 if why == "dropped" else None
    log = store.create(1, StreamOptions(segment_octets=500, octets_max=octets_max))
    append(log, b"0")
    store.commit_now()
    segments = [*log.segments]
    disk.failing_closes = 100
    if why == "closed":
        store.close()
    elif why == "deleted":
        store.forget(log)
        store.remove(log)
        store.collect()
    else:
        fill(store, log, 100)
        assert bodies(log)[-1] == b"100"
    assert segments[0].handle == -1
    assert disk.failing_closes < 100
    if why != "closed":
        store.close()
    assert not disk.paths


def test_a_file_that_is_removed_while_it_is_written_is_written_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store(tmp_path)
    log = store.create(7, StreamOptions())
    fill(store, log, 50)
    store.shed()
    assert bodies(log) == numbered(0, 50)
    (file,) = tmp_path.rglob("*" + SEGMENT_SUFFIX)
    file.unlink()
    file.parent.rmdir()
    fill(store, log, 50)
    assert not store.alarm
    assert caplog.text.count("was removed or replaced while the broker uses it") == 1
    assert caplog.text.count("was written again") == 1
    store.shed()
    assert bodies(log) == numbered(0, 100)
    store.close()
    store = open_store(tmp_path)
    log, report = store.open(7, StreamOptions())
    assert not report.damaged
    assert bodies(log) == numbered(0, 100)
    store.close()


def test_files_that_are_removed_with_it_are_told_until_they_are_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store(tmp_path)
    log = store.create(7, StreamOptions(segment_octets=2000))
    fill(store, log, 200)
    files = sorted(tmp_path.rglob("*" + SEGMENT_SUFFIX))
    files[-1].unlink()
    files[0].rename(tmp_path / "away")
    for _ in range(3):
        fill(store, log, 1)
        store.tick()
    assert caplog.text.count("are lost unless it is put back") == 1
    assert [str(files[0]) in each for each in store.missing_files()] == [True]
    (tmp_path / "away").rename(files[0])
    store.tick()
    assert store.missing_files() == []
    store.close()


def test_a_look_for_many_files_that_are_missed_lists_each_directory_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list takes the longer the more files there are, and everybody waits for it."""
    store = open_store(tmp_path)
    log = store.create(7, StreamOptions(segment_octets=2000))
    fill(store, log, 200)
    for file in tmp_path.rglob("*" + SEGMENT_SUFFIX):
        file.unlink()
    fill(store, log, 1)
    assert len(store.missing) > 3
    listed: list[str] = []
    found = store.disk.list

    def noted(path: str) -> list[str]:
        listed.append(path)
        return found(path)

    monkeypatch.setattr(store.disk, "list", noted)
    store.tick()
    assert listed == [log.directory]
    store.close()


class UncopiableDisk(Disk):
    """At one step of a copy it fails, as often as is wanted."""

    def __init__(self, step: str) -> None:
        super().__init__()
        self.step = step
        self.failures = 0
        self.copies: set[int] = set()
        self.has_renamed = False
        self.unsynced_names: set[str] = set()

    def fail_at(self, step: str) -> None:
        if step == self.step and self.failures:
            self.failures -= 1
            raise OSError(errno.ENOSPC, "No space left on device")

    def open(self, path: str, create: bool = False) -> int:
        if path.endswith(COPY_SUFFIX):
            self.fail_at("open")
        handle = super().open(path, create)
        self.copies.discard(handle)
        if path.endswith(COPY_SUFFIX):
            self.copies.add(handle)
        return handle

    def write(self, handle: int, at: int, octets: bytes | bytearray | memoryview) -> None:
        self.fail_at("any write")
        if handle in self.copies:
            self.fail_at("write of a copy")
        super().write(handle, at, octets)

    def sync(self, handle: int) -> None:
        if handle in self.copies:
            self.fail_at("sync")
        super().sync(handle)

    def rename(self, old: str, new: str) -> None:
        self.fail_at("rename")
        super().rename(old, new)
        self.has_renamed = True
        self.unsynced_names.add(str(Path(new).parent))

    def sync_directory(self, path: str) -> None:
        if self.has_renamed:
            self.fail_at("sync of the directory")
        super().sync_directory(path)
        self.unsynced_names.discard(path)


COPY_STEPS = ["open", "any write", "write of a copy", "sync", "rename", "sync of the directory"]


@pytest.mark.parametrize("sync", [*SyncPolicy])
@pytest.mark.parametrize("step", COPY_STEPS)
def test_removed_files_stay_open_until_they_can_be_copied(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, step: str, sync: SyncPolicy
) -> None:
    disk, clock = UncopiableDisk(step), StoppedClock()
    store = StreamStore(str(tmp_path / "streams"), disk, OPTIONS._replace(sync=sync), clock)
    logs = [store.create(number, StreamOptions()) for number in (7, 8)]
    for log in logs:
        fill(store, log, 50)
    clock.now_s += 10
    store.tick()
    store.shed()
    for file in tmp_path.rglob("*" + SEGMENT_SUFFIX):
        file.unlink()
    disk.failures = 1000
    for log in logs:
        append(log, b"50")
    for _ in range(5):
        assert not store.commit_now()
        clock.now_s += 10
        store.tick()
        assert "No space left on device" in store.alarm
        assert len(store.missing_files()) == 2
        assert [bodies(log) for log in logs] == [numbered(0, 50)] * 2
        assert not [*tmp_path.rglob("*" + COPY_SUFFIX)]
    assert caplog.text.count("was removed or replaced while the broker uses it") == 2
    assert "was written again" not in caplog.text
    disk.failures = 0
    clock.now_s += 10
    store.tick()
    assert not store.alarm
    assert store.missing_files() == []
    assert caplog.text.count("was written again") == 2
    assert not disk.unsynced_names
    store.shed()
    assert [bodies(log) for log in logs] == [numbered(0, 51)] * 2
    assert store.close()
    assert "lost" not in caplog.text
    store = open_store(tmp_path)
    for number in (7, 8):
        log, report = store.open(number, StreamOptions())
        assert not report.damaged
        assert bodies(log) == numbered(0, 51)
    store.close()


def test_a_removed_file_that_is_put_back_is_not_copied(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk, clock = UncopiableDisk("write of a copy"), StoppedClock()
    store = StreamStore(str(tmp_path / "streams"), disk, OPTIONS, clock)
    log = store.create(7, StreamOptions())
    fill(store, log, 50)
    store.shed()
    (file,) = tmp_path.rglob("*" + SEGMENT_SUFFIX)
    file.rename(tmp_path / "away")
    disk.failures = 1000
    append(log, b"50")
    assert not store.commit_now()
    (tmp_path / "away").rename(file)
    assert store.commit_now()
    assert f"{file} is back" in caplog.text
    assert "was written again" not in caplog.text
    assert bodies(log) == numbered(0, 51)
    assert store.close()


def test_a_file_that_was_removed_and_not_written_since_is_copied_at_the_end(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    log = store.create(7, StreamOptions())
    fill(store, log, 50)
    (file,) = tmp_path.rglob("*" + SEGMENT_SUFFIX)
    file.unlink()
    assert store.close()
    store = open_store(tmp_path)
    log, report = store.open(7, StreamOptions())
    assert not report.damaged
    assert bodies(log) == numbered(0, 50)
    store.close()


def test_the_end_tells_what_of_removed_files_could_not_be_copied(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = UncopiableDisk("write of a copy")
    store = StreamStore(str(tmp_path / "streams"), disk, OPTIONS, StoppedClock())
    log = store.create(7, StreamOptions())
    fill(store, log, 50)
    (file,) = tmp_path.rglob("*" + SEGMENT_SUFFIX)
    file.unlink()
    disk.failures = 1000
    append(log, b"50")
    assert not store.close()
    assert f"{file} was removed and could not be written again: offsets 0 to 49 are lost" in caplog.text
    assert not [*tmp_path.rglob("*" + COPY_SUFFIX)]


@pytest.mark.parametrize("why", ["deleted", "dropped"])
def test_a_removed_file_that_nobody_wants_ends_the_alarm(tmp_path: Path, why: str) -> None:
    disk, clock = UncopiableDisk("write of a copy"), StoppedClock()
    store = StreamStore(str(tmp_path / "streams"), disk, OPTIONS, clock)
    log = store.create(7, StreamOptions())
    fill(store, log, 50)
    (file,) = tmp_path.rglob("*" + SEGMENT_SUFFIX)
    file.unlink()
    disk.failures = 1000
    append(log, b"50")
    assert not store.commit_now()
    if why == "deleted":
        store.forget(log)
        store.remove(log)
    else:
        log.segments.pop(0).dropped = True
    assert store.missing_files() == []
    assert store.commit_now()
    assert not store.alarm
    assert disk.failures > 900
    assert store.close()


def test_a_full_segment_that_was_removed_before_it_was_synced_is_copied(tmp_path: Path) -> None:
    clock = StoppedClock()
    store = StreamStore(str(tmp_path / "streams"), Disk(), OPTIONS._replace(sync=SyncPolicy.INTERVAL), clock)
    log = store.create(7, StreamOptions(segment_octets=2000))
    fill(store, log, 100)
    assert len(log.segments) > 3
    for file in sorted(tmp_path.rglob("*" + SEGMENT_SUFFIX))[:-1]:
        file.unlink()
    for _ in range(2):
        clock.now_s += 10
        store.tick()
    assert not store.alarm
    store.shed()
    assert bodies(log) == numbered(0, 100)
    assert store.close()
    store = open_store(tmp_path)
    log, report = store.open(7, StreamOptions())
    assert not report.damaged
    assert bodies(log) == numbered(0, 100)
    store.close()


def test_an_unfinished_copy_goes_at_the_next_start(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    log = store.create(7, StreamOptions())
    fill(store, log, 50)
    store.close()
    (file,) = tmp_path.rglob("*" + SEGMENT_SUFFIX)
    copy = file.with_name(file.name + COPY_SUFFIX)
    copy.write_bytes(file.read_bytes()[:100])
    store = open_store(tmp_path)
    log, report = store.open(7, StreamOptions())
    assert not copy.exists()
    assert not report.damaged
    assert bodies(log) == numbered(0, 50)
    store.close()


def test_files_that_are_missed_while_the_missing_are_told_do_no_harm(tmp_path: Path) -> None:
    class NotedPath(str):
        __slots__ = ()

        def __format__(self, how: str) -> str:
            store.missing[self + "1"] = (log, log.segments[0])  # as the writer's thread may
            return str(self)

    store = open_store(tmp_path)
    log = store.create(7, StreamOptions())
    fill(store, log, 10)
    store.missing = {NotedPath("0"): (log, log.segments[0]), "2": (log, log.segments[0])}
    assert store.missing_files() == [f"{n}: it was removed, with offsets 0 to 9" for n in (0, 2)]
    assert len(store.missing_files()) == 3
    store.missing.clear()
    store.close()
