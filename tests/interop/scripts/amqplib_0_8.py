"""Speaks AMQP 0-8 with Debian's python3-amqplib: amqplib_0_8.py HOST:PORT SCENARIO PREFIX

Runs under the system's Python, which is where Debian puts that library. A scenario ends well or raises.
"""

import sys
from typing import Any

from amqplib import client_0_8 as amqp

ADDRESS, SCENARIO, PREFIX = sys.argv[1:4]


def name(noun: str) -> str:
    return f"{PREFIX}.{noun}"


def connect(**settings: Any) -> Any:
    return amqp.Connection(host=ADDRESS, connect_timeout=10, **settings)


def wait_for(channel: Any, into: list[Any], count: int) -> None:
    while len(into) < count:
        channel.wait()


def take_all(channel: Any, queue: str) -> list[str]:
    got = []
    while (message := channel.basic_get(queue, no_ack=True)) is not None:
        got.append(message.body)
    return got


def login(_: Any) -> None:
    """Both mechanisms, and a wrong password."""
    plain = connect(login_method="PLAIN", login_response="\x00guest\x00guest")
    assert plain.server_properties["product"]
    assert plain.frame_max > 0
    plain.close()
    try:
        connect(password="wrong")
    except (amqp.AMQPException, OSError):
        return
    raise AssertionError("a wrong password was let in")


def access_tickets(connection: Any) -> None:
    """A ticket from access.request goes with every method that takes one."""
    channel = connection.channel()
    ticket = channel.access_request("/data", active=True, read=True, write=True)
    assert isinstance(ticket, int)
    channel.exchange_declare(name("exchange"), "direct", auto_delete=False, ticket=ticket)
    channel.queue_declare(name("queue"), ticket=ticket)
    channel.queue_bind(name("queue"), name("exchange"), "key", ticket=ticket)
    channel.basic_publish(amqp.Message("with a ticket"), name("exchange"), "key", ticket=ticket)
    message = channel.basic_get(name("queue"), ticket=ticket)
    assert message.body == "with a ticket"
    channel.basic_ack(message.delivery_tag)
    channel.queue_delete(name("queue"), ticket=ticket)
    channel.exchange_delete(name("exchange"), ticket=ticket)


def declare_and_count(connection: Any) -> None:
    channel = connection.channel()
    queue, messages, consumers = channel.queue_declare("", exclusive=True)
    assert queue
    assert (messages, consumers) == (0, 0)
    for body in ("1", "2", "3"):
        channel.basic_publish(amqp.Message(body), routing_key=queue)
    assert channel.queue_purge(queue) == 3
    channel.basic_publish(amqp.Message("4"), routing_key=queue)
    assert channel.queue_delete(queue) == 1


def exchanges(connection: Any) -> None:
    channel = connection.channel()
    for kind, key, hit, miss in [
        ("direct", "a", "a", "b"),
        ("topic", "a.*", "a.b", "a.b.c"),
        ("fanout", "", "anything", None),
    ]:
        exchange = name(kind)
        channel.exchange_declare(exchange, kind, auto_delete=False)
        queue = channel.queue_declare("", exclusive=True)[0]
        channel.queue_bind(queue, exchange, key)
        channel.basic_publish(amqp.Message("hit"), exchange, hit)
        if miss:
            channel.basic_publish(amqp.Message("miss"), exchange, miss)
        assert take_all(channel, queue) == ["hit"], kind
        channel.exchange_delete(exchange)


def properties(connection: Any) -> None:
    channel = connection.channel()
    queue = channel.queue_declare("", exclusive=True)[0]
    headers = {"text": "t", "number": 7, "table": {"inner": "x"}}
    sent = amqp.Message(
        "body",
        content_type="text/plain",
        delivery_mode=2,
        priority=4,
        correlation_id="c",
        reply_to="r",
        message_id="m",
        type="t",
        app_id="a",
        application_headers=headers,
    )
    channel.basic_publish(sent, routing_key=queue)
    got = channel.basic_get(queue, no_ack=True)
    assert got == sent, got.properties


def consume_and_ack(connection: Any) -> None:
    channel = connection.channel()
    queue = channel.queue_declare("", exclusive=True, auto_delete=False)[0]
    for number in range(6):
        channel.basic_publish(amqp.Message(str(number)), routing_key=queue)
    channel.basic_qos(0, 2, False)
    got: list[Any] = []
    tag = channel.basic_consume(queue, callback=got.append)
    wait_for(channel, got, 2)
    assert channel.queue_declare(queue, passive=True)[1] == 4, "prefetch holds the rest back"
    while len(got) < 6:
        channel.basic_ack(got[-1].delivery_tag, multiple=True)
        wait_for(channel, got, len(got) + 2)
    assert [message.body for message in got] == list("012345")
    assert got[0].delivery_info["redelivered"] is False
    channel.basic_cancel(tag)
    assert channel.queue_declare(queue, passive=True)[2] == 0


def reject_and_recover(connection: Any) -> None:
    channel = connection.channel()
    queue = channel.queue_declare("", exclusive=True)[0]
    channel.basic_publish(amqp.Message("again"), routing_key=queue)
    got: list[Any] = []
    channel.basic_consume(queue, callback=got.append)
    wait_for(channel, got, 1)
    channel.basic_reject(got[0].delivery_tag, requeue=True)
    wait_for(channel, got, 2)
    channel.basic_recover(requeue=True)
    wait_for(channel, got, 3)
    assert [message.delivery_info["redelivered"] for message in got] == [False, True, True]
    channel.basic_ack(got[2].delivery_tag)
    assert channel.queue_declare(queue, passive=True)[1] == 0


def transactions(connection: Any) -> None:
    channel = connection.channel()
    queue = channel.queue_declare("", exclusive=True)[0]
    channel.tx_select()
    channel.basic_publish(amqp.Message("undone"), routing_key=queue)
    channel.tx_rollback()
    channel.basic_publish(amqp.Message("done"), routing_key=queue)
    assert channel.queue_declare(queue, passive=True)[1] == 0
    channel.tx_commit()
    assert take_all(channel, queue) == ["done"]


def returned(connection: Any) -> None:
    channel = connection.channel()
    channel.basic_publish(amqp.Message("back"), "", name("nowhere"), mandatory=True)
    channel.queue_declare("", exclusive=True)
    code, _, _, key, message = channel.returned_messages.get(timeout=5)
    assert (code, key, message.body) == (312, name("nowhere"), "back")


def channel_error(connection: Any) -> None:
    channel = connection.channel()
    code = 0
    try:
        channel.queue_declare(name("nothing"), passive=True)
    except amqp.AMQPChannelException as error:
        code = error.amqp_reply_code
    assert code == 404, code
    assert connection.channel().queue_declare("", exclusive=True)[0]


def unbind(connection: Any) -> None:
    channel = connection.channel()
    queue = channel.queue_declare("", exclusive=True)[0]
    channel.queue_bind(queue, "amq.direct", name("key"))
    channel.basic_publish(amqp.Message("bound"), "amq.direct", name("key"))
    channel.queue_unbind(queue, "amq.direct", name("key"))
    channel.basic_publish(amqp.Message("unbound"), "amq.direct", name("key"))
    assert take_all(channel, queue) == ["bound"]


def flow(connection: Any) -> None:
    """Flow stops deliveries, not answers."""
    channel = connection.channel()
    queue = channel.queue_declare("", exclusive=True)[0]
    got: list[Any] = []
    channel.basic_consume(queue, callback=got.append, no_ack=True)
    channel.flow(False)
    channel.basic_publish(amqp.Message("waits"), routing_key=queue)
    assert channel.queue_declare(queue, passive=True)[1] == 1
    assert got == []
    channel.flow(True)
    wait_for(channel, got, 1)
    assert got[0].body == "waits"


def large_message(connection: Any) -> None:
    channel = connection.channel()
    queue = channel.queue_declare("", exclusive=True)[0]
    body = "0123456789" * 100_000
    channel.basic_publish(amqp.Message(body), routing_key=queue)
    channel.basic_publish(amqp.Message(""), routing_key=queue)
    assert take_all(channel, queue) == [body, ""]


def main() -> None:
    scenario = globals()[SCENARIO]
    connection = connect()
    scenario(connection)
    connection.close()


main()
