"""Queue arguments that clients have come to count on: TTL, dead letters, limits, priorities, direct reply."""

from typing import Any

import pika
import pytest
from interop_live import eventually
from interop_pika import (
    Name,
    await_depth,
    bodies,
    channel_error,
    gather,
    publish,
    take,
)


def dead_lettered(channel: Any, name: Name, **arguments: Any) -> tuple[str, str]:
    """A queue whose dead letters go to a second queue."""
    queue, morgue = name("queue"), name("morgue")
    channel.queue_declare(morgue)
    routing = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": morgue}
    channel.queue_declare(queue, arguments=routing | arguments)
    return queue, morgue


def test_queue_message_ttl(channel: Any, name: Name) -> None:
    channel.queue_declare(name("queue"), arguments={"x-message-ttl": 100})
    publish(channel, name("queue"), b"short-lived")
    await_depth(channel, name("queue"), 0)


def test_message_expiration(channel: Any, name: Name) -> None:
    channel.queue_declare(name("queue"))
    channel.basic_publish("", name("queue"), b"gone", pika.BasicProperties(expiration="100"))
    channel.basic_publish("", name("queue"), b"stays", pika.BasicProperties(expiration="600000"))
    await_depth(channel, name("queue"), 1)
    assert bodies(channel, name("queue")) == [b"stays"]


def test_bad_expiration_is_precondition_failed(channel: Any, name: Name) -> None:
    channel.basic_publish("", name("queue"), b"x", pika.BasicProperties(expiration="soon"))
    with channel_error(406):
        channel.queue_declare("", exclusive=True)


def test_unused_queue_expires(channel: Any, name: Name) -> None:
    channel.queue_declare(name("queue"), arguments={"x-expires": 200})
    checker = channel.connection

    def gone() -> bool:
        look = checker.channel()
        try:
            look.basic_publish("", name("queue"), b"x", mandatory=True)
            returned: list[Any] = []
            look.add_on_return_callback(lambda *parts: returned.append(parts))
            look.queue_declare("", exclusive=True)
            checker.process_data_events(0)
            return bool(returned)
        finally:
            look.close()

    eventually(gone, "the queue expires")


def test_rejected_message_is_dead_lettered_with_its_story(channel: Any, name: Name) -> None:
    queue, morgue = dead_lettered(channel, name)
    publish(channel, queue, b"bad")
    channel.basic_reject(channel.basic_get(queue)[0].delivery_tag, requeue=False)
    [(method, header, body)] = take(channel, morgue, 1)
    assert (body, method.routing_key) == (b"bad", morgue)
    [story] = header.headers["x-death"]
    assert (story["queue"], story["reason"], story["count"]) == (queue, "rejected", 1)
    assert story["routing-keys"] == [queue]
    assert header.headers["x-first-death-queue"] == queue


def test_dead_letter_goes_to_all_keys_of_its_message(channel: Any, name: Name) -> None:
    queue, carbon, blind = name("queue"), name("carbon"), name("blind")
    channel.queue_declare(queue, arguments={"x-dead-letter-exchange": name("dead")})
    channel.exchange_declare(name("dead"), "direct")
    for each in (carbon, blind):
        channel.queue_declare(each)
        channel.queue_bind(each, name("dead"), each)
    properties = pika.BasicProperties(headers={"CC": [carbon], "BCC": [blind]})
    channel.basic_publish("", queue, b"x", properties)
    assert bodies(channel, carbon) == bodies(channel, blind) == [b"x"]
    method, _, _ = channel.basic_get(queue)
    channel.basic_reject(method.delivery_tag, requeue=False)
    for each in (carbon, blind):
        await_depth(channel, each, 1)
        _, found, _ = channel.basic_get(each, auto_ack=True)
        assert found.headers["x-death"][0]["routing-keys"] == [queue, carbon]
        assert "BCC" not in found.headers


def test_expired_message_is_dead_lettered(channel: Any, name: Name) -> None:
    queue, morgue = dead_lettered(channel, name, **{"x-message-ttl": 50})
    publish(channel, queue, b"old")
    [(_, header, body)] = take(channel, morgue, 1)
    assert (body, header.headers["x-death"][0]["reason"]) == (b"old", "expired")


def test_message_over_the_limit_is_dead_lettered(channel: Any, name: Name) -> None:
    queue, morgue = dead_lettered(channel, name, **{"x-max-length": 2})
    publish(channel, queue, b"1", b"2", b"3")
    [(_, header, body)] = take(channel, morgue, 1)
    assert (body, header.headers["x-death"][0]["reason"]) == (b"1", "maxlen")
    assert bodies(channel, queue) == [b"2", b"3"]


def test_max_length_in_octets_drops_the_oldest(channel: Any, name: Name) -> None:
    channel.queue_declare(name("queue"), arguments={"x-max-length-bytes": 10})
    publish(channel, name("queue"), b"aaaa", b"bbbb", b"cccc")
    await_depth(channel, name("queue"), 2)
    assert bodies(channel, name("queue")) == [b"bbbb", b"cccc"]


def test_priorities_come_first(channel: Any, name: Name) -> None:
    channel.queue_declare(name("queue"), arguments={"x-max-priority": 10})
    for priority in (1, 5, 0, 9, 5):
        body = b"%d" % priority
        channel.basic_publish("", name("queue"), body, pika.BasicProperties(priority=priority))
    channel.basic_publish("", name("queue"), b"none")
    assert bodies(channel, name("queue")) == [b"9", b"5", b"5", b"1", b"0", b"none"]


def test_single_active_consumer(channel: Any, name: Name) -> None:
    channel.queue_declare(name("queue"), arguments={"x-single-active-consumer": True})
    got: list[str] = []

    def deliver(_channel: Any, method: Any, _properties: Any, _body: bytes) -> None:
        got.append(method.consumer_tag)

    for tag in ("first", "second"):
        channel.basic_consume(name("queue"), deliver, auto_ack=True, consumer_tag=tag)
    publish(channel, name("queue"), *[b"x"] * 4)
    gather(channel.connection, got, 4)
    assert got == ["first"] * 4
    channel.basic_cancel("first")
    publish(channel, name("queue"), b"x")
    gather(channel.connection, got, 5)
    assert got[-1] == "second"


def test_a_single_active_consumer_makes_way_for_a_higher_priority(channel: Any, name: Name) -> None:
    quorum = {"x-queue-type": "quorum", "x-single-active-consumer": True}
    channel.queue_declare(name("queue"), durable=True, arguments=quorum)
    got: list[tuple[str, int]] = []

    def deliver(_channel: Any, method: Any, _properties: Any, _body: bytes) -> None:
        got.append((method.consumer_tag, method.delivery_tag))

    channel.basic_consume(name("queue"), deliver, consumer_tag="low")
    publish(channel, name("queue"), b"x")
    gather(channel.connection, got, 1)
    channel.basic_consume(name("queue"), deliver, consumer_tag="high", arguments={"x-priority": 5})
    publish(channel, name("queue"), b"x")
    assert [tag for tag, _ in got] == ["low"]
    channel.basic_ack(got[0][1])
    gather(channel.connection, got, 2)
    assert [tag for tag, _ in got] == ["low", "high"]


def test_consumer_priority(channel: Any, name: Name) -> None:
    channel.queue_declare(name("queue"))
    got: list[str] = []

    def deliver(_channel: Any, method: Any, _properties: Any, _body: bytes) -> None:
        got.append(method.consumer_tag)

    channel.basic_qos(prefetch_count=2)
    channel.basic_consume(name("queue"), deliver, consumer_tag="low", arguments={"x-priority": -1})
    channel.basic_consume(name("queue"), deliver, consumer_tag="high", arguments={"x-priority": 5})
    publish(channel, name("queue"), *[b"x"] * 3)
    gather(channel.connection, got, 3)
    assert sorted(got) == ["high", "high", "low"]


def test_direct_reply_to(channel: Any, name: Name) -> None:
    """A request and its answer without a queue for the answers."""
    pseudo = "amq.rabbitmq.reply-to"
    answers: list[Any] = []
    channel.queue_declare(name("requests"))
    channel.basic_consume(pseudo, lambda _c, _m, _p, body: answers.append(body), auto_ack=True)
    channel.basic_publish("", name("requests"), b"2 + 2", pika.BasicProperties(reply_to=pseudo))
    server = channel.connection.channel()
    _, header, body = server.basic_get(name("requests"), auto_ack=True)
    assert header.reply_to.startswith(pseudo + ".")
    server.basic_publish("", header.reply_to, b"4")
    gather(channel.connection, answers, 1)
    assert (body, answers) == (b"2 + 2", [b"4"])


@pytest.mark.parametrize("argument", ["x-message-ttl", "x-expires", "x-max-length", "x-max-priority"])
def test_bad_queue_argument_is_precondition_failed(channel: Any, name: Name, argument: str) -> None:
    with channel_error(406):
        channel.queue_declare(name("queue"), arguments={argument: -1})


def test_sender_selected_distribution(channel: Any, name: Name) -> None:
    """CC and BCC name more routing keys; BCC is taken out before delivery."""
    for noun in ("to", "cc", "bcc"):
        channel.queue_declare(name(noun))
    headers = {"CC": [name("cc")], "BCC": [name("bcc")], "kept": 1}
    channel.basic_publish("", name("to"), b"x", pika.BasicProperties(headers=headers))
    for noun in ("to", "cc", "bcc"):
        await_depth(channel, name(noun), 1)
    header = channel.basic_get(name("bcc"))[1]
    assert header.headers == {"CC": [name("cc")], "kept": 1}
