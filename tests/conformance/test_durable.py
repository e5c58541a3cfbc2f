"""Rules on what a restart leaves: durable queues, their bindings, persistent messages."""

from __future__ import annotations

from pathlib import Path

from broker_process import BrokerProcess
from conformance.rule import rule
from peer import Peer

from flintmq.wire import amqp, methods


@rule(
    "0-9,0-9-1/queue.declare/durable/persistence",
    "0-9,0-9-1/queue.bind/durable-exchange",
    "0-9,0-9-1/exchange.declare/durable/support",
    "0-9,0-9-1/basic/01",
)
def test_what_is_durable_is_there_again_after_a_restart(tmp_path: Path, version: str) -> None:
    with BrokerProcess("--data", str(tmp_path)) as broker, Peer.connect(broker.port, version) as peer:
        peer.open(1)
        for name, durable in (("kept", True), ("lost", False)):
            peer.call(1, methods.ExchangeDeclare(exchange=name, type="direct", durable=durable))
            peer.call(1, methods.QueueDeclare(queue=name, durable=durable))
        for exchange in ("kept", "amq.direct"):
            peer.call(1, methods.QueueBind(queue="kept", exchange=exchange, routing_key="key"))
        peer.publish(1, b"transient", key="kept", delivery_mode=1)
        for body in (b"one", b"two"):
            peer.publish(1, body, key="kept", delivery_mode=2)
        peer.close()
    with BrokerProcess("--data", str(tmp_path)) as broker, Peer.connect(broker.port, version) as peer:
        peer.open(1)
        peer.call(1, methods.QueueDeclare(queue="kept", durable=True))
        for body, exchange in ((b"three", "kept"), (b"four", "amq.direct")):
            peer.publish(1, body, exchange=exchange, key="key", delivery_mode=2)
        kept = []
        while (got := peer.get(1, "kept", no_ack=True)) is not None:
            kept.append(got[1].body)
        assert kept == [b"one", b"two", b"three", b"four"]
        for gone in (
            methods.QueueDeclare(queue="lost", passive=True),
            methods.ExchangeDeclare(exchange="lost", passive=True),
        ):
            peer.send(1, gone)
            peer.expect_channel_close(1, amqp.NOT_FOUND)
            peer.open(1)
