"""Many of something that is small by itself: connections, logins, channels, consumers, requests."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import Any

import pytest
from memory.test_connections import unfinished
from memory.test_queues import end
from memory.watched import MIB, Watched, deafen, discard, pour, publication
from peer import Peer, encode_frame

from flintmq.wire import amqp, methods
from flintmq.wire.methods import Method, encode_method

# How long the broker is left with requests.
LOAD_S = 4.0
# A table of 8 KiB, all of it fields without a value: the most objects for the octets.
FIELDS = {f"{number:x}": None for number in range(1000)}


def frames(*sent: Method, channel: int = 1) -> bytes:
    return b"".join(
        encode_frame(amqp.FRAME_METHOD, channel, encode_method(amqp.VERSION_0_9_1, each)) for each in sent
    )


def crowd(broker: Watched, count: int) -> list[Peer]:
    """Connections with a channel, as many as the broker takes."""
    peers = []
    for _ in range(count):
        with suppress(ConnectionError):
            peers.append(broker.connect_quickly())
    return peers


@pytest.mark.parametrize("has_store", [True, False], ids=["with a store", "in memory"])
def test_connections_that_publish_all_at_once(start: Any, has_store: bool) -> None:
    """None of them has published before, and each brings a buffer full."""
    with start(has_store=has_store) as broker:
        broker.connect().call(1, methods.QueueDeclare(queue="q", exclusive=True))
        peers = crowd(broker, 1500)
        one = publication(os.urandom(120_000), key="q") * 2
        for peer in peers:
            peer.socket.setblocking(False)
        for peer in peers:
            with suppress(BlockingIOError, ConnectionError):
                peer.socket.send(one)
        with suppress(ConnectionError):
            discard(peers[-1], 1.0)
        end(broker)


def test_logins_with_large_tables(start: Any) -> None:
    with start() as broker:
        login = encode_frame(
            amqp.FRAME_METHOD,
            0,
            encode_method(
                amqp.VERSION_0_9_1,
                methods.ConnectionStartOk(
                    client_properties=FIELDS, mechanism="PLAIN", response=b"\0guest\0guest", locale="en_US"
                ),
            ),
        )
        peers = []
        for _ in range(2500):
            peers.append(Peer(broker.port))
            broker.loads.callback(peers[-1].abort)
            pour(peers[-1], [peers[-1].header], 0.1)
        for peer in peers:
            # One after the other: what is asked for here is memory.
            peer.socket.settimeout(1.0)
            with suppress(OSError):
                peer.socket.recv(4096)
                peer.socket.sendall(login)
                peer.socket.recv(4096)
        end(broker)


@pytest.mark.parametrize("has_store", [True, False], ids=["with a store", "in memory"])
def test_channels_with_contents_that_are_never_whole(start: Any, has_store: bool) -> None:
    """Too small each to go to a file."""
    with start(has_store=has_store) as broker:
        for _ in range(8):
            peer = broker.connect()
            deafen(peer)
            channels = range(2, 1500)
            pour(peer, [frames(methods.ChannelOpen(), channel=channel) for channel in channels], 0.2)
            part = publication(bytes(60_000), key="nowhere", channel=0)[:-20_000]
            for channel in channels:
                if not pour(peer, [numbered(part, channel)], 0.05):
                    break
        end(broker)


def numbered(octets: bytes, channel: int) -> bytes:
    """Frames that were made for channel 0, the last of them not whole, for another one."""
    sent = bytearray(octets)
    at = 0
    while at + 7 <= len(sent):
        sent[at + 1 : at + 3] = channel.to_bytes(2, "big")
        at += 8 + int.from_bytes(sent[at + 3 : at + 7], "big")
    return bytes(sent)


def test_contents_of_an_older_protocol_that_are_never_whole(start: Any) -> None:
    with start() as broker:
        for version in ("0-8", "0-9") * 12:
            peer = broker.connect(version)
            peer.open(2, 3, 4)
            pour(peer, [unfinished(channel) for channel in (1, 2, 3, 4)], 0.2)
        end(broker)


def test_consumers_with_long_tags(start: Any) -> None:
    with start(
        settings="consumers_per_channel_max = 1000000\nconsumers_per_connection_max = 1000000\n"
    ) as broker:
        broker.connect().call(1, methods.QueueDeclare(queue="q"))
        for number, peer in enumerate([broker.connect() for _ in range(4)]):
            pour(
                peer,
                (
                    frames(
                        *[
                            methods.BasicConsume(
                                queue="q", consumer_tag=f"{number}-{each:0248}", no_wait=True
                            )
                            for each in range(first, first + 100)
                        ]
                    )
                    for first in range(0, 40_000, 100)
                ),
            )
        end(broker)


def test_queues_with_large_arguments(start: Any) -> None:
    with start(settings="queues_per_virtual_host_max = 1000000\n") as broker:
        for number, peer in enumerate([broker.connect() for _ in range(4)]):
            pour(
                peer,
                (
                    frames(
                        methods.QueueDeclare(
                            queue=f"{number}-{each:0200}", exclusive=True, no_wait=True, arguments=FIELDS
                        ),
                        methods.QueueBind(
                            queue=f"{number}-{each:0200}",
                            exchange="amq.headers",
                            no_wait=True,
                            arguments=FIELDS,
                        ),
                    )
                    for each in range(200)
                ),
            )
        end(broker)


def test_requests_whose_answers_nobody_reads(start: Any) -> None:
    with start() as broker:
        owner = broker.connect()
        for number in range(2000):
            owner.send(1, methods.QueueDeclare(queue=f"{number:0200}", exclusive=True, no_wait=True))
        owner.call(1, methods.QueueDeclare(queue="last", exclusive=True))
        asked = publication(
            b"",
            "amq.system",
            "queue.list",
            reply_to="amq.rabbitmq.reply-to",
            headers={"limit": 1000, **FIELDS},
        )
        for peer in crowd(broker, 20):
            deafen(peer)
            pour(
                peer,
                [frames(methods.BasicConsume(queue="amq.rabbitmq.reply-to", no_ack=True)), asked * 20],
                0.05,
            )
        end(broker)


LARGE = {
    "queue.peek": {"queue": "big", "max-bytes": 64_000_000},
    "lease.read": {"queue": "big", "consumer": "reader", "epoch": 1, "max-bytes": 60_000_000},
    "stream.fetch": {"stream": "log", "max-bytes": 16_000_000},
}


def hold_large(owner: Peer) -> None:
    """A queue, a lease of one and a stream, each with 58 MB of messages."""
    owner.call(1, methods.QueueDeclare(queue="big", durable=True))
    owner.call(1, methods.QueueDeclare(queue="log", durable=True, arguments={"x-queue-type": "stream"}))
    owner.call(1, methods.QueueDeclare(queue="leased", exclusive=True))
    for key in ("big", "log"):
        pour(owner, [publication(os.urandom(3_900_000), key=key, delivery_mode=2)] * 15, 10.0)
    headers = {"queue": "big", "consumer": "reader", "claim": True, "max-rows": 15}
    owner.raw(publication(b"", "amq.system", "queue.lease", reply_to="leased", headers=headers))
    deadline_s = time.monotonic() + 30
    while not owner.call(1, methods.QueueDeclare(queue="leased", passive=True)).message_count:
        assert time.monotonic() < deadline_s
    pour(owner, [publication(os.urandom(3_900_000), key="big", delivery_mode=2)] * 15, 10.0)
    owner.call(1, methods.QueueDeclare(queue="big", passive=True))


@pytest.mark.parametrize("service", LARGE)
@pytest.mark.parametrize(
    ("connections", "requests"), [(1, 200), (60, 20)], ids=["of one connection", "of many connections"]
)
def test_requests_whose_large_answers_nobody_reads(
    start: Any, service: str, connections: int, requests: int
) -> None:
    with start() as broker:
        hold_large(broker.connect())
        asked = publication(
            b"", "amq.system", service, reply_to="amq.rabbitmq.reply-to", headers=LARGE[service]
        )
        for peer in crowd(broker, connections):
            deafen(peer)
            consume = frames(methods.BasicConsume(queue="amq.rabbitmq.reply-to", no_ack=True))
            pour(peer, [consume, asked * requests], 0.05)
        time.sleep(LOAD_S)  # nobody tells when as many are answered as ever will be
        end(broker)


def test_large_answers_that_gather_in_a_queue(start: Any) -> None:
    """They are messages as all others."""
    with start() as broker:
        owner = broker.connect()
        hold_large(owner)
        owner.call(1, methods.QueueDeclare(queue="answers", exclusive=True))
        for service, headers in LARGE.items():
            pour(owner, [publication(b"", "amq.system", service, reply_to="answers", headers=headers)] * 20)
        time.sleep(LOAD_S)
        end(broker)


def test_requests_that_are_never_whole(start: Any) -> None:
    """Requests are taken during an alarm too, so there must be a limit to them."""
    with start() as broker:
        part = publication(bytes(1_000_000), "amq.system", "queue.list")[:-1000]
        for peer in crowd(broker, 500):
            pour(peer, [part], 0.02)
        end(broker)


def test_branches_of_distributed_transactions(start: Any) -> None:
    with start() as broker:
        one = publication(os.urandom(20_000), key="q", delivery_mode=2)
        for number in range(60):
            peer = broker.connect("0-9")
            peer.call(1, methods.DtxSelect())
            peer.call(1, methods.DtxStart(dtx_identifier=f"branch-{number}"))
            pour(peer, [one * 5] * (6 * MIB // (5 * len(one))), 0.1)
        end(broker)
