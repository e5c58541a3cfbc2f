"""Exchanges: declaring, deleting, binding to each other, alternates, and routes that must not be stale."""

from __future__ import annotations

from typing import Any

import pytest
from playbook.dialogue import Client, Playbook, carrying

from flintmq.broker.exchanges.exchange_types import EXCHANGE_TYPES
from flintmq.broker.exchanges.router import ROUTES_MAX
from flintmq.config import parse
from flintmq.wire.methods import (
    BasicPublish,
    ChannelClose,
    ChannelOpen,
    ChannelOpenOk,
    ExchangeBind,
    ExchangeBindOk,
    ExchangeDeclare,
    ExchangeDeclareOk,
    ExchangeDelete,
    ExchangeDeleteOk,
    ExchangeUnbind,
    ExchangeUnbindOk,
    QueueDelete,
    QueueDeleteOk,
    QueueUnbind,
    QueueUnbindOk,
)

KNOWN_TYPES = ", ".join(sorted(EXCHANGE_TYPES))


def declare(client: Client, name: str, kind: str = "fanout", **settings: Any) -> None:
    client >> ExchangeDeclare(exchange=name, type=kind, **settings)
    client << ExchangeDeclareOk()


def bind(client: Client, source: str, destination: str, key: str = "", **arguments: Any) -> None:
    client >> ExchangeBind(source=source, destination=destination, routing_key=key, arguments=arguments)
    client << ExchangeBindOk()


def closed(client: Client, code: int, text: str, class_id: int, method_id: int) -> None:
    client << ChannelClose(reply_code=code, reply_text=text, class_id=class_id, method_id=method_id)


def test_declaring_twice_is_declaring_once(client: Client) -> None:
    arguments = {"alternate-exchange": "amq.fanout", "x-note": "n"}
    for _ in range(2):
        declare(client, "x", "topic", durable=True, auto_delete=True, internal=True, arguments=arguments)
    client >> ExchangeDeclare(exchange="x", passive=True)
    client << ExchangeDeclareOk()


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (
            {"type": "direct"},
            "'type' for exchange 'x' in vhost '/': received 'direct' but current is 'topic'",
        ),
        (
            {"durable": False},
            "'durable' for exchange 'x' in vhost '/': received 'false' but current is 'true'",
        ),
        (
            {"auto_delete": True},
            "'auto_delete' for exchange 'x' in vhost '/': received 'true' but current is",
        ),
        ({"internal": True}, "'internal' for exchange 'x' in vhost '/': received 'true' but current is"),
        (
            {"arguments": {"alternate-exchange": "a"}},
            "'alternate-exchange' for exchange 'x' in vhost '/': received 'a' but current is 'none'",
        ),
    ],
)
def test_declaring_it_otherwise_is_refused(client: Client, asked: dict[str, Any], text: str) -> None:
    declare(client, "x", "topic", durable=True)
    client >> ExchangeDeclare(**{"exchange": "x", "type": "topic", "durable": True, **asked})
    close = client.hears(ChannelClose)
    assert (close.reply_code, close.class_id, close.method_id) == (406, 40, 10)
    assert close.reply_text.startswith(f"PRECONDITION_FAILED - inequivalent arg {text}")


@pytest.mark.parametrize(
    ("method", "code", "text"),
    [
        (ExchangeDeclare(exchange="no", passive=True), 404, "NOT_FOUND - no exchange 'no' in vhost '/'"),
        (
            ExchangeDeclare(exchange="amq.mine", type="direct"),
            403,
            "ACCESS_REFUSED - exchange name 'amq.mine' contains reserved prefix 'amq.*'",
        ),
        (
            ExchangeDeclare(exchange="x", type="odd"),
            406,
            f"PRECONDITION_FAILED - unknown exchange type 'odd': known are {KNOWN_TYPES}"[:255],
        ),
        (
            ExchangeDeclare(exchange="", type="direct"),
            403,
            "ACCESS_REFUSED - operation not permitted on the default exchange",
        ),
        (
            ExchangeDeclare(exchange="x", type="direct", arguments={"alternate-exchange": 1}),
            406,
            "PRECONDITION_FAILED - invalid arg 'alternate-exchange': expected text",
        ),
        (
            ExchangeDelete(exchange="amq.direct"),
            403,
            "ACCESS_REFUSED - exchange name 'amq.direct' contains reserved prefix 'amq.*'",
        ),
        (
            ExchangeDelete(exchange=""),
            403,
            "ACCESS_REFUSED - operation not permitted on the default exchange",
        ),
        (
            ExchangeBind(source="", destination="amq.fanout"),
            403,
            "ACCESS_REFUSED - operation not permitted on the default exchange",
        ),
        (
            ExchangeBind(source="no", destination="amq.fanout"),
            404,
            "NOT_FOUND - no exchange 'no' in vhost '/'",
        ),
        (
            ExchangeUnbind(source="", destination="amq.fanout"),
            403,
            "ACCESS_REFUSED - operation not permitted on the default exchange",
        ),
    ],
)
def test_what_is_refused(client: Client, method: Any, code: int, text: str) -> None:
    client >> method
    closed(client, code, text, method.CLASS_ID, method.METHOD_ID)


def test_the_predeclared_are_there(client: Client) -> None:
    for name in ("amq.direct", "amq.fanout", "amq.topic", "amq.headers", "amq.match"):
        client >> ExchangeDeclare(exchange=name, passive=True)
        client << ExchangeDeclareOk()
    client.publishes("k", b"x", exchange="amq.rabbitmq.trace")
    text = "ACCESS_REFUSED - cannot publish to internal exchange 'amq.rabbitmq.trace' in vhost '/'"
    closed(client, 403, text, 60, 40)


def test_delete_is_content_with_what_is_not_there(client: Client) -> None:
    client >> ExchangeDelete(exchange="no")
    client << ExchangeDeleteOk()


def test_delete_if_unused(client: Client) -> None:
    declare(client, "x")
    client.declares("q")
    client.binds("q", "x")
    client[2] >> ChannelOpen()
    client.hears(ChannelOpenOk, 2)
    client[2] >> ExchangeDelete(exchange="x", if_unused=True)
    client[2] << ChannelClose(
        reply_code=406,
        reply_text="PRECONDITION_FAILED - exchange 'x' in vhost '/' in use",
        class_id=40,
        method_id=20,
    )
    client >> QueueUnbind(queue="q", exchange="x")
    client << QueueUnbindOk()
    client >> ExchangeDelete(exchange="x", if_unused=True)
    client << ExchangeDeleteOk()
    client.publishes("", b"x", exchange="x")
    closed(client, 404, "NOT_FOUND - no exchange 'x' in vhost '/'", 60, 40)


def test_nowait_is_silent(client: Client) -> None:
    client.declares("q")
    client >> ExchangeDeclare(exchange="x", type="fanout", no_wait=True)
    client >> ExchangeDeclare(exchange="x", passive=True, no_wait=True)
    client >> ExchangeBind(source="amq.fanout", destination="x", no_wait=True)
    client >> ExchangeUnbind(source="amq.fanout", destination="x", no_wait=True)
    client >> ExchangeDelete(exchange="x", no_wait=True)
    client.hears_nothing()


def test_an_auto_delete_exchange_goes_with_its_last_binding(client: Client) -> None:
    declare(client, "x", auto_delete=True)
    declare(client, "up", auto_delete=True)
    bind(client, "up", "x")
    client.declares("q")
    client.binds("q", "x", "1")
    client.binds("q", "x", "2")
    client >> QueueUnbind(queue="q", exchange="x", routing_key="1")
    client << QueueUnbindOk()
    client >> ExchangeDeclare(exchange="x", passive=True)
    client << ExchangeDeclareOk()
    client >> QueueDelete(queue="q")
    client << QueueDeleteOk(message_count=0)
    # and "up", whose only binding led to it
    assert set(client.session.virtual_host.exchanges) & {"x", "up"} == set()  # type: ignore[union-attr]


def test_bindings_of_exchanges_may_loop(client: Client) -> None:
    for name in ("a", "b", "c"):
        declare(client, name)
    for source, destination in (("a", "b"), ("b", "c"), ("c", "a"), ("b", "b")):
        bind(client, source, destination)
    client.declares("q")
    client.binds("q", "a")
    client.binds("q", "c")
    client.publishes("k", b"once", exchange="b")
    assert client.gets_all("q") == [b"once"]
    client >> ExchangeUnbind(source="b", destination="c")
    client << ExchangeUnbindOk()
    client.publishes("k", b"nowhere", exchange="b")
    assert client.gets_all("q") == []


def test_the_key_is_matched_at_each_exchange(client: Client) -> None:
    declare(client, "t", "topic")
    declare(client, "d", "direct")
    bind(client, "t", "d", "a.*")
    client.declares("q")
    client.binds("q", "d", "a.b")
    client.publishes("a.b", b"both", exchange="t")
    client.publishes("a.c", b"first alone", exchange="t")
    client.publishes("b.b", b"neither", exchange="t")
    assert client.gets_all("q") == [b"both"]


def test_headers_decide_even_behind_another_exchange(client: Client) -> None:
    declare(client, "h", "headers")
    bind(client, "amq.fanout", "h")
    client.declares("q")
    client.binds("q", "h", **{"x-match": "all", "colour": "red"})
    client.publishes("k", b"red", exchange="amq.fanout", headers={"colour": "red"})
    client.publishes("k", b"blue", exchange="amq.fanout", headers={"colour": "blue"})
    client.publishes("k", b"none", exchange="amq.fanout")
    client.publishes("k", b"again", exchange="amq.fanout", headers={"colour": "red", "size": 1})
    assert client.gets_all("q") == [b"red", b"again"]


# -- alternate exchanges ---------------------------------------------------------------------------


def test_what_finds_no_binding_goes_to_the_alternate(client: Client) -> None:
    declare(client, "x", "direct", arguments={"alternate-exchange": "amq.fanout"})
    client.declares("here")
    client.binds("here", "x", "k")
    client.declares("else")
    client.binds("else", "amq.fanout")
    client.publishes("k", b"1", exchange="x")
    client.publishes("l", b"2", exchange="x")
    assert client.gets_all("here") == [b"1"]
    assert client.gets_all("else") == [b"2"]


def test_alternates_may_loop_and_lead_nowhere(client: Client) -> None:
    declare(client, "a", "direct", arguments={"alternate-exchange": "b"})
    declare(client, "b", "direct", arguments={"alternate-exchange": "a"})
    client >> carrying(BasicPublish(exchange="a", routing_key="k", mandatory=True), b"x")
    assert client.next(1).method.reply_code == 312  # type: ignore[attr-defined]


def test_an_alternate_that_comes_later_is_found(client: Client) -> None:
    """It brings a whole chain with it, though nothing was bound."""
    declare(client, "last", "fanout")
    client.declares("q")
    client.binds("q", "last")
    declare(client, "a", "direct", arguments={"alternate-exchange": "b"})
    client.publishes("k", b"lost", exchange="a")
    declare(client, "b", "direct", arguments={"alternate-exchange": "last"})
    client.publishes("k", b"found", exchange="a")
    assert client.gets_all("q") == [b"found"]


def test_an_alternate_asks_for_permissions() -> None:
    playbook = Playbook(
        parse('[users.u]\npassword = "p"\npermissions."/" = { configure = "x", write = "ok", read = "r" }')
    )
    client = playbook.client(user="u", password="p")
    client >> ExchangeDeclare(exchange="xr", type="fanout", arguments={"alternate-exchange": "ok"})
    client << ExchangeDeclareOk()
    client >> ExchangeDeclare(exchange="xr2", type="fanout", arguments={"alternate-exchange": "no"})
    text = "ACCESS_REFUSED - user 'u' may not write to exchange 'no' in virtual host '/'"
    closed(client, 403, text, 40, 10)
    playbook.end()


# -- routes are kept, and must be forgotten in time ------------------------------------------------


def test_routes_follow_bindings(client: Client) -> None:
    for name in ("q1", "q2"):
        client.declares(name)
    client.publishes("k", b"0", exchange="amq.direct")
    client.binds("q1", "amq.direct", "k")
    client.publishes("k", b"1", exchange="amq.direct")
    client.binds("q2", "amq.direct", "k")
    client.publishes("k", b"2", exchange="amq.direct")
    client >> QueueUnbind(queue="q1", exchange="amq.direct", routing_key="k")
    client << QueueUnbindOk()
    client.publishes("k", b"3", exchange="amq.direct")
    assert client.gets_all("q1") == [b"1", b"2"]
    assert client.gets_all("q2") == [b"2", b"3"]
    client >> QueueDelete(queue="q2")
    client << QueueDeleteOk()
    client.declares("q2")
    client.publishes("k", b"4", exchange="amq.direct")
    assert client.gets_all("q2") == []


def test_the_nameless_exchange_follows_queues(client: Client) -> None:
    client.publishes("q", b"0")
    client.declares("q")
    client.publishes("q", b"1")
    client >> QueueDelete(queue="q")
    client << QueueDeleteOk(message_count=1)
    client.publishes("q", b"2")
    client.declares("q")
    client.publishes("q", b"3")
    assert client.gets_all("q") == [b"3"]


def test_a_route_survives_no_flood_of_others(playbook: Playbook) -> None:
    """So many routes that the kept ones are dropped, while a channel still remembers its last."""
    client, other = playbook.client(), playbook.client()
    client.declares("q")
    client.publishes("q", b"1")
    host = playbook.broker.virtual_hosts["/"]
    for index in range(ROUTES_MAX):
        key = str(index).encode()
        host.router.route_of(b"\x00" + bytes((len(key),)) + key)
    other >> QueueDelete(queue="q")
    other << QueueDeleteOk(message_count=1)
    other.declares("q")
    client.publishes("q", b"2")
    assert other.gets_all("q") == [b"2"]
    assert len(host.router.routes) <= ROUTES_MAX


def test_a_deleted_exchange_is_gone_for_those_who_used_it(playbook: Playbook) -> None:
    client, other = playbook.client(), playbook.client()
    declare(client, "x")
    client.declares("q")
    client.binds("q", "x")
    client.publishes("", b"1", exchange="x")
    other >> ExchangeDelete(exchange="x")
    other << ExchangeDeleteOk()
    client.publishes("", b"2", exchange="x")
    closed(client, 404, "NOT_FOUND - no exchange 'x' in vhost '/'", 60, 40)
    assert other.gets_all("q") == [b"1"]


def test_writing_to_an_exchange_needs_permission() -> None:
    playbook = Playbook(parse('[users.u]\npassword = "p"\npermissions."/" = { write = "^amq.topic$" }'))
    client = playbook.client(user="u", password="p")
    client.publishes("k", b"1", exchange="amq.topic")
    client.publishes("k", b"1")
    text = "ACCESS_REFUSED - user 'u' may not write to exchange 'amq.default' in virtual host '/'"
    closed(client, 403, text, 60, 40)
    playbook.end()
