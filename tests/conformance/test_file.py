"""Rules of the file class, over sockets, on a broker with a data directory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from broker_process import BrokerProcess
from conformance.conftest import SETTINGS, Connect
from conformance.rule import rule
from peer import Content, Peer

from flintmq.wire import amqp, methods
from flintmq.wire.methods import (
    FileAck,
    FileConsume,
    FileDeliver,
    FileOpen,
    FileOpenOk,
    FilePublish,
    FileStage,
)
from flintmq.wire.properties import FileProperties

LARGE = bytes(range(256)) * 20_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    directory = tmp_path_factory.mktemp("files")
    settings = directory / "flintmq.toml"
    settings.write_text(SETTINGS)
    with BrokerProcess("--config", str(settings), "--data", str(directory / "data")) as running:
        yield running


def stage(peer: Peer, identifier: str, body: bytes, **properties: Any) -> int:
    """Stages what is missing; how much that was."""
    staged = opened(peer, identifier, len(body))
    peer.send_content(1, FileStage(), body[staged:], FileProperties(**properties))
    return len(body) - staged


def opened(peer: Peer, identifier: str, size: int) -> int:
    staged: int = peer.call(1, FileOpen(identifier=identifier, content_size=size)).staged_size
    return staged


def send(peer: Peer, identifier: str, body: bytes, queue: str, **properties: Any) -> None:
    stage(peer, identifier, body, **properties)
    peer.send(1, FilePublish(identifier=identifier, routing_key=queue))


def received(peer: Peer, staged: int = 0) -> tuple[FileOpen, Content, FileDeliver]:
    """All that is missing, which comes block by block."""
    found = peer.expect(1, FileOpen)
    body = b""
    while True:
        peer.send(1, FileOpenOk(staged_size=staged + len(body)))
        peer.expect(1, FileStage)
        properties, block = peer.content(1)
        body += block
        if staged + len(body) == found.content_size:
            return found, Content(properties, body), peer.expect(1, FileDeliver)
        assert block
        assert peer.expect(1, FileOpen) == found


@pytest.fixture
def queue(peer: Peer, name: str, version: str) -> str:
    peer.call(1, methods.QueueDeclare(queue=f"{version}-{name}", durable=True))
    return f"{version}-{name}"


@rule("0-9/file/04", "0-9/file.qos/prefetch-count/01", "0-9/file.publish/exchange/01")
def test_a_window_of_files(peer: Peer, queue: str) -> None:
    for number in range(3):
        send(peer, f"{queue} {number}", b"%d" % number, queue, filename=str(number))
    peer.call(1, methods.FileQos(prefetch_count=2))
    peer.call(1, FileConsume(queue=queue, consumer_tag="own"))
    for number in range(2):
        _, content, delivered = received(peer)
        assert content == Content(FileProperties(filename=str(number)), b"%d" % number)
        assert (delivered.exchange, delivered.routing_key) == ("", queue)
    assert peer.is_quiet(1)
    peer.send(1, FileAck(delivery_tag=1))
    assert received(peer)[1].body == b"2"
    peer.call(1, methods.FileCancel(consumer_tag="own"))
    peer.send(1, FileAck(delivery_tag=3, multiple=True))
    # Or the broker acknowledges for the consumer.
    send(peer, f"{queue} 3", b"3", queue)
    peer.call(1, FileConsume(queue=queue, no_ack=True))
    assert received(peer)[1].body == b"3"
    declared = peer.call(1, methods.QueueDeclare(queue=queue, passive=True))
    assert declared.message_count == 0


@rule("0-9/file.open/content-size/01", "0-9/file.open-ok/staged-size/01", "0-9/file.open-ok/staged-size/02")
def test_staging_goes_on_from_the_place_that_is_told(peer: Peer, connect: Connect, queue: str) -> None:
    assert opened(peer, queue, len(LARGE)) == 0
    peer.send(1, FileStage())
    head = amqp.CLASS_FILE.to_bytes(2, "big") + bytes(2) + len(LARGE).to_bytes(8, "big")
    peer.frame(amqp.FRAME_HEADER, 1, head + bytes(2))
    for at in range(0, 4 << 20, 100_000):
        peer.frame(amqp.FRAME_BODY, 1, LARGE[at : at + 100_000])
    peer.abort()
    peer = connect()
    staged = 0
    for _ in range(
        100
    ):  # what the broker has read of the connection that is gone comes to the disk by and by
        staged = opened(peer, queue, len(LARGE))
        if staged >= 3 << 20:
            break
    assert stage(peer, queue, LARGE) == len(LARGE) - staged
    peer.send(1, FilePublish(identifier=queue, routing_key=queue))
    peer.call(1, FileConsume(queue=queue))
    first = received(peer)
    assert first[1].body == LARGE
    peer.abort()
    peer = connect()
    peer.call(1, FileConsume(queue=queue))
    again = received(peer, 5_000_000)
    assert (again[0], again[1].body, again[2].redelivered) == (first[0], LARGE[5_000_000:], True)
    assert opened(peer, f"{queue} empty", 0) == 0
    send(peer, f"{queue} empty", b"", queue)
    assert received(peer)[1].body == b""
    assert opened(peer, f"{queue} other", 2) == 0
    peer.send_content(1, FileStage(), b"1", FileProperties())
    assert opened(peer, f"{queue} other", 2) == 1
    peer.send_content(1, FileStage(), b"23", FileProperties())
    peer.expect_channel_close(1, amqp.PRECONDITION_FAILED)


@rule("0-9/file/01", "0-9/file/02")
def test_no_file_is_dropped_from_a_long_queue(peer: Peer, queue: str) -> None:
    for number in range(100):
        send(peer, f"{queue} {number}", b"x", queue)
    declared = peer.call(1, methods.QueueDeclare(queue=queue, passive=True))
    assert declared.message_count == 100
    got = peer.get(1, queue)
    assert got is not None
    assert got[1].properties.delivery_mode == 2


@rule("0-9/file/03")
def test_a_queue_has_the_priorities_that_it_asks_for(peer: Peer, queue: str) -> None:
    ranked = f"{queue}-ranked"
    peer.call(1, methods.QueueDeclare(queue=ranked, durable=True, arguments={"x-max-priority": 9}))
    send(peer, f"{ranked} low", b"low", ranked, priority=1)
    send(peer, f"{ranked} high", b"high", ranked, priority=8)
    peer.call(1, FileConsume(queue=ranked))
    assert [received(peer)[1].body for _ in range(2)] == [b"high", b"low"]


@rule("0-9/file.consume/01", "0-9/file.consume/exclusive/01")
def test_a_queue_has_many_consumers_of_files(peer: Peer, connect: Connect, queue: str) -> None:
    for number in range(16):
        peer.call(1, FileConsume(queue=queue, consumer_tag=str(number)))
    other = connect()
    other.send(1, FileConsume(queue=queue, exclusive=True))
    other.expect_channel_close(1, amqp.RESOURCE_LOCKED)


@rule("0-9/file.consume/queue/01")
def test_an_empty_name_needs_a_queue(peer: Peer) -> None:
    peer.send(1, FileConsume())
    peer.expect_connection_close(amqp.NOT_ALLOWED)


@rule("0-9/file.consume/consumer-tag/01")
def test_a_tag_is_of_one_consumer(peer: Peer, queue: str) -> None:
    peer.call(1, FileConsume(queue=queue, consumer_tag="twice"))
    peer.send(1, FileConsume(queue=queue, consumer_tag="twice"))
    peer.expect_connection_close(amqp.NOT_ALLOWED)


@rule("0-9/file.consume/ticket/01", "0-9/file.publish/ticket/01")
def test_permissions_decide_and_not_tickets(connect: Connect, peer: Peer, queue: str) -> None:
    watcher = connect(user="watcher", password="watcher")
    watcher.send(1, FileConsume(queue=queue))
    watcher.expect_channel_close(1, amqp.ACCESS_REFUSED)
    watcher.open(1)
    send(watcher, queue, b"x", queue)
    watcher.expect_channel_close(1, amqp.ACCESS_REFUSED)


@rule("0-9/file.publish/exchange/02")
def test_nothing_is_published_to_an_internal_exchange(peer: Peer, queue: str) -> None:
    peer.call(1, methods.ExchangeDeclare(exchange=f"{queue}-inner", type="direct", internal=True))
    stage(peer, queue, b"x")
    peer.send(1, FilePublish(identifier=queue, exchange=f"{queue}-inner"))
    peer.expect_channel_close(1, amqp.ACCESS_REFUSED)


@rule("0-9/file.publish/mandatory/01", "0-9/file.publish/immediate/01")
@pytest.mark.parametrize("body", [b"small", LARGE])
def test_files_come_back(peer: Peer, queue: str, body: bytes) -> None:
    stage(peer, queue, body)
    peer.send(1, FilePublish(identifier=queue, routing_key="no such queue", mandatory=True))
    assert peer.expect(1, methods.FileReturn).reply_code == amqp.NO_ROUTE
    assert peer.content(1).body == body
    assert stage(peer, queue, body) == 0
    peer.send(1, FilePublish(identifier=queue, routing_key=queue, immediate=True))
    assert peer.expect(1, methods.FileReturn).reply_code == amqp.NO_CONSUMERS
    assert peer.content(1).body == body


@rule("0-9/file.ack/multiple/01")
def test_a_tag_of_no_delivery_closes_the_channel(peer: Peer) -> None:
    peer.send(1, FileAck(delivery_tag=77))
    peer.expect_channel_close(1, amqp.PRECONDITION_FAILED)


@rule("0-9/file.deliver/01", "0-9/file.reject/requeue/01")
def test_a_rejected_file_comes_again(peer: Peer, queue: str) -> None:
    send(peer, queue, b"x", queue)
    peer.call(1, FileConsume(queue=queue))
    for number in range(1, 8):
        assert received(peer)[2].redelivered == (number > 1)
        peer.send(1, methods.FileReject(delivery_tag=number, requeue=True))
