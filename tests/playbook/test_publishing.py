"""Publishing: returns, confirms and their order, and contents that are not what they say."""

from __future__ import annotations

import pytest
from playbook.dialogue import Carried, Client, Playbook, carrying, frame

from flintmq.wire import amqp
from flintmq.wire.methods import (
    BasicAck,
    BasicPublish,
    BasicQos,
    BasicQosOk,
    BasicReturn,
    ChannelClose,
    ChannelCloseOk,
    ChannelFlow,
    ChannelFlowOk,
    ChannelOpen,
    ChannelOpenOk,
    ConfirmSelect,
    ConfirmSelectOk,
    ConnectionClose,
    TxSelect,
    TxSelectOk,
    encode_method,
)


def publish(key: str, body: bytes, exchange: str = "", **flags: bool) -> Carried:
    return carrying(BasicPublish(exchange=exchange, routing_key=key, **flags), body, content_type="t")


def returned(key: str, body: bytes, code: int, text: str, exchange: str = "") -> Carried:
    method = BasicReturn(reply_code=code, reply_text=text, exchange=exchange, routing_key=key)
    return carrying(method, body, content_type="t")


def confirming(playbook: Playbook) -> Client:
    client = playbook.client()
    client >> ConfirmSelect()
    client << ConfirmSelectOk()
    return client


# -- returns ---------------------------------------------------------------------------------------


def test_mandatory_comes_back_when_it_leads_nowhere(client: Client) -> None:
    client >> publish("none", b"x", mandatory=True)
    client << returned("none", b"x", 312, "NO_ROUTE")
    client >> publish("k", b"y" * 300_000, exchange="amq.topic", mandatory=True)
    client << returned("k", b"y" * 300_000, 312, "NO_ROUTE", "amq.topic")
    client >> publish("none", b"dropped")
    client.declares("q")
    client >> publish("q", b"x", mandatory=True)
    assert client.gets_all("q") == [b"x"]


def test_mandatory_asks_each_time_where_headers_decide(client: Client) -> None:
    client.declares("q")
    client.binds("q", "amq.headers", a=1)
    method = BasicPublish(exchange="amq.headers", mandatory=True)
    client >> carrying(method, b"1", headers={"a": 1})
    client >> carrying(method, b"2", headers={"a": 2})
    found = client.next(1)
    assert isinstance(found, Carried)
    assert (found.body, found.properties.headers) == (b"2", {"a": 2})
    assert client.gets_all("q") == [b"1"]


def test_immediate_wants_a_consumer_now(client: Client) -> None:
    client.declares("q")
    client >> publish("q", b"nobody", immediate=True)
    client << returned("q", b"nobody", 313, "NO_CONSUMERS")
    client.consumes("q")
    client >> publish("q", b"1", immediate=True)
    assert client.bodies() == [b"1"]
    client >> ChannelFlow(active=False)
    client << ChannelFlowOk(active=False)
    client >> publish("q", b"2", immediate=True)
    client << returned("q", b"2", 313, "NO_CONSUMERS")
    assert client.gets_all("q") == []


def test_immediate_and_credit(client: Client) -> None:
    client.declares("q")
    client >> BasicQos(prefetch_count=1)
    client << BasicQosOk()
    client.consumes("q")
    client >> publish("q", b"1", immediate=True)
    assert client.bodies() == [b"1"]
    client >> publish("q", b"2", immediate=True)
    client << returned("q", b"2", 313, "NO_CONSUMERS")


def test_immediate_messages_that_arrive_together(playbook: Playbook) -> None:
    client = playbook.client()
    client.declares("q")
    client >> BasicQos(prefetch_count=2)
    client << BasicQosOk()
    client.consumes("q")
    with playbook.one_pass():
        for body in (b"1", b"2", b"3"):
            client >> publish("q", body, immediate=True)
    heard = [each for _, each in client.heard()]
    client.inbox.clear()
    assert [each.body for each in heard if isinstance(each, Carried)] == [b"1", b"2", b"3"]
    assert heard[2] == returned("q", b"3", 313, "NO_CONSUMERS")


def test_immediate_behind_others_that_wait(client: Client) -> None:
    client.declares("q")
    client >> BasicQos(prefetch_count=1)
    client << BasicQosOk()
    client.consumes("q")
    client.publishes("q", b"1", b"2")
    assert client.bodies() == [b"1"]
    client >> publish("q", b"3", immediate=True)
    client << returned("q", b"3", 313, "NO_CONSUMERS")


def test_immediate_that_leads_nowhere(client: Client) -> None:
    client >> publish("none", b"x", immediate=True, mandatory=True)
    client << returned("none", b"x", 312, "NO_ROUTE")


def test_immediate_goes_to_those_queues_that_have_consumers(client: Client) -> None:
    for name in ("busy", "idle"):
        client.declares(name)
        client.binds(name, "amq.fanout")
    client.consumes("busy", no_ack=True)
    client >> publish("", b"x", exchange="amq.fanout", immediate=True)
    assert client.bodies() == [b"x"]
    assert client.gets_all("idle") == []


# -- confirms --------------------------------------------------------------------------------------


def test_each_pass_is_confirmed_in_one(playbook: Playbook) -> None:
    client = confirming(playbook)
    client.declares("q")
    client.publishes("q", b"1")
    client << BasicAck(delivery_tag=1, multiple=False)
    with playbook.one_pass():
        client.publishes("q", *(b"x",) * 5)
    client << BasicAck(delivery_tag=6, multiple=True)
    client.publishes("q", b"7", b"8")
    client << BasicAck(delivery_tag=7) << BasicAck(delivery_tag=8)


def test_unroutable_is_confirmed_and_returned_first(playbook: Playbook) -> None:
    client = confirming(playbook)
    client.publishes("none", b"x")
    client << BasicAck(delivery_tag=1)
    with playbook.one_pass():
        client.publishes("none", b"x")
        client >> publish("none", b"y", mandatory=True)
        client.publishes("none", b"z")
    client << returned("none", b"y", 312, "NO_ROUTE")
    client << BasicAck(delivery_tag=4, multiple=True)


def test_confirms_are_counted_from_select(client: Client) -> None:
    client.publishes("none", b"not counted")
    client >> ConfirmSelect(no_wait=True) >> ConfirmSelect()
    client << ConfirmSelectOk()
    client.publishes("none", b"x")
    client << BasicAck(delivery_tag=1)


def test_each_channel_counts_for_itself(playbook: Playbook) -> None:
    client = confirming(playbook)
    client[2] >> ChannelOpen()
    client[2] << ChannelOpenOk()
    client[2] >> ConfirmSelect()
    client[2] << ConfirmSelectOk()
    with playbook.one_pass():
        client >> publish("none", b"x")
        client[2] >> publish("none", b"x")
        client >> publish("none", b"x")
    client << BasicAck(delivery_tag=2, multiple=True)
    client[2] << BasicAck(delivery_tag=1)


def test_a_channel_confirms_what_came_before_its_fault(playbook: Playbook) -> None:
    client = confirming(playbook)
    with playbook.one_pass():
        client.publishes("none", b"x")
        client.publishes("", b"y", exchange="none")
    client << BasicAck(delivery_tag=1)
    assert client.hears(ChannelClose).reply_code == 404
    client >> ChannelCloseOk() >> ChannelOpen()
    client << ChannelOpenOk()
    client.publishes("none", b"not confirming")
    client.hears_nothing()


def test_confirm_and_tx_exclude_each_other(playbook: Playbook) -> None:
    client = confirming(playbook)
    client >> TxSelect()
    text = "PRECONDITION_FAILED - cannot switch from confirm to tx mode"
    client << ChannelClose(reply_code=406, reply_text=text, class_id=90, method_id=10)
    client = playbook.client()
    client >> TxSelect()
    client << TxSelectOk()
    client >> ConfirmSelect()
    text = "PRECONDITION_FAILED - cannot switch from tx to confirm mode"
    client << ChannelClose(reply_code=406, reply_text=text, class_id=85, method_id=10)


# -- contents --------------------------------------------------------------------------------------


def test_an_unknown_exchange_costs_the_channel(client: Client) -> None:
    client.publishes("k", b"x", exchange="no")
    text = "NOT_FOUND - no exchange 'no' in vhost '/'"
    client << ChannelClose(reply_code=404, reply_text=text, class_id=60, method_id=40)


def raw_publish(flags_and_properties: bytes) -> bytes:
    method = encode_method(amqp.VERSION_0_9_1, BasicPublish(exchange="amq.headers", routing_key="k"))
    header = b"\x00\x3c\x00\x00" + (1).to_bytes(8, "big") + flags_and_properties
    return frame(1, 1, method) + frame(2, 1, header) + frame(3, 1, b"x")


@pytest.mark.parametrize(
    "properties",
    [
        b"\x80\x00",  # a content type that is not there
        b"\x80\x00\x05abc",
        b"\x20\x00\x00\x00\x00\x09abc",
        b"\x00\x40\x00\x00",  # half a timestamp
        b"\x10\x00\x02\x00",  # more than announced
        b"\x00\x01\x00\x00",  # a second flag word
        b"\x00\x02",
    ],
)
def test_properties_that_do_not_fit(client: Client, properties: bytes) -> None:
    client >> raw_publish(properties)
    close = client.hears(ConnectionClose)
    assert (close.reply_code, close.class_id, close.method_id) == (502, 60, 40)
    assert close.reply_text == "SYNTAX_ERROR - properties of a content header do not fit its size"


def test_headers_are_read_where_they_decide(client: Client) -> None:
    """A table whose length fits but whose fields do not: found only when an exchange must look."""
    client.declares("q")
    client.binds("q", "amq.headers", a=1)
    client >> raw_publish(b"\x20\x00\x00\x00\x00\x03\x01a?")
    close = client.hears(ConnectionClose)
    assert (close.reply_code, close.class_id, close.method_id) == (502, 60, 40)


def test_a_publish_counts_for_the_alarm(client: Client) -> None:
    assert not client.session.has_published
    client.publishes("none", b"x")
    assert client.session.has_published


def test_permissions_are_asked_again_when_they_change(playbook: Playbook, client: Client) -> None:
    client.publishes("k", b"x", exchange="amq.topic")
    playbook.broker.administration.permissions.clear("guest", "/")
    client.publishes("k", b"x", exchange="amq.topic")
    assert client.hears(ChannelClose).reply_code == 403


def test_a_missing_exchange_comes_before_what_is_wrong_with_the_message(playbook: Playbook) -> None:
    client = playbook.client()
    client.publishes("q", b"m", exchange="missing", user_id="somebody else")
    assert client.hears(ChannelClose).reply_code == 404
