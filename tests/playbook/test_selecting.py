"""Selector exchanges and late bindings, from the client's side."""

from __future__ import annotations

from typing import Any

import pytest
from playbook.dialogue import Client, Playbook, carrying

from flintmq.wire.methods import (
    BasicConsume,
    BasicNack,
    BasicPublish,
    ChannelClose,
    ExchangeDeclare,
    ExchangeDeclareOk,
    QueueBind,
    QueueUnbind,
    QueueUnbindOk,
)


def declares(client: Client, name: str, kind: str) -> None:
    client >> ExchangeDeclare(exchange=name, type=kind)
    client << ExchangeDeclareOk()


def says(client: Client, body: bytes, key: str = "q", exchange: str = "", **properties: Any) -> None:
    client >> carrying(BasicPublish(exchange=exchange, routing_key=key), body, **properties)


@pytest.mark.parametrize(
    ("selector", "properties", "expected"),
    [
        ("JMSPriority > 4", {"priority": 5}, True),
        ("priority > 4", {"priority": 4}, False),
        ("priority IS NULL", {}, True),
        ("JMSDeliveryMode = 'PERSISTENT'", {"delivery_mode": 2}, True),
        ("JMSDeliveryMode = 'NON_PERSISTENT'", {}, True),
        ("delivery_mode = 1", {"delivery_mode": 1}, True),
        ("JMSTimestamp = 60000 AND timestamp = 60", {"timestamp": 60}, True),
        ("JMSCorrelationID = 'c' AND correlation_id = 'c'", {"correlation_id": "c"}, True),
        ("JMSMessageID = 'm' AND JMSType = 't'", {"message_id": "m", "type": "t"}, True),
        ("content_type LIKE 'image/%'", {"content_type": "image/png"}, True),
        ("app_id = 'a' AND reply_to = 'r'", {"app_id": "a", "reply_to": "r"}, True),
        ("user_id = 'guest'", {"user_id": "guest"}, True),
        ("exchange = 'x' AND routing_key = 'q'", {}, True),
        ("a = 1 AND priority = 2", {"headers": {"a": 1}, "priority": 2}, True),
        ("a = 1 AND priority = 2", {"headers": {"a": 1}, "priority": 3}, False),
        ("priority = 2", {"headers": {"priority": 2}}, False),
    ],
)
def test_a_selector_sees_properties(selector: str, properties: dict[str, Any], expected: bool) -> None:
    playbook = Playbook()
    client = playbook.client()
    declares(client, "x", "x-selector")
    client.declares("q")
    client.binds("q", "x", **{"x-selector": selector})
    says(client, b"1", exchange="x", **properties)
    assert client.gets_all("q") == ([b"1"] if expected else [])
    playbook.end()


ORDER = (
    b'{"paid": true, "who": {"name": "ann", "0": 7}, "lines": [{"n": 1.5}, [2]], "big": 1e400, "none": null}'
)


@pytest.mark.parametrize(
    ("selector", "body", "expected"),
    [
        ("body_size = 3", b"abc", True),
        ("body_size BETWEEN 1 AND 2", b"abc", False),
        ("body_size = 0", b"", True),
        ("body_size > 5 AND kind = 'a'", b"123456", True),
        ("headers.body_size = 3", b"abc", False),
        ("body.paid", ORDER, True),
        ("NOT body.paid", ORDER, False),
        ("body.who.name = 'ann' AND body.who.0 = 7", ORDER, True),
        ("body.who.name LIKE 'a%' AND body.lines.0.n IN (1.5)", ORDER, True),
        ("body.lines.1.0 * 2 = 4", ORDER, True),
        ("body.lines.2.0 IS NULL AND body.lines.99999999 IS NULL", ORDER, True),
        ("body.who IS NULL AND body.none IS NULL AND body.paid.x IS NULL", ORDER, True),
        ("body.n > 5", b'{"n": 100000000000000000000000000}', False),
        ("body.n = 1", b'{"n": 1', False),
        ("body.n = 1 OR kind = 'a'", b"\xff\xfe{", True),
        ("body.0 = 1", b"[" * 60_000, False),
        ("body.n = 1", b'{"n": 1}' + b" " * 65_536, False),
        ("body.n = 1", b'{"n": 1}' + b" " * 65_000, True),
    ],
)
def test_a_selector_sees_the_body(selector: str, body: bytes, expected: bool) -> None:
    playbook = Playbook()
    client, reader = playbook.client(), playbook.client()
    declares(client, "x", "x-selector")
    for queue in ("q", "late"):
        client.declares(queue)
    client.binds("q", "x", **{"x-selector": selector})
    reader.consumes("late", no_ack=True, arguments={"x-selector": selector})
    says(client, body, exchange="x", headers={"kind": "a"})
    says(client, body, "late", headers={"kind": "a"})
    assert client.gets_all("q") == reader.bodies() == ([body] if expected else [])
    playbook.end()


def test_prop_wild_and_regexp() -> None:
    playbook = Playbook()
    client = playbook.client()
    declares(client, "wild", "x-prop-wild")
    declares(client, "pattern", "x-regexp")
    for queue in ("images", "keys", "names"):
        client.declares(queue)
    client.binds("images", "wild", content_type="image/*", name="a?c")
    client.binds("keys", "pattern", r"^stock\.(nyse|lse)\.")
    client.binds("names", "pattern", **{"x-header": "name", "x-pattern": "b+$"})
    says(client, b"1", "", "wild", content_type="image/png", headers={"name": "abc"})
    says(client, b"2", "", "wild", content_type="text/plain", headers={"name": "abc"})
    says(client, b"3", "stock.lse.a", "pattern")
    says(client, b"4", "stock.tse.a", "pattern", headers={"name": "abb"})
    assert client.gets_all("images") == [b"1"]
    assert client.gets_all("keys") == [b"3"]
    assert client.gets_all("names") == [b"4"]
    playbook.end()


@pytest.mark.parametrize(
    ("kind", "key", "arguments", "reason"),
    [
        ("x-selector", "", {"x-selector": "a ="}, "selector, position 4: expected a value"),
        ("x-selector", "", {}, "expected a text as argument 'x-selector', found nothing"),
        ("x-selector", "", {"x-selector": 5}, "expected a text as argument 'x-selector', found a value"),
        ("x-prop-wild", "", {"x-match": "most"}, "x-match"),
        ("x-prop-wild", "", {"a": [1]}, "argument 'a' of a binding"),
        ("x-regexp", "(a)\\1", {}, "backreferences"),
        ("x-regexp", "", {"x-pattern": 1}, "expected a text as argument 'x-pattern'"),
        ("x-regexp", "a", {"x-header": 1}, "expected a text as argument 'x-header'"),
    ],
)
def test_a_wrong_binding_is_refused(kind: str, key: str, arguments: dict[str, Any], reason: str) -> None:
    playbook = Playbook()
    client = playbook.client()
    declares(client, "x", kind)
    client.declares("q")
    client >> QueueBind(queue="q", exchange="x", routing_key=key, arguments=arguments)
    close = client.hears(ChannelClose)
    assert (close.reply_code, close.class_id, close.method_id) == (406, 50, 20)
    assert reason in close.reply_text
    assert playbook.broker.virtual_hosts["/"].exchanges["x"].is_unused()


def test_an_unbound_selector_selects_no_more() -> None:
    playbook = Playbook()
    client = playbook.client()
    declares(client, "x", "x-selector")
    client.declares("q")
    for selector in ("a = 1", "a > 0"):
        client.binds("q", "x", **{"x-selector": selector})
    says(client, b"1", exchange="x", headers={"a": 1})
    for selector in ("a = 1", "a > 0"):
        client >> QueueUnbind(queue="q", exchange="x", arguments={"x-selector": selector})
        client << QueueUnbindOk()
        says(client, b"2", exchange="x", headers={"a": 1})
    assert client.gets_all("q") == [b"1", b"2"]


def selects(client: Client, selector: object, tag: str = "c", **settings: Any) -> None:
    client.consumes("q", tag, arguments={"x-selector": selector}, **settings)


def test_a_consumer_gets_what_it_selects_in_order() -> None:
    playbook = Playbook()
    client, reader = playbook.client(), playbook.client()
    client.declares("q")
    for number in range(10):
        says(client, b"%d" % number, headers={"n": number})
    selects(reader, "n >= 3 AND n <> 5", no_ack=True)
    assert reader.bodies() == [b"3", b"4", b"6", b"7", b"8", b"9"]
    says(client, b"10", headers={"n": 10})
    says(client, b"none")
    assert reader.bodies() == [b"10"]
    assert client.gets_all("q") == [b"0", b"1", b"2", b"5", b"none"]


def test_consumers_that_select_the_same_take_turns() -> None:
    playbook = Playbook()
    client = playbook.client()
    readers = [playbook.client() for _ in range(3)]
    client.declares("q")
    for reader, selector in zip(readers, ("kind = 'a'", "kind = 'a'", "kind = 'b'"), strict=True):
        selects(reader, selector, no_ack=True)
    with playbook.one_pass():
        for number in range(6):
            says(client, b"a%d" % number, headers={"kind": "a"})
            says(client, b"b%d" % number, headers={"kind": "b"})
    got = [reader.bodies() for reader in readers]
    assert sorted(got[0] + got[1]) == [b"a%d" % number for number in range(6)]
    assert len(got[0]) == len(got[1]) == 3
    assert got[0] == sorted(got[0])
    assert got[2] == [b"b%d" % number for number in range(6)]


def test_one_that_selects_beside_one_that_takes_all() -> None:
    playbook = Playbook()
    client, choosy, plain = (playbook.client() for _ in range(3))
    client.declares("q")
    selects(choosy, "urgent", no_ack=True)
    plain.consumes("q", no_ack=True)
    with playbook.one_pass():
        for number in range(4):
            says(client, b"%d" % number, headers={"urgent": number % 2 == 0})
    got = choosy.bodies()
    assert set(got) <= {b"0", b"2"}
    assert sorted(got + plain.bodies()) == [b"0", b"1", b"2", b"3"]


def test_what_is_given_back_is_selected_again() -> None:
    playbook = Playbook()
    client, reader = playbook.client(), playbook.client()
    client.declares("q")
    selects(reader, "n > 1")
    for number in range(4):
        says(client, b"%d" % number, headers={"n": number})
    assert reader.bodies() == [b"2", b"3"]
    reader >> BasicNack(delivery_tag=1, requeue=True)
    assert reader.bodies() == [b"2"]


def test_headers_that_cannot_be_read_harm_no_consumer() -> None:
    playbook = Playbook()
    client, reader = playbook.client(), playbook.client()
    client.declares("q")
    selects(reader, "a IS NULL AND priority = 7", no_ack=True)
    flags, table = b"\x28\x00", b"\x00\x00\x00\x03\x01a?"  # headers and priority; ? is no type
    header = b"\x00\x3c\x00\x00" + (1).to_bytes(8, "big") + flags + table + b"\x07"
    method = b"\x00\x3c\x00\x28\x00\x00\x00\x01q\x00"
    for kind, payload in ((1, method), (2, header), (3, b"1")):
        frame = bytes((kind,)) + b"\x00\x01" + len(payload).to_bytes(4, "big") + payload + b"\xce"
        client >> frame
    assert playbook.broker.virtual_hosts["/"].queues["q"].message_count() == 0, "it was delivered"


@pytest.mark.parametrize(
    ("selector", "reason"), [("a =", "position 4: expected a value"), (5, "expected a text as argument")]
)
def test_a_wrong_selector_is_refused(selector: object, reason: str) -> None:
    playbook = Playbook()
    client = playbook.client()
    client.declares("q")
    client >> BasicConsume(queue="q", arguments={"x-selector": selector})  # type: ignore[dict-item]
    close = client.hears(ChannelClose)
    assert (close.reply_code, close.class_id, close.method_id) == (406, 60, 20)
    assert reason in close.reply_text
    assert not playbook.broker.virtual_hosts["/"].queues["q"].consumers
