"""Stream logs on a disk that tears, rots, fills and fails."""

from __future__ import annotations

import random

import pytest

from flintmq.storage.options import JournalOptions, SyncPolicy
from flintmq.storage.streams import store as stream_store
from flintmq.storage.streams.log import StreamLog, StreamOptions
from flintmq.storage.streams.store import StreamStore

from .journal_history import DIRECTORY, SimulatedClock
from .simulated_disk import SimulatedDisk
from .stream_history import run_seed

SEEDS = 400
PORTION = 100


@pytest.mark.parametrize("handles", [64, 1])
@pytest.mark.parametrize("first", range(0, SEEDS, PORTION))
def test_promises_hold(monkeypatch: pytest.MonkeyPatch, first: int, handles: int) -> None:
    """Also where each stream closes its file for the next one."""
    monkeypatch.setattr(stream_store, "WRITTEN_HANDLES_MAX", handles)
    assert sum(run_seed(seed) for seed in range(first, first + PORTION)) > PORTION


def interval_store(disk: SimulatedDisk, clock: SimulatedClock) -> tuple[StreamStore, StreamLog]:
    options = JournalOptions(threaded=False, sync=SyncPolicy.INTERVAL, sync_interval_ms=60_000)
    store = StreamStore(f"{DIRECTORY}/streams", disk, options, clock)
    return store, store.open(1, StreamOptions())[0]


def append(log: StreamLog, body: bytes) -> None:
    header = bytes(14)
    log.begin_chunk()
    log.builder.append(1000, b"\x00\x01s", header + body, len(header), 0, None)


def test_a_stop_syncs_what_was_only_written() -> None:
    chance = random.Random(3)
    disk, clock = SimulatedDisk(chance), SimulatedClock(chance)
    store, log = interval_store(disk, clock)
    for body in (b"1", b"2"):
        append(log, body)
        store.commit_now()
    syncs = disk.synced
    store.close()
    assert disk.synced == syncs + 2  # the segment, and the note of what was promised
    disk.crash()
    assert interval_store(disk, clock)[1].end == 2


def test_a_stop_tells_if_the_last_sync_has_failed(caplog: pytest.LogCaptureFixture) -> None:
    chance = random.Random(3)
    disk, clock = SimulatedDisk(chance), SimulatedClock(chance)
    store, log = interval_store(disk, clock)
    append(log, b"1")
    store.commit_now()
    disk.sync_failures_left = 2
    store.close()
    why = "cannot write to /data/streams: simulated sync failure"
    assert [record.getMessage() for record in caplog.records] == [
        f"not everything in streams is on disk: {why}"
    ]
