"""Rules of the exchange class: types, what is always there, declare, delete, bindings between exchanges."""

from __future__ import annotations

import pytest
from conformance.conftest import Connect
from conformance.rule import rule
from peer import Peer

from flintmq.wire import amqp, methods
from flintmq.wire.methods import Method

TYPES = ("direct", "fanout", "topic", "headers")


def bound_queue(peer: Peer, exchange: str, key: str = "") -> str:
    """A new queue with one binding; to a headers exchange one that matches x=1."""
    queue: str = peer.call(1, methods.QueueDeclare(exclusive=True)).queue
    peer.call(1, methods.QueueBind(queue=queue, exchange=exchange, routing_key=key, arguments={"x": 1}))
    return queue


def bodies(peer: Peer, queue: str) -> list[bytes]:
    """All that is in the queue, taken out."""
    found = []
    while (got := peer.get(1, queue, no_ack=True)) is not None:
        found.append(got[1].body)
    return found


def routes(peer: Peer, exchange: str) -> bool:
    """Whether a message goes through the exchange to a queue bound to it, and only by its binding."""
    queue = bound_queue(peer, exchange, "key")
    peer.publish(1, b"yes", exchange=exchange, key="key", headers={"x": 1})
    return bodies(peer, queue) == [b"yes"]


@pytest.mark.parametrize("kind", TYPES)
@rule("0-9,0-9-1/exchange/required-types", "0-9,0-9-1/exchange/recommended-types")
def test_each_type_can_be_declared_and_routes(peer: Peer, name: str, kind: str) -> None:
    peer.call(1, methods.ExchangeDeclare(exchange=name, type=kind))
    assert routes(peer, name)
    peer.call(1, methods.ExchangeDelete(exchange=name))


@pytest.mark.parametrize("kind", ["x-random", "x-regexp", "x-recent-history"])
@rule("0-9,0-9-1/exchange/extensions")
def test_there_are_further_types(peer: Peer, name: str, kind: str) -> None:
    peer.call(1, methods.ExchangeDeclare(exchange=name, type=kind))
    queue = bound_queue(peer, name, "key")
    peer.publish(1, b"yes", exchange=name, key="key", headers={"x": 1})
    assert bodies(peer, queue) == [b"yes"]
    peer.call(1, methods.ExchangeDelete(exchange=name))


@pytest.mark.parametrize("exchange", ["amq.direct", "amq.fanout", "amq.topic", "amq.headers", "amq.match"])
@rule("0-9,0-9-1/exchange/required-instances")
def test_an_exchange_of_each_type_is_always_there(peer: Peer, exchange: str) -> None:
    assert routes(peer, exchange)


@rule(
    "0-9,0-9-1/exchange/default-exchange",
    "0-9,0-9-1/exchange/required-instances",
    "0-9,0-9-1/queue.declare/default-binding",
    "0-9/basic.publish/exchange/01",
    "0-9-1/basic.publish/exchange/default-exchange",
)
def test_the_nameless_exchange_leads_to_a_queue_by_its_name(peer: Peer) -> None:
    queue = peer.call(1, methods.QueueDeclare(exclusive=True)).queue
    other = peer.call(1, methods.QueueDeclare(exclusive=True)).queue
    peer.publish(1, b"by name", exchange="", key=queue)
    assert bodies(peer, queue) == [b"by name"]
    assert bodies(peer, other) == []


@pytest.mark.parametrize("alias", ["amq.default", "default", "(AMQP default)", "nameless"])
@rule("0-9,0-9-1/exchange/default-access")
def test_the_nameless_exchange_has_no_other_name(peer: Peer, alias: str) -> None:
    peer.publish(1, b"no", exchange=alias)
    peer.expect_channel_close(1, amqp.NOT_FOUND)
    peer.open(1)
    peer.send(1, methods.ExchangeDeclare(exchange=alias, passive=True))
    peer.expect_channel_close(1, amqp.NOT_FOUND)


@rule("0-9,0-9-1/exchange.declare/minimum")
def test_there_is_room_for_more_than_16_exchanges(peer: Peer, name: str) -> None:
    names = [f"{name}-{number}" for number in range(32)]
    for exchange in names:
        peer.call(1, methods.ExchangeDeclare(exchange=exchange, type="direct"))
    assert all(routes(peer, exchange) for exchange in names)
    for exchange in names:
        peer.call(1, methods.ExchangeDelete(exchange=exchange))


@rule("0-9,0-9-1/exchange.declare/exchange/reserved")
def test_names_that_begin_with_amq_are_reserved(peer: Peer) -> None:
    peer.send(1, methods.ExchangeDeclare(exchange="amq.mine", type="direct"))
    peer.expect_channel_close(1, amqp.ACCESS_REFUSED)
    peer.open(1)
    peer.call(1, methods.ExchangeDeclare(exchange="amq.direct", passive=True))
    peer.call(1, methods.ExchangeDeclare(exchange="amq.direct", type="direct", durable=True))


@pytest.mark.parametrize("odd", ["with space", "plus+slash/", "naïve ☃", "x" * 255])
@rule("0-9-1/exchange.declare/exchange/syntax", "0-9-1/queue.declare/queue/syntax")
def test_any_characters_make_a_name(peer: Peer, odd: str) -> None:
    odd = odd.encode()[:255].decode()
    peer.call(1, methods.ExchangeDeclare(exchange=odd, type="direct"))
    assert peer.call(1, methods.QueueDeclare(queue=odd, exclusive=True)).queue == odd
    assert routes(peer, odd)
    peer.call(1, methods.ExchangeDelete(exchange=odd))


@rule("0-9-1/exchange.declare/exchange/syntax")
def test_an_exchange_needs_a_name(peer: Peer) -> None:
    peer.send(1, methods.ExchangeDeclare(exchange="", type="direct"))
    peer.expect_channel_close(1, amqp.ACCESS_REFUSED)


@rule("0-9/exchange.declare/type/typed")
def test_another_type_for_an_exchange_ends_the_connection(peer: Peer, name: str, connect: Connect) -> None:
    peer.call(1, methods.ExchangeDeclare(exchange=name, type="fanout"))
    peer.send(1, methods.ExchangeDeclare(exchange=name, type="direct"))
    closed = peer.expect_connection_close(amqp.NOT_ALLOWED)
    assert (closed.class_id, closed.method_id) == (40, 10)
    connect().call(1, methods.ExchangeDelete(exchange=name))


@rule("0-9/exchange.declare/type/support")
def test_an_unknown_type_ends_the_connection(peer: Peer, name: str, connect: Connect) -> None:
    peer.send(1, methods.ExchangeDeclare(exchange=name, type="nonsense"))
    closed = peer.expect_connection_close(amqp.COMMAND_INVALID)
    assert (closed.class_id, closed.method_id) == (40, 10)
    other = connect()
    other.send(1, methods.ExchangeDeclare(exchange=name, passive=True))
    other.expect_channel_close(1, amqp.NOT_FOUND)


@rule("0-9-1/exchange.declare/type/typed")
def test_an_exchange_keeps_its_type(peer: Peer, name: str) -> None:
    peer.call(1, methods.ExchangeDeclare(exchange=name, type="fanout"))
    peer.send(1, methods.ExchangeDeclare(exchange=name, type="direct"))
    peer.expect_channel_close(1, amqp.PRECONDITION_FAILED)
    peer.open(1)
    peer.call(1, methods.ExchangeDelete(exchange=name))


@rule("0-9-1/exchange.declare/type/support")
def test_a_type_that_is_not_known_cannot_be_declared(peer: Peer, name: str) -> None:
    peer.send(1, methods.ExchangeDeclare(exchange=name, type="nonsense"))
    peer.expect_channel_close(1, amqp.PRECONDITION_FAILED)
    peer.open(1)
    peer.send(1, methods.ExchangeDeclare(exchange=name, passive=True))
    peer.expect_channel_close(1, amqp.NOT_FOUND)


@rule("0-9,0-9-1/exchange.declare/passive/not-found")
def test_a_passive_declare_only_looks(peer: Peer, name: str) -> None:
    peer.send(1, methods.ExchangeDeclare(exchange=name, type="direct", passive=True))
    peer.expect_channel_close(1, amqp.NOT_FOUND)
    peer.open(1)
    peer.call(1, methods.ExchangeDeclare(exchange=name, type="direct"))
    peer.call(1, methods.ExchangeDeclare(exchange=name, passive=True))
    peer.call(1, methods.ExchangeDelete(exchange=name))


@pytest.mark.parametrize(
    "difference",
    [
        {"durable": True},
        {"auto_delete": True},
        {"arguments": {"alternate-exchange": "amq.fanout"}},
    ],
    ids=lambda difference: next(iter(difference)),
)
@rule(
    "0-9-1/exchange.declare/passive/equivalent",
    "extensions/exchange.declare/auto-delete/amq_exchange_25",
)
def test_declared_again_an_exchange_has_to_be_the_same(
    peer: Peer, name: str, difference: dict[str, object]
) -> None:
    same: dict[str, object] = {"exchange": name, "type": "direct"}
    peer.call(1, methods.ExchangeDeclare(**same))  # type: ignore[arg-type]
    peer.call(1, methods.ExchangeDeclare(**same))  # type: ignore[arg-type]
    peer.send(1, methods.ExchangeDeclare(**same | difference))  # type: ignore[arg-type]
    peer.expect_channel_close(1, amqp.PRECONDITION_FAILED)
    peer.open(1)
    peer.call(1, methods.ExchangeDelete(exchange=name))


@pytest.mark.parametrize("flag", ["durable", "auto_delete"])
@rule("0-9/exchange.declare/durable/sticky", "0-9/exchange.declare/auto-delete/sticky")
def test_declared_again_an_exchange_keeps_its_flags(
    peer: Peer, name: str, flag: str, connect_091: Connect
) -> None:
    flags = {"durable": False, "auto_delete": False}
    peer.call(1, methods.ExchangeDeclare(exchange=name, type="direct", **flags))
    peer.call(1, methods.ExchangeDeclare(exchange=name, type="direct", **flags | {flag: True}))
    # To a client of 0-9-1 the flags have to be those of the first time.
    connect_091().call(1, methods.ExchangeDeclare(exchange=name, type="direct", **flags))
    peer.call(1, methods.ExchangeDelete(exchange=name))


@pytest.mark.parametrize("durable", [True, False])
@rule("0-9,0-9-1/exchange.declare/durable/support")
def test_exchanges_may_be_durable_or_transient(
    peer: Peer, name: str, durable: bool, connect_091: Connect
) -> None:
    peer.call(1, methods.ExchangeDeclare(exchange=name, type="direct", durable=durable))
    assert routes(peer, name)
    # That it took note of the flag shows when a client of 0-9-1 declares the other one.
    other = connect_091()
    other.send(1, methods.ExchangeDeclare(exchange=name, type="direct", durable=not durable))
    other.expect_channel_close(1, amqp.PRECONDITION_FAILED)
    peer.call(1, methods.ExchangeDelete(exchange=name))


@rule("0-9/exchange.delete/exchange/exists")
def test_an_exchange_that_is_not_there_cannot_be_deleted(peer: Peer, name: str) -> None:
    peer.send(1, methods.ExchangeDelete(exchange=name))
    peer.expect_channel_close(1, amqp.NOT_FOUND)


@rule("0-9-1/exchange.delete/exchange/exists")
def test_deleting_what_is_not_there_is_no_error(peer: Peer, name: str) -> None:
    peer.call(1, methods.ExchangeDelete(exchange=name))


@rule("0-9-1/exchange.delete/if-unused/in-use")
def test_an_exchange_in_use_stays_with_if_unused(peer: Peer, name: str) -> None:
    peer.call(1, methods.ExchangeDeclare(exchange=name, type="direct"))
    queue = bound_queue(peer, name, "key")
    peer.send(1, methods.ExchangeDelete(exchange=name, if_unused=True))
    peer.expect_channel_close(1, amqp.PRECONDITION_FAILED)
    peer.open(1)
    peer.publish(1, b"still there", exchange=name, key="key")
    assert bodies(peer, queue) == [b"still there"]
    peer.call(1, methods.QueueDelete(queue=queue))
    peer.call(1, methods.ExchangeDelete(exchange=name, if_unused=True))
    peer.send(1, methods.ExchangeDeclare(exchange=name, passive=True))
    peer.expect_channel_close(1, amqp.NOT_FOUND)


@rule("extensions/exchange.declare/auto-delete/amq_exchange_02")
def test_an_auto_delete_exchange_goes_with_its_last_binding_not_before_the_first(
    peer: Peer, name: str
) -> None:
    peer.call(1, methods.ExchangeDeclare(exchange=name, type="direct", auto_delete=True))
    peer.call(1, methods.ExchangeDeclare(exchange=name, passive=True))
    queue = bound_queue(peer, name, "key")
    peer.call(1, methods.QueueUnbind(queue=queue, exchange=name, routing_key="key", arguments={"x": 1}))
    peer.send(1, methods.ExchangeDeclare(exchange=name, passive=True))
    peer.expect_channel_close(1, amqp.NOT_FOUND)


@rule("extensions/exchange.bind/duplicates")
def test_a_binding_between_exchanges_made_twice_is_there_once(peer: Peer, name: str) -> None:
    peer.call(1, methods.ExchangeDeclare(exchange=name, type="fanout"))
    queue = bound_queue(peer, name)
    bind = {"destination": name, "source": "amq.direct", "routing_key": name}
    for _ in range(2):
        peer.call(1, methods.ExchangeBind(**bind))  # type: ignore[arg-type]
    peer.publish(1, b"once", exchange="amq.direct", key=name)
    assert bodies(peer, queue) == [b"once"]
    peer.call(1, methods.ExchangeUnbind(**bind))  # type: ignore[arg-type]
    peer.publish(1, b"gone", exchange="amq.direct", key=name)
    assert bodies(peer, queue) == []
    peer.call(1, methods.ExchangeDelete(exchange=name))


@rule("extensions/exchange.bind/cyclical", "extensions/exchange.bind/unique")
def test_bindings_may_go_in_circles_and_each_exchange_sees_a_message_once(peer: Peer, name: str) -> None:
    first, second = name + "-1", name + "-2"
    for exchange in (first, second):
        peer.call(1, methods.ExchangeDeclare(exchange=exchange, type="fanout"))
    for source, destination in ((first, first), (first, second), (second, first)):
        for key in ("a", "b"):
            peer.call(1, methods.ExchangeBind(destination=destination, source=source, routing_key=key))
    queues = [bound_queue(peer, first), bound_queue(peer, second)]
    peer.publish(1, b"round", exchange=first, key="a")
    peer.publish(1, b"again", exchange=second, key="b")
    assert [bodies(peer, queue) for queue in queues] == [[b"round", b"again"]] * 2
    for exchange in (first, second):
        peer.call(1, methods.ExchangeDelete(exchange=exchange))


def ends(kind: type[methods.ExchangeBind] | type[methods.ExchangeUnbind], **name: str) -> Method:
    return kind(**{"source": "amq.fanout", "destination": "amq.topic"} | name)  # type: ignore[arg-type]


@pytest.mark.parametrize("end", ["source", "destination"])
@rule(
    "extensions/exchange.bind/destination/exchange-existence",
    "extensions/exchange.bind/source/exchange-existence",
)
def test_both_ends_of_a_binding_have_to_be_there(peer: Peer, name: str, end: str) -> None:
    peer.send(1, ends(methods.ExchangeBind, **{end: name}))
    peer.expect_channel_close(1, amqp.NOT_FOUND)


@pytest.mark.parametrize("end", ["source", "destination"])
@rule(
    "extensions/exchange.unbind/destination/must-exist",
    "extensions/exchange.unbind/source/must-exist",
)
def test_unbinding_what_is_not_there_is_no_error(peer: Peer, name: str, end: str) -> None:
    peer.call(1, ends(methods.ExchangeUnbind, **{end: name}))


@pytest.mark.parametrize("end", ["source", "destination"])
@pytest.mark.parametrize("kind", [methods.ExchangeBind, methods.ExchangeUnbind])
@rule(
    "extensions/exchange.bind/destination/default-exchange",
    "extensions/exchange.bind/source/default-exchange",
    "extensions/exchange.unbind/01",
    "extensions/exchange.unbind/destination/default-exchange",
    "extensions/exchange.unbind/source/default-exchange",
)
def test_the_nameless_exchange_takes_no_bindings(
    peer: Peer, kind: type[methods.ExchangeBind] | type[methods.ExchangeUnbind], end: str
) -> None:
    peer.send(1, ends(kind, **{end: ""}))
    peer.expect_channel_close(1, amqp.ACCESS_REFUSED)
