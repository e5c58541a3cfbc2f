"""Queues with rules over a kill -9: dead letters are in one place, and large ones keep their bodies."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from flintmq.wire import methods

MORGUE = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "morgue"}
LARGE = 5 << 20


@pytest.mark.parametrize("seen", [1, 120, 250])
def test_nothing_is_lost_or_doubled_between_two_queues(
    start: Any, publish: Any, drain: Any, seen: int
) -> None:
    """Killed when so many letters have been seen: those still on their way are where they were."""
    bodies = [b"%d" % number for number in range(300)]
    life = start()
    with life.connect() as peer:
        peer.call(1, methods.QueueDeclare(queue="morgue", durable=True))
        peer.call(1, methods.QueueDeclare(queue="q", durable=True, arguments=MORGUE))
        publish(peer, "q", bodies)
        peer.open(2)
        peer.call(2, methods.BasicConsume(queue="morgue", consumer_tag="watch"))
        peer.call(1, methods.BasicConsume(queue="q", consumer_tag="c"))
        for _ in bodies:
            method, _ = peer.delivery(1)
            peer.send(1, methods.BasicReject(delivery_tag=method.delivery_tag, requeue=False))
        for _ in range(seen):
            peer.delivery(2)
        life.kill()
    life = start()
    with life.connect() as peer:
        found = Counter(body for queue in ("q", "morgue") for body, _ in drain(peer, queue))
    assert found == Counter(bodies)


def test_a_large_body_goes_along(start: Any, publish: Any) -> None:
    life = start()
    with life.connect() as peer:
        peer.call(1, methods.QueueDeclare(queue="morgue", durable=True))
        peer.call(1, methods.QueueDeclare(queue="q", durable=True, arguments=MORGUE))
        publish(peer, "q", [b"x" * LARGE])
        peer.call(1, methods.BasicConsume(queue="q", consumer_tag="c"))
        method, _ = peer.delivery(1)
        peer.send(1, methods.BasicReject(delivery_tag=method.delivery_tag, requeue=False))
        peer.call(1, methods.QueueDeclare(queue="other", durable=True))
        life.kill()
    life = start()
    with life.connect() as peer:
        peer.call(1, methods.BasicConsume(queue="morgue", consumer_tag="c", no_ack=True))
        _, content = peer.delivery(1)
        assert content.body == b"x" * LARGE
        [death] = content.properties.headers["x-death"]
        assert (death["queue"], death["reason"]) == ("q", "rejected")
        assert peer.call(1, methods.QueueDeclare(queue="q", passive=True)).message_count == 0


def test_time_goes_on_while_the_broker_is_down(start: Any, publish: Any) -> None:
    life = start()
    with life.connect() as peer:
        peer.call(1, methods.QueueDeclare(queue="morgue", durable=True))
        peer.call(
            1, methods.QueueDeclare(queue="q", durable=True, arguments={**MORGUE, "x-message-ttl": 300})
        )
        publish(peer, "q", [b"1", b"2"])
        life.kill()
    life = start()
    with life.connect() as peer:
        peer.call(1, methods.BasicConsume(queue="morgue", consumer_tag="c", no_ack=True))
        assert [peer.delivery(1)[1].body for _ in range(2)] == [b"1", b"2"]
