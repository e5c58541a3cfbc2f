"""Publishes that a close follows in the same read: those that are safe are confirmed before it."""

from __future__ import annotations

import pytest
from playbook.dialogue import Client, Playbook, carrying

from flintmq.wire import amqp, methods
from flintmq.wire.methods import BasicAck, BasicPublish, ConfirmSelect, ConfirmSelectOk

MESSAGES = 1000


@pytest.fixture
def client() -> Client:
    client = Playbook().client()
    client.declares("q")
    client >> ConfirmSelect()
    client << ConfirmSelectOk()
    return client


def publish_all(client: Client) -> None:
    client.publishes("q", *[b"m"] * MESSAGES)


def test_a_publish_to_a_missing_exchange_leaves_the_others_confirmed(client: Client) -> None:
    with client.playbook.one_pass():
        publish_all(client)
        client >> carrying(BasicPublish(exchange="missing"), b"x")
    client << BasicAck(delivery_tag=MESSAGES, multiple=True)
    assert client.hears(methods.ChannelClose).reply_code == amqp.NOT_FOUND
    client >> methods.ChannelCloseOk()
    client >> methods.ChannelOpen()
    client << methods.ChannelOpenOk()
    client >> methods.QueuePurge(queue="q")
    client << methods.QueuePurgeOk(message_count=MESSAGES)


def test_a_fault_of_the_connection_too(client: Client) -> None:
    client[2] >> methods.ChannelOpen()
    client[2] << methods.ChannelOpenOk()
    client[2] >> ConfirmSelect()
    client[2] << ConfirmSelectOk()
    with client.playbook.one_pass():
        publish_all(client)
        client[2] >> carrying(BasicPublish(routing_key="q"), b"x")
        client[2] >> methods.BasicQos()
        client >> b"\x01\x00\x01\x00\x00\x00\x04\x00\x63\x00\x63\xce"  # a method that there is not
    heard = dict(client.heard())
    assert [number for number, _ in client.heard()] == [2, 1, 2, 0]
    assert heard[1] == BasicAck(delivery_tag=MESSAGES, multiple=True)
    assert heard[2] == BasicAck(delivery_tag=1)
    assert isinstance(heard[0], methods.ConnectionClose)
    client.inbox.clear()


def test_the_publish_that_is_at_fault_is_not_confirmed(client: Client) -> None:
    with client.playbook.one_pass():
        client.publishes("q", b"1", b"2")
        client >> carrying(BasicPublish(routing_key="q"), b"3", user_id="somebody else")
    client << BasicAck(delivery_tag=2, multiple=True)
    assert client.hears(methods.ChannelClose).reply_code == amqp.PRECONDITION_FAILED


def test_a_client_that_closes_hears_of_what_is_safe_first(client: Client) -> None:
    with client.playbook.one_pass():
        publish_all(client)
        client >> methods.ChannelClose(reply_code=200)
    client << BasicAck(delivery_tag=MESSAGES, multiple=True)
    client << methods.ChannelCloseOk()


def test_a_connection_that_is_closed_too(client: Client) -> None:
    with client.playbook.one_pass():
        publish_all(client)
        client >> methods.ConnectionClose(reply_code=200)
    client << BasicAck(delivery_tag=MESSAGES, multiple=True)
    client << methods.ConnectionCloseOk()
