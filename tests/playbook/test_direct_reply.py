"""Direct reply-to: requests whose answers come without a queue."""

from __future__ import annotations

import pytest
from playbook.dialogue import Carried, Client, Playbook, carrying

from flintmq.wire import methods
from flintmq.wire.methods import BasicConsume, BasicConsumeOk, BasicPublish, ChannelClose, QueueDeclare

NAME = "amq.rabbitmq.reply-to"


def wait_for_answers(client: Client, tag: str = "answers") -> None:
    client >> BasicConsume(queue=NAME, no_ack=True, consumer_tag=tag)
    client << BasicConsumeOk(consumer_tag=tag)


def asked(requester: Client, server: Client, **properties: object) -> str:
    """Sends a request; the reply-to that the server sees."""
    server.declares("requests")
    requester >> carrying(
        BasicPublish(routing_key="requests"),
        b"2 + 2",
        reply_to=NAME,
        **properties,  # type: ignore[arg-type]
    )
    server >> methods.BasicGet(queue="requests", no_ack=True)
    found = server.next(1)
    assert isinstance(found, Carried)
    assert found.properties.reply_to is not None
    for name, value in properties.items():
        assert getattr(found.properties, name) == value
    return found.properties.reply_to


def test_request_and_answer_over_two_connections(playbook: Playbook) -> None:
    requester, server = playbook.client(), playbook.client()
    wait_for_answers(requester)
    name = asked(
        requester, server, correlation_id="7", headers={"note": NAME}, priority=3, timestamp=9, app_id="a"
    )
    assert name.startswith(f"{NAME}.")
    assert len(name) >= len(NAME) + 22, "128 bits of chance in base64"
    server.publishes(name, b"4", correlation_id="7")
    answer = requester.next(1)
    assert isinstance(answer, Carried)
    assert (answer.method, answer.body) == (
        methods.BasicDeliver(consumer_tag="answers", delivery_tag=1, routing_key=name),
        b"4",
    )


def test_each_channel_has_a_name_of_its_own(playbook: Playbook) -> None:
    one, other, server = playbook.client(), playbook.client(), playbook.client()
    wait_for_answers(one)
    wait_for_answers(other)
    assert asked(one, server) == asked(one, server) != asked(other, server)


def test_an_answer_to_one_who_has_gone_is_unroutable(playbook: Playbook) -> None:
    requester, server = playbook.client(), playbook.client()
    wait_for_answers(requester)
    name = asked(requester, server)
    server >> QueueDeclare(queue=name, passive=True)
    server << methods.QueueDeclareOk(queue=name, message_count=0, consumer_count=1)
    requester >> methods.BasicCancel(consumer_tag="answers")
    requester << methods.BasicCancelOk(consumer_tag="answers")
    server >> carrying(BasicPublish(routing_key=name, mandatory=True), b"4")
    returned = server.next(1)
    assert isinstance(returned, Carried)
    assert isinstance(returned.method, methods.BasicReturn)
    server >> QueueDeclare(queue=name, passive=True)
    assert server.hears(ChannelClose).reply_code == 404


def test_the_name_itself_can_always_be_declared(client: Client) -> None:
    for passive in (True, False):
        client >> QueueDeclare(queue=NAME, passive=passive)
        client << methods.QueueDeclareOk(queue=NAME, message_count=0, consumer_count=1)


def test_acks_are_refused(client: Client) -> None:
    client >> BasicConsume(queue=NAME)
    refused = client.hears(ChannelClose)
    assert (refused.reply_code, refused.class_id, refused.method_id) == (406, 60, 20)


def test_one_consumer_for_each_channel(client: Client) -> None:
    wait_for_answers(client)
    client >> BasicConsume(queue=NAME, no_ack=True)
    assert client.hears(ChannelClose).reply_code == 406


def test_a_request_before_consuming_is_refused(client: Client) -> None:
    client >> carrying(BasicPublish(routing_key="q"), b"?", reply_to=NAME)
    assert client.hears(ChannelClose).reply_code == 406


@pytest.mark.parametrize("method", ["get", "consume", "purge", "bind"])
def test_others_cannot_use_the_queue_behind_it(playbook: Playbook, method: str) -> None:
    requester, thief = playbook.client(), playbook.client()
    wait_for_answers(requester)
    name = asked(requester, thief)
    (
        thief
        >> {
            "get": methods.BasicGet(queue=name),
            "consume": BasicConsume(queue=name),
            "purge": methods.QueuePurge(queue=name),
            "bind": methods.QueueBind(queue=name, exchange="amq.fanout"),
        }[method]
    )
    assert thief.hears(ChannelClose).reply_code == 405


def test_names_are_not_told_by_services(playbook: Playbook) -> None:
    requester, curious = playbook.client(), playbook.client()
    wait_for_answers(requester)
    wait_for_answers(curious)
    for service in ("queue.list", "consumer.list"):
        curious >> carrying(BasicPublish(exchange="amq.system", routing_key=service), b"", reply_to=NAME)
        answer = curious.next(1)
        assert isinstance(answer, Carried)
        assert f"{NAME}." not in repr(answer.properties.headers)


def test_reply_to_that_is_no_name_of_ours_stays(client: Client) -> None:
    client.declares("q")
    client >> carrying(BasicPublish(routing_key="q"), b"", reply_to="elsewhere", headers={"a": "\x15" + NAME})
    client >> methods.BasicGet(queue="q", no_ack=True)
    found = client.next(1)
    assert isinstance(found, Carried)
    assert (found.properties.reply_to, found.properties.headers) == ("elsewhere", {"a": "\x15" + NAME})
