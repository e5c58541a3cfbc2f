"""How much a client may make: one too many is refused by name, and what is there stays."""

from __future__ import annotations

import pytest
from playbook.dialogue import Playbook

from flintmq.config import Config, parse
from flintmq.wire import methods
from flintmq.wire.methods import (
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    ChannelClose,
    ChannelOpen,
    ChannelOpenOk,
    ConnectionClose,
    ExchangeBind,
    ExchangeDeclare,
    ExchangeDeclareOk,
    ExchangeDelete,
    ExchangeDeleteOk,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDelete,
    QueueDeleteOk,
    QueueUnbind,
    QueueUnbindOk,
)

ALWAYS_THERE = len(Playbook().broker.virtual_hosts["/"].exchanges)


def limited(**limits: int) -> Config:
    lines = [f"{name} = {value}" for name, value in limits.items()]
    return parse("\n".join(["[limits]", *lines]))


def test_queues() -> None:
    playbook = Playbook(limited(queues_per_virtual_host_max=2))
    client = playbook.client()
    client.declares("a")
    client.declares("b")
    client.declares("b")
    client >> QueueDeclare(queue="c" * 255)
    close = client.hears(ChannelClose)
    assert (close.reply_code, close.class_id, close.method_id) == (406, 50, 10)
    assert close.reply_text.startswith(
        "PRECONDITION_FAILED - queue limit in vhost '/' (2) is reached (limits.queues_per_virtual_host_max)"
    )
    other = playbook.client()
    other >> QueueDelete(queue="a")
    other << QueueDeleteOk(message_count=0)
    other.declares("c")
    assert set(playbook.broker.virtual_hosts["/"].queues) == {"b", "c"}


def test_a_queue_the_broker_names_counts_too() -> None:
    client = Playbook(limited(queues_per_virtual_host_max=1)).client()
    client >> QueueDeclare()
    client.hears(methods.QueueDeclareOk)
    client >> QueueDeclare()
    assert client.hears(ChannelClose).reply_code == 406


def test_exchanges() -> None:
    playbook = Playbook(limited(exchanges_per_virtual_host_max=ALWAYS_THERE + 1))
    client = playbook.client()
    client >> ExchangeDeclare(exchange="a", type="topic")
    client << ExchangeDeclareOk()
    client >> ExchangeDeclare(exchange="a", type="topic")
    client << ExchangeDeclareOk()
    client >> ExchangeDeclare(exchange="b", type="topic")
    close = client.hears(ChannelClose)
    assert (close.reply_code, close.class_id, close.method_id) == (406, 40, 10)
    assert f"({ALWAYS_THERE + 1}) is reached (limits.exchanges_per_virtual_host_max)" in close.reply_text
    assert "cannot declare exchange 'b'" in close.reply_text


def test_bindings() -> None:
    playbook = Playbook(limited(bindings_per_virtual_host_max=2))
    client = playbook.client()
    client.declares("q")
    for key in ("a", "b", "b"):
        client >> QueueBind(queue="q", exchange="amq.topic", routing_key=key)
        client << QueueBindOk()
    client >> QueueBind(queue="q", exchange="amq.direct", routing_key="c")
    close = client.hears(ChannelClose)
    assert (close.reply_code, close.class_id, close.method_id) == (406, 50, 20)
    assert (
        "binding limit in vhost '/' (2) is reached (limits.bindings_per_virtual_host_max)" in close.reply_text
    )
    other = playbook.client()
    other >> QueueUnbind(queue="q", exchange="amq.topic", routing_key="a")
    other << QueueUnbindOk()
    other >> QueueBind(queue="q", exchange="amq.direct", routing_key="c")
    other << QueueBindOk()
    other >> ExchangeBind(destination="amq.topic", source="amq.direct")
    assert other.hears(ChannelClose).class_id == 40


@pytest.mark.parametrize("kind", ["topic", "delayed", "chained"])
def test_topics_that_take_long_to_match(kind: str) -> None:
    """Patterns that one message meets together; names without wildcards, and what is there, are no burden."""
    playbook = Playbook(limited(topic_steps_max=1000))
    client = playbook.client()
    client.declares("q")
    delays = {"x-delayed-type": "topic"}
    client >> ExchangeDeclare(
        exchange="t",
        type="x-delayed-message" if kind == "delayed" else "topic",
        arguments=delays if kind == "delayed" else {},
    )
    client << ExchangeDeclareOk()
    if kind == "chained":
        client >> ExchangeDeclare(exchange="via", type="fanout")
        client << ExchangeDeclareOk()
    arguments = {"x-via": "via"} if kind == "chained" else {}

    def bind(key: str) -> None:
        client >> QueueBind(queue="q", exchange="t", routing_key=key, arguments=arguments)

    for number in range(5):
        bind(f"#.a{number}.#.z")
        client << QueueBindOk()
    bind("*")
    client << QueueBindOk()
    bind("#.a0.#.z")
    client << QueueBindOk()
    bind("a.b.c")
    client << QueueBindOk()
    bind("#.a5.#.z")
    client << QueueBindOk()
    bind("#.a6.#.z")
    close = client.hears(ChannelClose)
    assert (close.reply_code, close.class_id, close.method_id) == (506, 50, 20)
    assert "may take " in close.reply_text
    assert "steps to match (limits.topic_steps_max): cannot bind 'q' to exchange 't'" in close.reply_text
    client = playbook.client()
    for number in (0, 1):
        client >> QueueUnbind(queue="q", exchange="t", routing_key=f"#.a{number}.#.z", arguments=arguments)
        client << QueueUnbindOk()
    bind("#.a6.#.z")
    client << QueueBindOk()


def test_bindings_are_counted_however_they_go() -> None:
    playbook = Playbook()
    host = playbook.broker.virtual_hosts["/"]
    client = playbook.client()
    client.declares("q")
    for name in ("a", "b", "c"):
        client >> ExchangeDeclare(exchange=name, type="topic", auto_delete=name != "c")
        client << ExchangeDeclareOk()
        client.binds("q", name, "1")
        client.binds("q", name, "2")
    for destination, source in (("b", "a"), ("c", "b"), ("c", "c"), ("a", "c")):
        client >> ExchangeBind(destination=destination, source=source)
        client.hears(methods.ExchangeBindOk)

    def counted() -> int:
        assert host.binding_count == sum(len(each.bindings) for each in host.exchanges.values())
        return host.binding_count

    assert counted() == 10
    client >> QueueUnbind(queue="q", exchange="a", routing_key="1")
    client << QueueUnbindOk()
    assert counted() == 9
    client >> ExchangeDelete(exchange="c")
    client << ExchangeDeleteOk()
    assert counted() == 5 - 1, "with c go b's binding to it and its own"
    client >> QueueDelete(queue="q")
    client << QueueDeleteOk(message_count=0)
    assert counted() == 0
    assert "a" not in host.exchanges, "b went with its last binding, and so did a"


@pytest.mark.parametrize("kind", ["channel", "connection"])
def test_consumers(kind: str) -> None:
    playbook = Playbook(limited(**{f"consumers_per_{kind}_max": 2}))
    client = playbook.client()
    client.declares("q")
    client[2] >> ChannelOpen()
    client[2] << ChannelOpenOk()
    client.consumes("q", "a")
    second = client[1] if kind == "channel" else client[2]
    second >> BasicConsume(queue="q", consumer_tag="b")
    second << methods.BasicConsumeOk(consumer_tag="b")
    client >> BasicCancel(consumer_tag="a")
    client << BasicCancelOk(consumer_tag="a")
    client.consumes("q", "a")
    client >> BasicConsume(queue="q", consumer_tag="c")
    close = client.hears(ConnectionClose, 0)
    assert (close.reply_code, close.class_id, close.method_id) == (530, 60, 20)
    assert close.reply_text == (
        f"NOT_ALLOWED - reached maximum (2) of consumers per {kind} (limits.consumers_per_{kind}_max)"
    )


def test_a_channel_has_its_own_consumers() -> None:
    client = Playbook(limited(consumers_per_channel_max=1)).client()
    client.declares("q")
    client.consumes("q", "a")
    client[2] >> ChannelOpen()
    client[2] << ChannelOpenOk()
    client[2] >> BasicConsume(queue="q", consumer_tag="a")
    client[2] << methods.BasicConsumeOk(consumer_tag="a")
