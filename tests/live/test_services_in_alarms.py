"""In an alarm publishers wait, and those who ask why are answered."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from broker_process import BrokerProcess
from peer import Peer

from flintmq.wire import methods


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """One that is low on memory from its first look on."""
    settings = tmp_path / "flintmq.toml"
    settings.write_text('[limits]\nmemory_high_bytes = "1MiB"\n')
    with BrokerProcess("--config", str(settings), "--data", str(tmp_path / "data")) as broker:
        yield broker


def asker(broker: BrokerProcess) -> Peer:
    peer = Peer.connect(broker.port)
    peer.open(1)
    peer.call(1, methods.BasicConsume(queue="amq.rabbitmq.reply-to", no_ack=True))
    return peer


def ask(peer: Peer, service: str, **arguments: Any) -> dict[str, Any]:
    peer.publish(1, exchange="amq.system", key=service, reply_to="amq.rabbitmq.reply-to", headers=arguments)
    found: dict[str, Any] = peer.delivery(1)[1].properties.headers
    return found


def test_a_connection_that_only_asks_is_answered(broker: BrokerProcess) -> None:
    with asker(broker) as peer, Peer.connect(broker.port) as publisher:
        while not (found := ask(peer, "broker.info"))["alarms"]:
            pass
        [alarm] = found["alarms"]
        assert alarm["resource"] == "memory"
        assert "1 MiB allowed" in alarm["reason"]
        assert found["memory-bytes"] > found["memory-bytes-high"] == 2**20
        assert found["disk-bytes"] >= 0
        assert found["disk-bytes-free"] > 0
        publisher.open(1)
        publisher.publish(1, b"x", key="nowhere")
        publisher.expect(0, methods.ConnectionBlocked)
        rows = ask(peer, "connection.list")["rows"]
        assert [bool(row["blocked"]) for row in rows] == [False, True]
        assert rows[1]["blocked"] == alarm["reason"] or "MiB" in rows[1]["blocked"]
        assert ask(peer, "broker.info")["connections-blocked"] == 1
        for _ in range(50):  # it is not held after a while either
            assert ask(peer, "queue.list")["rows"] == []
