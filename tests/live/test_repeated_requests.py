"""A reply that is lost on the way: the request is asked again over another connection, or another broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from client.restarting import Restarting
from network_proxy import TO_BROKER, TO_CLIENT, Cut, Fault, NetworkProxy
from peer import Gone, Peer

from flintmq.wire import methods

REPLY_TO = "amq.rabbitmq.reply-to"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Restarting]:
    with Restarting(tmp_path / "data") as started:
        with asker(started.port) as peer:
            for name in ("from", "to"):
                peer.call(1, methods.QueueDeclare(queue=name, durable=True))
            peer.call(1, methods.ConfirmSelect())
            for number in range(10):
                peer.publish(1, b"%d" % number, key="from", delivery_mode=2)
            while peer.expect(1, methods.BasicAck).delivery_tag < 10:
                pass
        yield started


class Asker(Peer):
    memory = ""

    def log_in(self, **wishes: Any) -> None:
        start = self.expect(0, methods.ConnectionStart)
        self.memory = str(start.server_properties["request_memory"])
        self.send(
            0,
            methods.ConnectionStartOk(mechanism="PLAIN", response=b"\0guest\0guest", locale="en_US"),
            methods.ConnectionTuneOk(channel_max=0, frame_max=131_072, heartbeat=0),
        )
        self.tune = self.expect(0, methods.ConnectionTune)
        self.frame_bytes_max = 131_072


def asker(port: int) -> Asker:
    peer = Asker.connect(port)
    assert isinstance(peer, Asker)
    peer.open(1)
    peer.call(1, methods.BasicConsume(queue=REPLY_TO, no_ack=True))
    return peer


def move(peer: Peer, **repeat: Any) -> Any:
    headers = {"queue": "from", "to": "to", "limit": 3, **repeat}
    peer.publish(
        1, exchange="amq.system", key="queue.move", headers=headers, reply_to=REPLY_TO, message_id="m1"
    )
    return peer.delivery(1)[1].properties.headers


@pytest.mark.parametrize("how", ["fin", "rst"])
@pytest.mark.parametrize(
    ("direction", "edge"), [(TO_BROKER, "before"), (TO_BROKER, "after"), (TO_CLIENT, "before")]
)
def test_a_move_whose_reply_is_lost_is_done_once(
    broker: Restarting, how: str, direction: str, edge: str
) -> None:
    """Whether the request never came, or came and its reply was lost: the repeat need not know."""
    # The last frame of the request, and the first one of the reply.
    method = "header" if direction == TO_BROKER else "basic.deliver"
    with NetworkProxy(broker.port) as proxy:
        with asker(proxy.port) as first:
            memory = first.memory
            proxy.strike(Fault(direction, Cut(how), method=method, edge=edge))
            with pytest.raises(Gone):
                move(first)
        with asker(proxy.port) as second:
            told = move(second, **{"x-repeat": 1000, "x-memory": memory})
            assert told == {"moved": 3, "left": 7}
            assert second.call(1, methods.QueueDeclare(queue="to", passive=True)).message_count == 3


def test_after_a_restart_it_is_unknown_and_not_done_again(broker: Restarting) -> None:
    with asker(broker.port) as peer:
        memory = peer.memory
        assert move(peer) == {"moved": 3, "left": 7}
    broker.restart()
    with asker(broker.port) as peer:
        assert peer.memory != memory
        for repeat in ({"x-repeat": 1000, "x-memory": memory}, {"x-repeat": True}):
            told = move(peer, **repeat)
            assert told["request-unknown"] is True
            assert told["error-code"] == 404
        assert peer.call(1, methods.QueueDeclare(queue="to", passive=True)).message_count == 3
