"""Chained bindings: a message must fit the bindings of several exchanges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playbook.dialogue import Client, Playbook, carrying
from playbook.paged import PagedPlaybook

from flintmq.broker import policy_enforcement
from flintmq.broker.exchanges.binding import Binding
from flintmq.broker.exchanges.exchange import DirectExchange
from flintmq.broker.exchanges.exchange_types import EXCHANGE_TYPES
from flintmq.config import parse
from flintmq.errors import ChannelFault
from flintmq.wire import amqp, methods
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
    for end in ("queue", "binding"):
        client.declares("q")
        declare(client, "x", "direct", auto_delete=end == "binding")
        bind(client, "q", "amq.fanout")
        bind(client, "q", "x", "never", x_via="amq.fanout")
        send(client, "amq.fanout", "k")
        assert client.gets_all("q") == []
        if end == "queue":
            client >> methods.QueueDelete(queue="q")
            client << methods.QueueDeleteOk(message_count=0)
            client >> methods.ExchangeDelete(exchange="x")
            client << methods.ExchangeDeleteOk()
        else:
            unbind(client, "q", "x", "never", x_via="amq.fanout")
            send(client, "amq.fanout", "k")
            assert client.gets_all("q") == [b"m"]
    (host,) = client.playbook.broker.virtual_hosts.values()
    assert "x" not in host.exchanges
    assert host.router.chains.conditions == {}
    assert host.router.chains.filters == {}


# A filter that goes must never let through what it kept out.


def test_an_exchange_that_filters_for_others_is_not_deleted(client: Client) -> None:
    client.declares("q")
    declare(client, "x", "direct")
    bind(client, "q", "amq.fanout")
    bind(client, "q", "x", "fits", x_via="amq.fanout")
    client >> methods.ExchangeDelete(exchange="x")
    refused = client.hears(ChannelClose)
    assert refused.reply_code == 406
    assert "'x' in vhost '/' filters what comes by other exchanges ('x-via')" in refused.reply_text
    client >> methods.ChannelCloseOk()
    client >> methods.ChannelOpen()
    client << methods.ChannelOpenOk()
    for key in ("fits", "does not"):
        send(client, "amq.fanout", key, key.encode())
    assert client.gets_all("q") == [b"fits"]
    unbind(client, "q", "x", "fits", x_via="amq.fanout")
    client >> methods.ExchangeDelete(exchange="x")
    client << methods.ExchangeDeleteOk()


def test_an_auto_delete_filter_stays_for_the_queues_it_is_left_with(client: Client) -> None:
    declare(client, "x", "direct", auto_delete=True)
    for queue in ("q", "other"):
        client.declares(queue)
        bind(client, queue, "amq.fanout")
        bind(client, queue, "x", "fits", x_via="amq.fanout")
    client >> methods.QueueDelete(queue="other")
    client << methods.QueueDeleteOk(message_count=0)
    for key in ("fits", "does not"):
        send(client, "amq.fanout", key, key.encode())
    assert client.gets_all("q") == [b"fits"]


def test_an_exchange_that_comes_again_is_filtered_again(client: Client) -> None:
    client.declares("q")
    declare(client, "gate", "fanout")
    bind(client, "q", "amq.direct", "fits", x_via="gate")
    client >> methods.ExchangeDelete(exchange="gate")
    client << methods.ExchangeDeleteOk()
    declare(client, "gate", "fanout")
    bind(client, "q", "gate")
    for key in ("fits", "does not"):
        send(client, "gate", key, key.encode())
    assert client.gets_all("q") == [b"fits"]


VIA_FANOUT = {"x-via": "amq.fanout"}


@pytest.mark.parametrize(
    "method",
    [
        methods.QueueBind(queue="q", exchange="x", arguments=VIA_FANOUT),
        methods.ExchangeBind(destination="end", source="x", arguments=VIA_FANOUT),
    ],
)
def test_what_is_durable_is_filtered_by_durable_exchanges_alone(client: Client, method: Any) -> None:
    client >> methods.QueueDeclare(queue="q", durable=True)
    client.hears(methods.QueueDeclareOk)
    declare(client, "x", "direct")
    declare(client, "end", "fanout", durable=True)
    for exclusive in (False, True):
        client >> methods.QueueDeclare(queue=f"ends.{exclusive}", durable=exclusive, exclusive=exclusive)
        client.hears(methods.QueueDeclareOk)
        bind(client, f"ends.{exclusive}", "x", "k", x_via="amq.fanout")
    client >> method
    refused = client.hears(ChannelClose)
    assert refused.reply_code == 406
    assert "exchange 'x' is transient" in refused.reply_text


def test_the_alternate_exchange_of_a_policy_gets_what_is_kept_out() -> None:
    settings = """
    [[policies]]
    name = "rest"
    pattern = "^gate$"
    apply_to = "exchanges"
    [policies.definition]
    alternate-exchange = "amq.fanout"
    """
    client = Playbook(parse(settings)).client()
    client.declares("q")
    client.declares("rest")
    declare(client, "gate", "fanout")
    declare(client, "x", "direct")
    bind(client, "rest", "amq.fanout")
    bind(client, "q", "gate")
    bind(client, "q", "x", "fits", x_via="gate")
    (host,) = client.playbook.broker.virtual_hosts.values()
    policy_enforcement.reapply(host)
    for key in ("fits", "does not"):
        send(client, "gate", key, key.encode())
    assert client.gets_all("q") == [b"fits"]
    assert client.gets_all("rest") == [b"does not"]


class Sieve(DirectExchange):
    """A type of a plug-in."""

    type = "x-sieve"


@pytest.fixture
def sieve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EXCHANGE_TYPES, Sieve.type, Sieve)


def filtered(playbook: PagedPlaybook, kind: str) -> Client:
    client = playbook.client()
    client >> methods.QueueDeclare(queue="q", durable=True)
    client.hears(methods.QueueDeclareOk)
    declare(client, "x", kind, durable=True)
    bind(client, "q", "amq.fanout")
    bind(client, "q", "x", "fits", x_via="amq.fanout")
    return client


def arrived(client: Client) -> list[bytes]:
    for key in ("fits", "does not"):
        send(client, "amq.fanout", key, key.encode())
    return client.gets_all("q")


def test_a_filter_whose_type_is_gone_lets_nothing_through(
    tmp_path: Path, sieve: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    playbook = PagedPlaybook(tmp_path)
    assert arrived(filtered(playbook, Sieve.type)) == [b"fits"]
    monkeypatch.delitem(EXCHANGE_TYPES, Sieve.type)
    playbook.restart()
    assert "nothing passes from 'amq.fanout' to 'q'" in caplog.text
    client = playbook.client()
    assert arrived(client) == []
    client >> methods.ExchangeDelete(exchange="x")
    assert client.hears(ChannelClose).reply_code == 406
    client >> methods.ChannelCloseOk()
    monkeypatch.setitem(EXCHANGE_TYPES, Sieve.type, Sieve)
    playbook.restart()
    assert arrived(playbook.client()) == [b"fits"], "the plug-in is back"
    monkeypatch.delitem(EXCHANGE_TYPES, Sieve.type)
    playbook.restart()
    client = playbook.client()
    unbind(client, "q", "x", "fits", x_via="amq.fanout")
    client >> methods.ExchangeDelete(exchange="x")
    client << methods.ExchangeDeleteOk()
    assert arrived(client) == [b"fits", b"does not"], "nobody wants it filtered any more"
    playbook.restart()
    assert "x" not in playbook.broker.virtual_hosts["/"].exchanges
    playbook.close()


def test_a_condition_that_is_no_longer_understood_lets_nothing_through(
    tmp_path: Path, sieve: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    playbook = PagedPlaybook(tmp_path)
    assert arrived(filtered(playbook, Sieve.type)) == [b"fits"]

    class Stricter(Sieve):
        def attach(self, binding: Binding) -> None:
            raise ChannelFault(amqp.PRECONDITION_FAILED, "not like this")

    monkeypatch.setitem(EXCHANGE_TYPES, Sieve.type, Stricter)
    playbook.restart()
    assert "nothing passes from 'amq.fanout' to 'q'" in caplog.text
    client = playbook.client()
    assert arrived(client) == []
    unbind(client, "q", "x", "fits", x_via="amq.fanout")
    assert arrived(client) == [b"fits", b"does not"]
    playbook.close()


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


@pytest.mark.parametrize(("rate", "least", "most"), [(0, 200, 200), (0.5, 60, 140), (1, 0, 0)])
def test_a_lossy_exchange_is_a_link_of_a_chain(client: Client, rate: float, least: int, most: int) -> None:
    declare(client, "lossy", "x-lossy", arguments={"x-drop-rate": rate})
    for queue in ("q", "other"):
        client.declares(queue)
        bind(client, queue, "amq.topic", "stock.*")
    bind(client, "q", "lossy", x_via="amq.topic")
    for _ in range(200):
        send(client, "amq.topic", "stock.usd")
    assert least <= len(client.gets_all("q")) <= most
    assert len(client.gets_all("other")) == 200
    unbind(client, "q", "lossy", x_via="amq.topic")
    send(client, "amq.topic", "stock.usd")
    assert len(client.gets_all("q")) == 1


def test_a_lossy_link_routes_as_the_kind_it_names(client: Client) -> None:
    declare(client, "lossy", "x-lossy", arguments={"x-drop-rate": 0, "x-routing-type": "topic"})
    client.declares("q")
    bind(client, "q", "amq.topic", "stock.*")
    bind(client, "q", "lossy", "#.usd", x_via="amq.topic")
    send(client, "amq.topic", "stock.usd", b"yes")
    send(client, "amq.topic", "stock.eur", b"no")
    assert client.gets_all("q") == [b"yes"]
