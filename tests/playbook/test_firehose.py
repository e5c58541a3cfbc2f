"""The firehose: copies of what is published and delivered, while a virtual host is traced."""

from __future__ import annotations

from typing import Any

import pytest
from playbook.dialogue import Carried, Client, Playbook, carrying

from flintmq.broker.channels import firehose
from flintmq.wire import methods

TRACE = "amq.rabbitmq.trace"


def traced(playbook: Playbook, is_on: bool = True) -> None:
    playbook.broker.administration.virtual_hosts.trace("/", is_on)


def copies(client: Client, queue: str = "copies") -> list[tuple[str, dict[str, Any], bytes]]:
    """Routing keys, headers and bodies of all that the firehose has put into the queue."""
    found = []
    while True:
        client >> methods.BasicGet(queue=queue, no_ack=True)
        got = client.next(1)
        if not isinstance(got, Carried):
            return found
        assert isinstance(got.method, methods.BasicGetOk)
        assert got.method.exchange == TRACE
        found.append((got.method.routing_key, dict(got.properties.headers or {}), got.body))


def test_a_message_on_its_way(playbook: Playbook, client: Client) -> None:
    client.declares("copies")
    client.binds("copies", TRACE, "#")
    client.declares("q")
    client.binds("q", "amq.direct", "k")
    traced(playbook)
    client.consumes("q", no_ack=True)
    client.publishes(
        "k",
        b"body",
        exchange="amq.direct",
        content_type="text/plain",
        headers={"a": 1},
        timestamp=5,
        priority=3,
    )
    assert client.bodies() == [b"body"]
    (published, told, body), (delivered, also, again) = copies(client)
    assert (published, delivered, body, again) == ("publish.amq.direct", "deliver.q", b"body", b"body")
    properties = {"content_type": "text/plain", "headers": {"a": 1}, "priority": 3, "timestamp": 5}
    for each in (told, also):
        assert each["node"].startswith("flintmq@")
        assert each["connection"].startswith("127.0.0.1:")
        for name in ("node", "connection"):
            del each[name]
    shared = {
        "exchange_name": "amq.direct",
        "routing_keys": ["k"],
        "properties": properties,
        "vhost": "/",
        "channel": 1,
        "user": "guest",
    }
    assert told == {**shared, "routed_queues": ["q"]}
    assert also == {**shared, "redelivered": 0}


def test_nothing_is_told_before_or_after(playbook: Playbook, client: Client) -> None:
    client.declares("copies")
    client.binds("copies", TRACE, "#")
    client.publishes("nowhere", b"before")
    traced(playbook)
    client.publishes("nowhere", b"while")
    traced(playbook, False)
    client.publishes("nowhere", b"after")
    found = copies(client)
    assert [(key, told["routed_queues"], body) for key, told, body in found] == [("publish.", [], b"while")]


def test_a_get_and_a_second_delivery(playbook: Playbook, client: Client) -> None:
    client.declares("copies")
    client.binds("copies", TRACE, "deliver.*")
    client.declares("q")
    traced(playbook)
    client.publishes("q", b"x")
    for tag in (1, 2):
        client >> methods.BasicGet(queue="q")
        assert isinstance(client.next(1), Carried)
        client >> methods.BasicReject(delivery_tag=tag, requeue=True)
    assert [told["redelivered"] for _, told, _ in copies(client)] == [0, 1]


def test_copies_are_not_traced(playbook: Playbook, client: Client) -> None:
    """Neither on their way to a consumer nor as dead letters: each would make another one, for ever."""
    client.declares("graves")
    dead = {"x-max-length": 1, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "graves"}
    client.declares("copies", arguments=dead)
    client.binds("copies", TRACE, "#")
    client.consumes("graves", "letters", no_ack=True)
    traced(playbook)
    client.publishes("nowhere", b"1", b"2", b"3")
    assert client.bodies() == [b"1", b"2"]
    client.consumes("copies", "copies", no_ack=True)
    assert client.bodies() == [b"3"]
    client.publishes("nowhere", b"4")
    assert client.bodies() == [b"4"]


def test_a_queue_that_is_bound_to_the_firehose_too(playbook: Playbook, client: Client) -> None:
    """It gets copies while it hands out."""
    client.declares("q", arguments={"x-max-length": 2})
    client.binds("q", TRACE, "#")
    traced(playbook)
    with playbook.one_pass():
        client.publishes("q", b"1", b"2")
        client >> methods.BasicConsume(queue="q", consumer_tag="c", no_ack=True)
    client << methods.BasicConsumeOk(consumer_tag="c")
    bodies = client.bodies()
    assert sorted(bodies) == [b"1"] * 3 + [b"2"] * 3, "each message, that it was published, and delivered"


def test_requests_to_the_broker_are_left_out(playbook: Playbook, client: Client) -> None:
    client.declares("copies")
    client.binds("copies", TRACE, "#")
    client.consumes("amq.rabbitmq.reply-to", no_ack=True)
    traced(playbook)
    for service in ("broker.info", "no.such.service"):
        client >> carrying(
            methods.BasicPublish(exchange="amq.system", routing_key=service),
            reply_to="amq.rabbitmq.reply-to",
            headers={"password": "secret"} if service != "broker.info" else {},
        )
    client.heard().clear()
    assert copies(client) == []


def test_answers_of_the_broker_are_left_out(playbook: Playbook, client: Client) -> None:
    """Definitions have the hashes of passwords; an answer may come to any queue."""
    client.declares("copies")
    client.binds("copies", TRACE, "#")
    client.declares("answers")
    traced(playbook)
    for _ in range(2):
        client >> carrying(
            methods.BasicPublish(exchange="amq.system", routing_key="definitions.export"),
            reply_to="answers",
            headers={},
        )
    client >> methods.BasicGet(queue="answers", no_ack=True)
    got = client.next(1)
    assert isinstance(got, Carried)
    assert b"password_hash" in got.body
    client.consumes("answers", no_ack=True)
    assert len(client.bodies()) == 1
    assert copies(client) == []


def test_long_names_and_large_headers(playbook: Playbook, client: Client) -> None:
    name = "x" * 255
    client.declares("copies")
    client.binds("copies", TRACE, "#")
    client >> methods.ExchangeDeclare(exchange=name, type="fanout")
    client << methods.ExchangeDeclareOk()
    traced(playbook)
    client.publishes("k", b"", exchange=name, headers={"large": "y" * firehose.HEADER_BYTES_MAX})
    ((key, told, _),) = copies(client)
    assert key == ("publish." + name)[:255]
    assert told["exchange_name"] == name
    assert told["properties_cut"] is True
    assert "headers" not in told["properties"]


def test_a_key_never_ends_with_half_a_character(playbook: Playbook, client: Client) -> None:
    client.declares("copies")
    client.binds("copies", TRACE, "deliver.#")
    name = "\u00e9" * 126
    client.declares(name)
    traced(playbook)
    client.publishes(name, b"x")
    assert client.gets(name) == b"x"
    assert [key for key, _, _ in copies(client)] == ["deliver." + name[:123]]


def test_publishers_wait_and_deliveries_are_counted(
    playbook: Playbook, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(firehose, "WAITING_MAX", 8)
    client.declares("copies")
    client.binds("copies", TRACE, "#")
    client.declares("q")
    for number in range(20):
        client.publishes("q", b"%d" % number)
    traced(playbook)
    client.consumes("q", no_ack=True)
    assert len(client.bodies()) == 20, "nobody waits for the firehose to be delivered to"
    assert len(copies(client)) == 8
    assert playbook.broker.pass_work.fates.untraced == 12
    with playbook.one_pass():
        for number in range(5):
            client.publishes("nowhere", b"%d" % number)
        assert playbook.broker.pass_work.pressed
    playbook.broker.pass_work.pressed = False
    assert len(copies(client)) == 5


def test_a_virtual_host_that_is_deleted_meanwhile(playbook: Playbook, client: Client) -> None:
    hosts = playbook.broker.administration.virtual_hosts
    host = hosts.add("v")
    hosts.trace("v", True)
    hosts.delete("v")
    assert not host.router.is_traced
    playbook.finish_pass()


def test_names_of_direct_replies_are_for_nobody_to_know(playbook: Playbook, client: Client) -> None:
    """Whoever knows the token of such a name can answer in the place of another."""
    client.declares("copies")
    client.binds("copies", TRACE, "#")
    client.declares("requests")
    asker = playbook.client()
    asker.consumes("amq.rabbitmq.reply-to", no_ack=True)
    traced(playbook)
    asker.publishes("requests", b"question", reply_to="amq.rabbitmq.reply-to")
    client >> methods.BasicGet(queue="requests", no_ack=True)
    request = client.next(1)
    assert isinstance(request, Carried)
    address = request.properties.reply_to
    token = address.removeprefix("amq.rabbitmq.reply-to.")
    assert token
    client.publishes(address, b"answer")
    client.publishes("requests", b"answer", headers={"CC": [address, 5]}, reply_to=address)
    assert asker.bodies() == [b"answer", b"answer"]
    found = copies(client)
    assert [key for key, _, _ in found] == ["publish.", "deliver.requests", "publish.", "publish."]
    assert token not in str(found)
    _, told, _ = found[2]
    assert (told["routing_keys"], told["routed_queues"]) == (
        ["amq.rabbitmq.reply-to"],
        ["amq.rabbitmq.reply-to"],
    )
    assert found[3][1]["properties"]["headers"] == {"CC": ["amq.rabbitmq.reply-to", 5]}
