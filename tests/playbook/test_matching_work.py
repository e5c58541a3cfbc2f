"""What finding the queues of a message takes counts in the work of its read: others have their turn."""

from __future__ import annotations

import itertools

import pytest
from playbook.dialogue import Client, Playbook, carrying, frame

from flintmq.broker.exchanges import selector_exchange
from flintmq.broker.matching.condition import Condition
from flintmq.broker.matching.selector_parser import parse_selector
from flintmq.wire import amqp
from flintmq.wire.methods import (
    BasicConsume,
    BasicPublish,
    ChannelOpen,
    ChannelOpenOk,
    ExchangeBind,
    ExchangeBindOk,
    ExchangeDeclare,
    ExchangeDeclareOk,
    Method,
    QueueBind,
    QueueBindOk,
    encode_method,
)

EXCHANGES = 100


@pytest.fixture
def client() -> Client:
    client = Playbook().client()
    client.declares("q")
    return client


def declare(client: Client, name: str, kind: str, **arguments: object) -> None:
    client >> ExchangeDeclare(exchange=name, type=kind, arguments=arguments)
    client << ExchangeDeclareOk()


def bind(client: Client, queue: str, exchange: str, key: str, **arguments: object) -> None:
    client >> QueueBind(queue=queue, exchange=exchange, routing_key=key, arguments=arguments)
    client << QueueBindOk()


def charged(client: Client, exchange: str, key: str, **properties: object) -> int:
    """What a publish adds to the work of its read."""
    with client.playbook.one_pass():
        client.publishes(key, b"m", exchange=exchange, **properties)
        return client.playbook.broker.pass_work.copies


def test_exchanges_behind_one_that_looks_at_headers(client: Client) -> None:
    declare(client, "h", "headers")
    for number in range(EXCHANGES):
        declare(client, f"x{number}", "fanout")
        client >> ExchangeBind(destination=f"x{number}", source="h")
        client << ExchangeBindOk()
    assert charged(client, "h", "") >= 16 * EXCHANGES


def test_exchanges_behind_one_that_does_not(client: Client) -> None:
    declare(client, "f", "fanout")
    for number in range(EXCHANGES):
        declare(client, f"x{number}", "fanout")
        client >> ExchangeBind(destination=f"x{number}", source="f")
        client << ExchangeBindOk()
    assert charged(client, "f", "a") >= 16 * EXCHANGES
    assert charged(client, "f", "a") == 0  # the route is known


@pytest.mark.parametrize("kind", ["topic", "x-lossy"])
def test_patterns_that_a_long_key_nearly_fits(client: Client, kind: str) -> None:
    declare(client, "t", kind, **({} if kind == "topic" else {"x-routing-type": "topic", "x-drop-rate": 0}))
    patterns = [".".join(words) + ".#.b" for words in itertools.product("a*", repeat=6)]
    for pattern in patterns:
        bind(client, "q", "t", pattern)
    assert charged(client, "t", ".".join("a" * 100)) >= 90 * len(patterns)


def test_destinations_that_draw_for_a_key(client: Client) -> None:
    declare(client, "c", "x-consistent-hash")
    for number in range(200):
        client.declares(f"q{number}")
        bind(client, f"q{number}", "c", "1")
    assert charged(client, "c", "k") >= 8 * 200


def test_conditions_that_no_index_helps_with(client: Client) -> None:
    declare(client, "s", "x-selector")
    for number in range(400):
        bind(client, "q", "s", "", **{"x-selector": f"a IS NULL OR b = {number}"})
    assert charged(client, "s", "") >= 400


def test_the_selector_of_a_binding_is_parsed_once(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []

    def parse(text: str) -> Condition:
        parsed.append(text)
        return parse_selector(text)

    monkeypatch.setattr(selector_exchange, "parse_selector", parse)
    client.declares("other")
    declare(client, "s", "x-selector")
    for selector in ("a = 1", "b = 2"):
        for queue in ("q", "other"):
            bind(client, queue, "s", "", **{"x-selector": selector})
    assert parsed == ["a = 1", "b = 2"]
    client >> carrying(BasicPublish(exchange="s"), b"m", headers={"b": 2})
    assert (client.gets_all("q"), client.gets_all("other")) == ([b"m"], [b"m"])


@pytest.mark.parametrize("kind", ["headers", "x-selector"])
def test_headers_that_are_looked_at(client: Client, kind: str) -> None:
    declare(client, "h", kind)
    few = {"region": "eu", "user": 17, "order": "o17", "trace": "t", "hop": 1}
    assert charged(client, "h", "", headers=few) < 64  # hundreds of such messages are taken in one read
    assert charged(client, "h", "", headers={f"{number}": 1 for number in range(1000)}) >= 4000


def test_little_is_not_counted(client: Client) -> None:
    declare(client, "t", "topic")
    bind(client, "q", "t", "a.*.c")
    assert charged(client, "t", "a.b.c") == 2  # the queue in a new route, and the copy in the queue
    assert charged(client, "t", "a.b.c") == 1


LONG_SELECTOR = " OR ".join(["a = 1"] * 250)
LONG_PATTERN = "a?" * 500
REPEATED = "(((a{9}){9}){9})"
METHODS = 10


def done_in_one_read(client: Client, *methods: Method) -> int:
    """How many octets of these methods one read takes; they are on channel 1 and those after it."""
    octets = b"".join(
        frame(amqp.FRAME_METHOD, 1 + number, encode_method(client.version, method))
        for number, method in enumerate(methods)
    )
    with client.playbook.one_pass():
        client.playbook.broker.pass_work.copies = 0
        used = client.session.connection.receive(bytearray(octets), len(octets))
    client.session.connection.paused = False
    client.heard().clear()
    return len(methods) * used // len(octets)


@pytest.fixture
def channels(client: Client) -> Client:
    for number in range(2, 2 + METHODS):
        client[number] >> ChannelOpen()
        client[number] << ChannelOpenOk()
    return client


def regexp_filter(pattern: str) -> dict[str, object]:
    return {"x-filter": {"type": "x-regexp", "arguments": {"x-pattern": pattern}}}


@pytest.mark.parametrize(
    "arguments",
    [
        {"x-selector": LONG_SELECTOR},
        {"x-filter": {"type": "x-selector", "arguments": {"x-selector": LONG_SELECTOR}}},
        regexp_filter(LONG_PATTERN),
        regexp_filter(REPEATED),
        regexp_filter(REPEATED * 2),  # too many places
        {"x-selector": LONG_SELECTOR + ")"},
    ],
)
def test_filters_of_consumers(channels: Client, arguments: dict[str, object]) -> None:
    consumes = [BasicConsume(queue="q", arguments=arguments)] * METHODS
    assert done_in_one_read(channels, *consumes) <= 2


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        ("x-selector", {"x-selector": LONG_SELECTOR}),
        ("x-regexp", {"x-pattern": LONG_PATTERN}),
        ("x-regexp", {"x-pattern": REPEATED}),
        ("x-selector", {"x-selector": LONG_SELECTOR + ")"}),
        ("x-regexp", {"x-pattern": LONG_PATTERN + ")"}),
    ],
)
def test_conditions_of_bindings(channels: Client, kind: str, arguments: dict[str, object]) -> None:
    declare(channels, "s", kind)
    binds = [QueueBind(queue="q", exchange="s", arguments=arguments)] * METHODS
    assert done_in_one_read(channels, *binds) == 1


def test_methods_that_are_refused(channels: Client) -> None:
    assert done_in_one_read(channels, *[BasicConsume(queue="none")] * METHODS) == 9


@pytest.mark.parametrize("service", ["get.filter", "queue.peek"])
def test_filters_of_services(client: Client, service: str) -> None:
    headers = {"queue": "q", "selector": LONG_SELECTOR}
    said = carrying(BasicPublish(exchange="amq.system", routing_key=service), headers=headers)
    octets = client.frames(1, said) * METHODS
    with client.playbook.one_pass():
        client.playbook.broker.pass_work.copies = 0
        assert METHODS * client.session.connection.receive(bytearray(octets), len(octets)) <= 2 * len(octets)
    client.session.connection.paused = False
