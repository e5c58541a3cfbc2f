"""Chained bindings: a message must fit the bindings of several exchanges."""

from __future__ import annotations

from typing import Any

import pytest
from playbook.dialogue import Client, Playbook, carrying

from flintmq.config import parse
from flintmq.wire import methods
from flintmq.wire.methods import BasicPublish, ChannelClose, ExchangeDeclare, ExchangeDeclareOk

RED = {"x-match": "all", "colour": "red"}


def declare(client: Client, name: str, kind: str, **settings: Any) -> None:
    client >> ExchangeDeclare(exchange=name, type=kind, **settings)
    client << ExchangeDeclareOk()


def bind(client: Client, queue: str, exchange: str, key: str = "", **arguments: Any) -> None:
    given = {name.replace("_", "-"): value for name, value in arguments.items()}
    client >> methods.QueueBind(queue=queue, exchange=exchange, routing_key=key, arguments=given)
    client << methods.QueueBindOk()


def unbind(client: Client, queue: str, exchange: str, key: str = "", **arguments: Any) -> None:
    given = {name.replace("_", "-"): value for name, value in arguments.items()}
    client >> methods.QueueUnbind(queue=queue, exchange=exchange, routing_key=key, arguments=given)
    client << methods.QueueUnbindOk()


def send(client: Client, exchange: str, key: str, body: bytes = b"m", **headers: Any) -> None:
    client >> carrying(BasicPublish(exchange=exchange, routing_key=key), body, headers=headers)


def shuffled(client: Client, exchange: str) -> list[bytes]:
    """What arrives of all combinations of a topic and a colour."""
    for topic in ("usd", "eur"):
        for colour in ("red", "blue"):
            send(client, exchange, f"stock.{topic}", f"{topic} {colour}".encode(), colour=colour)
    return client.gets_all("q")


def test_both_conditions_must_be_met(client: Client) -> None:
    client.declares("q")
    bind(client, "q", "amq.topic", "stock.usd")
    assert shuffled(client, "amq.topic") == [b"usd red", b"usd blue"]
    bind(client, "q", "amq.headers", **RED, x_via="amq.topic")
    assert shuffled(client, "amq.topic") == [b"usd red"]
    assert shuffled(client, "amq.headers") == [], "a chained binding leads nowhere by itself"
    unbind(client, "q", "amq.headers", **RED, x_via="amq.topic")
    assert shuffled(client, "amq.topic") == [b"usd red", b"usd blue"]


def test_the_order_makes_no_difference(client: Client) -> None:
    client.declares("q")
    bind(client, "q", "amq.headers", **RED)
    bind(client, "q", "amq.topic", "stock.usd", x_via="amq.headers")
    assert shuffled(client, "amq.headers") == [b"usd red"]


def test_others_are_not_concerned(client: Client) -> None:
    client.declares("q")
    client.declares("other")
    for queue in ("q", "other"):
        bind(client, queue, "amq.topic", "stock.*")
    bind(client, "q", "amq.headers", **RED, x_via="amq.topic")
    assert shuffled(client, "amq.topic") == [b"usd red", b"eur red"]
    assert len(client.gets_all("other")) == 4


def test_several_exchanges_must_agree_and_several_bindings_need_not(client: Client) -> None:
    client.declares("q")
    declare(client, "d", "direct")
    bind(client, "q", "amq.fanout")
    bind(client, "q", "d", "a", x_via="amq.fanout")
    bind(client, "q", "d", "b", x_via="amq.fanout")
    bind(client, "q", "amq.topic", "*", x_via="amq.fanout")
    for key in ("a", "b", "c"):
        send(client, "amq.fanout", key, key.encode())
    assert client.gets_all("q") == [b"a", b"b"]
    bind(client, "q", "amq.headers", **RED, x_via="amq.fanout")
    send(client, "amq.fanout", "a", b"blue", colour="blue")
    send(client, "amq.fanout", "a", b"red", colour="red")
    assert client.gets_all("q") == [b"red"]


def test_a_chain_of_three(client: Client) -> None:
    client.declares("q")
    declare(client, "d", "direct")
    bind(client, "q", "amq.fanout")
    bind(client, "q", "amq.topic", "a.*", x_via="amq.fanout")
    bind(client, "q", "d", "a.b", x_via="amq.topic")
    for key in ("a.b", "a.c", "b.b"):
        send(client, "amq.fanout", key, key.encode())
    assert client.gets_all("q") == [b"a.b"]


def test_a_circle_ends(client: Client) -> None:
    client.declares("q")
    bind(client, "q", "amq.fanout")
    bind(client, "q", "amq.topic", "a.*", x_via="amq.fanout")
    bind(client, "q", "amq.fanout", x_via="amq.topic")
    bind(client, "q", "amq.topic", "*.b", x_via="amq.topic")
    for key in ("a.b", "a.c"):
        send(client, "amq.fanout", key, key.encode())
    assert client.gets_all("q") == [b"a.b"]


def test_via_each_of_a_list(client: Client) -> None:
    client.declares("q")
    declare(client, "d", "direct")
    bind(client, "q", "amq.fanout")
    bind(client, "q", "amq.topic", "#")
    bind(client, "q", "d", "k", x_via=["amq.fanout", "amq.topic"])
    for exchange in ("amq.fanout", "amq.topic"):
        send(client, exchange, "k", b"fits")
        send(client, exchange, "other", b"does not")
    assert client.gets_all("q") == [b"fits", b"fits"]


def test_what_is_chained_out_goes_to_the_alternate(client: Client) -> None:
    client.declares("q")
    client.declares("rest")
    declare(client, "x", "fanout", arguments={"alternate-exchange": "amq.fanout"})
    bind(client, "rest", "amq.fanout")
    bind(client, "q", "x")
    bind(client, "q", "amq.direct", "k", x_via="x")
    send(client, "x", "other", b"rest")
    assert client.gets_all("rest") == [b"rest"]


def test_chains_end_with_what_they_are_made_of(client: Client) -> None:
    for end in ("queue", "exchange"):
        client.declares("q")
        declare(client, "x", "direct")
        bind(client, "q", "amq.fanout")
        bind(client, "q", "x", "never", x_via="amq.fanout")
        send(client, "amq.fanout", "k")
        assert client.gets_all("q") == []
        if end == "queue":
            client >> methods.QueueDelete(queue="q")
            client << methods.QueueDeleteOk(message_count=0)
        else:
            client >> methods.ExchangeDelete(exchange="x")
            client << methods.ExchangeDeleteOk()
            send(client, "amq.fanout", "k")
            assert client.gets_all("q") == [b"m"]
    (host,) = client.playbook.broker.virtual_hosts.values()
    assert host.chains.conditions == {}


@pytest.mark.parametrize(
    ("via", "code"),
    [
        ("none", 404),
        (5, 406),
        ([], 406),
        (["amq.topic", 5], 406),
        ("", 406),
        (None, 406),
        (["amq.topic", "none"], 404),
    ],
)
def test_a_wrong_via_is_refused(client: Client, via: Any, code: int) -> None:
    client.declares("q")
    client >> methods.QueueBind(queue="q", exchange="amq.fanout", arguments={"x-via": via})
    refused = client.hears(ChannelClose)
    assert refused.reply_code == code
    assert "x-via" in refused.reply_text


def test_kinds_that_take_messages_are_no_part_of_a_chain(client: Client) -> None:
    client.declares("q")
    declare(client, "x", "x-delayed-message", arguments={"x-delayed-type": "direct"})
    client >> methods.QueueBind(queue="q", exchange="x", arguments={"x-via": "amq.fanout"})
    assert client.hears(ChannelClose).reply_code == 406


def test_it_takes_the_permission_to_read_from_both() -> None:
    settings = """
    [users.u]
    password = "u"
    permissions."/" = {configure = ".*", write = ".*", read = "^(q|amq.topic)$"}
    """
    client = Playbook(parse(settings)).client(user="u", password="u")
    client.declares("q")
    client >> methods.QueueBind(queue="q", exchange="amq.topic", arguments={"x-via": "amq.fanout"})
    assert client.hears(ChannelClose).reply_code == 403
