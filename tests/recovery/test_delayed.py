"""Delayed messages, and queues that refuse duplicates, over the end of their broker."""

from __future__ import annotations

import time
from typing import Any

import pytest
from peer import Peer

from flintmq.protocol.connection import SPOOLED_BYTES_MIN
from flintmq.wire import methods

DELAY_MS = 4000


def declare(peer: Peer) -> None:
    arguments = {"x-delayed-type": "direct"}
    peer.call(
        1, methods.ExchangeDeclare(exchange="x", type="x-delayed-message", durable=True, arguments=arguments)
    )
    peer.call(1, methods.QueueDeclare(queue="q", durable=True))
    peer.call(1, methods.QueueBind(queue="q", exchange="x", routing_key="k"))
    peer.call(1, methods.ConfirmSelect())


def depth(peer: Peer) -> int:
    return int(peer.call(1, methods.QueueDeclare(queue="q", durable=True)).message_count)


def send(peer: Peer, bodies: list[bytes], mode: int = 2, **headers: Any) -> None:
    """Publishes, and returns when all are promised."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    for body in bodies:
        peer.publish(1, body, exchange="x", key="k", delivery_mode=mode, headers=given)
    confirmed = 0
    while confirmed < len(bodies):
        ack = peer.expect(1, methods.BasicAck)
        confirmed = ack.delivery_tag if ack.multiple else confirmed + 1


def consumed(peer: Peer, count: int) -> list[bytes]:
    peer.call(1, methods.BasicConsume(queue="q", no_ack=True, consumer_tag="c"))
    return [peer.delivery(1)[1].body for _ in range(count)]


@pytest.mark.parametrize("by", ["SIGTERM", "SIGKILL"])
def test_what_was_promised_comes_in_time_after_a_restart(start: Any, by: str) -> None:
    life = start()
    due_ms = time.time_ns() // 1_000_000 + DELAY_MS
    large = b"L" * (SPOOLED_BYTES_MIN + 5)
    with life.connect() as peer:
        declare(peer)
        send(peer, [b"%d" % number for number in range(200)], x_deliver_at=due_ms)
    with life.connect() as peer:
        declare(peer)
        send(peer, [large], x_deliver_at=due_ms + 1)
        send(peer, [], mode=1)
        peer.publish(1, b"transient", exchange="x", key="k", headers={"x-deliver-at": due_ms})
        peer.expect(1, methods.BasicAck)
        assert depth(peer) == 0
    if by == "SIGTERM":
        life.stop()
    else:
        life.kill()
    life = start()
    with life.connect() as peer:
        declare(peer)
        waiting = depth(peer)
        assert waiting == 0 or time.time_ns() // 1_000_000 >= due_ms, "it is not due yet"
        got = consumed(peer, 201)
        late_ms = time.time_ns() // 1_000_000 - due_ms
        assert got == [*[b"%d" % number for number in range(200)], large]
        assert late_ms >= 0
        assert peer.is_quiet(1)
    life.stop()
    life = start()
    with life.connect() as peer:
        assert depth(peer) == 0, "what was delivered does not come again"
    life.stop()


def test_what_became_due_while_nobody_ran_comes_at_once(start: Any) -> None:
    life = start()
    with life.connect() as peer:
        declare(peer)
        send(peer, [b"a", b"b"], x_delay=100)
    life.kill()
    life = start()
    with life.connect() as peer:
        assert sorted(consumed(peer, 2)) == [b"a", b"b"]
    life.stop()


def test_a_deleted_exchange_leaves_nothing_behind(start: Any) -> None:
    life = start()
    with life.connect() as peer:
        declare(peer)
        send(peer, [b"a"] * 10, x_delay=60_000)
        peer.call(1, methods.ExchangeDelete(exchange="x"))
    life.kill()
    life = start()
    assert "messages belong to a queue that is gone" not in life.said_text()
    with life.connect() as peer:
        declare(peer)
        assert depth(peer) == 0
    life.stop()


def test_large_and_transient_messages_wait_too(start: Any) -> None:
    life = start()
    large = b"L" * (SPOOLED_BYTES_MIN + 5)
    with life.connect() as peer:
        declare(peer)
        peer.call(1, methods.QueueDeclare(queue="also", exclusive=True))
        peer.call(1, methods.QueueBind(queue="also", exchange="x", routing_key="k"))
        peer.open(2)
        for queue in ("q", "also"):
            peer.call(2, methods.BasicConsume(queue=queue, no_ack=True, consumer_tag=queue))
        for mode in (1, 2):
            peer.publish(
                1,
                large + b"%d" % mode,
                exchange="x",
                key="k",
                delivery_mode=mode,
                headers={"x-delay": 50 * mode},
            )
            peer.expect(1, methods.BasicAck)
        peer.publish(1, b"small", exchange="x", key="k", delivery_mode=1, headers={"x-delay": 150})
        peer.expect(1, methods.BasicAck)
        got = sorted(peer.delivery(2)[1].body[-6:] for _ in range(6))
        assert got == [b"LLLLL1", b"LLLLL1", b"LLLLL2", b"LLLLL2", b"small", b"small"]
    life.stop()


def test_a_queue_knows_its_duplicates_again(start: Any) -> None:
    life = start()
    arguments = {"x-message-deduplication": True}
    for expected in (["a", "b", "c"], ["a", "b", "c"]):
        with life.connect() as peer:
            peer.call(1, methods.QueueDeclare(queue="d", durable=True, arguments=arguments))
            peer.call(1, methods.ConfirmSelect())
            for number, value in enumerate(["a", "b", "a", "c", "b"], 1):
                headers = {"x-deduplication-header": value}
                peer.publish(1, value.encode(), key="d", delivery_mode=2, headers=headers)
                assert peer.expect(1, methods.BasicAck).delivery_tag == number
            declared = peer.call(1, methods.QueueDeclare(queue="d", durable=True, arguments=arguments))
            assert declared.message_count == len(expected)
        life.kill()
        life = start()
    life.stop()
