"""What connections hold: contents that are not whole, transactions, answers that nobody reads, topology."""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import count
from typing import Any

import pytest
from memory.test_queues import end
from memory.watched import MIB, deafen, pour, publication
from peer import Peer, encode_frame

from flintmq.wire import amqp, methods
from flintmq.wire.methods import encode_method

# Just too small for a file of its own while there is memory.
PARTIAL_BYTES = 4 * MIB - 1000


def unfinished(channel: int) -> bytes:
    """A publish whose last body frame is missing."""
    frames = publication(bytes(PARTIAL_BYTES), key="nowhere", channel=channel)
    return frames[: -(PARTIAL_BYTES % 131_064 + 8)]


@pytest.mark.parametrize("has_store", [True, False], ids=["with a store", "in memory"])
def test_contents_that_are_never_whole(start: Any, has_store: bool) -> None:
    with start(has_store=has_store) as broker:
        for _ in range(25):
            publisher = broker.connect()
            publisher.open(2, 3, 4)
            pour(publisher, [unfinished(channel) for channel in (1, 2, 3, 4)], 0.2)
        end(broker)


def test_frames_that_are_never_whole(start: Any) -> None:
    with start() as broker:
        frame = encode_frame(amqp.FRAME_METHOD, 1, bytes(131_064))[:-8]
        for _ in range(2500):
            peer = Peer(broker.port)
            broker.loads.callback(peer.abort)
            pour(peer, [peer.header], 0.1)
        for _ in range(2500):
            with suppress(ConnectionError):  # refused while memory is critical
                pour(broker.connect_quickly(), [frame], 0.05)
        end(broker)


@pytest.mark.parametrize("size", [50_000, 50], ids=["large", "small"])
def test_transactions_that_are_not_committed(start: Any, size: int) -> None:
    with start() as broker:
        total = 300 * MIB if size > 1000 else 60 * MIB
        for _ in range(30):
            publisher = broker.connect()
            publisher.call(1, methods.TxSelect())
            publisher.call(1, methods.QueueDeclare(queue="q"))
            one = publication(os.urandom(size), key="q") * (1 + 65_536 // size)
            pour(publisher, [one] * (total // 30 // len(one)), 0.2)
        end(broker)


def test_a_branch_of_a_distributed_transaction(start: Any) -> None:
    with start() as broker:
        publisher = broker.connect("0-9")
        publisher.call(1, methods.DtxSelect())
        publisher.call(1, methods.DtxStart(dtx_identifier="branch"))
        one = publication(os.urandom(50_000), key="q", delivery_mode=2)
        pour(publisher, [one * 2] * (300 * MIB // 100_000))
        end(broker)


def test_confirms_that_nobody_reads(start: Any) -> None:
    with start() as broker:
        for _ in range(40):
            publisher = broker.connect()
            deafen(publisher)
            publisher.call(1, methods.ConfirmSelect())
            # Each by itself: a mandatory one without a route is returned before it is confirmed.
            one = publication(b"", key="nowhere", mandatory=True)
            pour(publisher, [one * 1000] * 100, 0.1)
        end(broker)


def test_returns_that_nobody_reads(start: Any) -> None:
    with start() as broker:
        for _ in range(60):
            publisher = broker.connect()
            deafen(publisher)
            one = publication(os.urandom(100_000), key="nowhere", mandatory=True)
            pour(publisher, [one] * 100, 0.1)
        end(broker)


@pytest.mark.parametrize("size", [3_000_000, 30_000])
def test_answers_to_get_that_nobody_reads(start: Any, size: int) -> None:
    with start() as broker:
        owner = broker.connect()
        owner.call(1, methods.QueueDeclare(queue="q"))
        pour(owner, [publication(os.urandom(size), key="q")] * (60 * MIB // size))
        get = encode_frame(
            amqp.FRAME_METHOD, 1, encode_method(amqp.VERSION_0_9_1, methods.BasicGet(queue="q", no_ack=False))
        )
        again = encode_frame(
            amqp.FRAME_METHOD, 1, encode_method(amqp.VERSION_0_9_1, methods.BasicRecover(requeue=True))
        )
        for _ in range(80):
            asker = broker.connect()
            deafen(asker)
            pour(asker, [(get + again) * 200], 0.05)
        end(broker)


def test_many_connections(start: Any) -> None:
    """Each has a queue, a consumer, and a message on its way."""
    with start() as broker:
        for number in range(2000):
            try:
                peer = broker.connect_quickly()
                deafen(peer)
                peer.send(
                    1,
                    methods.QueueDeclare(queue=f"q{number}", exclusive=True, no_wait=True),
                    methods.BasicConsume(queue=f"q{number}", no_wait=True),
                )
            except ConnectionError:
                continue  # there are enough: while memory is critical the broker takes no more of them
            pour(peer, [publication(os.urandom(60_000), key=f"q{number}") * 2], 0.01)
        end(broker)


def test_topology(start: Any) -> None:
    """Queues, bindings and consumers cannot go to disk: at some point there are no more."""
    with start() as broker:
        numbers = count()
        for _ in range(3):
            peer = broker.connect()
            pour(peer, [declarations(numbers) for _ in range(1500)])
        end(broker)


def declarations(numbers: Any) -> bytes:
    frames = b""
    for _ in range(100):
        name = f"queue-{next(numbers)}"
        for method in (
            methods.QueueDeclare(queue=name, exclusive=True, no_wait=True),
            methods.QueueBind(queue=name, exchange="amq.topic", routing_key=f"{name}.*.x", no_wait=True),
            methods.BasicConsume(queue=name, consumer_tag=name, no_wait=True),
        ):
            frames += encode_frame(amqp.FRAME_METHOD, 1, encode_method(amqp.VERSION_0_9_1, method))
    return frames
