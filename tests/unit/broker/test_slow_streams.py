"""A disk that takes long for a stream: the journal waits for it, and nobody else."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from flintmq.broker.broker import Broker
from flintmq.broker.channels.channel import Channel
from flintmq.broker.streams import streams as streams_module
from flintmq.broker.streams.stream_queue import StreamQueue
from flintmq.clock import Clock
from flintmq.config import Config
from flintmq.protocol.outbox import Output
from flintmq.server.data_directory import recovered_broker
from flintmq.storage.disk import Disk
from flintmq.storage.options import JournalOptions

# Persistent.
HEADER = b"\x00\x3c\x00\x00" + bytes(8) + b"\x10\x00\x02"
LONG_S = 0.5


class SlowDisk(Disk):
    """Syncs of streams end when `go_on` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = threading.Event()
        self.go_on.set()

    def sync(self, handle: int) -> None:
        if "/streams/" in (self.path_of(handle) or ""):
            assert self.go_on.wait(20)
        super().sync(handle)


def opened(path: Path, disk: Disk) -> Broker:
    return recovered_broker(Config(), Clock(), lambda: None, str(path), disk, JournalOptions())[0]


class Setting:
    """A broker with a queue whose dead letters go to a stream."""

    def __init__(self, path: Path) -> None:
        self.disk = SlowDisk()
        self.broker = opened(path, self.disk)
        host = self.broker.virtual_hosts["/"]
        host.declare_queue("s", True, False, False, {"x-queue-type": "stream"}, 1)
        dead_letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "s"}
        host.declare_queue("q", True, False, False, dead_letters, 1)
        user = self.broker.users.get("guest")
        assert user is not None
        self.channel = Channel(1, 1, host, user, Output([], None))

    def count(self, broker: Broker, name: str) -> int:
        queue = broker.virtual_hosts["/"].queues[name]
        return queue.log.end if isinstance(queue, StreamQueue) else queue.message_count() + queue.unacked

    def publish(self) -> None:
        self.channel.publish(b"\x00\x01q", 0, HEADER, len(HEADER))

    def reject(self) -> float:
        """The oldest message dies; how long that took."""
        delivery = self.broker.virtual_hosts["/"].queues["q"].take()
        assert delivery is not None
        assert delivery.message is not None
        began_s = time.monotonic()
        self.broker.virtual_hosts["/"].queues["q"].bury_all([delivery.message], "rejected")
        self.broker.finish_pass()
        return time.monotonic() - began_s

    def rest(self, seconds: float = 5.0) -> bool:
        """Whether everything is on disk soon."""
        assert self.broker.store is not None
        assert self.broker.streams is not None
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            self.broker.finish_pass()
            self.broker.streams.collect()
            self.broker.store.collect()
            if self.broker.store.synced >= self.broker.store.last():
                return True
            time.sleep(0.005)
        return False

    def close(self) -> None:
        self.disk.go_on.set()
        assert self.broker.streams is not None
        assert self.broker.store is not None
        self.broker.streams.close()
        self.broker.store.close()


@pytest.fixture
def setting(tmp_path: Path) -> Iterator[Setting]:
    made = Setting(tmp_path)
    for _ in range(5):
        made.publish()
    assert made.rest()
    yield made
    made.close()


def test_a_dead_letter_for_a_stream_keeps_nobody_waiting(setting: Setting) -> None:
    setting.disk.go_on.clear()
    for _ in range(3):
        assert setting.reject() < LONG_S
    setting.publish()
    assert not setting.rest(0.2), "the journal waits, and nothing after the dead letters is safe"
    assert setting.count(setting.broker, "s") == 0
    setting.disk.go_on.set()
    assert setting.rest()
    assert setting.count(setting.broker, "s") == 3


def test_the_journal_does_not_let_go_before_the_stream_has_it(setting: Setting, tmp_path: Path) -> None:
    setting.disk.go_on.clear()
    setting.reject()
    assert not setting.rest(0.2)
    copy = tmp_path.with_name(tmp_path.name + "-copy")
    shutil.copytree(tmp_path, copy)
    after_a_crash = opened(copy, Disk())
    assert setting.count(after_a_crash, "q") == 5
    assert after_a_crash.streams is not None
    assert after_a_crash.store is not None
    after_a_crash.streams.close()
    after_a_crash.store.close()


def test_more_and_more_that_is_moved_does_not_hold_the_journal_for_ever(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams_module, "HELD_MAX_S", 0.1)
    assert setting.broker.store is not None
    setting.disk.go_on.clear()
    assert setting.reject() < LONG_S
    time.sleep(0.15)
    threading.Timer(0.3, setting.disk.go_on.set).start()
    assert setting.reject() > 0.2, "it waits until the disk is done"
    assert not setting.broker.store.journal.held
    assert setting.rest()
