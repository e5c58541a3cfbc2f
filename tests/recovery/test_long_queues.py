"""Queues far longer than memory should hold: bounded, in order, and the disk is given back."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from peer import Peer, encode_frame

from flintmq.build import build
from flintmq.wire import amqp, methods
from flintmq.wire.methods import encode_method
from flintmq.wire.properties import BasicProperties, encode_properties

# More than a queue keeps in memory, on either build; the pure one takes its time.
MESSAGES = 300_000 if build() == "compiled" else 150_000
BODY_OCTETS = 100
SEGMENT_OCTETS = 32 << 20
# The current segment and the spare of the journal, the current one of the overflow, and small change.
AT_REST_OCTETS = 3 * SEGMENT_OCTETS + (1 << 20)
PORTION = 1000
SETTLE_TIMEOUT_S = 60.0

_HEAD = struct.Struct(">BHI")
_NUMBER = struct.Struct(">I")


def portions(queue: str, mode: int, count: int, body_octets: int) -> Iterator[bytes]:
    """Frames of numbered messages, a thousand at a time."""
    method = encode_method(amqp.VERSION_0_9_1, methods.BasicPublish(routing_key=queue))
    properties = encode_properties(BasicProperties(delivery_mode=mode))
    header = struct.pack(">HHQ", 60, 0, body_octets) + properties
    front = encode_frame(amqp.FRAME_METHOD, 1, method) + encode_frame(amqp.FRAME_HEADER, 1, header)
    front += _HEAD.pack(amqp.FRAME_BODY, 1, body_octets)
    back = bytes(body_octets - _NUMBER.size) + bytes((amqp.FRAME_END,))
    for first in range(0, count, PORTION):
        numbers = range(first, min(first + PORTION, count))
        yield b"".join([front + _NUMBER.pack(number) + back for number in numbers])


def fill(peer: Peer, queue: str, mode: int, count: int, body_octets: int = BODY_OCTETS) -> None:
    """Publishes with confirms, some portions under way."""
    peer.call(1, methods.ConfirmSelect())
    peer.socket.settimeout(60)
    sent = confirmed = 0
    for portion in portions(queue, mode, count, body_octets):
        peer.raw(portion)
        sent = min(sent + PORTION, count)
        while sent - confirmed > (8 * PORTION if sent < count else 0):
            confirmed = peer.expect(1, methods.BasicAck).delivery_tag


def numbers_of(peer: Peer, queue: str, count: int) -> list[int]:
    """Takes `count` messages without acks, reading no more of each than its number."""
    peer.call(1, methods.BasicConsume(queue=queue, consumer_tag="c", no_ack=True))
    found: list[int] = []
    read, unpack, head = peer.input.read, _HEAD.unpack, _HEAD.size
    while len(found) < count:
        kind, _, size = unpack(read(head))
        payload = read(size + 1)
        if kind == amqp.FRAME_BODY:
            found.append(_NUMBER.unpack_from(payload)[0])
    return found


def disk_octets(data: Path) -> int:
    files = [each for each in data.rglob("*") if each.is_file()]
    return sum(os.stat(each).st_blocks * 512 for each in files)


def wait_until(condition: Any, what: str) -> None:
    deadline = time.monotonic() + SETTLE_TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)  # the disk is looked at from outside: there is no event to wait for


@pytest.mark.parametrize("mode", [2, 1], ids=["persistent", "transient"])
def test_a_long_queue_costs_little_memory_and_comes_out_in_order(start: Any, data: Path, mode: int) -> None:
    life = start()
    with life.connect() as peer:
        peer.call(1, methods.QueueDeclare(queue="q", durable=True))
        before = life.rss_octets()
        fill(peer, "q", mode, MESSAGES)
        assert peer.call(1, methods.QueueDeclare(queue="q", passive=True)).message_count == MESSAGES
        assert life.rss_octets() - before < 120 << 20
        assert numbers_of(peer, "q", MESSAGES) == list(range(MESSAGES))
    wait_until(lambda: disk_octets(data) <= AT_REST_OCTETS, "the disk is not given back")
    life.stop()


@pytest.mark.parametrize("how", ["purge", "delete"])
def test_what_lies_on_disk_only_goes_with_its_queue(start: Any, data: Path, how: str) -> None:
    """Both kinds in one queue, most of it paged out."""
    life = start()
    count = 4500
    with life.connect() as peer:
        peer.call(1, methods.QueueDeclare(queue="q", durable=True))
        fill(peer, "q", 2, count, 20_000)
        peer.open(2)
        for number in range(3000):
            peer.publish(2, b"t" * 20_000, key="q", delivery_mode=1)
            if number % 500 == 0:
                peer.call(2, methods.QueueDeclare(queue="q", passive=True))
        held = peer.call(2, methods.QueueDeclare(queue="q", passive=True)).message_count
        assert held == count + 3000
        assert disk_octets(data) > 120_000_000
        gone = methods.QueuePurge(queue="q") if how == "purge" else methods.QueueDelete(queue="q")
        assert peer.call(2, gone).message_count == held
        wait_until(lambda: disk_octets(data) <= AT_REST_OCTETS, "the disk is not given back")
    life.kill()
    life = start()
    with life.connect() as peer:
        assert peer.call(1, methods.QueueDeclare(queue="q", durable=True)).message_count == 0
    life.stop()


def test_a_selective_consumer_leaves_on_disk_what_it_refuses(start: Any) -> None:
    """240 MB, of which the last message alone is wanted; others are served while it is looked for."""
    life = start()
    count = 12_000
    with life.connect() as peer, life.connect() as other:
        peer.call(1, methods.QueueDeclare(queue="q", durable=True))
        fill(peer, "q", 2, count, 20_000)
        peer.publish(1, b"wanted", key="q", delivery_mode=2, message_id="last")
        peer.expect(1, methods.BasicAck)
        before = life.rss_octets()
        peer.socket.settimeout(120)
        selector = {"x-selector": "message_id = 'last'"}
        peer.send(1, methods.BasicConsume(queue="q", consumer_tag="c", arguments=selector))
        other.call(1, methods.QueueDeclare(queue="elsewhere"))
        peer.expect(1, methods.BasicConsumeOk)
        _, found = peer.delivery(1)
        assert found.body == b"wanted"
        assert life.rss_octets() - before < 64 << 20
        assert other.call(1, methods.QueueDeclare(queue="q", passive=True)).message_count == count
    life.stop()


def test_one_old_message_pins_no_more_than_itself(start: Any, data: Path, drain: Any) -> None:
    """Churn past an unacked message: disk use stays under twice the live data plus two segments."""
    life = start()
    with life.connect() as peer, life.connect() as consumer:
        peer.call(1, methods.QueueDeclare(queue="old", durable=True))
        peer.call(1, methods.QueueDeclare(queue="q", durable=True))
        fill(peer, "old", 2, 1, 1000)
        got = consumer.get(1, "old")
        assert got is not None
        for _ in range(5):
            peer.call(1, methods.ChannelClose(reply_code=200))
            peer.open(1)
            fill(peer, "q", 2, 2000, 20_000)
            assert len(numbers_of(peer, "q", 2000)) == 2000
        wait_until(
            lambda: disk_octets(data) <= 2 * 1000 + 2 * SEGMENT_OCTETS + (1 << 20),
            "one old message pins whole segments",
        )
    life.kill()
    with start().connect() as peer:
        assert [(len(body), again) for body, again in drain(peer, "old")] == [(1000, True)]
