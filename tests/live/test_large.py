"""Large messages through a real process: little memory, fair turns, nothing lost."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from pathlib import Path

from live.serving import Serving, serving
from peer import Peer

from flintmq.wire import amqp, methods
from flintmq.wire.methods import encode_method
from flintmq.wire.properties import BasicProperties, encode_properties

LARGE_BYTES = 300_000_000
GROWTH_BYTES_MAX = 100_000_000
PIECE = bytes(range(256)) * 511  # a frame of 130,816 octets


def memory_bytes(server: Serving, name: str = "VmHWM") -> int:
    """What the process has resident: VmRSS now, VmHWM at the most so far."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith(name + ":"))
    return int(line.split()[1]) * 1024


def body_frames(octets: int, channel: int) -> Iterator[tuple[bytes, bytes]]:
    """Payloads of a body, and their frames."""
    sizes = [len(PIECE)] * (octets // len(PIECE)) + [octets % len(PIECE)]
    for size in filter(None, sizes):
        yield PIECE[:size], struct.pack(">BHI", amqp.FRAME_BODY, channel, size) + PIECE[:size] + b"\xce"


def digest(octets: int) -> str:
    found = hashlib.sha256()
    for payload, _ in body_frames(octets, 0):
        found.update(payload)
    return found.hexdigest()


def publish_large(peer: Peer, channel: int, octets: int, key: str, exchange: str = "", mode: int = 2) -> None:
    publish = methods.BasicPublish(exchange=exchange, routing_key=key)
    head = struct.pack(">HHQ", amqp.CLASS_BASIC, 0, octets)
    peer.frame(amqp.FRAME_METHOD, channel, encode_method(peer.version, publish))
    peer.frame(amqp.FRAME_HEADER, channel, head + encode_properties(BasicProperties(delivery_mode=mode)))
    for _, octets_of_frame in body_frames(octets, channel):
        peer.raw(octets_of_frame)


def take_large(peer: Peer, channel: int) -> tuple[str, int]:
    """Digest and size of the body that follows; what other channels get meanwhile waits for them."""
    header = peer.frame_of(channel)
    assert header.kind == amqp.FRAME_HEADER
    size = struct.unpack_from(">HHQ", header.payload)[2]
    found = hashlib.sha256()
    left = size
    while left:
        frame = peer.frame_of(channel)
        assert frame.kind == amqp.FRAME_BODY
        found.update(frame.payload)
        left -= len(frame.payload)
    return found.hexdigest(), size


def confirmed(peer: Peer, channel: int) -> None:
    peer.call(channel, methods.ConfirmSelect())


def test_memory_stays_small_and_other_channels_have_their_turn(tmp_path: Path) -> None:
    with serving("--data", str(tmp_path)) as server, Peer.connect(server.port) as peer:
        peer.socket.settimeout(60)
        peer.open(1, 2, 3)
        peer.call(1, methods.QueueDeclare(queue="large", durable=True))
        peer.call(2, methods.QueueDeclare(queue="small"))
        before = memory_bytes(server)
        confirmed(peer, 1)
        publish_large(peer, 1, LARGE_BYTES, "large")
        peer.expect(1, methods.BasicAck)
        peer.call(2, methods.BasicConsume(queue="small", consumer_tag="s", no_ack=True))
        peer.send(1, methods.BasicGet(queue="large", no_ack=True))
        peer.expect(1, methods.BasicGetOk)
        # A message asked for in the middle of the body is there long before the body's end.
        found, size, turns, published = hashlib.sha256(), 0, 0, False
        assert peer.frame_of(1).kind == amqp.FRAME_HEADER
        while size < LARGE_BYTES:
            if not published:
                peer.publish(3, b"small", key="small")
                published = True
            frame = peer.frame_of(1)
            assert frame.kind == amqp.FRAME_BODY
            found.update(frame.payload)
            size += len(frame.payload)
            if peer.waiting.get(2):
                assert peer.delivery(2)[1].body == b"small"
                turns += 1
                published = False
        assert found.hexdigest() == digest(LARGE_BYTES)
        assert turns > 20
        assert memory_bytes(server) - before < GROWTH_BYTES_MAX


def test_a_restart_between_publish_and_consume(tmp_path: Path) -> None:
    octets = 40_000_000
    with serving("--data", str(tmp_path)) as server, Peer.connect(server.port) as peer:
        peer.open(1)
        for queue in ("a", "b", "c"):
            peer.call(1, methods.QueueDeclare(queue=queue, durable=True))
            peer.call(1, methods.QueueBind(queue=queue, exchange="amq.fanout"))
        confirmed(peer, 1)
        publish_large(peer, 1, octets, "", exchange="amq.fanout")
        peer.expect(1, methods.BasicAck)
        server.kill()
    spools = list(tmp_path.glob("*.spool"))
    assert [spool.stat().st_size for spool in spools] == [octets]
    with serving("--data", str(tmp_path)) as server, Peer.connect(server.port) as peer:
        peer.open(1)
        for queue in ("a", "b", "c"):
            answer = peer.call(1, methods.BasicGet(queue=queue, no_ack=True))
            assert isinstance(answer, methods.BasicGetOk)
            assert take_large(peer, 1) == (digest(octets), octets)
        peer.close()
    with serving("--data", str(tmp_path)):
        assert not list(tmp_path.glob("*.spool"))


def test_a_consumer_that_dies_in_the_middle_gives_the_message_back(tmp_path: Path) -> None:
    octets = 60_000_000
    with serving("--data", str(tmp_path)) as server, Peer.connect(server.port) as peer:
        peer.open(1)
        peer.call(1, methods.QueueDeclare(queue="q"))
        publish_large(peer, 1, octets, "q", mode=1)
        with Peer.connect(server.port) as dying:
            dying.open(1)
            dying.call(1, methods.BasicConsume(queue="q", consumer_tag="c"))
            assert not dying.expect(1, methods.BasicDeliver).redelivered
            assert dying.frame_of(1).kind == amqp.FRAME_HEADER
            assert dying.frame_of(1).kind == amqp.FRAME_BODY
        peer.call(1, methods.BasicConsume(queue="q", consumer_tag="c"))
        deliver = peer.expect(1, methods.BasicDeliver)
        assert deliver.redelivered
        assert take_large(peer, 1) == (digest(octets), octets)
        peer.send(1, methods.BasicAck(delivery_tag=deliver.delivery_tag))
        peer.close()


def test_a_damaged_body_ends_the_delivery_and_does_not_come_back(tmp_path: Path) -> None:
    """The last octets of it are sent to nobody; what lies behind the message comes."""
    octets = 6_000_000
    with serving("--data", str(tmp_path)) as server, Peer.connect(server.port) as peer:
        peer.open(1)
        peer.call(1, methods.QueueDeclare(queue="q", durable=True))
        confirmed(peer, 1)
        publish_large(peer, 1, octets, "q")
        peer.expect(1, methods.BasicAck)
        peer.publish(1, b"behind", key="q", delivery_mode=2)
        peer.expect(1, methods.BasicAck)
        (spool,) = tmp_path.glob("*.spool")
        with spool.open("r+b") as file:
            file.seek(3_000_000)
            file.write(b"another")
        with Peer.connect(server.port) as consumer:
            consumer.open(1)
            consumer.call(1, methods.BasicConsume(queue="q", consumer_tag="c"))
            consumer.expect(1, methods.BasicDeliver)
            close = consumer.expect(0, methods.ConnectionClose)
            assert close.reply_code == amqp.INTERNAL_ERROR
            assert "the rest of a message cannot be read" in close.reply_text
        answer = peer.call(1, methods.BasicGet(queue="q", no_ack=True))
        assert isinstance(answer, methods.BasicGetOk)
        assert peer.content(1)[1] == b"behind"
        peer.close()
    said = "".join(server.errors)
    assert said.count("a message of 6000000 octets is lost") == 1
    assert "its checksum is wrong" in said
    assert "queue 'q' goes on without" in said
