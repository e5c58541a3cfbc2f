"""A disk that is full or nearly so: publishers wait, consumers drain, and it clears by itself."""

from __future__ import annotations

import os
import re
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from peer import Peer

from flintmq.wire import amqp, methods
from flintmq.wire.methods import Method, decode_method

DISK_OCTETS = 140 << 20
BODY_OCTETS = 200_000
NO_THRESHOLD = "[limits]\ndisk_free_bytes_min = 0\n"

_NUMBER = struct.Struct(">I")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, small enough to fill."""
    place = tmp_path / "disk"
    place.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={DISK_OCTETS}", "flintmq-test", str(place)]
    mounted = subprocess.run(["mount", *options], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"a small file system takes the right to mount one: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


class Flood:
    """Publishes large persistent messages with confirms, a few under way, until it is told to stop."""

    def __init__(self, peer: Peer, queue: str) -> None:
        self.peer = peer
        self.queue = queue
        self.sent = 0
        self.confirmed = 0
        peer.call(1, methods.ConfirmSelect())

    def publish(self) -> None:
        self.peer.publish(1, _NUMBER.pack(self.sent) + bytes(BODY_OCTETS), key=self.queue, delivery_mode=2)
        self.sent += 1

    def next(self) -> Method:
        frame = self.peer.next_frame()
        assert frame.kind == amqp.FRAME_METHOD
        method = decode_method(self.peer.version, frame.payload)
        if isinstance(method, methods.BasicAck):
            self.confirmed = method.delivery_tag
        return method

    def until_blocked(self) -> methods.ConnectionBlocked:
        while True:
            self.publish()
            while self.confirmed < self.sent:
                method = self.next()
                if isinstance(method, methods.ConnectionBlocked):
                    return method

    def until_unblocked(self) -> None:
        while not isinstance(self.next(), methods.ConnectionUnblocked):
            pass


def numbers(peer: Peer, queue: str, count: int) -> list[int]:
    """The first messages of the queue, for good."""
    taken = []
    peer.call(1, methods.BasicConsume(queue=queue, consumer_tag="c", no_ack=True))
    for _ in range(count):
        taken.append(_NUMBER.unpack_from(peer.delivery(1)[1].body)[0])
    return taken


def test_a_full_disk_blocks_publishers_and_clears_by_itself(start: Any, small_disk: Path) -> None:
    life = start(NO_THRESHOLD, small_disk / "data")
    with life.connect() as peer, life.connect() as consumer:
        peer.call(1, methods.QueueDeclare(queue="q", durable=True))
        flood = Flood(peer, "q")
        blocked = flood.until_blocked()
        assert "No space left on device" in blocked.reason or "octets free" in blocked.reason
        life.wait_for(re.compile("publishers are blocked"))
        confirmed = flood.confirmed
        assert confirmed > 200
        taken = numbers(consumer, "q", confirmed)
        assert taken == list(range(confirmed))
        flood.until_unblocked()
        while flood.confirmed < flood.sent:
            flood.next()
        rest = [_NUMBER.unpack_from(consumer.delivery(1)[1].body)[0] for _ in range(flood.sent - confirmed)]
        assert rest == list(range(confirmed, flood.sent))
        flood.publish()
        flood.next()
        assert flood.confirmed == flood.sent


def test_killed_on_a_full_disk_it_starts_and_has_all_that_was_confirmed(start: Any, small_disk: Path) -> None:
    data = small_disk / "data"
    life = start(NO_THRESHOLD, data)
    with life.connect() as peer:
        peer.call(1, methods.QueueDeclare(queue="q", durable=True))
        flood = Flood(peer, "q")
        flood.until_blocked()
        life.kill()
    filler = small_disk / "filler"
    with filler.open("wb") as stream:
        try:
            while True:
                os.write(stream.fileno(), bytes(4096))
        except OSError:
            pass  # now there is not one octet left
    life = start(NO_THRESHOLD, data)
    with life.connect() as consumer:
        assert numbers(consumer, "q", flood.confirmed) == list(range(flood.confirmed))
    filler.unlink()
    life.stop()


def test_the_threshold_blocks_before_the_disk_is_full(start: Any, small_disk: Path) -> None:
    life = start("[limits]\ndisk_free_bytes_min = '70MiB'\n", small_disk / "data")
    with life.connect() as peer, life.connect() as consumer:
        peer.call(1, methods.QueueDeclare(queue="q", durable=True))
        flood = Flood(peer, "q")
        blocked = flood.until_blocked()
        assert "of disk_free_bytes_min" in blocked.reason
        filesystem = os.statvfs(small_disk)
        assert filesystem.f_bavail * filesystem.f_frsize > 8 << 20
        assert numbers(consumer, "q", flood.confirmed) == list(range(flood.confirmed))
        flood.until_unblocked()
        life.stop()


def test_a_low_threshold_means_what_it_says_on_a_disk_with_little_room(start: Any, small_disk: Path) -> None:
    """A file of the usual size would not fit beside what is to be left free."""
    least = 16 << 20
    filler = small_disk / "filler"
    filler.write_bytes(bytes(DISK_OCTETS - (40 << 20)))
    limit = f"[limits]\ndisk_free_bytes_min = {least}\n"
    life = start(limit, small_disk / "data")
    with life.connect() as peer, life.connect() as consumer:
        peer.call(1, methods.QueueDeclare(queue="q", durable=True))
        flood = Flood(peer, "q")
        blocked = flood.until_blocked()
        assert f"less than the {least} of disk_free_bytes_min" in blocked.reason
        filesystem = os.statvfs(small_disk)
        assert least - (8 << 20) < filesystem.f_bavail * filesystem.f_frsize < least
        assert flood.confirmed * BODY_OCTETS > 12 << 20
        confirmed = flood.confirmed
        # With a limit and acks: whoever needs no acks is handed more than the test reads.
        consumer.call(1, methods.BasicQos(prefetch_count=confirmed // 2))
        consumer.call(1, methods.BasicConsume(queue="q", consumer_tag="half"))
        for number in range(confirmed // 2):
            assert _NUMBER.unpack_from(consumer.delivery(1)[1].body)[0] == number
        consumer.send(1, methods.BasicAck(delivery_tag=confirmed // 2, multiple=True))
    life.kill()
    filler.unlink()
    life = start(NO_THRESHOLD, small_disk / "data")  # with files of another size
    with life.connect() as peer, life.connect() as consumer:
        assert numbers(consumer, "q", 1)[0] <= confirmed // 2
        peer.call(1, methods.QueueDeclare(queue="other", durable=True))
        flood = Flood(peer, "other")
        flood.publish()
        while flood.confirmed < flood.sent:
            flood.next()
    life.stop()


def test_no_threshold_can_be_met_by_a_disk_too_small_and_consumers_are_served(
    start: Any, small_disk: Path
) -> None:
    """Blocked from the beginning: says why, and everything but publishing works."""
    life = start("[limits]\ndisk_free_bytes_min = '1GiB'\n", small_disk / "data")
    with life.connect() as peer:
        peer.call(1, methods.QueueDeclare(queue="q", durable=True))
        peer.publish(1, b"", key="q", delivery_mode=2)
        blocked = peer.expect(0, methods.ConnectionBlocked)
        assert "octets free" in blocked.reason
    with life.connect() as peer:
        assert peer.call(1, methods.QueueDeclare(queue="q", passive=True)).message_count == 1
    life.stop()
