"""Rules of the stream class, and of queues with contents of several classes."""

from __future__ import annotations

from conformance.conftest import Connect
from conformance.rule import rule
from peer import Content, Peer

from flintmq.wire import amqp, methods
from flintmq.wire.properties import StreamProperties


def declare(peer: Peer, **settings: object) -> str:
    queue: str = peer.call(1, methods.QueueDeclare(exclusive=True, arguments=dict(settings))).queue
    return queue


def publish(peer: Peer, key: str, body: bytes, exchange: str = "", priority: int = 0, **flags: bool) -> None:
    method = methods.StreamPublish(exchange=exchange, routing_key=key, **flags)
    peer.send_content(1, method, body, StreamProperties(priority=priority))


def delivery(peer: Peer) -> tuple[methods.StreamDeliver, Content]:
    method = peer.expect(1, methods.StreamDeliver)
    return method, peer.content(1)


def depth(peer: Peer, queue: str) -> int:
    count: int = peer.call(1, methods.QueueDeclare(queue=queue, passive=True)).message_count
    return count


@rule("0-9/queue/any-content")
def test_each_class_of_content_in_a_queue_is_for_its_consumers(peer: Peer) -> None:
    for exchange in ("", "amq.direct", "amq.fanout", "amq.topic", "amq.headers"):
        queue = declare(peer)
        if exchange:
            peer.call(1, methods.QueueBind(queue=queue, exchange=exchange, routing_key=queue))
        peer.publish(1, b"basic", key=queue, exchange=exchange)
        publish(peer, queue, b"stream", exchange)
        tag = peer.call(1, methods.StreamConsume(queue=queue)).consumer_tag
        method, content = delivery(peer)
        assert (method.consumer_tag, method.exchange, method.queue) == (tag, exchange, queue)
        assert content.body == b"stream"
        got = peer.get(1, queue)
        assert got is not None
        assert got[1].body == b"basic"
        peer.call(1, methods.StreamCancel(consumer_tag=tag))


@rule("0-9/stream/01")
def test_past_a_limit_the_less_important_are_dropped_first(peer: Peer) -> None:
    queue = declare(peer, **{"x-max-length": 3})
    for number, priority in enumerate((7, 0, 7, 0, 7)):
        publish(peer, queue, b"%d" % number, priority=priority)
    assert depth(peer, queue) == 3
    peer.call(1, methods.StreamConsume(queue=queue))
    assert [delivery(peer)[1].body for _ in range(3)] == [b"0", b"2", b"4"]


@rule("0-9/stream/02")
def test_with_priorities_the_more_important_go_first(peer: Peer) -> None:
    queue = declare(peer, **{"x-max-priority": 9})
    publish(peer, queue, b"low", priority=1)
    publish(peer, queue, b"high", priority=8)
    assert depth(peer, queue) == 2
    peer.call(1, methods.StreamConsume(queue=queue))
    assert [delivery(peer)[1].body for _ in range(2)] == [b"high", b"low"]


@rule("0-9/stream/03")
def test_what_was_sent_is_done_with(peer: Peer, connect: Connect) -> None:
    queue: str = peer.call(1, methods.QueueDeclare(queue="stream.sent")).queue
    with connect() as other:
        other.call(1, methods.StreamConsume(queue=queue))
        publish(peer, queue, b"sent")
        assert delivery(other)[1].body == b"sent"
    assert depth(peer, queue) == 0
    peer.call(1, methods.QueueDelete(queue=queue))


@rule("0-9/stream.qos/consume-rate/01")
def test_a_consumer_with_a_rate_gets_no_more_than_that_at_once(peer: Peer) -> None:
    queue = declare(peer)
    peer.call(1, methods.StreamQos(consume_rate=1))
    peer.call(1, methods.StreamConsume(queue=queue))
    for _ in range(3):
        publish(peer, queue, bytes(1_000_000))
    assert len(delivery(peer)[1].body) == 1_000_000
    assert depth(peer, queue) == 2


@rule("0-9/stream.consume/01")
def test_a_queue_has_one_consumer_of_the_class(peer: Peer) -> None:
    queue = declare(peer)
    peer.call(1, methods.StreamConsume(queue=queue))
    peer.send(1, methods.StreamConsume(queue=queue))
    peer.expect_channel_close(1, amqp.RESOURCE_LOCKED)


@rule("0-9/stream.consume/queue/01")
def test_an_empty_name_without_a_queue_declared_before(peer: Peer) -> None:
    peer.send(1, methods.StreamConsume())
    peer.expect_connection_close(amqp.NOT_ALLOWED)


@rule("0-9/stream.consume/queue/01")
def test_an_empty_name_is_the_queue_declared_before(peer: Peer) -> None:
    queue = declare(peer)
    peer.call(1, methods.StreamConsume())
    publish(peer, queue, b"there")
    assert delivery(peer)[0].queue == queue


@rule("0-9/stream.consume/consumer-tag/01")
def test_a_tag_is_for_one_consumer_whatever_its_class(peer: Peer) -> None:
    queue = declare(peer)
    peer.call(1, methods.BasicConsume(queue=queue, consumer_tag="tag"))
    peer.send(1, methods.StreamConsume(queue=queue, consumer_tag="tag"))
    peer.expect_connection_close(amqp.NOT_ALLOWED)


@rule("0-9/stream.consume/exclusive/01")
def test_nobody_has_a_queue_alone_that_others_consume_from(peer: Peer) -> None:
    queue = declare(peer)
    peer.call(1, methods.BasicConsume(queue=queue))
    peer.send(1, methods.StreamConsume(queue=queue, exclusive=True))
    peer.expect_channel_close(1, amqp.RESOURCE_LOCKED)


@rule("0-9/stream.publish/exchange/01")
def test_an_empty_exchange_is_the_nameless_one(peer: Peer) -> None:
    queue = declare(peer)
    publish(peer, queue, b"there")
    assert depth(peer, queue) == 1


@rule("0-9/stream.publish/exchange/02")
def test_an_internal_exchange_is_not_for_clients(peer: Peer) -> None:
    publish(peer, "", b"", "amq.rabbitmq.trace")
    peer.expect_channel_close(1, amqp.ACCESS_REFUSED)


@rule("0-9/stream.publish/mandatory/01")
def test_a_mandatory_message_that_no_queue_takes_comes_back(peer: Peer) -> None:
    publish(peer, "none", b"back", mandatory=True)
    method = peer.expect(1, methods.StreamReturn)
    assert (method.reply_code, peer.content(1).body) == (amqp.NO_ROUTE, b"back")


@rule("0-9/stream.publish/immediate/01")
def test_an_immediate_message_that_no_consumer_takes_comes_back(peer: Peer) -> None:
    queue = declare(peer)
    publish(peer, queue, b"back", immediate=True)
    method = peer.expect(1, methods.StreamReturn)
    assert (method.reply_code, peer.content(1).body) == (amqp.NO_CONSUMERS, b"back")
    peer.call(1, methods.StreamConsume(queue=queue))
    publish(peer, queue, b"taken", immediate=True)
    assert delivery(peer)[1].body == b"taken"


@rule("0-9/stream.consume/ticket/01", "0-9/stream.publish/ticket/01")
def test_tickets_decide_nothing_unless_they_are_enforced(peer: Peer) -> None:
    queue = declare(peer)
    peer.call(1, methods.StreamConsume(queue=queue, ticket=77))
    method = methods.StreamPublish(routing_key=queue, ticket=77)
    peer.send_content(1, method, b"there", StreamProperties())
    assert delivery(peer)[1].body == b"there"
