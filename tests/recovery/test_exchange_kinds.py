"""Exchanges of every type, chained bindings and the topology of the settings, after a restart."""

from __future__ import annotations

from typing import Any

from flintmq.wire import methods

KINDS: dict[str, dict[str, Any]] = {
    "x-consistent-hash": {"hash-header": "h"},
    "x-random": {},
    "x-recent-history": {"x-recent-history-length": 5, "x-routing-type": "topic"},
    "x-delayed-message": {"x-delayed-type": "headers"},
    "x-lossy": {"x-drop-rate": 0.0},
    "x-message-deduplication": {"x-cache-size": 10},
}

SETTINGS = """
[queue_templates.kept]
arguments = {x-note = "n"}
[[exchanges]]
name = "set"
type = "direct"
[[queues]]
name = "q"
template = "kept"
[[bindings]]
source = "set"
queue = "q"
routing_key = "k"
"""


def test_every_kind_comes_back_with_its_arguments(start: Any) -> None:
    life = start()
    with life.connect() as peer:
        peer.call(1, methods.QueueDeclare(queue="q", durable=True))
        for kind, arguments in KINDS.items():
            peer.call(1, methods.ExchangeDeclare(exchange=kind, type=kind, durable=True, arguments=arguments))
            peer.call(1, methods.QueueBind(queue="q", exchange=kind, routing_key="1"))
    life.kill()
    life = start()
    with life.connect() as peer:
        for kind, arguments in KINDS.items():
            peer.call(1, methods.ExchangeDeclare(exchange=kind, type=kind, durable=True, arguments=arguments))
            peer.publish(1, kind.encode(), exchange=kind, key="1")
        declared = peer.call(1, methods.QueueDeclare(queue="q", durable=True))
        assert declared.message_count == len(KINDS)
    life.stop()


def test_a_chained_binding_is_still_one(start: Any) -> None:
    life = start()
    chained = {"x-match": "all", "colour": "red", "x-via": "amq.topic"}
    with life.connect() as peer:
        peer.call(1, methods.QueueDeclare(queue="q", durable=True))
        peer.call(1, methods.QueueBind(queue="q", exchange="amq.topic", routing_key="a.*"))
        peer.call(1, methods.QueueBind(queue="q", exchange="amq.headers", arguments=chained))
    life.kill()
    life = start()
    with life.connect() as peer:
        for colour in ("red", "blue"):
            peer.publish(1, colour.encode(), exchange="amq.topic", key="a.b", headers={"colour": colour})
        assert peer.call(1, methods.QueueDeclare(queue="q", durable=True)).message_count == 1
        peer.call(1, methods.QueueUnbind(queue="q", exchange="amq.headers", arguments=chained))
        peer.publish(1, b"blue", exchange="amq.topic", key="a.b", headers={"colour": "blue"})
        assert peer.call(1, methods.QueueDeclare(queue="q", durable=True)).message_count == 2
    life.stop()


def test_the_settings_topology_is_there_each_time(start: Any) -> None:
    for round_number in (1, 2):
        life = start(SETTINGS)
        with life.connect() as peer:
            peer.publish(1, b"m", exchange="set", key="k", delivery_mode=2)
            declared = peer.call(
                1, methods.QueueDeclare(queue="q", durable=True, arguments={"x-template": "kept"})
            )
            assert declared.message_count == round_number
            peer.send(1, methods.QueueDelete(queue="q"))
            peer.expect_channel_close(1, 403)
        life.stop()
    life = start()
    with life.connect() as peer:
        peer.call(1, methods.QueueDelete(queue="q"))
        peer.call(1, methods.ExchangeDelete(exchange="set"))
    life.stop()
