"""Queues: declaring, binding, purging, deleting; exclusive and auto-delete ones."""

from __future__ import annotations

from typing import Any

import pytest
from playbook.dialogue import Client, Playbook, carrying

from flintmq.config import parse
from flintmq.wire import amqp, methods
from flintmq.wire.methods import (
    BasicAck,
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicGet,
    BasicGetEmpty,
    BasicGetOk,
    ChannelClose,
    ChannelCloseOk,
    ChannelOpen,
    ChannelOpenOk,
    ConnectionClose,
    ConnectionCloseOk,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    QueuePurgeOk,
    QueueUnbind,
    QueueUnbindOk,
)

LOCKED = (
    "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'mine' in vhost '/'. "
    "It was declared by another connection"
)


def test_declare_tells_messages_and_consumers(client: Client) -> None:
    client >> QueueDeclare(queue="q")
    client << QueueDeclareOk(queue="q", message_count=0, consumer_count=0)
    client.publishes("q", b"1", b"2", b"3")
    client >> BasicGet(queue="q")
    client << carrying(BasicGetOk(delivery_tag=1, routing_key="q", message_count=2), b"1")
    client >> QueueDeclare(queue="q", passive=True)
    client << QueueDeclareOk(queue="q", message_count=2, consumer_count=0)
    client.consumes("q")
    assert client.bodies() == [b"2", b"3"]
    client >> QueueDeclare(queue="q")
    client << QueueDeclareOk(queue="q", message_count=0, consumer_count=1)


def test_the_broker_thinks_of_a_name(client: Client) -> None:
    names = set()
    for _ in range(3):
        client >> QueueDeclare()
        names.add(client.hears(QueueDeclareOk).queue)
    assert len(names) == 3
    assert all(name.startswith("amq.gen-") for name in names)


def test_an_empty_name_is_the_last_declared(client: Client) -> None:
    client.declares("q")
    client.publishes("q", b"1")
    client >> QueueDeclare(passive=True)
    client << QueueDeclareOk(queue="q", message_count=1)
    client >> QueueBind(exchange="amq.direct")  # and so is the key
    client << QueueBindOk()
    client.publishes("q", b"2", exchange="amq.direct")
    assert client.gets("") == b"1"
    client >> QueueUnbind(exchange="amq.direct")
    client << QueueUnbindOk()
    client >> QueuePurge()
    client << QueuePurgeOk(message_count=1)
    client >> QueueDelete()
    client << QueueDeleteOk()


@pytest.mark.parametrize(
    "method",
    [
        QueueDeclare(passive=True),
        QueueBind(exchange="amq.direct"),
        QueueUnbind(exchange="amq.direct"),
        QueuePurge(),
        QueueDelete(),
        BasicConsume(),
        BasicGet(),
    ],
)
def test_an_empty_name_where_none_was_declared(client: Client, method: Any) -> None:
    client >> method
    client << ChannelClose(
        reply_code=404,
        reply_text="NOT_FOUND - no previously declared queue",
        class_id=method.CLASS_ID,
        method_id=method.METHOD_ID,
    )


@pytest.mark.parametrize(
    "method",
    [
        QueueDeclare(queue="no", passive=True),
        QueueBind(queue="no", exchange="amq.direct"),
        QueuePurge(queue="no"),
        BasicConsume(queue="no"),
        BasicGet(queue="no"),
    ],
)
def test_a_queue_that_is_not_there(client: Client, method: Any) -> None:
    client >> method
    client << ChannelClose(
        reply_code=404,
        reply_text="NOT_FOUND - no queue 'no' in vhost '/'",
        class_id=method.CLASS_ID,
        method_id=method.METHOD_ID,
    )


def test_bindings_want_an_exchange_with_a_name(client: Client) -> None:
    client.declares("q")
    client >> QueueBind(queue="q", exchange="", routing_key="k")
    text = "ACCESS_REFUSED - operation not permitted on the default exchange"
    client << ChannelClose(reply_code=403, reply_text=text, class_id=50, method_id=20)
    client >> ChannelCloseOk() >> ChannelOpen()
    client << ChannelOpenOk()
    client >> QueueBind(queue="q", exchange="no")
    text = "NOT_FOUND - no exchange 'no' in vhost '/'"
    client << ChannelClose(reply_code=404, reply_text=text, class_id=50, method_id=20)


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"durable": True}, "'durable' for queue 'q' in vhost '/': received 'true' but current is 'false'"),
        ({"auto_delete": True}, "'auto_delete' for queue 'q' in vhost '/': received 'true' but current is"),
        (
            {"arguments": {"x-max-length": 2}},
            "'x-max-length' for queue 'q' in vhost '/': received '2' but current is '1'",
        ),
        ({"arguments": {}}, "'x-max-length' for queue 'q' in vhost '/': received 'none' but current is '1'"),
    ],
)
def test_declaring_it_otherwise_is_refused(client: Client, asked: dict[str, Any], text: str) -> None:
    client.declares("q", arguments={"x-max-length": 1})
    client >> QueueDeclare(**{"queue": "q", "arguments": {"x-max-length": 1}, **asked})
    close = client.hears(ChannelClose)
    assert (close.reply_code, close.class_id, close.method_id) == (406, 50, 10)
    assert close.reply_text.startswith(f"PRECONDITION_FAILED - inequivalent arg {text}")


def test_declared_otherwise_as_to_being_exclusive_it_is_locked(client: Client) -> None:
    client.declares("q", exclusive=True)
    client >> QueueDeclare(queue="q", durable=True)
    text = (
        "RESOURCE_LOCKED - inequivalent arg 'exclusive' for queue 'q' in vhost '/': "
        "received 'false' but current is 'true'"
    )
    client << ChannelClose(reply_code=405, reply_text=text, class_id=50, method_id=10)


@pytest.mark.parametrize("asked", ["q", ""])
def test_an_exclusive_queue_is_not_durable_whatever_is_asked_for(
    playbook: Playbook, client: Client, asked: str
) -> None:
    client >> QueueDeclare(queue=asked, durable=True, exclusive=True)
    ((_, answer),) = client.heard()
    assert isinstance(answer, QueueDeclareOk)
    name = answer.queue
    client.inbox.clear()
    for durable in (True, False):
        client >> QueueDeclare(queue=name, durable=durable, exclusive=True)
        client << QueueDeclareOk(queue=name)
    assert not playbook.broker.virtual_hosts["/"].queues[name].durable


def test_reserved_names(client: Client) -> None:
    client >> QueueDeclare(queue="amq.mine")
    text = "ACCESS_REFUSED - queue name 'amq.mine' contains reserved prefix 'amq.*'"
    client << ChannelClose(reply_code=403, reply_text=text, class_id=50, method_id=10)


def test_nowait_is_silent(client: Client) -> None:
    client >> QueueDeclare(queue="q", no_wait=True)
    client >> QueueBind(queue="q", exchange="amq.fanout", no_wait=True)
    client >> QueuePurge(queue="q", no_wait=True)
    client >> QueueDelete(queue="q", no_wait=True)
    client.hears_nothing()


def test_purge_leaves_what_was_handed_out(client: Client) -> None:
    client.declares("q")
    client.publishes("q", b"1", b"2", b"3")
    client >> BasicGet(queue="q")
    client.next(1)
    client >> QueuePurge(queue="q")
    client << QueuePurgeOk(message_count=2)
    client >> QueueDeclare(queue="q")
    client << QueueDeclareOk(queue="q")
    client >> BasicAck(delivery_tag=1)
    client.hears_nothing()


def test_delete_only_if_unused_or_empty(playbook: Playbook) -> None:
    owner = playbook.client()
    owner.declares("q")
    owner.publishes("q", b"1")
    asking = playbook.client()
    asking >> QueueDelete(queue="q", if_empty=True)
    text = "PRECONDITION_FAILED - queue 'q' in vhost '/' not empty"
    asking << ChannelClose(reply_code=406, reply_text=text, class_id=50, method_id=40)
    owner.consumes("q")
    assert owner.bodies() == [b"1"]
    asking >> ChannelCloseOk() >> ChannelOpen()
    asking << ChannelOpenOk()
    asking >> QueueDelete(queue="q", if_unused=True)
    text = "PRECONDITION_FAILED - queue 'q' in vhost '/' in use"
    asking << ChannelClose(reply_code=406, reply_text=text, class_id=50, method_id=40)
    owner >> BasicCancel(consumer_tag="c")
    owner << BasicCancelOk(consumer_tag="c")
    owner >> QueueDelete(queue="q", if_unused=True, if_empty=True)
    owner << QueueDeleteOk(message_count=0)
    owner >> BasicAck(delivery_tag=1)  # of a queue that is gone
    owner.hears_nothing()


def test_delete_is_content_with_what_is_not_there(client: Client) -> None:
    client >> QueueDelete(queue="no")
    client << QueueDeleteOk(message_count=0)


def test_consumers_hear_that_their_queue_is_gone(playbook: Playbook) -> None:
    told, silent, owner = playbook.client(), playbook.client(capabilities={}), playbook.client()
    owner.declares("q")
    told.consumes("q", "one")
    told.consumes("q", "two")
    silent.consumes("q", "three")
    owner >> QueueDelete(queue="q")
    owner << QueueDeleteOk()
    told << BasicCancel(consumer_tag="one", no_wait=True)
    told << BasicCancel(consumer_tag="two", no_wait=True)
    silent.hears_nothing()
    told >> BasicCancelOk(consumer_tag="one")
    told.declares("q")
    told.consumes("q", "one")  # the tags are free again


def test_what_comes_back_to_a_deleted_queue_is_gone(client: Client) -> None:
    client.declares("q")
    client.publishes("q", b"1")
    client >> BasicGet(queue="q")
    client.next(1)
    client >> QueueDelete(queue="q")
    client << QueueDeleteOk()
    client.declares("q")
    client >> ChannelClose(reply_code=200)
    client << ChannelCloseOk()
    client >> ChannelOpen()
    client << ChannelOpenOk()
    client >> BasicGet(queue="q")
    client << BasicGetEmpty()


def test_an_exclusive_queue_is_for_its_connection(playbook: Playbook) -> None:
    owner = playbook.client()
    owner.declares("mine", exclusive=True)
    owner.declares("mine", exclusive=True)
    for method in (
        QueueDeclare(queue="mine", exclusive=True),
        QueueDeclare(queue="mine", passive=True),
        QueueBind(queue="mine", exchange="amq.fanout"),
        QueuePurge(queue="mine"),
        QueueDelete(queue="mine"),
        BasicConsume(queue="mine"),
        BasicGet(queue="mine"),
    ):
        other = playbook.client()
        other >> method
        other << ChannelClose(
            reply_code=405, reply_text=LOCKED, class_id=method.CLASS_ID, method_id=method.METHOD_ID
        )
    playbook.client().publishes("mine", b"anyone may publish")
    assert owner.gets("mine") == b"anyone may publish"


@pytest.mark.parametrize("how", ["close", "loss"])
def test_an_exclusive_queue_goes_with_its_connection(playbook: Playbook, how: str) -> None:
    owner, other = playbook.client(), playbook.client()
    owner.declares("mine", exclusive=True)
    if how == "close":
        owner >> ConnectionClose(reply_code=200)
        owner << ConnectionCloseOk()
    else:
        owner.session.release()
    other >> QueueDeclare(queue="mine", exclusive=True)
    other << QueueDeclareOk(queue="mine")
    assert list(playbook.broker.virtual_hosts["/"].exclusive) == [other.session.number]


def test_an_auto_delete_queue_goes_with_its_last_consumer(playbook: Playbook) -> None:
    one, two = playbook.client(), playbook.client()
    one.declares("q", auto_delete=True)
    one.publishes("q", b"waits for the first consumer")
    one.consumes("q", no_ack=True)
    two.consumes("q")
    assert len(one.bodies()) == 1
    one >> BasicCancel(consumer_tag="c")
    one << BasicCancelOk(consumer_tag="c")
    two >> QueueDeclare(queue="q", passive=True)
    two << QueueDeclareOk(queue="q", consumer_count=1)
    two >> ChannelClose(reply_code=200)
    two << ChannelCloseOk()
    assert playbook.broker.virtual_hosts["/"].queues == {}


@pytest.mark.parametrize(
    ("method", "right"),
    [
        (QueueDeclare(queue="q"), "configure queue 'q'"),
        (QueueDeclare(queue="q", passive=True), "configure queue 'q'"),
        (QueueDelete(queue="q"), "configure queue 'q'"),
        (QueuePurge(queue="q"), "read from queue 'q'"),
        (QueueBind(queue="q", exchange="amq.fanout"), "write to queue 'q'"),
        (QueueUnbind(queue="q", exchange="amq.fanout"), "write to queue 'q'"),
        (QueueBind(queue="w", exchange="amq.fanout"), "read from exchange 'amq.fanout'"),
        (BasicConsume(queue="q"), "read from queue 'q'"),
        (BasicGet(queue="q"), "read from queue 'q'"),
    ],
)
def test_permissions(method: Any, right: str) -> None:
    text = '[users.guest]\npassword = "guest"\npermissions."/" = { configure = ".*" }\n'
    text += '[users.u]\npassword = "p"\npermissions."/" = { configure = "^c", write = "^w", read = "^r" }'
    playbook = Playbook(parse(text))
    owner = playbook.client()
    owner.declares("q")
    owner.declares("w")
    client = playbook.client(user="u", password="p")
    client >> method
    client << ChannelClose(
        reply_code=403,
        reply_text=f"ACCESS_REFUSED - user 'u' may not {right} in virtual host '/'",
        class_id=method.CLASS_ID,
        method_id=method.METHOD_ID,
    )
    playbook.end()


def test_seeing_takes_any_right() -> None:
    text = '[users.u]\npassword = "p"\npermissions."/" = { configure = "^c", write = "^w", read = "^r" }'
    playbook = Playbook(parse(text))
    client = playbook.client(user="u", password="p")
    playbook.broker.virtual_hosts["/"].add_queue("reads", False, False, False, {}, 0)
    playbook.broker.virtual_hosts["/"].add_queue("writes", False, False, False, {}, 0)
    for name in ("reads", "writes"):
        client >> QueueDeclare(queue=name, passive=True)
        client << QueueDeclareOk(queue=name)
    playbook.end()


STRANGER = """
[users.stranger]
password = "stranger"
permissions."/" = {configure = "^mine", write = "^mine", read = "^mine"}
"""


@pytest.mark.parametrize("exists", [True, False])
def test_unbinding_tells_strangers_nothing_of_what_exists(exists: bool) -> None:
    playbook = Playbook(parse(STRANGER))
    host = playbook.broker.virtual_hosts["/"]
    if exists:
        host.declare_exchange("x", "direct", False, False, False, {})
        host.declare_exchange("y", "direct", False, False, False, {})
        host.declare_queue("q", False, False, False, {}, 0)
    stranger = playbook.client(user="stranger", password="stranger")
    stranger.declares("mine")
    asked: list[methods.Method] = [
        methods.QueueUnbind(queue="q", exchange="x"),
        methods.QueueUnbind(queue="mine", exchange="x"),
        methods.ExchangeUnbind(source="x", destination="y"),
        methods.ExchangeUnbind(source="mine", destination="y"),
    ]
    for unbind in asked:
        stranger >> unbind
        assert stranger.hears(methods.ChannelClose).reply_code == amqp.ACCESS_REFUSED
        stranger >> methods.ChannelCloseOk()
        stranger >> methods.ChannelOpen()
        stranger << methods.ChannelOpenOk()
    stranger >> methods.QueueUnbind(queue="mine", exchange="mine too")
    stranger << methods.QueueUnbindOk()
