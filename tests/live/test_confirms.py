"""Confirms of persistent messages that a close follows in the same read."""

from __future__ import annotations

from pathlib import Path

import pytest
from broker_process import BrokerProcess
from peer import Peer

from flintmq.wire import amqp, methods
from flintmq.wire.methods import Method, decode_method

MESSAGES = 1000


def heard_before_close(peer: Peer) -> tuple[set[int], Method]:
    """The publishes that were confirmed, and the close that came after that."""
    confirmed: set[int] = set()
    while True:
        method = decode_method(peer.version, peer.next_frame().payload)
        if not isinstance(method, methods.BasicAck):
            return confirmed, method
        first = 1 if method.multiple else method.delivery_tag
        confirmed.update(range(first, method.delivery_tag + 1))


@pytest.mark.parametrize("arguments", [{}, {"x-queue-type": "stream"}], ids=["queue", "stream"])
@pytest.mark.parametrize("fault", ["channel", "connection"])
def test_all_are_confirmed_before_the_close(tmp_path: Path, arguments: dict[str, str], fault: str) -> None:
    with BrokerProcess("--data", str(tmp_path / "data")) as broker:
        with Peer.connect(broker.port) as peer:
            peer.open(1)
            peer.call(1, methods.QueueDeclare(queue="q", durable=True, arguments=arguments))
            peer.call(1, methods.ConfirmSelect())
            with peer.together():
                for _ in range(MESSAGES):
                    peer.publish(1, b"m", key="q", delivery_mode=2)
                if fault == "channel":
                    peer.publish(1, b"m", exchange="missing")
                else:
                    peer.frame(amqp.FRAME_METHOD, 1, b"\x00\x63\x00\x63")
            confirmed, close = heard_before_close(peer)
            assert confirmed == set(range(1, MESSAGES + 1))
            assert f"{fault}.close" == close.NAME
        with Peer.connect(broker.port) as peer:
            peer.open(1)
            declared = peer.call(1, methods.QueueDeclare(queue="q", passive=True))
            assert declared.message_count == MESSAGES


def test_a_client_that_closes_meanwhile_may_use_the_number_again(tmp_path: Path) -> None:
    with BrokerProcess("--data", str(tmp_path / "data")) as broker, Peer.connect(broker.port) as peer:
        peer.open(1)
        peer.call(1, methods.QueueDeclare(queue="q", durable=True))
        peer.call(1, methods.ConfirmSelect())
        with peer.together():
            peer.publish(1, b"m", key="q", delivery_mode=2)
            peer.publish(1, b"m", exchange="missing")
            peer.send(1, methods.ChannelClose(reply_code=200), methods.ChannelOpen())
        peer.expect(1, methods.ChannelCloseOk)
        peer.expect(1, methods.ChannelOpenOk)
        assert peer.is_quiet(1)


def test_a_client_that_is_gone_before_its_confirms_harms_nobody(tmp_path: Path) -> None:
    with BrokerProcess("--data", str(tmp_path / "data")) as broker:  # which says at its end if it met a bug
        for _ in range(20):
            with Peer.connect(broker.port) as peer:
                peer.open(1)
                peer.call(1, methods.QueueDeclare(queue="q", durable=True))
                peer.call(1, methods.ConfirmSelect())
                with peer.together():
                    peer.publish(1, b"m", key="q", delivery_mode=2)
                    peer.frame(amqp.FRAME_METHOD, 1, b"\x00\x63\x00\x63")
        with Peer.connect(broker.port) as peer:
            peer.open(1)
            assert peer.call(1, methods.QueueDeclare(queue="q", durable=True)).message_count <= 20
