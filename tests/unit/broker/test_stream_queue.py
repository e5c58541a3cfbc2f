"""Consumers of a stream beside each other: what each of them gets in a pass, and when the disk has failed."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flintmq.broker.broker import Broker
from flintmq.broker.channels.channel import Channel
from flintmq.broker.queues.consumer import Consumer
from flintmq.broker.streams.stream_queue import StreamQueue
from flintmq.clock import Clock
from flintmq.config import Config
from flintmq.protocol.outbox import Output
from flintmq.storage.disk import Disk
from flintmq.storage.options import JournalOptions
from flintmq.storage.streams.store import StreamStore

HEADER = b"\x00\x3c\x00\x00" + bytes(8) + b"\x00\x00"


class Clockwork(Clock):
    """Goes on when it is told to, and by `step_s` whenever it is asked."""

    now_s = 1_000_000.0
    step_s = 0.0

    def monotonic_s(self) -> float:
        self.now_s += self.step_s
        return self.now_s

    def wall_ms(self) -> int:
        return int(self.now_s * 1000)


class FailingDisk(Disk):
    """Has no descriptor left for somebody who wants to read."""

    is_failing = False

    def open_to_read(self, path: str) -> int:
        if self.is_failing:
            raise OSError(errno.EMFILE, "Too many open files", path)
        return super().open_to_read(path)


class Setting:
    """A broker with one stream."""

    def __init__(self, path: Path) -> None:
        self.clock = Clockwork()
        self.disk = FailingDisk()
        self.broker = Broker(Config(), self.clock)
        options = JournalOptions(threaded=False)
        self.storage = StreamStore(str(path / "streams"), self.disk, options, self.clock)
        self.broker.attach_streams(self.storage)
        self.host = self.broker.virtual_hosts["/"]
        self.channels = 0
        self.publisher = self.channel()
        queue = self.host.declare_queue("s", True, False, False, {"x-queue-type": "stream"}, 1)
        assert isinstance(queue, StreamQueue)
        self.queue = queue

    def channel(self) -> Channel:
        user = self.broker.users.get("guest")
        assert user is not None
        self.channels += 1
        return Channel(self.channels, 1, self.host, user, Output([], None))

    def publish(self, count: int) -> None:
        for _ in range(count):
            self.publisher.publish(b"\x00\x01s", 0, HEADER, len(HEADER))
        self.broker.finish_pass()
        assert self.broker.streams is not None
        self.broker.streams.collect()

    def consumer(self, **arguments: Any) -> Consumer:
        channel = self.channel()
        channel.prefetch_count = 60_000
        named = {"x-stream-offset": "first"}
        named.update({f"x-{key.replace('_', '-')}": value for key, value in arguments.items()})
        consumer = Consumer(channel, self.queue, "c", False, False, False, named)
        self.queue.subscribe(consumer)
        return consumer

    def passes(self, most: int = 1000) -> int:
        """Until there is nothing left to do; how many it took."""
        for count in range(most):
            if not self.broker.pass_work.queues:
                return count
            self.broker.finish_pass()
        raise AssertionError("there is always something left to do")


@pytest.fixture
def setting(tmp_path: Path) -> Iterator[Setting]:
    made = Setting(tmp_path)
    yield made
    made.storage.close()


def test_a_consumer_that_the_disk_has_failed_is_served_when_it_works_again(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    setting.publish(10)
    setting.storage.shed()
    consumers = [setting.consumer() for _ in range(3)]
    setting.disk.is_failing = True
    for _ in range(5):
        setting.passes()
        assert len(setting.broker.timetable.alarms) == 1
        setting.clock.now_s += 2
        setting.broker.timetable.run()
    assert [each.outstanding for each in consumers] == [0, 0, 0]
    assert len([each for each in caplog.messages if "cannot be read" in each]) == 3
    setting.disk.is_failing = False
    setting.passes()
    assert [each.outstanding for each in consumers] == [10, 10, 10]
    setting.clock.now_s += 2
    setting.broker.timetable.run()
    assert not setting.broker.pass_work.queues
    assert not setting.broker.timetable.alarms


def test_nobody_tries_again_for_a_consumer_that_is_gone(setting: Setting) -> None:
    setting.publish(10)
    setting.storage.shed()
    consumer = setting.consumer()
    setting.disk.is_failing = True
    setting.passes()
    setting.queue.unsubscribe(consumer)
    setting.clock.now_s += 2
    setting.broker.timetable.run()
    assert not setting.broker.pass_work.queues
    assert not setting.broker.timetable.alarms


# As pass_work.py and stream_queue.py have them; in the compiled build those are C's own.
HANDED_OUT_MAX = 512
SHARE_MIN = 64


def test_the_readers_of_a_deleted_stream_end_without_a_word(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    """Some of them are due when the stream goes, and there may be nothing left to read."""
    setting.publish(1000)
    setting.storage.shed()
    ready = [setting.consumer() for _ in range(100)]
    for consumer in ready[50:]:
        consumer.prefetch_count = 1  # nothing more after the first
    setting.broker.finish_pass()
    assert setting.broker.pass_work.queues, "there is more for them"
    setting.host.delete_queue(setting.queue)
    for consumer in ready:
        setting.queue.rejoin(consumer)
    setting.passes()
    assert not caplog.messages
    assert not setting.queue.consumers
    assert not setting.queue.active
    assert not setting.broker.timetable.alarms


def test_many_readers_leave_together(setting: Setting) -> None:
    setting.publish(10)
    readers = [setting.consumer() for _ in range(100)]
    setting.queue.unsubscribe_many(readers[1:])
    setting.queue.unsubscribe_many(readers[50:])
    assert setting.queue.consumers == setting.queue.active == readers[:1]
    assert list(setting.queue.readers) == readers[:1]
    setting.passes()
    assert [each.outstanding for each in readers[:3]] == [10, 0, 0]


def handed_out(consumers: list[Consumer]) -> int:
    return sum(each.outstanding for each in consumers)


def test_many_consumers_share_the_portion_of_a_pass(setting: Setting) -> None:
    setting.publish(2000)
    setting.broker.finish_pass()
    setting.storage.shed()
    consumers = [setting.consumer() for _ in range(20)]
    before = 0
    for _ in range(1000):
        if not setting.broker.pass_work.queues:
            break
        setting.broker.finish_pass()
        counts = [each.outstanding for each in consumers]
        assert sum(counts) - before <= HANDED_OUT_MAX + SHARE_MIN
        assert max(counts) - min(counts) <= HANDED_OUT_MAX + SHARE_MIN, "nobody is far ahead of others"
        before = sum(counts)
    assert [each.outstanding for each in consumers] == [2000] * 20
    assert not setting.broker.pass_work.queues


def test_one_that_is_behind_has_all_of_a_pass_beside_many_that_are_not(setting: Setting) -> None:
    idle = [setting.consumer() for _ in range(20)]
    setting.publish(100)
    setting.passes()
    assert handed_out(idle) == 2000
    setting.publish(400)
    setting.passes()
    behind = setting.consumer()
    setting.broker.finish_pass()
    assert behind.outstanding >= HANDED_OUT_MAX * 3 // 4


def test_many_consumers_with_nothing_to_read_do_not_keep_a_pass(setting: Setting) -> None:
    """Each is looked at once for what was published, in as many passes as it takes."""
    consumers = [setting.consumer() for _ in range(3000)]
    setting.passes()
    setting.publish(1)
    assert handed_out(consumers) == 0
    setting.broker.finish_pass()
    assert 0 < handed_out(consumers) <= HANDED_OUT_MAX
    assert setting.passes() < 40
    assert handed_out(consumers) == 3000


def test_selectors_have_some_time_in_each_pass(setting: Setting) -> None:
    setting.publish(1000)
    consumers = [setting.consumer(selector="a = 'b'") for _ in range(5)]
    taker = setting.consumer()
    setting.clock.step_s = 0.0004
    count = setting.passes()
    assert count > 50, "some messages in each pass"
    assert handed_out(consumers) == 0
    assert taker.outstanding == 1000
    setting.publish(1)
    setting.passes()
    assert taker.outstanding == 1001


def test_messages_that_are_refused_count(setting: Setting) -> None:
    setting.publish(3000)
    for _ in range(10):
        setting.consumer(selector="a = 'b'")
    assert setting.passes() >= 3000 * 10 // (HANDED_OUT_MAX + SHARE_MIN)
