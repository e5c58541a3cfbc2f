"""A publisher that is faster than its limit waits, and nobody else does."""

from __future__ import annotations

import time

from broker_process import BrokerProcess

from flintmq.client import connect

RATE = 1000
COUNT = 1200


def test_a_publisher_over_its_rate_waits_and_others_do_not() -> None:
    with BrokerProcess("--host", "127.0.0.1") as broker, connect(url(broker, "guest")) as boss:
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        boss.request("user.add", {"user": "ann", "password": "ann"})
        boss.request("permission.set", {"user": "ann", "virtual-host": "/", **everything})
        boss.request("limit.set", {"user": "ann", "name": "max-publish-rate", "value": RATE})
        with connect(url(broker, "ann")) as ann, ann.channel() as publisher:
            publisher.queue("q")
            start_s = time.monotonic()
            publisher.publish_many([b"x"] * COUNT, routing_key="q", wait=False)
            asked_s = time.monotonic()
            boss.request("queue.info", {"queue": "q"})
            asked_s = time.monotonic() - asked_s
            while boss.request("queue.info", {"queue": "q"}).results["messages-ready"] < COUNT:
                time.sleep(0.01)
            took_s = time.monotonic() - start_s
    assert took_s > COUNT / RATE - 0.15  # a tenth of a second is in hand
    assert asked_s < took_s / 2


def url(broker: BrokerProcess, user: str) -> str:
    return f"amqp://{user}:{user}@127.0.0.1:{broker.port}"
