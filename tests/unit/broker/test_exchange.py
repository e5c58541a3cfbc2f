"""Exchanges: binding, unbinding and routing of each kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from flintmq.broker.exchanges.exchange import (
    ORDERED_MIN,
    STANDARD_TYPES,
    DirectExchange,
    Exchange,
    FanoutExchange,
    HeadersExchange,
    TopicExchange,
)
from flintmq.errors import ChannelFault


class Queue:
    def __init__(self, name: str) -> None:
        self.name = name


def routed(exchange: Exchange, key: str = "", headers: dict[str, Any] | None = None) -> list[str]:
    found: dict[Any, Any] = {}
    read: Callable[[], dict[str, Any]] | None = None if headers is None else lambda: headers
    exchange.route(key, read, found)
    return [destination.name for destination in found]


def unreadable() -> dict[str, Any]:
    raise AssertionError("headers were read")


@pytest.fixture(params=sorted(STANDARD_TYPES))
def exchange(request: pytest.FixtureRequest) -> Exchange:
    return STANDARD_TYPES[request.param]("x")


def test_kinds() -> None:
    assert {
        "direct": DirectExchange,
        "fanout": FanoutExchange,
        "topic": TopicExchange,
        "headers": HeadersExchange,
    } == STANDARD_TYPES
    assert [name for name, kind in STANDARD_TYPES.items() if kind.needs_headers] == ["headers"]
    for name, kind in STANDARD_TYPES.items():
        assert kind("x").type == name


def test_properties() -> None:
    exchange = DirectExchange("orders", durable=True, auto_delete=True, internal=True, arguments={"a": 1})
    assert (exchange.name, exchange.type) == ("orders", "direct")
    assert (exchange.durable, exchange.auto_delete, exchange.internal) == (True, True, True)
    assert exchange.arguments == {"a": 1}
    plain = FanoutExchange("plain")
    assert (plain.durable, plain.auto_delete, plain.internal, plain.arguments) == (False, False, False, {})


def test_binding_twice_is_one_binding(exchange: Exchange) -> None:
    queue = Queue("q")
    assert exchange.is_unused()
    assert exchange.bind(queue, "k", {"a": 1})
    assert not exchange.bind(queue, "k", {"a": 1})
    assert len(exchange.bindings) == 1
    assert not exchange.is_unused()
    assert exchange.unbind(queue, "k", {"a": 1})
    assert not exchange.unbind(queue, "k", {"a": 1})
    assert exchange.is_unused()
    assert routed(exchange, "k", {"a": 1}) == []


def test_key_arguments_and_destination_make_the_identity(exchange: Exchange) -> None:
    queue, same_name = Queue("q"), Queue("q")
    for destination in (queue, same_name):
        for key in ("k", "l"):
            for arguments in ({}, {"a": 1}, {"a": True}, {"a": 1.0}, {"a": "1"}):
                assert exchange.bind(destination, key, arguments)
    assert len(exchange.bindings) == 20
    binding = exchange.find_binding(queue, "l", {"a": True})
    assert binding is not None
    assert binding.destination is queue
    assert binding.arguments == {"a": True}
    assert exchange.find_binding(queue, "m", {}) is None


def test_a_destination_is_found_once_and_stays_until_its_last_binding(exchange: Exchange) -> None:
    queue = Queue("q")
    exchange.bind(queue, "k", {"x-a": 1})
    exchange.bind(queue, "k", {"x-a": 2})
    assert routed(exchange, "k", {}) == ["q"]
    exchange.unbind(queue, "k", {"x-a": 1})
    assert routed(exchange, "k", {}) == ["q"]
    exchange.unbind(queue, "k", {"x-a": 2})
    assert routed(exchange, "k", {}) == []


def test_route_adds_to_what_was_found_before(exchange: Exchange) -> None:
    before, queue = Queue("before"), Queue("q")
    exchange.bind(queue, "k", {})
    found: dict[Any, Any] = {before: None}
    exchange.route("k", None, found)
    assert list(found) == [before, queue]


def keys_to(exchange: Exchange, destination: Queue) -> list[str]:
    return [each.routing_key for each in exchange.bindings_after(0) if each.destination is destination]


def unbind_all(exchange: Exchange, destination: Queue) -> int:
    """As a destination that is deleted is taken apart; how many bindings there were."""
    count, chain = 0, exchange.unhook(destination)
    while chain is not None:
        removed, chain = exchange.unbind_chain(chain, 2)
        count += len(removed)
    return count


def test_bindings_keep_the_order_of_binding(exchange: Exchange) -> None:
    queue, other = Queue("q"), Queue("r")
    for key in "dacb":
        exchange.bind(queue, key, {})
        exchange.bind(other, key, {})
    exchange.unbind(queue, "a", {})
    exchange.bind(queue, "a", {})
    assert keys_to(exchange, queue) == ["d", "c", "b", "a"]
    assert keys_to(exchange, other) == ["d", "a", "c", "b"]
    assert not exchange.leads_to(Queue("none"))


@pytest.mark.parametrize("more", [0, ORDERED_MIN])
def test_bindings_go_on_from_a_place(exchange: Exchange, more: int) -> None:
    queue, other = Queue("q"), Queue("r")
    for number in range(more):
        exchange.bind(other, f"k{number}", {"x": number})
    for key in "abcdefgh":
        exchange.bind(queue, key, {"x": key})
    exchange.unbind(queue, "c", {"x": "c"})
    exchange.bind(queue, "c", {"x": "c"})
    numbers = {each.routing_key: each.number for each in exchange.bindings_after(more)}
    assert list(numbers) == list("abdefghc")
    assert [each.routing_key for each in exchange.bindings_after(numbers["e"])] == list("fghc")
    exchange.unbind(queue, "e", {"x": "e"})
    assert [each.routing_key for each in exchange.bindings_after(numbers["e"])] == list("fghc")
    assert len(exchange.dismantle(10_000)) == more + 7
    assert list(exchange.bindings_after(0)) == []
    assert exchange.is_unused()


@pytest.mark.parametrize("order", ["abc", "acb", "bac", "bca", "cab", "cba"])
def test_unbinding_in_any_order(exchange: Exchange, order: str) -> None:
    queue = Queue("q")
    for key in "abc":
        exchange.bind(queue, key, {})
    left = list("abc")
    for key in order:
        assert exchange.unbind(queue, key, {})
        left.remove(key)
        assert keys_to(exchange, queue) == left
    assert exchange.is_unused()
    assert unbind_all(exchange, queue) == 0


def test_a_deleted_destination_takes_its_bindings_along(exchange: Exchange) -> None:
    queue, other = Queue("q"), Queue("r")
    for key in ("k", "l", "m"):
        exchange.bind(queue, key, {})
        exchange.bind(other, key, {})
    assert unbind_all(exchange, queue) == 3
    assert unbind_all(exchange, queue) == 0
    assert len(exchange.bindings) == 3
    assert routed(exchange, "k", {}) == ["r"]
    assert unbind_all(exchange, other) == 3
    assert exchange.is_unused()
    assert exchange.bind(queue, "k", {})
    assert routed(exchange, "k", {}) == ["q"]


def test_exchanges_are_destinations() -> None:
    source, target = FanoutExchange("source"), DirectExchange("target")
    source.bind(target, "", {})
    assert routed(source) == ["target"]


def test_direct() -> None:
    exchange = DirectExchange("x")
    for name, key in (("q1", "a"), ("q2", "a"), ("q3", "b"), ("q4", ""), ("q5", "*")):
        exchange.bind(Queue(name), key, {})
    assert routed(exchange, "a") == ["q1", "q2"]
    assert routed(exchange, "b") == ["q3"]
    assert routed(exchange, "") == ["q4"]
    assert routed(exchange, "c") == []


def test_fanout() -> None:
    exchange = FanoutExchange("x")
    for name in ("q1", "q2", "q3"):
        exchange.bind(Queue(name), name, {})
    assert routed(exchange, "any") == ["q1", "q2", "q3"]


def test_topic() -> None:
    exchange = TopicExchange("x")
    for name, key in (("q1", "stock.*.nyse"), ("q2", "stock.#"), ("q3", "#.nyse"), ("q4", "bond.#")):
        exchange.bind(Queue(name), key, {})
    assert sorted(routed(exchange, "stock.ibm.nyse")) == ["q1", "q2", "q3"]
    assert routed(exchange, "stock") == ["q2"]


def test_headers() -> None:
    exchange = HeadersExchange("x")
    exchange.bind(Queue("q1"), "", {"x-match": "any", "a": 1, "b": 2})
    exchange.bind(Queue("q2"), "", {"a": 1, "b": 2})
    exchange.bind(Queue("q3"), "", {})
    assert sorted(routed(exchange, "", {"a": 1})) == ["q1", "q3"]
    assert sorted(routed(exchange, "", {"a": 1, "b": 2})) == ["q1", "q2", "q3"]
    assert routed(exchange, "", None) == ["q3"]


@pytest.mark.parametrize("kind", ["direct", "fanout", "topic"])
def test_only_headers_exchanges_read_headers(kind: str) -> None:
    exchange = STANDARD_TYPES[kind]("x")
    queue = Queue("q")
    exchange.bind(queue, "k", {"a": 1})
    found: dict[Any, Any] = {}
    exchange.route("k", unreadable, found)
    assert list(found) == [queue]


def test_a_bad_x_match_is_refused_and_changes_nothing() -> None:
    exchange = HeadersExchange("x")
    with pytest.raises(ChannelFault, match=r"x-match.*'some'") as fault:
        exchange.validate_binding("", {"x-match": "some"})
    assert fault.value.code == 406
    with pytest.raises(ChannelFault):
        exchange.bind(Queue("q"), "", {"x-match": "some"})
    assert exchange.is_unused()
    assert routed(exchange, "", {}) == []
    exchange.validate_binding("", {"x-match": "any-with-x"})


@pytest.mark.parametrize("kind", ["direct", "fanout", "topic"])
def test_other_kinds_take_any_arguments(kind: str) -> None:
    exchange = STANDARD_TYPES[kind]("x")
    exchange.validate_binding("k", {"x-match": "some"})
    assert exchange.bind(Queue("q"), "k", {"x-match": "some"})
