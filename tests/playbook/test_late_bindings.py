"""Filters of consumers and of basic.get by exchange type and arguments, from the client's side."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playbook.dialogue import Carried, Client, Playbook, carrying
from playbook.paged import PagedPlaybook

from flintmq.wire.methods import (
    BasicAck,
    BasicConsume,
    BasicGet,
    BasicGetEmpty,
    BasicGetOk,
    BasicNack,
    BasicPublish,
    ChannelClose,
)
from flintmq.wire.tables import FieldTable

PDF = {"x-match": "all", "kind": "pdf"}


def says(client: Client, body: bytes, key: str = "q", **properties: Any) -> None:
    client >> carrying(BasicPublish(routing_key=key), body, **properties)


def ask(client: Client, name: str, **arguments: Any) -> FieldTable:
    asked = BasicPublish(exchange="amq.system", routing_key=name)
    client >> carrying(asked, b"", headers=arguments, reply_to="amq.rabbitmq.reply-to")
    heard = client.next(1)
    assert isinstance(heard, Carried), heard
    assert heard.properties.headers is not None
    return heard.properties.headers


def asker(playbook: Playbook) -> Client:
    client = playbook.client()
    client.consumes("amq.rabbitmq.reply-to", "replies", no_ack=True)
    return client


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"type": "headers", "arguments": PDF}, [b"2", b"3"]),
        ({"type": "headers", "arguments": {"x-match": "any", "kind": "text", "size": 9}}, [b"1", b"3"]),
        ({"type": "headers", "arguments": {"size": None}}, [b"3"]),
        ({"type": "x-prop-wild", "arguments": {"kind": "?d*", "content_type": "image/*"}}, [b"3"]),
        ({"type": "x-regexp", "arguments": {"x-header": "kind", "x-pattern": "^p"}}, [b"2", b"3"]),
        ({"type": "x-regexp", "routing-key": "q$"}, [b"1", b"2", b"3"]),
        ({"type": "x-selector", "arguments": {"x-selector": "size > 1"}}, [b"3"]),
        ({"type": "direct", "routing-key": "q"}, [b"1", b"2", b"3"]),
        ({"type": "direct", "routing-key": "Q"}, []),
        ({"type": "topic", "routing-key": "#"}, [b"1", b"2", b"3"]),
        ({"type": "topic", "routing-key": "q.*"}, []),
        ([{"type": "headers", "arguments": PDF}, {"type": "headers", "arguments": {"size": 9}}], [b"3"]),
    ],
)
def test_a_consumer_gets_what_a_binding_like_its_filter_would(filters: Any, expected: list[bytes]) -> None:
    playbook = Playbook()
    client, reader = playbook.client(), playbook.client()
    client.declares("q")
    reader.consumes("q", no_ack=True, arguments={"x-filter": filters})
    says(client, b"1", headers={"kind": "text"})
    says(client, b"2", headers={"kind": "pdf"})
    says(client, b"3", headers={"kind": "pdf", "size": 9}, content_type="image/png")
    assert reader.bodies() == expected
    rest = [body for body in (b"1", b"2", b"3") if body not in expected]
    assert client.gets_all("q") == rest


def test_topics_of_what_came_by_an_exchange() -> None:
    playbook = Playbook()
    client, reader = playbook.client(), playbook.client()
    client.declares("q")
    client.binds("q", "amq.topic", "#")
    reader.consumes("q", no_ack=True, arguments={"x-filter": {"type": "topic", "routing-key": "*.usd.#"}})
    client.publishes("stock.usd", b"1", exchange="amq.topic")
    client.publishes("stock.eur.sap", b"2", exchange="amq.topic")
    client.publishes("stock.usd.ibm.n", b"3", exchange="amq.topic")
    assert reader.bodies() == [b"1", b"3"]


def test_selectors_and_filters_hold_together() -> None:
    playbook = Playbook()
    client, reader = playbook.client(), playbook.client()
    client.declares("q")
    both = {"x-filter": {"type": "headers", "arguments": PDF}, "x-filter-jms-selector": "pages > 5"}
    reader.consumes("q", no_ack=True, arguments=both)
    says(client, b"1", headers={"kind": "pdf", "pages": 3})
    says(client, b"2", headers={"kind": "pdf", "pages": 7})
    says(client, b"3", headers={"kind": "text", "pages": 7})
    assert reader.bodies() == [b"2"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"x-filter-jms-selector": "a ="}, "selector, position 4"),
        ({"x-filter-xpath": "//a"}, 'unknown filter "x-filter-xpath"'),
        ({"x-filters": {}}, 'unknown filter "x-filters"'),
        ({"x-filter-no-consume": True}, "queue.peek"),
        ({"x-match": "all", "kind": "pdf"}, "argument 'x-match' is one of bindings"),
        ({"x-filter": "kind = 'pdf'"}, "expected a table with 'type'"),
        ({"x-filter": {}}, "expected a text as 'type'"),
        ({"x-filter": {"type": "x-random"}}, 'no filter of type "x-random"'),
        ({"x-filter": {"type": "topic", "key": "#"}}, 'unknown field "key"'),
        ({"x-filter": {"type": "topic", "routing-key": 5}}, "expected a text as 'routing-key'"),
        ({"x-filter": {"type": "headers", "arguments": "all"}}, "expected a table as 'arguments'"),
        ({"x-filter": {"type": "headers", "arguments": {"x-match": "most"}}}, "x-match"),
        ({"x-filter": {"type": "x-regexp", "routing-key": "(a)\\1"}}, "backreferences"),
        ({"x-filter": {"type": "x-selector"}}, "expected a text as argument 'x-selector'"),
        ({"x-filter": []}, "expected 1 to 8 filters"),
        ({"x-filter": [{"type": "topic", "routing-key": "#"}] * 9}, "expected 1 to 8 filters"),
    ],
)
def test_a_filter_that_is_not_understood_is_refused(arguments: Any, reason: str) -> None:
    playbook = Playbook()
    client = playbook.client()
    client.declares("q")
    client >> BasicConsume(queue="q", arguments=arguments)
    close = client.hears(ChannelClose)
    assert (close.reply_code, close.class_id, close.method_id) == (406, 60, 20)
    assert reason in close.reply_text
    assert not playbook.broker.virtual_hosts["/"].queues["q"].consumers


@pytest.mark.parametrize(
    "arguments",
    [
        {"x-cancel-on-ha-failover": True, "x-stream-offset": "first", "unheard": {"of": 1}},
        {"x-filter-jms-selector": ""},
        {"x-filter-no-consume": False, "x-filter-auto-close": False},
        {"x-qpid-no-local": True, "x-qpid-replay-period": 0},
    ],
)
def test_what_clients_send_beside_filters_keeps_nobody_away(arguments: Any) -> None:
    playbook = Playbook()
    client, reader = playbook.client(), playbook.client()
    client.declares("q")
    reader.consumes("q", no_ack=True, arguments=arguments)
    says(client, b"1")
    assert reader.bodies() == [b"1"]


def test_basic_get_takes_what_its_filter_is_for() -> None:
    playbook = Playbook()
    client, other = asker(playbook), playbook.client()
    client.declares("q")
    for number in range(6):
        says(client, b"%d" % number, headers={"n": number, "kind": "pdf" if number % 2 else "text"})
    assert ask(client, "get.filter", queue="q", filter={"type": "headers", "arguments": PDF}) == {}
    assert client.gets_all("q") == [b"1", b"3", b"5"]
    assert ask(client, "get.filter", queue="q", selector="n >= 4") == {}
    assert client.gets_all("q") == [b"4"]
    assert other.gets("q") == b"0", "a filter is for the channel that has asked for it"
    assert ask(client, "get.filter", queue="q") == {}
    assert client.gets_all("q") == [b"2"]


def test_a_filter_of_basic_get_that_is_wrong_changes_nothing() -> None:
    playbook = Playbook()
    client = asker(playbook)
    client.declares("q")
    assert ask(client, "get.filter", queue="q", selector="n = 1") == {}
    for wrong in ({"selector": "n ="}, {"filter": {"type": "x-random"}}):
        assert ask(client, "get.filter", queue="q", **wrong)["error-code"] == 406
    says(client, b"0", headers={"n": 0})
    client >> BasicGet(queue="q")
    client << BasicGetEmpty()
    for number in range(16):
        client.declares(f"q{number}")
        told = ask(client, "get.filter", queue=f"q{number}", selector="n = 1")
    assert told["error-code"] == 506


@pytest.fixture
def paged(tmp_path: Path) -> Iterator[PagedPlaybook]:
    playbook = PagedPlaybook(tmp_path)
    yield playbook
    playbook.close()


@pytest.mark.parametrize("arguments", [{}, {"x-max-priority": 3}])
def test_basic_get_takes_from_everywhere_in_a_queue(paged: PagedPlaybook, arguments: Any) -> None:
    client = asker(paged)
    client.declares("q", durable=True, arguments=arguments)
    for number in range(3000):
        says(client, b"%d" % number, headers={"n": number}, delivery_mode=2)
    assert ask(client, "get.filter", queue="q", selector="n IN (2, 2000, 2998)") == {}
    tags = []
    for expected in (b"2", b"2000", b"2998"):
        client >> BasicGet(queue="q")
        found = client.next(1)
        assert isinstance(found, Carried)
        assert isinstance(found.method, BasicGetOk)
        assert (found.body, found.method.redelivered) == (expected, False)
        tags.append(found.method.delivery_tag)
    client >> BasicGet(queue="q")
    client << BasicGetEmpty()
    assert paged.queue("q").message_count() == 2997
    client >> BasicAck(delivery_tag=tags[0])
    for tag in tags[1:]:
        client >> BasicNack(delivery_tag=tag, requeue=True)
    client >> BasicGet(queue="q", no_ack=True)
    found = client.next(1)
    assert isinstance(found, Carried)
    assert isinstance(found.method, BasicGetOk)
    assert (found.body, found.method.redelivered) == (b"2000", True)
    other = paged.client()
    expected_rest = [b"%d" % number for number in range(3000) if number not in (2, 2000)]
    assert other.gets_all("q") == expected_rest, "what comes back lies in its old place"


def test_basic_get_with_a_filter_leaves_what_has_expired() -> None:
    playbook = Playbook()
    client = asker(playbook)
    client.declares("q")
    says(client, b"head", headers={"n": 0})
    says(client, b"gone", headers={"n": 1}, expiration="0")
    says(client, b"there", headers={"n": 1})
    assert ask(client, "get.filter", queue="q", selector="n = 1") == {}
    assert client.gets_all("q") == [b"there"]
