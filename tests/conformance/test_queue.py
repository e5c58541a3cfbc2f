"""Rules of the queue class: declare, bind, unbind, purge, delete."""

from __future__ import annotations

from typing import Any

import pytest
from conformance.conftest import Connect
from conformance.rule import rule
from peer import Peer

from flintmq.wire import amqp, methods
from flintmq.wire.methods import Method


def declare(peer: Peer, **wishes: Any) -> str:
    """A new queue, private unless said otherwise; its name."""
    queue: str = peer.call(1, methods.QueueDeclare(**{"exclusive": True} | wishes)).queue
    return queue


def bodies(peer: Peer, queue: str) -> list[bytes]:
    """All that is in the queue, taken out."""
    found = []
    while (got := peer.get(1, queue, no_ack=True)) is not None:
        found.append(got[1].body)
    return found


def refused(peer: Peer, code: int, *wrong: Method) -> None:
    """Each of the methods closes its channel with this code."""
    for method in wrong:
        peer.send(1, method)
        peer.expect_channel_close(1, code)
        peer.open(1)


@rule("0-9,0-9-1/queue.declare/minimum-queues")
def test_there_is_room_for_more_than_256_queues(peer: Peer, name: str) -> None:
    names = [f"{name}-{number}" for number in range(300)]
    peer.send(1, *(methods.QueueDeclare(queue=queue, exclusive=True, no_wait=True) for queue in names))
    for queue in names:
        peer.publish(1, queue.encode(), key=queue)
    assert [bodies(peer, queue) for queue in names] == [[queue.encode()] for queue in names]


@rule("0-9,0-9-1/queue.declare/queue/default-name")
def test_a_queue_without_a_name_gets_one_of_its_own(peer: Peer, connect: Connect) -> None:
    other = connect()
    names = [declare(peer) for _ in range(10)] + [declare(other) for _ in range(10)]
    assert all(names)
    assert len(set(names)) == 20


@rule("0-9/queue.declare/queue/reserved-prefix")
def test_a_name_that_begins_with_amq_ends_the_connection(peer: Peer) -> None:
    generated = declare(peer)
    assert generated.startswith("amq.")
    peer.call(1, methods.QueueDeclare(queue=generated, passive=True))
    peer.call(1, methods.QueueDeclare(queue=generated, exclusive=True))
    peer.send(1, methods.QueueDeclare(queue="amq.mine"))
    closed = peer.expect_connection_close(amqp.NOT_ALLOWED)
    assert (closed.class_id, closed.method_id) == (50, 10)


@rule("0-9-1/queue.declare/queue/reserved")
def test_names_that_begin_with_amq_are_reserved(peer: Peer) -> None:
    refused(peer, amqp.ACCESS_REFUSED, methods.QueueDeclare(queue="amq.mine"))
    generated = declare(peer)
    assert generated.startswith("amq.")
    peer.call(1, methods.QueueDeclare(queue=generated, passive=True))
    peer.call(1, methods.QueueDeclare(queue=generated, exclusive=True))


@rule("0-9,0-9-1/queue.declare/passive/passive")
def test_a_passive_declare_only_looks(peer: Peer, name: str) -> None:
    refused(peer, amqp.NOT_FOUND, *[methods.QueueDeclare(queue=name, passive=True)] * 2)
    declare(peer, queue=name)
    peer.publish(1, b"one", key=name)
    found = peer.call(1, methods.QueueDeclare(queue=name, passive=True))
    assert (found.queue, found.message_count, found.consumer_count) == (name, 1, 0)


@pytest.mark.parametrize(
    "difference",
    [{"durable": True}, {"exclusive": True}, {"auto_delete": True}, {"arguments": {"x-expires": 60_000}}],
    ids=lambda difference: next(iter(difference)),
)
@rule(
    "0-9-1/queue.declare/passive/equivalent",
    "0-9-1/queue.declare/auto-delete/pre-existence",
)
def test_declared_again_a_queue_has_to_be_the_same(peer: Peer, name: str, difference: dict[str, Any]) -> None:
    for _ in range(2):
        declare(peer, queue=name, exclusive=False)
    code = amqp.RESOURCE_LOCKED if "exclusive" in difference else amqp.PRECONDITION_FAILED  # as in RabbitMQ
    refused(peer, code, methods.QueueDeclare(queue=name, **difference))
    # A passive declare asks for the name alone.
    peer.call(1, methods.QueueDeclare(queue=name, passive=True, **difference))
    peer.call(1, methods.QueueDelete(queue=name))


@pytest.mark.parametrize("flag", ["durable", "auto_delete"])
@rule("0-9/queue.declare/durable/pre-existence", "0-9/queue.declare/auto-delete/pre-existence")
def test_declared_again_a_queue_keeps_its_flags(
    peer: Peer, name: str, flag: str, connect_091: Connect
) -> None:
    flags = {"durable": False, "auto_delete": False}
    peer.call(1, methods.QueueDeclare(queue=name, **flags))
    peer.publish(1, b"one", key=name)
    found = peer.call(1, methods.QueueDeclare(queue=name, **flags | {flag: True}))
    assert (found.queue, found.message_count) == (name, 1)
    # To a client of 0-9-1 the flags have to be those of the first time.
    connect_091().call(1, methods.QueueDeclare(queue=name, **flags))
    peer.call(1, methods.QueueDelete(queue=name))


@pytest.mark.parametrize("durable", [True, False])
@rule("0-9,0-9-1/queue.declare/durable/types")
def test_queues_may_be_durable_or_transient(
    peer: Peer, name: str, durable: bool, connect_091: Connect
) -> None:
    declare(peer, queue=name, durable=durable, exclusive=False)
    peer.publish(1, b"one", key=name)
    assert bodies(peer, name) == [b"one"]
    # That it took note of the flag shows when a client of 0-9-1 declares the other one.
    refused(connect_091(), amqp.PRECONDITION_FAILED, methods.QueueDeclare(queue=name, durable=not durable))
    peer.call(1, methods.QueueDelete(queue=name))


@rule("0-9,0-9-1/queue.declare/exclusive/types")
def test_a_shared_queue_outlives_its_connection_and_a_private_one_does_not(
    connect: Connect, name: str
) -> None:
    first, second = connect(), connect()
    shared, private = declare(first, queue=name, exclusive=False), declare(first, queue=name + "-private")
    second.publish(1, b"from another", key=shared)
    first.close()
    assert bodies(second, shared) == [b"from another"]
    second.call(1, methods.QueueDelete(queue=shared))
    refused(second, amqp.NOT_FOUND, methods.QueueDeclare(queue=private, passive=True))


@rule("0-9/queue.declare/exclusive/02", "0-9-1/queue.declare/exclusive/exclusive")
def test_a_private_queue_is_locked_for_other_connections(peer: Peer, connect: Connect) -> None:
    queue = declare(peer)
    peer.publish(1, b"mine", key=queue)
    refused(
        connect(),
        amqp.RESOURCE_LOCKED,
        methods.QueueDeclare(queue=queue),
        methods.QueueDeclare(queue=queue, exclusive=True),
        methods.QueueDeclare(queue=queue, passive=True),
        methods.QueueBind(queue=queue, exchange="amq.fanout"),
        methods.QueueUnbind(queue=queue, exchange="amq.fanout"),
        methods.QueuePurge(queue=queue),
        methods.QueueDelete(queue=queue),
        methods.BasicConsume(queue=queue),
        methods.BasicGet(queue=queue),
    )
    assert bodies(peer, queue) == [b"mine"]


@rule("0-9,0-9-1/queue.bind/duplicates")
def test_a_binding_made_twice_is_there_once(peer: Peer, name: str) -> None:
    queue = declare(peer)
    for _ in range(2):
        peer.call(1, methods.QueueBind(queue=queue, exchange="amq.direct", routing_key=name))
    peer.publish(1, b"once", exchange="amq.direct", key=name)
    assert bodies(peer, queue) == [b"once"]
    peer.call(1, methods.QueueUnbind(queue=queue, exchange="amq.direct", routing_key=name))
    peer.publish(1, b"gone", exchange="amq.direct", key=name)
    assert bodies(peer, queue) == []


@rule("0-9-1/queue.bind/unique")
def test_a_queue_gets_a_message_once_however_many_bindings_match(peer: Peer, name: str) -> None:
    queue = declare(peer)
    for key in (f"{name}.*", f"{name}.#", f"#.{name}.one"):
        peer.call(1, methods.QueueBind(queue=queue, exchange="amq.topic", routing_key=key))
    peer.publish(1, b"once", exchange="amq.topic", key=f"{name}.one")
    assert bodies(peer, queue) == [b"once"]


@rule("0-9/queue.bind/transient-exchange")
def test_a_durable_queue_cannot_be_bound_to_a_transient_exchange(peer: Peer, name: str) -> None:
    peer.call(1, methods.ExchangeDeclare(exchange=name, type="fanout", durable=False))
    declare(peer, queue=name, durable=True, exclusive=False)
    refused(peer, amqp.NOT_ALLOWED, methods.QueueBind(queue=name, exchange=name))
    peer.call(1, methods.QueueDelete(queue=name))
    peer.call(1, methods.ExchangeDelete(exchange=name))


@rule("0-9-1/queue.bind/transient-exchange")
def test_a_durable_queue_can_be_bound_to_a_transient_exchange(peer: Peer, name: str) -> None:
    peer.call(1, methods.ExchangeDeclare(exchange=name, type="fanout", durable=False))
    declare(peer, queue=name, durable=True, exclusive=False)
    peer.call(1, methods.QueueBind(queue=name, exchange=name))
    peer.publish(1, b"through", exchange=name)
    assert bodies(peer, name) == [b"through"]
    peer.call(1, methods.QueueDelete(queue=name))
    peer.call(1, methods.ExchangeDelete(exchange=name))


@rule("0-9/queue.bind/internal-exchange")
def test_a_queue_can_be_bound_to_an_internal_exchange(peer: Peer, name: str) -> None:
    peer.call(1, methods.ExchangeDeclare(exchange=name, type="fanout", internal=True))
    queue = declare(peer)
    peer.call(1, methods.QueueBind(queue=queue, exchange=name))
    peer.call(1, methods.ExchangeBind(source="amq.direct", destination=name, routing_key=name))
    peer.publish(1, b"through", exchange="amq.direct", key=name)
    assert bodies(peer, queue) == [b"through"]
    peer.call(1, methods.ExchangeDelete(exchange=name))


@rule("0-9,0-9-1/queue.bind/binding-count")
def test_a_queue_has_room_for_more_than_4_bindings(peer: Peer, name: str) -> None:
    queue = declare(peer)
    exchanges = ("amq.direct", "amq.topic")
    keys = [f"{name}.{number}" for number in range(16)]
    for exchange in exchanges:
        for key in keys:
            peer.call(1, methods.QueueBind(queue=queue, exchange=exchange, routing_key=key))
            peer.publish(1, key.encode(), exchange=exchange, key=key)
    assert bodies(peer, queue) == [key.encode() for key in keys] * len(exchanges)


@pytest.mark.parametrize(
    "method",
    [
        methods.QueueDeclare(queue="", passive=True),
        methods.QueueBind(queue="", exchange="amq.direct", routing_key="key"),
        methods.QueueUnbind(queue="", exchange="amq.direct", routing_key="key"),
        methods.QueuePurge(queue=""),
        methods.QueueDelete(queue=""),
        methods.BasicConsume(queue=""),
        methods.BasicGet(queue=""),
    ],
    ids=lambda method: method.NAME,
)
@rule(
    "0-9/queue.bind/queue/empty-queue",
    "0-9/queue.unbind/01",
    "0-9/queue.purge/queue/01",
    "0-9/queue.delete/queue/01",
    "0-9/basic.consume/queue/01",
    "0-9/basic.get/queue/01",
)
def test_an_empty_name_without_a_queue_ends_the_connection(peer: Peer, method: Method) -> None:
    peer.send(1, method)
    closed = peer.expect_connection_close(amqp.NOT_ALLOWED)
    assert (closed.class_id, closed.method_id) == (method.CLASS_ID, method.METHOD_ID)


@rule(
    "0-9-1/queue.bind/queue/queue-known",
    "0-9-1/queue.unbind/01",
    "0-9-1/queue.unbind/queue/queue-known",
    "0-9-1/queue.purge/queue/queue-known",
    "0-9-1/queue.delete/queue/queue-known",
)
def test_an_empty_name_needs_a_queue_declared_before(peer: Peer) -> None:
    refused(
        peer,
        amqp.NOT_FOUND,
        methods.QueueBind(queue="", exchange="amq.direct", routing_key="key"),
        methods.QueueUnbind(queue="", exchange="amq.direct", routing_key="key"),
        methods.QueuePurge(queue=""),
        methods.QueueDelete(queue=""),
        methods.BasicConsume(queue=""),
        methods.BasicGet(queue=""),
    )


@rule(
    "0-9-1/queue.bind/queue/queue-known",
    "0-9-1/queue.unbind/queue/queue-known",
    "0-9-1/queue.purge/queue/queue-known",
    "0-9-1/queue.delete/queue/queue-known",
)
def test_an_empty_name_is_the_queue_declared_last(peer: Peer, name: str) -> None:
    declare(peer)
    queue = declare(peer)
    peer.call(1, methods.QueueBind(queue="", exchange="amq.direct", routing_key=name))
    peer.publish(1, b"one", exchange="amq.direct", key=name)
    assert peer.call(1, methods.QueuePurge(queue="")).message_count == 1
    peer.publish(1, b"two", exchange="amq.direct", key=name)
    assert bodies(peer, "") == [b"two"]
    peer.call(1, methods.QueueUnbind(queue="", exchange="amq.direct", routing_key=name))
    peer.publish(1, b"three", exchange="amq.direct", key=name)
    assert bodies(peer, queue) == []
    peer.call(1, methods.QueueDelete(queue=""))
    refused(peer, amqp.NOT_FOUND, methods.QueueDeclare(queue=queue, passive=True))


@rule(
    "0-9/queue.bind/failure",
    "0-9/queue.bind/queue/queue-existence",
    "0-9-1/queue.bind/queue/must-exist",
    "0-9,0-9-1/queue.bind/exchange/exchange-existence",
)
def test_both_ends_of_a_binding_have_to_be_there(peer: Peer, name: str) -> None:
    queue = declare(peer)
    refused(
        peer,
        amqp.NOT_FOUND,
        methods.QueueBind(queue=name, exchange="amq.direct"),
        methods.QueueBind(queue=queue, exchange=name),
    )


@rule("0-9/queue.unbind/queue/02", "0-9/queue.unbind/exchange/03")
def test_what_is_not_there_cannot_be_unbound(peer: Peer, name: str) -> None:
    queue = declare(peer)
    refused(
        peer,
        amqp.NOT_FOUND,
        methods.QueueUnbind(queue=name, exchange="amq.direct"),
        methods.QueueUnbind(queue=queue, exchange=name),
    )


@rule(
    "0-9-1/queue.unbind/queue/must-exist",
    "0-9-1/queue.unbind/exchange/must-exist",
)
def test_unbinding_what_is_not_there_is_no_error(peer: Peer, name: str) -> None:
    queue = declare(peer)
    peer.call(1, methods.QueueUnbind(queue=name, exchange="amq.direct"))
    peer.call(1, methods.QueueUnbind(queue=queue, exchange=name))


@rule("0-9-1/queue.bind/exchange/default-exchange", "0-9-1/queue.unbind/exchange/default-exchange")
def test_bindings_to_the_nameless_exchange_are_left_alone(peer: Peer) -> None:
    queue = declare(peer)
    refused(
        peer,
        amqp.ACCESS_REFUSED,
        methods.QueueBind(queue=queue, exchange="", routing_key="other"),
        methods.QueueUnbind(queue=queue, exchange="", routing_key=queue),
    )
    peer.publish(1, b"by name", key=queue)
    assert bodies(peer, queue) == [b"by name"]


@rule("0-9,0-9-1/queue.bind/routing-key/direct-exchange-key-matching")
def test_a_direct_exchange_goes_by_the_whole_key(peer: Peer, name: str) -> None:
    queue = declare(peer)
    peer.call(1, methods.QueueBind(queue=queue, exchange="amq.direct", routing_key=name))
    for key in (name, name.upper(), name + ".more", name[:-1], "", "#", "*"):
        peer.publish(1, key.encode(), exchange="amq.direct", key=key)
    assert bodies(peer, queue) == [name.encode()]


@rule("0-9/queue.purge/01")
def test_a_purged_queue_is_empty(peer: Peer) -> None:
    queue = declare(peer)
    for number in range(20):
        peer.publish(1, b"%d" % number, key=queue)
    assert peer.call(1, methods.QueuePurge(queue=queue)).message_count == 20
    assert peer.get(1, queue) is None
    assert peer.call(1, methods.QueueDeclare(queue=queue, passive=True)).message_count == 0


@pytest.mark.parametrize("transacted", [False, True])
@rule("0-9,0-9-1/queue.purge/02")
def test_what_was_handed_out_survives_a_purge(peer: Peer, transacted: bool) -> None:
    queue = declare(peer)
    for body in (b"handed out", b"waiting"):
        peer.publish(1, body, key=queue)
    peer.open(2)
    if transacted:
        peer.call(2, methods.TxSelect())
    assert peer.get(2, queue) is not None
    assert peer.call(1, methods.QueuePurge(queue=queue)).message_count == 1
    peer.call(2, methods.ChannelClose(reply_code=200))
    assert bodies(peer, queue) == [b"handed out"]


@rule("0-9/queue.purge/queue/02", "0-9-1/queue.purge/queue/must-exist")
def test_a_queue_that_is_not_there_cannot_be_purged(peer: Peer, name: str) -> None:
    refused(peer, amqp.NOT_FOUND, methods.QueuePurge(queue=name))


@rule("0-9,0-9-1/queue.delete/01")
def test_messages_go_with_their_queue(peer: Peer, name: str) -> None:
    declare(peer, queue=name)
    peer.publish(1, b"lost", key=name)
    assert peer.call(1, methods.QueueDelete(queue=name)).message_count == 1
    assert peer.call(1, methods.QueueDeclare(queue=name, exclusive=True)).message_count == 0


@rule("0-9/queue.delete/queue/02")
def test_a_queue_that_is_not_there_cannot_be_deleted(peer: Peer, name: str) -> None:
    refused(peer, amqp.NOT_FOUND, methods.QueueDelete(queue=name))
    declare(peer, queue=name)
    peer.call(1, methods.QueueDelete(queue=name))
    refused(peer, amqp.NOT_FOUND, methods.QueueDelete(queue=name, no_wait=True))


@rule("0-9-1/queue.delete/queue/must-exist")
def test_deleting_what_is_not_there_is_no_error(peer: Peer, name: str) -> None:
    assert peer.call(1, methods.QueueDelete(queue=name)).message_count == 0


@rule("0-9/queue.delete/if-unused/01", "0-9-1/queue.delete/if-unused/in-use")
def test_a_queue_with_consumers_stays_with_if_unused(peer: Peer) -> None:
    queue = declare(peer)
    peer.open(2)
    peer.call(2, methods.BasicConsume(queue=queue, consumer_tag="t"))
    refused(peer, amqp.PRECONDITION_FAILED, methods.QueueDelete(queue=queue, if_unused=True))
    assert peer.call(1, methods.QueueDeclare(queue=queue, passive=True)).consumer_count == 1
    peer.call(2, methods.BasicCancel(consumer_tag="t"))
    peer.call(1, methods.QueueDelete(queue=queue, if_unused=True))
    refused(peer, amqp.NOT_FOUND, methods.QueueDeclare(queue=queue, passive=True))


@rule("0-9/queue.delete/if-empty/01", "0-9-1/queue.delete/if-empty/not-empty")
def test_a_queue_with_messages_stays_with_if_empty(peer: Peer) -> None:
    queue = declare(peer)
    peer.publish(1, b"one", key=queue)
    refused(peer, amqp.PRECONDITION_FAILED, methods.QueueDelete(queue=queue, if_empty=True))
    assert bodies(peer, queue) == [b"one"]
    peer.call(1, methods.QueueDelete(queue=queue, if_empty=True))
    refused(peer, amqp.NOT_FOUND, methods.QueueDeclare(queue=queue, passive=True))
