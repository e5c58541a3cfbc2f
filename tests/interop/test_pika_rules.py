"""Queues with rules, as users of pika know them: delivery limits, retries, timeouts, stories of deaths."""

import time
from typing import Any

import pika
import pytest
from interop_pika import Name, await_depth, bodies, channel_error, connected, gather, publish, take


@pytest.fixture
def morgue(channel: Any, name: Name) -> dict[str, Any]:
    """Arguments that send dead letters to the queue name("morgue")."""
    channel.queue_declare(name("morgue"), durable=True)
    return {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": name("morgue")}


def test_a_quorum_queue_gives_up_on_a_message(channel: Any, name: Name, morgue: dict[str, Any]) -> None:
    arguments = morgue | {"x-queue-type": "quorum", "x-delivery-limit": 2}
    channel.queue_declare(name("queue"), durable=True, arguments=arguments)
    publish(channel, name("queue"), b"poison")
    counts = []
    for _ in range(3):
        [(method, header, _)] = take(channel, name("queue"), 1, ack=False)
        counts.append((header.headers or {}).get("x-delivery-count"))
        channel.basic_reject(method.delivery_tag, requeue=True)
    assert counts[1:] == [1, 2]
    [(_, header, body)] = take(channel, name("morgue"), 1)
    assert (body, header.headers["x-death"][0]["reason"]) == (b"poison", "delivery_limit")


def test_a_quorum_queue_must_be_durable(channel: Any, name: Name) -> None:
    with channel_error(406):
        channel.queue_declare(name("queue"), arguments={"x-queue-type": "quorum"})


def test_a_retry_cycle_counts_its_deaths(channel: Any, name: Name) -> None:
    """The pattern of applications: rejected work waits in a second queue and comes back."""
    for here, there, more in (("work", "wait", {}), ("wait", "work", {"x-message-ttl": 50})):
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": name(there)}
        channel.queue_declare(name(here), arguments=arguments | more)
    publish(channel, name("work"), b"again")
    for turn in (1, 2, 3):
        [(method, header, _)] = take(channel, name("work"), 1, ack=False)
        deaths = (header.headers or {}).get("x-death", [])
        told = {(death["queue"], death["reason"]): death["count"] for death in deaths}
        assert told.get((name("work"), "rejected"), 0) == turn - 1
        channel.basic_reject(method.delivery_tag, requeue=False)


def test_a_full_queue_sends_what_it_refuses_to_the_morgue(
    channel: Any, name: Name, morgue: dict[str, Any]
) -> None:
    arguments = morgue | {"x-max-length": 1, "x-overflow": "reject-publish-dlx"}
    channel.queue_declare(name("queue"), arguments=arguments)
    channel.confirm_delivery()
    channel.basic_publish("", name("queue"), b"fits")
    with pytest.raises(pika.exceptions.NackError):
        channel.basic_publish("", name("queue"), b"does not")
    await_depth(channel, name("morgue"), 1)
    assert bodies(channel, name("morgue")) == [b"does not"]


def test_a_delayed_retry(channel: Any, name: Name) -> None:
    arguments = {"x-delayed-retry-type": "all", "x-delayed-retry-min": 200}
    channel.queue_declare(name("queue"), arguments=arguments)
    publish(channel, name("queue"), b"later")
    [(method, _, _)] = take(channel, name("queue"), 1, ack=False)
    started = time.monotonic()
    channel.basic_nack(method.delivery_tag, requeue=True)
    assert channel.basic_get(name("queue"))[0] is None
    [(method, _, body)] = take(channel, name("queue"), 1)
    assert (body, method.redelivered) == (b"later", True)
    assert time.monotonic() - started >= 0.19


def test_an_overdue_consumer_keeps_its_channel(broker: Any, channel: Any, name: Name) -> None:
    channel.queue_declare(name("queue"), arguments={"x-consumer-timeout": 100})
    channel.basic_qos(prefetch_count=1)
    got: list[Any] = []
    channel.basic_consume(name("queue"), lambda _c, method, _p, body: got.append((method, body)))
    publish(channel, name("queue"), b"slow")
    gather(channel.connection, got, 1)
    with connected(broker) as other:
        [(_, _, body)] = take(other.channel(), name("queue"), 1)
        assert body == b"slow"
    channel.basic_ack(got[0][0].delivery_tag)
    publish(channel, name("queue"), b"next")
    gather(channel.connection, got, 2)
    assert got[1][1] == b"next"
